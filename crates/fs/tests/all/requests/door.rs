//! A client and the door that serves it: requests in flight, answers that are late, and what a new
//! server does first.

use crate::requests::script::{Request, all, roll};
use fs::{FileSystem, Ino, RequestId};

/// Most requests whose answers are late.
const LATE_MAX: usize = 6;

/// The requests of one client, which knows one directory, in a pool that is killed and in another
/// that is not.
pub struct Door {
    pub client: u128,
    dice: u64,
    sequence: u64,
    /// Read and not answered, in order. Only the last may be not done.
    in_flight: Vec<(RequestId, Request)>,
    pub served: u64,
    pub repeated: u64,
    pub not_repeated: u64,
}

impl Door {
    pub fn new(client: u128, seed: u64) -> Door {
        let dice = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let in_flight = Vec::new();
        Door { client, dice, sequence: 0, in_flight, served: 0, repeated: 0, not_repeated: 0 }
    }

    fn dir(&self, fs: &FileSystem) -> Ino {
        let name = format!("client{}", self.client & 0xFF);
        fs.lookup(Ino::ROOT, name.as_bytes()).unwrap().ino
    }

    /// All requests that a new server has to ask for.
    pub fn asked(&self) -> Vec<RequestId> {
        self.in_flight.iter().map(|(id, _)| *id).collect()
    }

    /// Serves one more; `dead` says whether the server was killed before it had an answer.
    pub fn serve(&mut self, fs: &FileSystem, kept: &FileSystem, dead: impl Fn() -> bool) {
        let request = Request::any(&mut self.dice);
        self.sequence += 2;
        let id = RequestId { client: self.client, sequence: self.sequence };
        self.in_flight.push((id, request.clone()));
        self.served += 1;
        let expected = request.run(kept, self.dir(kept)).map_err(|error| error.errno());
        let done = fs.with_request(id, || request.run(fs, self.dir(fs)));
        if dead() {
            return;
        }
        assert_eq!(done.map_err(|error| error.errno()), expected, "{request:?}");
        let is_known = fs.was_done(id) || !request.changes_always() || expected.is_err();
        assert!(is_known, "its record has no id: {request:?}");
        // what had nothing to do is answered at once: later it might have
        let nothing = !fs.was_done(id);
        if nothing || roll(&mut self.dice, 3) == 0 {
            self.in_flight.pop();
            fs.acknowledge(id);
        }
        while self.in_flight.len() > LATE_MAX {
            let late = roll(&mut self.dice, self.in_flight.len() as u64) as usize;
            fs.acknowledge(self.in_flight.remove(late).0);
        }
    }

    /// What a server does first that has taken over.
    pub fn resume(&mut self, fs: &FileSystem, dead: impl Fn() -> bool) {
        let last = self.in_flight.len().saturating_sub(1);
        for (number, (id, request)) in std::mem::take(&mut self.in_flight).into_iter().enumerate() {
            if fs.was_done(id) {
                self.not_repeated += 1;
                self.in_flight.push((id, request));
                continue;
            }
            assert!(number >= last, "{id:?} was done, and is forgotten: {request:?}");
            self.repeated += 1;
            let _ = fs.with_request(id, || request.run(fs, self.dir(fs)));
            if dead() || fs.was_done(id) {
                self.in_flight.push((id, request));
            }
        }
    }

    /// Answers all.
    pub fn answer(&mut self, fs: &FileSystem) {
        self.in_flight.drain(..).for_each(|(id, _)| fs.acknowledge(id));
    }

    /// Both pools show the same to the client.
    pub fn compare(&self, fs: &FileSystem, kept: &FileSystem, what: &str) {
        let (found, expected) = (all(fs, self.dir(fs)), all(kept, self.dir(kept)));
        for (name, seen) in &expected {
            let name_text = String::from_utf8_lossy(name);
            assert_eq!(found.get(name), Some(seen), "{what}: {name_text}");
        }
        assert_eq!(found.len(), expected.len(), "{what}");
    }
}
