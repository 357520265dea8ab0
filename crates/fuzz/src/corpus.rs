//! The images that cases start from: pools made on the fly by short histories, with the states
//! that each may show when nothing of it is believed that its checksums do not prove.

use crate::image::{Image, Kind};
use crate::place::{Files, Place};
use crate::plan::{PLANS, Plan};
use crate::random::Random;
use crate::seal::seal;
use crate::seen::{Seen, State};
use fs::{
    Creation, Fallocate, FileSystem, Ino, NewNode, RenameMode, RequestId, SetAttr, XattrMode,
};
use pool::{FormatOptions, SliceSpec};
use std::path::Path;
use std::sync::Arc;

const BY: Creation = Creation { mode: 0o644, umask: 0, uid: 7, gid: 8 };
/// Who makes the changes of a history that are requests.
const CLIENT: u128 = 0x0102_0304_0506_0708_090A_0B0C_0D0E_0F10;
/// When everything happens, ns since 1970.
const NOW_NS: i64 = 1_700_000_000_000_000_000;
/// Requests of a history at most.
const REQUESTS_MAX: u64 = 64;

/// An image to start from.
#[derive(Debug)]
pub struct Seed {
    /// What it is.
    pub name: &'static str,
    /// Its bytes.
    pub image: Image,
    /// What it may show, if one damage happened to it: what was true since its last checkpoint.
    pub legal: Vec<State>,
    /// What it may show after more than one, which may well have taken the last root and the last
    /// chunk: all that was ever true. `None` where that was not written down.
    pub history: Option<Vec<State>>,
}

/// Bytes of a device.
const DEVICE_BYTES: u64 = 1 << 20;
/// After how many changes a history has two files that share all blocks.
const SHARES_AT: usize = 13;
/// After how many changes a history reserves blocks in slices.
const RESERVES_AT: usize = 21;

/// Makes them all, in `dir`: the same each time, since identities are said and the clock stands.
pub fn make(dir: &Path) -> Vec<Seed> {
    fs::stop_clock(Some(NOW_NS));
    let seeds = (0u64..).zip(&PLANS).map(|(number, plan)| make_one(dir, number, plan)).collect();
    fs::stop_clock(None);
    seeds
}

/// All requests that any history may hold.
pub fn requests() -> impl Iterator<Item = RequestId> {
    (0..REQUESTS_MAX).map(|sequence| RequestId { client: CLIENT, sequence })
}

fn make_one(dir: &Path, number: u64, plan: &Plan) -> Seed {
    let dir = dir.join("corpus");
    let made = || -> fs::Result<Seed> {
        let image = formatted(&dir, number, plan)?;
        let mut files = Files::new(&dir, plan.slices);
        files.hold(&image);
        let mut story = Story::new(files.open(false)?, number);
        let handles = story.run(plan)?;
        if plan.close {
            story.fs.close()?;
            story.only_last();
        }
        let mut image = files.image();
        forget_media(&mut image);
        drop(handles);
        let legal = story.history.split_off(story.since);
        let history = (plan.values == 0).then(|| [&story.history[..], &legal].concat());
        Ok(Seed { name: plan.name, image, legal, history })
    };
    made().unwrap_or_else(|error| panic!("corpus {:?}: {error}", plan.name))
}

/// The image opens wherever it lies: on which medium it was open is not known.
fn forget_media(image: &mut Image) {
    let parts = image.parts();
    let states: Vec<_> = parts.iter().filter(|part| part.kind == Kind::State).copied().collect();
    for state in &states {
        if image.number(state.slice, state.at + 24, 4) != 0 {
            image.put(state.slice, state.at + 24, &1u32.to_le_bytes());
            image.put(state.slice, state.at + 40, &[0; 4]);
        }
    }
    seal(image, &states);
}

fn formatted(dir: &Path, number: u64, plan: &Plan) -> fs::Result<Image> {
    let _ = std::fs::remove_dir_all(dir);
    let options = FormatOptions {
        slices: vec![SliceSpec::default(); plan.slices],
        slice_bytes: plan.slice_bytes * u64::from(plan.copies),
        data_copies: plan.copies,
        virtual_nodes: Some(plan.slices as u32),
        process: plan.process,
        log_line_bytes: Some(plan.log_line_bytes),
        identity: Some(number ^ 0x5EED_5EED_5EED_5EED),
        capacity: vec![SliceSpec { path: None, bytes: Some(DEVICE_BYTES) }; plan.devices],
        ..FormatOptions::default()
    };
    fs::format(dir, &options)?;
    let bytes =
        |name, number| std::fs::read(dir.join(format!("{name}.{number}"))).unwrap_or_default();
    Ok(Image {
        slices: (0..plan.slices).map(|slice| bytes("slice", slice)).collect(),
        devices: (0..plan.devices).map(|device| bytes("capacity", device)).collect(),
    })
}

