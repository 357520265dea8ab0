//! What comes over a network: bytes that are frames or none, in pieces of any length.
//!
//! The first byte says how long the pieces are that arrive, and by its last bit whether long frames
//! are wanted as they come. Then, again and again, a byte says what follows: 0, so many bytes (u16)
//! as they are; others, a frame with the right checksums: its slot, and the lengths of message and
//! data (u16 each), both of which follow; of a 2 the data is there five times.

use super::input::Input;
use wire::{
    Begins, Broken, DATA_BYTES_MAX, Decoder, Frame, MESSAGE_BYTES_MAX, NOTICE, PIECE_BYTES, Pieces,
    SLOTS, WORDS,
};

const HEAD_BYTES: usize = 16;
const SUM_BYTES: usize = 4;
/// Frames with more behind their head are long ones.
const SHORT_BYTES_MAX: usize = 32 << 10;
/// Room that a decoder may have beyond twice the bytes that have waited in it.
const ROOM_BYTES: usize = 16 << 10;

/// What comes of a stream: slots, messages and data, and what ended it.
type Come = (Vec<(u16, Vec<u8>, Vec<u8>)>, Option<Broken>);

/// See the module.
pub fn run(bytes: &[u8]) -> bool {
    let mut input = Input(bytes);
    let how = input.byte();
    let stream = stream(input);
    let wanted = read(&stream);
    let come = decoded(&stream, usize::from(how) + 1, how % 2 == 1);
    assert_eq!(come, wanted, "the decoder reads something else");
    !wanted.0.is_empty() && wanted.1.is_none()
}

/// The bytes that the input describes.
fn stream(mut input: Input<'_>) -> Vec<u8> {
    let mut stream = Vec::new();
    while !input.is_empty() {
        let kind = input.byte();
        if kind == 0 {
            let len = input.number(2) as usize;
            stream.extend(input.take(len));
            continue;
        }
        let [slot, message, data] = [2, 2, 2].map(|bytes| input.number(bytes));
        let message = input.take((message as usize).min(MESSAGE_BYTES_MAX));
        let data = input.take(data as usize);
        let data = data.repeat(if kind == 2 { 5 } else { 1 });
        stream.extend(Frame { slot: slot as u16, message, data: &data }.bytes());
    }
    stream
}

/// The same by what a stream is said to be (`wire/src/frame.rs`), with all of it at hand.
fn read(mut stream: &[u8]) -> Come {
    let mut frames = Vec::new();
    while let Some((head, rest)) = stream.split_at_checked(HEAD_BYTES) {
        let number = |at: usize, len: usize| {
            head[at..at + len].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
        };
        let (slot, message, data) = (number(4, 2), number(8, 4), number(12, 4));
        let of_none = [WORDS, NOTICE].map(usize::from);
        if number(6, 2) != 0 || (slot >= SLOTS && !of_none.contains(&slot)) {
            return (frames, Some(Broken::Slot));
        }
        if message > MESSAGE_BYTES_MAX || data > DATA_BYTES_MAX {
            return (frames, Some(Broken::Length));
        }
        let is_long = message + data > SHORT_BYTES_MAX;
        let Some((first, behind)) = rest.split_at_checked(message + if is_long { 0 } else { data })
        else {
            break;
        };
        let mut sum = pmem::crc32c(0, &[&head[4..], first].concat());
        if number(0, 4) != sum as usize {
            return (frames, Some(Broken::Checksum));
        }
        let (message, whole) = first.split_at(message);
        let mut come = whole.to_vec();
        stream = behind;
        while come.len() < data {
            let len = PIECE_BYTES.min(data - come.len());
            let Some((piece, behind)) = stream.split_at_checked(len + SUM_BYTES) else {
                return (frames, None);
            };
            sum = pmem::crc32c(sum, &piece[..len]);
            if piece[len..] != sum.to_le_bytes() {
                return (frames, Some(Broken::Checksum));
            }
            come.extend_from_slice(&piece[..len]);
            stream = behind;
        }
        frames.push((slot as u16, message.to_vec(), come));
    }
    (frames, None)
}

/// Takes the data of long frames as it comes, if at all.
struct Sink {
    takes: bool,
    data: Vec<u8>,
    announced: usize,
}

impl Pieces for Sink {
    fn begins(&mut self, _slot: u16, _message: &[u8], data: usize) -> Begins {
        assert!(self.data.is_empty(), "the one before is over");
        self.announced = data;
        if self.takes { Begins::InPieces } else { Begins::Whole }
    }

