//! What a service hears over a connection from somebody who keeps to no rules: calls of all kinds
//! in any order, slots and numbers, in pieces, and bytes that are nothing.
//!
//! A byte says how it begins: 0, with honest words; others, with none. Then, again and again, a
//! byte says what follows: 0, so many bytes (u16) as they are; 1, a frame with the right checksums:
//! its slot (u8; 255: words), and the lengths of message and data (u16 each), both of which follow;
//! 2, the same, and what is answered is waited for; 3, another connection, with honest words.
//!
//! The service lives as long as the thread. Another process's calls are answered as ever after each
//! of them, nobody else's file is changed, what is answered is frames, and sessions end with their
//! connections.

use super::input::Input;
use nearside::{AttachOptions, File, FormatOptions, LockKind, OpenFlags, Pool, SliceSpec};
use server::{Door, Options, Rights, Service};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{
    Broken, Decoder, Flags, Frame, Greeting, Held, MESSAGE_BYTES_MAX, Node, Piece, Proof, Request,
    SLOTS, VERSION, WORDS,
};

/// What the honest process's file holds.
const HONEST: &[u8] = b"nobody else changes this";
/// Longest wait for an event that must come, on a busy machine too.
const SOON: Duration = Duration::from_secs(120);
/// Who says nothing more for so long has said all.
const QUIET: Duration = Duration::from_millis(2);
/// User and group of whoever comes.
const STRANGER: u32 = 1234;

struct World {
    honest: Pool,
    file: File,
    service: Service,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

thread_local! {
    static WORLD: World = World::new().unwrap_or_else(|error| panic!("no service: {error}"));
}

type AnyError = Box<dyn std::error::Error>;

impl World {
    fn new() -> Result<World, AnyError> {
        let dir = tempfile::tempdir()?;
        let format = FormatOptions {
            slices: vec![SliceSpec::default()],
            slice_bytes: 32 << 20,
            process: true,
            ..FormatOptions::default()
        };
        Pool::format(dir.path(), &format)?;
        let owned = Arc::new(Pool::open(dir.path())?);
        let door = Door::open(&dir.path().join(nearside::ATTACH_SOCKET), 0o600)?;
        let options = Options { linger: Duration::ZERO, ..Options::default() };
        let mut service = Service::start(owned, door, &options)?;
        let mut listen = |rights| -> Result<SocketAddr, AnyError> {
            let door = TcpListener::bind("127.0.0.1:0")?;
            let address = door.local_addr()?;
            service.listen(door, rights)?;
            Ok(address)
        };
        let (address, own) = (listen(Rights::new(STRANGER, STRANGER))?, listen(Rights::new(0, 0))?);
        let own = format!("near+insecure://{own}");
        let honest = Pool::attach_with(own, &AttachOptions::default())?;
        honest.set_permissions("/", 0o777)?;
        let flags = OpenFlags::new().read(true).write(true).create(true).mode(0o600);
        let file = honest.open_file("/honest", &flags)?;
        file.write_all_at(HONEST, 0)?;
        Ok(World { honest, file, service, address, _dir: dir })
    }

    /// Whoever has been there: the service is as it was before, and what was made is removed.
    fn assert_as_before(&self) -> Result<(), AnyError> {
        let until = Instant::now() + SOON;
        while self.service.sessions() > 1 {
            assert!(Instant::now() < until, "a session is left");
            std::thread::yield_now();
        }
        let mut seen = [0; HONEST.len() + 1];
        let len = self.file.read_at(&mut seen, 0)?;
        assert_eq!(seen[..len], *HONEST, "somebody else's file");
        assert!(self.file.try_lock(LockKind::Write, ..)?, "a lock is left");
        self.file.unlock(..)?;
        self.remove_all(Path::new("/"))
    }

    fn remove_all(&self, dir: &Path) -> Result<(), AnyError> {
        for entry in self.honest.read_dir(dir)? {
            let path = dir.join(entry?.file_name());
            if path == Path::new("/honest") {
                continue;
            }
            if self.honest.remove_file(&path).is_err() {
                self.remove_all(&path)?;
                self.honest.remove_dir(&path)?;
            }
        }
        Ok(())
    }
}

/// Somebody's connection.
struct Link {
    socket: TcpStream,
    answers: Decoder,
    heard: usize,
}

impl Link {
    fn new(address: SocketAddr) -> std::io::Result<Link> {
        let socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(QUIET))?;
        socket.set_write_timeout(Some(SOON))?;
        Ok(Link { socket, answers: Decoder::default(), heard: 0 })
    }

    /// False: the service has closed it.
    fn say(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).is_ok()
    }

    fn greet(&mut self) -> bool {
        let greeting = Greeting { version: VERSION, returns: None, mount: None, fabric: None };
        let message = serde_json::to_vec(&greeting).unwrap_or_default();
        self.say(&Frame { slot: WORDS, message: &message, data: &[] }.bytes()) && self.hear()
    }

    /// Hears what is said until there is nothing for a while. False: the service has closed it.
    fn hear(&mut self) -> bool {
        loop {
            let count = match self.socket.read(self.answers.room()) {
                Ok(0) => return false,
                Ok(count) => count,
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            };
            self.answers.fill(count);
            while let Some(frame) = sound(self.answers.frame()) {
                assert!(usize::from(frame.slot) < SLOTS || frame.slot == WORDS);
                self.heard += usize::from(frame.slot != WORDS);
            }
        }
    }
}

