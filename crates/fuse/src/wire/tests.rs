//! Requests and replies as bytes.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use zerocopy::{FromBytes, IntoBytes};

use super::answers::{DirentHead, InvalEntry, InvalInode, OutHeader, SizeAnswer};
use super::arguments::*;
use super::*;

const NONE: Capabilities = Capabilities(0);

/// A request of operation `code` with these parts behind its head.
fn request(code: u32, parts: &[&[u8]], extension: &[u8]) -> Vec<u8> {
    let body = parts.concat();
    let head = InHeader {
        len: (size_of::<InHeader>() + body.len() + extension.len()) as u32,
        opcode: code,
        unique: 77,
        node: 5,
        uid: 1000,
        gid: 100,
        pid: 4321,
        extension_words: (extension.len() / 8) as u16,
        padding: 0,
    };
    [head.as_bytes(), &body, extension].concat()
}

/// Fixed arguments whose words are 1, 2, 3 and so on.
fn counted<T: FromBytes>() -> T {
    let words: Vec<u32> = (1..=size_of::<T>() as u32 / 4).collect();
    T::read_from_bytes(words.as_bytes()).unwrap()
}

/// The 64-bit number of words `low` and `low + 1`.
fn long(low: u32) -> u64 {
    u64::from_ne_bytes([low, low + 1].as_bytes().try_into().unwrap())
}

/// The sizes in linux/fuse.h.
#[test]
fn structures_have_the_kernels_sizes() {
    assert_eq!(size_of::<InHeader>(), 40);
    assert_eq!((size_of::<SetattrIn>(), size_of::<StatxIn>()), (88, 24));
    assert_eq!((size_of::<ReadIn>(), size_of::<WriteIn>()), (40, 40));
    assert_eq!((size_of::<LockIn>(), size_of::<CopyIn>()), (48, 56));
    assert_eq!(size_of::<InitAsk>() + size_of::<InitMore>(), 64);
    assert_eq!((size_of::<OutHeader>(), size_of::<NodeAttr>()), (16, 88));
    assert_eq!((size_of::<EntryAnswer>(), size_of::<AttrAnswer>()), (128, 104));
    assert_eq!((size_of::<StatxAnswer>(), size_of::<SpaceAnswer>()), (288, 80));
    assert_eq!((size_of::<InitAnswer>(), size_of::<LockAnswer>()), (64, 24));
    assert_eq!((size_of::<InvalInode>(), size_of::<InvalEntry>()), (24, 16));
    assert_eq!(WRITE_HEAD_BYTES, 80);
}

/// Every operation: its number, its arguments, what is to be understood.
fn all() -> Vec<(u32, Vec<u8>, &'static str)> {
    let with = |fixed: &dyn AsBytes, names: &[u8]| [fixed.bytes(), names].concat();
    vec![
        (1, b"name\0".to_vec(), "Lookup { name: [110, 97, 109, 101] }"),
        (3, with(&counted::<GetattrIn>(), b""), "Getattr { handle: Some(17179869187) }"),
        (5, vec![], "Readlink"),
        (6, b"a\0b\0".to_vec(), "Symlink { name: [97], target: [98] }"),
        (
            8,
            with(&counted::<MknodIn>(), b"a\0"),
            "Mknod { name: [97], mode: 1, rdev: 2, umask: 3 }",
        ),
        (9, with(&counted::<MkdirIn>(), b"a\0"), "Mkdir { name: [97], mode: 1, umask: 2 }"),
        (10, b"a\0".to_vec(), "Unlink { name: [97] }"),
        (11, b"a\0".to_vec(), "Rmdir { name: [97] }"),
        (
            12,
            with(&9u64, b"a\0b\0"),
            "Rename { name: [97], new_parent: 9, new_name: [98], flags: 0 }",
        ),
        (13, with(&9u64, b"a\0"), "Link { of: 9, name: [97] }"),
        (14, with(&counted::<OpenIn>(), b""), "Open { flags: 1, kill_set_id: false }"),
        (17, vec![], "Statfs"),
        (24, b"a\0".to_vec(), "Removexattr { name: [97] }"),
        (23, with(&counted::<GetxattrIn>(), b""), "Listxattr { room: 1 }"),
        (22, with(&counted::<GetxattrIn>(), b"a\0"), "Getxattr { name: [97], room: 1 }"),
        (
            21,
            with(&SetxattrIn { size: 2, flags: 1 }, b"a\0xy"),
            "Setxattr { name: [97], value: [120, 121], flags: 1, kill_set_gid: false }",
        ),
        (27, with(&counted::<OpenIn>(), b""), "Opendir { flags: 1 }"),
        (34, with(&counted::<AccessIn>(), b""), "Access { mask: 1 }"),
        (
            35,
            with(&counted::<CreateIn>(), b"a\0"),
            "Create { name: [97], mode: 2, umask: 3, flags: 1, kill_set_id: false }",
        ),
        (36, with(&9u64, b""), "Interrupt { unique: 9 }"),
        (38, vec![], "Destroy"),
        (41, vec![], "NotifyReply"),
        (50, with(&0u64, b""), "Syncfs"),
        (51, with(&counted::<CreateIn>(), b"#1\0"), "Tmpfile { mode: 2, umask: 3, flags: 1 }"),
        (4095, vec![], "Unknown(4095)"),
        (7, vec![], "Unknown(7)"),
    ]
}

