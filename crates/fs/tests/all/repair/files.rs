//! The files of a pool: nothing is written before it is asked for, and all of it can be undone.

use crate::common::TestPool;
use crate::repair::planted::{SLICE_BYTES, SLICES, damage, pairs, plant, read};
use fs::{repair, undo};

fn damaged() -> TestPool {
    let pool = TestPool::new(SLICES, SLICE_BYTES);
    let fs = pool.start_alone();
    plant(&fs);
    fs.close().unwrap();
    drop(fs);
    let mut images = read(&pool.dir());
    for pair in pairs(&images).into_iter().skip(3).step_by(5) {
        pair.iter().for_each(|place| damage(&mut images, *place));
    }
    put(&pool, &images);
    pool
}

fn put(pool: &TestPool, images: &[Vec<u8>]) {
    for (path, image) in crate::common::slices(&pool.dir()).iter().zip(images) {
        std::fs::write(path, image).unwrap();
    }
}

#[test]
fn nothing_is_written_before_it_is_asked_for() {
    let pool = damaged();
    let before = read(&pool.dir());
    let tried = repair(&pool.dir(), &mut |_, _| ()).unwrap().expect("it is damaged");
    assert!(tried.report().pages > 4, "{:?}", tried.report());
    assert!(!tried.report().found.is_empty() && !tried.report().done.is_empty());
    assert_eq!(read(&pool.dir()), before);
    // nobody opens it meanwhile
    assert!(fs::FileSystem::open_pool(&pool.dir(), &pool.open).is_err());
    drop(tried);
    assert_eq!(read(&pool.dir()), before);
}

#[test]
fn what_was_tried_is_what_is_written_and_it_can_be_undone() {
    let pool = damaged();
    let before = read(&pool.dir());
    let undo_file = pool.dir().join("repair.undo");
    let tried = repair(&pool.dir(), &mut |_, _| ()).unwrap().unwrap();
    let (pages, left) = (tried.report().pages, tried.report().left.len());
    tried.write(&undo_file).unwrap();
    let after = read(&pool.dir());
    let differ = |(one, other): (&Vec<u8>, &Vec<u8>)| {
        one.chunks(4096).zip(other.chunks(4096)).filter(|(a, b)| a != b).count() as u64
    };
    assert_eq!(before.iter().zip(&after).map(differ).sum::<u64>(), pages);
    assert_eq!(pool.check().findings.len(), left);
    // once more: what is left cannot be repaired, and stays
    match repair(&pool.dir(), &mut |_, _| ()).unwrap() {
        None => assert_eq!(left, 0),
        Some(again) => assert!(again.report().done.is_empty(), "{:?}", again.report()),
    }
    assert_eq!(undo(&pool.dir(), &undo_file).unwrap(), pages);
    assert_eq!(read(&pool.dir()), before);
    // twice is as good as once
    assert_eq!(undo(&pool.dir(), &undo_file).unwrap(), 0);
    assert_eq!(read(&pool.dir()), before);
}

#[test]
fn an_undo_that_does_not_fit_is_refused() {
    let pool = damaged();
    let undo_file = pool.dir().join("repair.undo");
    repair(&pool.dir(), &mut |_, _| ()).unwrap().unwrap().write(&undo_file).unwrap();
    let other = damaged();
    let said = undo(&other.dir(), &undo_file).unwrap_err().to_string();
    assert!(said.contains("another pool"), "{said}");
    let whole = std::fs::read(&undo_file).unwrap();
    for at in [3, 30, 36, 50, 3000, whole.len() - 5] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        std::fs::write(&undo_file, &bytes).unwrap();
        assert!(undo(&pool.dir(), &undo_file).is_err(), "byte {at}");
    }
    std::fs::write(&undo_file, &whole[..whole.len() - 1]).unwrap();
    assert!(undo(&pool.dir(), &undo_file).is_err());
    std::fs::write(&undo_file, &whole).unwrap();
    // a pool that was used since is not put back: that would lose what came later
    let fs = pool.start_alone();
    plant_more(&fs);
    fs.close().unwrap();
    drop(fs);
    let used = read(&pool.dir());
    let said = undo(&pool.dir(), &undo_file).unwrap_err().to_string();
    assert!(said.contains("changed since the repair"), "{said}");
    assert_eq!(read(&pool.dir()), used);
}

fn plant_more(fs: &fs::FileSystem) {
    let file = crate::common::make(fs, "later");
    fs.write(&file, 0, &[7; 9000]).unwrap();
}

