//! Pools with devices below their slices: `tier`, and what other verbs say of them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Scratch, binary, both};

const MIB: u64 = 1 << 20;
/// More than the slices hold, less than the devices do.
const LARGE: usize = 40 << 20;

/// Does the same on a tiered pool that is not mounted and, where that can be, on one that is.
fn both_tiered(test: impl Fn(&Scratch, &str)) {
    let mut scratch = Scratch::tiered();
    test(&scratch, &scratch.pool().display().to_string());
    scratch = Scratch::tiered();
    if scratch.mounts() {
        test(&scratch, &scratch.pool().display().to_string());
        scratch.umount();
        scratch.check();
    }
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no {key} in {value}"))
}

fn sum(list: &Value, key: &str) -> u64 {
    list.as_array().unwrap().iter().map(|value| number(value, key)).sum()
}

/// Has the kernel forget what it cached of a file of the mount, if the pool is mounted.
fn forget(scratch: &Scratch, name: &str) {
    if scratch.is_mounted() {
        let file = std::fs::File::open(scratch.mnt().join(name)).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
}

fn is_whole(scratch: &Scratch, path: &str, content: &[u8]) {
    scratch.ok(&["cp", path, "@out"]);
    assert!(std::fs::read(scratch.outside("out")).unwrap() == content, "{path}");
    std::fs::remove_file(scratch.outside("out")).unwrap();
}

#[test]
fn a_file_larger_than_the_slices_is_told_of_by_every_verb() {
    both_tiered(|scratch, pool| {
        let content = binary(LARGE);
        scratch.put(":/large", &content);
        forget(scratch, "large");
        is_whole(scratch, ":/large", &content);
        info_tells(scratch, pool);
        df_tells(scratch, pool);
        where_tells(scratch);
        let status = scratch.json(&["tier", "status", pool, "--json"]);
        assert_eq!(status["mounted"], scratch.is_mounted());
        assert_eq!(status["devices"].as_array().unwrap().len(), 2);
        assert!(number(&status, "device_used_bytes") >= 8 * MIB, "{status}");
        assert!(number(&status, "slice_used_bytes") <= number(&status, "slice_bytes"));
        assert_eq!(number(&status, "device_bytes"), sum(&status["devices"], "blocks") * 4096);
        let text = scratch.ok(&["tier", "status", pool]);
        assert_eq!(text.contains("written back;"), scratch.is_mounted(), "{text}");
        for word in ["slices ", "devices ", "DEVICE  NODE  SIZE"] {
            assert!(text.contains(word), "no {word} in {text}");
        }
    });
}

fn info_tells(scratch: &Scratch, pool: &str) {
    let info = scratch.json(&["info", pool, "--json"]);
    let devices = info["devices"].as_array().unwrap();
    for (index, bytes) in [48 * MIB, 32 * MIB].into_iter().enumerate() {
        let device = &devices[index];
        assert_eq!((number(device, "index"), number(device, "bytes")), (index as u64, bytes));
        assert!(number(device, "blocks") * 4096 <= bytes, "{device}");
        assert!(device["path"].as_str().unwrap().ends_with(&format!("capacity.{index}")));
        assert_eq!(device["node"], Value::Null);
    }
    let blocks = sum(&info["devices"], "blocks") + sum(&info["slices"], "blocks");
    assert_eq!(number(&info, "bytes"), blocks * 4096, "{info}");
    let parts = ["used_bytes", "free_bytes", "kept_bytes"].map(|key| number(&info, key));
    assert_eq!(number(&info, "bytes"), parts.iter().sum::<u64>(), "{info}");
    // nothing but the file, its trees, and what is free again in a moment
    assert!((LARGE as u64..LARGE as u64 + 8 * MIB).contains(&parts[0]), "{info}");
    let text = scratch.ok(&["info", pool]);
    assert!(text.contains("\n\nDEVICE  NODE  SIZE    USED"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("1       -     32 MiB  ")), "{text}");
    let tier = &info["tier"];
    let dirty = tier["dirty_percent"].as_f64().unwrap();
    assert!(dirty > 0.0 && dirty <= 100.0, "{tier}");
    assert!(text.contains("\ntier        ") && text.contains(" % dirty, "), "{text}");
    // who only looks at a pool has moved nothing and looked for nothing
    let rate = tier["written_back_bytes_per_second"].as_f64().unwrap();
    assert_eq!(rate > 0.0, scratch.is_mounted(), "{tier}");
    assert_eq!(tier["hit_percent"].is_number(), scratch.is_mounted(), "{tier}");
    assert_eq!(text.contains(" % hits\n"), scratch.is_mounted(), "{text}");
}

fn df_tells(scratch: &Scratch, pool: &str) {
    let df = scratch.json(&["df", pool, "--json"]);
    let all = sum(&df["devices"], "bytes") + sum(&df["slices"], "bytes");
    assert_eq!(number(&df, "bytes"), all, "{df}");
    assert!(number(&df, "used_percent") < 60, "{df}");
    let text = scratch.ok(&["df", pool]);
    assert!(text.contains("\ndevice 1  "), "{text}");
}

/// Gives the bytes in slices and on devices.
fn where_tells(scratch: &Scratch) -> (u64, u64) {
    let told = scratch.json(&["where", ":/large", "--json"]);
    let parts = (sum(&told["slices"], "bytes"), sum(&told["devices"], "bytes"));
    assert_eq!((number(&told, "bytes"), parts.0 + parts.1), (LARGE as u64, LARGE as u64));
    assert!(parts.1 >= LARGE as u64 - 32 * MIB, "{parts:?}");
    for extent in told["extents"].as_array().unwrap() {
        let which = (extent["slice"].as_u64(), extent["device"].as_u64());
        assert!(matches!(which, (Some(0 | 1), None) | (None, Some(0 | 1))), "{extent}");
        assert!(number(extent, "at") < 48 * MIB, "{extent}");
    }
    let text = scratch.ok(&["where", ":/large", "--extents"]);
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("device ")).collect();
    assert!(lines.len() >= 2 && lines[0].starts_with("device "), "{text}");
    parts
}

