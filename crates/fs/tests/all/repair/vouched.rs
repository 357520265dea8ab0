//! What a repair gives back is right: of damaged images of a pool whose content is known, each file
//! reads as it was, or as an error, or is not in its place.

use crate::common::{BY, TestPool, pattern, random, scratch, slices};
use crate::repair::planted::{Images, read};
use fs::{FileKind, FileSystem, Ino, NewNode, RenameMode, SetAttr, repair_candidates};
use pool::{Candidate, FormatOptions, OpenOptions};
use std::collections::BTreeMap;
use std::path::PathBuf;

const BLOCK: usize = 4096;
/// Blocks of a slice with its superblock and roots.
const HEAD_BYTES: usize = 6 * BLOCK;
const LOG_FIRST: usize = 16;
/// Bytes of a line of the log.
const LINE: usize = 64;
/// What is done to the images, in turn.
const DAMAGES: [Damage; 4] =
    [Damage::Flips(1), Damage::Flips(8), Damage::Flips(200), Damage::Pages(3)];
const PIECE: usize = 3 * BLOCK;

/// What a file or a link holds, by path; directories apart.
type Model = BTreeMap<String, Vec<u8>>;

/// Damage of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Damage {
    /// So many flipped bits.
    Flips(usize),
    /// So many tree pages, all copies of each, are overwritten.
    Pages(usize),
}

/// What becomes of the pool before it is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Closed,
    Killed,
    /// Killed without a checkpoint ever.
    NeverFolded,
}

fn cases(few: u64, many: u64) -> u64 {
    if std::env::var("NEARSIDE_TESTS").is_ok_and(|tests| tests == "long") { many } else { few }
}

struct Planter<'f> {
    fs: &'f FileSystem,
    seed: u64,
    model: Model,
    dirs: Vec<(String, Ino)>,
}

impl Planter<'_> {
    fn below(&mut self, limit: usize) -> usize {
        (random(&mut self.seed) >> 11) as usize % limit
    }

    fn some_dir(&mut self) -> (String, Ino) {
        let at = self.below(self.dirs.len());
        self.dirs[at].clone()
    }

    /// A path that there is, with its directory and name.
    fn some_path(&mut self) -> Option<(String, Ino, String)> {
        let files: Vec<String> =
            self.model.keys().filter(|path| !path.contains("link")).cloned().collect();
        let at = self.below(files.len().max(1));
        let path = files.get(at)?.clone();
        let (above, name) = path.rsplit_once('/').unwrap();
        let dir = self.dirs.iter().find(|(dir, _)| dir == above).unwrap().1;
        Some((path.clone(), dir, name.to_owned()))
    }

    fn make(&mut self, number: usize) {
        let (path, dir) = self.some_dir();
        let name = format!("file-{number:04}-{}", "n".repeat(number % 60));
        let ino = self.fs.create(dir, name.as_bytes(), NewNode::File, BY).unwrap().ino;
        let path = format!("{path}/{name}");
        self.model.insert(path.clone(), Vec::new());
        let len = match self.below(4) {
            0 => 1 + self.below(200),
            1 => 1 + self.below(BLOCK),
            2 => BLOCK * (1 + self.below(4)),
            _ => return,
        };
        self.write(&path, ino, 0, len);
    }

    fn write(&mut self, path: &str, ino: Ino, at: usize, len: usize) {
        let bytes = pattern(random(&mut self.seed), len);
        let handle = self.fs.open(ino).unwrap();
        assert_eq!(self.fs.write(&handle, at as u64, &bytes).unwrap(), len);
        let content = self.model.get_mut(path).unwrap();
        content.resize(content.len().max(at + len), 0);
        content[at..at + len].copy_from_slice(&bytes);
    }

    fn change(&mut self) {
        let Some((path, dir, name)) = self.some_path() else { return };
        let ino = self.fs.lookup(dir, name.as_bytes()).unwrap().ino;
        match self.below(10) {
            0..=3 => {
                let (at, len) = (self.below(4 * BLOCK), 1 + self.below(2 * BLOCK));
                self.write(&path, ino, at, len);
            }
            4 | 5 => {
                let (at, len) = (self.below(3 * BLOCK), 1 + self.below(150));
                self.write(&path, ino, at, len);
            }
            6 => {
                let size = self.below(3 * BLOCK);
                let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
                self.fs.setattr(ino, &set).unwrap();
                self.model.get_mut(&path).unwrap().resize(size, 0);
            }
            7 => {
                let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
                self.fs.setattr(ino, &set).unwrap();
            }
            8 => {
                let (above, to) = self.some_dir();
                let new = format!("moved-{name}");
                let mode = RenameMode::Replace;
                let (from_name, to_name) = (name.as_bytes(), new.as_bytes());
                self.fs.rename((dir, from_name), (to, to_name), mode).unwrap();
                let content = self.model.remove(&path).unwrap();
                self.model.insert(format!("{above}/{new}"), content);
            }
            _ => {
                self.fs.unlink(dir, name.as_bytes()).unwrap();
                self.model.remove(&path);
            }
        }
    }

    fn link(&mut self, number: usize) {
        let (path, dir) = self.some_dir();
        let (name, target) = (format!("link-{number}"), format!("to/somewhere/{number}"));
        let node = NewNode::Symlink(target.as_bytes());
        self.fs.create(dir, name.as_bytes(), node, BY).unwrap();
        self.model.insert(format!("{path}/{name}"), target.into_bytes());
    }
}

