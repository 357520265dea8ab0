//! Streams over a fabric of the tests' own, which loses, changes and repeats what it is told to.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::endpoint::Done;
use crate::keys::{MATERIAL_BYTES, Side};

/// What is under way, from each side.
type Wires = Arc<Mutex<[VecDeque<Vec<u8>>; 2]>>;

/// One side of a fabric that has the messages where a test can reach them.
#[derive(Debug)]
struct Own {
    side: usize,
    wires: Wires,
    places: Vec<Vec<u8>>,
    receiving: VecDeque<usize>,
    done: VecDeque<Done>,
    /// It takes no message now.
    is_busy: Arc<Mutex<bool>>,
}

impl Endpoint for Own {
    fn receive(&mut self, place: usize) -> std::result::Result<bool, Failed> {
        self.receiving.push_back(place);
        Ok(true)
    }

    fn send(&mut self, place: usize, bytes: usize) -> std::result::Result<bool, Failed> {
        if *self.is_busy.lock() {
            return Ok(false);
        }
        self.wires.lock()[self.side].push_back(self.places[place][..bytes].to_vec());
        self.done.push_back(Done { place, bytes: Ok(bytes) });
        Ok(true)
    }

    fn poll(&mut self) -> std::result::Result<Option<Done>, Failed> {
        let mut wires = self.wires.lock();
        let coming = &mut wires[1 - self.side];
        if let Some(place) = self.receiving.front().copied()
            && let Some(message) = coming.pop_front()
        {
            self.receiving.pop_front();
            let bytes = message.len().min(MESSAGE_BYTES);
            self.places[place][..bytes].copy_from_slice(&message[..bytes]);
            return Ok(Some(Done { place, bytes: Ok(bytes) }));
        }
        Ok(self.done.pop_front())
    }

    fn place(&mut self, place: usize) -> &mut [u8] {
        &mut self.places[place]
    }

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn may_wait(&mut self) -> bool {
        let wires = self.wires.lock();
        self.done.is_empty() && (self.receiving.is_empty() || wires[1 - self.side].is_empty())
    }
}

/// What both sides know, another for each seed.
fn material(seed: u8) -> [u8; MATERIAL_BYTES] {
    std::array::from_fn(|at| at as u8 ^ seed)
}

struct Pair {
    ends: [Stream<Own>; 2],
    wires: Wires,
    is_busy: [Arc<Mutex<bool>>; 2],
    _beside: (UnixStream, UnixStream),
}

impl Pair {
    fn new() -> Pair {
        Pair::with([material(7); 2])
    }

    /// Of what each side takes for what both know.
    fn with(material: [[u8; MATERIAL_BYTES]; 2]) -> Pair {
        let beside = UnixStream::pair().unwrap();
        let wires = Wires::default();
        let is_busy = [(); 2].map(|()| Arc::<Mutex<bool>>::default());
        let end = |number: usize, side, beside: &UnixStream| {
            let own = Own {
                side: number,
                wires: wires.clone(),
                places: vec![vec![0; MESSAGE_BYTES]; RECEIVES + SENDS],
                receiving: VecDeque::new(),
                done: VecDeque::new(),
                is_busy: is_busy[number].clone(),
            };
            let keys = Keys::new(&material[number], side).unwrap();
            Stream::new(own, keys, beside.as_fd()).unwrap()
        };
        let ends = [end(0, Side::Program, &beside.0), end(1, Side::Service, &beside.1)];
        Pair { ends, wires, is_busy, _beside: beside }
    }

    fn under_way(&self) -> usize {
        self.wires.lock()[0].len()
    }
}

fn take(end: &Stream<Own>, most: usize) -> std::result::Result<Vec<u8>, Broken> {
    let mut seen = vec![0; most];
    match end.receive(&mut seen) {
        Ok(len) => seen.truncate(len),
        Err(error) if error.kind() == ErrorKind::WouldBlock => seen.clear(),
        Err(error) => {
            let broken = error.get_ref().and_then(|inner| inner.downcast_ref::<Broken>());
            return Err(broken.unwrap().clone());
        }
    }
    Ok(seen)
}

fn send(end: &Stream<Own>, bytes: &[u8]) -> usize {
    end.send([bytes, &[], &[]]).unwrap_or(0)
}

/// What the other side says where a message of three that are under way was tampered with.
fn tampered(tamper: impl FnOnce(&mut VecDeque<Vec<u8>>)) -> (Vec<u8>, Option<Broken>) {
    let pair = Pair::new();
    for text in [b"first", b"other", b"third"] {
        assert_eq!(send(&pair.ends[0], text), text.len());
    }
    tamper(&mut pair.wires.lock()[0]);
    let mut seen = Vec::new();
    loop {
        match take(&pair.ends[1], 100) {
            Ok(more) if more.is_empty() => return (seen, None),
            Ok(more) => seen.extend(more),
            Err(broken) => {
                let why = take(&pair.ends[1], 100).unwrap_err();
                assert_eq!(why, broken, "it stays so");
                assert!(
                    pair.ends[1].send([b"more", &[], &[]]).is_err() && !pair.ends[1].may_sleep()
                );
                return (seen, Some(broken));
            }
        }
    }
}