#[test]
fn all_is_written_back_when_it_is_asked_for() {
    both_tiered(|scratch, pool| {
        let content = binary(LARGE);
        scratch.put(":/large", &content);
        let before = scratch.json(&["tier", "status", pool, "--json"]);
        let flushed = scratch.json(&["tier", "flush", pool, "--json"]);
        let moved = number(&flushed, "moved_blocks");
        assert_eq!(number(&flushed, "moved_bytes"), moved * 4096);
        assert_eq!(flushed["full"], false);
        assert_eq!(where_tells(scratch), (0, LARGE as u64), "after {flushed}, {before}");
        let status = scratch.json(&["tier", "status", pool, "--json"]);
        assert!(number(&status, "device_used_bytes") >= LARGE as u64, "{status}");
        let said = scratch.ok(&["tier", "flush", pool]);
        assert!(said.contains(": 0 blocks written back, 0 B; "), "{said}");
        forget(scratch, "large");
        is_whole(scratch, ":/large", &content);
        scratch.put(":/large", &content[..LARGE / 2]);
        is_whole(scratch, ":/large", &content[..LARGE / 2]);
    });
}

#[test]
fn what_is_cached_is_let_go_when_it_is_asked_for() {
    both_tiered(|scratch, pool| {
        let content = binary(LARGE);
        scratch.put(":/large", &content);
        scratch.ok(&["tier", "flush", pool]);
        forget(scratch, "large");
        is_whole(scratch, ":/large", &content);
        let cached = || {
            let status = scratch.json(&["tier", "status", pool, "--json"]);
            number(&status, "cached_bytes") + number(&status, "slice_clean_bytes")
        };
        let before = cached();
        let evicted = scratch.json(&["tier", "evict", pool, "--json"]);
        assert_eq!(number(&evicted, "evicted_bytes"), before);
        // who opens a pool for one command has nothing cached
        assert_eq!(before > MIB, scratch.is_mounted(), "{before}");
        assert_eq!(cached(), 0);
        let said = scratch.ok(&["tier", "evict", pool]);
        assert!(said.ends_with(": 0 B of copies let go\n"), "{said}");
        forget(scratch, "large");
        is_whole(scratch, ":/large", &content);
    });
}

