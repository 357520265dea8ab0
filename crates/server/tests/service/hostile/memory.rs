//! What is stored in memory of calls and of copies, and which memory can be opened anew.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};
use shm::Shared;
use wire::{Piece, Reply, Request, Said};

use super::honest::{COUNTS, SHARED, own};
use super::records::Laned;
use super::strange::{Attempt, STRANGE, Strange, opened};
use crate::hand::ByHand;
use crate::strangers::{Random, SLOT_BYTES, SLOTS_AT, mutate, request, say_in};

fn name(random: &mut Random) -> String {
    format!("{STRANGE}/{}", random.below(8))
}

/// Calls of all kinds, changed and cut.
pub fn asks(strange: &mut Strange) -> Attempt {
    let Some(hand) = strange.attach() else { return Ok(vec![]) };
    let random = &mut strange.random;
    for call in 0..80 {
        let path = name(random);
        let mut message = request(random, path.as_bytes());
        mutate(random, &mut message);
        say_in(&hand, call % 8, &message, random.below(10_000) as u32);
        if random.below(2) == 0 {
            std::thread::sleep(Duration::from_micros(random.below(300)));
        }
    }
    Ok(vec![])
}

/// Stores in the memory of its calls while they are under way.
pub fn stores(strange: &mut Strange) -> Attempt {
    let Some(hand) = strange.attach() else { return Ok(vec![]) };
    let is_over = AtomicBool::new(false);
    let until = Instant::now() + Duration::from_millis(20 + strange.random.below(100));
    let seeds = [strange.random.next(), strange.random.next()];
    std::thread::scope(|threads| {
        for (slot, seed) in [(6, seeds[0]), (7, seeds[1])] {
            let (hand, is_over) = (&hand, &is_over);
            threads.spawn(move || call(hand, slot, &mut Random(seed), is_over));
        }
        let random = &mut strange.random;
        while Instant::now() < until {
            let at = match random.below(4) {
                0 => random.below(64 * 40),
                1 => SLOTS_AT as u64 + (6 + random.below(2)) * SLOT_BYTES as u64 + random.below(64),
                _ => random.below(hand.memory.len() as u64 - 64),
            };
            let small = [random.below(5) as u8, 0, 0, 0];
            let bytes = if random.below(2) == 0 { small.to_vec() } else { random.bytes(64) };
            hand.memory.store(at as usize, &bytes);
            if random.below(50) == 0 {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let _ = fallocate(&hand.descriptor, hole, 0, random.below(1 << 22) + 1);
            }
        }
        is_over.store(true, Ordering::Relaxed);
        hand.calls.lose();
    });
    Ok(vec![])
}

/// Calls that take bytes, and bring some.
fn call(hand: &ByHand, slot: usize, random: &mut Random, is_over: &AtomicBool) {
    let mut into = vec![0; 64 << 10];
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        count += 1;
        let piece = Piece { file: random.below(3), offset: random.below(100_000), len: 5000 };
        let (writes, expected) = (vec![piece; 2], vec![piece]);
        let path = name(random);
        let request = match random.below(6) {
            0 => {
                let flags =
                    wire::Flags { read: true, write: true, create: true, ..Default::default() };
                Request::Open(path.as_bytes(), flags)
            }
            1 => Request::Write { file: piece.file, offset: piece.offset },
            2 => Request::Commit { staged: 0, pieces: 0, writes, expected },
            3 => Request::ReadTogether { pieces: writes, watched: vec![piece.file] },
            4 => Request::Close(piece.file),
            _ => Request::Read { file: piece.file, offset: piece.offset, len: 40_000 },
        };
        hand.try_ask((slot, count), &request, &vec![count as u8; 15_000], &mut into);
    }
}

/// Memory of a copy, with what the service lets it do there.
fn mapped(hand: &ByHand, copy: u64, file: u64, bytes: u64) -> Option<File> {
    let map = Request::Map { copy, file, offset: 0, bytes };
    let Reply::Done = hand.try_ask((1, 0), &map, &[], &mut [])? else { return None };
    let (Said::Copy { .. }, files) = hand.given()? else { return None };
    Some(File::from(files.into_iter().next()?))
}

