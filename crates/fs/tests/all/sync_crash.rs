//! The `sync` domain through a crash of the machine: whatever un-synced pages reached the medium,
//! in any order and torn between sectors, what survives is a prefix of history that holds
//! everything up to the last sync that returned.

use fs::{Creation, FileSystem, Ino, NewNode, RenameMode, SetAttr};
use pmem::recorder::{Event, EventKind, Recorder};
use pmem::{Domain, Mapping};
use pool::{Candidate, FormatOptions, OpenOptions, SliceSpec};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

const SECTOR: usize = 512;
const STATE: usize = 3 * 4096;
/// The boot in which crashed pools were open.
pub const ANOTHER_BOOT: [u8; 16] = [0xAB; 16];

/// What the page cache holds of each slice, and what the medium holds for certain.
pub struct Medium {
    pub slices: Mutex<Vec<(Vec<u8>, Vec<u8>)>>,
    /// Crashes in the middle of a sync, to be looked at after it.
    during: Mutex<Vec<Vec<Vec<u8>>>>,
    dice: Mutex<Dice>,
}

impl Medium {
    pub fn new(base: &[Vec<u8>], seed: u64) -> Arc<Medium> {
        let pairs = base.iter().map(|image| (image.clone(), image.clone())).collect();
        Arc::new(Medium {
            slices: Mutex::new(pairs),
            during: Mutex::default(),
            dice: Mutex::new(Dice(seed)),
        })
    }
}

impl Recorder for Medium {
    fn event(&self, event: Event<'_>) {
        let mut slices = self.slices.lock().unwrap();
        match event.kind {
            EventKind::Store { offset, data } | EventKind::NtStore { offset, data } => {
                let (cached, _) = &mut slices[event.mapping as usize];
                cached[offset as usize..offset as usize + data.len()].copy_from_slice(data);
            }
            EventKind::Sync => {
                let mut dice = self.dice.lock().unwrap();
                if dice.roll(2) == 0 {
                    self.during.lock().unwrap().push(crashed(&slices, &mut dice));
                }
                let (cached, synced) = &mut slices[event.mapping as usize];
                synced.copy_from_slice(cached);
            }
            EventKind::Flush { .. } | EventKind::Fence => {}
        }
    }
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }
}

/// Names with the length and a checksum per block of what is behind them.
pub type State = BTreeMap<Vec<u8>, (usize, Vec<u32>)>;

pub fn state(fs: &FileSystem) -> State {
    let mut names = Vec::new();
    fs.readdir(Ino::ROOT, 0, &mut |entry| {
        names.push((entry.name.clone(), entry.ino));
        true
    })
    .unwrap();
    let read = |(name, ino): (Vec<u8>, Ino)| {
        let handle = fs.open(ino).unwrap();
        let mut content = vec![0; fs.getattr(ino).unwrap().size as usize];
        assert_eq!(fs.read(&handle, 0, &mut content).unwrap(), content.len());
        let sums = content.chunks(4096).map(|block| pmem::crc32c(0, block)).collect();
        (name, (content.len(), sums))
    };
    names.into_iter().map(read).collect()
}

pub fn open(images: Vec<Vec<u8>>, recorder: Option<Arc<dyn Recorder>>) -> FileSystem {
    try_open(images, recorder).unwrap()
}

pub fn try_open(
    images: Vec<Vec<u8>>,
    recorder: Option<Arc<dyn Recorder>>,
) -> Result<FileSystem, fs::Error> {
    let candidates = images.into_iter().enumerate().map(|(id, image)| {
        let mapping = Mapping::memory_from(&image, Domain::Sync).unwrap();
        mapping.set_id(id as u32);
        mapping.set_recorder(recorder.clone());
        Candidate::from_mapping(Path::new("memory"), mapping, false).unwrap()
    });
    FileSystem::open_candidates(candidates.collect(), &OpenOptions::default(), false)
}

