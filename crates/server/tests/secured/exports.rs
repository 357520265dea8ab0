//! What is seen and changed by those whose line says `path=` or `read-only`: by hand, since a
//! program that is to be feared does not use the library.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nearside::{AttachOptions, Pool};
use rustix::io::Errno;
use wire::{Flags, Node, Piece, Reply, Request, Welcome};

use crate::authority::{Authority, put};
use crate::peer::Peer;
use crate::served::Served;

const READS: Flags = flags(true, false);
const WRITES: Flags = flags(true, true);

const fn flags(read: bool, write: bool) -> Flags {
    Flags {
        read,
        write,
        append: false,
        truncate: false,
        create: false,
        create_new: false,
        mode: 0o644,
    }
}

const NEW: Flags = Flags { create: true, ..WRITES };

/// A pool with files inside of `/sub` and outside, and ben, whose line says more than his user.
struct Export {
    served: Served,
    own: Pool,
    ben: PathBuf,
}

impl Export {
    fn new(line: &str) -> Export {
        let served = Served::new();
        let ben = served.dir().join("ben");
        Authority::kept(&served.dir().join("authority")).program("ben", &ben);
        let own = served.attach();
        own.create_dir_all("/sub/deep/er").unwrap();
        own.create_dir("/out").unwrap();
        for (path, text) in [("/secret", "no"), ("/out/secret", "no"), ("/sub/file", "yes")] {
            own.write(path, text).unwrap();
        }
        own.symlink("/secret", "/sub/absolute").unwrap();
        own.symlink("../secret", "/sub/above").unwrap();
        own.symlink("../../../../out", "/sub/deep/out").unwrap();
        own.symlink("/file", "/sub/deep/file").unwrap();
        let export = Export { served, own, ben };
        export.line(line);
        export
    }

    fn line(&self, line: &str) {
        let access = self.served.dir().join("server/access");
        let text = std::fs::read_to_string(&access).unwrap();
        let own = text.lines().next().unwrap();
        put(&access, &format!("{own}\n{line}\n"), 0o644);
    }

    fn peer(&self) -> Peer {
        Peer::attach(&self.served.address, &self.ben).0
    }

    /// The same by the library.
    fn attach(&self) -> Pool {
        let options =
            AttachOptions { credentials: Some(self.ben.clone()), ..AttachOptions::default() };
        Pool::attach_with(&self.served.address, &options).unwrap()
    }

    fn finish(self) {
        drop(self.own);
        self.served.wait_for_sessions(0);
        self.served.finish();
    }
}

/// Paths that lead out of `/sub` for who does not see it as the root.
const OUT: [&str; 9] = [
    "/../secret",
    "../secret",
    "/deep/../../secret",
    "/deep/er/../../../../secret",
    "/absolute",
    "/above",
    "/deep/out/secret",
    "/deep/out/../secret",
    "/./..//../secret",
];

#[test]
fn a_subtree_is_all_that_there_is() {
    let export = Export::new("ben 0:0 path=/sub");
    let mut peer = export.peer();
    for path in OUT {
        let name = path.as_bytes();
        for request in [
            Request::Open(name, READS),
            Request::Attributes(name, true),
            Request::Xattr(name, b"user.a"),
            Request::SetMode(name, 0o777),
            Request::OpenDirectory(name),
        ] {
            let errno = peer.refused(&request, &[]);
            assert_eq!(errno, Errno::NOENT.raw_os_error(), "{path}: {request:?}");
        }
        // a symbolic link may have another name; it leads nowhere there, too
        let _ = peer.ask(&Request::Make(b"/taken", Node::Link(name)), &[]);
        let errno = peer.refused(&Request::Attributes(b"/taken", true), &[]);
        assert_eq!(errno, Errno::NOENT.raw_os_error(), "{path}");
        let _ = peer.ask(&Request::Rename(name, b"/moved", fs::RenameMode::Replace), &[]);
        let errno = peer.refused(&Request::Attributes(b"/moved", true), &[]);
        assert_eq!(errno, Errno::NOENT.raw_os_error(), "{path}");
    }
    // what links say is in the subtree, too
    let (file, ..) = peer.open("/deep/file", READS);
    assert_eq!(peer.ask(&Request::Read { file, offset: 0, len: 9 }, &[]).1, b"yes");
    let root = peer.ask(&Request::Attributes(b"/..", true), &[]).0;
    let Reply::Attributes(root) = root else { panic!("{root:?}") };
    assert_eq!(root.ino, export.own.metadata("/sub").unwrap().attr().ino);
    drop(peer);
    let pool = export.attach();
    let mut names: Vec<_> =
        pool.read_dir("/..").unwrap().map(|entry| entry.unwrap().file_name().to_owned()).collect();
    names.sort();
    assert!(names.contains(&"file".into()) && !names.contains(&"secret".into()), "{names:?}");
    pool.write("/new", "x").unwrap();
    pool.rename("/new", "/../../newer").unwrap();
    assert_eq!(export.own.read("/sub/newer").unwrap(), b"x");
    assert_eq!(pool.rename("/", "/deep/self").unwrap_err().errno(), Errno::INVAL.raw_os_error());
    assert_eq!(pool.remove_dir("/").unwrap_err().errno(), Errno::INVAL.raw_os_error());
    for path in ["/secret", "/out/secret"] {
        assert_eq!(export.own.read(path).unwrap(), b"no");
        assert_eq!(export.own.metadata(path).unwrap().attr().links, 1);
    }
    drop(pool);
    export.finish();
}

