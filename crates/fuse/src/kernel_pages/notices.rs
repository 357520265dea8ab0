//! How a kernel is told to drop pages: by a thread that serves nothing, for meanwhile the kernel
//! waits for what fills its pages and for what writes them back.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use zerocopy::IntoBytes;

use super::{FilePages, KernelPages};
use crate::page_dropper::drop_pages as drop_pages_apart;
use crate::remote::Way;
use crate::wire::{Malformed, Notifier};

/// Tells a kernel to drop pages.
pub(crate) trait Tells: Send + Sync {
    /// What is owed of this file is to be told. Nobody is waited for.
    fn tell(&self, file: Arc<FilePages>);
}

/// A thread for what may wait; it begins with the first that comes, and ends with this.
pub(crate) struct Aside<T>(Mutex<Option<Sender<T>>>);

impl<T> Default for Aside<T> {
    fn default() -> Aside<T> {
        Aside(Mutex::new(None))
    }
}

impl<T> std::fmt::Debug for Aside<T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Aside").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Aside<T> {
    /// Has this done by the thread, which is called so and does `work`. False: there is none.
    pub(crate) fn give<F>(&self, name: &str, item: T, work: impl FnOnce() -> F) -> bool
    where
        F: FnMut(T) + Send + 'static,
    {
        let mut sender = self.0.lock();
        if sender.is_none() {
            let (send, receive): (Sender<T>, Receiver<T>) = channel();
            let work = work();
            let run = move || receive.into_iter().for_each(work);
            if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(run) {
                tracing::error!("no thread to tell a kernel what to drop: {error}");
                return false;
            }
            *sender = Some(send);
        }
        sender.as_ref().is_some_and(|sender| sender.send(item).is_ok())
    }
}

/// Tells a kernel of this machine.
pub(crate) struct Notices {
    notifier: Notifier,
    kernel: Weak<KernelPages>,
    aside: Aside<Arc<FilePages>>,
}

impl Notices {
    /// Tells by `notifier` what is owed to this kernel.
    pub(crate) fn new(notifier: Notifier, kernel: &Arc<KernelPages>) -> Notices {
        Notices { notifier, kernel: Arc::downgrade(kernel), aside: Aside::default() }
    }
}

/// Tells one kernel what it is to drop of a file, and waits until it has.
fn drop_pages(notifier: &Notifier, ino: u64, runs: &[(i64, i64)]) {
    for (offset, len) in runs {
        match drop_pages_apart(notifier, (ino, *offset, *len)) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return,
            Err(error) => tracing::debug!(ino, %error, "the kernel was told to drop pages"),
        }
    }
}

/// The kernel has dropped what it was told to.
fn ended(kernel: &Weak<KernelPages>, file: Arc<FilePages>) {
    let (ino, has_nothing) = (file.ino, file.end());
    drop(file);
    if has_nothing && let Some(kernel) = kernel.upgrade() {
        kernel.forget(ino);
    }
}

impl Tells for Notices {
    fn tell(&self, file: Arc<FilePages>) {
        let (notifier, kernel) = (self.notifier.clone(), self.kernel.clone());
        self.aside.give("ns-fuse-pages", file, || {
            move |file: Arc<FilePages>| {
                let runs = file.begin();
                if !runs.is_empty() {
                    drop_pages(&notifier, file.ino.0, &runs);
                    ended(&kernel, file);
                }
            }
        });
    }
}

/// Tells a kernel of another machine, by its forwarder.
pub(crate) struct AwayNotices {
    way: Arc<Way>,
    kernel: Weak<KernelPages>,
    said: Arc<Mutex<Said>>,
    aside: Aside<Arc<FilePages>>,
}

struct Said {
    last: u64,
    files: HashMap<u64, Arc<FilePages>>,
}

impl AwayNotices {
    /// Tells over this way what is owed to this kernel. `turn` counts its attachments: what it has
    /// dropped for an earlier service must not be taken for a notice of this one.
    pub(crate) fn new(way: Arc<Way>, kernel: &Arc<KernelPages>, turn: u32) -> AwayNotices {
        let said = Said { last: u64::from(turn) << 32, files: HashMap::new() };
        let (said, aside) = (Arc::new(Mutex::new(said)), Aside::default());
        AwayNotices { way, kernel: Arc::downgrade(kernel), said, aside }
    }

    /// The kernel has dropped what notice `number` told it to.
    pub(crate) fn heard(&self, number: u64) {
        let file = self.said.lock().files.remove(&number);
        if let Some(file) = file {
            ended(&self.kernel, file);
        }
    }

    /// There is another connection: notices may have been lost with the one before.
    pub(crate) fn say_again(&self) {
        let files: Vec<_> = self.said.lock().files.drain().map(|(_, file)| file).collect();
        files.iter().for_each(|file| file.tell_again());
    }
}

impl Tells for AwayNotices {
    fn tell(&self, file: Arc<FilePages>) {
        let (way, said) = (self.way.clone(), self.said.clone());
        // apart, for a network may make who says something wait
        self.aside.give("ns-away-pages", file, || {
            move |file: Arc<FilePages>| {
                let runs = file.begin();
                if !runs.is_empty() {
                    let notice = encode(file.ino.0, &runs);
                    let number = said.lock().add(file);
                    way.say_pages(number, notice);
                }
            }
        });
    }
}

impl Said {
    fn add(&mut self, file: Arc<FilePages>) -> u64 {
        self.last += 1;
        self.files.insert(self.last, file);
        self.last
    }
}

/// A notice as it goes over the network: the inode, and of each run offset and length, 8 bytes all.
fn encode(ino: u64, runs: &[(i64, i64)]) -> Vec<u8> {
    let mut bytes = ino.to_ne_bytes().to_vec();
    for (offset, len) in runs {
        bytes.extend_from_slice([*offset, *len].as_bytes());
    }
    bytes
}

/// Has the kernel drop what such a notice says; the thread waits until it has.
pub(crate) fn drop_as_told(notifier: &Notifier, notice: &[u8]) -> Result<(), Malformed> {
    let (ino, runs) = notice.split_first_chunk().ok_or(Malformed)?;
    let (words, rest) = runs.as_chunks();
    let (pairs, odd) = words.as_chunks::<2>();
    if !rest.is_empty() || !odd.is_empty() {
        return Err(Malformed);
    }
    let run =
        |[offset, len]: &[[u8; 8]; 2]| (i64::from_ne_bytes(*offset), i64::from_ne_bytes(*len));
    let runs: Vec<(i64, i64)> = pairs.iter().map(run).collect();
    drop_pages(notifier, u64::from_ne_bytes(*ino), &runs);
    Ok(())
}