pub fn formatted(slices: usize, bytes: usize) -> Vec<Vec<u8>> {
    let medium = Medium::new(&vec![vec![0; bytes]; slices], 1);
    let mappings = (0..slices).map(|id| {
        let mapping = Mapping::memory(bytes, Domain::Sync).unwrap();
        mapping.set_id(id as u32);
        mapping.set_recorder(Some(medium.clone()));
        mapping
    });
    let options = FormatOptions {
        slices: vec![SliceSpec::default(); slices],
        slice_bytes: bytes as u64,
        virtual_nodes: Some(slices as u32),
        ..FormatOptions::default()
    };
    fs::format_mappings(mappings.collect(), &options).unwrap();
    let slices = medium.slices.lock().unwrap();
    slices.iter().map(|(cached, _)| cached.clone()).collect()
}

fn name(dice: &mut Dice) -> Vec<u8> {
    format!("file{}", dice.roll(6)).into_bytes()
}

/// One random change; it may find that it cannot be made.
fn change(fs: &FileSystem, dice: &mut Dice) {
    let by = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };
    let target = name(dice);
    let found = fs.lookup(Ino::ROOT, &target).map(|attr| attr.ino);
    let ino = found.or_else(|_| fs.create(Ino::ROOT, &target, NewNode::File, by).map(|a| a.ino));
    let ino = ino.unwrap();
    match dice.roll(12) {
        0 => drop(fs.unlink(Ino::ROOT, &target).unwrap()),
        1 => {
            let to = name(dice);
            fs.rename((Ino::ROOT, &target), (Ino::ROOT, &to), RenameMode::Replace).unwrap();
        }
        2 => {
            let size = Some(dice.roll(60_000));
            fs.setattr(ino, &SetAttr { size, ..SetAttr::default() }).unwrap();
        }
        // one block: one record
        3 | 4 => {
            let Ok(source) = fs.lookup(Ino::ROOT, &name(dice)) else { return };
            let (source, target) = (fs.open(source.ino).unwrap(), fs.open(ino).unwrap());
            let (from, to) = (dice.roll(8) * 4096, dice.roll(8) * 4096);
            if source.ino() != ino || from != to {
                fs.copy((&source, from), (&target, to), 4096).unwrap();
            }
        }
        _ => {
            let handle = fs.open(ino).unwrap();
            let len = [7, 100, 600, 4096, 9000, 20_000][dice.roll(6) as usize];
            let data = vec![dice.roll(256) as u8; len];
            let offset = dice.roll(8) * 4096 + [0, 0, 33][dice.roll(3) as usize];
            fs.write(&handle, offset, &data).unwrap();
        }
    }
}

/// The medium after a crash: of what was not synced, any sectors.
fn crashed(slices: &[(Vec<u8>, Vec<u8>)], dice: &mut Dice) -> Vec<Vec<u8>> {
    // sometimes nearly all of it arrived, sometimes nearly nothing
    let share = dice.roll(11);
    let images = slices.iter().map(|(cached, synced)| {
        let mut image = synced.clone();
        for (at, sector) in image.chunks_mut(SECTOR).enumerate() {
            let new = &cached[at * SECTOR..at * SECTOR + SECTOR];
            if sector != new && dice.roll(10) < share {
                sector.copy_from_slice(new);
            }
        }
        another_boot(&mut image);
        image
    });
    images.collect()
}

/// The pool was open in a boot that is over.
pub fn another_boot(image: &mut [u8]) {
    if &image[STATE..STATE + 8] != b"NSSTATE1" {
        return;
    }
    image[STATE + 8..STATE + 24].copy_from_slice(&ANOTHER_BOOT);
    sign_state(image);
}

/// It was open on the medium of this number; 1: it is not known on which.
pub fn on_medium(image: &mut [u8], number: u32) {
    image[STATE + 24..STATE + 28].copy_from_slice(&number.to_le_bytes());
    image[STATE + 40..STATE + 44].fill(0);
    sign_state(image);
}

fn sign_state(image: &mut [u8]) {
    let crc = pmem::crc32c(0, &image[STATE..STATE + 44]);
    image[STATE + 44..STATE + 48].copy_from_slice(&crc.to_le_bytes());
}

/// Opens what is left of slices.
type Reopen<'r> = &'r dyn Fn(Vec<Vec<u8>>) -> FileSystem;

fn reopened(images: Vec<Vec<u8>>) -> FileSystem {
    open(images, None)
}

