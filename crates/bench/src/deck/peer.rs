//! A peer that is a library for C: a small program of ours that calls it.
//!
//! The programs lie in `c/` and are compiled when they are wanted, where the library is installed:
//! neither Nearside nor its build needs any of them. They make their array, and take their turns
//! as they are told on stdin, so that nothing of them is timed but transactions.

use crate::clock::Turn;
use crate::error::{Error, Result, io};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What all programs include.
const COMMON: &str = include_str!("../../c/turns.h");

/// Which program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Of the peer, for people.
    pub name: &'static str,
    source: &'static str,
    /// What the linker calls the library.
    library: &'static str,
    /// Debian's package of the library with its headers.
    package: &'static str,
    /// Arguments behind the file and the array's bytes.
    arguments: &'static [&'static str],
}

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

/// Its program, at work on an array.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// What the library calls its version.
    pub version: String,
    path: PathBuf,
}

/// Why there is none, or the program.
pub type Found = std::result::Result<Peer, String>;

impl Peer {
    /// Compiles a program in `programs` and starts it on an array of `bytes` bytes in the file
    /// `path`, which it makes.
    pub fn start(program: &Program, programs: &Path, path: &Path, bytes: u64) -> Result<Found> {
        let compiled = match compile(program, programs)? {
            Ok(compiled) => compiled,
            Err(why) => return Ok(Err(why)),
        };
        let mut command = Command::new(&compiled);
        command.arg(path).arg(bytes.to_string()).args(program.arguments);
        // a file on tmpfs is no persistent memory to libpmem, which would call msync then
        command.env("PMEM_IS_PMEM_FORCE", "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(io(&compiled))?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take());
        let answers = answers.ok_or(std::io::ErrorKind::BrokenPipe.into()).map_err(io(path))?;
        let (answers, path) = (BufReader::new(answers), path.to_path_buf());
        let mut peer = Peer { child, orders, answers, version: String::new(), path };
        let said = peer.line()?;
        let version = said.strip_prefix("ready ").ok_or_else(|| peer.ended())?;
        peer.version = version.trim_end().to_owned();
        Ok(Ok(peer))
    }

    /// Has it do `count` transactions of `bytes` bytes.
    pub fn turn(&mut self, bytes: usize, count: u64) -> Result<Turn> {
        let order = format!("{bytes} {count}\n");
        let written = self.orders.as_mut().map(|orders| orders.write_all(order.as_bytes()));
        written.unwrap_or(Ok(())).map_err(io(&self.path))?;
        let wall_ns = self.line()?.trim_end().parse().map_err(|_| self.ended())?;
        Ok(Turn { count, wall_ns, ..Turn::default() })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(io(&self.path))?;
        Ok(line)
    }

    fn ended(&self) -> Error {
        io(&self.path)(std::io::Error::other("the peer's program has ended"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // it ends at the end of its orders
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}

/// Where the compiled program is, or why it could not be made.
fn compile(program: &Program, dir: &Path) -> Result<std::result::Result<PathBuf, String>> {
    let missing = |why: &str| Ok(Err(why.to_owned()));
    let put = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(io(&path)).map(|()| path)
    };
    put("turns.h", COMMON)?;
    let source = put(&format!("{}.c", program.library), program.source)?;
    let compiled = dir.join(program.library);
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O2"]).arg(&source).arg("-o").arg(&compiled);
    match command.arg(format!("-l{}", program.library)).output() {
        Ok(done) if done.status.success() => Ok(Ok(compiled)),
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            match said.contains("No such file") || said.contains("cannot find -l") {
                true => missing(&format!("not installed ({})", program.package)),
                false => missing(&format!("does not compile: {}", said.trim_end())),
            }
        }
        Err(error) => missing(&format!("no C compiler (cc: {error})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    const NONE: Program = Program {
        name: "none",
        source: "#include \"turns.h\"\n#include <no-such-library.h>\n",
        library: "no-such-library",
        package: "no-such-library-dev",
        arguments: &[],
    };

    #[test]
    fn a_library_that_is_not_there_is_named_by_its_package() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let file = scratch.path().join("array");
        let found = Peer::start(&NONE, scratch.path(), &file, 4096).unwrap();
        let why = found.unwrap_err();
        assert!(why.contains("no-such-library-dev") || why.contains("no C compiler"), "{why}");
    }

    #[test]
    fn those_that_are_there_take_turns() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        for (number, program) in [PMEMOBJ, LMDB, LMDB_MAPPED, SQLITE].iter().enumerate() {
            let file = scratch.path().join(format!("array-{number}"));
            match Peer::start(program, scratch.path(), &file, 1 << 20).unwrap() {
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
