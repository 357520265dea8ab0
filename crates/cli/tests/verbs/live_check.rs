//! `check` on a pool that is mounted and in use.

use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::{Scratch, binary, command, ok};

#[test]
fn a_pool_in_use_is_found_clean() {
    let Some(scratch) = Scratch::mounted() else { return };
    let pool = scratch.pool().display().to_string();
    let stop = AtomicBool::new(false);
    let rounds = AtomicU64::new(0);
    std::fs::write(scratch.mnt().join("large"), binary(4 << 20)).unwrap();
    std::thread::scope(|threads| {
        for writer in 0..2u64 {
            let (dir, stop, rounds) = (scratch.mnt(), &stop, &rounds);
            threads.spawn(move || {
                let large = std::fs::File::options().write(true).open(dir.join("large")).unwrap();
                let mut n = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    // In place, to a new block, and past the end.
                    let at = (n * 7919 + writer * 13) % (4 << 20);
                    large.write_all_at(&n.to_le_bytes(), at).unwrap();
                    large.write_all_at(&[n as u8; 4096], at / 4096 * 4096).unwrap();
                    let path = dir.join(format!("{writer}-{}", n % 50));
                    std::fs::write(&path, vec![n as u8; (n % 9000) as usize]).unwrap();
                    if n.is_multiple_of(3) {
                        std::fs::remove_file(&path).unwrap();
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..6 {
            let before = rounds.load(Ordering::Relaxed);
            while rounds.load(Ordering::Relaxed) < before + 20 {
                std::thread::yield_now();
            }
            let verdict = scratch.run(&["check", &pool, "--json"]);
            if !verdict.status.success() {
                stop.store(true, Ordering::Relaxed);
            }
            assert!(verdict.status.success(), "{verdict:?}");
            let verdict: serde_json::Value = serde_json::from_slice(&verdict.stdout).unwrap();
            assert_eq!(verdict["clean"], true);
            assert!(verdict["blocks"].as_u64().unwrap() >= 1024, "{verdict}");
            assert!(verdict["inodes"].as_u64().unwrap() >= 2, "{verdict}");
        }
        stop.store(true, Ordering::Relaxed);
    });
    scratch.umount();
    scratch.check();
}

/// The second one was refused, with the exit code of a pool that cannot be read.
#[test]
fn checks_at_once_wait_for_each_other() {
    let Some(scratch) = Scratch::mounted() else { return };
    std::fs::write(scratch.mnt().join("file"), binary(8 << 20)).unwrap();
    let pool = scratch.pool();
    let begin = || {
        let mut check = command(["check".as_ref(), pool.as_os_str(), "--json".as_ref()]);
        check.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let checks: Vec<_> = (0..8).map(|_| begin()).collect();
    for check in checks {
        let verdict = ok(check.wait_with_output().unwrap());
        let verdict: serde_json::Value = serde_json::from_slice(&verdict).unwrap();
        assert_eq!(verdict["clean"], true);
        assert!(verdict["blocks"].as_u64().unwrap() >= 2048, "{verdict}");
    }
    scratch.umount();
}

/// Reads verify a block once; a check does it again, also of what was read before.
#[test]
fn damage_of_a_pool_in_use_is_found_and_placed() {
    let Some(scratch) = Scratch::mounted() else { return };
    let pool = scratch.pool().display().to_string();
    let content = binary(1 << 20);
    std::fs::write(scratch.mnt().join("file"), &content).unwrap();
    scratch.ok(&["check", &pool]);
    let mut damaged = 0;
    for entry in std::fs::read_dir(scratch.pool()).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if !name.starts_with("slice") {
            continue;
        }
        let slice = std::fs::File::options().read(true).write(true).open(entry.path()).unwrap();
        let bytes = std::fs::read(entry.path()).unwrap();
        // A block of the file, found by its content.
        let block = &content[300 << 10..(300 << 10) + 4096];
        if let Some(at) = bytes.chunks(4096).position(|chunk| chunk == block) {
            let place = at as u64 * 4096 + 77;
            slice.write_all_at(&[!bytes[place as usize]], place).unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1);
    let output = scratch.run(&["check", &pool, "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let verdict: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = verdict["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{verdict}");
    let place = findings[0]["place"].as_str().unwrap();
    assert!(place.ends_with(&format!("file offset {}", 300 << 10)), "{place}");
    scratch.fails(&["check", &pool], 1, &["damaged in 1 places"]);
    scratch.umount();
}