/// The images of a pool with so many entries, and what it holds.
fn planted(options: &FormatOptions, entries: usize, end: End, seed: u64) -> (Images, Model) {
    let mut pool = TestPool::with(options);
    let fs = pool.start_alone();
    let dirs = vec![(String::new(), Ino::ROOT)];
    let mut planter = Planter { fs: &fs, seed: seed * 2 + 1, model: Model::new(), dirs };
    for number in 0..6 {
        let (path, dir) = planter.some_dir();
        let name = format!("dir{number}");
        let ino = fs.create(dir, name.as_bytes(), NewNode::Directory, BY).unwrap().ino;
        planter.dirs.push((format!("{path}/{name}"), ino));
    }
    for number in 0..entries {
        planter.make(number);
        match number % 20 {
            3 => planter.link(number),
            7 | 9 | 14 => planter.change(),
            _ => {}
        }
        if end != End::NeverFolded && number % (entries / 3).max(1) == entries / 4 {
            fs.checkpoint().unwrap();
        }
    }
    (0..entries / 4).for_each(|_| planter.change());
    let model = planter.model;
    match end {
        End::Closed => fs.close().unwrap(),
        End::Killed | End::NeverFolded => pool.kill(),
    }
    drop(fs);
    (read(&pool.dir()), model)
}

/// Damages a copy of these images.
fn damaged(good: &Images, halves: usize, damage: Damage, seed: u64) -> Images {
    match damage {
        Damage::Flips(flips) => flipped(good, halves, flips, seed),
        Damage::Pages(pages) => without_pages(good, pages, seed),
    }
}

fn without_pages(good: &Images, pages: usize, mut seed: u64) -> Images {
    let mut images = good.clone();
    let mut copies: BTreeMap<&[u8], Vec<(usize, usize)>> = BTreeMap::new();
    for (slice, image) in good.iter().enumerate() {
        for (number, block) in image.chunks(BLOCK).enumerate() {
            if block.starts_with(b"NSTP") {
                copies.entry(block).or_default().push((slice, number));
            }
        }
    }
    let copies: Vec<_> = copies.into_values().collect();
    for _ in 0..pages.min(copies.len()) {
        for (slice, number) in &copies[(random(&mut seed) >> 11) as usize % copies.len()] {
            images[*slice][number * BLOCK..][..BLOCK].fill(0xA5);
        }
    }
    images
}

