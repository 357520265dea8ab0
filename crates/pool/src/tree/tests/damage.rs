//! Pages that are not what they should be, with checksums that do not tell: no panic, no hang, and
//! no more page reads than the pages explain.

use super::{Change, Key, Random, Root, Store, apply, change, walk, walk_pointers};
use crate::tree::{BlockAddr, PAGE_BYTES, PagePtr, TreeError, get, scan};

fn tree(random: &mut Random, entries: u64) -> (Store, Root) {
    let mut store = Store::new();
    let mut root = Root::EMPTY;
    for _ in 0..3 {
        let mut puts: Vec<_> = (0..entries / 3)
            .map(|_| {
                let length = random.below(120) as usize;
                (Key::new(random.below(50), 1, random.below(5000)), Change::Put(vec![9; length]))
            })
            .collect();
        puts.sort_by_key(|put| put.0);
        puts.dedup_by_key(|put| put.0);
        root = change(&mut store, &root, &puts, &[]);
    }
    store.verify = false;
    (store, root)
}

/// Uses the tree in all ways; whatever comes out, it comes out soon.
fn use_all(store: &mut Store, root: &Root, random: &mut Random) {
    let pages = store.pages.len() as u64;
    store.reads.set(0);
    let _ = walk(store, root, &mut |_, _| Ok(()));
    assert!(store.reads.get() <= pages, "a walk reads a page twice");
    store.reads.set(0);
    let _ = walk_pointers(store, root, &mut |_, _| Ok(()));
    assert!(store.reads.get() <= pages, "a walk of pointers reads a page twice");
    store.reads.set(0);
    let _ = scan(store, root, Key::MIN, Key::MAX, |_, _| Ok(true));
    assert!(store.reads.get() <= pages + 12, "a scan reads pages again and again");
    let key = Key::new(random.below(50), 1, random.below(5000));
    let _ = scan(store, root, key, Key::new(key.object + 3, 0, 0), |_, _| Ok(true));
    for _ in 0..10 {
        let key = Key::new(random.below(50), 1, random.below(5000));
        let _ = get(store, root, &key);
    }
    let mut puts: Vec<_> = (0..random.below(60))
        .map(|_| (Key::new(random.below(50), 1, random.below(5000)), Change::Put(vec![1; 64])))
        .collect();
    puts.sort_by_key(|put| put.0);
    puts.dedup_by_key(|put| put.0);
    let from = Key::new(random.below(50), 0, 0);
    let ranges = [(from, Key::new(from.object + random.below(9), 0, 0))];
    store.reads.set(0);
    let _ = apply(store, root, &puts, &ranges, &mut |_, _, _| ());
    assert!(store.reads.get() <= 2 * pages + 24, "a batch reads pages again and again");
    store.pages.truncate(pages as usize);
}

/// Addresses of the tree's pages while it is whole.
fn addresses(store: &Store, root: &Root) -> Vec<BlockAddr> {
    let mut addresses = Vec::new();
    walk(store, root, &mut |ptr, _| {
        addresses.push(ptr.addr);
        Ok(())
    })
    .unwrap();
    addresses
}

#[test]
fn flipped_bytes_never_panic_or_hang() {
    let mut random = Random(1);
    let (mut store, root) = tree(&mut random, 9000);
    assert!(root.height >= 3);
    let addresses = addresses(&store, &root);
    for round in 0..3000 {
        // The topmost pages are hit more often: the fate of most reads hangs on them.
        let among = if round % 2 == 0 { 4 } else { addresses.len() as u64 };
        let addr = addresses[random.below(among) as usize];
        let whole = *store.page_mut(addr).unwrap();
        let header_only = round % 3 == 0;
        for _ in 0..=random.below(4) {
            let at = random.below(if header_only { 40 } else { PAGE_BYTES as u64 }) as usize;
            store.page_mut(addr).unwrap()[at] = random.next() as u8;
        }
        use_all(&mut store, &root, &mut random);
        *store.page_mut(addr).unwrap() = whole;
    }
}

#[test]
fn pages_in_each_others_place_are_refused() {
    let mut random = Random(2);
    let (mut store, root) = tree(&mut random, 6000);
    let addresses = addresses(&store, &root);
    for _ in 0..300 {
        let (a, b) = (random.below(addresses.len() as u64), random.below(addresses.len() as u64));
        let (a, b) = (addresses[a as usize], addresses[b as usize]);
        let (page_a, page_b) = (*store.page_mut(a).unwrap(), *store.page_mut(b).unwrap());
        *store.page_mut(a).unwrap() = page_b;
        let result = walk(&store, &root, &mut |_, _| Ok(()));
        assert_eq!(matches!(result, Err(TreeError::Damaged { .. })), a != b);
        use_all(&mut store, &root, &mut random);
        *store.page_mut(a).unwrap() = page_a;
    }
}

