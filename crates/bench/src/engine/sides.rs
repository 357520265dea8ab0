//! Those who take turns: the engine's program, and the mount that its files are on.

use super::{Load, RECORD_BYTES, System, TierTraffic};
use crate::door::options as mount_options;
use crate::error::{Result, io};
use crate::looped::{Kind, Looped};
use crate::options::Options;
use crate::peer::{Peer, Program};
use crate::tiered::{PoolShape, Tiered};
use nearside_fuse::{Mount, mount};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The engine.
pub const ROCKSDB: Program = Program {
    name: "RocksDB",
    source: include_str!("../../c/rocksdb.c"),
    library: "rocksdb",
    package: "librocksdb-dev",
    arguments: &[],
};

/// Bytes that its files may take, by those of its records: what it has compacted lies beside what
/// it compacts.
const ROOM: u64 = 4;
/// Of the slice's bytes one in so many is DRAM for the engine's cache, and as much for the pool's.
const CACHE_SHARE: u64 = 8;
const BLOCKS_PER_MIB: u64 = 256;

/// What its files are on.
enum Files {
    Ours { mount: Mount, pool: Tiered },
    Ext4(Looped),
}

/// One that takes turns.
pub struct Side {
    system: System,
    /// Before its files: it has them open.
    peer: Peer,
    files: Files,
}

/// A side, or why there is none.
pub type Running = std::result::Result<Side, String>;

impl Side {
    /// Starts it; returns when all records are loaded. Called where nobody else sees its mounts.
    pub fn start(
        system: System,
        options: &Options,
        load: &Load,
        programs: &Path,
    ) -> Result<Running> {
        let (dir, disk) = (options.dir(), options.disk());
        let bytes = ROOM * load.records * RECORD_BYTES;
        let files = match system {
            System::Ours => Ok(ours(dir, &disk, load, bytes)?),
            System::Ext4InMemory => Looped::new(dir, bytes, Kind::Ext4)?.map(Files::Ext4),
            System::Ext4OnDisk => Looped::new(&disk, bytes, Kind::Ext4)?.map(Files::Ext4),
        };
        let files = match files {
            Ok(files) => files,
            Err(why) => return Ok(Err(why)),
        };
        let arguments = [
            load.records.to_string(),
            RECORD_BYTES.to_string(),
            (load.slice_bytes / CACHE_SHARE).to_string(),
            load.clients.to_string(),
            u8::from(load.direct).to_string(),
        ];
        let [records, record, cache, clients, direct] = &arguments;
        let arguments: [&dyn AsRef<std::ffi::OsStr>; 5] = [records, record, cache, clients, direct];
        let peer = Peer::start(&ROCKSDB, programs, &files.dir().join("db"), &arguments)?;
        Ok(peer.map(|peer| Side { system, peer, files }))
    }

    /// Which it is.
    pub fn system(&self) -> System {
        self.system
    }

    /// The engine's name and version.
    pub fn version(&self) -> &str {
        self.peer.version.rsplit_once(' ').map_or("", |(version, _)| version)
    }

    /// What loading all records took.
    pub fn load_seconds(&self) -> f64 {
        let ns = self.peer.version.rsplit_once(' ').and_then(|(_, ns)| ns.parse::<f64>().ok());
        ns.unwrap_or(f64::NAN) / 1e9
    }

    /// Operations a second, of which so many of a hundred write.
    pub fn turn(&mut self, write_percent: u32, turn: Duration, seed: u64) -> Result<f64> {
        let took = self.peer.ask(&format!("{write_percent} {} {seed}", turn.as_millis()))?;
        match took[..] {
            [operations, ns] => Ok(operations as f64 / (ns as f64 / 1e9)),
            _ => Err(io(self.files.dir())(std::io::ErrorKind::InvalidData.into())),
        }
    }

    /// The durability domain of its pool.
    pub fn domain(&self) -> &'static str {
        match &self.files {
            Files::Ours { pool, .. } => pool.fs.info().domain,
            Files::Ext4(_) => "",
        }
    }

    /// What went to the tier, if it has one.
    pub fn tier(&self) -> TierTraffic {
        let Files::Ours { pool, .. } = &self.files else { return TierTraffic::default() };
        let stats = pool.tier();
        TierTraffic {
            written_mib: stats.written_blocks / BLOCKS_PER_MIB,
            read_mib: stats.read_blocks / BLOCKS_PER_MIB,
            delayed_ms: stats.delayed_ns / 1_000_000,
        }
    }

    /// Ends the program, and then the mount.
    pub fn close(self) -> Result<()> {
        drop(self.peer);
        match self.files {
            Files::Ours { mount, pool } => {
                mount.unmount()?;
                mount.wait()?;
                Ok(pool.fs.close()?)
            }
            Files::Ext4(ext4) => ext4.close(),
        }
    }
}

impl Files {
    fn dir(&self) -> &Path {
        match self {
            Files::Ours { mount, .. } => mount.dir(),
            Files::Ext4(ext4) => ext4.dir(),
        }
    }
}

fn ours(dir: &Path, disk: &Path, load: &Load, bytes: u64) -> Result<Files> {
    let shape = PoolShape {
        slice_bytes: load.slice_bytes,
        log_bytes: None,
        device_bytes: bytes,
        memory_bytes: load.slice_bytes / CACHE_SHARE,
        tier_cache_bytes: None,
    };
    let pool = Tiered::new(dir, disk, &shape)?;
    let place = made(pool.dir().join("mnt"))?;
    let mount = mount(pool.fs.clone(), &place, &mount_options())?;
    Ok(Files::Ours { mount, pool })
}

fn made(dir: PathBuf) -> Result<PathBuf> {
    std::fs::create_dir(&dir).map_err(io(&dir)).map(|()| dir)
}
