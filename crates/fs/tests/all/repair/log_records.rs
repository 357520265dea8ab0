//! Damaged records in the log of a killed pool: flipped bits are turned back, whole records behind
//! a lost one count, and what the lost one may have changed is put aside and listed.

use crate::common::{TestPool, content, find, make, pattern, random};
use crate::repair::planted::{
    BLOCK, Images, images, older_copy, pin, read, reads_as_error, repaired, said, told,
};
use fs::{FileSystem, Finding, Ino, repair};

const LINE: usize = 64;
const HEAD_BYTES: usize = 24;
/// The tag of an item that writes one block.
const WRITE_ONE: u8 = 1;

/// Lines of a slice's log that begin a record: its length in lines is at 4, its kind at 6.
fn records(image: &[u8]) -> Vec<usize> {
    let first_page = image.chunks(BLOCK).position(|block| block.starts_with(b"NSTP"));
    let end = first_page.map_or(image.len(), |page| page * BLOCK).min(80 * BLOCK);
    let mut found = Vec::new();
    let mut at = 16 * BLOCK;
    while at + LINE <= end {
        let units = usize::from(u16::from_le_bytes(image[at + 4..at + 6].try_into().unwrap()));
        let is_head = image[at..].starts_with(b"NSCH");
        if !is_head && image[at + 6] == 1 && image[at + 7] == 0 && (1..80).contains(&units) {
            found.push(at);
            at += units * LINE;
        } else {
            at += LINE;
        }
    }
    found
}

#[test]
fn one_or_two_flipped_bits_of_the_log_cost_nothing() {
    let good = images(false);
    let mut seed = 11;
    let mut turned_back = 0;
    for case in 0..60 {
        let mut images = good.clone();
        let slice = case % images.len();
        let records = records(&good[slice]);
        assert!(records.len() > 100, "{} records", records.len());
        let mut next = |limit: usize| (random(&mut seed) >> 11) as usize % limit;
        let at = records[next(records.len())];
        let mut bits = [next(LINE * 8), next(LINE * 8)];
        // one bit, or two of one record
        if case % 3 == 0 || bits[0] == bits[1] {
            bits[1] = (bits[0] + 1) % (LINE * 8);
        }
        let count = if case % 2 == 0 { 1 } else { 2 };
        for bit in &bits[..count] {
            images[slice][at + bit / 8] ^= 1 << (bit % 8);
        }
        let (report, came) = repaired(&images);
        assert!(came.is_all(), "case {case}: {came:?}\n{:?}", report.done);
        let what = format!("{count} flipped bits of a change of 20");
        turned_back += u64::from(told(&said(&report.done), &what) == 1);
    }
    // the others were of records that a checkpoint had folded
    assert!(turned_back > 15, "{turned_back} told");
}

/// A killed pool with three files, of which the last write to the first is to be lost.
struct Lost {
    pool: TestPool,
    victim: Ino,
    /// Where the record of the lost write is.
    record: usize,
}

fn killed() -> Lost {
    // one lane: records lie one behind the other
    pin(0);
    topology::refresh_cpu();
    let mut pool = TestPool::new(1, 4 << 20);
    let fs = pool.start_alone();
    let victim = make(&fs, "victim");
    fs.write(&victim, 0, &pattern(1, 2 * BLOCK)).unwrap();
    fs.write(&make(&fs, "other"), 0, &pattern(2, 3 * BLOCK)).unwrap();
    fs.write(&make(&fs, "near"), 0, &pattern(5, 3 * BLOCK)).unwrap();
    fs.write(&victim, BLOCK as u64, &pattern(3, BLOCK)).unwrap();
    fs.write(&make(&fs, "later"), 0, &pattern(4, 3 * BLOCK)).unwrap();
    let ino = victim.ino();
    // its number differs from the victim's in one bit, and the other one's in more
    let differs = |name: &str| (find(&fs, name).ino().0 ^ ino.0).count_ones();
    assert!(differs("near") == 1 && differs("other") > 1, "{ino:?}");
    pool.kill();
    drop((victim, fs));
    let image = read(&pool.dir()).remove(0);
    let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
    let writes = |at: &usize| {
        let item = at + HEAD_BYTES;
        image[item] == WRITE_ONE && word(item + 8) == ino.0 && word(item + 16) == 1
    };
    let record = records(&image).into_iter().filter(writes).max_by_key(|at| word(at + 8));
    Lost { pool, victim: ino, record: record.expect("the write is in the log") }
}

impl Lost {
    /// Damages the record, and repairs the pool; gives what was done and is left.
    fn repaired(&self, damage: impl Fn(&mut [u8])) -> (Vec<String>, Vec<Finding>, FileSystem) {
        let mut images: Images = read(&self.pool.dir());
        damage(&mut images[0][self.record..][..LINE]);
        std::fs::write(self.pool.dir().join("slice.0"), &images[0]).unwrap();
        let tried = repair(&self.pool.dir(), &mut |_, _| ()).unwrap().expect("it is damaged");
        let report = tried.report().clone();
        tried.write(&self.pool.dir().join("repair.undo")).unwrap();
        (said(&report.done), report.left, self.pool.start_alone())
    }
}

