//! A peer that is a small program of ours in C: it calls a library for C, or the kernel where Rust
//! without `unsafe` cannot.
//!
//! The programs lie in `c/` and are compiled when they are wanted, where the library is installed:
//! neither Nearside nor its build needs any of them. They make what they work on, say "ready NAME",
//! and answer each line that they are told on stdin with a line, so that nothing of them is timed
//! but what was asked for. They end with their orders, and with the thread that started them.

use crate::error::{Error, Result, io};
use crate::piped::Piped;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the programs include.
const COMMON: [(&str, &str); 2] =
    [("peer.h", include_str!("../c/peer.h")), ("turns.h", include_str!("../c/turns.h"))];

/// Which program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Of the peer, for people.
    pub name: &'static str,
    /// Its source.
    pub source: &'static str,
    /// What the linker calls the library.
    pub library: &'static str,
    /// Debian's package of the library with its headers.
    pub package: &'static str,
    /// Its last arguments.
    pub arguments: &'static [&'static str],
}

/// A program at work.
#[derive(Debug)]
pub struct Peer {
    process: Piped,
    /// What it said of itself when it was ready: what the library calls its version.
    pub version: String,
    path: PathBuf,
}

/// Why there is none, or the program.
pub type Found = std::result::Result<Peer, String>;

impl Peer {
    /// Compiles a program in `programs` and starts it on `path`, with these arguments behind it;
    /// returns when it is ready.
    pub fn start(
        program: &Program,
        programs: &Path,
        path: &Path,
        arguments: &[&dyn AsRef<OsStr>],
    ) -> Result<Found> {
        let compiled = match compile(program, programs)? {
            Ok(compiled) => compiled,
            Err(why) => return Ok(Err(why)),
        };
        let mut command = Command::new(&compiled);
        command.arg(path).args(arguments).args(program.arguments);
        // a file on tmpfs is no persistent memory to libpmem, which would call msync then
        command.env("PMEM_IS_PMEM_FORCE", "1");
        let process = Piped::start(command, path.to_path_buf())?;
        let mut peer = Peer { process, version: String::new(), path: path.to_path_buf() };
        let said = peer.process.hear()?;
        let version = said.strip_prefix("ready ").ok_or_else(|| peer.ended())?;
        peer.version = version.trim_end().to_owned();
        Ok(Ok(peer))
    }

    /// Its answer to an order: numbers.
    pub fn ask(&mut self, order: &str) -> Result<Vec<u64>> {
        self.process.tell(order)?;
        let line = self.process.hear()?;
        let numbers: std::result::Result<Vec<u64>, _> =
            line.split_whitespace().map(str::parse).collect();
        numbers.ok().filter(|numbers| !numbers.is_empty()).ok_or_else(|| self.ended())
    }

    fn ended(&self) -> Error {
        io(&self.path)(std::io::Error::other("the peer's program has ended"))
    }
}

/// Where the compiled program is, or why it could not be made.
fn compile(program: &Program, dir: &Path) -> Result<std::result::Result<PathBuf, String>> {
    let missing = |why: &str| Ok(Err(why.to_owned()));
    let put = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(io(&path)).map(|()| path)
    };
    COMMON.iter().try_for_each(|(name, text)| put(name, text).map(drop))?;
    let source = put(&format!("{}.c", program.library), program.source)?;
    let compiled = dir.join(program.library);
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O2"]).arg(&source).arg("-o").arg(&compiled);
    match command.arg(format!("-l{}", program.library)).args(["-lm", "-pthread"]).output() {
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
        let found = Peer::start(&NONE, scratch.path(), &file, &[]).unwrap();
        let why = found.unwrap_err();
        assert!(why.contains("no-such-library-dev") || why.contains("no C compiler"), "{why}");
    }
}