#[test]
fn a_pool_without_devices_has_no_tier() {
    both(|scratch| {
        let pool = scratch.pool().display().to_string();
        for verb in ["status", "flush", "evict"] {
            scratch.fails(&["tier", verb, &pool], 1, &["has no capacity tier", "--capacity"]);
        }
        assert_eq!(scratch.json(&["info", &pool, "--json"])["devices"], json!([]));
        assert!(!scratch.ok(&["info", &pool]).contains("DEVICE"));
    });
    let scratch = Scratch::new();
    for verb in ["status", "flush", "evict"] {
        scratch.fails(&["tier", verb, "@nowhere"], 1, &["nowhere"]);
    }
    scratch.fails(&["tier", "melt", "@pool"], 2, &["melt"]);
}

#[test]
fn the_server_counts_what_moves() {
    let mut scratch = Scratch::tiered();
    if !scratch.mounts() {
        return;
    }
    let (pool, file) = (scratch.pool().display().to_string(), scratch.mnt().join("file"));
    std::fs::write(&file, binary(LARGE)).unwrap();
    scratch.ok(&["tier", "flush", &pool]);
    forget(&scratch, "file");
    assert_eq!(std::fs::read(&file).unwrap().len(), LARGE);
    let sample = scratch.json(&["stats", &pool, "--json"]);
    let tier = &sample["tier"];
    assert_eq!(number(tier, "moved_blocks"), LARGE as u64 / 4096, "{tier}");
    assert!(number(tier, "written_blocks") >= number(tier, "moved_blocks"), "{tier}");
    assert!(number(tier, "cached_bytes") > 0 && number(tier, "read_blocks") > 0, "{tier}");
    assert_eq!(sample["counts_copied"], true);
    let text = scratch.ok(&["stats", &pool]);
    let line = |word: &str| text.lines().find(|line| line.starts_with(word)).unwrap().to_owned();
    assert!(line("tier ").contains("% dirty") && line("tier ").contains("% hits"), "{text}");
    assert!(line("writes ").ends_with(" PM bytes per user byte"), "{text}");
    let each = line("writes ").split_whitespace().nth(1).unwrap().parse::<f64>().unwrap();
    assert!((1.0..1.5).contains(&each), "{text}");
    scratch.umount();
}

#[test]
fn a_tier_that_is_full_takes_no_more() {
    both_tiered(|scratch, pool| {
        std::fs::write(scratch.outside("put"), binary(LARGE)).unwrap();
        scratch.ok(&["cp", "@put", ":/one"]);
        scratch.ok(&["cp", "@put", ":/two"]);
        scratch.fails(&["cp", "@put", ":/three"], 1, &["three"]);
        let flushed = scratch.run(&["tier", "flush", pool, "--json"]);
        let flushed: Value = serde_json::from_slice(&flushed.stdout).unwrap();
        assert_eq!(flushed["full"], true, "{flushed}");
        assert!(scratch.ok(&["tier", "flush", pool]).contains("; the tier is full"));
        let status = scratch.json(&["tier", "status", pool, "--json"]);
        assert_eq!(status["used_percent"], 100.0, "{status}");
        forget(scratch, "one");
        is_whole(scratch, ":/one", &std::fs::read(scratch.outside("put")).unwrap());
        scratch.ok(&["rm", ":/one", ":/two"]);
        scratch.ok(&["cp", "@put", ":/four"]);
    });
}

