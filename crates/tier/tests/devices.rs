//! Devices read and written by many threads, past the page cache and not.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{BLOCK, everybody_finds_his_own, filled, neighbours_find_their_pieces};
use pool::{BLOCK_BYTES, Device, PlainDevice, Transfer};
use std::path::Path;
use tier::UringDevice;

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

#[test]
fn what_was_written_is_read() {
    for scratch in scratches() {
        let path = file(&scratch);
        everybody_finds_his_own(&PlainDevice::open(&path, false).unwrap(), 8, 60);
        match UringDevice::open(&path, false).unwrap() {
            Some(device) => {
                assert_eq!(device.bytes(), BLOCKS * BLOCK_BYTES);
                everybody_finds_his_own(&device, 8, 60);
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
fn neighbours_are_read_into_memory_in_pieces() {
    for scratch in scratches() {
        let path = file(&scratch);
        neighbours_find_their_pieces(&PlainDevice::open(&path, false).unwrap());
        if let Some(device) = UringDevice::open(&path, false).unwrap() {
            neighbours_find_their_pieces(&device);
        }
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
