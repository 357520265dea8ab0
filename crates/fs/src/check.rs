//! Check: verifies everything that a closed pool stores, and changes nothing.
//!
//! The log is replayed in memory and folded into pages in memory, so that what is checked is the
//! state that an open would recover: one tree a slice, whatever the crash left.

use crate::attr::Stored;
use crate::core::Core;
use crate::dir::{Dirent, cookie_base};
use crate::error::Result;
use crate::keys;
use crate::leaf;
use crate::patches::Patches;
use crate::types::{FileKind, Ino};
use crate::xattr::Xattrs;
use pool::tree::{self, Key};
use pool::{
    BLOCK_BYTES, BlockAddr, Candidate, FoldView, Folded, GROUP_BLOCKS, OpenOptions, Pages, Pool,
    Recovery,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

/// Most findings of one run: a pool with more is not helped by a longer list.
const FINDINGS_MAX: usize = 1000;

/// One thing that `check` found wrong.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Where: a slice and byte, an inode.
    pub place: String,
    /// What is wrong.
    pub what: String,
}

/// What `check` saw.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Everything wrong; empty means clean.
    pub findings: Vec<Finding>,
    /// Inodes visited.
    pub inodes: u64,
    /// Data blocks whose checksums were verified.
    pub blocks: u64,
    /// Log records replayed in memory (0 after a clean close).
    pub records: u64,
}

impl CheckReport {
    fn add(&mut self, place: impl Into<String>, what: impl Into<String>) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { place: place.into(), what: what.into() });
        }
    }
}

/// Verifies everything that a closed pool stores; changes nothing.
pub fn check(dir: &Path) -> Result<CheckReport> {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let (pool, recovery) = Pool::open(dir, &options)?;
    check_pool(pool, &recovery)
}

/// The same for slices that are mapped already.
pub fn check_candidates(candidates: Vec<Candidate>) -> Result<CheckReport> {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let (pool, recovery) = Pool::open_candidates(candidates, &options)?;
    check_pool(pool, &recovery)
}

fn check_pool(pool: Pool, recovery: &Recovery) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    if recovery.left != Some(pool::Left::Crashed) {
        for damage in &recovery.damage {
            let place = format!("slice {}, byte {}", damage.slice, damage.offset);
            report.add(place, damage.what.clone());
        }
    }
    for note in pool.info().notes {
        report.add("superblock", note);
    }
    let core = Core::new(pool);
    match core.replay(recovery) {
        Ok(records) => report.records = records,
        Err(error) => {
            report.add("log", error.to_string());
            return Ok(report);
        }
    }
    let (batch, _) = core.encode();
    core.mark_named(&batch)?;
    let mut pages = Pages::in_memory();
    let folded = match core.pool.fold(&batch, &crate::checkpoint::FileBlocks, &mut pages) {
        Ok(folded) => folded,
        Err(error) => {
            report.add("log", format!("what it holds does not fit the trees: {error}"));
            return Ok(report);
        }
    };
    let view = FoldView::new(&core.pool, &pages);
    let mut checker = Checker { core: &core, report, state: State::default() };
    checker.trees(&view, &folded);
    checker.names();
    checker.space(&view, &folded);
    Ok(checker.report)
}

/// What the trees said about one inode.
#[derive(Default)]
struct Seen {
    stored: Option<Stored>,
    /// Entries that name it.
    names: u32,
    /// Of a directory: entries and subdirectories.
    entries: u64,
    subdirectories: u32,
    blocks: u64,
    symlink_bytes: u64,
    xattr_parts: BTreeMap<u64, Vec<u8>>,
    named_by: Option<Ino>,
}

#[derive(Default)]
struct State {
    inodes: BTreeMap<Ino, Seen>,
    orphans: HashSet<Ino>,
    /// Who owns each block.
    owners: HashMap<u64, Ino>,
    entries: Vec<(Ino, Dirent)>,
}

struct Checker<'c> {
    core: &'c Core,
    report: CheckReport,
    state: State,
}

