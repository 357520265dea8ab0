//! `check --repair`, and what undoes it.

use std::collections::BTreeMap;
use std::path::Path;

use crate::support::{Scratch, binary};
use crate::terminal::Terminal;

const BLOCK: usize = 4096;

fn images(pool: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(pool).unwrap().flatten();
    let slices = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        let bytes = || std::fs::read(entry.path()).unwrap();
        name.starts_with("slice").then(|| (name, bytes()))
    });
    slices.collect()
}

/// Both copies of every leaf of the trees that names a file, but for those that hold something else
/// (the name `kept`, or attributes of one of these inodes, which lie behind the names where the
/// files went to another slice than their directory): some lose their names, and nothing else.
fn damage(pool: &Path, inodes: &[u64]) {
    let mut damaged = 0;
    for (name, mut image) in images(pool) {
        for page in image.chunks_mut(BLOCK) {
            let is_leaf = page.starts_with(b"NSTP") && page[5] == 0;
            let holds = |sought: &[u8]| page.windows(sought.len()).any(|bytes| bytes == sought);
            let names = || holds(b"lost-by-name") && !holds(b"kept");
            if is_leaf && names() && !inodes.iter().any(|ino| holds(&ino.to_be_bytes())) {
                damaged += 1;
                // more than its checksum can turn back
                page[500..600].iter_mut().for_each(|byte| *byte ^= 0xA5);
            }
        }
        std::fs::write(pool.join(name), image).unwrap();
    }
    assert!(damaged > 0, "no leaf has names only");
}

/// An unmounted pool with a damaged directory, and what a file in it held.
fn damaged() -> (Scratch, Vec<u8>) {
    let scratch = Scratch::new();
    let content = binary(20_000);
    scratch.ok(&["mkdir", ":/dir"]);
    for number in 0..60 {
        // entries and attributes in pages apart: the ones go, the others stay
        let name = format!(":/dir/lost-by-name-{number:02}-{}", "x".repeat(200));
        scratch.put(&name, &content[..100 + number]);
    }
    scratch.put(":/kept", &content);
    let inode = |listed: &serde_json::Value| listed["inode"].as_u64().unwrap();
    let listed = scratch.json(&["ls", ":/dir", "--json"]);
    let mut inodes: Vec<u64> = listed.as_array().unwrap().iter().map(inode).collect();
    inodes.push(inode(&scratch.json(&["stat", ":/kept", "--json"])));
    damage(&scratch.pool(), &inodes);
    (scratch, content)
}

fn undo_file(pool: &Path) -> String {
    let entries = std::fs::read_dir(pool).unwrap().flatten();
    let mut names = entries.map(|entry| entry.file_name().into_string().unwrap());
    let name = names.find(|name| name.ends_with(".undo")).unwrap();
    pool.join(name).display().to_string()
}

#[test]
fn nothing_is_written_where_nobody_can_be_asked() {
    let (scratch, _) = damaged();
    let pool = scratch.pool().display().to_string();
    let before = images(&scratch.pool());
    scratch.fails(&["check", &pool], 1, &["damaged in"]);
    let output = scratch.run(&["check", &pool, "--repair"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("/lost+found") && said.contains("pages to write"), "{said}");
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(complaint.contains("nothing was written; --yes repairs"), "{complaint}");
    let output = scratch.run(&["check", &pool, "--repair", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["written"], output.status.code()), (&false.into(), Some(1)));
    assert!(told["put_aside"].as_u64().unwrap() > 0, "{told}");
    assert_eq!(images(&scratch.pool()), before);
    scratch.fails(&["check", &pool, "--yes"], 2, &["--repair"]);
}

#[test]
fn a_repair_is_made_and_undone() {
    let (scratch, content) = damaged();
    let pool = scratch.pool().display().to_string();
    let before = images(&scratch.pool());
    let output = scratch.run(&["check", &pool, "--repair", "--yes"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("repaired; nearside check"), "{said}");
    scratch.ok(&["check", &pool]);
    let paths = scratch.all();
    assert!(paths.iter().any(|path| path.starts_with("/lost+found/#")), "{paths:?}");
    scratch.ok(&["cp", ":/kept", "@kept"]);
    assert!(std::fs::read(scratch.outside("kept")).unwrap() == content);
    // reading changed nothing
    let undo = undo_file(&scratch.pool());
    let told = scratch.json(&["check", &pool, "--undo", &undo, "--json"]);
    assert!(told["pages"].as_u64().unwrap() > 2, "{told}");
    assert_eq!(images(&scratch.pool()), before);
    scratch.ok(&["check", &pool, "--repair", "--yes", "--undo-file", &format!("{undo}.2")]);
    scratch.put(":/later", b"later");
    scratch.fails(&["check", &pool, "--undo", &format!("{undo}.2")], 1, &["changed since"]);
    let clean = scratch.ok(&["check", &pool, "--repair"]);
    assert!(clean.contains("nothing to repair"), "{clean}");
}

#[test]
fn who_is_asked_decides() {
    for (answer, writes) in [("\n", false), ("no\n", false), ("y\n", true)] {
        let (scratch, _) = damaged();
        let before = images(&scratch.pool());
        let pool = scratch.pool().display().to_string();
        let mut terminal = Terminal::start(&scratch, &["check", &pool, "--repair"], 200, 50);
        terminal.until("[y/N]");
        assert_eq!(images(&scratch.pool()), before);
        let (status, drawn) = terminal.answer(answer);
        assert_eq!(status.success(), writes, "{answer:?}: {drawn}");
        assert_eq!(images(&scratch.pool()) == before, !writes, "{answer:?}");
    }
}

#[test]
fn a_mounted_pool_is_not_repaired() {
    let Some(scratch) = Scratch::mounted() else { return };
    let pool = scratch.pool().display().to_string();
    scratch.fails(&["check", &pool, "--repair"], 1, &["unmount it first"]);
    scratch.fails(&["check", &pool, "--undo", "/nowhere"], 1, &["unmount it first"]);
    scratch.umount();
    scratch.fails(&["check", &pool, "--undo", "/nowhere"], 1, &["/nowhere"]);
    scratch.check();
}