#[test]
fn what_nobody_touches_arrives() {
    assert_eq!(tampered(|_| {}), (b"firstotherthird".to_vec(), None));
}

#[test]
fn a_message_that_was_changed_is_refused() {
    for at in 0..HEAD_BYTES + 5 + 16 {
        let (seen, broken) = tampered(|wire| wire[1][at] ^= 0x20);
        assert_eq!(seen, b"first", "byte {at}");
        let expected = match at {
            0..8 => Refused::Early(1 | 0x20 << (8 * at), 1),
            16..20 => Refused::Length,
            _ => Refused::Changed,
        };
        assert_eq!(broken, Some(Broken::Refused(expected)), "byte {at}");
    }
}

#[test]
fn a_message_that_comes_again_is_refused() {
    let (seen, broken) = tampered(|wire| wire.insert(2, wire[0].clone()));
    assert_eq!(seen, b"firstother");
    assert_eq!(broken, Some(Broken::Refused(Refused::Again(0, 2))));
}

#[test]
fn messages_in_another_order_are_refused() {
    let (seen, broken) = tampered(|wire| wire.swap(1, 2));
    assert_eq!((&seen[..], broken), (&b"first"[..], Some(Refused::Early(2, 1).into())));
    let (seen, broken) = tampered(|wire| drop(wire.remove(1)));
    assert_eq!((&seen[..], broken), (&b"first"[..], Some(Refused::Early(2, 1).into())));
}

#[test]
fn a_message_that_is_cut_short_or_longer_is_refused() {
    for bytes in (0..HEAD_BYTES + 5 + 16).chain([HEAD_BYTES + 22, MESSAGE_BYTES, MESSAGE_BYTES + 1])
    {
        let (seen, broken) = tampered(|wire| wire[1].resize(bytes, 0));
        assert_eq!((&seen[..], broken), (&b"first"[..], Some(Refused::Length.into())), "{bytes}");
    }
}

#[test]
fn a_message_that_somebody_else_made_is_refused() {
    // with the other direction's key, and with the numbers that are next
    let reflected = |wire: &mut VecDeque<Vec<u8>>| {
        let pair = Pair::new();
        (0..2).for_each(|_| assert_eq!(send(&pair.ends[1], b"other"), 5));
        wire[1] = pair.wires.lock()[1][1].clone();
    };
    // of another connection
    let stranger = |wire: &mut VecDeque<Vec<u8>>| {
        let pair = Pair::with([material(8); 2]);
        (0..2).for_each(|_| assert_eq!(send(&pair.ends[0], b"other"), 5));
        wire[1] = pair.wires.lock()[0][1].clone();
    };
    for (seen, broken) in [tampered(reflected), tampered(stranger)] {
        assert_eq!((&seen[..], broken), (&b"first"[..], Some(Refused::Changed.into())));
    }
    // what the two sides know is not the same
    let pair = Pair::with([material(7), material(9)]);
    send(&pair.ends[0], b"first");
    assert_eq!(take(&pair.ends[1], 100), Err(Refused::Changed.into()));
}

#[test]
fn nothing_of_the_stream_is_seen_on_the_fabric() {
    let pair = Pair::new();
    send(&pair.ends[0], &[b'x'; 1000]);
    let message = pair.wires.lock()[0][0].clone();
    assert_eq!(message.len(), HEAD_BYTES + 1000 + 16);
    assert!(!message.windows(4).any(|four| four == b"xxxx"));
}

#[test]
fn who_takes_nothing_is_sent_no_more_than_it_has_places_for() {
    let pair = Pair::new();
    let [one, other] = &pair.ends;
    let bytes = vec![5; 10 << 20];
    let mut sent = 0;
    while let more @ 1.. = send(one, &bytes[sent..]) {
        sent += more;
        // what came waits in its places
        other.may_sleep();
    }
    assert_eq!(sent, (RECEIVES - 1) * PIECE_BYTES_MAX, "one is kept for a grant");
    assert!(one.may_sleep(), "nothing is to be done before it is granted more");
    let mut taken = 0;
    while taken < bytes.len() {
        let more = take(other, 50_000).unwrap();
        taken += more.len();
        sent += send(one, &bytes[sent..]);
        assert!(pair.under_way() <= RECEIVES);
    }
    assert_eq!(taken, bytes.len());
}

