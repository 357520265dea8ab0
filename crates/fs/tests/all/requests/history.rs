//! Random histories of requests, checkpoints and kills, beside a pool that sees each request once.

use crate::common::{BY, scratch};
use crate::requests::door::Door;
use crate::requests::kill::{Images, Server, assert_clean, formatted};
use crate::requests::script::roll;
use fs::{FileSystem, Ino, NewNode, TakeOver};
use pool::OpenOptions;

const SLICES: usize = 2;
/// Bytes of a slice for each client: all that their requests write at most.
const SLICE_BYTES: u64 = 7 << 20;

/// Counts over several histories.
#[derive(Default, Debug)]
struct Counts {
    served: u64,
    repeated: u64,
    not_repeated: u64,
    kills: u64,
    kills_of_recovery: u64,
}

/// The pool that nobody kills.
fn kept(clients: &[Door]) -> (tempfile::TempDir, FileSystem) {
    let dir = scratch();
    let slice_bytes = SLICE_BYTES * clients.len() as u64;
    fs::format(dir.path(), &crate::common::options(SLICES, slice_bytes)).unwrap();
    let fs = FileSystem::open_pool(dir.path(), &OpenOptions::default()).unwrap();
    make_dirs(&fs, clients);
    (dir, fs)
}

fn make_dirs(fs: &FileSystem, clients: &[Door]) {
    for door in clients {
        let name = format!("client{}", door.client & 0xFF);
        fs.create(Ino::ROOT, name.as_bytes(), NewNode::Directory, BY).unwrap();
    }
}

/// Starts the next server, whose recovery may be killed, too.
fn next(images: Images, doors: &[Door], dice: &mut u64, counts: &mut Counts) -> Server {
    let requests = doors.iter().flat_map(Door::asked).collect();
    let asked = TakeOver { requests, keep_orphans: roll(dice, 2) == 0, ..TakeOver::default() };
    let mut images = images;
    loop {
        let soon = roll(dice, 3) == 0;
        let left = if soon { 1 + roll(dice, 14) } else { 30 + roll(dice, 600) };
        let torn = 8 * roll(dice, 600) as usize;
        let server = Server::start(&images, &asked, (left, torn));
        if !server.mirror.dead() {
            return server;
        }
        counts.kills_of_recovery += 1;
        images = server.mirror.kill();
    }
}

/// One life of a server: it serves until it is killed. Each client has a thread.
fn live(server: &Server, kept: &FileSystem, doors: &mut [Door], dice: &mut u64) {
    let dead = || server.mirror.dead();
    std::thread::scope(|scope| {
        let several = doors.len() > 1;
        for door in doors {
            let mut dice = roll(dice, 1 << 40) | 1;
            let mut serve = move || {
                while !dead() {
                    door.serve(&server.fs, kept, dead);
                    if roll(&mut dice, 12) == 0 {
                        server.fs.checkpoint().unwrap();
                    }
                }
            };
            if several {
                scope.spawn(serve);
            } else {
                serve();
            }
        }
    });
}

/// Starts servers and kills them; at the end all is as where nobody was killed, and nothing is
/// left of any request.
fn history(seed: u64, clients: u128, lives: u32, counts: &mut Counts) {
    let mut dice = seed.wrapping_mul(0xD134_2543_DE82_EF95) | 1;
    let mut doors: Vec<Door> =
        (0..clients).map(|n| Door::new(u128::from(seed) << 70 | n, seed * 31 + n as u64)).collect();
    let (_dir, kept) = kept(&doors);
    let mut images = formatted(SLICES, SLICE_BYTES * clients as u64);
    let first = Server::immortal(&images, &TakeOver::default());
    make_dirs(&first.fs, &doors);
    images = first.mirror.kill();
    drop(first);
    for life in 0..lives {
        let server = next(images, &doors, &mut dice, counts);
        let dead = || server.mirror.dead();
        doors.iter_mut().for_each(|door| door.resume(&server.fs, dead));
        if !server.mirror.dead() {
            for door in &doors {
                door.compare(&server.fs, &kept, &format!("seed {seed}, life {life}"));
            }
            live(&server, &kept, &mut doors, &mut dice);
        }
        images = server.mirror.kill();
        counts.kills += 1;
    }
    assert_clean(&images);
    let requests = doors.iter().flat_map(Door::asked).collect();
    let server = Server::immortal(
        &images,
        &TakeOver { requests, keep_orphans: true, ..TakeOver::default() },
    );
    for door in &mut doors {
        door.resume(&server.fs, || false);
        door.compare(&server.fs, &kept, &format!("seed {seed}, the end"));
        door.answer(&server.fs);
        counts.served += door.served;
        counts.repeated += door.repeated;
        counts.not_repeated += door.not_repeated;
    }
    server.fs.close().unwrap();
    let report = assert_clean(&server.mirror.kill());
    assert_eq!((report.requests, report.records), (0, 0), "seed {seed}: of answered requests");
}

#[test]
fn each_request_is_done_once_whatever_a_kill_cuts_off() {
    let mut counts = Counts::default();
    (1..=6).for_each(|seed| history(seed, 1, 14, &mut counts));
    println!("{counts:?}");
    assert!(counts.kills > 60 && counts.kills_of_recovery > 2, "{counts:?}");
    assert!(counts.repeated > 20 && counts.not_repeated > 150, "{counts:?}");
}

#[test]
fn each_request_of_several_clients_at_once_is_done_once() {
    let mut counts = Counts::default();
    (1..=3).for_each(|seed| history(seed * 77, 3, 12, &mut counts));
    println!("{counts:?}");
    assert!(counts.repeated > 15 && counts.not_repeated > 150, "{counts:?}");
}
