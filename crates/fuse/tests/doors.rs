//! Two doors to one pool at once, the library and a mount: what one changed, the other sees.
//!
//! Needs root and /dev/fuse; without them the tests say so and pass.

#![allow(missing_docs, clippy::unwrap_used)]

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nearside::{FormatOptions, Pool, SliceSpec};
use nearside_fuse::{Mount, MountOptions, mount, mounts};

struct Doors {
    pool: Pool,
    mount: Option<Mount>,
    root: tempfile::TempDir,
}

impl Doors {
    fn open() -> Option<Doors> {
        let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
        if !nix::unistd::geteuid().is_root() || device.is_err() {
            println!("skipped: mounting takes root and /dev/fuse");
            return None;
        }
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("mnt")).unwrap();
        let options = FormatOptions {
            slices: vec![SliceSpec::default()],
            slice_bytes: 32 << 20,
            virtual_nodes: None,
            process: true,
            log_bytes: None,
        };
        Pool::format(root.path().join("pool"), &options).unwrap();
        let pool = Pool::open(root.path().join("pool")).unwrap();
        let mount = mount(pool.fs().clone(), &root.path().join("mnt"), &MountOptions::default());
        Some(Doors { pool, mount: Some(mount.unwrap()), root })
    }

    /// A path in the mount.
    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join("mnt").join(name)
    }

    fn finish(mut self) {
        let mount = self.mount.take().unwrap();
        let dir = mount.dir().to_owned();
        mount.unmount().unwrap();
        mount.wait().unwrap();
        assert_eq!(mounts::at(&dir).unwrap(), None);
        self.pool.close().unwrap();
    }
}

#[test]
fn names_come_and_go_on_both_sides() {
    let Some(doors) = Doors::open() else { return };
    for round in 0..20 {
        let name = format!("f{}", round % 3);
        assert!(!doors.at(&name).exists());
        doors.pool.write(&name, "library").unwrap();
        assert_eq!(std::fs::read(doors.at(&name)).unwrap(), b"library");
        doors.pool.rename(&name, "moved").unwrap();
        assert!(!doors.at(&name).exists());
        assert_eq!(std::fs::read_dir(doors.at("")).unwrap().count(), 1);
        std::fs::remove_file(doors.at("moved")).unwrap();
        assert!(!doors.pool.exists("moved").unwrap());
        assert_eq!(std::fs::read_dir(doors.at("")).unwrap().count(), 0);
    }
    doors.finish();
}

#[test]
fn bytes_and_sizes_are_seen_through_descriptors_that_stay_open() {
    let Some(doors) = Doors::open() else { return };
    let inside = doors.pool.create_file("f").unwrap();
    let mut outside =
        std::fs::OpenOptions::new().read(true).append(true).open(doors.at("f")).unwrap();
    for round in 0..20u8 {
        inside.append(&[round; 100]).unwrap();
        let mut got = [0; 100];
        outside.read_exact(&mut got).unwrap();
        assert_eq!(got, [round; 100]);
        outside.write_all(&[round + 100; 50]).unwrap();
        inside.read_exact_at(&mut got[..50], u64::from(round) * 150 + 100).unwrap();
        assert_eq!(got[..50], [round + 100; 50]);
        assert_eq!(std::fs::metadata(doors.at("f")).unwrap().size(), u64::from(round) * 150 + 150);
    }
    inside.write_all_at(b"changed in place", 0).unwrap();
    assert!(std::fs::read(doors.at("f")).unwrap().starts_with(b"changed in place"));
    inside.set_len(3).unwrap();
    assert_eq!(std::fs::read(doors.at("f")).unwrap(), b"cha");
    doors.pool.set_permissions("f", 0o600).unwrap();
    assert_eq!(std::fs::metadata(doors.at("f")).unwrap().mode() & 0o7777, 0o600);
    drop(outside);
    doors.finish();
}

#[test]
fn a_dropped_mount_is_gone_and_the_pool_goes_on() {
    let Some(mut doors) = Doors::open() else { return };
    std::fs::write(doors.at("f"), "x").unwrap();
    drop(doors.mount.take());
    assert!(!doors.at("f").exists());
    assert_eq!(doors.pool.read("f").unwrap(), b"x");
    doors.pool.close().unwrap();
}
