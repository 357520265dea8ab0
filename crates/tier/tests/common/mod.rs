//! What all devices are tried with.
#![allow(dead_code)] // not each of the programs tries all

use pool::{BLOCK_BYTES, Device, Scatter, Transfer};

pub const BLOCK: usize = BLOCK_BYTES as usize;

pub fn filled(seed: u64, blocks: usize) -> Vec<u8> {
    let byte = |at: usize| (seed.wrapping_mul(31) as usize + at / BLOCK * 7 + at % 251) as u8;
    (0..blocks * BLOCK).map(byte).collect()
}

/// So many threads each have a part of the device, and find there what they wrote, in so many
/// rounds.
pub fn everybody_finds_his_own(device: &dyn Device, threads: u64, rounds: u64) {
    let own = device.bytes() / BLOCK_BYTES / threads;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut state = thread + 1;
                for round in 0..rounds {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let count = 1 + (state >> 40) as usize % 40;
                    let at = thread * own + (state >> 20) % (own - 80);
                    let (one, two) = (filled(state, count), filled(state + 9, 7));
                    let mut writes = [Transfer::Write(at, &one), Transfer::Write(at + 50, &two)];
                    device.transfer(&mut writes).unwrap();
                    if round % 16 == 0 {
                        device.sync().unwrap();
                    }
                    // from an address that no device likes
                    let mut room = vec![0xEE; count * BLOCK + 1];
                    let mut other = vec![0xEE; 7 * BLOCK];
                    let mut reads =
                        [Transfer::Read(at, &mut room[1..]), Transfer::Read(at + 50, &mut other)];
                    device.transfer(&mut reads).unwrap();
                    assert!(room[1..] == one[..] && other == two, "thread {thread}");
                }
            });
        }
    });
}

/// Blocks go into memory that is anywhere: in several runs, more pieces than the kernel takes at
/// once, and such as no device likes. What lies behind the end is an error.
pub fn neighbours_find_their_pieces(device: &dyn Device) {
    const COUNT: usize = 1500;
    let data = filled(5, COUNT);
    device.transfer(&mut [Transfer::Write(70, &data)]).unwrap();
    for (size, offset) in [(1, 0), (3, 0), (1, 1)] {
        // between two pieces there is a page that is nobody's
        let mut memory = vec![0xEE; ((size + 1) * (COUNT / size) + 1) * BLOCK];
        let page = memory.as_ptr().align_offset(BLOCK);
        let mut pieces: Vec<&mut [u8]> = memory[page..]
            .chunks_exact_mut((size + 1) * BLOCK)
            .map(|pages| &mut pages[offset..][..size * BLOCK])
            .collect();
        assert_eq!(pieces.len(), COUNT / size);
        pieces.reverse();
        let last = pieces.split_off(pieces.len() - 100);
        let behind = 70 + (pieces.len() * size) as u64;
        let mut runs = [Scatter { block: 70, into: pieces }, Scatter { block: behind, into: last }];
        device.scatter(&mut runs).unwrap();
        let seen: Vec<u8> = runs.iter().flat_map(|run| run.into.concat()).collect();
        assert!(seen == data, "pieces of {size} blocks, {offset} from where a page begins");
        let untouched = memory.iter().filter(|byte| **byte == 0xEE).count();
        assert!(untouched >= COUNT / size * BLOCK, "what is nobody's is as it was");
    }
    let mut memory = vec![0; 4 * BLOCK];
    let page = memory.as_ptr().align_offset(BLOCK);
    let (one, two) = memory[page..].split_at_mut(BLOCK);
    let last = device.bytes() / BLOCK_BYTES - 1;
    let into = vec![one, &mut two[BLOCK..2 * BLOCK]];
    assert!(device.scatter(&mut [Scatter { block: last, into }]).is_err());
    device.scatter(&mut []).unwrap();
}
