//! A machine that asks for what no kernel would.

use std::io;
use std::sync::Mutex;

use nearside::files::{NewNode, RequestId, SetAttr, Timestamp};
use nearside::{Caller, FormatOptions, Pool, SliceSpec};

use super::*;
use crate::wire::opcode;

pub(super) const USER: u32 = 1000;

/// Keeps what is answered.
#[derive(Debug, Default)]
pub(super) struct Answers(pub(super) Mutex<Vec<(u64, i32, Vec<u8>)>>);

impl Outlet for Answers {
    fn answer(&self, unique: u64, errno: i32, parts: &[&[u8]]) -> io::Result<()> {
        self.0.lock().unwrap().push((unique, errno, parts.concat()));
        Ok(())
    }

    fn say(&self, notice: Notice, _: &[u8]) {
        if let Notice::Locked(unique, errno) = notice {
            self.0.lock().unwrap().push((unique, errno, Vec::new()));
        }
    }
}

/// A mount of a machine that is not trusted.
pub(super) struct Guest {
    pub(super) server: RemoteServer,
    pub(super) answers: Arc<Answers>,
    count: u64,
}

impl Guest {
    pub(super) fn new(fs: &Arc<FileSystem>, users: Users, read_only: bool) -> Guest {
        Guest::of(fs, users, read_only, Nodes::new(Ino::ROOT.0, None))
    }

    pub(super) fn of(fs: &Arc<FileSystem>, users: Users, read_only: bool, nodes: Nodes) -> Guest {
        let options = RemoteOptions {
            turn: Turn { client: 9, number: 3 },
            capabilities: 0,
            nodes,
            read_only,
            users,
        };
        let answers = Arc::<Answers>::default();
        let server = RemoteServer::new(fs.clone(), options, answers.clone());
        Guest { server, answers, count: 0 }
    }

    pub(super) fn begun(fs: &Arc<FileSystem>, users: Users, read_only: bool) -> Guest {
        let guest = Guest::new(fs, users, read_only);
        assert!(guest.server.told(&Told::Asked, &[]) && guest.server.told(&Told::Begin, &[]));
        guest
    }

    /// Asks for something of an inode; gives the errno, and the answer.
    fn ask(&mut self, code: u32, node: u64, arguments: &[&[u8]]) -> (i32, Vec<u8>) {
        let arguments = arguments.concat();
        let words = [40 + arguments.len() as u32, code];
        let ids = [0u32, 0, 77, 0];
        let head = [words.as_bytes(), &7u64.to_ne_bytes(), &node.to_ne_bytes(), ids.as_bytes()];
        let mut request = [&head.concat()[..], &arguments].concat();
        self.send(false, &mut request).expect("an answer")
    }

    fn send(&mut self, again: bool, request: &mut [u8]) -> Option<(i32, Vec<u8>)> {
        self.count += u64::from(!again);
        let unique = RequestId::of_slot(9, 4, self.count).sequence;
        self.server.serve(unique, again, request);
        let found = self.answers.0.lock().unwrap().pop();
        found.map(|(of, errno, bytes)| {
            assert_eq!(of, unique);
            (errno, bytes)
        })
    }

    pub(super) fn open(&mut self, node: u64, flags: i32) -> std::result::Result<u64, i32> {
        let (errno, bytes) = self.ask(opcode::OPEN, node, &[[flags, 0].as_bytes()]);
        match errno {
            0 => Ok(u64::from_ne_bytes(bytes[..8].try_into().unwrap())),
            errno => Err(errno),
        }
    }

    fn write(&mut self, node: u64, handle: u64, flags: u32, data: &[u8]) -> i32 {
        let words = [data.len() as u32, flags];
        let place = [handle, 0];
        let rest = [0u64, 0];
        let arguments = [place.as_bytes(), words.as_bytes(), rest.as_bytes(), data];
        self.ask(opcode::WRITE, node, &arguments).0
    }
}

pub(super) fn with_pool(test: impl FnOnce(&Arc<FileSystem>)) {
    let root = tempfile::tempdir().unwrap();
    let options = FormatOptions {
        slices: vec![SliceSpec::default()],
        slice_bytes: 32 << 20,
        process: true,
        ..FormatOptions::default()
    };
    Pool::format(root.path().join("pool"), &options).unwrap();
    let pool = Pool::open(root.path().join("pool")).unwrap();
    test(pool.fs());
    pool.close().unwrap();
}