fn sound(frame: Result<Option<Frame<'_>>, Broken>) -> Option<Frame<'_>> {
    frame.unwrap_or_else(|broken| panic!("the service says what is no frame: {broken}"))
}

/// See the module.
pub fn run(bytes: &[u8]) -> bool {
    WORLD.with(|world| {
        let is_sound = said(world.address, Input(bytes))
            .unwrap_or_else(|error| panic!("nobody can connect any more: {error}"));
        world.assert_as_before().unwrap_or_else(|error| panic!("after that: {error}"));
        is_sound
    })
}

/// Says what the input describes; whether all of it was taken, and something was answered.
fn said(address: SocketAddr, mut input: Input<'_>) -> std::io::Result<bool> {
    let mut link = Link::new(address)?;
    let mut is_open = input.byte() != 0 || link.greet();
    let mut heard = 0;
    while !input.is_empty() && is_open {
        match input.byte() {
            0 => {
                let len = input.number(2) as usize;
                is_open = link.say(input.take(len));
            }
            3 => {
                // calls of this one are under way
                heard += link.heard;
                link = Link::new(address)?;
                is_open = link.greet();
            }
            kind => {
                let slot = input.byte();
                let slot = if slot == u8::MAX { WORDS } else { slot.into() };
                let [message, data] = [2, 2].map(|bytes| input.number(bytes) as usize);
                let message = input.take(message.min(MESSAGE_BYTES_MAX));
                let data = input.take(data);
                is_open = link.say(&Frame { slot, message, data }.bytes());
                is_open = is_open && (kind != 2 || link.hear());
            }
        }
    }
    is_open = is_open && link.hear();
    Ok(is_open && heard + link.heard > 0)
}

/// A call, whose answer is waited for or not.
fn call(waits: bool, slot: u8, count: u64, request: &Request<'_>, data: &[u8]) -> Vec<u8> {
    let message = wire::encode(&(count, request), Vec::new()).unwrap_or_default();
    let lengths = [message.len() as u16, data.len() as u16].map(u16::to_le_bytes).concat();
    [&[1 + u8::from(waits), slot][..], &lengths, &message, data].concat()
}

/// What honest processes say, some of it in no order, and what is cut.
pub fn seeds() -> Vec<Vec<u8>> {
    let flags = Flags { read: true, write: true, create: true, mode: 0o666, ..Flags::default() };
    let make = |slot, path| call(true, slot, 1, &Request::Open(path, flags), &[]);
    let piece = |file| Piece { file, offset: 0, len: 8 };
    let held = Held { kind: LockKind::Write, start: 0, end: 9 };
    let lock = |file, kind, wait| Request::Lock { file, kind, start: 0, end: 9, wait };
    let ask = |slot, count, request: Request<'_>, data: &[u8]| {
        call(slot % 2 == 0, slot, count, &request, data)
    };
    let long = vec![7; 60_000];
    let commit = |staged, pieces| Request::Commit {
        staged,
        pieces,
        writes: vec![piece(1)],
        expected: Vec::new(),
    };
    let (number, proof) = (3, Proof([9; 16]));
    let restore =
        Request::Restore { number, ino: 12, flags: Some(flags), proof, locks: vec![held] };
    let sequences: Vec<Vec<Vec<u8>>> = vec![
        vec![make(0, b"/a"), ask(0, 2, Request::Write { file: 1, offset: 5 }, b"some bytes")],
        vec![make(0, b"/a"), ask(0, 2, Request::Write { file: 1, offset: 0 }, &long)],
        vec![make(2, b"/a"), ask(1, 1, Request::Read { file: 1, offset: 0, len: 4096 }, &[])],
        vec![make(2, b"/a"), ask(2, 2, lock(1, LockKind::Write, false), &[])],
        vec![
            make(2, b"/a"),
            make(4, b"/a"),
            ask(2, 2, lock(1, LockKind::Write, false), &[]),
            ask(5, 1, lock(2, LockKind::Write, true), &[]),
        ],
        vec![make(0, b"/a"), ask(0, 2, commit(0, 0), &[3; 8])],
        vec![make(0, b"/a"), ask(0, 2, commit(1, 2), &[3; 8]), ask(1, 1, commit(1, 2), &[])],
        vec![ask(0, 1, Request::Make(b"/d", Node::Directory), &[]), make(2, b"/d/x")],
        vec![make(0, b"/a"), ask(2, 1, Request::Remove(b"/a", false), &[])],
        vec![ask(0, 1, Request::Open(b"/honest", flags), &[])],
        vec![ask(0, 1, Request::Remove(b"/honest", false), &[])],
        vec![ask(0, 1, Request::OpenDirectory(b"/"), &[])],
        vec![ask(0, 1, restore, &[])],
        vec![make(0, b"/a"), vec![3], ask(0, 2, Request::Sync, &[])],
        vec![make(0, b"/a"), make(0, b"/a"), ask(0, 1, Request::Close(1), &[])],
        vec![ask(0, 1, Request::Info, &[]), vec![0, 4, 0, 1, 2, 3, 4]],
    ];
    let mut seeds: Vec<Vec<u8>> =
        sequences.iter().map(|parts| [&[0][..], &parts.concat()].concat()).collect();
    seeds.push([&[1][..], &call(true, 255, 0, &Request::Sync, &[])].concat());
    seeds.push([&[1, 0, 6, 0][..], b"GET / "].concat());
    let cut: Vec<Vec<u8>> = seeds.iter().map(|seed| seed[..seed.len() - 2].to_vec()).collect();
    seeds.extend(cut);
    seeds
}
