//! Devices in object stores.

use crate::common::{content, find, make, pattern, scratch};
use crate::tier::{MIB, tiered};
use fs::FileSystem;
use pool::{FormatOptions, OpenOptions, SliceSpec};
use std::path::Path;

#[path = "../../../../tier/tests/object/server.rs"]
mod server;

/// A slice of 16 MiB, and a device at that URL.
fn above(url: &str) -> FormatOptions {
    let capacity = vec![SliceSpec { path: Some(url.into()), bytes: Some(96 * MIB) }];
    FormatOptions { capacity, ..tiered(1, 16 * MIB, &[]) }
}

fn open(dir: &Path) -> fs::Result<FileSystem> {
    FileSystem::open_pool(dir, &OpenOptions::default())
}

fn data(piece: u64) -> Vec<u8> {
    pattern(piece, 4 * MIB as usize)
}

/// Four times as much as the slice holds, a part of it written twice.
fn fill(fs: &FileSystem) {
    for piece in 0..16 {
        let file = make(fs, &format!("file{piece}"));
        if piece % 4 == 0 {
            fs.write(&file, 0, &data(piece + 100)).unwrap();
        }
        fs.write(&file, 0, &data(piece)).unwrap();
    }
    assert!(fs.tier_stats().unwrap().written_blocks * 4096 > 48 * MIB);
}

fn assert_all(fs: &FileSystem) {
    for piece in 0..16 {
        assert!(content(fs, &find(fs, &format!("file{piece}"))) == data(piece), "{piece}");
    }
}

#[test]
fn a_pool_above_an_object_store_is_what_it_was_when_it_is_opened_again() {
    let scratch = scratch();
    opened_again(&format!("file://{}", scratch.path().join("objects").display()));
    opened_again("memory:///fs");
}

#[test]
fn a_pool_above_a_server_is_what_it_was_when_it_is_opened_again() {
    let name = "tier::objects::a_pool_above_a_server_is_what_it_was_when_it_is_opened_again";
    server::on_s3(name, || opened_again("s3://bucket/pool"));
}

fn opened_again(url: &str) {
    let scratch = scratch();
    let dir = scratch.path().join("pool");
    fs::format(&dir, &above(url)).unwrap();
    assert_eq!(std::fs::read_link(dir.join("capacity.0")).unwrap(), Path::new(url));
    let fs = open(&dir).unwrap();
    fill(&fs);
    assert_all(&fs);
    fs.close().unwrap();
    drop(fs);
    let report = fs::check(&dir).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_all(&open(&dir).unwrap());
}

#[test]
fn an_object_store_that_is_anothers_or_in_use_is_refused() {
    let scratch = scratch();
    let dirs = ["one", "two"].map(|name| scratch.path().join(name));
    for (dir, url) in dirs.iter().zip(["memory:///of one", "memory:///of two"]) {
        fs::format(dir, &above(url)).unwrap();
    }
    let fs = open(&dirs[0]).unwrap();
    let again = fs::format(&scratch.path().join("three"), &above("memory:///of one")).unwrap_err();
    assert_eq!(again.errno(), libc::EBUSY, "{again}");
    let link = dirs[1].join("capacity.0");
    let link_to = |url: &str| {
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(url, &link).unwrap();
        open(&dirs[1]).map(drop)
    };
    let in_use = link_to("memory:///of one").unwrap_err();
    assert_eq!(in_use.errno(), libc::EBUSY, "{in_use}");
    drop(fs);
    let others = link_to("memory:///of one").unwrap_err().to_string();
    assert!(others.contains("belongs to another pool"), "{others}");
    let nothing = link_to("memory:///of nobody").unwrap_err().to_string();
    assert!(nothing.contains("is no device of a capacity tier"), "{nothing}");
    let again = fs::format(&scratch.path().join("three"), &above("memory:///of one")).unwrap_err();
    assert!(again.to_string().contains("holds a device"), "{again}");
    assert!(!scratch.path().join("three").exists(), "nothing is left");
    link_to("memory:///of two").unwrap();
}

#[test]
fn an_object_store_is_given_a_size() {
    let scratch = scratch();
    let dir = scratch.path().join("pool");
    let mut options = above("memory:///sized");
    options.capacity[0].bytes = None;
    let message = fs::format(&dir, &options).unwrap_err().to_string();
    assert!(message.contains("say how large"), "{message}");
    options.capacity[0].bytes = Some(4096);
    let message = fs::format(&dir, &options).unwrap_err().to_string();
    assert!(message.contains("at least 1048576 bytes"), "{message}");
    assert!(!dir.exists());
}