pub(super) fn all() -> Users {
    Users::All(Arc::new(Caller::new(USER, USER, Vec::new())))
}

/// Makes a file of root's, or of the guest's, with this mode.
pub(super) fn file(fs: &FileSystem, name: &str, owner: u32, mode: u16) -> u64 {
    let by = nearside::files::Creation { mode, umask: 0, uid: owner, gid: owner };
    fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, by).unwrap().ino.0
}

#[test]
fn nothing_is_served_before_the_beginning_and_it_has_to_make_sense() {
    with_pool(|fs| {
        let mut guest = Guest::new(fs, all(), false);
        assert_eq!(guest.ask(opcode::STATFS, 1, &[]).0, libc::EINVAL);
        let told = |told, data: &[u8]| guest.server.told(&told, data);
        assert!(!told(Told::Asked, &[1]) && !told(Told::Opened, &[1, 2]));
        assert!(!told(Told::Begin, &[1; 41]), "part of a record");
        assert!(!told(Told::Lock, &[1; 5]));
        assert!(!Guest::new(fs, all(), false).server.told(&Told::Begin, &[0xff; 48]));
        assert!(Guest::new(fs, all(), false).server.told(&Told::Begin, &[]));
    });
}

#[test]
fn a_file_is_used_for_what_it_is_open_for() {
    with_pool(|fs| {
        let mut guest = Guest::begun(fs, all(), false);
        let (shown, secret) = (file(fs, "shown", 0, 0o6644), file(fs, "secret", 0, 0o600));
        let own = file(fs, "own", USER, 0o600);
        assert_eq!(guest.open(secret, libc::O_RDONLY), Err(libc::EACCES));
        assert_eq!(guest.open(shown, libc::O_WRONLY), Err(libc::EACCES));
        assert_eq!(guest.open(shown, libc::O_RDONLY | libc::O_TRUNC), Err(libc::EACCES));
        let read = guest.open(shown, libc::O_RDONLY).unwrap();
        let written = guest.open(own, libc::O_WRONLY).unwrap();
        assert_eq!(guest.write(shown, read, 0, b"x"), libc::EBADF);
        assert_eq!(guest.write(own, written, 0, b"x"), 0);
        // the number of one file with the inode of another; 4: take set-id bits away
        for handle in [read, written, 0, u64::MAX, 1 << 48, 2 << 48 | 5] {
            for node in [shown, secret] {
                assert_ne!(guest.write(node, handle, 4, b"x"), 0);
            }
        }
        assert_eq!(fs.getattr(Ino(shown)).unwrap().mode, 0o6644);
        let ask = [[written, 0].as_bytes(), [u32::MAX, 0].as_bytes(), &[0; 16]].concat();
        assert_eq!(guest.ask(opcode::READ, own, &[&ask]).0, libc::EBADF);
        let ask = [[read, 0].as_bytes(), [u32::MAX, 0].as_bytes(), &[0; 16]].concat();
        assert_eq!(guest.ask(opcode::READ, shown, &[&ask]).0, 0);
    });
}

#[test]
fn names_are_names_and_rights_are_asked_for() {
    with_pool(|fs| {
        let mut guest = Guest::begun(fs, all(), false);
        let secret = file(fs, "secret", 0, 0o600);
        for name in [&b"a/b\0"[..], b"..\0", b".\0", b"\0"] {
            let (errno, _) = guest.ask(opcode::LOOKUP, 1, &[name]);
            assert!(errno == libc::EINVAL || errno == libc::ENOENT, "{name:?}: {errno}");
            let (errno, _) = guest.ask(opcode::MKDIR, 1, &[&[0; 8], name]);
            assert!(errno == libc::EINVAL || errno == libc::EACCES, "{name:?}: {errno}");
        }
        assert_eq!(guest.ask(opcode::UNLINK, 1, &[b"secret\0"]).0, libc::EACCES);
        let rename = [&1u64.to_ne_bytes()[..], b"secret\0other\0"];
        assert_eq!(guest.ask(opcode::RENAME, 1, &rename).0, libc::EACCES);
        let link = [&secret.to_ne_bytes()[..], b"other\0"];
        assert_ne!(guest.ask(opcode::LINK, 1, &link).0, 0);
        let mut set = [0u8; 88];
        set[..4].copy_from_slice(&1u32.to_ne_bytes());
        assert_eq!(guest.ask(opcode::SETATTR, secret, &[&set]).0, libc::EPERM);
        let value = [[1u32, 0].as_bytes(), b"user.a\0x"].concat();
        assert_eq!(guest.ask(opcode::SETXATTR, secret, &[&value]).0, libc::EACCES);
        for code in [opcode::INIT, opcode::DESTROY, opcode::SETLKW, opcode::INTERRUPT] {
            assert_ne!(guest.ask(code, 1, &[&[0; 64]]).0, 0, "{code}");
        }
    });
}

