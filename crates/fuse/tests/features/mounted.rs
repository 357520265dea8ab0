//! A pool that is mounted without some capability of the kernel's.

use std::fs::OpenOptions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nearside::{FormatOptions, Pool, SliceSpec};
use nearside_fuse::wire::Capabilities;
use nearside_fuse::{Error, Mount, MountOptions, connect, pool_server, serve_by};

use crate::asked::{Notes, Noting};

/// Mounted, with notes of what is asked.
pub struct Mounted {
    mount: Option<Mount>,
    pub pool: Pool,
    pub notes: Notes,
    root: tempfile::TempDir,
}

impl Mounted {
    /// A pool, mounted without the capabilities `masked`.
    pub fn without(masked: Capabilities, sole_door: bool) -> Option<Mounted> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        if !nix::unistd::geteuid().is_root() || device.is_err() {
            println!("skipped: mounting takes root and /dev/fuse");
            return None;
        }
        let root = tempfile::tempdir().unwrap();
        std::fs::set_permissions(root.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::create_dir(root.path().join("mnt")).unwrap();
        let options = FormatOptions {
            slices: vec![SliceSpec::default()],
            slice_bytes: 32 << 20,
            process: true,
            ..FormatOptions::default()
        };
        Pool::format(root.path().join("pool"), &options).unwrap();
        let pool = Pool::open(root.path().join("pool")).unwrap();
        let options =
            MountOptions { threads: Some(4), sole_door, masked, ..MountOptions::default() };
        let notes = Notes::default();
        let connection = connect(&root.path().join("mnt"), &options).unwrap();
        let server = |turn| Noting {
            of: pool_server(pool.fs().clone(), turn, &options),
            notes: notes.clone(),
        };
        let mount = serve_by(server, connection, &options).unwrap();
        Some(Mounted { mount: Some(mount), pool, notes, root })
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.root.path().join("mnt").join(name)
    }

    pub fn finish(mut self) {
        let mount = self.mount.take().unwrap();
        // A child that another test starts at the same moment holds files that this one has closed,
        // until it executes its program.
        let deadline = Instant::now() + Duration::from_secs(120);
        while let Err(error) = mount.unmount() {
            assert!(matches!(error, Error::Busy(_)) && Instant::now() < deadline, "{error}");
            std::thread::yield_now();
        }
        mount.wait().unwrap();
        self.pool.close().unwrap();
    }
}
