//! The kernel's list format for CPUs and nodes: `0-3,8-11`.

use crate::{CPU_LIMIT, Error, Result};

/// Numbers in `text`, sorted, each once. The empty list is valid. A number of [`CPU_LIMIT`] or
/// more is refused before anything is allocated for it, so a hostile range costs nothing.
pub fn parse_cpulist(text: &str) -> Result<Vec<u32>> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut present = Vec::new();
    for item in text.split(',') {
        let (first, last) = range(item.trim())?;
        present.resize(present.len().max(last as usize + 1), false);
        present[first as usize..=last as usize].fill(true);
    }
    let numbers = (0..).zip(present).filter(|(_, present)| *present);
    Ok(numbers.map(|(number, _)| number).collect())
}

/// One item, `7` or `2-5`, as its first and last number.
fn range(item: &str) -> Result<(u32, u32)> {
    let (first, last) = match item.split_once('-') {
        Some((first, last)) => (number(first, item)?, number(last, item)?),
        None => {
            let n = number(item, item)?;
            (n, n)
        }
    };
    if first > last {
        return Err(Error::CpuList(format!("the range {item:?} runs backwards")));
    }
    Ok((first, last))
}

fn number(digits: &str, item: &str) -> Result<u32> {
    // `u32::from_str` takes a leading plus, which the kernel never writes.
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let n: Option<u32> = if plain { digits.parse().ok() } else { None };
    match n {
        Some(n) if n < CPU_LIMIT => Ok(n),
        Some(_) => Err(Error::CpuList(format!("{item:.40?} goes beyond {}", CPU_LIMIT - 1))),
        None => Err(Error::CpuList(format!("{item:.40?} is not a number or a range"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_as_the_kernel_writes_them() {
        let ok = |text: &str| parse_cpulist(text).unwrap();
        assert_eq!(ok(""), []);
        assert_eq!(ok("\n"), []);
        assert_eq!(ok("0\n"), [0]);
        assert_eq!(ok("0-3,8-11"), [0, 1, 2, 3, 8, 9, 10, 11]);
        assert_eq!(ok("5,1,1-2"), [1, 2, 5]);
        assert_eq!(ok("65535"), [65_535]);
    }

    #[test]
    fn hostile_lists_are_refused() {
        let bad = [
            "0-4294967295",
            "4294967296",
            "99999999999999999999",
            "65536",
            "3-1",
            "-1",
            "1-",
            "-",
            "+1",
            ",",
            "1,,2",
            "a",
            "0x3",
            "0-3:1/2",
            "1-2-3",
            "\u{0}",
        ];
        for text in bad {
            assert!(matches!(parse_cpulist(text), Err(Error::CpuList(_))), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_gives_a_list_or_an_error(text in "[0-9,\\- a\n]{0,64}") {
            if let Ok(list) = parse_cpulist(&text) {
                prop_assert!(list.windows(2).all(|w| w[0] < w[1]));
            }
        }

        #[test]
        fn a_list_written_out_reads_back(set in proptest::collection::btree_set(0u32..500, 0..40)) {
            let text = set.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            prop_assert_eq!(parse_cpulist(&text).unwrap(), set.into_iter().collect::<Vec<_>>());
        }
    }
}
