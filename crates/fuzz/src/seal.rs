//! Checksums made right again after a change, so that the changed bytes get past them and reach
//! what is behind.

use crate::image::{
    BLOCK, DEVICE, Image, Kind, MEMBERS, Part, ROOT, ROOT_COPY, ROOT_TREES, STATE, SUPERBLOCK, UNIT,
};
use pmem::crc32c;
use std::collections::HashSet;

/// Makes every checksum of `parts`, the structures of the image before it was changed, fit again,
/// in both copies of what is kept twice.
pub fn seal(image: &mut Image, parts: &[Part]) {
    seal_first(image, parts);
    mirror(image, parts);
}

/// Makes second copies of what first copies are, right or wrong.
pub fn mirror(image: &mut Image, parts: &[Part]) {
    for part in parts {
        match part.kind {
            Kind::Root => {
                let root = image.get(part.slice, part.at, ROOT).unwrap_or_default().to_vec();
                image.put(part.slice, part.at + ROOT_COPY, &root);
                for tree in ROOT_TREES {
                    mirror_page(image, part.slice, part.at + tree);
                }
            }
            Kind::Inner => {
                for (value, len) in image.page_values(part.slice, part.at) {
                    if len == 20 {
                        mirror_page(image, part.slice, value);
                    }
                }
            }
            _ => {}
        }
    }
    image.mirror_slices();
}

/// The page that the pointer at `at` names, to where the pointer says that its second copy is.
fn mirror_page(image: &mut Image, slice: usize, at: usize) {
    let pointer = image.get(slice, at, 20).unwrap_or_default();
    let first = image.page_place(pointer);
    let second = image.page_place(pointer.get(8..).unwrap_or_default());
    if let (Some(first), Some(second)) = (first, second) {
        let page = image.get(first.0, first.1, BLOCK).unwrap_or_default().to_vec();
        image.put(second.0, second.1, &page);
    }
}

fn seal_first(image: &mut Image, parts: &[Part]) {
    let mut sealed = HashSet::new();
    for part in parts {
        match part.kind {
            Kind::Superblock => trailing(image, part, SUPERBLOCK - 8),
            Kind::State => seal_state(image, part),
            Kind::Members => trailing(image, part, MEMBERS - 8),
            Kind::Table => trailing(image, part, BLOCK - 4),
            Kind::Device => trailing(image, part, DEVICE - 8),
            Kind::Root => {
                for tree in ROOT_TREES {
                    seal_below(image, part.slice, part.at + tree, &mut sealed);
                }
                trailing(image, part, ROOT - 8);
            }
            Kind::Chunk => seal_chunk(image, part),
            Kind::Record => seal_record(image, part),
            // by their parents; data by the leaves that name it, which stay what they are
            Kind::Inner | Kind::Leaf | Kind::Below => {}
        }
    }
}

/// A checksum at `len` of the `len` bytes before.
fn trailing(image: &mut Image, part: &Part, len: usize) {
    if let Some(bytes) = image.get(part.slice, part.at, len) {
        let crc = crc32c(0, bytes);
        image.put(part.slice, part.at + len, &crc.to_le_bytes());
    }
}

fn seal_state(image: &mut Image, part: &Part) {
    if image.get(part.slice, part.at, 8) == Some(b"NSSTATE1") {
        trailing(image, part, STATE - 4);
    }
}

fn seal_chunk(image: &mut Image, part: &Part) {
    let seed = crc32c(0, &image.uuid(part.slice));
    if let Some(bytes) = image.get(part.slice, part.at + 8, UNIT - 8) {
        let crc = crc32c(seed, bytes);
        image.put(part.slice, part.at + 4, &crc.to_le_bytes());
    }
}

fn seal_record(image: &mut Image, part: &Part) {
    let seed = image.record_seed(part.slice, part.chunk);
    let said = image.number(part.slice, part.at + 4, 2) as usize * UNIT;
    let len = if said == 0 { part.len } else { said };
    if let Some(bytes) = image.get(part.slice, part.at + 4, len - 4) {
        let crc = crc32c(seed, bytes);
        image.put(part.slice, part.at, &crc.to_le_bytes());
    }
}

/// Seals all pages below the pointer at `at`, and the pointer.
fn seal_below(image: &mut Image, slice: usize, at: usize, sealed: &mut HashSet<(usize, usize)>) {
    let pointer = image.get(slice, at, 20).unwrap_or_default();
    let Some((page_slice, page)) = image.page_place(pointer) else { return };
    if sealed.insert((page_slice, page)) && image.number(page_slice, page + 5, 1) > 0 {
        for (value, len) in image.page_values(page_slice, page) {
            if len == 20 {
                seal_below(image, page_slice, value, sealed);
            }
        }
    }
    let crc = crc32c(0, image.get(page_slice, page, BLOCK).unwrap_or_default());
    image.put(slice, at + 16, &crc.to_le_bytes());
}