impl Checker<'_> {
    fn trees(&mut self, view: &FoldView<'_>, folded: &Folded) {
        let mut pages = HashSet::new();
        for (kind, roots) in [("tree", &folded.trees), ("free-space tree", &folded.spaces)] {
            for (slice, root) in roots.iter().enumerate() {
                let mut twice = None;
                let walked = tree::walk(view, root, &mut |ptr, _| {
                    if !pages.insert(ptr.addr.bits()) {
                        twice = Some(ptr.addr);
                    }
                    Ok(())
                });
                if let Err(error) = walked {
                    self.report.add(format!("slice {slice}, {kind}"), error.to_string());
                }
                if let Some(addr) = twice {
                    self.report.add(place(addr), "two pages of the trees lie on one block");
                }
            }
        }
        for addr in pages {
            self.state.owners.insert(addr, Ino(0));
        }
        for (slice, root) in folded.trees.iter().enumerate() {
            let scanned = tree::scan(view, root, Key::MIN, Key::MAX, |key, value| {
                self.value(slice as u8, &key, value);
                Ok(true)
            });
            if let Err(error) = scanned {
                self.report.add(format!("slice {slice}, tree"), error.to_string());
            }
        }
    }

    fn value(&mut self, slice: u8, key: &Key, value: &[u8]) {
        if key.object == 0 {
            let fine = key.kind == keys::ORPHAN && keys::home(Ino(key.index)) == slice;
            if !fine {
                self.report.add(format!("slice {slice}, tree"), format!("{key:?} makes no sense"));
            }
            self.state.orphans.insert(Ino(key.index));
            return;
        }
        let ino = Ino(key.object);
        let fine = keys::home(ino) == slice && self.inode_value(ino, key, value).is_some();
        if !fine {
            self.report.add(inode_place(ino), format!("{key:?} holds a value that makes no sense"));
        }
    }

    fn inode_value(&mut self, ino: Ino, key: &Key, value: &[u8]) -> Option<()> {
        let seen = self.state.inodes.entry(ino).or_default();
        match key.kind {
            keys::INODE if key.index == 0 => seen.stored = Some(Stored::decode(value)?),
            keys::MAP => {
                if key.index > leaf::LEAF_INDEX_MAX {
                    return None;
                }
                let placed = leaf::decode(value)?;
                seen.blocks += placed.len() as u64;
                for (slot, placed) in placed {
                    let block = key.index * leaf::LEAF_BLOCKS + slot as u64;
                    self.block(ino, block, placed.addr, placed.crc);
                }
            }
            keys::PATCH => {
                if key.index / leaf::LEAF_BLOCKS > leaf::LEAF_INDEX_MAX {
                    return None;
                }
                Patches::decode(value)?;
            }
            keys::DIRENT => {
                let entry = Dirent::decode(value)?;
                seen.entries += 1;
                seen.subdirectories += u32::from(entry.kind == FileKind::Directory);
                if cookie_base(&self.core.hash_key, entry.name.bytes()) != key.index & !255 {
                    return None;
                }
                self.state.entries.push((ino, entry));
            }
            keys::XATTR => {
                seen.xattr_parts.insert(key.index, value.to_vec());
            }
            keys::SYMLINK => seen.symlink_bytes += value.len() as u64,
            _ => return None,
        }
        Some(())
    }

    fn block(&mut self, ino: Ino, block: u64, addr: BlockAddr, crc: u32) {
        let file_place = format!("inode {}, file offset {}", ino.0, block * BLOCK_BYTES);
        if !self.core.pool.contains(addr) {
            return self.report.add(file_place, "names a block that the pool does not have");
        }
        if let Some(other) = self.state.owners.insert(addr.bits(), ino) {
            let other = if other.0 == 0 { "the trees".into() } else { inode_place(other) };
            self.report.add(place(addr), format!("belongs to {} and to {other}", inode_place(ino)));
        }
        self.report.blocks += 1;
        match self.core.pool.crc(addr) {
            Ok(found) if found == crc => {}
            Ok(_) => self.report.add(file_place, format!("the data at {} is damaged", place(addr))),
            Err(error) => self.report.add(file_place, error.to_string()),
        }
    }

    fn names(&mut self) {
        for (dir, entry) in std::mem::take(&mut self.state.entries) {
            let what = |what: &str| {
                format!("entry {:?}: {what}", String::from_utf8_lossy(entry.name.bytes()))
            };
            let Some(seen) = self.state.inodes.get_mut(&entry.ino) else {
                self.report.add(inode_place(dir), what("names an inode that does not exist"));
                continue;
            };
            seen.names += 1;
            let is_dir = entry.kind == FileKind::Directory;
            if seen.stored.is_some_and(|stored| stored.kind != entry.kind) {
                self.report.add(inode_place(dir), what("its kind is not the inode's"));
            }
            if is_dir && seen.named_by.replace(dir).is_some() {
                self.report.add(inode_place(dir), what("a directory with two names"));
            }
        }
        let inodes = std::mem::take(&mut self.state.inodes);
        for (ino, seen) in &inodes {
            self.report.inodes += 1;
            self.inode(*ino, seen);
        }
        self.reachable(&inodes);
    }

    fn inode(&mut self, ino: Ino, seen: &Seen) {
        let Some(stored) = seen.stored else {
            return self.report.add(inode_place(ino), "has data but no attributes");
        };
        let is_dir = stored.kind == FileKind::Directory;
        let links = if is_dir { 2 + seen.subdirectories } else { seen.names };
        let orphan = self.state.orphans.contains(&ino);
        let links = if orphan { 0 } else { u64::from(links) };
        let mut counts = vec![
            ("the link count", u64::from(stored.links), links),
            ("the block count", stored.blocks, seen.blocks),
        ];
        if is_dir {
            counts.push(("the entry count", stored.size, seen.entries));
        }
        if stored.kind == FileKind::Symlink {
            counts.push(("the target's length", stored.size, seen.symlink_bytes));
        }
        let differs = |(name, stored, found): (&str, u64, u64)| {
            (stored != found).then(|| format!("{name} is {stored}, but {found} are there"))
        };
        let mut wrong: Vec<String> = counts.into_iter().filter_map(differs).collect();
        if !is_dir && seen.entries > 0 {
            wrong.push("has entries, but is no directory".to_owned());
        }
        if !orphan && ino != Ino::ROOT && seen.names == 0 {
            wrong.push("has no name".to_owned());
        }
        if Xattrs::from_parts(&seen.xattr_parts).is_none() {
            wrong.push("its extended attributes make no sense".to_owned());
        }
        if is_dir && ino != Ino::ROOT && !orphan && seen.named_by != Some(stored.parent) {
            wrong.push(format!("its parent is said to be inode {}", stored.parent.0));
        }
        wrong.into_iter().for_each(|what| self.report.add(inode_place(ino), what));
    }

    /// Every directory leads up to the root.
    fn reachable(&mut self, inodes: &BTreeMap<Ino, Seen>) {
        if !inodes.contains_key(&Ino::ROOT) {
            self.report.add("root directory", "is not there");
        }
        let mut good: HashSet<Ino> = HashSet::from([Ino::ROOT]);
        for (ino, seen) in inodes {
            let mut path = Vec::new();
            let mut at = (*ino, seen);
            while at.1.named_by.is_some() && !good.contains(&at.0) && path.len() <= inodes.len() {
                path.push(at.0);
                let up = at.1.named_by.unwrap_or(Ino::ROOT);
                match inodes.get(&up) {
                    Some(seen) => at = (up, seen),
                    None => break,
                }
            }
            if path.len() > inodes.len() {
                self.report.add(inode_place(*ino), "lies in a circle of directories");
            } else {
                good.extend(path);
            }
        }
    }

    /// The free-space bitmaps against the owners.
    fn space(&mut self, view: &FoldView<'_>, folded: &Folded) {
        let mut data: HashSet<u64> =
            self.state.owners.iter().filter(|(_, ino)| ino.0 != 0).map(|(addr, _)| *addr).collect();
        for (slice, root) in folded.spaces.iter().enumerate() {
            let mut wrong = Vec::new();
            let scanned = tree::scan(view, root, Key::MIN, Key::MAX, |key, value| {
                for (byte, bits) in value.iter().enumerate() {
                    for bit in (0..8).filter(|bit| bits & (1 << bit) != 0) {
                        let block = key.index * GROUP_BLOCKS + byte as u64 * 8 + bit;
                        let addr = BlockAddr::new(slice as u8, block);
                        if !data.remove(&addr.bits()) {
                            wrong.push(addr);
                        }
                    }
                }
                Ok(true)
            });
            if let Err(error) = scanned {
                self.report.add(format!("slice {slice}, free-space tree"), error.to_string());
            }
            for addr in wrong {
                self.report.add(place(addr), "is marked as used, but nobody owns it");
            }
        }
        for addr in data.into_iter().filter_map(BlockAddr::from_bits) {
            self.report.add(place(addr), "has an owner, but is marked as free");
        }
    }
}

fn place(addr: BlockAddr) -> String {
    format!("slice {}, byte {}", addr.slice(), addr.block() * BLOCK_BYTES)
}

fn inode_place(ino: Ino) -> String {
    format!("inode {}", ino.0)
}
