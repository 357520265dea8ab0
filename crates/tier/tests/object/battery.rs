//! What every kind of device has to do.

use crate::common::{BLOCK, everybody_finds_his_own, filled};
use pool::{BLOCK_BYTES, Device, Error, Transfer};
use std::time::Duration;
use tier::{OBJECT_BLOCKS, ObjectDevice};

/// Four objects and a part of another one.
const BLOCKS: u64 = 4 * OBJECT_BLOCKS + 32;
/// Short, for tests wait for it.
pub const LEASE: Duration = Duration::from_secs(6);

pub fn make(url: &str) -> ObjectDevice {
    ObjectDevice::make(url, BLOCKS * BLOCK_BYTES, LEASE).unwrap()
}

pub fn open(url: &str) -> ObjectDevice {
    ObjectDevice::open(url, false, LEASE).unwrap()
}

pub fn write(device: &ObjectDevice, block: u64, data: &[u8]) {
    device.transfer(&mut [Transfer::Write(block, data)]).unwrap();
}

pub fn read(device: &ObjectDevice, block: u64, blocks: usize) -> Vec<u8> {
    let mut room = vec![0xEE; blocks * BLOCK];
    device.transfer(&mut [Transfer::Read(block, &mut room)]).unwrap();
    room
}

/// Makes a device there, and does everything with it; threads write so many times.
pub fn battery(url: &str, rounds: u64) {
    let error = ObjectDevice::open(url, false, LEASE).unwrap_err();
    assert!(error.to_string().contains(url), "{error}");
    let device = make(url);
    assert_eq!((device.bytes(), device.path()), (BLOCKS * BLOCK_BYTES, url.to_owned()));
    what_was_never_written_is_zeros(&device);
    what_lies_behind_the_end_is_an_error(&device);
    no_write_is_lost(&device, rounds);
    everybody_finds_his_own(&device, 4, rounds / 4);
    let last = filled(7, BLOCKS as usize);
    write(&device, 0, &last);
    device.sync().unwrap();
    one_user_at_a_time(url);
    drop(device);
    let again = ObjectDevice::make(url, 1 << 20, LEASE).unwrap_err();
    assert!(again.to_string().contains("holds a device"), "{again}");
    let device = open(url);
    assert_eq!(device.bytes(), BLOCKS * BLOCK_BYTES);
    assert!(read(&device, 0, BLOCKS as usize) == last, "it is still there");
    drop(device);
    let device = ObjectDevice::open(url, true, LEASE).unwrap();
    let error = device.transfer(&mut [Transfer::Write(3, &last[..BLOCK])]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    assert!(read(&device, 3, 1) == last[3 * BLOCK..4 * BLOCK]);
}

fn what_was_never_written_is_zeros(device: &ObjectDevice) {
    assert!(read(device, 0, BLOCKS as usize).iter().all(|byte| *byte == 0));
    // across the end of an object
    write(device, OBJECT_BLOCKS - 1, &filled(1, 2));
    let found = read(device, OBJECT_BLOCKS - 2, 4);
    assert!(found[..BLOCK].iter().chain(&found[3 * BLOCK..]).all(|byte| *byte == 0));
    assert!(found[BLOCK..3 * BLOCK] == filled(1, 2));
    device.transfer(&mut []).unwrap();
}

fn what_lies_behind_the_end_is_an_error(device: &ObjectDevice) {
    let mut room = vec![0; 2 * BLOCK];
    for at in [BLOCKS - 1, BLOCKS, u64::MAX, u64::MAX / BLOCK_BYTES] {
        assert!(device.transfer(&mut [Transfer::Read(at, &mut room)]).is_err(), "{at}");
        assert!(device.transfer(&mut [Transfer::Write(at, &room)]).is_err(), "{at}");
    }
    device.transfer(&mut [Transfer::Read(BLOCKS - 2, &mut room)]).unwrap();
}

/// Two threads write every other block of the same objects.
fn no_write_is_lost(device: &ObjectDevice, rounds: u64) {
    let rounds = rounds.min(OBJECT_BLOCKS / 2);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                for round in 0..rounds {
                    let at = 2 * round + thread;
                    let (one, two) = (filled(at, 1), filled(at + 5, 1));
                    let second = 2 * OBJECT_BLOCKS + at;
                    device
                        .transfer(&mut [Transfer::Write(at, &one), Transfer::Write(second, &two)])
                        .unwrap();
                }
            });
        }
    });
    for at in 0..2 * rounds {
        assert!(read(device, at, 1) == filled(at, 1), "block {at}");
        assert!(read(device, 2 * OBJECT_BLOCKS + at, 1) == filled(at + 5, 1), "block {at}");
    }
}

fn one_user_at_a_time(url: &str) {
    for error in [
        ObjectDevice::open(url, false, LEASE).unwrap_err(),
        ObjectDevice::open(url, true, LEASE).unwrap_err(),
        ObjectDevice::make(url, 1 << 20, LEASE).unwrap_err(),
    ] {
        assert!(matches!(&error, Error::DeviceInUse(path) if path.as_os_str() == url), "{error}");
    }
}

/// Devices beside each other know nothing of each other.
pub fn beside(bucket: &str) {
    let urls = [bucket.to_owned(), format!("{bucket}/one"), format!("{bucket}/two/")];
    let devices: Vec<ObjectDevice> = urls.iter().map(|url| make(url)).collect();
    for (seed, device) in devices.iter().enumerate() {
        write(device, 250, &filled(seed as u64, 10));
    }
    for (seed, device) in devices.iter().enumerate() {
        assert!(read(device, 250, 10) == filled(seed as u64, 10), "{}", device.path());
    }
}
