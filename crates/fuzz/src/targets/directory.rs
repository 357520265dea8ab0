//! What the trees say about files and directories: names, attributes, blocks, links, lists.
//!
//! The bytes are a number that says how the pool is used, then changes to the entries of the base's
//! trees (`edits.rs`), of which sound trees are made.

use super::edits::Edits;
use super::input::Input;
use super::{Arena, CHANGE, KILL, use_pool, with_arena};

/// In the number that says how the pool is used: entries are not put in order.
const UNSORTED: u8 = 64;
/// Changes of one run at most.
const CHANGES_MAX: usize = 64;

/// See the module.
pub fn run(bytes: &[u8]) -> bool {
    let mut input = Input(bytes);
    let how = input.byte();
    with_arena(|arena| {
        let mut edits = Edits::new(arena);
        for _ in 0..CHANGES_MAX {
            if input.is_empty() {
                break;
            }
            edits.read(&mut input);
        }
        edits.put_trees(arena, how & UNSORTED != 0);
        use_pool(arena, how)
    })
}

/// Each kind of change, and each entry of the base changed once.
pub fn seeds() -> Vec<Vec<u8>> {
    let arena = Arena::new();
    let mut edits: Vec<Vec<u8>> = vec![
        vec![],
        // a name more, counted or not, and one in another's place
        [&[32 | 4, 0, 1, 1, 0, 3][..], b"new"].concat(),
        [&[4, 0, 2, 2, 0, 4][..], b"loop"].concat(),
        [&[16 | 4, 0, 2, 1, 7, 1][..], b"n"].concat(),
        [&[5, 1, 9, 6][..], b"user.x", &[2, 0], b"yz"].concat(),
        [&[5, 1, 9, 23][..], b"system.posix_acl_access", &[44, 0], &super::arena::LIST].concat(),
    ];
    for tree in [0, 8] {
        for (number, (entry_key, value)) in
            (0u8..).zip(super::pages::entries(&arena, usize::from(tree / 8)))
        {
            edits.push(vec![tree, number]);
            edits.push(vec![tree | 3, number, value.len() as u8 + 1, 0]);
            let word = value.get(..8).unwrap_or_default();
            edits.push([&[tree | 2, number, 0, 0][..], word].concat());
            let mut swapped = entry_key;
            swapped[..8].reverse();
            swapped[9..].reverse();
            edits.push([&[tree | 7, number][..], &swapped].concat());
            let mut again = [&[tree | RAW | 6][..], &swapped].concat();
            again.extend((value.len() as u16).to_le_bytes());
            edits.push([again, value].concat());
        }
    }
    let orphan = [&[RAW | 6][..], &[0; 8], &[1], &77u64.to_le_bytes(), &[0, 0]].concat();
    edits.push(orphan);
    let all = edits[1..6].concat();
    let ways = [0, 1, CHANGE, CHANGE | KILL, UNSORTED].map(|how| [&[how][..], &all].concat());
    let one = |edit: &Vec<u8>| [&[0][..], edit].concat();
    edits.iter().map(one).chain(ways).collect()
}

/// In a change: the key is what the bytes say.
const RAW: u8 = 16;
