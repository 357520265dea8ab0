//! Changes to the devices of the capacity tier as a whole: which of them are there, and what a
//! pool's slices and its devices say about each other.
//!
//! A table and a header that say different things are refused, however well their checksums fit. So
//! one change is made to all that say it: with its checksums repaired it gets past them.

use crate::image::{BLOCK, DEVICE, DEVICE_FIRST, Image, TABLE_AT, TABLE_ENTRIES};
use crate::random::Random;

/// Where in a table the number of devices is said.
const TABLE_COUNT_AT: usize = 24;
/// Where a table's checksum is.
const TABLE_CRC_AT: usize = BLOCK - 4;
/// Where in an entry of the table, and in a header, the device's blocks are said.
const BLOCKS_AT: (usize, usize) = (16, 48);
/// Where the device's identity is.
const UUID_AT: (usize, usize) = (0, 32);
/// Where in a header its checksum is.
const HEADER_CRC_AT: usize = DEVICE - 8;

/// One device changes places with another, is there twice, missing, another pool's (one of
/// `foreign`), or is said to be another one than it is.
pub fn devices(image: &mut Image, foreign: &[&Vec<u8>], random: &mut Random) -> &'static str {
    if image.devices.is_empty() {
        let Some(other) = random.pick(foreign) else { return "no device" };
        image.devices.push((*other).clone());
        return "a device below a pool without a tier";
    }
    let count = image.devices.len();
    let (one, two) = (random.below(count), random.below(count));
    match random.below(9) {
        0 => {
            image.devices.swap(one, two);
            "devices swapped"
        }
        1 => {
            image.devices[one] = image.devices[two].clone();
            "device over another"
        }
        2 => {
            image.devices.remove(one);
            "device missing"
        }
        3 => {
            image.devices.push(image.devices[one].clone());
            "device twice"
        }
        4 => {
            if let Some(other) = random.pick(foreign) {
                image.devices[one] = (*other).clone();
            }
            "device of another pool"
        }
        5 => {
            exchange_data(image, one, two);
            "data of devices swapped"
        }
        6 => {
            let blocks = blocks_said(image, one, random);
            say(image, one, BLOCKS_AT, &blocks.to_le_bytes());
            "device of other size, as all say"
        }
        7 => {
            let uuid = random.bytes(16);
            say(image, one, UUID_AT, &uuid);
            "device of other identity, as all say"
        }
        _ => {
            let count = [0, 1, 2, 3, 63, 64, u32::MAX][random.below(7)];
            say_count(image, count);
            "other number of devices, as all slices say"
        }
    }
}

/// The data of two devices changes places, their headers stay.
fn exchange_data(image: &mut Image, one: usize, two: usize) {
    let data = |device: usize| image.devices[device].get(BLOCK..).unwrap_or_default().to_vec();
    let (first, second) = (data(one), data(two));
    image.put(DEVICE_FIRST + one, BLOCK, &second);
    image.put(DEVICE_FIRST + two, BLOCK, &first);
}

/// A size that a device may be said to have.
fn blocks_said(image: &Image, device: usize, random: &mut Random) -> u64 {
    let blocks = (image.len(DEVICE_FIRST + device) / BLOCK) as u64;
    match random.below(6) {
        0 => 0,
        1 => random.below(blocks as usize + 1) as u64,
        2 => blocks.saturating_sub(1),
        3 => blocks + 1 + random.below(300) as u64,
        4 => 1 << 40,
        _ => u64::MAX,
    }
}

/// All slices and the device itself say this of it, under checksums that fit.
fn say(image: &mut Image, device: usize, at: (usize, usize), bytes: &[u8]) {
    let number = DEVICE_FIRST + device;
    let index = image.number(number, 12, 4) as usize;
    let (first, each) = TABLE_ENTRIES;
    let Some(entry) = index.checked_mul(each).map(|from| first + from) else { return };
    if entry + each > TABLE_CRC_AT {
        return;
    }
    for slice in 0..image.slices.len() {
        image.put(slice, TABLE_AT + entry + at.0, bytes);
        seal_at(image, slice, TABLE_AT, TABLE_CRC_AT);
    }
    image.put(number, at.1, bytes);
    seal_at(image, number, 0, HEADER_CRC_AT);
}

fn say_count(image: &mut Image, count: u32) {
    for slice in 0..image.slices.len() {
        image.put(slice, TABLE_AT + TABLE_COUNT_AT, &count.to_le_bytes());
        seal_at(image, slice, TABLE_AT, TABLE_CRC_AT);
    }
}

fn seal_at(image: &mut Image, slice: usize, at: usize, crc_at: usize) {
    if let Some(bytes) = image.get(slice, at, crc_at) {
        let crc = pmem::crc32c(0, bytes);
        image.put(slice, at + crc_at, &crc.to_le_bytes());
    }
}
