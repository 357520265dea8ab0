//! `POOL:/path`: something in a pool, as the command line names it.
//!
//! The first `:/` ends the pool's directory. A file outside whose path holds `:/` is named from
//! its own directory. Where a pool is mounted names it as well as its directory does.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::error::Error;
use crate::whereabouts;

/// A place in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPath {
    /// Directory of the pool.
    pub pool: PathBuf,
    /// Path in it, from its root.
    pub path: PathBuf,
}

/// What a command works on: in a pool, or among the machine's own files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// In a pool.
    Inside(PoolPath),
    /// Among the machine's own files.
    Outside(PathBuf),
}

impl PoolPath {
    /// Takes `POOL:/path`.
    pub fn parser() -> impl TypedValueParser<Value = PoolPath> {
        OsStringValueParser::new().try_map(parse)
    }

    /// Takes `POOL`, which means its root, or `POOL:/path`.
    pub fn or_root_parser() -> impl TypedValueParser<Value = PoolPath> {
        OsStringValueParser::new().try_map(parse_or_root)
    }

    /// As the command line writes it.
    pub fn shown(&self) -> PathBuf {
        shown(&self.pool, &self.path)
    }

    /// An error that names this place; `reason` says what to do.
    pub fn refuse(&self, reason: impl Into<String>) -> Error {
        Error::Path { shown: self.shown(), reason: reason.into() }
    }

    /// What `name` names in the directory that this is.
    pub fn child(&self, name: &[u8]) -> PoolPath {
        let path = self.path.join(OsStr::from_bytes(name));
        PoolPath { pool: self.pool.clone(), path }
    }

    /// Whether the path ends in `.` or `..`, and so in no name of its own.
    pub fn is_nameless(&self) -> bool {
        let last = self.path.as_os_str().as_bytes().rsplit(|&byte| byte == b'/');
        matches!(last.into_iter().find(|part| !part.is_empty()), None | Some(b"." | b".."))
    }
}

impl Operand {
    /// Takes `POOL:/path`, or any other path.
    pub fn parser() -> impl TypedValueParser<Value = Operand> {
        OsStringValueParser::new().try_map(parse_operand)
    }
}

/// `path` of the pool in `pool` as the command line writes it.
pub fn shown(pool: &Path, path: &Path) -> PathBuf {
    let mut text = pool.as_os_str().to_owned();
    text.push(":");
    text.push(path);
    text.into()
}

/// Whether two paths lead to one pool.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize();
    one == other || matches!((real(one), real(other)), (Ok(one), Ok(other)) if one == other)
}

fn split(text: &OsStr) -> Option<(&Path, &Path)> {
    let bytes = text.as_bytes();
    let at = bytes.windows(2).position(|pair| pair == b":/")?;
    let part = |bytes| Path::new(OsStr::from_bytes(bytes));
    Some((part(&bytes[..at]), part(&bytes[at + 1..])))
}

/// The pool's directory. Here, so that all that comes later, messages too, speaks of the pool.
fn meant(place: &Path) -> PathBuf {
    whereabouts::pool_at(place).unwrap_or_else(|_| place.to_owned())
}

fn parse(text: OsString) -> Result<PoolPath, String> {
    match split(&text) {
        Some((pool, path)) if !pool.as_os_str().is_empty() => {
            Ok(PoolPath { pool: meant(pool), path: path.to_owned() })
        }
        _ => Err("write POOL:/path, like /data/pool:/notes/today".to_owned()),
    }
}

fn parse_or_root(text: OsString) -> Result<PoolPath, String> {
    match split(&text) {
        None if !text.is_empty() => {
            Ok(PoolPath { pool: meant(Path::new(&text)), path: "/".into() })
        }
        _ => parse(text),
    }
}

fn parse_operand(text: OsString) -> Result<Operand, String> {
    match split(&text) {
        None if text.is_empty() => Err("name a file or a directory".to_owned()),
        None => Ok(Operand::Outside(text.into())),
        Some(_) => parse(text).map(Operand::Inside),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(pool: &str, path: &str) -> PoolPath {
        PoolPath { pool: pool.into(), path: path.into() }
    }

    #[test]
    fn the_first_colon_before_a_slash_ends_the_pool() {
        for (text, pool, path) in [
            ("/p:/", "/p", "/"),
            ("p:/a b", "p", "/a b"),
            ("/p:q/r:/a:/b", "/p:q/r", "/a:/b"),
            ("p:/x\n/", "p", "/x\n/"),
        ] {
            assert_eq!(parse(text.into()), Ok(made(pool, path)));
            assert_eq!(parse_or_root(text.into()), Ok(made(pool, path)));
            assert_eq!(made(pool, path).shown(), Path::new(text));
        }
        for text in ["", "p", "p:", "p:a", ":/a"] {
            assert!(parse(text.into()).unwrap_err().contains("POOL:/path"), "{text}");
        }
        assert_eq!(parse_or_root("/p:q".into()), Ok(made("/p:q", "/")));
        assert!(parse_or_root("".into()).is_err() && parse_or_root(":/a".into()).is_err());
        assert_eq!(parse_operand("a:b".into()), Ok(Operand::Outside("a:b".into())));
        assert!(parse_operand("".into()).is_err() && parse_operand(":/a".into()).is_err());
    }

    #[test]
    fn a_path_that_ends_in_dots_has_no_name() {
        for path in ["/", "//", "/a/.", "/a/..", "/..//"] {
            assert!(made("p", path).is_nameless(), "{path}");
        }
        for path in ["/a", "/a/", "/...", "/../a"] {
            assert!(!made("p", path).is_nameless(), "{path}");
        }
    }
}
