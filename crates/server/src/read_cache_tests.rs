//! What is where in a read cache, when it is full.

use super::*;

fn bytes(memory: &File, place: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.read_exact_at(&mut bytes, wire::cached_page(place) as u64).unwrap();
    bytes
}

#[test]
fn the_page_that_came_first_gives_place_and_its_count_says_so() {
    const PLACES: usize = 20;
    let room = Room::new(1 << 20);
    let (cache, theirs) = ReadCache::new(&room, PLACES).unwrap();
    let theirs = File::from(theirs);
    let counts = Words::to_load(theirs.as_fd(), wire::CACHED_PAGES).unwrap();
    let mut told: HashMap<u64, (u32, u64)> = HashMap::new();
    for round in 0..200u64 {
        let page = round * 7 % 33;
        let put = cache.put(Ino(5), page, &[round as u8; PAGE as usize], true);
        assert_eq!(put.len(), 1);
        let (place, count) = put[0];
        assert!((place as usize) < PLACES && counts.load(place as usize) == count);
        // whoever was told of this place before sees that it is another page
        for (other, known) in &told {
            let is_same = counts.load(known.0 as usize) == known.1;
            assert!(known.0 != place || *other == page || !is_same, "{other} and {page}");
        }
        told.insert(page, put[0]);
        assert_eq!(bytes(&theirs, place, 9), [round as u8; 9]);
    }
    let there = told.values().filter(|(place, count)| counts.load(*place as usize) == *count);
    assert_eq!(there.count(), PLACES);
    assert_eq!(room.bytes(), PLACES as u64 * PAGE);

    // what goes, and what another file has
    let (other, end) = (cache.put(Ino(6), 3, &[9; PAGE as usize], true)[0], 3..=u64::MAX);
    cache.forget(Ino(5), &(0..=u64::MAX));
    let is_there = |told: &(u32, u64)| counts.load(told.0 as usize) == told.1;
    assert!(is_there(&other) && !told.values().any(is_there));
    cache.forget(Ino(6), &end);
    assert!(!is_there(&other));

    // the page that a file ends in goes with any behind it, and no other does
    let whole = cache.put(Ino(7), 0, &[1; 2 * PAGE as usize + 100], true);
    assert_eq!(whole.len(), 3);
    cache.forget(Ino(7), &(9..=9));
    assert_eq!(whole.iter().map(is_there).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(cache.put(Ino(7), 0, &[1; PAGE as usize + 100], false).len(), 1);
    drop(cache);
    assert_eq!(room.bytes(), 0);
}

#[test]
fn a_page_that_is_evicted_is_nobodys_and_gives_its_memory_back() {
    let room = Room::new(8 * PAGE);
    let (cache, theirs) = ReadCache::new(&room, 64).unwrap();
    let theirs = File::from(theirs);
    let first = cache.put(Ino(1), 0, &[1; 4 * PAGE as usize], true);
    let counts = Words::to_load(theirs.as_fd(), wire::CACHED_PAGES).unwrap();
    room.make(6);
    let left = first.iter().filter(|(place, count)| counts.load(*place as usize) == *count);
    assert_eq!((left.count() as u64) * PAGE, room.bytes());
    assert!(room.bytes() <= 2 * PAGE);
    let (place, _) = first[0];
    assert_eq!(bytes(&theirs, place, 5), [0; 5], "it was punched out");
    drop(cache);
    assert_eq!(room.bytes(), 0);
}
