//! What a service is told by a process that it does not trust: its first words, and its calls.
//!
//! A byte says which: 0, the rest are first words, as JSON. Others: the memory of calls has a slot
//! with these: state u8, length of the message u32, of the data u32, the message.

use super::input::Input;
use serde::Serialize;
use shm::Shared;
use std::os::fd::AsFd;
use wire::{Call, Flags, Greeting, Held, Identity, Node, Piece, Proof, Request, Served};

/// Where the words of the first slot are, and where its message is.
const WORDS_AT: usize = 64;
const MESSAGE_AT: usize = 4096;
const ASKED: u8 = 1;

thread_local! {
    static MEMORY: (Shared, Served) = memory();
}

fn memory() -> (Shared, Served) {
    let made = || {
        let memory = wire::create_calls()?;
        Ok::<_, shm::Error>((Shared::map(memory.as_fd())?, Served::new(memory.as_fd())?))
    };
    made().unwrap_or_else(|error| panic!("no memory for calls: {error}"))
}

/// See the module.
pub fn run(bytes: &[u8]) -> bool {
    let mut input = Input(bytes);
    if input.byte() == 0 {
        return greets(input.0);
    }
    MEMORY.with(|(memory, served)| calls(memory, served, input))
}

fn greets(bytes: &[u8]) -> bool {
    let Ok(greeting) = serde_json::from_slice::<Greeting>(bytes) else { return false };
    let again = serde_json::to_vec(&greeting).unwrap_or_default();
    let again = serde_json::from_slice::<Greeting>(&again);
    assert_eq!(again.ok(), Some(greeting), "first words are not what they say");
    true
}

fn calls(memory: &Shared, served: &Served, mut input: Input<'_>) -> bool {
    let state = input.byte();
    let words = [input.number(4) as u32, input.number(4) as u32].map(u32::to_le_bytes).concat();
    let said = &input.0[..input.0.len().min(wire::MESSAGE_BYTES_MAX)];
    memory.store(MESSAGE_AT, said);
    memory.store(WORDS_AT + 8, &words);
    memory.store(WORDS_AT, &[state, 0, 0, 0]);
    let mut message = Vec::new();
    let taken = served.take(0, &mut message);
    assert_eq!(taken.is_some(), state == ASKED, "what is asked is taken");
    let Some(taken) = taken else { return false };
    assert!(message.len() <= wire::MESSAGE_BYTES_MAX && taken.data_len <= wire::DATA_BYTES_MAX);
    served.data(taken, &mut vec![0; taken.data_len]);
    let call = wire::decode::<Call<'_>>(&message);
    if let Ok(call) = &call {
        let again = wire::encode(call, Vec::new()).unwrap_or_default();
        assert_eq!(wire::decode::<Call<'_>>(&again).ok().as_ref(), Some(call), "a call changes");
    }
    served.answer(taken, b"answer", &[]);
    assert!(served.take(0, &mut Vec::new()).is_none(), "it is answered");
    call.is_ok()
}

/// What honest processes say, and what is cut.
pub fn seeds() -> Vec<Vec<u8>> {
    let flags = Flags { read: true, write: true, ..Flags::default() };
    let piece = Piece { file: 3, offset: 1 << 40, len: 4096 };
    let held = Held { kind: fs::LockKind::Write, start: 0, end: 9 };
    let (number, ino, proof) = (3, 12, Proof((7u128 << 90).to_le_bytes()));
    let requests = [
        Request::Open(b"/a/path", flags),
        Request::Restore { number, ino, flags: Some(flags), proof, locks: vec![held] },
        Request::Make(b"/link", Node::Symlink(b"to")),
        Request::Rename(b"/a", b"/b", fs::RenameMode::Exchange),
        Request::Commit { staged: 1, pieces: 2, writes: vec![piece; 3], expected: vec![piece] },
        Request::ReadTogether { pieces: vec![piece; 2], watched: vec![3] },
        Request::Lease { slot: 31, file: 3, first: 0, last: u64::MAX },
        Request::Happened { connection: 9 << 99, slot: 1, generation: 2, number: 3 },
    ];
    let identity = Identity { client: "1f".repeat(16), service: 3, proof: "e0".repeat(16) };
    let greetings = [None, Some(identity)].map(|returns| Greeting {
        version: 3,
        returns,
        mount: None,
        fabric: None,
    });
    let mut seeds: Vec<Vec<u8>> = requests.iter().map(|request| asked(&(5u64, request))).collect();
    for greeting in greetings {
        seeds.push([&[0], &*serde_json::to_vec(&greeting).unwrap_or_default()].concat());
    }
    let cut: Vec<Vec<u8>> = seeds.iter().map(|seed| seed[..seed.len() - 2].to_vec()).collect();
    seeds.extend(cut);
    seeds
}

/// A slot that asks this.
fn asked(call: &impl Serialize) -> Vec<u8> {
    let message = wire::encode(call, Vec::new()).unwrap_or_default();
    let head = [&[1, ASKED][..], &(message.len() as u32).to_le_bytes(), &[0, 16, 0, 0]].concat();
    [head, message].concat()
}