#[test]
fn devices_that_are_missing_or_anothers_are_refused() {
    let scratch = Scratch::tiered();
    let pool = scratch.pool().display().to_string();
    scratch.put(":/file", &binary(LARGE));
    scratch.format_tiered("other");
    let path = |name: &str| Path::new(&scratch.outside(name)).to_path_buf();
    std::fs::rename(path("pool.device1"), path("away")).unwrap();
    for verb in [&["info"][..], &["check"], &["tier", "status"], &["tier", "flush"]] {
        let output = scratch.run(&[verb, &[&pool]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("capacity.1"), "{verb:?}: {said}");
    }
    std::fs::copy(path("other.device1"), path("pool.device1")).unwrap();
    scratch.fails(&["tier", "status", &pool], 1, &["capacity.1", "belongs to another pool"]);
    std::fs::write(path("pool.device1"), vec![0; 32 << 20]).unwrap();
    scratch.fails(&["info", &pool], 1, &["is no device of a capacity tier"]);
    std::fs::rename(path("away"), path("pool.device1")).unwrap();
    std::fs::remove_file(Path::new(&pool).join("capacity.1")).unwrap();
    scratch.fails(&["info", &pool], 1, &["device 1 of the capacity tier", "is not there"]);
    std::os::unix::fs::symlink(path("pool.device1"), Path::new(&pool).join("capacity.1")).unwrap();
    scratch.check();
}

#[test]
fn a_format_says_what_devices_it_takes() {
    let scratch = Scratch::new();
    let said = scratch.format_tiered("tiered");
    assert!(said.contains("2 slices, 32 MiB, a capacity tier of 2 devices, 80 MiB, "), "{said}");
    std::fs::write(scratch.outside("there"), vec![0; 5 << 20]).unwrap();
    std::fs::write(scratch.outside("small"), vec![0; 4096]).unwrap();
    let there = format!("--capacity={}", scratch.root().join("there").display());
    let sized = format!("--capacity={}:7M", scratch.root().join("sized").display());
    let new = ["format", "@new", "--size=16M"];
    let both = [&new[..], &[&there, &sized]].concat();
    let plan = scratch.json(&[&both[..], &["--dry-run", "--json"]].concat());
    let row = |index: usize| {
        let device = &plan["devices"][index];
        (number(device, "bytes"), number(device, "new_bytes"), device["now"].clone())
    };
    assert_eq!(row(0), (5 * MIB, 0, "file".into()));
    assert_eq!(row(1), (7 * MIB, 7 * MIB, "nothing".into()));
    let text = scratch.ok(&[&both[..], &["--dry-run"]].concat());
    assert!(text.contains("\n\nDEVICE  SIZE   NEW    NOW "), "{text}");
    let outside = |name: &str| format!("--capacity={}", scratch.root().join(name).display());
    let (missing, small, vast) = (outside("missing"), outside("small"), outside("vast:9999T"));
    let (little, empty) = (outside("little:64K"), outside("empty:0"));
    let copies = ["--slices=2", "--data-copies=2"];
    for dry in [&[][..], &["--dry-run"]] {
        let fails = |more: &[&str], said: &[&str]| {
            scratch.fails(&[&new[..], more, dry].concat(), 1, said);
            assert!(!scratch.root().join("new").exists());
        };
        fails(&[&missing], &["missing", "say how large to make it"]);
        for device in [&small, &little, &empty] {
            fails(&[device], &["at least 1048576 bytes"]);
        }
        fails(&[&[there.as_str()], &copies[..]].concat(), &["either the tier or two copies"]);
        // what is too large for the machine, and not only for this directory
        fails(&[&vast], &[]);
        let again = [&["format", "@tiered", "--size=16M"], dry].concat();
        scratch.fails(&again, 1, &["a pool is there"]);
    }
    let made = scratch.json(&[&both[..], &["--json", "--durability=process"]].concat());
    assert_eq!((number(&made, "devices"), number(&made, "device_bytes")), (2, 12 * MIB));
    // what is left of a pool whose slices are gone
    for slice in ["slice.0", "slice.1"] {
        std::fs::remove_file(scratch.root().join("tiered").join(slice)).unwrap();
    }
    for dry in [&[][..], &["--dry-run"]] {
        let again = [&["format", "@tiered", "--size=16M"], dry].concat();
        scratch.fails(&again, 1, &["capacity.", "a pool is there"]);
    }
}

#[test]
fn an_object_store_is_named_with_its_size_in_a_build_that_knows_them() {
    let scratch = Scratch::new();
    let url = format!("file://{}", scratch.root().join("objects").display());
    let new = ["format", "@new", "--size=16M", "--durability=process"];
    let with = |capacity: &str| format!("--capacity={url}{capacity}");
    let (sized, unsized_) = (with(":64M"), with(""));
    for dry in [&["--dry-run"][..], &[]] {
        let line = |capacity| [&new[..], &[capacity], dry].concat();
        scratch.fails(&line(&unsized_), 1, &["say how large the device is to be"]);
        if cfg!(feature = "object-store") {
            let text = scratch.ok(&line(&sized));
            assert!(text.contains("64 MiB"), "{text}");
        } else {
            scratch.fails(&line(&sized), 1, &[&url, "feature object-store"]);
            assert!(!scratch.root().join("new").exists());
        }
    }
    if cfg!(feature = "object-store") {
        let status = scratch.ok(&["info", "@new"]);
        assert!(status.contains(&url), "{status}");
    }
}

/// A block device whose bytes are in that file, and which is there as long as anybody has it open;
/// none where this machine makes none.
pub fn block_device(file: &Path) -> Option<(PathBuf, File)> {
    let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
    let Some(made) = made.ok().filter(|made| made.status.success()) else {
        println!("skipped: no loop device can be had");
        return None;
    };
    let path = PathBuf::from(String::from_utf8(made.stdout).unwrap().trim());
    let open = File::open(&path);
    let detached = Command::new("losetup").arg("--detach").arg(&path).status().unwrap();
    assert!(detached.success(), "{} is left behind", path.display());
    Some((path, open.unwrap()))
}

#[test]
fn a_block_device_is_a_device_of_the_tier() {
    let backing = tempfile::NamedTempFile::new().unwrap();
    backing.as_file().set_len(96 * MIB).unwrap();
    let Some((disk, _open)) = block_device(backing.path()) else { return };
    let mut scratch = Scratch::above(&disk);
    let pool = scratch.pool().display().to_string();
    let content = binary(LARGE);
    let is_mounted = scratch.mounts();
    scratch.put(":/large", &content);
    scratch.ok(&["tier", "flush", &pool]);
    assert_eq!(where_tells(&scratch), (0, LARGE as u64));
    let devices = scratch.json(&["info", &pool, "--json"])["devices"].take();
    assert_eq!(number(&devices[0], "bytes"), 96 * MIB, "{devices}");
    // past the page cache, if io_uring is to be had at all
    let access = devices[0]["access"].as_str().unwrap();
    assert!(["io_uring, direct", "calls, page cache"].contains(&access), "{access}");
    assert!(scratch.ok(&["info", &pool]).contains(access));
    if is_mounted {
        scratch.umount();
        scratch.is_unmounted();
    }
    is_whole(&scratch, ":/large", &content);
    scratch.check();
    let other = ["format", "@other", "--size=16M", "--durability=process"];
    let capacity = format!("--capacity={}", disk.display());
    for dry in [&["--dry-run"][..], &[]] {
        let said = ["a slice or device of a pool is there", "--force"];
        scratch.fails(&[&other[..], &[&capacity], dry].concat(), 1, &said);
    }
    // nothing happened to it, until it is said that it may be lost
    is_whole(&scratch, ":/large", &content);
    assert!(!scratch.root().join("other/slice.0").exists());
    scratch.ok(&[&other[..], &[&capacity, "--force"]].concat());
    scratch.fails(&["ls", ":/"], 1, &["belongs to another pool"]);
}
