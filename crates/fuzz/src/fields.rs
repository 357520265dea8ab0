//! Where numbers are in structures, and which others may be there.

use crate::image::{BLOCK, DEVICE_FIRST, Kind, LOG_LINE_AT, Part};
use crate::random::Random;

/// Where the fields of a structure are: offset and width.
pub fn fields(kind: Kind) -> &'static [(usize, usize)] {
    match kind {
        Kind::Superblock => &[
            (0, 8),
            (8, 4),
            (12, 4),
            (16, 8),
            (32, 8),
            (48, 4),
            (52, 4),
            (56, 8),
            (64, 8),
            (72, 4),
            (76, 1),
            (80, 4),
            (84, 4),
            (88, 4),
            (92, 4),
            (96, 8),
            (LOG_LINE_AT, 4),
            (504, 4),
        ],
        Kind::Root => &[
            (8, 8),
            (24, 8),
            (32, 8),
            (40, 8),
            (48, 8),
            (56, 8),
            (64, 8),
            (72, 8),
            (80, 8),
            (88, 4),
            (92, 1),
            (96, 8),
            (104, 8),
            (120, 4),
            (124, 1),
            (128, 8),
            (248, 4),
        ],
        Kind::State => &[(0, 8), (8, 8), (24, 4), (28, 4)],
        Kind::Members => &[(0, 8), (8, 8), (24, 8), (32, 1), (64, 8), (72, 8), (80, 8), (312, 4)],
        Kind::Table => &[
            (0, 8),
            (8, 8),
            (24, 4),
            (28, 4),
            (32, 8),
            (48, 8),
            (56, 8),
            (72, 8),
            (88, 8),
            (112, 8),
            (4092, 4),
        ],
        Kind::Device => &[(0, 8), (8, 4), (12, 4), (16, 8), (32, 8), (48, 8), (56, 8), (504, 4)],
        Kind::Below => &[],
        Kind::Chunk => &[(4, 4), (8, 8), (16, 8), (24, 4), (28, 2)],
        Kind::Record => &[(0, 4), (4, 2), (6, 1), (7, 1), (8, 8), (16, 8)],
        Kind::Inner | Kind::Leaf => &[(4, 1), (5, 1), (6, 2), (8, 2), (10, 8)],
    }
}

/// A place in what is behind the header.
pub fn somewhere(part: &Part, random: &mut Random) -> (usize, usize) {
    let width = 1 << random.below(4);
    match part.kind {
        Kind::Record => (24 + random.below((part.len - 24) / width) * width, width),
        _ => (32 + random.below((BLOCK - 32 - width) / 2), width),
    }
}

/// Another number in place of `old`: an extreme one, or one that is near.
pub fn value(old: u64, part: &Part, random: &mut Random) -> u64 {
    let near = [old.wrapping_add(1), old.wrapping_sub(1), old ^ 1 << random.below(64), old << 1];
    let extreme = [
        0,
        1,
        u64::MAX,
        u64::MAX - 1,
        1 << 63,
        (1 << 63) - 1,
        1 << 62,
        (1 << 62) - 1,
        1 << 55,
        1 << 44,
        1 << 40,
        (1 << 40) - 1,
        1 << 32,
        1 << 31,
        1 << 16,
        4096,
        4095,
        255,
        256,
    ];
    match random.below(8) {
        0..2 => near[random.below(near.len())],
        2..4 => extreme[random.below(extreme.len())],
        4 => (random.below(4) as u64) << 40 | random.below(600) as u64,
        5 => on_device(random),
        // in the same place, but for a few blocks
        6 => old.wrapping_add(random.below(64) as u64).wrapping_sub(32),
        _ => old ^ (part.at / BLOCK) as u64,
    }
}

/// An address on a device, one that most pools with a tier have, or none can have.
fn on_device(random: &mut Random) -> u64 {
    let device = match random.below(8) {
        0 => [62, 63, 64][random.below(3)],
        _ => random.below(3),
    };
    let block = match random.below(8) {
        0 => [0, 1, 15, (1 << 40) - 1][random.below(4)],
        _ => random.below(300) as u64,
    };
    ((DEVICE_FIRST + device) as u64) << 40 | block
}
