//! Where files lie, as extended attributes of a mount's files that no list shows: any program can
//! ask and set them, and no file stores them.
//!
//! ```text
//! nearside.layout           auto | near | stripe | node:K; of a directory, what is inherited
//! nearside.move-data        on | report | off: how far it may move to its readers; inherited, too
//! nearside.move-threads     the same of readers, that they move to it
//! nearside.slices           a line for each slice: its number, its node, CPUs near it
//! nearside.extents.OFFSET   a line for each extent from there on: offset, bytes, slice, place;
//!                           `more OFFSET` where to go on, unless that is all; for the slice there
//!                           is `device:K` where it lies on a device of the capacity tier
//! nearside.extras.OFFSET    bytes from there on that are reserved for holes, and clean copies in
//!                           slices of what lies on devices; `more OFFSET` as above
//! nearside.heat.OFFSET      a line for each part of a file, from there on, of which somebody would
//!                           gain by having it near: where it begins, near which slice they are,
//!                           what they have lost, ns; `more OFFSET` as above
//! nearside.decisions        a line for each of the last decisions to move a part of the file, or a
//!                           thread to it: when (ns since 1970), `data` or `thread`, offset, bytes,
//!                           from which slice, to which, gain and costs in ns, what became of it
//! ```

use nearside::files::{
    Decided, ExtentOn, FileExtent, FileExtras, Heat, Ino, Layout, Lever, Moving, NearSlice,
    Outcome, SetAttr,
};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use crate::service::Errno;

/// Where new blocks go.
pub const LAYOUT: &str = "nearside.layout";
/// How far data may move to its readers,
pub const MOVE_DATA: &str = "nearside.move-data";
/// and readers to their data.
pub const MOVE_THREADS: &str = "nearside.move-threads";
/// The pool's slices.
pub const SLICES: &str = "nearside.slices";
/// Begins the name of what asks for extents.
pub const EXTENTS: &str = "nearside.extents.";
/// Begins the name of what asks for what a file has beside them.
pub const EXTRAS: &str = "nearside.extras.";
/// Begins the name of what asks who would gain by having its parts near.
pub const HEAT: &str = "nearside.heat.";
/// What was decided about it.
pub const DECISIONS: &str = "nearside.decisions";
/// What they all begin with.
pub(crate) const PREFIX: &[u8] = b"nearside.";

/// Before the offset where to go on.
const MORE: &str = "more ";
/// Before the number of a device of the capacity tier.
const DEVICE: &str = "device:";

/// Most extents that one answer holds: Linux has no longer values than 64 KiB.
pub const EXTENTS_MAX: usize = 800;

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Layout,
    MoveData,
    MoveThreads,
    Slices,
    Extents(u64),
    Extras(u64),
    Heat(u64),
    Decisions,
}

impl Asked {
    /// What an attribute of this name asks, if there is such a one.
    pub(crate) fn of(name: &[u8]) -> Option<Asked> {
        let name = std::str::from_utf8(name).ok()?;
        match name {
            LAYOUT => Some(Asked::Layout),
            MOVE_DATA => Some(Asked::MoveData),
            MOVE_THREADS => Some(Asked::MoveThreads),
            SLICES => Some(Asked::Slices),
            DECISIONS => Some(Asked::Decisions),
            _ => {
                type From = fn(u64) -> Asked;
                let kinds: [(&str, From); 3] =
                    [(EXTENTS, Asked::Extents), (EXTRAS, Asked::Extras), (HEAT, Asked::Heat)];
                let is_of = |kind: &&(&str, From)| name.starts_with(kind.0);
                let (prefix, asked) = kinds.iter().find(is_of)?;
                name[prefix.len()..].parse().ok().map(asked)
            }
        }
    }
}

/// The layout that a value says.
pub fn layout(value: &[u8]) -> Option<Layout> {
    said(value)
}

/// How far a lever is let, as a value says.
pub fn lever(value: &[u8]) -> Option<Lever> {
    said(value)
}

fn said<T: FromStr>(value: &[u8]) -> Option<T> {
    std::str::from_utf8(value).ok()?.trim_end().parse().ok()
}

