//! Who says anything: first words that are not its own, calls of all kinds, changed and cut, in any
//! slot and number, and bytes that are nothing. Programs notice none of it.

use fs::{LockKind, RenameMode};
use wire::{DATA_BYTES_MAX, Flags, Frame, Greeting, Held, Identity, Node, Piece, Proof, Request};
use wire::{SLOTS, VERSION, WORDS};

use super::random::Random;
use super::story::Story;

/// What a stranger is among those whose connection one is.
pub const STRANGER: usize = usize::MAX;
/// Strangers that are there at once.
const STRANGERS_MAX: usize = 3;

impl Story {
    /// A stranger comes, or says more.
    pub fn be_strange(&mut self) {
        let links = self.world.links.iter();
        let here: Vec<usize> =
            links.filter(|(_, link)| link.program == STRANGER).map(|(id, _)| *id).collect();
        if here.is_empty() || here.len() < STRANGERS_MAX && self.random.percent(40) {
            let new = self.world.connect(STRANGER, None);
            let words = self.strange_words();
            let ends_in_order = self.random.percent(50);
            let link = self.world.links.get_mut(&new).unwrap();
            link.to_service.extend(words);
            link.ends_in_order = ends_in_order;
            return self.tell(format!("a stranger comes: {new}"));
        }
        let id = self.random.one_of(&here);
        let bytes: Vec<u8> =
            (0..=self.random.below(4)).flat_map(|_| self.strange_frame()).collect();
        self.counts.strange += 1;
        self.tell(format!("the stranger of {id} says {} bytes", bytes.len()));
        self.world.links.get_mut(&id).unwrap().to_service.extend(bytes);
    }

    fn strange_words(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        let hexadecimal = |random: &mut Random| format!("{:016x}", random.below(usize::MAX));
        let identity = Identity {
            client: hexadecimal(random).repeat(2),
            service: random.below(4) as u64,
            proof: hexadecimal(random).repeat(2),
        };
        let returns = random.percent(15).then_some(identity);
        let version = if random.percent(90) { VERSION } else { random.below(9) as u32 };
        let words =
            serde_json::to_vec(&Greeting { version, returns, mount: None, fabric: None }).unwrap();
        let words = if random.percent(90) { words } else { changed(random, words) };
        framed(random, WORDS, &words, 0)
    }

    fn strange_frame(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        if random.percent(5) {
            let len = random.below(3000);
            return (0..len).map(|_| random.below(256) as u8).collect();
        }
        let count = random.below(5) as u64;
        let message = wire::encode(&(count, strange_request(random)), Vec::new()).unwrap();
        let message = if random.percent(80) { message } else { changed(random, message) };
        let slot = if random.percent(98) { random.below(SLOTS) as u16 } else { WORDS };
        let data = if random.percent(60) { 0 } else { random.below(9000) };
        framed(random, slot, &message, data)
    }
}

/// With some bytes changed, or cut.
fn changed(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..=random.below(3) {
        if !bytes.is_empty() {
            let at = random.below(bytes.len());
            bytes[at] = random.below(256) as u8;
        }
    }
    if random.percent(30) {
        bytes.truncate(random.below(bytes.len() + 1));
    }
    bytes
}

/// In a frame, which is almost always one.
fn framed(random: &mut Random, slot: u16, message: &[u8], data: usize) -> Vec<u8> {
    let data = vec![random.below(256) as u8; data.min(DATA_BYTES_MAX)];
    let bytes = Frame { slot, message, data: &data }.bytes();
    if random.percent(97) { bytes } else { changed(random, bytes) }
}

fn strange_request(random: &mut Random) -> Request<'static> {
    const PATHS: [&[u8]; 5] = [b"/log", b"/counter", b"/", b"/file-0-1", b"/../x"];
    let numbers = [0, 1, 2, 3, 7, 1 << 40, u64::MAX];
    let (path, file) = (random.one_of(&PATHS), random.one_of(&numbers));
    let (offset, len) = (random.one_of(&numbers), random.one_of(&numbers));
    let flags = random.below(128);
    let has = |bit: u32| flags >> bit & 1 == 1;
    let flags = Flags {
        read: has(0),
        write: has(1),
        append: has(2),
        truncate: has(3),
        create: has(4),
        create_new: has(5),
        mode: 0o666,
    };
    let piece = Piece { file, offset, len: len as u32 };
    let held = Held { kind: LockKind::Write, start: 0, end: u64::MAX };
    let (staged, pieces) = (offset, 2);
    match random.below(28) {
        0..5 => Request::Open(path, if has(6) { Flags { read: true, ..flags } } else { flags }),
        5 => {
            let (number, ino, proof) = (file, offset, Proof([random.below(256) as u8; 16]));
            Request::Restore { number, ino, flags: Some(flags), proof, locks: vec![held] }
        }
        6 => Request::Close(file),
        7..9 => Request::Read { file, offset, len: len as u32 },
        9..11 => Request::Write { file, offset },
        11 => Request::Append(file),
        12 => Request::FileAttributes(file),
        13 => Request::SetLength(file, len),
        14 => Request::Lock { file, kind: LockKind::Read, start: 0, end: len, wait: has(0) },
        15 => Request::Lock { file, kind: LockKind::Write, start: 0, end: len, wait: has(0) },
        16 => Request::Make(path, Node::Directory),
        17 => Request::Remove(path, has(0)),
        18 => Request::Rename(path, random.one_of(&PATHS), RenameMode::Replace),
        19 => Request::SetMode(path, 0o777),
        20 => Request::OpenDirectory(path),
        21 => Request::ReadDirectory(file, offset),
        22 => Request::Commit { staged, pieces, writes: vec![piece; 2], expected: vec![piece] },
        23 => Request::Stage { staged, writes: vec![piece], expected: Vec::new() },
        24 => Request::ReadTogether { pieces: vec![piece; 2], watched: vec![file] },
        25 => Request::Happened { connection: 9, slot: 1, generation: 2, number: offset },
        26 => Request::Sync,
        _ => Request::Info,
    }
}