/// Changes and crashes, after which `reopen` opens what is left of the slices; gives the crashes.
pub fn history(seed: u64, changes: usize, reopen: Reopen<'_>) -> usize {
    let mut dice = Dice(seed);
    let base = formatted(2, 2 << 20);
    let medium = Medium::new(&base, seed);
    let fs = open(base, Some(medium.clone()));
    let cpus = topology::allowed_cpus().unwrap();
    let mut states = vec![state(&fs)];
    let (mut durable, mut crashes) = (0, 0);
    for _ in 0..changes {
        // the lanes are the CPUs': history runs over several of them
        let cpu = cpus[dice.roll(cpus.len() as u64) as usize];
        topology::pin_current_thread(&[cpu]).unwrap();
        change(&fs, &mut dice);
        states.push(state(&fs));
        // crashes during a checkpoint that the change itself needed
        crashes += survive(&medium, &states[durable..], seed, reopen);
        let synced = match dice.roll(120) {
            0 => fs.sync().is_ok(),
            1 => fs.checkpoint().is_ok(),
            // the writes that follow to this file put their data into the log
            9..12 => fs.lookup(Ino::ROOT, &name(&mut dice)).is_ok_and(|attr| {
                let file = fs.open(attr.ino).unwrap();
                fs.fsync(&file).is_ok()
            }),
            2..9 => {
                let image = crashed(&medium.slices.lock().unwrap(), &mut dice);
                medium.during.lock().unwrap().push(image);
                false
            }
            _ => false,
        };
        crashes += survive(&medium, &states[durable..], seed, reopen);
        if synced {
            durable = states.len() - 1;
        }
    }
    crashes
}

/// Opens what the crashes since the last call left; each must be one of the legal states.
fn survive(medium: &Medium, legal: &[State], seed: u64, reopen: Reopen<'_>) -> usize {
    let images = std::mem::take(&mut *medium.during.lock().unwrap());
    let count = images.len();
    for image in images {
        let survivor = reopen(image);
        let seen = state(&survivor);
        // a change may be two records: the creation of the file, then what is done to it
        let fine = legal.iter().any(|state| prefix_of(state, &seen));
        assert!(fine, "seed {seed}: not one of the {} states since the last sync", legal.len());
        survivor.close().unwrap();
    }
    count
}

/// Whether `seen` is this state, or it with one empty file more.
fn prefix_of(state: &State, seen: &State) -> bool {
    let empty_more =
        seen.iter().filter(|(name, content)| !state.contains_key(*name) && content.0 == 0);
    state == seen
        || (seen.len() == state.len() + 1
            && empty_more.count() == 1
            && state.iter().all(|(name, content)| seen.get(name) == Some(content)))
}

#[test]
fn what_survives_a_machine_crash_is_a_prefix_of_history_with_all_that_was_synced() {
    let crashes: usize = (1..=12).map(|seed| history(seed * 7919, 400, &reopened)).sum();
    assert!(crashes > 200, "only {crashes} crashes were tried");
}

const FILES: u64 = 6;
const FILE_BLOCKS: u64 = 16;

/// Overwrites, of which some only share a block, in a pool so full that a block freed is soon
/// needed again. Gives how many crashes were survived, and how often an overwrite took a block that
/// another one had freed.
fn full_history(seed: u64, changes: usize, shares: u64) -> (usize, usize) {
    let mut dice = Dice(seed);
    let base = formatted(1, 1 << 20);
    let medium = Medium::new(&base, seed);
    let fs = open(base, Some(medium.clone()));
    // one CPU: what is freed is passed on in batches of each
    topology::pin_current_thread(&topology::allowed_cpus().unwrap()[..1]).unwrap();
    let by = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };
    let make = |file: u64| {
        let name = format!("file{file}");
        let attr = fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, by).unwrap();
        let handle = fs.open(attr.ino).unwrap();
        fs.write(&handle, 0, &vec![file as u8; FILE_BLOCKS as usize * 4096]).unwrap();
        handle
    };
    let handles: Vec<_> = (0..FILES).map(make).collect();
    fs.sync().unwrap();
    medium.during.lock().unwrap().clear();
    let mut states = vec![state(&fs)];
    let (mut crashes, mut blocks) = (0, 0);
    for _ in 0..changes {
        let count = 1 + dice.roll(4);
        let data = vec![dice.roll(256) as u8; count as usize * 4096];
        let offset = dice.roll(FILE_BLOCKS - count) * 4096;
        let target = &handles[dice.roll(FILES) as usize];
        if dice.roll(10) < shares {
            let source = &handles[dice.roll(FILES) as usize];
            let from = dice.roll(FILE_BLOCKS) * 4096;
            if source.ino() != target.ino() || from != offset {
                fs.copy((source, from), (target, offset), 4096).unwrap();
            }
        } else {
            fs.write(target, offset, &data).unwrap();
            blocks += count as usize;
        }
        states.push(state(&fs));
        if dice.roll(6) == 0 {
            let image = crashed(&medium.slices.lock().unwrap(), &mut dice);
            medium.during.lock().unwrap().push(image);
        }
        let synced = match dice.roll(150) {
            0 => fs.sync().is_ok(),
            // the writes that follow to this file put their data into the log
            1..4 => fs.fsync(&handles[dice.roll(FILES) as usize]).is_ok(),
            _ => false,
        };
        crashes += survive(&medium, &states, seed, &reopened);
        if synced {
            states.drain(..states.len() - 1);
        }
    }
    let all = fs.statfs().blocks as usize;
    (crashes, blocks / all)
}

