//! Access control lists: as a caller gives them, and as the medium has them.
//!
//! ```text
//! how u8, mode u16, the list
//! ```
//!
//! Bits of `how`: 16 the list is one to be handed on; 32 it lies on the medium, where nobody looked
//! at it before, and the lower bits say how the pool is used; others: it is set by a call.

use super::arena::LIST;
use super::edits::Edits;
use super::input::Input;
use super::{Arena, CHANGE, use_pool, with_arena};
use crate::place::Place;
use fs::{Creation, FileSystem, Ino, NewNode, SetAttr, XattrMode};

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
const HAND_ON: u8 = 16;
const ON_MEDIUM: u8 = 32;
/// Most entries of a list.
const ENTRIES_MAX: usize = 500;
/// Attributes on the medium are numbered; the base has fewer.
const NUMBER: u64 = 9;

/// See the module.
pub fn run(bytes: &[u8]) -> bool {
    let mut input = Input(bytes);
    let (how, mode) = (input.byte(), input.number(2) as u16 & 0o777);
    let name = if how & HAND_ON == 0 { ACCESS } else { DEFAULT };
    if how & ON_MEDIUM == 0 {
        OPEN.with(|open| set(open, name, mode, input.0))
    } else {
        with_arena(|arena| {
            let mut edits = Edits::new(arena);
            edits.put_attribute(Ino::ROOT.0, NUMBER, name, input.0);
            edits.put_trees(arena, false);
            use_pool(arena, how)
        })
    }
}

thread_local! {
    static OPEN: Open = Open::new();
}

/// A pool that stays open, with a directory to have lists.
struct Open {
    fs: FileSystem,
    dir: Ino,
}

const BY: Creation = Creation { mode: 0o777, umask: 0, uid: 1, gid: 2 };

impl Open {
    fn new() -> Open {
        let made = || -> fs::Result<Open> {
            let fs = Arena::new().open(false)?;
            let dir = fs.create(Ino::ROOT, b"lists", NewNode::Directory, BY)?.ino;
            Ok(Open { fs, dir })
        };
        made().unwrap_or_else(|error| panic!("the base cannot be changed: {error}"))
    }

    fn mode(&self, ino: Ino) -> u16 {
        self.fs.getattr(ino).map_or(0, |attr| attr.mode & 0o777)
    }

    /// The list; `None` where there is none.
    fn list(&self, ino: Ino, name: &[u8]) -> Option<Vec<u8>> {
        match self.fs.getxattr(ino, name) {
            Ok(list) => Some(list),
            Err(error) => {
                assert_eq!(error.errno(), libc::ENODATA, "{error}");
                None
            }
        }
    }
}

/// An entry: tag, permissions, id.
type Entry = (u16, u16, u32);

/// The list in these bytes by acl(5), with ids where they mean something; `None` if it is none.
fn parse(bytes: &[u8]) -> Option<Vec<Entry>> {
    let (version, rest) = bytes.split_first_chunk::<4>()?;
    let entries: Vec<Entry> = rest
        .chunks_exact(8)
        .map(|bytes| {
            let number = |at: usize, len: usize| crate::image::number(&bytes[at..at + len]);
            let (tag, permissions) = (number(0, 2) as u16, number(2, 2) as u16);
            let id = if tag == 2 || tag == 8 { number(4, 4) as u32 } else { u32::MAX };
            (tag, permissions, id)
        })
        .collect();
    let count = |tag: u16| entries.iter().filter(|entry| entry.0 == tag).count();
    let named = count(2) + count(8) > 0;
    let fine = u32::from_le_bytes(*version) == 2
        && rest.len() % 8 == 0
        && entries.len() <= ENTRIES_MAX
        && entries.windows(2).all(|two| two[0].0 <= two[1].0)
        && entries.iter().all(|(tag, permissions, id)| {
            [1, 2, 4, 8, 16, 32].contains(tag)
                && *permissions < 8
                && ((*tag != 2 && *tag != 8) || *id != u32::MAX)
        })
        && (entries.is_empty() || [1, 4, 32].iter().all(|tag| count(*tag) == 1))
        && count(16) <= 1
        && (!named || count(16) == 1);
    fine.then_some(entries)
}

/// The permission bits that a list stands for.
fn bits(entries: &[Entry]) -> u16 {
    let of = |tag: u16| entries.iter().find(|entry| entry.0 == tag).map(|entry| entry.1);
    let [owner, group, others] = [of(1), of(16).or(of(4)), of(32)].map(Option::unwrap_or_default);
    owner << 6 | group << 3 | others
}