/// Of all pages only a root is another than the repair left it, and sound: its own checksum, which
/// lies in it, made all roots look alike.
#[test]
fn an_undo_sees_that_a_root_was_written_since() {
    let pool = damaged();
    let undo_file = pool.dir().join("repair.undo");
    repair(&pool.dir(), &mut |_, _| ()).unwrap().unwrap().write(&undo_file).unwrap();
    let after = read(&pool.dir());
    for (slice, number) in (0..SLICES).flat_map(|slice| [1, 2, 4, 5].map(|root| (slice, root))) {
        let mut used = after.clone();
        let root = &mut used[slice][number * 4096..][..256];
        root[24] ^= 1;
        let crc = pmem::crc32c(0, &root[..248]);
        root[248..252].copy_from_slice(&crc.to_le_bytes());
        put(&pool, &used);
        let said = undo(&pool.dir(), &undo_file).unwrap_err().to_string();
        assert!(said.contains("changed since the repair"), "{slice} {number}: {said}");
        assert_eq!(read(&pool.dir()), used);
    }
    put(&pool, &after);
    assert!(undo(&pool.dir(), &undo_file).unwrap() > 0);
}

/// A file that is there already is nobody's undo file.
#[test]
fn an_undo_file_is_never_written_over() {
    let pool = damaged();
    let before = read(&pool.dir());
    let undo_file = pool.dir().join("repair.undo");
    std::fs::write(&undo_file, b"precious").unwrap();
    let tried = repair(&pool.dir(), &mut |_, _| ()).unwrap().unwrap();
    assert!(tried.write(&undo_file).is_err());
    assert_eq!(std::fs::read(&undo_file).unwrap(), b"precious");
    assert_eq!(read(&pool.dir()), before);
}

#[test]
fn a_whole_pool_needs_no_repair() {
    let mut pool = TestPool::new(SLICES, SLICE_BYTES);
    let fs = pool.start_alone();
    plant(&fs);
    pool.kill();
    drop(fs);
    assert!(repair(&pool.dir(), &mut |_, _| ()).unwrap().is_none());
    pool.assert_clean();
}

/// A repair that is killed while it writes: until the roots are there the pool is as damaged as it
/// was, and from any moment on it can be repaired again, or undone.
#[test]
fn a_repair_that_is_killed_half_way_has_lost_nothing() {
    let pool = damaged();
    let before = read(&pool.dir());
    let undo_file = pool.dir().join("repair.undo");
    repair(&pool.dir(), &mut |_, _| ()).unwrap().unwrap().write(&undo_file).unwrap();
    let after = read(&pool.dir());
    let blocks = before.iter().zip(&after).enumerate().flat_map(|(slice, (before, after))| {
        let blocks = before.chunks(4096).zip(after.chunks(4096)).enumerate();
        blocks.filter(|(_, (b, a))| b != a).map(move |(number, _)| (slice, number))
    });
    let (heads, data): (Vec<_>, Vec<_>) = blocks.partition(|(_, number)| *number < 16);
    assert!(heads.len() >= 4 && data.len() > 10, "{heads:?} {data:?}");
    put(&pool, &before);
    let found = |pool: &TestPool| match fs::check(&pool.dir()) {
        Ok(report) => format!("{:?}", report.findings),
        Err(error) => error.to_string(),
    };
    let damage = found(&pool);
    let mut seed = 5;
    for round in 0..12 {
        let mut images = before.clone();
        let mut some = |all: &[(usize, usize)], images: &mut Vec<Vec<u8>>| {
            for (slice, number) in all.iter().copied() {
                if crate::common::random(&mut seed) >> 63 == 0 || round % 4 == 3 {
                    let place = number * 4096..(number + 1) * 4096;
                    images[slice][place.clone()].copy_from_slice(&after[slice][place]);
                }
            }
        };
        some(&data, &mut images);
        put(&pool, &images);
        assert_eq!(found(&pool), damage, "round {round}");
        if round % 4 == 3 {
            // all data is there: now the roots, some or all
            for (slice, number) in &heads {
                let place = number * 4096..(number + 1) * 4096;
                images[*slice][place.clone()].copy_from_slice(&after[*slice][place]);
                put(&pool, &images);
                let (_, came) = crate::repair::planted::repaired(&images);
                assert!(!came.files.is_empty());
            }
        }
        put(&pool, &images);
        undo(&pool.dir(), &undo_file).unwrap();
        assert_eq!(read(&pool.dir()), before, "round {round}");
    }
}

/// What was tried out lies in pages of the file's that are this process's own; they go when the
/// file is cut short, even if it is as long as before when the repair is written. Roots that name
/// them must not be written.
#[test]
fn a_slice_that_is_cut_while_the_repair_is_tried_out_is_left_alone() {
    for (len, told) in [(16 * 4096, "do not lie inside"), (SLICE_BYTES, "nothing was written")] {
        let pool = damaged();
        let path = pool.dir().join("slice.0");
        let tried = repair(&pool.dir(), &mut |_, _| ()).unwrap().unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(16 * 4096).unwrap();
        file.set_len(len).unwrap();
        let cut = read(&pool.dir());
        let said = tried.write(&pool.dir().join("repair.undo")).unwrap_err().to_string();
        assert!(said.contains(told), "{said}");
        assert_eq!(read(&pool.dir()), cut);
        assert!(!pool.dir().join("repair.undo").exists());
    }
}