#[test]
fn the_owner_alone_reads_without_a_trace_and_writers_set_times_to_now() {
    with_pool(|fs| {
        let mut guest = Guest::begun(fs, all(), false);
        let (shared, own) = (file(fs, "shared", 0, 0o666), file(fs, "own", USER, 0o600));
        let (plain, unseen) = (libc::O_RDWR, libc::O_RDWR | libc::O_NOATIME);
        assert_eq!(guest.open(shared, unseen), Err(libc::EPERM));
        let files = [(own, guest.open(own, unseen)), (shared, guest.open(shared, plain))];
        for (node, handle) in files {
            let old = SetAttr { accessed: Some(Timestamp(1)), ..SetAttr::default() };
            fs.setattr(Ino(node), &old).unwrap();
            // ten bytes, with these flags of the descriptor
            let (place, rest) = ([handle.unwrap(), 0], [10u32, 0, 0, 0, unseen as u32, 0]);
            assert_eq!(guest.ask(opcode::READ, node, &[place.as_bytes(), rest.as_bytes()]).0, 0);
            let accessed = fs.getattr(Ino(node)).unwrap().accessed;
            assert_eq!(accessed == Timestamp(1), node == own, "fcntl(2) sets the flag unasked");
        }
        let mut set = |node, valid: u32| {
            let mut set = [0u8; 88];
            set[..4].copy_from_slice(&valid.to_ne_bytes());
            guest.ask(opcode::SETATTR, node, &[&set]).0
        };
        // time of the last read, of the last change, and that each is now
        let (accessed, modified, now) = (1 << 4, 1 << 5, 1 << 7 | 1 << 8);
        assert_eq!(set(shared, accessed | modified | now), 0);
        assert!(fs.getattr(Ino(shared)).unwrap().modified > Timestamp(1));
        assert_eq!(set(shared, accessed | modified | 1 << 7), libc::EPERM);
        assert_eq!(set(shared, accessed | 1 << 7), libc::EPERM);
        assert_eq!(set(file(fs, "shown", 0, 0o644), accessed | modified | now), libc::EACCES);
        assert_eq!(set(own, accessed | modified), 0);
    });
}

#[test]
fn what_is_for_reading_stays_as_it_is() {
    with_pool(|fs| {
        let mut guest = Guest::begun(fs, Users::Trusted, true);
        let node = file(fs, "f", 0, 0o644);
        assert_eq!(guest.open(node, libc::O_RDWR), Err(libc::EROFS));
        fs.write(&fs.open(Ino(node)).unwrap(), 0, b"content").unwrap();
        assert_eq!(guest.open(node, libc::O_RDONLY | libc::O_TRUNC), Err(libc::EROFS));
        assert_eq!(fs.getattr(Ino(node)).unwrap().size, 7);
        let read = guest.open(node, libc::O_RDONLY).unwrap();
        assert_eq!(guest.write(node, read, 0, b"x"), libc::EROFS);
        assert_eq!(guest.ask(opcode::UNLINK, 1, &[b"f\0"]).0, libc::EROFS);
        assert_eq!(guest.ask(opcode::COPY_FILE_RANGE, node, &[&[0; 56]]).0, libc::EROFS);
        assert_eq!(guest.ask(opcode::SETATTR, node, &[&[0; 88]]).0, libc::EROFS);
    });
}