/// Sets a list, and looks at what it does; whether it was taken.
fn set(open: &Open, name: &[u8], mode: u16, bytes: &[u8]) -> bool {
    let Open { fs, dir } = open;
    let fine = parse(bytes);
    let mode_before = open.mode(*dir);
    let given = fs.setxattr(*dir, name, bytes, XattrMode::Any);
    assert_eq!(given.is_ok(), fine.is_some(), "{given:?}, but acl(5) says {fine:?}");
    let Some(entries) = fine else {
        assert_eq!((open.list(*dir, name), open.mode(*dir)), (None, mode_before));
        return false;
    };
    let is_access = name == ACCESS;
    let stored = open.list(*dir, name);
    let minimal = entries.iter().all(|entry| [1, 4, 32].contains(&entry.0));
    assert_eq!(stored.is_none(), entries.is_empty() || (is_access && minimal), "{stored:?}");
    if let Some(stored) = &stored {
        assert_eq!(parse(stored).as_ref(), Some(&entries), "a list is not what was given");
    }
    if is_access && !entries.is_empty() {
        assert_eq!(open.mode(*dir), bits(&entries), "the mode is not the list's");
    }
    let done = if is_access { change_mode(open, mode) } else { hand_on(open, mode, &entries) };
    done.unwrap_or_else(|error| panic!("a call fails after a list was set: {error}"));
    if open.list(*dir, name).is_some() {
        fs.removexattr(*dir, name).unwrap_or_else(|error| panic!("it stays: {error}"));
    }
    true
}

/// The mode and the list stay in step.
fn change_mode(open: &Open, mode: u16) -> fs::Result<()> {
    let change = SetAttr { mode: Some(mode), ..SetAttr::default() };
    assert_eq!(open.fs.setattr(open.dir, &change)?.mode & 0o777, mode);
    if let Some(list) = open.list(open.dir, ACCESS) {
        assert_eq!(parse(&list).map(|entries| bits(&entries)), Some(mode), "{list:?}");
    }
    Ok(())
}

/// What is made in a directory gets no more than its list and its mode say.
fn hand_on(open: &Open, mode: u16, entries: &[Entry]) -> fs::Result<()> {
    let Open { fs, dir } = open;
    for node in [NewNode::File, NewNode::Directory] {
        let made = fs.create(*dir, b"new", node, Creation { mode, ..BY })?;
        let most = if entries.is_empty() { 0o777 } else { bits(entries) };
        assert_eq!(made.mode & 0o777, mode & most, "{entries:?}");
        let handed_on = open.list(made.ino, DEFAULT);
        let is_dir = made.kind == fs::FileKind::Directory;
        assert_eq!(handed_on, open.list(*dir, DEFAULT).filter(|_| is_dir));
        if let Some(list) = open.list(made.ino, ACCESS) {
            assert_eq!(parse(&list).map(|entries| bits(&entries)), Some(made.mode & 0o777));
        }
        let gone = if is_dir { fs.rmdir(*dir, b"new") } else { fs.unlink(*dir, b"new") };
        gone?;
    }
    Ok(())
}

/// Lists that make sense, and that do not, at both doors.
pub fn seeds() -> Vec<Vec<u8>> {
    let entry = |tag: u8, permissions: u8| [tag, 0, permissions, 0, 255, 255, 255, 255];
    let version = [2, 0, 0, 0];
    let minimal = [&version[..], &entry(1, 7), &entry(4, 5), &entry(32, 1)].concat();
    let masked = [&version[..], &entry(1, 7), &entry(4, 5), &entry(16, 3), &entry(32, 1)].concat();
    let named: Vec<u8> = (0..40u8).flat_map(|id| [2, 0, 4, 0, id, 0, 0, 0]).collect();
    let many = [&LIST[..12], &named, &LIST[20..]].concat();
    let lists = [&version[..], &[1, 0, 0, 0], &LIST, &minimal, &masked, &many, &LIST[..40], b"no"];
    let ways = [0, HAND_ON, ON_MEDIUM, ON_MEDIUM | HAND_ON | CHANGE];
    let seed = |how: u8| lists.map(|list| [&[how, 0xED, 1][..], list].concat());
    ways.into_iter().flat_map(seed).collect()
}
