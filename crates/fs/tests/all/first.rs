//! The shortest way through: format, change, close, open, check.

use nearside_fs_test::*;

mod nearside_fs_test {
    pub use fs::*;
    pub use pool::{FormatOptions, OpenOptions, SliceSpec};

    pub fn options(slices: usize, mib: u64) -> FormatOptions {
        FormatOptions {
            slices: vec![SliceSpec::default(); slices],
            slice_bytes: mib << 20,
            virtual_nodes: Some(slices as u32),
            process: true,
            ..FormatOptions::default()
        }
    }

    pub const BY: Creation = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };
}

fn clean(dir: &std::path::Path) -> CheckReport {
    let report = check(dir).unwrap();
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    report
}

#[test]
fn what_was_written_is_there_after_a_kill_and_after_a_close() {
    let dir = tempfile::tempdir().unwrap();
    fs::format(dir.path(), &options(2, 16)).unwrap();
    clean(dir.path());
    let data: Vec<u8> = (0..300_000u32).map(|i| (i * 7) as u8).collect();
    for round in 0..3 {
        let fs = FileSystem::open_pool(dir.path(), &OpenOptions::default()).unwrap();
        let name = format!("file{round}");
        let attr = fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, BY).unwrap();
        let handle = fs.open(attr.ino).unwrap();
        assert_eq!(fs.write(&handle, 1000, &data).unwrap(), data.len());
        fs.write(&handle, 5000, b"small").unwrap();
        fs.create(Ino::ROOT, format!("dir{round}").as_bytes(), NewNode::Directory, BY).unwrap();
        drop(handle);
        if round == 1 {
            fs.close().unwrap();
        }
        drop(fs);
        let report = clean(dir.path());
        assert_eq!(report.records > 0, round != 1);
    }
    let fs = FileSystem::open_pool(dir.path(), &OpenOptions::default()).unwrap();
    for round in 0..3 {
        let attr = fs.lookup(Ino::ROOT, format!("file{round}").as_bytes()).unwrap();
        assert_eq!(attr.size, 301_000);
        let handle = fs.open(attr.ino).unwrap();
        let mut expected = vec![0u8; 1000];
        expected.extend_from_slice(&data);
        expected[5000..5005].copy_from_slice(b"small");
        let mut seen = vec![1u8; 400_000];
        assert_eq!(fs.read(&handle, 0, &mut seen).unwrap(), 301_000);
        assert!(seen[..301_000] == expected[..], "round {round}");
    }
    let mut names = Vec::new();
    fs.readdir(Ino::ROOT, 0, &mut |entry| {
        names.push(String::from_utf8(entry.name.clone()).unwrap());
        true
    })
    .unwrap();
    names.sort();
    assert_eq!(names, ["dir0", "dir1", "dir2", "file0", "file1", "file2"]);
    fs.rename((Ino::ROOT, b"file0"), (Ino::ROOT, b"file1"), RenameMode::Replace).unwrap();
    fs.unlink(Ino::ROOT, b"file1").unwrap();
    fs.rmdir(Ino::ROOT, b"dir0").unwrap();
    fs.close().unwrap();
    drop(fs);
    clean(dir.path());
}

/// A file that grows by small appends takes a block at each block's first bytes, so that all that
/// follows goes into it in place; a small file, and the tail of one written at once, takes none.
#[test]
fn small_appends_fill_blocks_and_lone_tails_take_none() {
    let dir = tempfile::tempdir().unwrap();
    fs::format(dir.path(), &options(1, 16)).unwrap();
    let fs = FileSystem::open_pool(dir.path(), &OpenOptions::default()).unwrap();
    let create = |name: &str| {
        let attr = fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, BY).unwrap();
        fs.open(attr.ino).unwrap()
    };
    let blocks = |name: &str| fs.lookup(Ino::ROOT, name.as_bytes()).unwrap().sectors / 8;
    let tail = create("tail");
    fs.write(&tail, 0, &[3; 4096 + 100]).unwrap();
    assert_eq!(blocks("tail"), 1);
    let log = create("log");
    let mut model = Vec::new();
    for number in 0..200u8 {
        let piece = [number; 64];
        assert_eq!(fs.append(&log, &piece).unwrap(), model.len() as u64);
        model.extend_from_slice(&piece);
        match number {
            0..8 => assert_eq!(blocks("log"), 0, "a small file needs no block"),
            _ => assert_eq!(blocks("log"), 1 + u64::from(number) / 64),
        }
    }
    drop((log, tail, fs));
    clean(dir.path());
    let fs = FileSystem::open_pool(dir.path(), &OpenOptions::default()).unwrap();
    let log = fs.open(fs.lookup(Ino::ROOT, b"log").unwrap().ino).unwrap();
    let mut seen = vec![0; 20_000];
    assert_eq!(fs.read(&log, 0, &mut seen).unwrap(), model.len());
    assert_eq!(seen[..model.len()], model);
}
