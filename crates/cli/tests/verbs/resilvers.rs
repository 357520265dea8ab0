//! Pools with two copies of everything, and `resilver`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::support::{SOON, Scratch, binary};

fn file(scratch: &Scratch, slice: u32) -> PathBuf {
    scratch.pool().join(format!("slice.{slice}"))
}

/// What `info` says of the second copies.
fn states(scratch: &Scratch) -> Vec<String> {
    let info = scratch.json(&["info", &scratch.pool().display().to_string(), "--json"]);
    let slices = info["slices"].as_array().unwrap();
    slices.iter().map(|slice| slice["mirror"]["state"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_lost_file_is_made_anew() {
    let mut scratch = Scratch::mirrored();
    let pool = scratch.pool().display().to_string();
    let content = binary(3 << 20);
    scratch.put(":/before", &content);
    assert_eq!(states(&scratch), ["current", "current"]);
    assert!(scratch.ok(&["info", &pool]).contains("copies      2, all current"));
    std::fs::remove_file(file(&scratch, 1)).unwrap();
    let info = scratch.ok(&["info", &pool]);
    assert!(info.contains("copies      2, but one of 2 slices: degraded"), "{info}");
    assert!(info.contains("slice 1 is missing: the pool is degraded"), "{info}");
    scratch.put(":/degraded", &content);
    scratch.fails(&["check", &pool], 1, &[]);
    let done = scratch.run(&["resilver", &pool, "--json"]);
    assert_eq!(done.status.code(), Some(1), "a file is missing");
    let done: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&done["complete"], &done["single"]), (&false.into(), &serde_json::json!([0, 1])));
    scratch.fails(&["resilver", &pool, "--slice", "0"], 1, &["is there", "take it away first"]);
    scratch.fails(&["resilver", &pool, "--slice", "2"], 1, &["none of a mirrored pool's"]);
    scratch.fails(&["resilver", &pool, "--onto", "@new"], 2, &["--slice"]);
    let said = scratch.ok(&["resilver", &pool, "--slice", "1", "--onto", "@new"]);
    assert!(said.contains("every slice has two copies"), "{said}");
    assert!(file(&scratch, 1).is_symlink());
    assert_eq!(states(&scratch), ["current", "current"]);
    scratch.check();
    // and now the other one
    std::fs::remove_file(file(&scratch, 0)).unwrap();
    if !scratch.mounts() {
        return;
    }
    for name in ["before", "degraded"] {
        assert!(std::fs::read(scratch.mnt().join(name)).unwrap() == content, "{name}");
    }
    std::fs::write(scratch.mnt().join("mounted"), &content).unwrap();
    assert_eq!(states(&scratch), ["missing", "missing"]);
    scratch.fails(&["resilver", &pool, "--slice", "0"], 1, &["unmount it before"]);
    scratch.umount();
    let said = scratch.ok(&["resilver", &pool, "--slice", "0"]);
    assert!(said.contains("every slice has two copies"), "{said}");
    scratch.check();
}

/// A file that comes back is brought up to date by the server, while it is in use.
#[test]
fn a_server_brings_a_stale_file_up_to_date() {
    let mut scratch = Scratch::mirrored();
    let pool = scratch.pool().display().to_string();
    std::fs::rename(file(&scratch, 0), scratch.outside("away")).unwrap();
    let content = binary(5 << 20);
    scratch.put(":/degraded", &content);
    std::fs::rename(scratch.outside("away"), file(&scratch, 0)).unwrap();
    assert_eq!(states(&scratch), ["stale", "stale"]);
    if !scratch.mounts() {
        return;
    }
    std::fs::write(scratch.mnt().join("meanwhile"), &content).unwrap();
    let said = scratch.ok(&["resilver", &pool]);
    assert!(said.contains("every slice has two copies"), "{said}");
    let began = Instant::now();
    while states(&scratch) != ["current", "current"] {
        assert!(began.elapsed() < SOON);
        std::thread::sleep(Duration::from_millis(20));
    }
    let info = scratch.ok(&["info", &pool]);
    assert!(!info.contains("stale"), "{info}");
    scratch.umount();
    scratch.check();
    std::fs::remove_file(file(&scratch, 1)).unwrap();
    for name in [":/degraded", ":/meanwhile"] {
        scratch.ok(&["cp", name, "@out"]);
        assert!(std::fs::read(scratch.outside("out")).unwrap() == content, "{name}");
    }
}

#[test]
fn two_copies_take_two_slices() {
    let scratch = Scratch::new();
    let format = ["format", "@other", "--size=8M", "--data-copies=2"];
    scratch.fails(&format, 1, &["give the pool two or more"]);
    scratch.fails(&["format", "@other", "--size=8M", "--data-copies=3"], 2, &["data-copies"]);
    let pool = scratch.pool().display().to_string();
    scratch.fails(&["resilver", &pool, "--slice", "0"], 1, &["keeps one copy of everything"]);
    scratch.fails(&["resilver", &pool], 1, &["not made with two copies"]);
}
