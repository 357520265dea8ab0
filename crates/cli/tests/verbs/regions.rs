//! `region`: files that programs map as memory.

use std::io::Read;
use std::process::Stdio;

use serde_json::Value;

use crate::support::{Scratch, binary, both, command};

const MIB: u64 = 1 << 20;

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no {key} in {value}"))
}

fn info(scratch: &Scratch, path: &str) -> Value {
    let told = scratch.json(&["region", "info", path, "--json"]);
    assert_eq!(told["mounted"], scratch.is_mounted());
    // who may map no regions is told why
    assert!(told["mapping"].is_object() != told["unmappable"].is_string(), "{told}");
    if told["mapping"].is_object() {
        let faults = told["mapping"]["faults"].as_str().unwrap();
        assert!(faults.starts_with("userfaultfd") || faults == "SIGSEGV", "{told}");
        let text = scratch.ok(&["region", "info", path]);
        let once = text.contains(&format!("mapping     {faults}; "))
            && text.ends_with(", once the pool is unmounted\n") == scratch.is_mounted();
        assert!(once, "{text}");
    }
    told
}

fn sum(list: &Value) -> u64 {
    list.as_array().unwrap().iter().map(|it| number(it, "bytes")).sum()
}

#[test]
fn a_region_is_made_once_and_takes_no_space() {
    both(|scratch| {
        let pool = scratch.pool().display().to_string();
        scratch.ok(&["region", "create", &pool, "/a", "--size", "1T"]);
        scratch.ok(&["region", "create", &pool, "b", "--size", "5000", "--mode", "600"]);
        scratch.ok(&["region", "create", ":/c", "--size", "3M", "--reserve"]);
        let stat = |path: &str| scratch.json(&["stat", path, "--json"]);
        assert_eq!(
            (number(&stat(":/a"), "bytes"), stat(":/a")["mode"].clone()),
            (1 << 40, "0644".into())
        );
        assert_eq!(
            (number(&stat(":/b"), "bytes"), stat(":/b")["mode"].clone()),
            (5000, "0600".into())
        );
        let sparse = info(scratch, ":/a");
        assert_eq!(
            (number(&sparse, "size_bytes"), number(&sparse, "hole_bytes")),
            (1 << 40, 1 << 40)
        );
        assert_eq!((number(&sparse, "allocated_bytes"), sum(&sparse["nodes"])), (0, 0));
        let reserved = info(scratch, ":/c");
        for key in ["size_bytes", "hole_bytes", "reserved_bytes", "allocated_bytes"] {
            assert_eq!(number(&reserved, key), 3 * MIB, "{key}: {reserved}");
        }
        scratch.fails(&["region", "create", ":/a", "--size", "1M"], 1, &["/a", "the name exists"]);
        scratch.ok(&["mkdir", ":/dir"]);
        for path in [":/dir", ":/"] {
            let line = ["region", "create", path, "--size", "1M"];
            let code = if path == ":/" { 2 } else { 1 };
            scratch.fails(&line, code, &["name"]);
        }
        scratch.fails(&["region", "create", ":/no/a", "--size", "1M"], 1, &["mkdir -p"]);
        let line = ["region", "create", ":/vast", "--size", "1G", "--reserve"];
        scratch.fails(&line, 1, &["vast", "the pool is full"]);
        assert_eq!(scratch.all(), ["/a", "/b", "/c", "/dir"], "what failed left nothing");
        for size in ["0", "65T", "1KB", "-1"] {
            let size = format!("--size={size}");
            scratch.fails(&["region", "create", ":/d", &size], 2, &["--size"]);
        }
        scratch.fails(&["region", "create", ":/d", "/d", "--size=1M"], 2, &["name the file once"]);
        scratch.fails(&["region", "create", &pool, "--size=1M"], 2, &["name the file"]);
    });
    let scratch = Scratch::new();
    scratch.fails(&["region", "create", "@nowhere", "/a", "--size=1M"], 1, &["nowhere"]);
}

#[test]
fn what_lies_where_is_told_of_a_region() {
    both(|scratch| {
        let content = binary(MIB as usize);
        scratch.put(":/full", &content);
        let told = info(scratch, ":/full");
        assert_eq!((sum(&told["nodes"]), sum(&told["devices"])), (MIB, 0), "{told}");
        assert_eq!((number(&told, "hole_bytes"), number(&told, "allocated_bytes")), (0, MIB));
        let text = scratch.ok(&["region", "info", ":/full"]);
        for line in ["size        1048576 bytes (1 MiB)\n", "holes       0 B; 0 B reserved\n"] {
            assert!(text.contains(line), "no {line} in {text}");
        }
        assert!(text.contains("1 MiB in slices 0, 1\n") && text.contains("\nmapping "), "{text}");
        scratch.ok(&["mkdir", ":/dir"]);
        scratch.fails(&["region", "info", ":/dir"], 1, &["is a directory"]);
        scratch.fails(&["region", "info", ":/none"], 1, &["none"]);
        scratch.fails(&["region", "info", ":/full/x"], 1, &["full"]);
    });
}