#[test]
fn nothing_is_restored_that_was_open_elsewhere() {
    let export = Export::new("ben 0:0");
    let (mut whole, identity) = Peer::attach(&export.served.address, &export.ben);
    let (number, ino, proof) = whole.open("/secret", READS);
    let restore = Request::Restore { number, ino, flags: Some(READS), proof, locks: vec![] };
    // the same process, which sees less now
    export.line("ben 0:0 path=/sub");
    let mut peer = Peer::connect(&export.served.address, &export.ben);
    let said = peer.greet(Some(identity));
    assert!(matches!(said, Welcome::Stranger(_)), "{said:?}");
    let mut peer = export.peer();
    assert_eq!(peer.refused(&restore, &[]), Errno::PERM.raw_os_error());
    // of what it has not opened itself there is no proof
    let (_, own, proof) = peer.open("/file", READS);
    for (number, ino) in [(9, own), (number, ino), (1, ino)] {
        let restore = Request::Restore { number, ino, flags: Some(READS), proof, locks: vec![] };
        assert_eq!(peer.refused(&restore, &[]), Errno::PERM.raw_os_error());
    }
    for file in [0, number + 7, u64::MAX] {
        peer.refused(&Request::Read { file, offset: 0, len: 9 }, &[]);
    }
    drop((whole, peer));
    export.finish();
}