/// What the open epoch freed holds what the last sync promised: a crash shows it again. Used again
/// before the epoch closes, it holds something else by then.
#[test]
fn no_block_is_used_again_before_the_sync_that_makes_its_loss_durable() {
    let (mut crashes, mut laps) = (0, 0);
    for seed in 1..=4 {
        let (survived, used) = full_history(seed * 104_729, 400, 0);
        (crashes, laps) = (crashes + survived, laps + used);
    }
    assert!(crashes > 200, "only {crashes} crashes were tried");
    assert!(laps > 8, "the pools' blocks were used {laps} times only");
}

/// The same for blocks that several files have: what one sync promised is in all of them.
#[test]
fn no_shared_block_is_used_again_before_the_sync_that_makes_its_last_loss_durable() {
    let (mut crashes, mut laps) = (0, 0);
    for seed in 1..=4 {
        let (survived, used) = full_history(seed * 15_485_863, 500, 4);
        (crashes, laps) = (crashes + survived, laps + used);
    }
    assert!(crashes > 200, "only {crashes} crashes were tried");
    assert!(laps > 8, "the pools' blocks were used {laps} times only");
}

/// The machine stopped when a lane's first record since the checkpoint was on the medium in part,
/// and a later one whole: damage, and no record. It was not cut off, and every later open met it.
#[test]
fn a_log_that_begins_with_damage_is_cut_off_by_the_open_that_drops_it() {
    let base = formatted(1, 1 << 20);
    let medium = Medium::new(&base, 1);
    let fs = open(base, Some(medium.clone()));
    topology::pin_current_thread(&topology::allowed_cpus().unwrap()[..1]).unwrap();
    let before = state(&fs);
    fs.checkpoint().unwrap();
    let logged = fs.info().log_used_bytes;
    assert_eq!(logged, 0, "the checkpoint folded all");
    let by = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };
    fs.create(Ino::ROOT, b"one", NewNode::File, by).unwrap();
    fs.create(Ino::ROOT, b"two", NewNode::File, by).unwrap();
    let mut image = medium.slices.lock().unwrap()[0].0.clone();
    drop(fs);
    // the chunk taken last is the lane's; its first record follows its header
    let chunks =
        (16 * 4096..image.len()).step_by(4096).filter(|at| &image[*at..*at + 4] == b"NSCH");
    let sequence = |at: &usize| u64::from_le_bytes(image[at + 8..at + 16].try_into().unwrap());
    let chunk = chunks.max_by_key(sequence).unwrap();
    image[chunk + 64 + 40] ^= 1;
    another_boot(&mut image);
    let medium = Medium::new(&[image.clone()], 1);
    let survivor = open(vec![image], Some(medium.clone()));
    assert_eq!(state(&survivor), before, "what was not synced is dropped");
    survivor.close().unwrap();
    drop(survivor);
    let image = medium.slices.lock().unwrap()[0].0.clone();
    assert_eq!(state(&open(vec![image], None)), before, "and the next open finds nothing wrong");
}
