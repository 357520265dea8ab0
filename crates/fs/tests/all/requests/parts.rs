//! Requests that take more than one record, killed in each of their parts; and what the id of a
//! request does not stand for.

use crate::common::{BY, find, make, pattern};
use crate::requests::kill::{Images, Server, assert_clean, formatted};
use crate::requests::script::{Seen, seen};
use fs::{
    ATOMIC_WRITE_BYTES_MAX, Fallocate, FileSystem, Handle, Ino, NewNode, RequestId, TakeOver, Write,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const ID: RequestId = RequestId { client: 7 << 64 | 9, sequence: 12 };

fn asked() -> TakeOver {
    TakeOver { requests: vec![ID], ..TakeOver::default() }
}

/// What can be seen of the file.
fn shown(fs: &FileSystem) -> Seen {
    seen(fs, &fs.lookup(Ino::ROOT, b"f").unwrap())
}

/// A pool with one file, made by `first`.
fn with_file(first: fn(&FileSystem, &Handle)) -> Images {
    let server = Server::immortal(&formatted(1, 16 << 20), &TakeOver::default());
    first(&server.fs, &make(&server.fs, "f"));
    server.mirror.kill()
}

/// How often a kill left nothing, a part and all of a call.
#[derive(Default, Debug)]
struct Left {
    nothing: u32,
    part: u32,
    all: u32,
}

/// Kills `call` at every `step`th of its stores and repeats it where it was not done.
fn kill_everywhere(images: &Images, step: u64, call: fn(&FileSystem) -> fs::Result<()>) -> Left {
    let server = Server::immortal(images, &TakeOver::default());
    let before = shown(&server.fs);
    call(&server.fs).unwrap();
    let after = shown(&server.fs);
    assert_ne!(before, after);
    let mut left = Left::default();
    for store in (1..).step_by(step as usize) {
        let server = Server::start(images, &TakeOver::default(), (store, 1024));
        let done_anyway = !server.mirror.dead() && {
            server.fs.with_request(ID, || call(&server.fs)).unwrap();
            !server.mirror.dead()
        };
        let images = server.mirror.kill();
        let next = Server::immortal(&images, &asked());
        let found = shown(&next.fs);
        if next.fs.was_done(ID) {
            left.all += 1;
        } else {
            left.nothing += u32::from(found == before);
            left.part += u32::from(found != before && found != after);
            next.fs.with_request(ID, || call(&next.fs)).unwrap();
        }
        assert_eq!(shown(&next.fs), after, "killed by store {store}: {left:?}");
        next.fs.checkpoint().unwrap();
        assert_clean(&next.mirror.kill());
        if done_anyway {
            break;
        }
    }
    assert!(left.nothing > 0 && left.part > 0 && left.all > 0, "{left:?}");
    left
}

#[test]
fn a_write_of_several_pieces_is_repeated_until_its_last_is_durable() {
    let images = with_file(|fs, file| assert_eq!(fs.write(file, 9, b"before").unwrap(), 6));
    kill_everywhere(&images, 61, |fs| {
        let data = pattern(5, 2 * ATOMIC_WRITE_BYTES_MAX + 70_000);
        fs.write(&find(fs, "f"), 4000, &data).map(|_| ())
    });
}

/// Data in each of several parts of a file.
fn write_parts(fs: &FileSystem, file: &Handle, part_bytes: u64) {
    for part in 0..4 {
        fs.write(file, part * part_bytes + 100, &pattern(part, 9000)).unwrap();
    }
    fs.checkpoint().unwrap();
}

#[test]
fn a_punch_of_several_gib_is_repeated_until_its_last_is_durable() {
    let images = with_file(|fs, file| write_parts(fs, file, GIB));
    kill_everywhere(&images, 1, |fs| {
        fs.fallocate(&find(fs, "f"), Fallocate::PunchHole, 5000, 3 * GIB)
    });
}

#[test]
fn zeros_of_several_mib_that_extend_the_file_are_repeated_until_the_last_are_durable() {
    let images = with_file(|fs, file| write_parts(fs, file, MIB));
    kill_everywhere(&images, 1, |fs| {
        fs.fallocate(&find(fs, "f"), Fallocate::Zero { keep_size: false }, 300, 7 * MIB)
    });
}

#[test]
fn a_reservation_of_several_mib_is_repeated_until_its_last_is_durable() {
    let images = with_file(|fs, file| write_parts(fs, file, MIB));
    kill_everywhere(&images, 1, |fs| {
        fs.fallocate(&find(fs, "f"), Fallocate::Allocate { keep_size: false }, 300, 7 * MIB)
    });
}

/// Its first record moves the end of the file: once more, and the data would be there twice.
#[test]
fn an_append_of_several_records_is_refused_within_a_request() {
    let server = Server::immortal(&formatted(1, 16 << 20), &TakeOver::default());
    let (fs, file) = (&server.fs, make(&server.fs, "f"));
    let data = pattern(1, ATOMIC_WRITE_BYTES_MAX + 1);
    let refused = fs.with_request(ID, || fs.append(&file, &data));
    assert_eq!(refused.map_err(|error| error.errno()), Err(libc::EINVAL));
    assert!(!fs.was_done(ID));
    assert_eq!(fs.getattr(file.ino()).unwrap().size, 0);
    fs.with_request(ID, || fs.append(&file, &data[1..])).unwrap();
    assert!(fs.was_done(ID));
    assert_eq!(fs.append(&file, &data).unwrap(), ATOMIC_WRITE_BYTES_MAX as u64);
}

#[test]
fn of_several_calls_the_last_one_says_that_the_request_is_done() {
    let images = with_file(|_, _| {});
    let server = Server::immortal(&images, &TakeOver::default());
    let (fs, file) = (&server.fs, find(&server.fs, "f"));
    let first = || fs.write(&file, 0, b"first").unwrap();
    let cut_off = fs.with_request(ID, || {
        fs.repeatable(first);
        server.mirror.kill()
    });
    assert!(!fs.was_done(ID));
    assert!(!Server::immortal(&cut_off, &asked()).fs.was_done(ID));
    let server = Server::immortal(&cut_off, &asked());
    let (fs, file) = (&server.fs, find(&server.fs, "f"));
    fs.with_request(ID, || {
        fs.repeatable(|| fs.write(&file, 0, b"first").unwrap());
        fs.write(&file, 5, b"second").unwrap();
    });
    let whole = server.mirror.kill();
    assert!(Server::immortal(&whole, &asked()).fs.was_done(ID));
}

/// The last handle of an unlinked file may go at the end of any request, of one that failed, too.
#[test]
fn the_end_of_an_orphan_is_no_requests_change() {
    let server = Server::immortal(&formatted(1, 4 << 20), &TakeOver::default());
    let fs = &server.fs;
    let file = make(fs, "f");
    let ino = file.ino();
    fs.unlink(Ino::ROOT, b"f").unwrap();
    let failed = fs.with_request(ID, || {
        drop(file);
        fs.create(Ino::ROOT, b"", NewNode::File, BY)
    });
    assert!(failed.is_err() && !fs.was_done(ID));
    assert_eq!(fs.getattr(ino).map_err(|error| error.errno()), Err(libc::ENOENT));
    assert!(!Server::immortal(&server.mirror.kill(), &asked()).fs.was_done(ID));
}

/// One write that is short has a way of its own.
#[test]
fn a_commit_of_one_write_is_known_to_the_next_server_however_long_it_is() {
    let images = with_file(|fs, file| assert_eq!(fs.write(file, 0, &[1; 20_000]).unwrap(), 20_000));
    for (offset, len) in [(0, 1), (5000, 300), (4096, 4096), (3, 9000)] {
        let server = Server::immortal(&images, &TakeOver::default());
        let (fs, file) = (&server.fs, find(&server.fs, "f"));
        let data = vec![7; len];
        let write = Write { file: &file, offset, data: &data };
        fs.with_request(ID, || fs.commit(&[write], &[])).unwrap();
        let next = Server::immortal(&server.mirror.kill(), &asked());
        assert!(next.fs.was_done(ID), "{len} bytes at {offset}");
    }
}
