//! Changes to an image: to its structures mostly, and to any byte of it.

use crate::image::{BLOCK, Image, Kind, LOG_LINE_AT, Part, STATE, STATE_AT, number};
use crate::page::{self, Entry};
use crate::random::Random;

/// Changes `image`, whose structures are `parts`, in a few places; gives the names of the changes.
pub fn mutate(image: &mut Image, parts: &[Part], random: &mut Random) -> Vec<String> {
    let mut count = 1;
    while count < 6 && random.once_in(3) {
        count += 1;
    }
    (0..count).map(|_| mutate_once(image, parts, random)).collect()
}

fn mutate_once(image: &mut Image, parts: &[Part], random: &mut Random) -> String {
    let Some(part) = pick_part(parts, random) else { return "nothing".to_owned() };
    let what = match random.below(40) {
        0..14 => return field(image, &part, random),
        14..17 => {
            flip(image, &part, random);
            "bit"
        }
        17..19 => {
            let at = part.at + random.below(part.len);
            let len = 1 + random.below(16);
            let bytes = random.bytes(len);
            image.put(part.slice, at, &bytes);
            "bytes"
        }
        19..30 => return entry(image, parts, random),
        30..33 => record(image, parts, random),
        33 => {
            zero(image, &part, random);
            "zeros"
        }
        34..37 => blocks(image, parts, random),
        37 => noise(image, random),
        38 => cut(image, part.slice, random),
        _ => slices(image, random),
    };
    format!("{what} ({:?} at {}:{})", part.kind, part.slice, part.at)
}

/// A structure, each kind as likely as any other.
fn pick_part(parts: &[Part], random: &mut Random) -> Option<Part> {
    let mut kinds: Vec<Kind> = parts.iter().map(|part| part.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let kind = *random.pick(&kinds)?;
    pick_kind(parts, kind, random)
}

fn pick_kind(parts: &[Part], kind: Kind, random: &mut Random) -> Option<Part> {
    let these: Vec<Part> = parts.iter().filter(|part| part.kind == kind).copied().collect();
    random.pick(&these).copied()
}

/// Where the fields of a structure are: offset and width.
fn fields(kind: Kind) -> &'static [(usize, usize)] {
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
        Kind::Chunk => &[(4, 4), (8, 8), (16, 8), (24, 4), (28, 2)],
        Kind::Record => &[(0, 4), (4, 2), (6, 1), (7, 1), (8, 8), (16, 8)],
        Kind::Inner | Kind::Leaf => &[(4, 1), (5, 1), (6, 2), (8, 2), (10, 8)],
    }
}

fn field(image: &mut Image, part: &Part, random: &mut Random) -> String {
    let known = fields(part.kind);
    let inside = match part.kind {
        Kind::Record => random.below(4) > 0,
        Kind::Inner | Kind::Leaf => random.below(3) > 0,
        _ => false,
    };
    let (at, width) = match random.pick(known) {
        Some(field) if !inside => *field,
        _ => somewhere(part, random),
    };
    let old = image.number(part.slice, part.at + at, width);
    let new = value(old, part, random);
    image.put(part.slice, part.at + at, &new.to_le_bytes()[..width]);
    let (kind, slice, start) = (part.kind, part.slice, part.at);
    format!("field {at} of {kind:?} at {slice}:{start} from {old:#x} to {new:#x}")
}

/// A place in what is behind the header.
fn somewhere(part: &Part, random: &mut Random) -> (usize, usize) {
    let width = 1 << random.below(4);
    match part.kind {
        Kind::Record => (24 + random.below((part.len - 24) / width) * width, width),
        _ => (32 + random.below((BLOCK - 32 - width) / 2), width),
    }
}

/// Another number in place of `old`: an extreme one, or one that is near.
fn value(old: u64, part: &Part, random: &mut Random) -> u64 {
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
    match random.below(6) {
        0..2 => near[random.below(near.len())],
        2..4 => extreme[random.below(extreme.len())],
        4 => (random.below(4) as u64) << 40 | random.below(600) as u64,
        _ => old ^ (part.at / BLOCK) as u64,
    }
}

fn flip(image: &mut Image, part: &Part, random: &mut Random) {
    let at = part.at + random.below(part.len);
    let byte = image.number(part.slice, at, 1) as u8;
    image.put(part.slice, at, &[byte ^ 1 << random.below(8)]);
}

/// One entry of a page is gone, there twice, another one's, or changed.
fn entry(image: &mut Image, parts: &[Part], random: &mut Random) -> String {
    let kind = if random.once_in(4) { Kind::Inner } else { Kind::Leaf };
    let Some(part) = pick_kind(parts, kind, random) else { return "no page".to_owned() };
    let mut entries = page::entries(image, part.slice, part.at);
    if entries.is_empty() {
        return "no entry".to_owned();
    }
    let before = entries.clone();
    let at = random.below(entries.len());
    let other = random.below(entries.len());
    let what = match random.below(8) {
        0 => {
            entries.remove(at);
            "entry gone"
        }
        1 => {
            entries[at].1 = entries[other].1.clone();
            "entry with another's value"
        }
        2 => {
            let mut copy = entries[at].clone();
            alter_key(&mut copy, &part, random);
            entries.push(copy);
            entries.sort();
            "entry more"
        }
        3 => {
            alter_key(&mut entries[at], &part, random);
            if random.once_in(2) {
                entries.sort();
            }
            "entry with another key"
        }
        4 => {
            let len = random.below(1300);
            entries[at].1.resize(len, 0xA5);
            "entry of another length"
        }
        _ => {
            alter_value(&mut entries[at].1, &part, random);
            "entry with another number"
        }
    };
    page::replace(image, part.slice, part.at, &entries);
    let text = |entry: &Entry| {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        format!("{} = {}", hex(&entry.0), hex(&entry.1[..entry.1.len().min(88)]))
    };
    let gone: Vec<_> = before.iter().filter(|e| !entries.contains(e)).map(text).collect();
    let new: Vec<_> = entries.iter().filter(|e| !before.contains(e)).map(text).collect();
    format!("{what} at {}:{}, gone {gone:?}, new {new:?}", part.slice, part.at)
}