/// What setting an attribute changes; taking it away (`None`) is as if it never had been set. None
/// if it cannot be set, an error if not to that.
pub(crate) fn change(asked: Asked, value: Option<&[u8]>) -> Option<Result<SetAttr, Errno>> {
    let none = SetAttr::default();
    let levered = |value: Option<&[u8]>| value.map_or(Some(Lever::On), lever);
    let change = match asked {
        Asked::Layout => {
            let layout = value.map_or(Some(Layout::default()), layout);
            layout.map(|it| SetAttr { layout: Some(it), ..none })
        }
        Asked::MoveData => levered(value).map(|it| SetAttr { move_data: Some(it), ..none }),
        Asked::MoveThreads => levered(value).map(|it| SetAttr { move_threads: Some(it), ..none }),
        Asked::Slices
        | Asked::Extents(_)
        | Asked::Extras(_)
        | Asked::Heat(_)
        | Asked::Decisions => return None,
    };
    Some(change.ok_or(Errno(libc::EINVAL)))
}

pub(crate) fn encode_extents((extents, next): &(Vec<FileExtent>, Option<u64>)) -> String {
    let line = |it: &FileExtent| match it.on {
        ExtentOn::Slice(slice) => format!("{} {} {slice} {}\n", it.offset, it.bytes, it.at),
        ExtentOn::Device(device) => {
            format!("{} {} {DEVICE}{device} {}\n", it.offset, it.bytes, it.at)
        }
    };
    extents.iter().map(line).chain(encode_more(*next)).collect()
}

fn encode_more(next: Option<u64>) -> Option<String> {
    next.map(|next| format!("{MORE}{next}\n"))
}

/// A value without its last line, if that says where to go on, and what it says.
fn split_more(value: &[u8]) -> Option<(&str, Option<u64>)> {
    let text = std::str::from_utf8(value).ok()?;
    match text.rsplit_once(MORE) {
        Some((text, next)) => Some((text, Some(next.trim_end().parse().ok()?))),
        None => Some((text, None)),
    }
}

/// The extents that a value says, and where to go on.
pub fn extents(value: &[u8]) -> Option<(Vec<FileExtent>, Option<u64>)> {
    let (text, next) = split_more(value)?;
    let extents = lines(text.as_bytes(), |words| {
        Some(FileExtent {
            offset: number(words)?,
            bytes: number(words)?,
            on: lies_on(words.next()?)?,
            at: number(words)?,
        })
    })?;
    Some((extents, next))
}

pub(crate) fn encode_extras((extras, next): &(FileExtras, Option<u64>)) -> String {
    let line = format!("{} {}\n", extras.reserved, extras.clean);
    std::iter::once(line).chain(encode_more(*next)).collect()
}

/// What a value says that a file has beside its extents, and where to go on.
pub fn extras(value: &[u8]) -> Option<(FileExtras, Option<u64>)> {
    let (text, next) = split_more(value)?;
    let extras = lines(text.as_bytes(), |words| {
        Some(FileExtras { reserved: number(words)?, clean: number(words)? })
    })?;
    (extras.len() == 1).then(|| (extras[0], next))
}

pub(crate) fn encode_heat((heat, next): &(Vec<Heat>, Option<u64>)) -> String {
    let line = |it: &Heat| format!("{} {} {}\n", it.offset, it.slice, it.lost_ns as u64);
    heat.iter().map(line).chain(encode_more(*next)).collect()
}

/// Who would gain, as a value says, and where to go on.
pub fn heat(value: &[u8]) -> Option<(Vec<Heat>, Option<u64>)> {
    let (text, next) = split_more(value)?;
    let heat = lines(text.as_bytes(), |words| {
        let (offset, slice, lost) = (number(words)?, number(words)?, number::<u64>(words)?);
        Some(Heat { offset, slice, lost_ns: lost as f32 })
    })?;
    Some((heat, next))
}

const OUTCOMES: [(Outcome, &str); 4] = [
    (Outcome::Moved, "moved"),
    (Outcome::Reported, "reported"),
    (Outcome::Cancelled, "cancelled"),
    (Outcome::Refused, "refused"),
];

