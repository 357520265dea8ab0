//! A connection of a program to a service, of which the network has the bytes under way.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use wire::{Decoder, WORDS};

use crate::remote::Guest;

/// A frame that was seen on its way: its slot, and its message.
pub type Seen = (u16, Vec<u8>);

/// A connection.
pub struct Link {
    /// Whose.
    pub program: usize,
    /// The program's end; none: it sees the connection as cut.
    pub near: Option<TcpStream>,
    /// The service's end; none: the service has ended it, or has heard that it was cut.
    pub far: Option<UnixStream>,
    /// Its number there.
    pub number: u64,
    /// What it is there until it has said its first words.
    pub guest: Option<Guest>,
    /// Bytes that are under way.
    pub to_service: VecDeque<u8>,
    pub to_program: VecDeque<u8>,
    /// The program's first words.
    pub words: Vec<u8>,
    /// The program ended it.
    pub ends_in_order: bool,
    /// It came back: with it others could come back as the same program.
    pub returns: bool,
    has_greeted: bool,
    from_program: Decoder,
    at_program: Decoder,
}

impl Link {
    pub fn new(program: usize, near: Option<TcpStream>, far: UnixStream, number: u64) -> Link {
        far.set_nonblocking(true).unwrap();
        let (to_service, to_program, words) = Default::default();
        let (from_program, at_program) = Default::default();
        Link {
            program,
            near,
            far: Some(far),
            number,
            guest: None,
            to_service,
            to_program,
            words,
            ends_in_order: false,
            returns: false,
            has_greeted: false,
            from_program,
            at_program,
        }
    }

    /// Takes what the program has sent. The frame that is whole with it; `Err`: it has closed it.
    pub fn hear_program(&mut self) -> Result<Option<Seen>, ()> {
        let mut bytes = [0; 64 << 10];
        let Some(near) = &mut self.near else { return Err(()) };
        let count = match near.read(&mut bytes) {
            Ok(0) => return Err(()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(_) => return Err(()),
        };
        self.to_service.extend(&bytes[..count]);
        if !self.has_greeted {
            self.words.extend(&bytes[..count]);
        }
        let frames = frames(&mut self.from_program, &bytes[..count]).unwrap();
        assert!(frames.len() <= 1, "a program asks for one thing at a time");
        self.has_greeted |= !frames.is_empty();
        Ok(frames.into_iter().next())
    }

    /// Takes what the service has sent. False: it has closed it.
    pub fn hear_service(&mut self) -> bool {
        let mut bytes = [0; 64 << 10];
        let Some(far) = &mut self.far else { return true };
        loop {
            match far.read(&mut bytes) {
                Ok(count) if count > 0 => self.to_program.extend(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                _ => {
                    self.far = None;
                    return false;
                }
            }
        }
    }

    /// Brings so many bytes to the service.
    pub fn bring_to_service(&mut self, count: usize) {
        let bytes: Vec<u8> = self.to_service.drain(..count.min(self.to_service.len())).collect();
        if let Some(far) = &mut self.far
            && far.write_all(&bytes).is_err()
        {
            self.far = None;
        }
    }

    /// Brings so many bytes to the program. The frames that are whole with them; `Err`: they are
    /// none, as the program sees, too.
    pub fn bring_to_program(&mut self, count: usize) -> Result<Vec<Seen>, ()> {
        // no more than to the end of one frame: what the program does next is known then
        let (mut brought, mut seen) = (Vec::new(), Ok(Vec::new()));
        for _ in 0..count.min(self.to_program.len()) {
            brought.extend(self.to_program.pop_front());
            seen = frames(&mut self.at_program, &brought[brought.len() - 1..]);
            if seen.as_ref().map_or(true, |seen| !seen.is_empty()) {
                break;
            }
        }
        if let Some(near) = &mut self.near {
            near.write_all(&brought).unwrap();
        }
        seen
    }

    /// Whether anything is to be done with it.
    pub fn is_over(&self) -> bool {
        self.near.is_none() && self.far.is_none()
    }
}

/// Frames that are whole with these bytes.
fn frames(decoder: &mut Decoder, mut bytes: &[u8]) -> Result<Vec<Seen>, ()> {
    let mut seen = Vec::new();
    while !bytes.is_empty() {
        let room = decoder.room();
        let count = room.len().min(bytes.len());
        room[..count].copy_from_slice(&bytes[..count]);
        decoder.fill(count);
        bytes = &bytes[count..];
        while let Some(frame) = decoder.frame().map_err(drop)? {
            seen.push((frame.slot, frame.message.to_vec()));
        }
    }
    Ok(seen)
}

/// The first words of a connection.
pub fn words<W: serde::de::DeserializeOwned>(seen: &Seen) -> Option<W> {
    (seen.0 == WORDS).then(|| serde_json::from_slice(&seen.1).ok()).flatten()
}
