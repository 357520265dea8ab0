//! What a test case does: operations that name their objects by number, so that any sequence of
//! them makes sense.

use crate::model::acls::Entry;
use crate::model::transactions::{self, Expectation, Written};
use fs::{Fallocate, Layout, RenameMode, XattrMode};
use proptest::prelude::*;

/// Chooses one of the objects that exist, modulo their number.
pub type Pick = u16;

/// A place in a file.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// This offset.
    At(u64),
    /// This far from the end (before it where negative).
    End(i64),
}

/// What kind of inode is made.
#[derive(Clone, Copy, Debug)]
pub enum Make {
    File,
    Directory,
    Symlink(u16),
    Fifo,
    Device(u32),
}

/// One operation.
#[derive(Clone, Debug)]
pub enum Op {
    Create {
        dir: Pick,
        name: Pick,
        make: Make,
        mode: u16,
        gid: u32,
    },
    CreateMany {
        dir: Pick,
        count: u8,
    },
    CreateUnnamed {
        dir: Pick,
        mode: u16,
        gid: u32,
    },
    Lookup {
        dir: Pick,
        name: Pick,
    },
    Open {
        node: Pick,
    },
    Close {
        handle: Pick,
    },
    Write {
        handle: Pick,
        place: Place,
        len: usize,
        seed: u64,
    },
    Append {
        handle: Pick,
        len: usize,
        seed: u64,
    },
    Read {
        handle: Pick,
        place: Place,
        len: usize,
    },
    /// Writes that happen together, if what is expected somewhere is there.
    Commit {
        writes: Vec<Written>,
        expected: Option<Expectation>,
    },
    Copy {
        from: (Pick, Place),
        to: (Pick, Place),
        len: u64,
    },
    Truncate {
        node: Pick,
        place: Place,
    },
    Fallocate {
        handle: Pick,
        mode: Fallocate,
        place: Place,
        len: u64,
    },
    Seek {
        handle: Pick,
        place: Place,
        data: bool,
    },
    SetAttr {
        node: Pick,
        mode: Option<u16>,
        uid: Option<u32>,
        times: Option<(i64, i64)>,
        layout: Option<Layout>,
    },
    SetAcl {
        node: Pick,
        default: bool,
        entries: Vec<Entry>,
        in_group: bool,
    },
    SetXattr {
        node: Pick,
        name: u8,
        len: usize,
        seed: u64,
        mode: XattrMode,
    },
    RemoveXattr {
        node: Pick,
        name: u8,
    },
    ListXattr {
        node: Pick,
    },
    Unlink {
        dir: Pick,
        name: Pick,
    },
    Rmdir {
        dir: Pick,
        name: Pick,
    },
    Link {
        node: Pick,
        dir: Pick,
        name: Pick,
    },
    Rename {
        from: (Pick, Pick),
        to: (Pick, Pick),
        mode: RenameMode,
    },
    Readlink {
        node: Pick,
    },
    /// Lists a part, changes the directory, lists the rest.
    Readdir {
        dir: Pick,
        first: u8,
        create: Pick,
        remove: Pick,
    },
    Checkpoint,
    /// All that can lie on the capacity tier goes there; and out of the caches.
    WriteBack {
        evict: bool,
    },
    Check,
    Reopen,
    Kill,
}

pub fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        6 => (0u64..40_000).prop_map(Place::At),
        4 => (0u64..300, -3i64..4).prop_map(|(block, by)| {
            Place::At((block * 4096).saturating_add_signed(by))
        }),
        4 => (-9000i64..9000).prop_map(Place::End),
        2 => Just(Place::End(0)),
        1 => (0u64..64 << 40).prop_map(Place::At),
        1 => (0u64..40, -2i64..3).prop_map(|(shift, by)| {
            Place::At((4096u64 << shift.min(31)).saturating_add_signed(by))
        }),
        1 => prop_oneof![
            Just(u64::MAX),
            Just(u64::MAX - 4096),
            Just(64 << 40),
            Just((64 << 40) - 1),
            Just(1 << 63),
        ].prop_map(Place::At),
    ]
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![
        1 => Just(0usize),
        6 => 1usize..600,
        4 => prop_oneof![Just(4096usize), Just(4095), Just(4097), Just(8192), Just(512), Just(513)],
        4 => 600usize..20_000,
        2 => 20_000usize..600_000,
        1 => (2usize << 20) - 5000..(2 << 20) + 5000,
        1 => (2usize << 20)..(3 << 20),
    ]
}

