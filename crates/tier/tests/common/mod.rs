//! What all devices are tried with.

use pool::{BLOCK_BYTES, Device, Transfer};

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