/// The record still says what it changed: that file is put aside, and the one that it would have
/// named with one bit of the number flipped; no other.
#[test]
fn a_lost_record_that_says_what_it_changed_costs_that_file_and_whose_number_is_like_it() {
    let lost = killed();
    // all bits of its checksum
    let (done, left, fs) = lost.repaired(|record| record[..4].iter_mut().for_each(|it| *it ^= 255));
    assert!(reads_as_error(&fs, lost.victim), "{done:?}");
    assert_eq!(older_copy(&fs, lost.victim), pattern(1, 2 * BLOCK));
    let near = fs.lookup(Ino::ROOT, b"near").unwrap().ino;
    assert!(reads_as_error(&fs, near), "{done:?}");
    assert_eq!(older_copy(&fs, near), pattern(5, 3 * BLOCK));
    assert_eq!(content(&fs, &find(&fs, "other")), pattern(2, 3 * BLOCK));
    assert_eq!(content(&fs, &find(&fs, "later")), pattern(4, 3 * BLOCK));
    let place = format!("inode {} (/victim), file offset {BLOCK}", lost.victim.0);
    let lines: Vec<&String> = done.iter().filter(|line| line.starts_with(&place)).collect();
    assert_eq!(lines.len(), 1, "{done:?}");
    assert!(lines[0].contains("a damaged record of the log changed it (change of 20"), "{done:?}");
    let copy = format!("UTC); what is known of it is /lost+found/older/#{}", lost.victim.0);
    assert!(lines[0].ends_with(&copy), "{done:?}");
    assert_eq!(told(&done, "/other") + told(&done, "/later"), 0, "{done:?}");
    // a check goes on finding what cannot be read, with its name
    assert!(!left.is_empty());
    let listed = [Some("/victim"), Some("/near")];
    assert!(left.iter().all(|it| listed.contains(&it.path.as_deref())), "{left:?}");
}

/// Of a lost record the number of the file may be what was damaged: then it names another one.
#[test]
fn a_lost_record_that_names_another_file_by_a_flipped_bit_gives_back_no_old_bytes() {
    for near in [true, false] {
        let lost = killed();
        let (done, _, fs) = lost.repaired(|record| {
            // the number of `near`, or that of no file
            let bit = if near { 9 } else { 40 };
            record[HEAD_BYTES + 8 + bit / 8] ^= 1 << (bit % 8);
            record[..4].iter_mut().for_each(|it| *it ^= 255);
        });
        assert!(reads_as_error(&fs, lost.victim), "{near}: {done:?}");
        drop(fs);
    }
}

/// Nothing is left of the record: what the log changes may lack its change, unless it was made
/// later.
#[test]
fn a_lost_record_that_says_nothing_costs_what_was_there_when_it_was_made() {
    let lost = killed();
    let (done, left, fs) = lost.repaired(|record| record.fill(0xA5));
    let other = fs.lookup(Ino::ROOT, b"other").unwrap().ino;
    assert!(reads_as_error(&fs, lost.victim) && reads_as_error(&fs, other), "{done:?}");
    assert_eq!(older_copy(&fs, lost.victim), pattern(1, 2 * BLOCK));
    assert_eq!(older_copy(&fs, other), pattern(2, 3 * BLOCK));
    assert_eq!(content(&fs, &find(&fs, "later")), pattern(4, 3 * BLOCK));
    for name in ["/victim", "/other"] {
        let is_it = |line: &&String| line.contains(&format!("({name}): a record of the log that"));
        let line = done.iter().find(is_it).expect("it is listed");
        let time = "cannot be read may have changed it (change ";
        assert!(line.contains(time) && line.contains(" UTC); what is known of it is /lost+found"));
    }
    assert!(left.iter().all(|it| it.path.is_some()), "{left:?}");
}

/// After a restart of the machine: an epoch that was synced comes back past a lost record, and so
/// do those behind it; the file that the record changed is put aside.
#[test]
fn a_lost_record_of_a_synced_epoch_costs_that_file_alone() {
    pin(0);
    topology::refresh_cpu();
    let mut pool = TestPool::synced(1, 4 << 20);
    pool.open.boot = Some([7; 16]);
    let fs = pool.start_alone();
    let written = |name: &str, seed: u64| {
        let handle = make(&fs, name);
        fs.write(&handle, 0, &pattern(seed, 3 * BLOCK)).unwrap();
        fs.fsync(&handle).unwrap();
        handle.ino()
    };
    written("one", 1);
    let victim = written("victim", 2);
    written("three", 3);
    written("four", 4);
    pool.kill();
    drop(fs);
    pool.open.boot = None;
    // something that a check finds: the second superblock
    let mut image = read(&pool.dir()).remove(0);
    let last = image.len() - BLOCK;
    image[last..].fill(0xA5);
    std::fs::write(pool.dir().join("slice.0"), &image).unwrap();
    let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
    // its items of writes: one block, many, one with its bytes
    let writes = |at: &usize| {
        [1, 2, 11].contains(&image[at + HEAD_BYTES]) && word(at + HEAD_BYTES + 8) == victim.0
    };
    let record = records(&image).into_iter().find(writes).expect("the write is in the log");
    let lost = Lost { pool, victim, record };
    let (done, left, fs) = lost.repaired(|record| record[..4].iter_mut().for_each(|it| *it ^= 255));
    assert!(reads_as_error(&fs, victim), "{done:?}");
    for (name, seed) in [("one", 1), ("three", 3), ("four", 4)] {
        assert_eq!(content(&fs, &find(&fs, name)), pattern(seed, 3 * BLOCK), "{name}: {done:?}");
    }
    assert!(left.iter().all(|it| it.path.is_some()), "{left:?}");
    assert_eq!(told(&done, "/one") + told(&done, "/three"), 0, "{done:?}");
}
