//! Sizes as people write them: `4096`, `64K`, `1.5G`, `1GiB`; powers of 1024.

use std::path::PathBuf;

use nearside::SliceSpec;

/// Digits behind the point, at most.
const PART_DIGITS: usize = 6;
const UNITS: [(char, u32); 4] = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];

/// Bytes that `text` means.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.chars().take_while(|c| c.is_ascii_digit() || *c == '.').count();
    let (number, unit) = text.split_at(digits);
    let wrong = || {
        let what = "is no size; write a number and K, M, G or T (powers of 1024), like 64M or 1.5G";
        format!("\"{text}\" {what}")
    };
    let shift = shift_of(unit).ok_or_else(wrong)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let fits = number.starts_with(|c: char| c.is_ascii_digit()) && part.len() <= PART_DIGITS;
    let part_of = 10u128.pow(part.len().min(PART_DIGITS) as u32);
    let part: u64 = part.parse().ok().filter(|_| fits).ok_or_else(wrong)?;
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let bytes = (u128::from(whole) << shift) + (u128::from(part) << shift) / part_of;
    // of bytes there are no parts
    match (u64::try_from(bytes), part == 0 || shift > 0) {
        (Ok(bytes), true) => Ok(bytes),
        (Ok(_), false) => Err(wrong()),
        _ => Err(format!("\"{text}\" is more than 16 million T; write a smaller size")),
    }
}

/// Power of two of a unit: `""`, `K`, `KiB` and so on. `KB` is refused: to many it is 1000.
fn shift_of(unit: &str) -> Option<u32> {
    let mut letters = unit.chars();
    let Some(first) = letters.next() else { return Some(0) };
    let rest = letters.as_str();
    if !(rest.is_empty() || rest.eq_ignore_ascii_case("ib")) {
        return None;
    }
    let first = first.to_ascii_uppercase();
    UNITS.iter().find(|(letter, _)| *letter == first).map(|(_, shift)| *shift)
}

/// `bytes` for people: `1.5 GiB`.
pub fn show(bytes: u64) -> String {
    match UNITS.iter().rev().find(|(_, shift)| bytes >> shift > 0) {
        None => format!("{bytes} B"),
        Some((letter, shift)) => {
            // Tenths, rounded down: a pool is never shown larger than it is.
            let tenths = (u128::from(bytes) * 10) >> shift;
            match tenths % 10 {
                0 => format!("{} {letter}iB", tenths / 10),
                tenth => format!("{}.{tenth} {letter}iB", tenths / 10),
            }
        }
    }
}

/// A slice from `PATH` or `PATH:SIZE`; a path may hold colons itself.
pub fn parse_slice(text: &str) -> Result<SliceSpec, String> {
    let (path, bytes) = match text.rsplit_once(':') {
        Some((path, tail)) if tail.starts_with(|c: char| c.is_ascii_digit()) => {
            (path, Some(parse(tail)?))
        }
        _ => (text, None),
    };
    match path.is_empty() {
        true => Err(format!("\"{text}\" names no file; write PATH or PATH:SIZE")),
        false => Ok(SliceSpec { path: Some(PathBuf::from(path)), bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        let good = [
            ("0", 0),
            ("4096", 4096),
            ("1K", 1 << 10),
            ("1k", 1 << 10),
            ("16M", 16 << 20),
            ("1G", 1 << 30),
            ("1GiB", 1 << 30),
            ("1.5G", 3 << 29),
            ("0.25M", 256 << 10),
            ("1.000001K", 1024),
            ("2gib", 2 << 30),
            ("3T", 3 << 40),
            ("16777215T", 16_777_215 << 40),
        ];
        for (text, bytes) in good {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        let parts = ["1.5", ".5G", "1.G", "1.2.3G", "1.0000001G"];
        let bad = ["", "G", "-1", "1KB", "1X", "1 G", "16777216T", "99999999999999999999"];
        for text in bad.into_iter().chain(parts) {
            let message = parse(text).unwrap_err();
            assert!(message.contains(text) && message.contains("write"), "{message}");
        }
    }

    #[test]
    fn sizes_are_shown_short() {
        let shown = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            ((1 << 30) - 1, "1023.9 MiB"),
            (5 << 30, "5 GiB"),
            (u64::MAX, "16777215.9 TiB"),
        ];
        for (bytes, text) in shown {
            assert_eq!(show(bytes), text);
        }
    }

    #[test]
    fn a_slice_is_a_path_and_perhaps_a_size() {
        let plain = parse_slice("/dev/dax0.0").unwrap();
        assert_eq!((plain.path, plain.bytes), (Some("/dev/dax0.0".into()), None));
        let sized = parse_slice("/a:b:2G").unwrap();
        assert_eq!((sized.path, sized.bytes), (Some("/a:b".into()), Some(2 << 30)));
        let colon = parse_slice("/a:b").unwrap();
        assert_eq!((colon.path, colon.bytes), (Some("/a:b".into()), None));
        for (text, path, bytes) in [
            ("s3://bucket/a:b:500G", "s3://bucket/a:b", Some(500 << 30)),
            ("s3://1bucket", "s3://1bucket", None),
            ("file:///srv/objects:2T", "file:///srv/objects", Some(2 << 40)),
            ("memory:///7:1M", "memory:///7", Some(1 << 20)),
        ] {
            let url = parse_slice(text).unwrap();
            assert_eq!((url.path, url.bytes), (Some(path.into()), bytes), "{text}");
        }
        assert!(parse_slice(":5G").is_err());
        assert!(parse_slice("/a:5X").is_err());
    }
}
