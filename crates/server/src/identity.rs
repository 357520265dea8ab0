//! Who attached processes are, beyond the end of a service.
//!
//! A service tells each process who it is, with a code that only a service of the same pool can
//! make: SipHash-2-4 with 128 bits, keyed by a secret of the pool's. So the next one knows a
//! process again, and what it had open, and has nothing to remember for that. The key lies in a
//! file that is its owner's, `nearside.attached`, with what services tell each other:
//!
//! ```text
//! key        32 hexadecimal digits
//! service    the number of the last service, which counts them
//! forgotten  the last service that has forgotten all who were not attached to it
//! ended      whether the last service ended in order, so that nobody comes back
//! ```
//!
//! A process that was attached to a service before `forgotten` may have made calls that nobody
//! remembers. It may come back, but is told so.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128, SipHasher24};
use wire::{Flags, Identity, Proof};

use crate::beside;
use crate::given_up::GivenUp;
use crate::{Error, Result};

/// What is in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Stored {
    key: String,
    service: u64,
    forgotten: u64,
    ended: bool,
}

/// Whose a process is: what it comes back as, or not at all.
#[derive(Clone, Copy, Debug)]
pub enum Whose<'w> {
    /// This user's.
    User(u32),
    /// That of an identity which has shown its certificate.
    Certified {
        /// Its name.
        name: &'w str,
        /// Its user.
        user: u32,
        /// The directory that it sees as the root.
        root: u64,
        /// Whether nothing that it asks for changes anything.
        read_only: bool,
    },
}

impl Whose<'_> {
    /// The user.
    pub fn user(self) -> u32 {
        match self {
            Whose::User(user) | Whose::Certified { user, .. } => user,
        }
    }
}

/// Who attached processes are.
#[derive(Debug)]
pub struct Identities {
    /// None: the next service knows nobody.
    path: Option<PathBuf>,
    key: [u8; 16],
    stored: Mutex<Stored>,
    /// Whom services have forgotten that have not heard of it.
    pub given_up: GivenUp,
    /// The service before this one did not end in order: who was attached may come back.
    pub awaits: bool,
}

fn random() -> Result<u128> {
    let mut bytes = [0; 16];
    let urandom = std::fs::File::open("/dev/urandom");
    urandom.and_then(|mut file| file.read_exact(&mut bytes)).map_err(Error::io("/dev/urandom"))?;
    Ok(u128::from_le_bytes(bytes))
}

fn hexadecimal(number: u128) -> String {
    format!("{number:032x}")
}

