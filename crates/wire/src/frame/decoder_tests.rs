use super::*;
use crate::WORDS;
use proptest::prelude::*;

/// Slot, message and data of a frame.
type Parts = (u16, Vec<u8>, Vec<u8>);

fn bytes_of(frames: &[Parts]) -> Vec<u8> {
    let all = frames.iter().map(|(slot, message, data)| Frame { slot: *slot, message, data });
    all.flat_map(Frame::bytes).collect()
}

/// Takes long frames in pieces, if at all, each at the second time of asking.
#[derive(Default)]
struct Sink {
    takes: bool,
    asked: bool,
    data: Vec<u8>,
    announced: usize,
}

impl Pieces for Sink {
    fn begins(&mut self, _slot: u16, _message: &[u8], data: usize) -> Begins {
        self.asked = !self.asked;
        if self.asked {
            return Begins::NotYet;
        }
        self.announced = data;
        if self.takes { Begins::InPieces } else { Begins::Whole }
    }

    fn piece(&mut self, data: &[u8]) -> Option<u32> {
        assert!(data.len() <= PIECE_BYTES && !data.is_empty());
        self.data.extend_from_slice(data);
        // as it comes about
        data.len().is_multiple_of(2).then(|| pmem::crc32c(0, data))
    }
}

/// All frames that come of these bytes, which arrive in pieces of so many; the most room that there
/// was.
fn decoded(bytes: &[u8], piece: usize, in_pieces: bool) -> Result<(Vec<Parts>, usize), Broken> {
    let (mut decoder, mut frames) = (Decoder::default(), Vec::new());
    let (mut sink, mut most) = (Sink { takes: in_pieces, ..Sink::default() }, 0);
    for mut piece in bytes.chunks(piece.max(1)) {
        while !piece.is_empty() {
            let room = decoder.room();
            let len = room.len().min(piece.len());
            room[..len].copy_from_slice(&piece[..len]);
            decoder.fill(len);
            piece = &piece[len..];
            loop {
                let was_asked = sink.asked;
                match decoder.frame_or_pieces(&mut sink)? {
                    Some(Frame { slot, message, data }) => {
                        let come = std::mem::take(&mut sink.data);
                        assert!(come.is_empty() || data.is_empty() && come.len() == sink.announced);
                        frames.push((slot, message.to_vec(), [&come, data].concat()));
                    }
                    None if !was_asked && sink.asked => {}
                    None => break,
                }
            }
            most = most.max(decoder.room.len());
            decoder.rest();
        }
    }
    Ok((frames, most))
}

fn frame() -> impl Strategy<Value = Parts> {
    let slot = prop_oneof![0..SLOTS as u16, Just(WORDS), Just(NOTICE)];
    let bytes = |most| proptest::collection::vec(any::<u8>(), 0..most);
    let long = (16_000..300_000_usize, any::<u8>()).prop_map(|(len, first)| {
        (0..len).map(|at| (at * 7 + at / 251) as u8 ^ first).collect::<Vec<u8>>()
    });
    let message = prop_oneof![8 => bytes(200), 1 => Just(vec![3; MESSAGE_BYTES_MAX])];
    (slot, message, prop_oneof![3 => bytes(30), 1 => bytes(4000), 1 => long])
}

proptest! {
    #[test]
    fn what_is_sent_arrives_however_it_is_cut(
        frames in proptest::collection::vec(frame(), 0..5), piece in 1..30_000usize,
        in_pieces in any::<bool>(),
    ) {
        let bytes = bytes_of(&frames);
        let (come, most) = decoded(&bytes, piece, in_pieces).unwrap();
        prop_assert_eq!(&come, &frames);
        if in_pieces {
            prop_assert!(most <= (PIECE_BYTES + SUM_BYTES).max(2 * USUAL_BYTES), "{}", most);
        }
    }

    #[test]
    fn another_whole_one_is_seen(frames in proptest::collection::vec(frame(), 0..5)) {
        let is_short = |(_, message, data): &&Parts| !is_long(message.len(), data.len());
        let frames: Vec<Parts> = frames.iter().filter(is_short).cloned().collect();
        let room = bytes_of(&frames);
        let mut decoder = Decoder { filled: room.len(), room, ..Decoder::default() };
        for left in (0..frames.len()).rev() {
            prop_assert_eq!(decoder.has_two(), left > 0);
            prop_assert!(decoder.frame().unwrap().is_some());
        }
    }

    #[test]
    fn a_changed_byte_is_noticed(
        frames in proptest::collection::vec(frame(), 1..4), at in any::<u32>(), bit in 0..8u32,
        in_pieces in any::<bool>(),
    ) {
        let mut bytes = bytes_of(&frames);
        let at = at as usize % bytes.len();
        bytes[at] ^= 1 << bit;
        // an error, or what was there before it, where it announces more than there is
        let (come, _) = decoded(&bytes, 4096, in_pieces).unwrap_or_default();
        prop_assert!(come.len() < frames.len() && come == frames[..come.len()]);
    }

    #[test]
    fn any_bytes_are_frames_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decoded(&bytes, 7, false);
    }
}