/// Another number in one of the key's three.
fn alter_key(entry: &mut Entry, part: &Part, random: &mut Random) {
    let (at, width) = [(0, 8), (8, 1), (9, 8), (9, 8)][random.below(4)];
    let place = &mut entry.0[at..at + width];
    let old = place.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    let new = value(old, part, random).to_be_bytes();
    place.copy_from_slice(&new[8 - width..]);
}

fn alter_value(bytes: &mut [u8], part: &Part, random: &mut Random) {
    let width = (1usize << random.below(4)).min(bytes.len().max(1));
    // most fields lie at multiples of their width; the addresses in a leaf do not
    let step = if random.once_in(2) { width } else { 1 };
    let at = random.below((bytes.len().saturating_sub(width)) / step + 1) * step;
    if let Some(place) = bytes.get_mut(at..at + width) {
        let new = value(number(place), part, random).to_le_bytes();
        place.copy_from_slice(&new[..width]);
    }
}

/// A record takes another one's place, is gone, or is there twice.
fn record(image: &mut Image, parts: &[Part], random: &mut Random) -> &'static str {
    let (Some(one), Some(two)) =
        (pick_kind(parts, Kind::Record, random), pick_kind(parts, Kind::Record, random))
    else {
        return "no record";
    };
    let bytes = |part: &Part| image.get(part.slice, part.at, part.len).unwrap_or_default().to_vec();
    let (first, second) = (bytes(&one), bytes(&two));
    match random.below(3) {
        0 if one.len == two.len => {
            image.put(one.slice, one.at, &second);
            image.put(two.slice, two.at, &first);
            "records swapped"
        }
        1 => {
            image.put(one.slice, one.at, &vec![0; one.len]);
            "record gone"
        }
        _ => {
            image.put(one.slice, one.at, &second[..second.len().min(first.len())]);
            "record over another"
        }
    }
}

fn zero(image: &mut Image, part: &Part, random: &mut Random) {
    let len = 1 << random.below(15);
    let end = (part.at + len).min(image.slices.get(part.slice).map_or(0, Vec::len));
    let zeros = vec![0; end.saturating_sub(part.at)];
    image.put(part.slice, part.at, &zeros);
}

/// A block takes another one's place, or they are swapped.
fn blocks(image: &mut Image, parts: &[Part], random: &mut Random) -> &'static str {
    let place = |random: &mut Random| {
        let any = pick_part(parts, random).map(|part| (part.slice, part.at / BLOCK * BLOCK));
        let slice = random.below(image.slices.len());
        let block = random.below(image.slices[slice].len() / BLOCK) * BLOCK;
        any.filter(|_| random.below(4) > 0).unwrap_or((slice, block))
    };
    let (one, two) = (place(random), place(random));
    let copy = |at: (usize, usize)| image.get(at.0, at.1, BLOCK).unwrap_or_default().to_vec();
    let (first, second) = (copy(one), copy(two));
    image.put(one.0, one.1, &second);
    if random.once_in(2) {
        return "block over another";
    }
    image.put(two.0, two.1, &first);
    "blocks swapped"
}

/// Random bytes over a part of a slice, or over nearly all of it.
fn noise(image: &mut Image, random: &mut Random) -> &'static str {
    let slice = random.below(image.slices.len());
    let len = image.slices[slice].len();
    let (at, many) = match random.below(4) {
        0 => (0, len),
        1 => (BLOCK, len),
        _ => (random.below(len), 1 << random.below(17)),
    };
    let bytes = random.bytes(many.min(len.saturating_sub(at)));
    image.put(slice, at, &bytes);
    "noise"
}

/// The slice is shorter or longer than it was.
fn cut(image: &mut Image, slice: usize, random: &mut Random) -> &'static str {
    let len = image.slices[slice].len();
    let new = match random.below(6) {
        0 => random.below(len),
        1 => random.below(len / BLOCK) * BLOCK,
        2 => len.saturating_sub(BLOCK),
        3 => len.saturating_sub(1),
        4 => [0, 1, 511, 512, 4096, 65_536][random.below(6)],
        _ => len + random.below(3 * BLOCK),
    };
    image.slices[slice].resize(new, 0);
    "length"
}

/// The slices change places, one is there twice, or one is missing.
fn slices(image: &mut Image, random: &mut Random) -> &'static str {
    let (one, two) = (random.below(image.slices.len()), random.below(image.slices.len()));
    match random.below(3) {
        0 => image.slices.swap(one, two),
        1 => image.slices[one] = image.slices[two].clone(),
        _ if image.slices.len() > 1 => {
            image.slices.remove(one);
        }
        _ => image.slices.push(image.slices[one].clone()),
    }
    "slices"
}

/// The pool was open in a boot of the machine that is over.
pub fn another_boot(image: &mut Image) {
    for slice in 0..image.slices.len() {
        if image.get(slice, STATE_AT, 8) == Some(b"NSSTATE1") {
            image.put(slice, STATE_AT + 8, &[0xAB; 16]);
            let crc = pmem::crc32c(0, image.get(slice, STATE_AT, STATE - 4).unwrap_or_default());
            image.put(slice, STATE_AT + STATE - 4, &crc.to_le_bytes());
        }
    }
}