#[test]
fn two_who_have_filled_each_other_go_on_when_one_takes() {
    let pair = Pair::new();
    let bytes = vec![5; 4 << 20];
    let mut sent = [0; 2];
    for side in 0..2 {
        while let more @ 1.. = send(&pair.ends[side], &bytes[sent[side]..]) {
            sent[side] += more;
            pair.ends.iter().for_each(|end| _ = end.may_sleep());
        }
    }
    // the first takes, and sends nothing until it may
    let mut taken = 0;
    while sent[1] < bytes.len() {
        taken += take(&pair.ends[0], 100_000).unwrap().len();
        pair.ends[0].may_sleep();
        sent[1] += send(&pair.ends[1], &bytes[sent[1]..]);
    }
    assert!(
        taken > (RECEIVES - 1) * PIECE_BYTES_MAX && sent[0] == (RECEIVES - 1) * PIECE_BYTES_MAX
    );
}

#[test]
fn what_the_fabric_does_not_take_goes_first_when_it_does() {
    let pair = Pair::new();
    let one = &pair.ends[0];
    *pair.is_busy[0].lock() = true;
    assert_eq!(send(one, b"first"), 5, "one message is kept");
    assert_eq!(send(one, b"other"), 0);
    assert!(!one.flush().unwrap() && !one.has_sent_all());
    *pair.is_busy[0].lock() = false;
    assert!(one.flush().unwrap() && one.has_sent_all());
    assert_eq!(send(one, b"other"), 5);
    assert_eq!(take(&pair.ends[1], 100).unwrap(), b"firstother");
}

#[test]
fn nothing_comes_behind_the_last_message() {
    let pair = Pair::new();
    let [one, other] = &pair.ends;
    assert_eq!(send(one, b"first"), 5);
    one.end();
    one.end();
    assert_eq!(send(one, b"other"), 0);
    assert_eq!(pair.under_way(), 2);
    assert_eq!(take(other, 100).unwrap(), b"first");
    assert_eq!(take(other, 100).unwrap(), b"");
    assert_eq!(other.counts(), (0, 2));
    other.end();
    let until = Instant::now() + std::time::Duration::from_secs(600);
    pair.ends.iter().for_each(|end| end.settle(until));
    // one that says so, and goes on
    let pair = Pair::new();
    pair.ends[0].end();
    pair.ends[0].state.lock().has_ended = false;
    send(&pair.ends[0], b"more");
    assert_eq!(take(&pair.ends[1], 100), Err(Refused::Nonsense.into()));
}

proptest! {
    #[test]
    fn what_is_sent_is_what_comes(
        steps in proptest::collection::vec((any::<bool>(), 1..60_000usize, 1..60_000usize), 1..80),
    ) {
        let pair = Pair::new();
        let (mut sent, mut taken) = ([0usize; 2], [0usize; 2]);
        for (from, send_bytes, take_bytes) in steps {
            let (from, to) = (usize::from(from), usize::from(!from));
            let bytes: Vec<u8> =
                (sent[from]..sent[from] + send_bytes).map(|at| (at % 251) as u8).collect();
            let (one, rest) = bytes.split_at(send_bytes / 3);
            let (two, three) = rest.split_at(send_bytes / 7);
            sent[from] += pair.ends[from].send([one, two, three]).unwrap_or(0);
            let seen = take(&pair.ends[to], take_bytes).unwrap();
            for byte in seen {
                prop_assert_eq!(byte, (taken[to] % 251) as u8);
                taken[to] += 1;
            }
            prop_assert!(taken[to] <= sent[from]);
        }
    }

    #[test]
    fn any_bytes_are_refused(
        mut message in proptest::collection::vec(any::<u8>(), 0..200), is_next in any::<bool>(),
    ) {
        if is_next && message.len() >= HEAD_BYTES {
            let piece = message.len().saturating_sub(HEAD_BYTES + 16) as u64;
            message[..8].fill(0);
            message[16..24].copy_from_slice(&piece.to_le_bytes());
        }
        let pair = Pair::new();
        pair.wires.lock()[0].push_back(message);
        prop_assert!(matches!(take(&pair.ends[1], 100), Err(Broken::Refused(_))));
    }

    #[test]
    fn any_change_of_a_message_is_refused(
        bytes in proptest::collection::vec(any::<u8>(), 1..3000),
        (at, bit, cut) in (any::<u32>(), 0..8u32, any::<bool>()),
    ) {
        let pair = Pair::new();
        send(&pair.ends[0], &bytes);
        {
            let message = &mut pair.wires.lock()[0][0];
            let at = at as usize % message.len();
            if cut { message.truncate(at) } else { message[at] ^= 1 << bit }
        }
        prop_assert!(matches!(take(&pair.ends[1], 100), Err(Broken::Refused(_))));
    }
}