/// Flips bits of superblocks and roots, of the log where it holds anything, and of tree pages;
/// slices are mirrored in the halves of the files, if there are two.
fn flipped(good: &Images, halves: usize, flips: usize, seed: u64) -> Images {
    let mut seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut images = good.clone();
    let (mut heads, mut log, mut trees) = (Vec::new(), Vec::new(), Vec::new());
    for (slice, image) in good.iter().enumerate() {
        let half_bytes = image.len() / halves;
        for (half, image) in image.chunks(half_bytes).enumerate() {
            let base = half * half_bytes;
            heads.push((slice, base, HEAD_BYTES));
            let is_page = |block: &[u8]| block.starts_with(b"NSTP");
            let first_page = image.chunks(BLOCK).position(is_page).unwrap_or(LOG_FIRST);
            for at in (LOG_FIRST * BLOCK..first_page * BLOCK).step_by(LINE) {
                if image[at..at + LINE].iter().any(|byte| *byte != 0) {
                    log.push((slice, base + at, LINE));
                }
            }
            let pages = image.chunks(BLOCK).enumerate().filter(|(_, block)| is_page(block));
            trees.extend(pages.map(|(number, _)| (slice, base + number * BLOCK, BLOCK)));
        }
    }
    let groups: Vec<_> = [heads, log.clone(), log, trees.clone(), trees].into_iter().collect();
    let groups: Vec<_> = groups.into_iter().filter(|group| !group.is_empty()).collect();
    for _ in 0..flips {
        let mut next = |limit: usize| (random(&mut seed) >> 11) as usize % limit;
        let group = &groups[next(groups.len())];
        let (slice, from, len) = group[next(group.len())];
        images[slice][from + next(len)] ^= 1 << next(8);
    }
    images
}

/// What was found in a repaired pool.
#[derive(Debug, Default)]
struct Tally {
    right: u64,
    errors: u64,
    missing: u64,
    wrong: Vec<String>,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.right += other.right;
        self.errors += other.errors;
        self.missing += other.missing;
    }
}

/// Repairs a copy of these images, and compares what comes back with what was there.
fn compare(images: &Images, model: &Model) -> Option<(Tally, fs::RepairReport)> {
    let dir = scratch();
    for (index, image) in images.iter().enumerate() {
        std::fs::write(dir.path().join(format!("slice.{index}")), image).unwrap();
    }
    let open = || -> pool::Result<Vec<Candidate>> {
        slices(dir.path()).iter().map(|path: &PathBuf| Candidate::open(path, false)).collect()
    };
    // both superblocks of a slice may be lost
    let report = repair_candidates(open().ok()?).unwrap();
    let fs = FileSystem::open_candidates(open().unwrap(), &OpenOptions::default(), false).unwrap();
    let mut tally = Tally::default();
    let mut seen = Vec::new();
    walk(&fs, Ino::ROOT, "", model, &mut seen, &mut tally);
    tally.missing = model.keys().filter(|path| !seen.contains(path)).count() as u64;
    fs.close().unwrap();
    Some((tally, report))
}

fn walk(
    fs: &FileSystem,
    dir: Ino,
    path: &str,
    model: &Model,
    seen: &mut Vec<String>,
    tally: &mut Tally,
) {
    let mut entries = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        entries.push((String::from_utf8(entry.name.clone()).unwrap(), entry.ino, entry.kind));
        true
    })
    .unwrap();
    for (name, ino, kind) in entries {
        let path = format!("{path}/{name}");
        match kind {
            _ if name == "." || name == ".." || path == "/lost+found" => {}
            FileKind::Directory => walk(fs, ino, &path, model, seen, tally),
            _ => {
                let expected = model.get(&path);
                match read_as(fs, ino, kind, expected) {
                    Ok(Some(what)) => tally.wrong.push(format!("{path}, inode {}: {what}", ino.0)),
                    Ok(None) => tally.right += 1,
                    Err(()) => tally.errors += 1,
                }
                seen.push(path);
            }
        }
    }
}

