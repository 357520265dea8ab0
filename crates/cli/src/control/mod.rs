//! `POOL/nearside.sock`: questions to the server of a mounted pool.
//!
//! One line of JSON asks, one answers: `{"nearside":1,"ask":"facts"}` and
//! `{"nearside":1,"done":{...}}`, or `{"nearside":1,"failed":"why"}`. A long answer may come after
//! lines of `{"nearside":1,"progress":{...}}`. A connection may ask again and again.
//!
//! Only the pool's owner and root may ask: the socket's mode says so, and the server looks at who
//! is at the other end. What comes over it is never trusted: lines are bounded, and what makes no
//! sense ends the connection.
//!
//! The same server shows numbers, and a page with charts of them, where `--http` says.

mod answer;
mod client;
mod connection;
mod http;
mod page;
mod port;
mod server;
mod socket;

use serde::{Deserialize, Serialize};

pub use answer::Subject;
pub use client::{Client, is_served};
pub use server::Server;

/// The protocol's version; another one is refused.
const VERSION: u32 = 1;
/// Longest question, bytes.
const QUESTION_BYTES_MAX: usize = 64 << 10;
/// Longest answer, bytes.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// A question.
#[derive(Debug, Serialize, Deserialize)]
struct Question {
    nearside: u32,
    #[serde(flatten)]
    ask: Ask,
}

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
enum Ask {
    /// What the pool says about itself.
    Facts,
    /// What calls and checkpoints cost so far.
    Stats,
    /// When an inode was made.
    Created {
        /// Its number.
        inode: u64,
    },
    /// To verify all that is stored, while it is in use.
    Check,
    /// The same by its checksums, and to repair it from copies.
    Scrub {
        /// Bytes per second that are read at most; 0: no bound.
        bytes_per_s: u64,
    },
    /// To write back all that can lie on the devices of the capacity tier.
    TierFlush,
    /// To let go of what is cached of them.
    TierEvict,
    /// To record calls.
    TraceBegin,
    /// What was recorded since the last time, or since it began.
    Trace {
        /// The recording's number.
        recording: u64,
    },
    /// Where these files lie.
    TracedFiles {
        /// Their inodes' numbers.
        inodes: Vec<u64>,
    },
    /// To record no more, and the rest.
    TraceEnd {
        /// The recording's number.
        recording: u64,
    },
}

/// An answer, or a part of one.
#[derive(Debug, Serialize, Deserialize)]
struct Answer<T> {
    nearside: u32,
    #[serde(flatten)]
    say: Say<T>,
}

/// What is said.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Say<T> {
    /// The answer.
    Done(T),
    /// Why there is none.
    Failed(String),
    /// More is to come.
    Progress(Progress),
}

/// How far a long answer is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// Units done: bytes.
    pub done: u64,
    /// Of so many.
    pub of: u64,
}

/// An answer's line.
fn line<T: Serialize>(say: Say<T>) -> Vec<u8> {
    let answer = Answer { nearside: VERSION, say };
    let mut line = serde_json::to_vec(&answer).unwrap_or_else(|error| {
        let failed = Answer::<()> { nearside: VERSION, say: Say::Failed(error.to_string()) };
        serde_json::to_vec(&failed).unwrap_or_default()
    });
    line.push(b'\n');
    line
}

/// The question in a line, or what is wrong with it.
fn question(line: &[u8]) -> Result<Ask, String> {
    let question: Question = serde_json::from_slice(line)
        .map_err(|error| format!("this is no question of nearside: {error}"))?;
    match question.nearside {
        VERSION => Ok(question.ask),
        other => Err(format!("version {other} of the protocol; this server speaks {VERSION}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_reads_as_its_head_says() {
        assert!(matches!(question(br#"{"nearside":1,"ask":"facts"}"#), Ok(Ask::Facts)));
        let asked = question(br#"{"nearside":1,"ask":"created","inode":7}"#);
        assert!(matches!(asked, Ok(Ask::Created { inode: 7 })));
        let say = |say: Say<u64>| String::from_utf8(line(say)).unwrap();
        assert_eq!(say(Say::Done(5)), "{\"nearside\":1,\"done\":5}\n");
        assert_eq!(say(Say::Failed("no".into())), "{\"nearside\":1,\"failed\":\"no\"}\n");
        for wrong in ["", "{}", "[]", "1", "{\"nearside\":1}", "{\"nearside\":1,\"ask\":\"x\"}"] {
            assert!(question(wrong.as_bytes()).unwrap_err().contains("no question"), "{wrong}");
        }
        let newer = question(br#"{"nearside":2,"ask":"facts"}"#).unwrap_err();
        assert!(newer.contains("version 2"), "{newer}");
        // Deep nesting meets the parser's own bound, not the stack's end.
        assert!(question(&vec![b'['; QUESTION_BYTES_MAX]).is_err());
    }
}
