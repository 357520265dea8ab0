//! The files of a history through a pipe: sendfile and splice, from a file and to it.
//!
//! What leaves a file by a pipe is taken from the kernel's pages, one after the other. So a load by
//! a pipe is no single moment, and neither is a cell of it.

use std::fs::File;
use std::io::{self, Read, Write};

use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe, splice};

use crate::library::whole;
use crate::outside::{Outside, errno};
use crate::plan::{CELL_BYTES, History};
use crate::record::{Act, Answer, bytes, runs};

/// Bytes that the pipe holds at least, at any offset in a page.
const PIPE_BYTES: usize = 64 << 10;
/// Bytes that go through it at one time: fewer pages than the pipe holds.
const PIECE_BYTES: usize = PIPE_BYTES / 2;

/// The files, and a pipe.
#[derive(Debug)]
pub struct PipedFiles {
    outside: Outside,
    reader: File,
    writer: File,
}

impl PipedFiles {
    /// A pipe for files that were opened.
    pub fn new(outside: Outside) -> io::Result<PipedFiles> {
        let (reader, writer) = pipe()?;
        fcntl_setpipe_size(&writer, PIPE_BYTES)?;
        Ok(PipedFiles { outside, reader: File::from(reader), writer: File::from(writer) })
    }

    pub fn answer(&self, history: &History, act: &Act, number: u64) -> Answer {
        let offset = |at: u32| u64::from(at) * CELL_BYTES as u64;
        let made = match *act {
            Act::Load { file, at, cells } => {
                let seen = self.load(file, offset(at), cells as usize * CELL_BYTES, number);
                seen.map(|seen| {
                    let runs = runs(history.number, &seen);
                    Answer { runs: Some(vec![runs]), ..Answer::default() }
                })
            }
            Act::Write { file, at, cells } => {
                self.write(file, offset(at), &bytes(number, cells)).map(|it| whole(it, cells))
            }
            _ => return self.outside.answer(history, act, number),
        };
        made.unwrap_or_else(|error| Answer::failed(errno(&error)))
    }

    /// By sendfile or by splice, as the number says.
    fn load(&self, file: u32, from: u64, length: usize, number: u64) -> io::Result<Vec<u8>> {
        let file = &self.outside.files()[file as usize];
        let mut seen = Vec::with_capacity(length);
        while seen.len() < length {
            let mut at = from + seen.len() as u64;
            let piece = (length - seen.len()).min(PIECE_BYTES);
            let moved = match number.is_multiple_of(2) {
                true => rustix::fs::sendfile(&self.writer, file, Some(&mut at), piece)?,
                false => {
                    let (writer, none) = (&self.writer, SpliceFlags::empty());
                    splice(file, Some(&mut at), writer, None, piece, none)?
                }
            };
            if moved == 0 {
                break;
            }
            let before = seen.len();
            seen.resize(before + moved, 0);
            (&self.reader).read_exact(&mut seen[before..])?;
        }
        Ok(seen)
    }

    fn write(&self, file: u32, at: u64, data: &[u8]) -> io::Result<usize> {
        let file = &self.outside.files()[file as usize];
        (&self.writer).write_all(data)?;
        let (mut to, none) = (at, SpliceFlags::empty());
        let written = splice(&self.reader, None, file, Some(&mut to), data.len(), none);
        let rest = data.len() - *written.as_ref().unwrap_or(&0);
        // nothing of it may come with the next call
        (&self.reader).read_exact(&mut vec![0; rest])?;
        Ok(written?)
    }
}
