//! Changes to an image: to its structures mostly, and to any byte of it.

use crate::devices::devices;
use crate::fields::{fields, somewhere, value};
use crate::image::{BLOCK, Image, Kind, Part, STATE, STATE_AT, number};
use crate::page::{self, Entry};
use crate::random::Random;

/// Changes `image`, whose structures are `parts`, in a few places; gives the names of the changes.
/// `foreign` are devices of other pools.
pub fn mutate(
    image: &mut Image,
    parts: &[Part],
    foreign: &[&Vec<u8>],
    random: &mut Random,
) -> Vec<String> {
    let mut count = 1;
    while count < 6 && random.once_in(3) {
        count += 1;
    }
    (0..count).map(|_| mutate_once(image, parts, foreign, random)).collect()
}

fn mutate_once(
    image: &mut Image,
    parts: &[Part],
    foreign: &[&Vec<u8>],
    random: &mut Random,
) -> String {
    let Some(part) = pick_part(parts, random) else { return "nothing".to_owned() };
    // a pool without a tier hardly ever gets a device
    let has_devices = !image.devices.is_empty() || random.once_in(20);
    let what = match random.below(if has_devices { 46 } else { 40 }) {
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
        39 => slices(image, random),
        40..43 => devices(image, foreign, random),
        _ => return placed(image, parts, random),
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
        5 if is_map(&entries[at]) => {
            alter_run(&mut entries[at].1, &part, random);
            "leaf with another run"
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

/// Whether an entry is a leaf of a file's block map.
pub fn is_map((key, value): &Entry) -> bool {
    key[..8] != [0; 8] && key[8] == 2 && value.len() > 8
}

/// One run of a leaf begins elsewhere, in the file or where its blocks are.
fn alter_run(bytes: &mut [u8], part: &Part, random: &mut Random) {
    let runs = usize::from(bytes[0]).clamp(1, (bytes.len() - 1) / 8);
    let run = &mut bytes[1 + 8 * random.below(runs)..][..8];
    match random.below(5) {
        at @ 0..2 => run[at] ^= 1 << random.below(8),
        _ => {
            let addr = value(number(&run[2..]), part, random);
            run[2..].copy_from_slice(&addr.to_le_bytes()[..6]);
        }
    }
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

/// A record that reserves or moves blocks says so of others.
fn placed(image: &mut Image, parts: &[Part], random: &mut Random) -> String {
    let tag = |part: &Part| image.number(part.slice, part.at + 24, 1);
    let is_placed = |part: &&Part| part.kind == Kind::Record && [13, 14].contains(&tag(part));
    let these: Vec<Part> = parts.iter().filter(is_placed).copied().collect();
    let Some(part) = random.pick(&these).copied() else { return "no such record".to_owned() };
    let (at, width) = match random.below(10) {
        0 => (24, 1),
        1 => (26, 2),
        2 => (32, 8),
        _ => {
            let runs = (image.number(part.slice, part.at + 26, 2) as usize).max(1);
            (40 + 24 * random.below(runs) + 8 * random.below(3), 8)
        }
    };
    let old = image.number(part.slice, part.at + at, width);
    let new = value(old, &part, random);
    image.put(part.slice, part.at + at, &new.to_le_bytes()[..width]);
    format!("place at {at} of a record at {}:{} from {old:#x} to {new:#x}", part.slice, part.at)
}

fn zero(image: &mut Image, part: &Part, random: &mut Random) {
    let len = 1 << random.below(15);
    let end = (part.at + len).min(image.len(part.slice));
    let zeros = vec![0; end.saturating_sub(part.at)];
    image.put(part.slice, part.at, &zeros);
}

/// A block takes another one's place, or they are swapped.
fn blocks(image: &mut Image, parts: &[Part], random: &mut Random) -> &'static str {
    let place = |random: &mut Random| {
        let any = pick_part(parts, random).map(|part| (part.slice, part.at / BLOCK * BLOCK));
        let slice = any_number(image, random);
        let block = random.below(image.len(slice) / BLOCK) * BLOCK;
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

/// One of all slices and devices.
fn any_number(image: &Image, random: &mut Random) -> usize {
    random.pick(&image.numbers()).copied().unwrap_or(0)
}

/// Random bytes over a part of a slice or of a device, or over nearly all of it.
fn noise(image: &mut Image, random: &mut Random) -> &'static str {
    let slice = any_number(image, random);
    let len = image.len(slice);
    let (at, many) = match random.below(4) {
        0 => (0, len),
        1 => (BLOCK, len),
        _ => (random.below(len), 1 << random.below(17)),
    };
    let bytes = random.bytes(many.min(len.saturating_sub(at)));
    image.put(slice, at, &bytes);
    "noise"
}

/// The slice, or the device, is shorter or longer than it was.
fn cut(image: &mut Image, slice: usize, random: &mut Random) -> &'static str {
    let len = image.len(slice);
    let new = match random.below(6) {
        0 => random.below(len),
        1 => random.below(len / BLOCK) * BLOCK,
        2 => len.saturating_sub(BLOCK),
        3 => len.saturating_sub(1),
        4 => [0, 1, 511, 512, 4096, 65_536][random.below(6)],
        _ => len + random.below(3 * BLOCK),
    };
    if let Some(bytes) = image.all_mut(slice) {
        bytes.resize(new, 0);
    }
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