/// A read cache: its memory, and the service's word.
fn read_cache(hand: &ByHand) -> Option<(File, File)> {
    let Reply::Done = hand.try_ask((1, 0), &Request::Cache, &[], &mut [])? else { return None };
    let (Said::Cache, files) = hand.given()? else { return None };
    let [memory, word] = <[OwnedFd; 2]>::try_from(files).ok()?;
    Some((memory.into(), word.into()))
}

/// Copies of files, honest ones where it may; filled and ended, and stored to where that can be.
pub fn copies(strange: &mut Strange) -> Attempt {
    let Some(hand) = strange.attach() else { return Ok(vec![]) };
    let mut notes = Vec::new();
    let paths = [SHARED.to_owned(), COUNTS[0].to_owned(), own(1), own(3)];
    let files: Vec<u64> = paths.iter().filter_map(|path| opened(&hand, path, false)).collect();
    let mut all = Vec::new();
    for copy in 0..6 {
        let random = &mut strange.random;
        let file = files[random.below(files.len() as u64) as usize];
        let Some(memory) = mapped(&hand, copy, file, (1 + random.below(64)) * 4096) else {
            continue;
        };
        // who is of the service's user owns it
        let _ = std::fs::set_permissions(link(&memory), PermissionsExt::from_mode(0o600));
        let to_store = OpenOptions::new().read(true).write(true).open(link(&memory));
        match to_store {
            Ok(to_store) if strange.is_other => {
                return Err(format!("{to_store:?} can be stored to"));
            }
            Ok(to_store) => all.push((copy, Shared::map(to_store.as_fd()).unwrap())),
            Err(_) => {}
        }
    }
    for _ in 0..200 {
        let random = &mut strange.random;
        let (copy, page, pages) = (random.below(6), random.below(64), random.below(80) as u32);
        match random.below(12) {
            0 => drop(hand.try_ask((1, 0), &Request::Unmap(copy), &[], &mut [])),
            1..4 => drop(hand.try_ask((1, 0), &Request::Fill { copy, page, pages }, &[], &mut [])),
            _ if !all.is_empty() => {
                let (_, memory) = &all[random.below(all.len() as u64) as usize];
                let bytes = random.bytes(3000);
                memory.store(random.below((memory.len() - bytes.len()) as u64) as usize, &bytes);
                notes.push("stored in its copy");
            }
            _ => {}
        }
    }
    notes.truncate(1);
    Ok(notes)
}

fn link(file: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// What may be loaded only, opened anew.
fn cannot_be_stored_to(file: &File, what: &str) -> Result<(), String> {
    let place = link(file);
    for options in [OpenOptions::new().write(true), OpenOptions::new().read(true).write(true)] {
        if options.open(&place).is_ok() {
            return Err(format!("{what} can be opened to be stored to"));
        }
    }
    let mode = || PermissionsExt::from_mode(0o666);
    let is_changed = std::fs::set_permissions(&place, mode()).is_ok()
        || file.set_permissions(mode()).is_ok()
        || file.set_len(0).is_ok()
        || std::io::Write::write(&mut &*file, b"x").is_ok();
    if is_changed { Err(format!("{what} can be changed")) } else { Ok(()) }
}

/// Opens what it was given anew, to store in it.
pub fn reopens(strange: &mut Strange) -> Attempt {
    let Some(laned) = Laned::new(strange) else { return Ok(vec![]) };
    cannot_be_stored_to(&laned.words, "the words")?;
    if OpenOptions::new().write(true).open(link(&laned.lane)).is_ok() {
        return Err("a lane can be opened anew".to_owned());
    }
    if let Some((memory, word)) = read_cache(&laned.hand) {
        cannot_be_stored_to(&memory, "a read cache")?;
        cannot_be_stored_to(&word, "the word of the service")?;
        if Shared::map(memory.as_fd()).is_ok() {
            return Err("a read cache can be mapped to be stored to".to_owned());
        }
    }
    if let Some(memory) = mapped(&laned.hand, 1, laned.file, 4 * 4096) {
        cannot_be_stored_to(&memory, "a copy")?;
        if Shared::map(memory.as_fd()).is_ok() {
            return Err("a copy can be mapped to be stored to".to_owned());
        }
        return Ok(vec!["was refused"]);
    }
    Ok(vec![])
}