#[test]
fn pointers_to_other_pages_never_hang() {
    let mut random = Random(3);
    let (mut store, root) = tree(&mut random, 9000);
    let addresses = addresses(&store, &root);
    let inner: Vec<_> =
        addresses.iter().copied().filter(|addr| store.page_mut(*addr).unwrap()[5] > 0).collect();
    for _ in 0..500 {
        let addr = inner[random.below(inner.len() as u64) as usize];
        let whole = *store.page_mut(addr).unwrap();
        let page = store.page_mut(addr).unwrap();
        let count = usize::from(u16::from_le_bytes([page[6], page[7]]));
        for _ in 0..4 {
            let i = random.below(count as u64) as usize;
            let to = addresses[random.below(addresses.len() as u64) as usize];
            let at = 32 + 19 * count + 20 * i;
            page[at..at + 8].copy_from_slice(&to.bits().to_le_bytes());
        }
        use_all(&mut store, &root, &mut random);
        *store.page_mut(addr).unwrap() = whole;
    }
}

#[test]
fn pages_of_noise_are_refused() {
    let mut random = Random(4);
    let mut store = Store::new();
    store.verify = false;
    for _ in 0..2000 {
        let mut page = Box::new([0; PAGE_BYTES]);
        page.fill_with(|| random.next() as u8);
        // A header that passes, half of the time, so that the rest is looked at.
        if random.below(2) == 0 {
            page[..5].copy_from_slice(b"NSTP\x01");
            page[5] = random.below(3) as u8;
            page[6..8].copy_from_slice(&(random.below(214) as u16).to_le_bytes());
        }
        store.pages = vec![page];
        let addr = BlockAddr::new(0, 1);
        let page = PagePtr { addr, copy: BlockAddr::NONE, crc: 0 };
        let root = Root { page, height: 1 + random.below(3) as u8, entries: 5 };
        assert!(walk(&store, &root, &mut |_, _| Ok(())).is_err());
        use_all(&mut store, &root, &mut random);
    }
}

#[test]
fn wrong_checksum_is_an_error_everywhere() {
    let mut random = Random(5);
    let (mut store, root) = tree(&mut random, 3000);
    store.verify = true;
    store.page_mut(root.page.addr).unwrap()[4000] ^= 1;
    assert!(get(&store, &root, &Key::MIN).is_err());
    assert!(scan(&store, &root, Key::MIN, Key::MAX, |_, _| Ok(true)).is_err());
    assert!(walk(&store, &root, &mut |_, _| Ok(())).is_err());
    let puts = [(Key::new(1, 1, 1), Change::Put(vec![]))];
    assert!(apply(&mut store, &root, &puts, &[], &mut |_, _, _| ()).is_err());
}

#[test]
fn roots_that_make_no_sense_are_refused() {
    let page = PagePtr { addr: BlockAddr::new(0, 1), copy: BlockAddr::NONE, crc: 0 };
    let store = Store::new();
    for root in [
        Root { page, height: 0, entries: 0 },
        Root { page, height: 13, entries: 1 },
        Root { page, height: 255, entries: 1 },
        Root { page, height: 1, entries: 0 },
        Root { page: PagePtr::NONE, height: 1, entries: 1 },
    ] {
        assert!(Root::decode(&root.encode()).is_err());
        assert!(get(&store, &root, &Key::MIN).is_err());
        assert!(walk(&store, &root, &mut |_, _| Ok(())).is_err());
    }
    let mut bytes = Root::EMPTY.encode();
    assert_eq!(Root::decode(&bytes).unwrap(), Root::EMPTY);
    bytes[22] = 1;
    assert!(Root::decode(&bytes).is_err());
    bytes = [0xff; 32];
    assert!(Root::decode(&bytes).is_err());
}

#[test]
fn wrong_count_of_entries_is_found() {
    let mut random = Random(6);
    let (mut store, root) = tree(&mut random, 300);
    for entries in [1, u64::MAX] {
        let wrong = Root { entries, ..root };
        assert!(walk(&store, &wrong, &mut |_, _| Ok(())).is_err());
        let all = [(Key::MIN, Key::MAX)];
        assert!(apply(&mut store, &wrong, &[], &all, &mut |_, _, _| ()).is_err());
    }
}
