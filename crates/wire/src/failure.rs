//! Errors as they travel.

use fs::Error;
use serde::{Deserialize, Serialize};

/// An error of the service's, for a process: what can be matched stays so, the rest is its errno
/// and its words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    kind: Kind,
    errno: i32,
    words: String,
    /// The path that it is about, if it is about one.
    pub path: Option<Vec<u8>>,
}

/// Errors that have no words of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    Other,
    NotFound,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    NameTooLong,
    TooBig,
    NoSpace,
    TooManyLinks,
    NoAttribute,
    AttributeSize,
    ReadOnly,
    NoSuchRange,
    Locked,
    Deadlock,
    Conflict,
    TooLong,
    Interrupted,
}

const KINDS: [(Kind, Error); 18] = [
    (Kind::NotFound, Error::NotFound),
    (Kind::Exists, Error::Exists),
    (Kind::NotDirectory, Error::NotDirectory),
    (Kind::IsDirectory, Error::IsDirectory),
    (Kind::NotEmpty, Error::NotEmpty),
    (Kind::NameTooLong, Error::NameTooLong),
    (Kind::TooBig, Error::TooBig),
    (Kind::NoSpace, Error::NoSpace),
    (Kind::TooManyLinks, Error::TooManyLinks),
    (Kind::NoAttribute, Error::NoAttribute),
    (Kind::AttributeSize, Error::AttributeSize),
    (Kind::ReadOnly, Error::ReadOnly),
    (Kind::NoSuchRange, Error::NoSuchRange),
    (Kind::Locked, Error::Locked),
    (Kind::Deadlock, Error::Deadlock),
    (Kind::Conflict, Error::Conflict),
    (Kind::TooLong, Error::TooLong),
    (Kind::Interrupted, Error::Interrupted),
];

impl Failure {
    /// One of the engine's.
    pub fn of(error: &Error, path: Option<Vec<u8>>) -> Failure {
        let is_same =
            |other: &Error| std::mem::discriminant(other) == std::mem::discriminant(error);
        let known = KINDS.iter().find(|(_, other)| is_same(other));
        match known {
            Some((kind, error)) => {
                Failure { kind: *kind, errno: error.errno(), words: String::new(), path }
            }
            None => Failure::other(error.errno(), error.to_string(), path),
        }
    }

    /// Any other one.
    pub fn other(errno: i32, words: String, path: Option<Vec<u8>>) -> Failure {
        Failure { kind: Kind::Other, errno, words, path }
    }

    /// The error that it is for the process.
    pub fn error(self) -> Error {
        let known = KINDS.iter().find(|(kind, _)| *kind == self.kind);
        match known {
            Some((_, error)) => error.clone(),
            None => Error::Elsewhere { errno: self.errno, words: self.words },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_the_same_on_the_other_side() {
        for (_, error) in KINDS {
            let there = Failure::of(&error, None).error();
            assert_eq!(std::mem::discriminant(&there), std::mem::discriminant(&error));
        }
        for error in [Error::Invalid("no"), Error::Damaged("block 7".to_owned())] {
            let there = Failure::of(&error, None).error();
            assert_eq!((there.errno(), there.to_string()), (error.errno(), error.to_string()));
        }
    }
}