#[test]
fn an_append_that_comes_again_is_made_once() {
    with_pool(|fs| {
        let mut guest = Guest::begun(fs, Users::Trusted, false);
        let node = file(fs, "f", 0, 0o644);
        let handle = guest.open(node, libc::O_WRONLY | libc::O_APPEND).unwrap();
        let append = libc::O_APPEND as u32;
        let place = [[handle, 0].as_bytes(), [3u32, 0].as_bytes(), &[0; 8]].concat();
        let (words, ids) = ([40u32 + 40 + 3, opcode::WRITE], [7, node]);
        let head = [words.as_bytes(), ids.as_bytes(), &[0; 16]].concat();
        let request = [&head[..], &place, [append, 0].as_bytes(), b"one"].concat();
        assert_eq!(guest.send(false, &mut request.clone()).unwrap().0, 0);
        for _ in 0..3 {
            let (errno, answer) = guest.send(true, &mut request.clone()).unwrap();
            assert_eq!((errno, &answer[..4]), (0, &3u32.to_ne_bytes()[..]));
        }
        assert_eq!(fs.getattr(Ino(node)).unwrap().size, 3);
    });
}

/// Whatever bytes come, in whatever length, the mount goes on, and nobody's files change.
#[test]
fn any_bytes_are_a_request_or_none() {
    with_pool(|fs| {
        let mut guest = Guest::begun(fs, all(), false);
        let secret = file(fs, "secret", 0, 0o600);
        let before = fs.getattr(Ino(secret)).unwrap();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for round in 0..60_000u32 {
            let len = (random() % 200) as usize;
            let mut request: Vec<u8> = (0..len).map(|_| random() as u8).collect();
            if len >= 40 {
                let claimed = if round % 5 == 0 { random() as u32 } else { len as u32 };
                request[..4].copy_from_slice(&claimed.to_ne_bytes());
                request[4..8].copy_from_slice(&(round % 60).to_ne_bytes());
                let node = [1, secret, random()][random() as usize % 3];
                request[16..24].copy_from_slice(&node.to_ne_bytes());
                // small numbers are likelier to be handles, sizes and offsets
                for word in request[40..].chunks_exact_mut(8).skip(round as usize % 3) {
                    word[random() as usize % 8..].fill(0);
                }
            }
            guest.answers.0.lock().unwrap().clear();
            guest.send(false, &mut request);
        }
        let after = fs.getattr(Ino(secret)).unwrap();
        assert_eq!((after.mode, after.uid, after.size), (before.mode, before.uid, before.size));
        assert_eq!(guest.ask(opcode::STATFS, 1, &[]).0, 0);
    });
}

/// What a kernel is told of a name in a directory: what it calls the inode.
fn looked_up(guest: &mut Guest, dir: u64, name: &str) -> std::result::Result<u64, i32> {
    let (errno, bytes) = guest.ask(opcode::LOOKUP, dir, &[name.as_bytes(), b"\0"]);
    match errno {
        0 => Ok(u64::from_ne_bytes(bytes[..8].try_into().unwrap())),
        errno => Err(errno),
    }
}