    fn piece(&mut self, data: &[u8]) -> Option<u32> {
        self.data.extend_from_slice(data);
        assert!(self.takes && self.data.len() <= self.announced);
        data.len().is_multiple_of(2).then(|| pmem::crc32c(0, data))
    }
}

fn decoded(stream: &[u8], piece: usize, takes: bool) -> Come {
    let (mut decoder, mut frames) = (Decoder::default(), Vec::new());
    let (mut sink, mut came) = (Sink { takes, data: Vec::new(), announced: 0 }, 0);
    for mut piece in stream.chunks(piece) {
        while !piece.is_empty() {
            let room = decoder.room();
            assert!(room.len() <= 2 * came + ROOM_BYTES, "room for what was only announced");
            let len = room.len().min(piece.len());
            room[..len].copy_from_slice(&piece[..len]);
            decoder.fill(len);
            came += len;
            piece = &piece[len..];
            loop {
                match decoder.frame_or_pieces(&mut sink) {
                    Ok(None) => break,
                    Err(broken) => return (frames, Some(broken)),
                    Ok(Some(frame)) => {
                        let data = [&std::mem::take(&mut sink.data), frame.data].concat();
                        frames.push((frame.slot, frame.message.to_vec(), data));
                    }
                }
            }
            decoder.rest();
        }
    }
    (frames, None)
}

/// What honest sides say, and what is cut.
pub fn seeds() -> Vec<Vec<u8>> {
    let of_kind = |kind: u8, slot: u16, message: &[u8], data: &[u8]| {
        let lengths = [slot, message.len() as u16, data.len() as u16].map(u16::to_le_bytes);
        [&[kind][..], &lengths.concat(), message, data].concat()
    };
    let frame = |slot: u16, message: &[u8], data: &[u8]| of_kind(1, slot, message, data);
    let words = frame(WORDS, br#"{"version":3,"returns":null}"#, b"");
    let (call, write) = (frame(0, b"\x01\x05", b""), frame(31, b"a write", &[7; 5000]));
    let long = of_kind(2, 31, b"a long write", &[[1, 2, 3, 4]; 3700].concat());
    let as_it_is = |bytes: &[u8]| [&[0][..], &(bytes.len() as u16).to_le_bytes(), bytes].concat();
    let piece = |len: u8, parts: &[&[u8]]| [&[len][..], &parts.concat()].concat();
    // heads of their own, with a checksum that fits
    let head = |slot: u16, zero: u16, message: usize, data: usize| {
        let (halves, words) = ([slot, zero], [message as u32, data as u32]);
        let rest = [halves.map(u16::to_le_bytes).concat(), words.map(u32::to_le_bytes).concat()];
        let rest = rest.concat();
        as_it_is(&[&pmem::crc32c(0, &rest).to_le_bytes()[..], &rest].concat())
    };
    let mut seeds = vec![
        piece(3, &[&head(1, 0, 0, 0)]),
        piece(3, &[&head(1, 1, 0, 0)]),
        piece(3, &[&head(SLOTS as u16, 0, 0, 0)]),
        piece(3, &[&head(NOTICE, 0, 0, 0)]),
        piece(3, &[&head(NOTICE - 1, 0, 0, 0)]),
        piece(3, &[&head(1, 0, MESSAGE_BYTES_MAX + 1, 0), &call]),
        piece(3, &[&head(1, 0, 0, DATA_BYTES_MAX + 1), &call]),
        piece(3, &[&head(1, 0, 0, DATA_BYTES_MAX), &as_it_is(&[5; 40_000])]),
        piece(255, &[&words]),
        piece(0, &[&words, &call]),
        piece(15, &[&words, &call, &call, &write]),
        piece(99, &[&write, &call]),
        piece(254, &[&call, &long, &call]),
        piece(255, &[&long, &write]),
        piece(6, &[&call, &as_it_is(&[0; 16])]),
        piece(20, &[&frame(40, b"no slot", b"")]),
        piece(20, &[&words, &as_it_is(b"GET / HTTP/1.1\r\nHost: near\r\n\r\n")]),
        piece(30, &[&as_it_is(&[[9; 4], [3, 0, 0, 0], [255; 4], [0; 4]].concat())]),
    ];
    let cut: Vec<Vec<u8>> = seeds.iter().map(|seed| seed[..seed.len() - 2].to_vec()).collect();
    seeds.extend(cut);
    seeds
}
