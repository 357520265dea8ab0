//! Superblocks, roots and states.
//!
//! ```text
//! how u8, which u8, then fields: number u8, its bytes; a number that no field has: at u16, byte
//! ```
//!
//! The fields are those of `FIELDS`: what is not named is as in the base. Bits of `which`: 1 the
//! first superblock stays, 2 the second, 4 the first slot, 8 the second slot, 16 the state; 32
//! identities and magics, too, are what the bytes say.

use super::arena::{Arena, Left};
use super::input::Input;
use super::{CHANGE, KILL, use_as_left, with_arena};
use crate::image::{BLOCK, ROOT, STATE, STATE_AT, SUPERBLOCK};
use pool::{BLOCK_BYTES, PAYLOAD_BYTES_MAX, Superblock};
use std::ops::Range;

/// Where in the content the root of slot 0 lies, behind the superblock; that of slot 1; the state.
const ROOTS: [usize; 2] = [SUPERBLOCK, SUPERBLOCK + ROOT];
const STATE_IN: usize = SUPERBLOCK + 2 * ROOT;
const CONTENT: usize = STATE_IN + STATE;
/// What is the same for all structures of a pool.
const IDENTITIES: [Range<usize>; 5] =
    [0..8, 16..48, ROOTS[0]..ROOTS[0] + 24, ROOTS[1]..ROOTS[1] + 24, STATE_IN..STATE_IN + 8];

/// Fields of a superblock, of a root and of a state: where each begins, and its bytes.
const SUPERBLOCK_FIELDS: [(usize, usize); 16] = [
    (8, 4),
    (12, 4),
    (48, 4),
    (52, 4),
    (56, 8),
    (64, 8),
    (72, 4),
    (76, 1),
    (80, 4),
    (84, 4),
    (88, 4),
    (92, 4),
    (96, 8),
    (104, 4),
    (0, 8),
    (16, 8),
];
const ROOT_FIELDS: [(usize, usize); 16] = [
    (24, 8),
    (32, 8),
    (40, 8),
    (48, 8),
    (56, 8),
    (64, 8),
    (72, 8),
    (80, 8),
    (88, 4),
    (92, 1),
    (96, 8),
    (104, 8),
    (112, 8),
    (120, 4),
    (124, 1),
    (128, 8),
];
const STATE_FIELDS: [(usize, usize); 5] = [(8, 8), (16, 8), (24, 4), (28, 4), (32, 8)];

/// The field of this number, of all of them.
fn field(number: usize) -> Option<(usize, usize)> {
    let in_root = |root: usize| ROOT_FIELDS.iter().map(move |(at, len)| (root + at, *len));
    let in_state = STATE_FIELDS.iter().map(|(at, len)| (STATE_IN + at, *len));
    let fields = SUPERBLOCK_FIELDS.into_iter().chain(ROOTS.into_iter().flat_map(in_root));
    fields.chain(in_state).nth(number)
}

/// See the module.
pub fn run(bytes: &[u8]) -> bool {
    let mut input = Input(bytes);
    let (how, which) = (input.byte(), input.byte());
    let own = |bit: u8| which & bit == 0;
    with_arena(|arena| {
        let content = read_content(arena, &mut input, own(32));
        let superblock = &content[..SUPERBLOCK];
        decode(superblock);
        let last = arena.base().slices[0].len() - BLOCK;
        for (_, at) in [(1, 0), (2, last)].iter().filter(|(bit, _)| own(*bit)) {
            arena.put(*at, superblock);
        }
        for (bit, root, at) in [(4, ROOTS[0], BLOCK), (8, ROOTS[1], 2 * BLOCK)] {
            if own(bit) {
                arena.put_root(at, &content[root..root + ROOT]);
            }
        }
        if own(16) {
            arena.put(STATE_AT, &content[STATE_IN..]);
        }
        use_as_left(arena, how)
    })
}

/// The base's structures, one behind the other, with changed fields and checksums that fit.
fn read_content(arena: &Arena, input: &mut Input<'_>, same_pool: bool) -> Vec<u8> {
    let base = |at, len| arena.base().get(0, at, len).unwrap_or_default();
    let parts = [base(0, SUPERBLOCK), base(BLOCK, ROOT), base(2 * BLOCK, ROOT)];
    let mut content = [&parts.concat()[..], &Left::Killed.state()].concat();
    let before = content.clone();
    while !input.is_empty() {
        let (at, len) = match field(input.byte().into()) {
            Some(field) => field,
            None => (input.number(2) as usize % CONTENT, 1),
        };
        let bytes = input.take(len);
        content[at..at + bytes.len()].copy_from_slice(bytes);
    }
    if same_pool {
        IDENTITIES.into_iter().for_each(|at| content[at.clone()].copy_from_slice(&before[at]));
    }
    for (from, crc_at) in [(0, SUPERBLOCK - 8), (STATE_IN, CONTENT - 4)] {
        let crc = pmem::crc32c(0, &content[from..crc_at]);
        content[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
    }
    content
}

/// What is taken for a superblock of a slice, however large, describes one: its parts lie behind
/// each other within the slice, and its log takes every record.
fn decode(bytes: &[u8]) {
    for bytes_max in [1 << 20, 1 << 52] {
        let Ok(superblock) = Superblock::decode(bytes, bytes_max) else { continue };
        assert!(Superblock::decode(bytes, bytes_max) == Ok(superblock.seal()), "sealed as it was");
        let (first, end) = (superblock.data_block_first(), superblock.data_block_end());
        assert!(16 < first && first < end && end < superblock.blocks.get());
        assert_eq!(superblock.data_blocks(), end - first);
        assert!(superblock.blocks.get() <= bytes_max / BLOCK_BYTES);
        assert!(superblock.payload_bytes_max() >= PAYLOAD_BYTES_MAX);
        assert!(superblock.log_bytes.get() % superblock.log_line() as u64 == 0);
    }
}

/// The base, used in each way, and with each of the fields another number.
pub fn seeds() -> Vec<Vec<u8>> {
    let ways = [0, CHANGE, CHANGE | KILL].into_iter();
    let ways = ways.flat_map(|how| [0, 1, 2, 12, 16, 32].map(|which| vec![how, which]));
    let fields = (0u8..).map_while(|number| Some((number, field(number.into())?)));
    let other = fields.flat_map(|(number, (_, len))| {
        let mut least = vec![0; len];
        least[0] = 2;
        [least, vec![0; len]].map(|bytes| [&[0, 0, number][..], &bytes].concat())
    });
    let long_lines = vec![0, 0, 12, 1, 0, 0, 0, 0, 0, 0, 0, 13, 0, 1, 0, 0];
    ways.chain(other).chain([long_lines]).collect()
}