fn number(text: &str) -> Option<u128> {
    (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

impl Identities {
    /// Those of the pool whose secret is in this file; it is made if it is not there.
    pub fn open(path: Option<&Path>) -> Result<Identities> {
        let found = path.and_then(read);
        let awaits = found.as_ref().is_some_and(|stored| !stored.ended);
        let mut stored = match found {
            Some(stored) => stored,
            None => {
                let key = hexadecimal(random()?);
                Stored { key, service: 0, forgotten: 0, ended: false }
            }
        };
        stored.service += 1;
        stored.ended = false;
        if !awaits {
            stored.forgotten = stored.service;
        }
        let key = number(&stored.key).unwrap_or_default().to_le_bytes();
        let mut path = path.map(Path::to_path_buf);
        if let Some(Err(error)) = path.as_deref().map(|path| write(path, &stored)) {
            tracing::warn!("{error}; no process can come back to the next service");
            path = None;
        }
        let (given_up, is_read) = GivenUp::open(path.as_deref(), awaits);
        let identities = Identities { path, key, stored: Mutex::new(stored), given_up, awaits };
        if !is_read {
            identities.forget();
        }
        Ok(identities)
    }

    /// A process that was never here.
    pub fn draw(&self) -> Result<u128> {
        random()
    }

    /// The number of this service among those of the pool.
    pub fn service(&self) -> u64 {
        self.stored.lock().service
    }

    /// The key of the names that a mount's kernel has for inodes, which this pool's services know.
    pub fn names_for(&self, client: u128) -> [u8; 16] {
        self.code(&("names", client)).to_le_bytes()
    }

    fn code(&self, what: &impl Serialize) -> u128 {
        // where there is no memory it is nobody's code
        let bytes = wire::encode(what, Vec::new()).unwrap_or_default();
        let mut hasher = SipHasher24::new_with_key(&self.key);
        std::hash::Hasher::write(&mut hasher, &bytes);
        hasher.finish128().as_u128()
    }

    fn code_of(&self, client: u128, service: u64, whose: Whose<'_>) -> u128 {
        match whose {
            Whose::User(user) => self.code(&("process", client, service, user)),
            Whose::Certified { name, user, root, read_only } => {
                self.code(&("certified", client, service, user, name, root, read_only))
            }
        }
    }

    /// Who this process is, from this service on.
    pub fn identity(&self, client: u128, whose: Whose<'_>) -> Identity {
        let service = self.service();
        let proof = hexadecimal(self.code_of(client, service, whose));
        Identity { client: hexadecimal(client), service, proof }
    }

    /// The process that a service said this to, if one of this pool did, when it was the same's.
    pub fn recognize(&self, said: &Identity, whose: Whose<'_>) -> Option<u128> {
        let client = number(&said.client)?;
        let code = self.code_of(client, said.service, whose);
        (number(&said.proof) == Some(code)).then_some(client)
    }

    /// Whether what a process did is remembered, whom a service said this to.
    pub fn remembers(&self, said: &Identity) -> bool {
        let stored = self.stored.lock();
        (stored.forgotten..stored.service).contains(&said.service)
    }

    /// Whether it is known what a process did that comes back from a session of this service.
    pub fn knows_on(&self, client: u128, said: Option<&Identity>) -> bool {
        if self.given_up.is_forgotten(client) {
            return false;
        }
        // it may have lost the connection over which it was told that it is not known; or that was
        // told to somebody who repeated what it once said, as whom it does not come back
        !self.given_up.has(client) || said.is_some_and(|said| self.remembers(said))
    }

    /// What shows that a process has this open.
    pub fn proof(&self, client: u128, number: u64, ino: u64, flags: Option<Flags>) -> Proof {
        Proof(self.code(&("open", client, number, ino, flags)).to_le_bytes())
    }

    /// From now on nobody is remembered who is not attached to this service. False: that could not
    /// be written down.
    pub fn forget(&self) -> bool {
        let mut stored = self.stored.lock();
        let forgotten = stored.forgotten.max(stored.service);
        let is_saved = self.forget_before(&mut stored, forgotten);
        if is_saved {
            self.given_up.end_before();
        }
        is_saved
    }

    /// What a process did is about to be forgotten, which may come back to this service or to the
    /// next one. False: it could not be written down for that.
    pub fn give_up(&self, client: u128) -> bool {
        if self.given_up.add(client) {
            return true;
        }
        // then the next one remembers nobody
        let mut stored = self.stored.lock();
        let forgotten = stored.service.saturating_add(1);
        self.forget_before(&mut stored, forgotten)
    }

    fn forget_before(&self, stored: &mut Stored, forgotten: u64) -> bool {
        self.save(stored, Stored { forgotten, ..stored.clone() }) && self.sync()
    }

    /// Makes durable what was saved: before anything is forgotten.
    fn sync(&self) -> bool {
        let Some(path) = &self.path else { return true };
        let dir = path.parent().unwrap_or(Path::new("."));
        let synced = [path, dir].into_iter().try_for_each(beside::sync);
        synced.inspect_err(|error| tracing::warn!("{}: {error}", path.display())).is_ok()
    }

    /// This service ends in order.
    pub fn end(&self) {
        let mut stored = self.stored.lock();
        let ended = Stored { forgotten: stored.service, ended: true, ..stored.clone() };
        self.save(&mut stored, ended);
    }

    fn save(&self, stored: &mut Stored, new: Stored) -> bool {
        let written = self.path.as_deref().map_or(Ok(()), |path| write(path, &new));
        match written {
            Ok(()) => *stored = new,
            Err(error) => {
                tracing::warn!("{error}");
                return false;
            }
        }
        true
    }
}

/// What the file has; none where it is not there, or makes no sense.
fn read(path: &Path) -> Option<Stored> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!("{}: {error}", path.display());
            return None;
        }
    };
    let stored: Option<Stored> = serde_json::from_slice(&text).ok();
    let stored = stored.filter(|it| number(&it.key).is_some() && it.service < u64::MAX);
    if stored.is_none() {
        tracing::warn!("{}: it makes no sense, and is made anew", path.display());
    }
    stored
}

/// Puts a new file in the place of the old one. It need not survive a power cut, before somebody of
/// another machine relies on it ([`Holders`](crate::holders::Holders) makes it durable then).
fn write(path: &Path, stored: &Stored) -> Result<()> {
    let failed = |source| Error::Identities { path: path.to_path_buf(), source };
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let text = serde_json::to_vec(stored).map_err(|error| failed(error.into()))?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
    file.and_then(|mut file| file.write_all(&text)).map_err(failed)?;
    std::fs::rename(&new, path).map_err(failed)
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