/// A history under way.
struct Story {
    fs: Arc<FileSystem>,
    random: Random,
    history: Vec<State>,
    /// Where in it the last checkpoint was.
    since: usize,
    checkpoints: u64,
    made: usize,
}

impl Story {
    fn new(fs: FileSystem, number: u64) -> Story {
        let checkpoints = fs.checkpoint_cost().0;
        let random = Random::new(number);
        let (history, since) = (Vec::new(), 0);
        let fs = Arc::new(fs);
        let mut story = Story { fs, random, history, since, checkpoints, made: 0 };
        story.remember();
        story
    }

    /// What is true now may be what a kill or a damage leaves.
    fn remember(&mut self) {
        let state = Seen::of(&self.fs).state();
        let now = self.fs.checkpoint_cost().0;
        if now != self.checkpoints {
            // made before or after what changed last
            self.since = self.history.len().saturating_sub(1);
            self.checkpoints = now;
        }
        self.history.push(state.unwrap_or_else(|| panic!("a healthy pool is not readable")));
    }

    /// A checkpoint was made just now.
    fn only_last(&mut self) {
        self.since = self.history.len() - 1;
        self.checkpoints = self.fs.checkpoint_cost().0;
    }

    fn run(&mut self, plan: &Plan) -> fs::Result<Vec<Arc<fs::Handle>>> {
        for value in 0..plan.values {
            self.value(value)?;
        }
        let mut handles = Vec::new();
        for number in 1..=plan.changes {
            match requests().nth(number).filter(|_| plan.requests) {
                None if plan.shares && number % 3 == 0 => self.share()?,
                None => self.change()?,
                Some(id) => self.request(id)?,
            }
            self.remember();
            if plan.orphans && number % 4 == 0 {
                handles.push(self.orphan()?);
            }
            if plan.shares && number == SHARES_AT {
                self.share_a_file()?;
            }
            if plan.reserves && number == RESERVES_AT {
                self.reserve_in_slices()?;
            }
            if number % plan.moves_every == 0 {
                self.move_all()?;
            }
            if number % plan.checkpoint_every == 0 {
                self.fs.checkpoint()?;
                self.only_last();
            }
        }
        if plan.moves_last {
            self.move_all()?;
        }
        Ok(handles)
    }

    /// All blocks move to the devices, and what comes next reads them from there.
    fn move_all(&mut self) -> fs::Result<()> {
        self.fs.write_back_all()?;
        self.fs.evict_caches();
        self.remember();
        Ok(())
    }

    /// A file, and a copy that has its blocks; one of them is the copy's own again afterwards.
    fn share_a_file(&mut self) -> fs::Result<()> {
        let mut made = Vec::new();
        for name in [b"twin0", b"twin1"] {
            let attr = self.fs.create(Ino::ROOT, name, NewNode::File, BY)?;
            made.push(self.fs.open(attr.ino)?);
            self.remember();
        }
        let (one, other) = (&*made[0], &*made[1]);
        let written = self.random.bytes(6 * 4096);
        self.fs.write(one, 0, &written)?;
        self.remember();
        self.fs.copy((one, 0), (other, 0), 6 * 4096)?;
        self.remember();
        self.fs.write(other, 2 * 4096, &written[..4096])?;
        self.remember();
        Ok(())
    }

    /// Blocks for a file are set aside while the devices are full: they are in slices.
    fn reserve_in_slices(&mut self) -> fs::Result<()> {
        let room = self.fs.tier_stats().unwrap_or_default().device_blocks_free * 4096;
        let hog = self.fs.create(Ino::ROOT, b"hog", NewNode::File, BY)?;
        let hog = self.fs.open(hog.ino)?;
        self.remember();
        self.fs.fallocate(&hog, Fallocate::Allocate { keep_size: true }, 0, room)?;
        let file = self.fs.create(Ino::ROOT, b"reserved", NewNode::File, BY)?;
        let file = self.fs.open(file.ino)?;
        self.remember();
        self.fs.fallocate(&file, Fallocate::Allocate { keep_size: false }, 0, 50_000)?;
        self.remember();
        self.fs.unlink(Ino::ROOT, b"hog")?;
        drop(hog);
        self.remember();
        let written = self.random.bytes(9000);
        self.fs.write(&file, 12_288, &written)?;
        self.remember();
        Ok(())
    }

    /// A change for a request, of which one in three is answered at once.
    fn request(&mut self, id: RequestId) -> fs::Result<()> {
        let fs = self.fs.clone();
        fs.with_request(id, || self.change())?;
        if id.sequence.is_multiple_of(3) {
            self.fs.acknowledge(id);
        }
        Ok(())
    }

