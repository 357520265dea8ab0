//! The bare transport, and what others do with it: one message, one answer, over TCP on loopback.
//!
//! Both sides look without sleeping, as ours does while it is busy.

use crate::dice::Dice;
use crate::error::{Error, Result, io};
use crate::service::seat::{FILE_BYTES, Took};
use pmem::{Domain, Mapping};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes of a block, and of a piece of a long message.
const BLOCK: usize = 4096;
const PIECE_BYTES: usize = 64 << 10;
/// Bytes before a message: its length and that of the answer.
const HEAD_BYTES: usize = 8;

/// What is done with each message before it is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Work {
    /// Nothing.
    Nothing,
    /// Its bytes are written to a random place of this file, which is opened with O_SYNC.
    Sync(PathBuf),
    /// They come into a buffer, and are copied past the caches to blocks in memory, and summed on
    /// the way, as ours are.
    Copied,
    /// They come to their blocks straight away, and are summed there; what of that is left in the
    /// caches stays there, so that this is less than a durable write takes.
    Placed,
}

/// Where messages go.
enum Place {
    Nowhere,
    File(File),
    Blocks(Mapping),
    Memory(Vec<u8>),
}

impl Place {
    fn of(work: &Work) -> Result<Place> {
        Ok(match work {
            Work::Nothing => Place::Nowhere,
            Work::Sync(path) => Place::File(synced_file(path)?),
            Work::Copied => Place::Blocks(Mapping::memory(FILE_BYTES as usize, Domain::CpuFlush)?),
            // touched, as what has been written before
            Work::Placed => Place::Memory(vec![0x5A; FILE_BYTES as usize]),
        })
    }

    /// Takes a message of so many bytes.
    fn take(
        &mut self,
        stream: &mut TcpStream,
        message: &mut [u8],
        dice: &mut Dice,
    ) -> std::io::Result<()> {
        let unit = message.len().next_multiple_of(BLOCK) as u64;
        let at = dice.below(FILE_BYTES / unit) * unit;
        match self {
            Place::Nowhere => read(stream, message),
            Place::File(file) => {
                read(stream, message)?;
                let at = at / unit * message.len() as u64;
                file.write_all_at(message, at)
            }
            Place::Blocks(mapping) => {
                let (mut done, mut sums) = (0, [0; PIECE_BYTES / BLOCK]);
                while done < message.len() {
                    // each piece comes to where the one before was
                    let len = PIECE_BYTES.min(message.len() - done);
                    let piece = &mut message[..len];
                    read(stream, piece)?;
                    let place = at + done as u64;
                    let in_flight = mapping.write_blocks(place, piece, &mut sums[..len / BLOCK]);
                    let _clean = pmem::fence(in_flight);
                    done += len;
                }
                Ok(())
            }
            Place::Memory(memory) => {
                let blocks = &mut memory[at as usize..][..message.len()];
                for piece in blocks.chunks_mut(PIECE_BYTES) {
                    read(stream, piece)?;
                    let sums = piece.chunks(BLOCK).map(|block| pmem::crc32c(0, block));
                    std::hint::black_box(sums.fold(0, |all, sum| all ^ sum));
                }
                Ok(())
            }
        }
    }
}

/// Answers who connects, until it goes; where.
pub fn answer(work: Work) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(network)?;
    let port = listener.local_addr().map_err(network)?.port();
    let mut place = Place::of(&work)?;
    let serve = move || {
        for stream in listener.incoming() {
            // who has gone wants no answer
            let _ = stream.and_then(|stream| serve(stream, &mut place));
        }
    };
    std::thread::Builder::new().name("answers".to_owned()).spawn(serve).map_err(network)?;
    Ok(port)
}

/// A file that is full, whose writes are durable.
fn synced_file(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).custom_flags(libc::O_SYNC).open(path);
    let file = file.map_err(io(path))?;
    let piece = vec![0x5A; 1 << 20];
    for at in (0..FILE_BYTES).step_by(piece.len()) {
        file.write_all_at(&piece, at).map_err(io(path))?;
    }
    Ok(file)
}

fn network(error: std::io::Error) -> Error {
    io(Path::new("127.0.0.1"))(error)
}

fn serve(mut stream: TcpStream, place: &mut Place) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let (mut head, mut dice) = ([0; HEAD_BYTES], Dice::new(5));
    let (mut message, mut answer) = (Vec::new(), Vec::new());
    loop {
        read(&mut stream, &mut head)?;
        let [len, answers] = [0, 4].map(|at| {
            u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize
        });
        message.resize(len, 0);
        answer.resize(answers, 7);
        place.take(&mut stream, &mut message, &mut dice)?;
        write(&mut stream, &answer)?;
    }
}

fn read(stream: &mut TcpStream, mut into: &mut [u8]) -> std::io::Result<()> {
    while !into.is_empty() {
        match stream.read(into) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => into = &mut into[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn write(stream: &mut TcpStream, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A connection to who answers, or to Redis.
pub struct Wire(TcpStream);

impl Wire {
    /// To this port.
    pub fn to(port: u16) -> Result<Wire> {
        let stream = TcpStream::connect(("127.0.0.1", port)).map_err(network)?;
        stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(network)?;
        Ok(Wire(stream))
    }

    /// Sends so many bytes and waits for so many, again and again.
    pub fn exchange(&mut self, bytes: usize, answers: usize, count: u64) -> Result<Took> {
        let mut message = (bytes as u32).to_le_bytes().to_vec();
        message.extend((answers as u32).to_le_bytes());
        message.resize(HEAD_BYTES + bytes, 0xA5);
        self.each(&message, answers, count)
    }

    /// Sets a value of so many bytes in Redis, again and again.
    pub fn set(&mut self, bytes: usize, count: u64) -> Result<Took> {
        const DONE: &str = "+OK\r\n";
        let mut message = format!("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n${bytes}\r\n").into_bytes();
        message.resize(message.len() + bytes, b'v');
        message.extend(b"\r\n");
        self.each(&message, DONE.len(), count)
    }

    fn each(&mut self, message: &[u8], answers: usize, count: u64) -> Result<Took> {
        let mut answer = vec![0; answers];
        let mut times = Vec::with_capacity(count as usize);
        let start = Instant::now();
        let mut last = start;
        for _ in 0..count {
            let done = write(&mut self.0, message).and_then(|()| read(&mut self.0, &mut answer));
            done.map_err(network)?;
            let now = Instant::now();
            times.push((now - last).as_nanos() as u64);
            last = now;
        }
        Ok(Took::of(start.elapsed(), times))
    }
}
