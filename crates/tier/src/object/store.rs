//! The kinds of object stores, by their URLs, and how each of them has one user at a time.

use object_store::ObjectStore;
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use object_store::{BackoffConfig, RetryConfig};
use parking_lot::Mutex;
use pool::{Error, Result};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Times that a request is made again, and how long after the first one at most; a request is given
/// up after 30 seconds (`AWS_TIMEOUT`).
const RETRIES: usize = 4;
const RETRIES_TIME: Duration = Duration::from_secs(60);

/// A place for a device.
#[derive(Debug)]
pub struct Place {
    /// As it was named.
    pub url: String,
    /// The store.
    pub store: Arc<dyn ObjectStore>,
    /// What all names in it begin with.
    pub prefix: ObjectPath,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Memory(String),
    Directory(PathBuf),
    Cloud,
}

/// The stores of this process, and whether each is in use.
static SHELVES: Mutex<BTreeMap<String, (Arc<InMemory>, bool)>> = Mutex::new(BTreeMap::new());

/// The device is in use, by this one.
#[derive(Debug)]
pub enum Claim {
    /// A store of this process, by its name.
    Memory(String),
    /// The lock of a directory; it goes when the file is closed.
    Directory { _lock: File },
    /// There is a lease.
    Cloud,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Claim::Memory(name) = self
            && let Some((_, in_use)) = SHELVES.lock().get_mut(name)
        {
            *in_use = false;
        }
    }
}

impl Place {
    /// The place that a URL names.
    pub fn parse(url: &str) -> Result<Place> {
        let bad = |what: &str| Error::Device(format!("{url}: {what}"));
        let place = |store, prefix, kind| Place { url: url.to_owned(), store, prefix, kind };
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(bad("is no URL"));
        };
        match (scheme, rest) {
            ("memory", name) if name.len() > 1 && name.starts_with('/') => {
                let mut shelves = SHELVES.lock();
                let (store, _) = shelves.entry(name.to_owned()).or_default();
                let store = store.clone();
                Ok(place(store, ObjectPath::default(), Kind::Memory(name.to_owned())))
            }
            ("file", path) if path.len() > 1 && path.starts_with('/') => {
                let dir = PathBuf::from(path);
                // a put is durable when it returns; without a prefix, names begin at the root
                let store = LocalFileSystem::new().with_fsync(true);
                let prefix = ObjectPath::from_absolute_path(&dir);
                let prefix = prefix.map_err(|error| bad(&error.to_string()))?;
                Ok(place(Arc::new(store), prefix, Kind::Directory(dir)))
            }
            ("s3", path) if !path.is_empty() && !path.starts_with('/') => {
                let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
                let prefix = ObjectPath::parse(prefix.trim_end_matches('/'));
                let prefix = prefix.map_err(|error| bad(&error.to_string()))?;
                let store = cloud(bucket).map_err(|error| bad(&error.to_string()))?;
                Ok(place(Arc::new(store), prefix, Kind::Cloud))
            }
            _ => Err(bad(
                "no object store that Nearside knows; write s3://BUCKET/PREFIX or file:///DIR",
            )),
        }
    }

    /// Whether other machines reach it, too: then what is put there has a condition, and the device
    /// a lease.
    pub fn is_shared(&self) -> bool {
        matches!(self.kind, Kind::Cloud)
    }

    fn io(&self, source: io::Error) -> Error {
        Error::Io { path: self.url.clone().into(), source }
    }

    /// Makes what a new device needs there.
    pub fn prepare(&self) -> Result<()> {
        let Kind::Directory(dir) = &self.kind else { return Ok(()) };
        make_dir(dir).map_err(|source| self.io(source))?;
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.open(dir.join("lock")).map(drop).map_err(|source| self.io(source))
    }

    /// Takes the device, as far as that can be done on this machine.
    pub fn claim(&self, read_only: bool) -> Result<Claim> {
        let in_use = || Error::DeviceInUse(self.url.clone().into());
        match &self.kind {
            Kind::Cloud => Ok(Claim::Cloud),
            Kind::Memory(name) => {
                let mut shelves = SHELVES.lock();
                let (_, is_taken) = shelves.entry(name.clone()).or_default();
                match std::mem::replace(is_taken, true) {
                    true => Err(in_use()),
                    false => Ok(Claim::Memory(name.clone())),
                }
            }
            Kind::Directory(dir) => {
                let lock = File::open(dir.join("lock")).map_err(|source| self.io(source))?;
                let how = match read_only {
                    true => FlockOperation::NonBlockingLockShared,
                    false => FlockOperation::NonBlockingLockExclusive,
                };
                match rustix::fs::flock(&lock, how) {
                    Ok(()) => Ok(Claim::Directory { _lock: lock }),
                    Err(Errno::WOULDBLOCK) => Err(in_use()),
                    Err(error) => Err(self.io(error.into())),
                }
            }
        }
    }
}

/// Makes a directory that only its owner reads, and those above it, for good.
fn make_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let above = dir.parent().unwrap_or(Path::new("/"));
    make_dir(above)?;
    DirBuilder::new().mode(0o700).create(dir)?;
    File::open(above)?.sync_all()
}

/// S3, or what speaks like it: where it is and who asks says the environment.
fn cloud(bucket: &str) -> object_store::Result<impl ObjectStore> {
    // who linked another one in has chosen it
    let _ = rustls::crypto::ring::default_provider().install_default();
    let retry = RetryConfig {
        max_retries: RETRIES,
        retry_timeout: RETRIES_TIME,
        backoff: BackoffConfig::default(),
    };
    let builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
    builder.with_conditional_put(S3ConditionalPut::ETagMatch).build()
}
