//! A pool, its connection, and who keeps it.

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use nearside::{FormatOptions, Pool, SliceSpec};
use nearside_fuse::{Connection, Mount, MountOptions, mounts};

/// A formatted pool and a place to mount it.
pub struct Scratch {
    pub root: tempfile::TempDir,
}

impl Scratch {
    pub fn new() -> Option<Scratch> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        if !nix::unistd::geteuid().is_root() || device.is_err() {
            println!("skipped: mounting takes root and /dev/fuse");
            return None;
        }
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("mnt")).unwrap();
        let options = FormatOptions {
            slices: vec![SliceSpec::default()],
            slice_bytes: 32 << 20,
            process: true,
            ..FormatOptions::default()
        };
        Pool::format(root.path().join("pool"), &options).unwrap();
        Some(Scratch { root })
    }

    pub fn pool(&self) -> Pool {
        Pool::open(self.root.path().join("pool")).unwrap()
    }

    pub fn dir(&self) -> PathBuf {
        self.root.path().join("mnt")
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = mounts::clear(&self.dir());
        }
    }
}

pub fn options(threads: usize) -> MountOptions {
    MountOptions { threads: Some(threads), sole_door: true, ..MountOptions::default() }
}

/// Another hold on a connection, as its keeper has.
pub fn keep(connection: &Connection) -> (OwnedFd, OwnedFd) {
    let (device, state) = connection.descriptors();
    (device.try_clone_to_owned().unwrap(), state.try_clone_to_owned().unwrap())
}

pub fn again(kept: &(OwnedFd, OwnedFd)) -> Connection {
    let (device, state) = kept;
    Connection::from_descriptors(device.try_clone().unwrap(), state.try_clone().unwrap()).unwrap()
}

pub fn end(mount: Mount, pool: &Pool) {
    mount.unmount().unwrap();
    mount.wait().unwrap();
    pool.close().unwrap();
}

/// Has a mount's server leave, whose threads are `threads`: each ends when it meets a request, and
/// `next` begins when all have. What they met is answered by the next one.
pub fn follow(
    mount: Mount,
    scratch: &Scratch,
    threads: usize,
    next: impl FnOnce() -> Mount,
) -> Mount {
    let left = mount.leave().unwrap();
    // Not scoped: when `next` fails, its caller lets go of the device, and that ends their wait.
    let meet = |number: usize| {
        let path = scratch.at(&format!("unknown {number}"));
        std::thread::spawn(move || path.try_exists().unwrap())
    };
    let met: Vec<_> = (0..threads).map(meet).collect();
    left.wait();
    let mount = next();
    for path_exists in met {
        assert!(!path_exists.join().unwrap());
    }
    mount
}
