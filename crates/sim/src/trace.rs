//! Calls that were recorded of a real pool (`nearside trace`), as text.
//!
//! ```text
//! nearside trace 1
//! nodes 2
//! file 0 1048576 1          number, bytes, the node on which it begins (-: nobody knows)
//! call 0 812 3 1 read 0 4096 4096
//!                           began (ns), took (ns), thread, node on which that ran, read or write,
//!                           file, where in it, bytes
//! end 1 0                   calls, and calls that were lost
//! ```
//!
//! Calls come in the order in which they began. What a thread did between two calls is the time
//! between the end of one and the beginning of the next: so long it thinks before that; before the
//! first one since the recording began, and after its last one it rests until that ends.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::str::{FromStr, SplitAsciiWhitespace};

use placement::Kind;

use crate::setting::{CALL_BYTES_MAX, FILE_BYTES_MAX, FILES_MAX, NODES_MAX, THREADS_MAX};

/// First line.
const HEAD: &str = "nearside trace 1";
/// Longest time, ns.
const TIME_MAX: u64 = 1 << 60;

/// What was recorded.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Trace {
    /// Nodes of the machine.
    pub nodes: u32,
    /// Files.
    pub files: Vec<TracedFile>,
    /// Threads.
    pub threads: Vec<TracedThread>,
    /// From the beginning of the first call to the end of the last one, ns.
    pub span_ns: f64,
    /// Calls for which there was no room.
    pub lost: u64,
}

/// A file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TracedFile {
    /// Its size, and no less than where calls to it ended.
    pub bytes: u64,
    /// The node on which it begins.
    pub node: Option<u32>,
}

/// A thread.
#[derive(Clone, PartialEq, Debug)]
pub struct TracedThread {
    /// The node on which it ran first.
    pub node: u32,
    /// Its calls, one at least.
    pub calls: Vec<TracedCall>,
    /// Time from its last one to the recording's end, ns.
    pub rests_ns: f64,
}

/// A call.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TracedCall {
    /// For how long its thread was at other things before it, ns.
    pub thinks_ns: f64,
    /// What it did.
    pub kind: Kind,
    /// The file,
    pub file: u32,
    /// where in it,
    pub at: u64,
    /// and how many bytes.
    pub bytes: u64,
}

/// What is wrong with a recording.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}, {field}: {why}")]
pub struct TraceError {
    /// The line, from 1.
    pub line: usize,
    /// What of it.
    pub field: &'static str,
    /// What is wrong.
    pub why: String,
}

type Found<T> = Result<T, (&'static str, String)>;

/// Writes a recording, line by line.
#[derive(Debug, Default)]
pub struct TraceText {
    text: String,
    calls: u64,
}

impl TraceText {
    /// Nothing yet, of a machine of so many nodes.
    pub fn new(nodes: u32) -> TraceText {
        TraceText { text: format!("{HEAD}\nnodes {nodes}\n"), calls: 0 }
    }

    /// A file, before calls to it.
    pub fn file(&mut self, number: usize, bytes: u64, node: Option<u32>) {
        let node = node.map_or_else(|| "-".to_owned(), |node| node.to_string());
        // writing to a string does not fail
        let _ = writeln!(self.text, "file {number} {bytes} {node}");
    }

    /// A call: when it began and how long it took, its thread and where that ran, what it did, and
    /// the file, where in it and how many bytes.
    pub fn call(
        &mut self,
        [began, took]: [u64; 2],
        (thread, node): (u64, u32),
        kind: Kind,
        (file, at, bytes): (usize, u64, u64),
    ) {
        let kind = if kind == Kind::Read { "read" } else { "write" };
        let text = &mut self.text;
        let _ = writeln!(text, "call {began} {took} {thread} {node} {kind} {file} {at} {bytes}");
        self.calls += 1;
    }

    /// The end; so many calls were lost.
    pub fn end(mut self, lost: u64) -> String {
        let _ = writeln!(self.text, "end {} {lost}", self.calls);
        self.text
    }
}

/// A line's words.
struct Words<'t>(SplitAsciiWhitespace<'t>);

impl Words<'_> {
    fn word(&mut self, field: &'static str) -> Found<&str> {
        self.0.next().ok_or_else(|| (field, "it is missing".to_owned()))
    }

    /// A number, up to `most`.
    fn number<N: FromStr + PartialOrd + std::fmt::Display>(
        &mut self,
        field: &'static str,
        most: N,
    ) -> Found<N> {
        let word = self.word(field)?;
        match word.parse::<N>() {
            Ok(number) if number <= most => Ok(number),
            _ => Err((field, format!("{word:?} is no number from 0 to {most}"))),
        }
    }

    fn end(&mut self) -> Found<()> {
        match self.0.next() {
            None => Ok(()),
            Some(word) => Err(("end of line", format!("{word:?} is too much"))),
        }
    }
}

/// While it is read.
#[derive(Default)]
struct Reading {
    trace: Trace,
    /// Threads by their numbers, and when the last call of each was over.
    threads: HashMap<u64, (usize, u64)>,
    calls: u64,
    first: Option<u64>,
    last: u64,
    is_over: bool,
}