#[test]
fn who_may_have_a_part_names_nothing_else() {
    with_pool(|fs| {
        let by = nearside::files::Creation { mode: 0o777, umask: 0, uid: 0, gid: 0 };
        let inside = fs.create(Ino::ROOT, b"inside", NewNode::Directory, by).unwrap().ino;
        let sub = fs.create(inside, b"sub", NewNode::Directory, by).unwrap().ino;
        let known = fs.create(inside, b"known", NewNode::File, by).unwrap().ino;
        let outside = file(fs, "outside", 0, 0o666);
        let nodes = Nodes::new(inside.0, Some([7; 16]));
        let mut guest = Guest::of(fs, Users::Trusted, false, nodes);
        assert!(guest.server.told(&Told::Asked, &[]) && guest.server.told(&Told::Begin, &[]));
        let attr = |guest: &mut Guest, node: u64| guest.ask(opcode::GETATTR, node, &[&[0; 16]]).0;
        // what it is told of it may name, and nothing by its number
        let name = looked_up(&mut guest, 1, "known").unwrap();
        let sub_name = looked_up(&mut guest, 1, "sub").unwrap();
        assert_eq!([1, name, sub_name].map(|node| attr(&mut guest, node)), [0; 3]);
        for ino in [Ino::ROOT.0 + 1, inside.0, known.0, sub.0, outside, name ^ 1] {
            assert_eq!(attr(&mut guest, ino), libc::ESTALE, "{ino}");
            assert_eq!(guest.open(ino, libc::O_RDWR), Err(libc::ESTALE));
            let renamed = [&ino.to_ne_bytes()[..], b"known\0", b"away\0"].concat();
            let linked = [&ino.to_ne_bytes()[..], b"link\0"].concat();
            // it is the number of no inode there is
            let refused = [libc::ESTALE, libc::ENOENT];
            assert!(refused.contains(&guest.ask(opcode::RENAME, 1, &[&renamed]).0));
            assert!(refused.contains(&guest.ask(opcode::LINK, 1, &[&linked]).0));
        }
        for name in ["..\0", ".\0"] {
            let (name, ok) = (name.as_bytes(), b"name\0");
            for (code, arguments) in [
                (opcode::LOOKUP, [&[][..], name]),
                (opcode::MKDIR, [&[0; 8], name]),
                (opcode::MKNOD, [&[0; 16], name]),
                (opcode::SYMLINK, [name, ok]),
                (opcode::LINK, [&nodes.name(known.0).to_ne_bytes(), name]),
                (opcode::CREATE, [&[0; 16], name]),
                (opcode::UNLINK, [&[], name]),
                (opcode::RMDIR, [&[], name]),
                (opcode::RENAME, [&1u64.to_ne_bytes(), &[name, ok].concat()]),
                (opcode::RENAME, [&1u64.to_ne_bytes(), &[ok, name].concat()]),
            ] {
                assert_eq!(guest.ask(code, 1, &arguments).0, libc::EINVAL, "{code}");
            }
        }
        assert_eq!(looked_up(&mut guest, 1, "outside").unwrap_or(0), 0);
        let handle = guest.open(name, libc::O_RDWR).unwrap();
        assert_eq!(guest.write(name, handle, 0, b"inside"), 0);
        let copied = [handle, 0, outside, handle, 0, 5, 0];
        let code = opcode::COPY_FILE_RANGE;
        assert_eq!(guest.ask(code, name, &[copied.as_bytes()]).0, libc::EBADF, "of no such inode");
        // a directory's entries have the names that look-ups give
        let (errno, opened) = guest.ask(opcode::OPENDIR, 1, &[&[0; 8]]);
        assert_eq!(errno, 0);
        let ask = [&opened[..8], &[0; 8], [1u32 << 16, 0].as_bytes(), &[0; 16]].concat();
        let (errno, listed) = guest.ask(opcode::READDIRPLUS, 1, &[&ask]);
        assert_eq!(errno, 0);
        for (name, is_there) in [(name, true), (sub_name, true), (known.0, false), (sub.0, false)] {
            let entries = listed.chunks(8).filter(|word| *word == name.to_ne_bytes()).count();
            // the number of an inode is there: in its attributes, and beside its name
            assert_eq!(entries, if is_there { 1 } else { 2 });
        }
        // what is forgotten, opened and locked goes by names, too
        let forgotten = [[outside, 1], [name, 1]].concat();
        let count = [2u32, 0];
        let bytes = [count.as_bytes(), forgotten.as_bytes()].concat();
        let words = [40 + bytes.len() as u32, opcode::BATCH_FORGET];
        let mut request = [words.as_bytes(), &[0; 32], &bytes].concat();
        assert_eq!(guest.send(false, &mut request), None);
        let mut next = Guest::of(fs, Users::Trusted, false, nodes);
        let opened = [[9u64, outside], [11, nodes.name(known.0)]].concat();
        assert!(next.server.told(&Told::Asked, &[]));
        assert!(next.server.told(&Told::Opened, opened.as_bytes()));
        assert!(next.server.told(&Told::Begin, &[]));
        let refused = [libc::EBADF, libc::ESTALE];
        assert!(refused.contains(&next.write(outside, 9, 0, b"x")));
        assert_eq!(next.write(name, 11, 0, b"x"), 0);
        assert_eq!(attr(&mut next, name), 0, "another service knows the name");
    });
}