pub(crate) fn encode_decisions(decisions: &[Decided]) -> String {
    let line = |it: &Decided| {
        let at = it.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let (what, offset, bytes) = match it.moving {
            Moving::Thread => ("thread", 0, 0),
            Moving::Data { offset, bytes } => ("data", offset, bytes),
        };
        let outcome = OUTCOMES.iter().find(|(outcome, _)| *outcome == it.outcome);
        let outcome = outcome.map_or("", |(_, name)| name);
        let (gain, costs) = (it.gain_ns as i64, it.costs_ns as i64);
        format!("{at} {what} {offset} {bytes} {} {} {gain} {costs} {outcome}\n", it.from, it.to)
    };
    decisions.iter().map(line).collect()
}

/// The decisions about a file that a value says.
pub fn decisions(ino: Ino, value: &[u8]) -> Option<Vec<Decided>> {
    lines(value, |words| {
        let at = Duration::from_nanos(number(words)?);
        let (what, offset, bytes) = (words.next()?, number(words)?, number(words)?);
        let moving = match what {
            "thread" => Moving::Thread,
            "data" => Moving::Data { offset, bytes },
            _ => return None,
        };
        let (from, to) = (number(words)?, number(words)?);
        let (gain, costs) = (number::<i64>(words)?, number::<i64>(words)?);
        let outcome = words.next()?;
        let (outcome, _) = OUTCOMES.iter().find(|(_, name)| *name == outcome)?;
        Some(Decided {
            at: SystemTime::UNIX_EPOCH.checked_add(at)?,
            ino,
            moving,
            from,
            to,
            gain_ns: gain as f32,
            costs_ns: costs as f32,
            outcome: *outcome,
        })
    })
}

fn lies_on(word: &str) -> Option<ExtentOn> {
    match word.strip_prefix(DEVICE) {
        Some(device) => device.parse().ok().map(ExtentOn::Device),
        None => word.parse().ok().map(ExtentOn::Slice),
    }
}

pub(crate) fn encode_slices(slices: &[NearSlice]) -> String {
    let line = |it: &NearSlice| {
        let cpus: String = it.cpus.iter().map(|cpu| format!(" {cpu}")).collect();
        format!("{} {}{cpus}\n", it.slice, it.node)
    };
    slices.iter().map(line).collect()
}

/// The slices that a value says.
pub fn slices(value: &[u8]) -> Option<Vec<NearSlice>> {
    lines(value, |words| {
        let (slice, node) = (number(words)?, number(words)?);
        let cpus: Option<Vec<u32>> = words.map(|word| word.parse().ok()).collect();
        Some(NearSlice { slice, node, cpus: cpus? })
    })
}

type Words<'v> = std::str::SplitAsciiWhitespace<'v>;

fn number<N: FromStr>(words: &mut Words<'_>) -> Option<N> {
    words.next()?.parse().ok()
}

