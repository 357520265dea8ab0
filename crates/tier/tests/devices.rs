//! Devices read and written by many threads, past the page cache and not.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use pool::{BLOCK_BYTES, Device, PlainDevice, Transfer};
use std::path::Path;
use std::sync::Arc;
use tier::UringDevice;

const BLOCK: usize = BLOCK_BYTES as usize;
const BLOCKS: u64 = 4096;

fn scratches() -> Vec<tempfile::TempDir> {
    let mut all = vec![tempfile::tempdir().unwrap()];
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        all.push(tempfile::tempdir_in(memory).unwrap());
    }
    all
}

fn file(scratch: &tempfile::TempDir) -> std::path::PathBuf {
    let path = scratch.path().join("device");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(BLOCKS * BLOCK_BYTES).unwrap();
    path
}

fn filled(seed: u64, blocks: usize) -> Vec<u8> {
    let byte = |at: usize| (seed.wrapping_mul(31) as usize + at / BLOCK * 7 + at % 251) as u8;
    (0..blocks * BLOCK).map(byte).collect()
}

/// Each thread has a part of the device, and finds there what it wrote.
fn everybody_finds_his_own(device: &Arc<dyn Device>) {
    const THREADS: u64 = 8;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let first = thread * BLOCKS / THREADS;
                let mut state = thread + 1;
                for round in 0..60 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let count = 1 + (state >> 40) as usize % 40;
                    let at = first + (state >> 20) % (BLOCKS / THREADS - 80);
                    let (one, two) = (filled(state, count), filled(state + 9, 7));
                    let mut writes = [Transfer::Write(at, &one), Transfer::Write(at + 50, &two)];
                    device.transfer(&mut writes).unwrap();
                    if round % 16 == 0 {
                        device.sync().unwrap();
                    }
                    // from an address that no device likes
                    let mut room = vec![0xEE; count * BLOCK + 1];
                    let mut other = vec![0xEE; 7 * BLOCK];
                    let mut reads =
                        [Transfer::Read(at, &mut room[1..]), Transfer::Read(at + 50, &mut other)];
                    device.transfer(&mut reads).unwrap();
                    assert!(room[1..] == one[..] && other == two, "thread {thread}");
                }
            });
        }
    });
}

#[test]
fn what_was_written_is_read() {
    for scratch in scratches() {
        let path = file(&scratch);
        let plain: Arc<dyn Device> = Arc::new(PlainDevice::open(&path, false).unwrap());
        everybody_finds_his_own(&plain);
        drop(plain);
        match UringDevice::open(&path, false).unwrap() {
            Some(device) => {
                let device: Arc<dyn Device> = Arc::new(device);
                assert_eq!(device.bytes(), BLOCKS * BLOCK_BYTES);
                everybody_finds_his_own(&device);
            }
            None => println!("skipped: no io_uring here"),
        }
    }
}

#[test]
fn what_lies_behind_the_end_is_an_error() {
    for scratch in scratches() {
        let Some(device) = UringDevice::open(&file(&scratch), false).unwrap() else { return };
        let mut room = vec![0; 2 * BLOCK];
        assert!(device.transfer(&mut [Transfer::Read(BLOCKS - 1, &mut room)]).is_err());
        assert!(device.transfer(&mut [Transfer::Read(BLOCKS + 5, &mut room)]).is_err());
        device.transfer(&mut [Transfer::Read(BLOCKS - 2, &mut room)]).unwrap();
        device.transfer(&mut []).unwrap();
    }
}

#[test]
fn a_device_that_is_read_only_takes_nothing() {
    for scratch in scratches() {
        let path = file(&scratch);
        let Some(device) = UringDevice::open(&path, true).unwrap() else { return };
        let data = filled(1, 1);
        let error = device.transfer(&mut [Transfer::Write(3, &data)]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }
}
