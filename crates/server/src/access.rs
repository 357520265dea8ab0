//! The access file: what those may do who come with a certificate.
//!
//! ```text
//! # NAME  UID:GID[,GROUP...]  [path=/SUBTREE] [read-only] [squash=all|root|none]
//! ann     1000:1000,27
//! backup  34:34  path=/home  read-only
//! ```
//!
//! A line for each identity, which is the first DNS name of its certificate.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Component, Path};

use crate::rights::{Rights, Squash};

/// Longest name of a machine.
const NAME_BYTES_MAX: usize = 253;
/// Groups of an identity, as many as Linux has for a process.
const GROUPS_MAX: usize = 65_536;

/// A line that makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {field}: {why}")]
pub struct Nonsense {
    /// Its number, from 1 on.
    pub line: usize,
    /// What of it.
    pub field: String,
    /// What is wrong with that.
    pub why: &'static str,
}

/// What each identity may do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Access(HashMap<String, Rights>);

impl Access {
    /// What a file says.
    ///
    /// # Errors
    /// The first line that makes no sense.
    pub fn parse(text: &str) -> Result<Access, Nonsense> {
        let mut all = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            let words = line.split('#').next().unwrap_or_default().split_whitespace();
            let nonsense = |(field, why): (&str, _)| Nonsense {
                line: number + 1,
                field: field.to_owned(),
                why,
            };
            let Some((name, rights)) = identity(words).map_err(nonsense)? else { continue };
            match all.entry(name) {
                Entry::Vacant(place) => drop(place.insert(rights)),
                Entry::Occupied(one) => {
                    return Err(nonsense((one.key(), "a line before has this name")));
                }
            }
        }
        Ok(Access(all))
    }

    /// What the identity of this name may do, if there is one.
    pub fn of(&self, name: &str) -> Option<&Rights> {
        self.0.get(name)
    }
}

/// A part of a line, and what is wrong with it.
type Wrong<'l> = (&'l str, &'static str);

fn identity<'l>(
    mut words: impl Iterator<Item = &'l str>,
) -> Result<Option<(String, Rights)>, Wrong<'l>> {
    let Some(name) = words.next() else { return Ok(None) };
    if !is_name(name) {
        return Err((name, "it is no name: letters, digits and hyphens, with dots between"));
    }
    let numbers = words.next().ok_or((name, "UID:GID is missing behind it"))?;
    let mut rights = numbers_of(numbers).ok_or((numbers, "say UID:GID or UID:GID,GROUP,..."))?;
    let mut seen = [false; 3];
    for word in words {
        let which = match word.split_once('=').unwrap_or((word, "")) {
            ("path", dir) => {
                let is_clean = |part| matches!(part, Component::RootDir | Component::Normal(_));
                let path = Path::new(dir);
                if !path.is_absolute() || !path.components().all(is_clean) {
                    return Err((word, "say a directory of the pool from its root on, without .."));
                }
                rights.subtree = Some(path.to_path_buf());
                0
            }
            ("read-only", "") if !word.contains('=') => {
                rights.read_only = true;
                1
            }
            ("squash", whom) => {
                rights.squash = squash(whom).ok_or((word, "say squash=all, =root or =none"))?;
                2
            }
            _ => return Err((word, "say path=/DIR, read-only or squash=all|root|none")),
        };
        if std::mem::replace(&mut seen[which], true) {
            return Err((word, "it is said twice"));
        }
    }
    Ok(Some((name.to_ascii_lowercase(), rights)))
}

/// Whether a certificate may have this DNS name, and it is a name and not a pattern.
fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label)
}

fn numbers_of(text: &str) -> Option<Rights> {
    // the kernel knows nobody by the last number; chown(2) takes it for "as it is"
    let number = |text: &str| {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>().ok().filter(|number| is_plain && *number != u32::MAX)
    };
    let (user, groups) = text.split_once(':')?;
    let mut groups = groups.split(',').map(number);
    let mut rights = Rights::new(number(user)?, groups.next()??);
    rights.groups = groups.collect::<Option<_>>()?;
    (rights.groups.len() <= GROUPS_MAX).then_some(rights)
}

fn squash(text: &str) -> Option<Squash> {
    match text {
        "all" => Some(Squash::All),
        "root" => Some(Squash::Root),
        "none" => Some(Squash::None),
        _ => None,
    }
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