fn fallocate() -> impl Strategy<Value = Fallocate> {
    prop_oneof![
        any::<bool>().prop_map(|keep_size| Fallocate::Allocate { keep_size }),
        Just(Fallocate::PunchHole),
        any::<bool>().prop_map(|keep_size| Fallocate::Zero { keep_size }),
    ]
}

fn range() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0u64..20_000,
        3 => (1u64..300).prop_map(|blocks| blocks * 4096),
        1 => 0u64..8 << 40,
        1 => Just(u64::MAX),
    ]
}

fn make() -> impl Strategy<Value = Make> {
    prop_oneof![
        8 => Just(Make::File),
        4 => Just(Make::Directory),
        2 => prop_oneof![1u16..100, 1000u16..4097, Just(0)].prop_map(Make::Symlink),
        1 => Just(Make::Fifo),
        1 => any::<u32>().prop_map(Make::Device),
    ]
}

fn rename_mode() -> impl Strategy<Value = RenameMode> {
    prop_oneof![
        3 => Just(RenameMode::Replace),
        1 => Just(RenameMode::NoReplace),
        2 => Just(RenameMode::Exchange),
        1 => (0u32..9, 0u32..9).prop_map(|(uid, gid)| RenameMode::Whiteout { uid, gid }),
    ]
}

fn xattr_mode() -> impl Strategy<Value = XattrMode> {
    prop_oneof![
        4 => Just(XattrMode::Any),
        1 => Just(XattrMode::Create),
        1 => Just(XattrMode::Replace),
    ]
}

/// A place of a copy: most begin where a block does.
fn copied() -> impl Strategy<Value = Place> {
    prop_oneof![
        6 => (0u64..20).prop_map(|block| Place::At(block * 4096)),
        1 => (0u64..300).prop_map(|block| Place::At(block * 4096 + 100)),
        3 => place(),
    ]
}

fn data_op() -> impl Strategy<Value = Op> {
    let end = || (any::<Pick>(), copied());
    prop_oneof![
        5 => transactions::commit(),
        10 => (any::<Pick>(), place(), len(), any::<u64>())
            .prop_map(|(handle, place, len, seed)| Op::Write { handle, place, len, seed }),
        4 => (any::<Pick>(), len(), any::<u64>())
            .prop_map(|(handle, len, seed)| Op::Append { handle, len, seed }),
        6 => (any::<Pick>(), place(), len())
            .prop_map(|(handle, place, len)| Op::Read { handle, place, len }),
        5 => (end(), end(), range()).prop_map(|(from, to, len)| Op::Copy { from, to, len }),
        4 => (any::<Pick>(), place()).prop_map(|(node, place)| Op::Truncate { node, place }),
        4 => (any::<Pick>(), fallocate(), place(), range())
            .prop_map(|(handle, mode, place, len)| Op::Fallocate { handle, mode, place, len }),
        2 => (any::<Pick>(), place(), any::<bool>())
            .prop_map(|(handle, place, data)| Op::Seek { handle, place, data }),
    ]
}

fn name_op() -> impl Strategy<Value = Op> {
    let end = || (any::<Pick>(), any::<Pick>());
    prop_oneof![
        8 => (any::<Pick>(), any::<Pick>(), make(), any::<u16>(), 0u32..4).prop_map(
            |(dir, name, make, mode, gid)| Op::Create { dir, name, make, mode, gid }
        ),
        1 => (any::<Pick>(), 1u8..90).prop_map(|(dir, count)| Op::CreateMany { dir, count }),
        4 => (any::<Pick>(), any::<u16>(), 0u32..4)
            .prop_map(|(dir, mode, gid)| Op::CreateUnnamed { dir, mode, gid }),
        1 => end().prop_map(|(dir, name)| Op::Lookup { dir, name }),
        3 => end().prop_map(|(dir, name)| Op::Unlink { dir, name }),
        2 => end().prop_map(|(dir, name)| Op::Rmdir { dir, name }),
        3 => (any::<Pick>(), end()).prop_map(|(node, (dir, name))| Op::Link { node, dir, name }),
        6 => (end(), end(), rename_mode())
            .prop_map(|(from, to, mode)| Op::Rename { from, to, mode }),
        1 => any::<Pick>().prop_map(|node| Op::Readlink { node }),
        2 => (any::<Pick>(), any::<u8>(), any::<Pick>(), any::<Pick>()).prop_map(
            |(dir, first, create, remove)| Op::Readdir { dir, first, create, remove }
        ),
    ]
}