/// Somebody moves a directory out of the subtree while ben goes through it and up again.
#[test]
fn no_rename_beside_a_walk_leads_out() {
    let export = Export::new("ben 0:0 path=/sub/inner");
    export.own.create_dir_all("/sub/inner/a/b/c").unwrap();
    let (pool, is_over) = (export.attach(), AtomicBool::new(false));
    let ups = "/a/b/c/../../../../../../../secret";
    let walks = std::thread::scope(|threads| {
        let walking = threads.spawn(|| {
            let mut walks = 0;
            while !is_over.load(Ordering::Relaxed) {
                let error = pool.read(ups).unwrap_err();
                assert_eq!(error.errno(), Errno::NOENT.raw_os_error(), "{error}");
                walks += 1;
            }
            walks
        });
        for _ in 0..3000 {
            export.own.rename("/sub/inner/a/b", "/out/b").unwrap();
            export.own.rename("/out/b", "/sub/inner/a/b").unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        walking.join().unwrap()
    });
    println!("{walks} walks beside 6000 renames");
    assert!(walks > 0);
    drop(pool);
    export.finish();
}

#[test]
fn a_subtree_that_is_not_there_is_said_and_one_that_goes_is_empty() {
    let export = Export::new("ben 0:0 path=/sub/none");
    let mut peer = Peer::connect(&export.served.address, &export.ben);
    let said = peer.greet(None);
    assert!(matches!(&said, Welcome::Refused(why) if why.contains("/sub/none")), "{said:?}");
    export.line("ben 0:0 path=/sub/file");
    let mut peer = Peer::connect(&export.served.address, &export.ben);
    assert!(matches!(peer.greet(None), Welcome::Refused(_)));
    export.line("ben 0:0 path=/sub/deep/er");
    let pool = export.attach();
    pool.write("/file", "x").unwrap();
    // moved, it is the same
    export.own.rename("/sub/deep/er", "/elsewhere").unwrap();
    assert_eq!(pool.read("/../file").unwrap(), b"x");
    export.own.remove_file("/elsewhere/file").unwrap();
    export.own.remove_dir("/elsewhere").unwrap();
    for path in ["/", "/file", "/../secret"] {
        assert!(pool.metadata(path).is_err(), "{path}");
    }
    assert!(pool.write("/new", "x").is_err());
    drop((pool, peer));
    export.finish();
}

/// Every request that there is, with what it takes to be made where all is allowed.
fn changes(file: u64) -> Vec<(Request<'static>, &'static [u8])> {
    let appending = Flags { append: true, ..READS };
    let cutting = Flags { truncate: true, ..READS };
    let making = Flags { create: true, ..READS };
    let new = Flags { create_new: true, ..READS };
    let piece = || vec![Piece { file, offset: 0, len: 1 }];
    let mode = fs::XattrMode::Any;
    vec![
        (Request::Open(b"/sub/file", WRITES), b""),
        (Request::Open(b"/sub/file", appending), b""),
        (Request::Open(b"/sub/file", cutting), b""),
        (Request::Open(b"/sub/made", making), b""),
        (Request::Open(b"/sub/made", new), b""),
        (Request::Write { file, offset: 0 }, b"x"),
        (Request::Append(file), b"x"),
        (Request::Copy { from: (file, 0), to: (file, 4096), len: 3 }, b""),
        (Request::SetLength(file, 0), b""),
        (Request::PunchHole(file, 0, 4096), b""),
        (Request::Allocate(file, 0, 4096), b""),
        (Request::SetMode(b"/sub/file", 0o777), b""),
        (Request::SetOwner(b"/sub/file", true, Some(5), None), b""),
        (Request::SetTimes(b"/sub/file", true, Some(5), Some(5)), b""),
        (Request::SetXattr(b"/sub/file", b"user.a", mode), b"x"),
        (Request::RemoveXattr(b"/sub/file", b"user.b"), b""),
        (Request::Make(b"/sub/made", Node::Directory), b""),
        (Request::Make(b"/sub/made/too", Node::Directories), b""),
        (Request::Make(b"/sub/made", Node::Symlink(b"file")), b""),
        (Request::Make(b"/sub/made", Node::Link(b"/sub/file")), b""),
        (Request::Remove(b"/sub/file", false), b""),
        (Request::Remove(b"/sub/deep/er", true), b""),
        (Request::Rename(b"/sub/file", b"/sub/made", fs::RenameMode::Replace), b""),
        (Request::Checkpoint, b""),
        (Request::Commit { staged: 0, pieces: 0, writes: piece(), expected: vec![] }, b"x"),
        (Request::Stage { staged: 4, writes: piece(), expected: vec![] }, b"x"),
        (Request::Lane { connection: 7 }, b""),
        (Request::Lease { slot: 1, file, first: 0, last: 0 }, b""),
        (Request::Fold, b""),
    ]
}

fn state(pool: &Pool, path: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in pool.read_dir(path).unwrap() {
        let entry = entry.unwrap();
        let path = path.join(entry.file_name());
        let mut attributes = *pool.symlink_metadata(&path).unwrap().attr();
        attributes.accessed = fs::Timestamp(0);
        all.push(format!("{path:?} {attributes:?} {:?}", pool.list_xattrs(&path).ok()));
        match entry.kind() {
            fs::FileKind::Directory => all.extend(state(pool, &path)),
            fs::FileKind::File => all.push(format!("{:?}", pool.read(&path).unwrap())),
            _ => {}
        }
    }
    all.sort();
    all
}

#[test]
fn who_only_reads_changes_nothing_whatever_is_asked() {
    let export = Export::new("ben 0:0 read-only");
    let none = fs::XattrMode::Any;
    export.own.set_xattr("/sub/file", "user.b", b"kept", none).unwrap();
    let before = state(&export.own, Path::new("/"));
    let mut peer = export.peer();
    let (file, ino, proof) = peer.open("/sub/file", READS);
    for (request, data) in changes(file) {
        assert_eq!(peer.refused(&request, data), Errno::ROFS.raw_os_error(), "{request:?}");
    }
    for flags in [WRITES, NEW] {
        let restore = Request::Restore { number: 5, ino, flags: Some(flags), proof, locks: vec![] };
        assert_eq!(peer.refused(&restore, &[]), Errno::ROFS.raw_os_error());
    }
    assert_eq!(state(&export.own, Path::new("/")), before);
    // reading, and locks
    assert_eq!(peer.ask(&Request::Read { file, offset: 0, len: 9 }, &[]).1, b"yes");
    for kind in [fs::LockKind::Read, fs::LockKind::Unlock] {
        let lock = Request::Lock { file, kind, start: 0, end: 9, wait: true };
        assert_eq!(peer.ask(&lock, &[]).0, Reply::Done);
    }
    assert_eq!(peer.ask(&Request::Sync, &[]).0, Reply::Done);
    drop(peer);
    let pool = export.attach();
    assert_eq!(pool.read("/sub/file").unwrap(), b"yes");
    assert_eq!(pool.write("/sub/file", "x").unwrap_err().errno(), Errno::ROFS.raw_os_error());
    drop(pool);
    export.finish();
}

/// A program maps what it may read, and loads what others commit; to commit it may not.
#[test]
fn who_only_reads_has_regions_that_show_and_take_nothing() {
    let export = Export::new("ben 0:0 path=/sub read-only");
    let pool = export.attach();
    let reads = nearside::OpenFlags::new().read(true);
    let file = pool.open_file("/file", &reads).unwrap();
    let region = pool.map(&file, 0, 8192).unwrap();
    let seen = |expected: &[u8]| {
        pool.metadata("/").unwrap();
        let mut bytes = vec![0; expected.len()];
        region.load(0, &mut bytes).unwrap();
        assert_eq!(bytes, expected);
    };
    seen(b"yes\0");
    let theirs = export.own.open_file("/sub/file", &reads.write(true)).unwrap();
    let mapped = export.own.map(&theirs, 0, 8192).unwrap();
    let mut tx = export.own.begin().unwrap();
    tx.write(&mapped, 0, b"changed").unwrap();
    tx.commit().unwrap();
    seen(b"changed\0");
    let mut tx = pool.begin().unwrap();
    let refused = tx.write(&region, 0, b"x").unwrap_err();
    assert_eq!(refused.errno(), Errno::BADF.raw_os_error());
    drop(tx);
    // by hand: of what is mapped, and of what is not its part
    let mut peer = export.peer();
    let (number, ..) = peer.open("/file", READS);
    let map = Request::Map { copy: 1, file: number, offset: 0, bytes: 4096 };
    assert_eq!(peer.ask(&map, &[]).0, Reply::Done);
    let writes = vec![Piece { file: number, offset: 0, len: 1 }];
    let commit = Request::Commit { staged: 0, pieces: 0, writes, expected: vec![] };
    assert_eq!(peer.refused(&commit, b"x"), Errno::ROFS.raw_os_error());
    let errno = peer.refused(&Request::Open(b"/../secret", READS), &[]);
    assert_eq!(errno, Errno::NOENT.raw_os_error());
    seen(b"changed\0");
    drop((peer, region, file, pool, mapped, theirs));
    export.finish();
}

/// What is refused there is done here: the list above is of changes.
#[test]
fn who_may_write_is_not_refused_as_who_may_not() {
    let export = Export::new("ben 0:0");
    let mut peer = export.peer();
    let (file, ..) = peer.open("/sub/file", WRITES);
    for (request, data) in changes(file) {
        if let Reply::Failed(failure) = peer.ask(&request, data).0 {
            let error = failure.error();
            assert_ne!(error.errno(), Errno::ROFS.raw_os_error(), "{request:?}: {error}");
        }
    }
    assert!(!export.own.exists("/sub/file").unwrap() && export.own.exists("/sub/made").unwrap());
    drop(peer);
    export.finish();
}