#[test]
fn pieces_in_another_order_are_noticed() {
    let data: Vec<u8> = (0..3 * PIECE_BYTES).map(|at| (at / PIECE_BYTES) as u8).collect();
    let bytes = Frame { slot: 1, message: &[], data: &data }.bytes();
    let (head, pieces) = bytes.split_at(HEAD_BYTES);
    let pieces: Vec<&[u8]> = pieces.chunks(PIECE_BYTES + SUM_BYTES).collect();
    let of = |order: [usize; 3]| [&[head], &order.map(|at| pieces[at])[..]].concat().concat();
    assert_eq!(decoded(&of([0, 1, 2]), 9999, true).unwrap().0, [(1, vec![], data)]);
    for order in [[0, 2, 1], [1, 0, 2], [0, 1, 1], [0, 0, 1]] {
        assert_eq!(decoded(&of(order), 9999, true), Err(Broken::Checksum), "{order:?}");
    }
}

#[test]
fn who_announces_much_gets_no_room_for_it() {
    let mut decoder = Decoder::default();
    let long = vec![0; DATA_BYTES_MAX];
    let bytes = Frame { slot: 3, message: &[], data: &long }.bytes();
    decoder.room()[..HEAD_BYTES].copy_from_slice(&bytes[..HEAD_BYTES]);
    decoder.fill(HEAD_BYTES);
    assert!(decoder.is_at_long());
    assert_eq!(decoder.frame(), Ok(None));
    assert!(decoder.is_amid() && decoder.is_at_long());
    decoder.room();
    assert!(decoder.room.capacity() <= USUAL_BYTES);
}

#[test]
fn room_for_a_long_frame_ends_with_it() {
    let long = vec![7; DATA_BYTES_MAX];
    let short = vec![8; 100];
    let frames = [(3, Vec::new(), long.clone()), (4, short.clone(), short)];
    let bytes = [bytes_of(&frames), bytes_of(&frames[..1])[..20_000].to_vec()].concat();
    let (mut decoder, mut rest, mut seen) = (Decoder::default(), &bytes[..], 0);
    while !rest.is_empty() {
        let is_long = decoder.is_at_long();
        let room = decoder.room();
        let len = room.len().min(rest.len());
        room[..len].copy_from_slice(&rest[..len]);
        decoder.fill(len);
        rest = &rest[len..];
        while decoder.frame().unwrap().is_some() {
            seen += 1;
            assert!(!is_long || !decoder.is_amid(), "nothing behind it was taken");
        }
    }
    assert_eq!(seen, 2);
    assert!(decoder.room.len() > USUAL_BYTES, "it is kept for the next");
    decoder.shrink();
    assert_eq!((decoder.room.len(), decoder.filled), (20_000 - HEAD_BYTES, 20_000 - HEAD_BYTES));
    assert!(decoder.is_at_long());
}

#[test]
fn data_is_taken_with_its_room_and_room_is_used_again() {
    let long: Vec<u8> = (0..DATA_BYTES_MAX).map(|at| at as u8).collect();
    let frames = [(3, vec![1], long.clone()), (4, vec![2], vec![5; 10])];
    let (bytes, mut spare) = (bytes_of(&frames), Vec::new());
    for _ in 0..2 {
        let (mut decoder, mut rest, mut seen) = (Decoder::default(), &bytes[..], Vec::new());
        decoder.reuse(|| std::mem::take(&mut spare));
        assert!(spare.is_empty());
        while !rest.is_empty() {
            let room = decoder.room();
            let len = room.len().min(rest.len());
            room[..len].copy_from_slice(&rest[..len]);
            decoder.fill(len);
            rest = &rest[len..];
            while let Some(frame) = decoder.frame().unwrap() {
                let (slot, data) = (frame.slot, frame.data.to_vec());
                let taken = decoder.take_data();
                assert_eq!(taken.is_some(), slot == 3);
                assert_eq!(taken.as_ref().unwrap_or(&data), &data);
                spare = taken.unwrap_or(spare);
                seen.push((slot, data));
            }
        }
        assert_eq!(seen, [(3, long.clone()), (4, vec![5; 10])]);
    }
}