/// What is wrong with a file, piece by piece until one cannot be read.
fn read_as(
    fs: &FileSystem,
    ino: Ino,
    kind: FileKind,
    expected: Option<&Vec<u8>>,
) -> Result<Option<String>, ()> {
    if kind == FileKind::Symlink {
        let target = fs.readlink(ino).map_err(drop)?;
        let right = expected.is_some_and(|expected| *expected == target);
        return Ok((!right).then(|| "another target".to_owned()));
    }
    let handle = fs.open(ino).map_err(drop)?;
    let (mut all, mut piece) = (Vec::new(), vec![0; PIECE]);
    loop {
        let read = fs.read(&handle, all.len() as u64, &mut piece).map_err(drop)?;
        if read == 0 {
            break;
        }
        all.extend_from_slice(&piece[..read]);
        let expected = expected.and_then(|expected| expected.get(..all.len()));
        if expected.is_none_or(|expected| expected != all) {
            let zeros = all.iter().all(|byte| *byte == 0);
            return Ok(Some(format!("other bytes up to {}, zeros: {zeros}", all.len())));
        }
    }
    let Some(expected) = expected else { return Ok(Some("was not there".to_owned())) };
    let right = expected.len() == all.len();
    Ok((!right).then(|| format!("{} bytes instead of {}", all.len(), expected.len())))
}

/// Damages images of a pool so often, and repairs them.
fn all_vouched(options: &FormatOptions, entries: usize, ends: &[End], cases: u64) {
    let mut all = Tally::default();
    let (mut refused, mut flips) = (0, [1, 8, 200].map(|bits| (bits, Tally::default())));
    for end in ends {
        let (good, model) = planted(options, entries, *end, 7 + *end as u64);
        let (tally, _) = compare(&good, &model).unwrap();
        assert!(tally.right == model.len() as u64 && tally.wrong.is_empty(), "{tally:?}");
        for case in 0..cases / ends.len() as u64 {
            let damage = DAMAGES[case as usize % DAMAGES.len()];
            let halves = options.data_copies as usize;
            let images = damaged(&good, halves, damage, case + 1);
            let Some((tally, report)) = compare(&images, &model) else {
                refused += 1;
                continue;
            };
            all.add(&tally);
            for (_, of_bits) in flips.iter_mut().filter(|it| damage == Damage::Flips(it.0)) {
                of_bits.add(&tally);
            }
            if !tally.wrong.is_empty() && all.wrong.len() < 20 {
                let done: Vec<String> = report.done.iter().map(|it| format!("{it:?}")).collect();
                println!("{end:?}, case {case}, {damage:?}: {:#?}\n{done:#?}", tally.wrong);
            }
            all.wrong.extend(tally.wrong.first().map(|wrong| format!("{end:?} {case}: {wrong}")));
        }
    }
    println!(
        "{cases} images: {} with wrong files, {} files right, {} errors, {} not in their place, \
         {refused} refused",
        all.wrong.len(),
        all.right,
        all.errors,
        all.missing
    );
    assert!(all.wrong.is_empty(), "{:#?}", all.wrong);
    for (bits, of_bits) in flips {
        let lost = of_bits.errors + of_bits.missing;
        let least = if bits < 200 { 100 * lost } else { lost / 2 };
        assert!(of_bits.right > least, "{bits} flipped bits: {of_bits:?}");
    }
    assert!(refused <= cases / 4, "{refused} refused");
}

#[test]
fn files_of_repaired_pools_are_right_or_errors() {
    let (slice, entries) = if cases(0, 1) == 1 { (48 << 20, 900) } else { (8 << 20, 240) };
    let options = crate::common::options(2, slice);
    all_vouched(&options, entries, &[End::Closed, End::Killed], cases(24, 300));
}

#[test]
fn files_of_repaired_pools_that_were_never_folded_are_right_or_errors() {
    let options = crate::common::options(2, 8 << 20);
    all_vouched(&options, 240, &[End::NeverFolded], cases(16, 200));
}

#[test]
fn files_of_repaired_mirrored_pools_are_right_or_errors() {
    let options = FormatOptions { data_copies: 2, ..crate::common::options(2, 16 << 20) };
    all_vouched(&options, 240, &[End::Killed, End::Closed], cases(12, 150));
}