#[test]
fn what_lies_on_devices_is_told_of_a_region() {
    let mut scratch = Scratch::tiered();
    if !scratch.mounts() {
        return;
    }
    let pool = scratch.pool().display().to_string();
    scratch.put(":/file", &binary(4 * MIB as usize));
    scratch.ok(&["tier", "flush", &pool]);
    let told = info(&scratch, ":/file");
    assert_eq!((sum(&told["nodes"]), sum(&told["devices"])), (0, 4 * MIB), "{told}");
    let clean = number(&told, "clean_bytes");
    let status = scratch.json(&["tier", "status", &pool, "--json"]);
    assert_eq!(clean, number(&status, "slice_clean_bytes"), "{told}");
    assert!(clean > MIB, "{told}");
    let text = scratch.ok(&["region", "info", ":/file"]);
    assert!(text.contains("\ndevice 0 ") && text.contains(" of it in slices, too\n"), "{text}");
    scratch.umount();
    scratch.is_unmounted();
    let told = info(&scratch, ":/file");
    assert_eq!((sum(&told["devices"]), number(&told, "clean_bytes")), (4 * MIB, 0), "{told}");
}

fn dumped(scratch: &Scratch, words: &[&str]) -> Vec<u8> {
    let output = scratch.run(&[&["region", "dump"], words].concat());
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    output.stdout
}

#[test]
fn a_dump_is_what_the_region_holds() {
    both(|scratch| {
        let content = binary(3 * MIB as usize + 5);
        scratch.put(":/file", &content);
        assert!(dumped(scratch, &[":/file", "--raw"]) == content);
        let part = dumped(scratch, &[":/file", "--raw", "--offset=1000003", "--length=2000000"]);
        assert!(part == content[1_000_003..3_000_003]);
        assert!(dumped(scratch, &[":/file", "--raw", "--offset=3145733"]).is_empty());
        let text = String::from_utf8(dumped(scratch, &[":/file"])).unwrap();
        let mut seen = Vec::new();
        for line in text.lines().filter(|line| line.len() > 8) {
            assert_eq!(usize::from_str_radix(&line[..8], 16).unwrap(), seen.len(), "{line}");
            let bytes = line[10..].split("  |").next().unwrap().split_whitespace();
            seen.extend(bytes.map(|byte| u8::from_str_radix(byte, 16).unwrap()));
        }
        assert!(seen == content, "{} bytes", seen.len());
        assert!(text.ends_with("\n00300005\n"), "{}", &text[text.len() - 100..]);
        let at = |words: &[&str], said: &[&str]| {
            scratch.fails(&[&["region", "dump", ":/file"], words].concat(), 1, said);
        };
        at(&["--offset=3145734"], &["/file", "the file ends at byte 3145733"]);
        at(&["--offset=3M", "--length=6"], &["ends at byte 3145733"]);
        at(&["--length=16777215T", "--offset=16777215T"], &["ends at byte 3145733"]);
        scratch.ok(&["mkdir", ":/dir"]);
        scratch.fails(&["region", "dump", ":/dir"], 1, &["is a directory"]);
        scratch.fails(&["region", "dump", ":/none"], 1, &["none"]);
        scratch.fails(&["region", "dump", ":/file", "--offset=x"], 2, &["--offset"]);
    });
}

/// A terabyte of zeros is dumped in a moment.
#[test]
fn holes_are_leapt_over() {
    both(|scratch| {
        scratch.ok(&["region", "create", ":/a", "--size=1T"]);
        let zeros = "00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |................|";
        let text = String::from_utf8(dumped(scratch, &[":/a", "--offset=7"])).unwrap();
        let last = "fffffffff7  00 00 00 00 00 00 00 00  00                       |.........|";
        assert_eq!(text, format!("00000007  {zeros}\n*\n{last}\n10000000000\n"));
        let at = |offset: &str| dumped(scratch, &[":/a", offset, "--length=16"]);
        assert!(String::from_utf8(at("--offset=512G")).unwrap().starts_with("8000000000  00 "));
    });
}

/// As `nearside region dump | head` does.
#[test]
fn a_reader_that_goes_away_is_no_error() {
    let scratch = Scratch::new();
    scratch.put(":/file", &binary(8 * MIB as usize));
    for more in [&[][..], &["--raw"]] {
        let words = ["region".into(), "dump".into(), scratch.inside("/file")];
        let words = words.into_iter().chain(more.iter().map(Into::into));
        let mut child =
            command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 100]).unwrap();
        drop(stdout);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
}