impl Trace {
    /// What a text says.
    ///
    /// # Errors
    /// What is wrong with it, in which line and which field.
    pub fn parse(text: &str) -> Result<Trace, TraceError> {
        let mut reading = Reading::default();
        let mut count = 0;
        for (line, said) in text.lines().enumerate() {
            count = line + 1;
            reading.line(line, said).map_err(|(field, why)| TraceError {
                line: line + 1,
                field,
                why,
            })?;
        }
        let lacks = |why: &str| TraceError { line: count, field: "end", why: why.to_owned() };
        match () {
            () if !reading.is_over => Err(lacks("it is not there: the rest is cut off")),
            () if reading.trace.threads.is_empty() => Err(lacks("there is no call")),
            () => Ok(reading.trace),
        }
    }

    /// The longest call, bytes.
    pub fn longest(&self) -> u64 {
        let all = self.threads.iter().flat_map(|thread| &thread.calls);
        all.map(|call| call.bytes).max().unwrap_or(0)
    }

    /// Calls in all.
    pub fn calls(&self) -> usize {
        self.threads.iter().map(|thread| thread.calls.len()).sum()
    }
}

impl Reading {
    fn line(&mut self, line: usize, text: &str) -> Found<()> {
        let mut words = Words(text.split_ascii_whitespace());
        if line == 0 {
            return match text.trim_end() == HEAD {
                true => Ok(()),
                false => Err(("head", format!("this is no recording: it begins with {HEAD:?}"))),
            };
        }
        if self.is_over {
            return Err(("line", "it comes after the end".to_owned()));
        }
        match (line, words.word("line")?) {
            (1, "nodes") => {
                self.trace.nodes = words.number("nodes", NODES_MAX)?;
                if self.trace.nodes == 0 {
                    return Err(("nodes", "a machine has one at least".to_owned()));
                }
            }
            (1, other) => return Err(("nodes", format!("{other:?} comes before nodes"))),
            (_, "file") => self.file(&mut words)?,
            (_, "call") => self.call(&mut words)?,
            (_, "end") => self.end(&mut words)?,
            (_, other) => return Err(("line", format!("{other:?} is no file, call or end"))),
        }
        words.end()
    }

    fn node(&self, word: &str) -> Found<u32> {
        let nodes = self.trace.nodes;
        word.parse().ok().filter(|node| *node < nodes).ok_or_else(|| {
            ("node", format!("{word:?} is no node of {nodes}, which are counted from 0"))
        })
    }

    fn file(&mut self, words: &mut Words<'_>) -> Found<()> {
        let number = words.number("file", FILES_MAX as usize)?;
        if number != self.trace.files.len() {
            let next = self.trace.files.len();
            return Err(("file", format!("{number} comes where {next} is next")));
        }
        let bytes = words.number("bytes of the file", FILE_BYTES_MAX)?;
        let node = match words.word("node")? {
            "-" => None,
            word => Some(self.node(word)?),
        };
        self.trace.files.push(TracedFile { bytes, node });
        Ok(())
    }

    fn call(&mut self, words: &mut Words<'_>) -> Found<()> {
        let began = words.number("began", TIME_MAX)?;
        if began < self.last {
            return Err(("began", format!("{began} is before the call before it, {}", self.last)));
        }
        let took = words.number("took", TIME_MAX)?;
        let thread = words.number("thread", u64::MAX)?;
        let node = words.word("node")?;
        let node = self.node(node)?;
        let kind = match words.word("kind")? {
            "read" => Kind::Read,
            "write" => Kind::Write,
            other => return Err(("kind", format!("{other:?} is neither read nor write"))),
        };
        let file: u32 = words.number("file", FILES_MAX)?;
        let at = words.number("where", FILE_BYTES_MAX)?;
        let bytes = words.number("bytes", CALL_BYTES_MAX)?;
        if bytes == 0 {
            return Err(("bytes", "a call has one at least".to_owned()));
        }
        let Some(its) = self.trace.files.get_mut(file as usize) else {
            return Err(("file", format!("there is no file {file} before this line")));
        };
        if at + bytes > FILE_BYTES_MAX {
            return Err(("where", format!("a file has {FILE_BYTES_MAX} bytes at most")));
        }
        its.bytes = its.bytes.max(at + bytes);
        let all = &mut self.trace.threads;
        let first = *self.first.get_or_insert(began);
        let (place, over) = *self.threads.entry(thread).or_insert_with(|| {
            all.push(TracedThread { node, calls: Vec::new(), rests_ns: 0.0 });
            (all.len() - 1, first)
        });
        if all.len() > THREADS_MAX as usize {
            return Err(("thread", format!("there are {THREADS_MAX} threads at most")));
        }
        let thinks_ns = began.saturating_sub(over) as f64;
        if let Some(its) = all.get_mut(place) {
            its.calls.push(TracedCall { thinks_ns, kind, file, at, bytes });
        }
        self.threads.insert(thread, (place, began + took));
        self.last = began;
        self.calls += 1;
        Ok(())
    }

    fn end(&mut self, words: &mut Words<'_>) -> Found<()> {
        let calls = words.number("calls", u64::MAX)?;
        if calls != self.calls {
            return Err(("calls", format!("it says {calls}, and there are {}", self.calls)));
        }
        self.trace.lost = words.number("lost", u64::MAX)?;
        let until = self.threads.values().map(|(_, over)| *over).max().unwrap_or(0);
        self.trace.span_ns = until.saturating_sub(self.first.unwrap_or(0)) as f64;
        for (place, over) in self.threads.values() {
            if let Some(thread) = self.trace.threads.get_mut(*place) {
                thread.rests_ns = (until - over) as f64;
            }
        }
        self.is_over = true;
        Ok(())
    }
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
