//! `scrub`, of pools that are mounted and of such that are not.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{SOON, Scratch, binary, both, command};

const BLOCK: u64 = 4096;

fn slices(pool: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(pool).unwrap().flatten();
    let is_slice =
        |path: &PathBuf| path.file_name().unwrap().as_encoded_bytes().starts_with(b"slice");
    entries.map(|entry| entry.path()).filter(is_slice).collect()
}

fn flip(path: &Path, place: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, place).unwrap();
    file.write_all_at(&[!byte[0]], place).unwrap();
}

/// Damages the second copies of both superblocks: they do not move.
fn damage_superblocks(pool: &Path) -> usize {
    let slices = slices(pool);
    for path in &slices {
        flip(path, std::fs::metadata(path).unwrap().len() - BLOCK + 60);
    }
    slices.len()
}

#[test]
fn damaged_copies_come_back() {
    both(|scratch| {
        let pool = scratch.pool().display().to_string();
        scratch.put(":/file", &binary(1 << 20));
        let whole = scratch.json(&["scrub", &pool, "--rate", "0", "--json"]);
        assert_eq!((&whole["clean"], &whole["repaired"]), (&true.into(), &serde_json::json!([])));
        assert!(whole["blocks"].as_u64().unwrap() >= 256, "{whole}");
        assert!(whole["pages"].as_u64().unwrap() >= 2, "{whole}");
        let damaged = damage_superblocks(&scratch.pool());
        // an open of its own repairs superblocks before it begins
        let said = scratch.ok(&["scrub", &pool]);
        let repaired = said.matches("repaired: a superblock at slice").count();
        assert_eq!(repaired, if scratch.is_mounted() { damaged } else { 0 }, "{said}");
        assert!(said.contains("no damage; "), "{said}");
        let again = scratch.json(&["scrub", &pool, "--rate", "1G", "--json"]);
        assert_eq!(again["repaired"], serde_json::json!([]));
        scratch.check();
    });
}

#[test]
fn damaged_data_is_told_and_stays_an_error() {
    both(|scratch| {
        let pool = scratch.pool().display().to_string();
        let content = binary(1 << 20);
        scratch.put(":/file", &content);
        scratch.ok(&["scrub", &pool]);
        let block = &content[300 << 10..(300 << 10) + BLOCK as usize];
        let place = slices(&scratch.pool()).into_iter().find_map(|path| {
            let bytes = std::fs::read(&path).unwrap();
            let at = bytes.chunks(BLOCK as usize).position(|chunk| chunk == block)?;
            Some((path, at as u64 * BLOCK + 77))
        });
        let (path, place) = place.unwrap();
        flip(&path, place);
        scratch.fails(&["scrub", &pool], 1, &["damaged in 1 places"]);
        let output = scratch.run(&["scrub", &pool, "--json"]);
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let told = found["findings"][0]["place"].as_str().unwrap();
        assert!(told.ends_with(&format!("file offset {}", 300 << 10)), "{found}");
        assert_eq!(found["clean"], false);
        flip(&path, place);
        scratch.ok(&["scrub", &pool]);
    });
}

/// What cannot be looked at is told with the exit code of a question that has no answer.
#[test]
fn what_is_no_pool_cannot_be_scrubbed() {
    let scratch = Scratch::new();
    let nowhere = scratch.root().join("nowhere").display().to_string();
    scratch.fails(&["scrub", &nowhere], 2, &["cannot scrub", "nowhere"]);
    scratch.fails(&["scrub", &nowhere, "--rate", "fast"], 2, &["is no size"]);
}

/// Its server goes on when the one who asked is gone, and the next one gets an answer.
#[test]
fn a_scrub_ends_with_who_asked_for_it() {
    let Some(scratch) = Scratch::mounted() else { return };
    std::fs::write(scratch.mnt().join("file"), binary(4 << 20)).unwrap();
    let pool = scratch.pool();
    let mut slow = command(["scrub".as_ref(), pool.as_os_str(), "--rate".as_ref(), "16K".as_ref()]);
    let mut slow = slow.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(slow.try_wait().unwrap().is_none(), "4 MiB at 16 KiB/s take four minutes");
    slow.kill().unwrap();
    slow.wait().unwrap();
    let began = Instant::now();
    let found = scratch.json(&["scrub", &pool.display().to_string(), "--rate", "0", "--json"]);
    assert_eq!(found["clean"], true);
    assert!(began.elapsed() < SOON, "it waited for one that nobody wants");
    scratch.umount();
    scratch.check();
}