/// What `line` makes of each line, all of whose words it takes.
fn lines<T>(value: &[u8], line: impl Fn(&mut Words<'_>) -> Option<T>) -> Option<Vec<T>> {
    let whole = |text: &str| {
        let mut words = text.split_ascii_whitespace();
        let made = line(&mut words)?;
        words.next().is_none().then_some(made)
    };
    std::str::from_utf8(value).ok()?.lines().map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood() {
        let on = |n: u64| match n % 2 {
            0 => ExtentOn::Slice(191),
            _ => ExtentOn::Device(62),
        };
        let extent = |n| FileExtent { offset: n, bytes: u64::MAX, on: on(n), at: u64::MAX };
        let extents_told: Vec<FileExtent> = (0..EXTENTS_MAX as u64).map(extent).collect();
        for next in [None, Some(u64::MAX)] {
            let told = (extents_told.clone(), next);
            let value = encode_extents(&told);
            assert!(value.len() <= 64 << 10, "{}", value.len());
            assert_eq!(extents(value.as_bytes()), Some(told));
        }
        assert_eq!(extents(b"more 7\n"), Some((Vec::new(), Some(7))));
        for next in [None, Some(7)] {
            let told = (FileExtras { reserved: u64::MAX, clean: 4096 }, next);
            assert_eq!(extras(encode_extras(&told).as_bytes()), Some(told));
        }
        let hot = |offset| Heat { offset, slice: 191, lost_ns: 1e6 };
        let told = (vec![hot(0), hot(u64::MAX)], Some(1 << 30));
        assert_eq!(heat(encode_heat(&told).as_bytes()), Some(told));
        let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_764_000_000_123_456_789);
        let decided = |moving, outcome| {
            let (ino, gain_ns, costs_ns) = (Ino(7), -5000.0, 250_000.0);
            Decided { at, ino, moving, from: 1, to: 0, gain_ns, costs_ns, outcome }
        };
        let data = Moving::Data { offset: u64::MAX, bytes: 524_288 };
        let mut told: Vec<Decided> =
            OUTCOMES.iter().map(|(outcome, _)| decided(data, *outcome)).collect();
        told.push(decided(Moving::Thread, Outcome::Moved));
        assert_eq!(decisions(Ino(7), encode_decisions(&told).as_bytes()), Some(told));
        let slice = |slice, cpus: &[u32]| NearSlice { slice, node: 3, cpus: cpus.to_vec() };
        let told = vec![slice(0, &[0, 2]), slice(1, &[])];
        assert_eq!(slices(encode_slices(&told).as_bytes()), Some(told));
        assert_eq!(layout(b"node:7\n"), Some(Layout::Node(7)));
        assert_eq!((lever(b"report\n"), lever(b"reports")), (Some(Lever::Report), None));
    }

    #[test]
    fn what_makes_no_sense_is_nothing() {
        for value in [
            &b"1 2 3"[..],
            b"1 2 3 4 5",
            b"1 2 256 4",
            b"1 2 device:256 4",
            b"1 2 device: 4",
            b"1 2 device 4",
            b"-1 2 3 4",
            b"\xff",
            b"more x",
            b"more 1 2",
        ] {
            assert_eq!(extents(value), None, "{value:?}");
        }
        for value in [&b"1"[..], b"1 2 x", b"256 0"] {
            assert_eq!(slices(value), None, "{value:?}");
        }
        for value in [&b""[..], b"1", b"1 2 3", b"1 2\n3 4", b"more 7", b"1 2\nmore x"] {
            assert_eq!(extras(value), None, "{value:?}");
        }
        for value in [
            &b"1 data 0 0 0 1 5 5 gone"[..],
            b"1 file 0 0 0 1 5 5 moved",
            b"1 data 0 0 0 256 5 5 moved",
            b"1 data 0 0 0 1 5 5",
            b"99999999999999999999 data 0 0 0 1 5 5 moved",
            b"1 data 0 0 0 1 5 5 moved x",
        ] {
            assert_eq!(decisions(Ino(7), value), None, "{value:?}");
        }
        for value in [&b"1 2"[..], b"1 256 3", b"1 2 -3", b"1 2 3 4"] {
            assert_eq!(heat(value), None, "{value:?}");
        }
        for name in [
            "nearside.",
            "nearside.heat.",
            "nearside.extents",
            "nearside.extents.",
            "nearside.extents.-1",
        ] {
            assert_eq!(Asked::of(name.as_bytes()), None, "{name}");
        }
        assert_eq!(Asked::of(b"nearside.extents.7"), Some(Asked::Extents(7)));
        assert_eq!(Asked::of(b"nearside.extras.7"), Some(Asked::Extras(7)));
        assert_eq!(Asked::of(b"nearside.heat.7"), Some(Asked::Heat(7)));
        assert_eq!(Asked::of(b"nearside.decisions"), Some(Asked::Decisions));
        let change = |name: &str, value| change(Asked::of(name.as_bytes()).unwrap(), value);
        let set = |name: &str, value| change(name, value).unwrap().unwrap();
        assert_eq!(set(MOVE_DATA, Some(&b"off"[..])).move_data, Some(Lever::Off));
        assert_eq!(set(MOVE_THREADS, None).move_threads, Some(Lever::On));
        assert_eq!(set(LAYOUT, None).layout, Some(Layout::Auto));
        assert!(change(MOVE_DATA, Some(&b"of"[..])).unwrap().is_err());
        assert!(change(DECISIONS, None).is_none());
    }
}
