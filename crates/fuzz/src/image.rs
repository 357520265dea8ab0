//! The bytes of a pool's slices and of the devices below them, and where in them the structures of
//! docs/FORMAT.md lie.
//!
//! The format is read here by its own code, from its drawing: what the engine would misread the
//! same way on both sides is seen.

use pmem::crc32c;

/// Bytes of a block and of a page.
pub const BLOCK: usize = 4096;
/// Bytes of a superblock.
pub const SUPERBLOCK: usize = 512;
/// Bytes of a root.
pub const ROOT: usize = 256;
/// How far behind a root its second copy lies.
pub const ROOT_COPY: usize = 3 * BLOCK;
/// Bytes of the state.
pub const STATE: usize = 48;
/// Bytes of a chunk's header, and the unit of a record's length.
pub const UNIT: usize = 64;
/// Where in a superblock the length of the log's lines is said.
pub const LOG_LINE_AT: usize = 104;
/// Where the state lies.
pub const STATE_AT: usize = 3 * BLOCK;
/// Where in a superblock the number of copies is said.
const COPIES_AT: usize = 88;
/// Where the members of a mirrored pool lie in each half of a file.
const MEMBERS_AT: usize = 6 * BLOCK;
/// Bytes of them.
pub const MEMBERS: usize = 320;
/// Where in a superblock the features are said.
const FEATURES_AT: usize = 96;
/// The feature of a pool with a capacity tier.
const CAPACITY: u64 = 4;
/// Number of the first device of the capacity tier, among those of slices.
pub const DEVICE_FIRST: usize = 192;
/// Where the table of devices lies in each slice.
pub const TABLE_AT: usize = 8 * BLOCK;
/// Where in a table its devices begin, and how long each is.
pub const TABLE_ENTRIES: (usize, usize) = (32, 40);
/// Bytes of a device's header.
pub const DEVICE: usize = 512;
/// Where on a device data begins.
const DEVICE_DATA_AT: usize = 16 * BLOCK;
/// Where in a root its two trees are named.
pub const ROOT_TREES: [usize; 2] = [72, 104];
const LOG_AT: usize = 16 * BLOCK;
const PAGES_MAX: usize = 4096;

/// The slices of a pool, and its devices. Both are meant where a slice is asked for: devices have
/// the numbers from [`DEVICE_FIRST`] on, as in addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Bytes of the slices.
    pub slices: Vec<Vec<u8>>,
    /// Bytes of the devices of the capacity tier.
    pub devices: Vec<Vec<u8>>,
}

/// A kind of structure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Superblock.
    Superblock,
    /// Root of a checkpoint.
    Root,
    /// Which boot wrote last.
    State,
    /// Whose files are current.
    Members,
    /// The devices of a pool, in a slice.
    Table,
    /// Header of a device.
    Device,
    /// A block of a device that holds data, or did.
    Below,
    /// Header of a chunk of the log.
    Chunk,
    /// Record of the log.
    Record,
    /// Page of a tree with pages below it.
    Inner,
    /// Page of a tree with values.
    Leaf,
}

/// A structure in an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// What it is.
    pub kind: Kind,
    /// The slice, or the device.
    pub slice: usize,
    /// Where it starts, bytes.
    pub at: usize,
    /// Bytes.
    pub len: usize,
    /// Of a record: where its chunk starts.
    pub chunk: usize,
}

/// Where a page is: slice and byte.
type Place = (usize, usize);

impl Image {
    /// The numbers of all slices and devices.
    pub fn numbers(&self) -> Vec<usize> {
        let devices = DEVICE_FIRST..DEVICE_FIRST + self.devices.len();
        (0..self.slices.len()).chain(devices).collect()
    }

    /// All bytes of a slice, or of a device.
    pub fn all(&self, slice: usize) -> Option<&Vec<u8>> {
        match slice.checked_sub(DEVICE_FIRST) {
            Some(device) => self.devices.get(device),
            None => self.slices.get(slice),
        }
    }

    /// The same, to change.
    pub fn all_mut(&mut self, slice: usize) -> Option<&mut Vec<u8>> {
        match slice.checked_sub(DEVICE_FIRST) {
            Some(device) => self.devices.get_mut(device),
            None => self.slices.get_mut(slice),
        }
    }