/// Any fixed part.
trait AsBytes {
    fn bytes(&self) -> &[u8];
}

impl<T: IntoBytes + zerocopy::Immutable> AsBytes for T {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

#[test]
fn every_operation_is_understood() {
    for (code, body, meant) in all() {
        let bytes = request(code, &[&body], b"");
        let request = Request::parse(&bytes, NONE).unwrap();
        assert_eq!(format!("{:?}", request.operation), meant);
        let head = request.head;
        assert_eq!(
            (head.unique, head.node, head.uid, head.gid, head.pid),
            (77, 5, 1000, 100, 4321)
        );
        assert_eq!(request.group, None);
    }
}

#[test]
fn operations_with_handles_are_understood() {
    let parse = |code: u32, fixed: &dyn AsBytes, rest: &[u8]| {
        let bytes = request(code, &[fixed.bytes(), rest], b"");
        format!("{:?}", Request::parse(&bytes, NONE).unwrap().operation)
    };
    let (one, three, five, seven) = (long(1), long(3), long(5), long(7));
    for (read_flags, for_pages) in [(6, false), (4, true)] {
        let read = parse(15, &ReadIn { read_flags, ..counted() }, b"");
        let meant = format!("size: 5, flags: 9, for_pages: {for_pages}");
        assert_eq!(read, format!("Read {{ handle: {one}, offset: {three}, {meant} }}"));
    }
    let write = WriteIn { size: 3, write_flags: 5, ..counted() };
    assert_eq!(
        parse(16, &write, b"xyz"),
        format!(
            "Write {{ handle: {one}, offset: {three}, data: [120, 121, 122], flags: 9, \
             from_cache: true, past_pages: false, kill_set_id: true }}"
        )
    );
    let write = WriteIn { size: 3, write_flags: 2, ..counted() };
    let past = "from_cache: false, past_pages: true, kill_set_id: false }";
    assert!(parse(16, &write, b"xyz").ends_with(past));
    let release = ReleaseIn { release_flags: 2, ..counted() };
    assert_eq!(
        parse(18, &release, b""),
        format!("Release {{ handle: {one}, flags: 3, lock_owner: {five}, unlock_flock: true }}")
    );
    let readdir =
        |name: &str| format!("{name} {{ handle: {one}, offset: {three}, room: 5, flags: 9 }}");
    assert_eq!(parse(28, &counted::<ReadIn>(), b""), readdir("Readdir"));
    assert_eq!(parse(44, &counted::<ReadIn>(), b""), readdir("Readdirplus"));
    let lock = LockIn { flags: 1, kind: 2, ..counted() };
    let meant = format!(
        "Lock {{ handle: {one}, owner: {three}, start: {five}, end: {seven}, kind: 2, pid: 10, \
         flock: true }}"
    );
    assert_eq!(parse(31, &lock, b""), format!("Getlk({meant})"));
    assert_eq!(parse(32, &lock, b""), format!("Setlk {{ lock: {meant}, wait: false }}"));
    assert_eq!(parse(33, &lock, b""), format!("Setlk {{ lock: {meant}, wait: true }}"));
    for (code, wide) in [(47, false), (53, true)] {
        let copy = parse(code, &counted::<CopyIn>(), b"");
        assert!(copy.contains(&format!("to_node: {five}, to_handle: {seven}")), "{copy}");
        assert!(copy.ends_with(&format!("wide: {wide} }}")), "{copy}");
    }
}

#[test]
fn attributes_that_are_not_to_change_are_left_out() {
    let set = |valid: u32| {
        let bytes = request(4, &[SetattrIn { valid, ..counted() }.as_bytes()], b"");
        match Request::parse(&bytes, NONE).unwrap().operation {
            Operation::Setattr(set) => set,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(set(0), Setattr::default());
    let accessed = Some(SetattrTime::At { s: long(9) as i64, ns: 15 });
    assert_eq!(set(1 << 4), Setattr { accessed, ..Setattr::default() });
    let now = Setattr { modified: Some(SetattrTime::Now), ..Setattr::default() };
    assert_eq!(set(1 << 5 | 1 << 8), now);
    let size = Setattr { size: Some(long(5)), kill_set_id: true, ..Setattr::default() };
    assert_eq!(set(1 << 3 | 1 << 11), size);
    let owner = Setattr { uid: Some(20), gid: Some(21), ..Setattr::default() };
    assert_eq!(set(1 << 1 | 1 << 2), owner);
}

#[test]
fn what_was_agreed_on_decides_between_forms() {
    let long = [SetxattrIn { size: 1, flags: 0 }.as_bytes(), &1u32.to_ne_bytes(), &[0; 4], b"a\0x"]
        .concat();
    let bytes = request(21, &[&long], b"");
    let parsed = Request::parse(&bytes, Capabilities::SETXATTR_EXT).unwrap().operation;
    let meant = "Setxattr { name: [97], value: [120], flags: 0, kill_set_gid: true }";
    assert_eq!(format!("{parsed:?}"), meant);
    let short = InitAsk { major: 7, minor: 31, max_readahead: 9, flags: 5 };
    let bytes = request(26, &[short.as_bytes()], b"");
    let init = Request::parse(&bytes, NONE).unwrap().operation;
    assert!(matches!(init, Operation::Init(_, Capabilities(5))), "{init:?}");
    let full = InitAsk { flags: 1 << 30, ..short };
    let more = InitMore { flags2: 3, unused: [0; 11] };
    let bytes = request(26, &[full.as_bytes(), more.as_bytes()], b"");
    let init = Request::parse(&bytes, NONE).unwrap().operation;
    assert!(matches!(init, Operation::Init(_, Capabilities(0x3_4000_0000))), "{init:?}");
}

#[test]
fn a_group_in_an_extension_is_found() {
    let groups = [16u32, 32, 1, 555];
    let bytes = request(9, &[counted::<MkdirIn>().as_bytes(), b"a\0"], groups.as_bytes());
    let request_with = Request::parse(&bytes, NONE).unwrap();
    assert_eq!(request_with.group, Some(555));
    assert!(matches!(request_with.operation, Operation::Mkdir { name: b"a", .. }));
    let other = [16u32, 33, 0, 0, 16, 32, 0, 0];
    let bytes = request(9, &[counted::<MkdirIn>().as_bytes(), b"a\0"], other.as_bytes());
    assert_eq!(Request::parse(&bytes, NONE).unwrap().group, None);
    let endless = [0u32, 33];
    let bytes = request(9, &[counted::<MkdirIn>().as_bytes(), b"a\0"], endless.as_bytes());
    assert_eq!(Request::parse(&bytes, NONE).unwrap_err(), Malformed);
}

/// Each request cut short at each byte, with a head that says so and with one that does not.
#[test]
fn a_request_that_ends_early_is_refused() {
    for (code, body, _) in all() {
        let whole = request(code, &[&body], b"");
        for len in 0..whole.len() {
            assert_eq!(Request::parse(&whole[..len], NONE).unwrap_err(), Malformed);
            let mut cut = whole[..len].to_vec();
            if let Some(word) = cut.get_mut(..4) {
                word.copy_from_slice(&(len as u32).to_ne_bytes());
            }
            let parsed = Request::parse(&cut, NONE);
            let is_short = len < size_of::<InHeader>() || code != 50;
            assert_eq!(parsed.is_err(), is_short, "{code} cut to {len}: {parsed:?}");
        }
    }
}

#[test]
fn any_bytes_are_a_request_or_are_refused() {
    let mut seed = 1u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as u8
    };
    let (mut parsed, mut refused) = (0, 0);
    for round in 0..200_000u32 {
        let mut bytes: Vec<u8> = (0..40 + usize::from(next() % 100)).map(|_| next()).collect();
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        bytes[4..8].copy_from_slice(&(round % 56).to_ne_bytes());
        bytes[36..38].copy_from_slice(&(round as u16 / 56 % 4).to_ne_bytes());
        match Request::parse(&bytes, Capabilities(u64::from(next()) << 26)) {
            Ok(request) => {
                if let Operation::BatchForget(forgets) = request.operation {
                    assert!(forgets.count() <= bytes.len() / 16);
                }
                parsed += 1;
            }
            Err(Malformed) => refused += 1,
        }
    }
    assert!(parsed > 10_000 && refused > 10_000, "{parsed} {refused}");
}

#[test]
fn forgets_are_those_that_are_counted() {
    let ones = [3u64, 1, 4, 2, 5, 9];
    let body = [[2u32, 0].as_bytes(), ones.as_bytes()].concat();
    let bytes = request(42, &[&body], b"");
    let Operation::BatchForget(forgets) = Request::parse(&bytes, NONE).unwrap().operation else {
        panic!("not understood");
    };
    assert_eq!(forgets.collect::<Vec<_>>(), [(3, 1), (4, 2)]);
    let bytes = request(42, &[[4u32, 0].as_bytes(), ones.as_bytes()], b"");
    assert_eq!(Request::parse(&bytes, NONE).unwrap_err(), Malformed);
}

/// What `send` sends, as the kernel would get it.
fn sent(send: impl FnOnce(&Arc<Channel>)) -> Vec<u8> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let channel = Arc::new(Channel::new(OwnedFd::from(ours)));
    send(&channel);
    drop(channel);
    let mut bytes = Vec::new();
    theirs.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn replies_say_their_length_number_and_error() {
    let bytes = sent(|channel| Reply::new(channel, 9).bytes(b"hello"));
    let (head, rest) = OutHeader::read_from_prefix(&bytes).unwrap();
    assert_eq!(head, OutHeader { len: 21, error: 0, unique: 9 });
    assert_eq!(rest, b"hello");
    let bytes = sent(|channel| Reply::new(channel, 9).error(libc::ENOENT));
    let error = OutHeader { len: 16, error: -libc::ENOENT, unique: 9 };
    assert_eq!(bytes, error.as_bytes());
    let bytes = sent(|channel| Reply::new(channel, 9).size(300));
    assert_eq!(bytes[16..], *SizeAnswer { size: 300, padding: 0 }.as_bytes());
    let entry = EntryAnswer { node: 3, ..EntryAnswer::default() };
    let bytes = sent(|channel| assert!(Reply::new(channel, 9).created(&entry, 8, 2)));
    let opened = OpenAnswer { handle: 8, flags: 2, padding: 0 };
    assert_eq!(bytes[16..], [entry.as_bytes(), opened.as_bytes()].concat());
    assert_eq!(sent(|channel| Reply::new(channel, 9).nothing()), b"");
}

/// A caller would wait for ever.
#[test]
fn a_reply_that_is_dropped_is_an_error() {
    let bytes = sent(|channel| drop(Reply::new(channel, 9)));
    let error = OutHeader { len: 16, error: -libc::EIO, unique: 9 };
    assert_eq!(bytes, error.as_bytes());
}

#[test]
fn notifications_have_no_number() {
    let bytes = sent(|channel| Notifier::new(channel.clone()).inval_entry(7, b"ab").unwrap());
    let head = OutHeader { len: 35, error: 3, unique: 0 };
    let what = InvalEntry { parent: 7, name_bytes: 2, flags: 0 };
    assert_eq!(bytes, [head.as_bytes(), what.as_bytes(), b"ab\0"].concat());
    let bytes = sent(|channel| Notifier::new(channel.clone()).inval_inode(7, -1, 0).unwrap());
    let what = InvalInode { ino: 7, offset: -1, len: 0 };
    assert_eq!(bytes[16..], *what.as_bytes());
}

#[test]
fn a_listing_stays_within_its_room() {
    let mut listing = Listing::new(80);
    assert!(listing.add(7, libc::S_IFDIR, 1, b"directory"));
    assert!(listing.add(8, libc::S_IFREG, 2, b"12345678"));
    assert!(!listing.add(9, libc::S_IFREG, 3, b""));
    let head = DirentHead { ino: 7, offset: 1, name_bytes: 9, kind: 4 };
    let first = [head.as_bytes(), b"directory", &[0; 7]].concat();
    assert_eq!(listing.bytes()[..40], first);
    assert_eq!(listing.bytes().len(), 40 + 32);
    let mut plus = Listing::new(200);
    let attr = NodeAttr { ino: 7, mode: libc::S_IFREG, ..NodeAttr::default() };
    assert!(plus.add_plus(Ok((attr, std::time::Duration::from_secs(2))), 1, b"a"));
    let entry = EntryAnswer::new(attr, std::time::Duration::from_secs(2));
    assert_eq!(plus.bytes()[..128], *entry.as_bytes());
    assert_eq!(plus.bytes().len(), 160);
    assert!(!plus.add_plus(Err((1, libc::S_IFDIR)), 2, b"."));
}
