//! Servers that fail, and kernels that can do less.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use nearside_fuse::wire::{AttrAnswer, Capabilities, NodeAttr, Operation, Reply, Request};
use nearside_fuse::{MountOptions, Server, Wishes, mount_server};

use crate::support::{Scratch, options};

/// A server that knows one name, and panics over another.
struct Panics;

impl Server for Panics {
    fn wishes(&self) -> Wishes {
        Wishes::default()
    }

    fn serve(&self, request: &Request<'_>, reply: Reply<'_>) {
        match request.operation {
            Operation::Lookup { name: b"panic" } => panic!("asked to"),
            Operation::Lookup { name: b"silence" } => drop(reply),
            Operation::Getattr { .. } => {
                let mode = libc::S_IFDIR | 0o755;
                let root = NodeAttr { ino: 1, mode, links: 1, ..NodeAttr::default() };
                reply.attributes(&AttrAnswer::new(root, Duration::ZERO));
            }
            _ => reply.error(libc::ENOSYS),
        }
    }
}

#[test]
fn a_panic_costs_one_request_and_no_reply_is_an_error() {
    let Some(scratch) = Scratch::new() else { return };
    let mount = mount_server(Panics, &scratch.dir(), &options(1)).unwrap();
    let errno = |name: &str| {
        let met = std::fs::symlink_metadata(scratch.at(name)).unwrap_err();
        met.raw_os_error().unwrap()
    };
    for name in ["panic", "silence", "panic"] {
        assert_eq!(errno(name), libc::EIO);
    }
    assert_eq!(errno("unknown"), libc::ENOSYS);
    mount.unmount().unwrap();
    mount.wait().unwrap();
}

fn works(dir: &Path) {
    let file = dir.join("file");
    std::fs::write(&file, vec![7; 3 << 20]).unwrap();
    std::fs::write(&file, "shorter").unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), b"shorter");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o6755)).unwrap();
    let link = dir.join("link");
    std::os::unix::fs::symlink("file", &link).unwrap();
    assert_eq!(std::fs::read_link(&link).unwrap(), Path::new("file"));
    std::fs::rename(&file, dir.join("renamed")).unwrap();
    assert!(!file.exists());
    std::fs::create_dir(dir.join("sub")).unwrap();
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 3);
    let opened = File::options().write(true).open(dir.join("renamed")).unwrap();
    opened.write_all_at(b"SH", 0).unwrap();
    let mode = std::fs::metadata(dir.join("renamed")).unwrap().mode();
    // Root may keep set-id bits at a write.
    assert_eq!((mode & 0o777, opened.metadata().unwrap().size()), (0o755, 7));
    for name in ["renamed", "link"] {
        std::fs::remove_file(dir.join(name)).unwrap();
    }
    std::fs::remove_dir(dir.join("sub")).unwrap();
}

/// Older kernels have less; so does each capability alone.
#[test]
fn files_work_without_any_one_capability_and_without_all() {
    let Some(scratch) = Scratch::new() else { return };
    let pool = scratch.pool();
    let singly = (0..40).map(|bit| Capabilities(1 << bit));
    for masked in [Capabilities::default(), Capabilities(u64::MAX)].into_iter().chain(singly) {
        let options = MountOptions { masked, ..options(2) };
        let mount = nearside_fuse::mount(pool.fs().clone(), &scratch.dir(), &options).unwrap();
        works(&scratch.dir());
        mount.unmount().unwrap();
        mount.wait().unwrap();
    }
    pool.close().unwrap();
}