    /// A file with a long attribute: a few of them fill a page.
    fn value(&mut self, number: usize) -> fs::Result<()> {
        let name = format!("value{number}");
        let attr = self.fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, BY)?;
        if number.is_multiple_of(3) {
            let value = self.random.bytes(900);
            self.fs.setxattr(attr.ino, b"user.long", &value, XattrMode::Any)?;
        }
        // only what is true near the end is looked at again
        if number % 40 == 39 { self.fs.checkpoint() } else { Ok(()) }
    }

    fn orphan(&mut self) -> fs::Result<Arc<fs::Handle>> {
        let attr = self.fs.create(Ino::ROOT, b"orphan", NewNode::File, BY)?;
        self.remember();
        let handle = self.fs.open(attr.ino)?;
        self.fs.write(&handle, 0, &self.random.bytes(6000))?;
        self.remember();
        self.fs.unlink(Ino::ROOT, b"orphan")?;
        self.remember();
        Ok(handle)
    }

    /// A file's block, one record's worth, becomes another's, too; none if they are the same.
    fn share(&mut self) -> fs::Result<()> {
        let (Some(from), Some(to)) = (self.file(), self.file()) else { return self.change() };
        let mut at = || (self.random.below(4) * 4096) as u64;
        let (from, to) = ((&*self.fs.open(from.1)?, at()), (&*self.fs.open(to.1)?, at()));
        let copied = self.fs.copy(from, to, 4096);
        if matches!(copied, Err(fs::Error::Invalid(_))) { Ok(()) } else { copied.map(|_| ()) }
    }

    fn dir(&mut self) -> Ino {
        let names = ["d0", "d1"];
        let name = names[self.random.below(2)];
        let found = self.fs.lookup(Ino::ROOT, name.as_bytes());
        found.map_or(Ino::ROOT, |attr| attr.ino)
    }

    fn file(&mut self) -> Option<(Ino, Ino, Vec<u8>)> {
        let dir = self.dir();
        let mut files = Vec::new();
        let _ = self.fs.readdir(dir, 0, &mut |entry| {
            if entry.kind == fs::FileKind::File && !entry.name.starts_with(b"value") {
                files.push((dir, entry.ino, entry.name.clone()));
            }
            true
        });
        self.random.pick(&files).cloned()
    }

    fn change(&mut self) -> fs::Result<()> {
        self.made += 1;
        let dir = self.dir();
        let new = format!("new{}", self.made).into_bytes();
        let Some((parent, ino, name)) = self.file().filter(|_| self.random.below(4) > 0) else {
            let target = new.clone();
            let long = vec![b'l'; 3000];
            let node = match self.random.below(8) {
                0 => NewNode::Symlink(&target),
                1 => NewNode::Symlink(&long),
                2 => NewNode::Special(fs::FileKind::Fifo, 0),
                3 | 4 => {
                    let name: &[u8] = if self.random.once_in(2) { b"d0" } else { b"d1" };
                    return match self.fs.create(Ino::ROOT, name, NewNode::Directory, BY) {
                        Err(fs::Error::Exists) => Ok(()),
                        made => made.map(|_| ()),
                    };
                }
                _ => NewNode::File,
            };
            return self.fs.create(dir, &new, node, BY).map(|_| ());
        };
        self.change_file(parent, ino, &name, dir, &new)
    }

    fn change_file(
        &mut self,
        parent: Ino,
        ino: Ino,
        name: &[u8],
        dir: Ino,
        new: &[u8],
    ) -> fs::Result<()> {
        let handle = self.fs.open(ino)?;
        let (block, few) = (self.random.below(12), 1 + self.random.below(200));
        let offset = (block * 4096) as u64;
        let (small, fs) = (self.random.bytes(few), &self.fs);
        match self.random.below(17) {
            0..4 => fs.write(&handle, offset, &self.random.bytes(4096)).map(|_| ()),
            4..7 => fs.write(&handle, offset + 100, &small).map(|_| ()),
            7 => fs.write(&handle, offset, &self.random.bytes(9000)).map(|_| ()),
            8 => fs.append(&handle, &small).map(|_| ()),
            9 => {
                let size = Some(self.random.below(50_000) as u64);
                fs.setattr(ino, &SetAttr { size, ..SetAttr::default() }).map(|_| ())
            }
            10 => fs.setxattr(ino, b"user.x", &small, XattrMode::Any),
            11 => fs.setxattr(ino, b"user.long", &self.random.bytes(3000), XattrMode::Any),
            12 => fs.rename((parent, name), (dir, new), RenameMode::Replace).map(|_| ()),
            13 => fs.link(ino, dir, new).map(|_| ()),
            14 => fs.fallocate(&handle, Fallocate::PunchHole, offset, 8192),
            15 => fs.fallocate(&handle, Fallocate::Allocate { keep_size: true }, offset, 30_000),
            _ => fs.unlink(parent, name).map(|_| ()),
        }
    }
}