/// A list that makes sense, most of the time.
fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let named = || prop::collection::vec((0u16..8, 0u32..4), 0..3);
    let permissions = || 0u16..8;
    let lists = (permissions(), named(), permissions(), named(), permissions(), any::<bool>())
        .prop_map(|(owner, users, group, groups, rest, mask)| {
            let nobody = u32::MAX;
            let named = |tag, named: &[(u16, u32)]| -> Vec<Entry> {
                named.iter().map(|(permissions, id)| (tag, *permissions, *id)).collect()
            };
            let mask = mask || users.len() + groups.len() > 0;
            let masks = if mask { vec![(0x10, rest, nobody)] } else { Vec::new() };
            let owner = vec![(1, owner, nobody)];
            let group = vec![(4, group, nobody)];
            let (users, groups) = (named(2, &users), named(8, &groups));
            [owner, users, group, groups, masks, vec![(0x20, rest / 2, nobody)]].concat()
        });
    let flawed = (any::<usize>(), any::<usize>(), 0u16..64, 0u16..9);
    prop_oneof![
        10 => (lists, prop::option::weighted(0.2, flawed)).prop_map(|(mut list, flaw)| {
            if let Some((at, to, tag, permissions)) = flaw {
                let entry = list.remove(at % list.len());
                let to = to % (list.len() + 1);
                list.insert(to, (tag, permissions, entry.2));
            }
            list
        }),
        1 => Just(Vec::new()),
    ]
}

fn attribute_op() -> impl Strategy<Value = Op> {
    let (mode, uid) = (prop::option::of(any::<u16>()), prop::option::of(0u32..9));
    let times = prop::option::of((any::<i64>(), any::<i64>()));
    // node 0 is there in every pool
    let layouts = [Layout::Auto, Layout::Near, Layout::Stripe, Layout::Node(0), Layout::Node(9999)];
    let layouts = prop::option::weighted(0.3, prop::sample::select(layouts.to_vec()));
    prop_oneof![
        3 => (any::<Pick>(), mode, uid, times, layouts).prop_map(
            |(node, mode, uid, times, layout)| Op::SetAttr { node, mode, uid, times, layout }
        ),
        3 => (any::<Pick>(), any::<u8>(), 0usize..6000, any::<u64>(), xattr_mode()).prop_map(
            |(node, name, len, seed, mode)| Op::SetXattr { node, name, len, seed, mode }
        ),
        4 => (any::<Pick>(), any::<bool>(), entries(), any::<bool>()).prop_map(
            |(node, default, entries, in_group)| Op::SetAcl { node, default, entries, in_group }
        ),
        1 => (any::<Pick>(), any::<u8>()).prop_map(|(node, name)| Op::RemoveXattr { node, name }),
        1 => any::<Pick>().prop_map(|node| Op::ListXattr { node }),
    ]
}

/// Any operation; `kill` and its like about once in fifteen.
pub fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => data_op(),
        14 => name_op(),
        5 => attribute_op(),
        6 => any::<Pick>().prop_map(|node| Op::Open { node }),
        3 => any::<Pick>().prop_map(|handle| Op::Close { handle }),
        2 => Just(Op::Checkpoint),
        2 => any::<bool>().prop_map(|evict| Op::WriteBack { evict }),
        1 => Just(Op::Check),
        1 => Just(Op::Reopen),
        2 => Just(Op::Kill),
    ]
}

/// Names that entries have: few, so that they meet; some that none may have.
const NAMES: u16 = 14;

pub fn name(pick: Pick) -> Vec<u8> {
    match pick % 400 {
        0 => Vec::new(),
        1 => b".".to_vec(),
        2 => b"..".to_vec(),
        3 => b"a/b".to_vec(),
        4 => b"a\0b".to_vec(),
        5 => vec![b'x'; 256],
        6..12 => vec![b'x'; 255],
        pick => format!("n{}", pick % NAMES).into_bytes(),
    }
}
