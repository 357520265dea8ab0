//! The peers of the deck: programs that make an array, and write to one page of it after the other
//! in transactions.

use super::sides::Side;
use crate::clock::Turn;
use crate::error::Result;
use crate::peer::{Found, Peer, Program};
use std::path::Path;

/// PMDK's transactions. It asks whether the memory is persistent, and flushes if it is.
pub const PMEMOBJ: Program = Program {
    name: "PMDK libpmemobj",
    source: include_str!("../../c/pmemobj.c"),
    library: "pmemobj",
    package: "libpmemobj-dev",
    arguments: &[],
};

/// LMDB, which writes its file with system calls.
pub const LMDB: Program = Program {
    name: "LMDB, no sync",
    source: include_str!("../../c/lmdb.c"),
    library: "lmdb",
    package: "liblmdb-dev",
    arguments: &[],
};

/// LMDB, which stores to its mapping.
pub const LMDB_MAPPED: Program =
    Program { name: "LMDB, no sync, write map", arguments: &["writemap"], ..LMDB };

/// SQLite.
pub const SQLITE: Program = Program {
    name: "SQLite, WAL, synchronous off",
    source: include_str!("../../c/sqlite.c"),
    library: "sqlite3",
    package: "libsqlite3-dev",
    arguments: &[],
};

/// Starts a program on an array of `bytes` bytes in the file `path`, which it makes.
pub fn start(program: &Program, programs: &Path, path: &Path, bytes: u64) -> Result<Found> {
    Peer::start(program, programs, path, &[&bytes.to_string()])
}

impl Side for Peer {
    fn turn(&mut self, bytes: usize, count: u64) -> Result<Turn> {
        let wall_ns = self.ask(&format!("{bytes} {count}"))?[0];
        Ok(Turn { count, wall_ns, ..Turn::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn those_that_are_there_take_turns() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        for (number, program) in [PMEMOBJ, LMDB, LMDB_MAPPED, SQLITE].iter().enumerate() {
            let file = scratch.path().join(format!("array-{number}"));
            match start(program, scratch.path(), &file, 1 << 20).unwrap() {
                Ok(mut peer) => {
                    for bytes in [8, 64, 4096] {
                        let turn = peer.turn(bytes, 300).unwrap();
                        assert!(turn.count == 300 && turn.wall_ns > 0, "{}", program.name);
                    }
                }
                Err(why) => eprintln!("{}: {why}", program.name),
            }
        }
    }
}
