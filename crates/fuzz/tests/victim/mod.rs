//! A small pool that is changed by hand, and what becomes of it.

use fs::{Creation, FileSystem, Ino, NewNode};
use fuzz::image::{Image, Kind, Part};
use fuzz::place::{Files, Place};
use fuzz::runner::scratch;
use fuzz::seal::seal;
use pool::{FormatOptions, SliceSpec};
use std::path::PathBuf;

pub const BY: Creation = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };

pub struct Victim {
    scratch: tempfile::TempDir,
    devices: usize,
}

impl Victim {
    /// An empty pool.
    pub fn new() -> Victim {
        Victim::above(0)
    }

    /// The same above so many devices.
    pub fn above(devices: usize) -> Victim {
        let victim = Victim { scratch: scratch().unwrap(), devices };
        let options = FormatOptions {
            slices: vec![SliceSpec::default()],
            slice_bytes: 1 << 20,
            process: true,
            capacity: vec![SliceSpec { path: None, bytes: Some(1 << 20) }; devices],
            ..FormatOptions::default()
        };
        fs::format(&victim.dir(), &options).unwrap();
        std::fs::rename(victim.dir().join("slice.0"), victim.files().path(0)).unwrap();
        victim
    }

    pub fn dir(&self) -> PathBuf {
        self.scratch.path().join("pool")
    }

    pub fn files(&self) -> Files {
        Files::new(&self.dir(), 1).with_devices(self.devices)
    }

    pub fn open(&self) -> fs::Result<FileSystem> {
        self.files().open(false)
    }

    /// Changes the image, and makes all checksums fit if it is to be `sealed`.
    pub fn change(&self, sealed: bool, change: impl FnOnce(&mut Image, &[Part])) {
        let mut image = self.files().image();
        let parts = image.parts();
        change(&mut image, &parts);
        if sealed {
            seal(&mut image, &parts);
        }
        self.files().hold(&image);
    }

    /// Findings of a check, or why it could not be made.
    pub fn findings(&self) -> String {
        match self.files().check() {
            Ok(report) => format!("{:?}", report.findings),
            Err(error) => error.to_string(),
        }
    }

    /// A repair leaves nothing that is wrong.
    #[track_caller]
    pub fn is_repaired(&self) {
        assert_ne!(self.findings(), "[]");
        let done = self.files().repair().unwrap();
        assert!(!done.is_empty());
        assert_eq!(self.findings(), "[]", "{done:?}");
        self.open().unwrap().close().unwrap();
    }

    /// Opening fails, and says all of `words`.
    #[track_caller]
    pub fn refused(&self, words: &[&str]) {
        let error = self.open().map(|_| ()).unwrap_err();
        assert_eq!(error.errno(), libc::EIO, "{error}");
        for word in words {
            assert!(error.to_string().contains(word), "{word:?} is not in {error}");
        }
    }
}

pub fn create(fs: &FileSystem, name: &str) {
    fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, BY).unwrap();
}

/// A pool that was killed, with a checkpoint between its two files.
pub fn with_a_checkpoint() -> Victim {
    let victim = Victim::new();
    let fs = victim.open().unwrap();
    create(&fs, "one");
    fs.checkpoint().unwrap();
    create(&fs, "two");
    drop(fs);
    victim
}

/// A closed pool with one file of so many bytes.
pub fn with_a_file(bytes: usize) -> Victim {
    let victim = Victim::new();
    let fs = victim.open().unwrap();
    create(&fs, "file");
    let file = fs.open(fs.lookup(Ino::ROOT, b"file").unwrap().ino).unwrap();
    fs.write(&file, 0, &vec![7; bytes]).unwrap();
    drop(file);
    fs.close().unwrap();
    victim
}

pub fn count(fs: &FileSystem) -> usize {
    let mut count = 0;
    fs.readdir(Ino::ROOT, 0, &mut |_| {
        count += 1;
        true
    })
    .unwrap();
    count
}

pub fn newest_root(image: &Image, parts: &[Part]) -> usize {
    let roots = parts.iter().filter(|part| part.kind == Kind::Root);
    roots.map(|part| part.at).max_by_key(|at| image.number(0, at + 24, 8)).unwrap()
}