    /// Bytes of a slice, or of a device; 0 if it is not there.
    pub fn len(&self, slice: usize) -> usize {
        self.all(slice).map_or(0, Vec::len)
    }

    /// A checksum of all bytes.
    pub fn checksum(&self) -> u32 {
        let all = self.slices.iter().chain(&self.devices);
        all.fold(0, |crc, bytes| crc32c(crc, bytes))
    }

    /// The bytes at `at`; `None` where the image has none.
    pub fn get(&self, slice: usize, at: usize, len: usize) -> Option<&[u8]> {
        self.all(slice)?.get(at..at.checked_add(len)?)
    }

    /// The same, to change.
    pub fn get_mut(&mut self, slice: usize, at: usize, len: usize) -> Option<&mut [u8]> {
        self.all_mut(slice)?.get_mut(at..at.checked_add(len)?)
    }

    /// The little-endian number of up to 8 bytes at `at`; 0 where there is none.
    pub fn number(&self, slice: usize, at: usize, len: usize) -> u64 {
        self.get(slice, at, len).map_or(0, number)
    }

    /// Puts `bytes` at `at`, if all of them fit.
    pub fn put(&mut self, slice: usize, at: usize, bytes: &[u8]) {
        if let Some(place) = self.get_mut(slice, at, bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// Identity of a slice.
    pub fn uuid(&self, slice: usize) -> Vec<u8> {
        self.get(slice, 32, 16).unwrap_or(&[0; 16]).to_vec()
    }

    /// The seed of the checksums of the records in the chunk at `chunk`.
    pub fn record_seed(&self, slice: usize, chunk: usize) -> u32 {
        let seed = crc32c(0, &self.uuid(slice));
        let seed = crc32c(seed, self.get(slice, chunk + 28, 2).unwrap_or_default());
        crc32c(seed, self.get(slice, chunk + 8, 8).unwrap_or_default())
    }

    /// Bytes that a write to the log of a slice fills a multiple of.
    fn log_line(&self, slice: usize) -> usize {
        (self.number(slice, LOG_LINE_AT, 4) as usize).max(UNIT)
    }

    /// Bytes that the record at `at` says it has, if it is whole.
    fn record_len(&self, slice: usize, at: usize, end: usize, seed: u32) -> Option<usize> {
        let len = self.number(slice, at + 4, 2) as usize * UNIT;
        if len == 0 || !len.is_multiple_of(self.log_line(slice)) || at + len > end {
            return None;
        }
        let crc = crc32c(seed, self.get(slice, at + 4, len - 4)?);
        (self.number(slice, at, 4) == u64::from(crc)).then_some(len)
    }

    /// The page that the pointer in these bytes names.
    pub fn page_place(&self, pointer: &[u8]) -> Option<Place> {
        let addr = number(pointer.get(..8)?);
        let (slice, block) = ((addr >> 40) as usize, (addr & ((1 << 40) - 1)) as usize);
        let at = block.checked_mul(BLOCK)?;
        let page = self.get(slice, at, BLOCK)?;
        (addr != 0 && page.starts_with(b"NSTP")).then_some((slice, at))
    }

    /// All structures of a whole image.
    pub fn parts(&self) -> Vec<Part> {
        let mut parts = Vec::new();
        for slice in 0..self.slices.len() {
            self.fixed_parts(slice, &mut parts);
            self.log_parts(slice, &mut parts);
        }
        for device in DEVICE_FIRST..DEVICE_FIRST + self.devices.len() {
            self.device_parts(device, &mut parts);
        }
        let roots: Vec<Part> = parts.iter().filter(|p| p.kind == Kind::Root).copied().collect();
        for root in roots {
            for tree in ROOT_TREES {
                let pointer = self.get(root.slice, root.at + tree, 20).unwrap_or_default();
                self.page_parts(pointer, &mut parts);
            }
        }
        parts
    }

    fn fixed_parts(&self, slice: usize, parts: &mut Vec<Part>) {
        let mut add = |kind, at, len| parts.push(Part { kind, slice, at, len, chunk: 0 });
        let len = self.len(slice);
        if self.number(slice, FEATURES_AT, 8) & CAPACITY != 0 {
            add(Kind::Table, TABLE_AT, BLOCK);
        }
        let halves = if self.is_mirrored() { vec![0, len / 2] } else { vec![0] };
        let half_len = len / halves.len();
        for from in halves {
            add(Kind::Superblock, from, SUPERBLOCK);
            let last = from + (half_len / BLOCK).saturating_sub(1) * BLOCK;
            add(Kind::Superblock, last, SUPERBLOCK);
            for at in [from + BLOCK, from + 2 * BLOCK] {
                if self.get(slice, at, 8) == Some(b"NSROOT01") {
                    add(Kind::Root, at, ROOT);
                }
            }
            add(Kind::State, from + STATE_AT, STATE);
            if self.is_mirrored() {
                add(Kind::Members, from + MEMBERS_AT, MEMBERS);
            }
        }
    }

    fn device_parts(&self, device: usize, parts: &mut Vec<Part>) {
        let mut add = |kind, at, len| parts.push(Part { kind, slice: device, at, len, chunk: 0 });
        add(Kind::Device, 0, DEVICE);
        for at in (DEVICE_DATA_AT..self.len(device)).step_by(BLOCK) {
            let block = self.get(device, at, BLOCK).unwrap_or_default();
            if block.iter().any(|byte| *byte != 0) {
                add(Kind::Below, at, BLOCK);
            }
        }
    }

    /// Whether each file holds the mirror of the slice before it, too.
    fn is_mirrored(&self) -> bool {
        self.number(0, COPIES_AT, 4) == 2
    }

    /// Whether a structure lies in the mirror of a slice, which sealing makes what that is.
    pub fn is_in_mirror(&self, part: &Part) -> bool {
        self.is_mirrored() && part.at >= self.len(part.slice) / 2
    }

    /// In a mirrored pool, makes the mirrors what the slices are.
    pub fn mirror_slices(&mut self) {
        let len = self.slices[0].len();
        if !self.is_mirrored() || self.slices.iter().any(|slice| slice.len() != len) {
            return;
        }
        for slice in 0..self.slices.len() {
            let half = self.slices[slice][..len / 2].to_vec();
            let next = (slice + 1) % self.slices.len();
            self.put(next, len / 2, &half);
        }
    }

    fn log_parts(&self, slice: usize, parts: &mut Vec<Part>) {
        let chunk_bytes = (self.number(slice, 72, 4) as usize).max(BLOCK);
        let log_end = LOG_AT + self.number(slice, 64, 8) as usize;
        for chunk in (LOG_AT..log_end.min(self.slices[slice].len())).step_by(chunk_bytes) {
            if self.get(slice, chunk, 4) != Some(b"NSCH") {
                continue;
            }
            parts.push(Part { kind: Kind::Chunk, slice, at: chunk, len: UNIT, chunk });
            let seed = self.record_seed(slice, chunk);
            let mut at = chunk + self.log_line(slice);
            while let Some(len) = self.record_len(slice, at, chunk + chunk_bytes, seed) {
                parts.push(Part { kind: Kind::Record, slice, at, len, chunk });
                at += len;
            }
        }
    }

    fn page_parts(&self, pointer: &[u8], parts: &mut Vec<Part>) {
        let Some((slice, at)) = self.page_place(pointer) else { return };
        let known = parts.iter().any(|part| (part.slice, part.at) == (slice, at));
        if known || parts.len() > PAGES_MAX {
            return;
        }
        let inner = self.number(slice, at + 5, 1) > 0;
        let kind = if inner { Kind::Inner } else { Kind::Leaf };
        parts.push(Part { kind, slice, at, len: BLOCK, chunk: 0 });
        if inner {
            for (at, len) in self.page_values(slice, at) {
                self.page_parts(self.get(slice, at, len).unwrap_or_default(), parts);
            }
        }
    }

    /// Where the values of the page at `at` lie: byte and length of each.
    pub fn page_values(&self, slice: usize, at: usize) -> Vec<(usize, usize)> {
        let count = (self.number(slice, at + 6, 2) as usize).min((BLOCK - 32) / 19);
        let mut start = 32 + 19 * count;
        let ends = (0..count).map(|i| self.number(slice, at + 32 + 19 * i + 17, 2) as usize);
        let mut values = Vec::new();
        for end in ends {
            if end < start || end > BLOCK {
                break;
            }
            values.push((at + start, end - start));
            start = end;
        }
        values
    }
}

/// The little-endian number that these bytes, 8 at most, are.
pub fn number(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
