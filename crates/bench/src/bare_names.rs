//! A FUSE server with nothing behind it but a table of names in memory: one directory.

use nearside_fuse::wire::{
    AttrAnswer, EntryAnswer, NodeAttr, Operation, Reply, Request, open_flags,
};
use nearside_fuse::{Server, Wishes};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const ROOT: u64 = 1;
/// As long as a pool's mount trusts what only it can change.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The server.
#[derive(Default)]
pub struct BareNames(Mutex<Table>);

#[derive(Default)]
struct Table {
    names: HashMap<Vec<u8>, u64>,
    files: HashMap<u64, NodeAttr>,
    made: u64,
}

impl Table {
    fn attr(&self, number: u64) -> Option<NodeAttr> {
        let root = NodeAttr { ino: ROOT, mode: libc::S_IFDIR | 0o755, ..NodeAttr::default() };
        if number == ROOT { Some(root) } else { self.files.get(&number).copied() }
    }

    fn make(&mut self, name: &[u8]) -> NodeAttr {
        self.made += 1;
        let ino = ROOT + self.made;
        let mode = libc::S_IFREG | 0o644;
        let attr = NodeAttr { ino, mode, links: 1, block_bytes: 4096, ..NodeAttr::default() };
        self.names.insert(name.to_vec(), ino);
        self.files.insert(ino, attr);
        attr
    }

    /// Takes a name away, and the file that it stood for.
    fn remove(&mut self, name: &[u8]) -> Option<u64> {
        let ino = self.names.remove(name)?;
        self.files.remove(&ino);
        Some(ino)
    }

    fn rename(&mut self, name: &[u8], new_name: &[u8]) -> Option<()> {
        let ino = self.names.remove(name)?;
        if let Some(replaced) = self.names.insert(new_name.to_vec(), ino) {
            self.files.remove(&replaced);
        }
        Some(())
    }
}

impl BareNames {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn done(done: bool, reply: Reply<'_>) {
    if done { reply.done() } else { reply.error(libc::ENOENT) }
}

impl Server for BareNames {
    fn wishes(&self) -> Wishes {
        Wishes { sole_door: true, ..Wishes::default() }
    }

    fn serve(&self, request: &Request<'_>, reply: Reply<'_>) {
        match request.operation {
            Operation::Lookup { name } => {
                let table = self.table();
                let found = table.names.get(name).and_then(|ino| table.attr(*ino));
                drop(table);
                match found {
                    Some(attr) => reply.entry(&EntryAnswer::new(attr, FOR_EVER)),
                    None => reply.no_entry(FOR_EVER),
                }
            }
            Operation::Getattr { .. } => {
                let found = self.table().attr(request.head.node);
                match found {
                    Some(attr) => reply.attributes(&AttrAnswer::new(attr, FOR_EVER)),
                    None => reply.error(libc::ENOENT),
                }
            }
            Operation::Create { name, .. } => {
                let attr = self.table().make(name);
                reply.created(&EntryAnswer::new(attr, FOR_EVER), 1, open_flags::KEEP_CACHE);
            }
            Operation::Unlink { name } => {
                let removed = self.table().remove(name).is_some();
                done(removed, reply);
            }
            Operation::Rename { name, new_name, .. } => {
                let renamed = self.table().rename(name, new_name).is_some();
                done(renamed, reply);
            }
            Operation::Open { .. } => {
                reply.opened(1, open_flags::KEEP_CACHE);
            }
            Operation::Release { .. } => reply.done(),
            Operation::Forget { .. } | Operation::BatchForget(_) => reply.nothing(),
            _ => reply.error(libc::ENOSYS),
        }
    }
}
