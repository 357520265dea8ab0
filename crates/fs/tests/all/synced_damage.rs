//! Damage in what the `sync` domain has acknowledged, met after a restart of the machine.
//!
//! An epoch is closed only after the sync of the one before has ended: what is lost of that one is
//! damage and no torn write, and what was acknowledged does not go in silence.

use crate::sync_crash::{Medium, State, another_boot, formatted, open, state, try_open};
use fs::{Creation, FileSystem, Ino, NewNode};

const BY: Creation = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };
const LINE: usize = 64;
const KIND_EPOCH: u8 = 2;

/// An image after `syncs` files, each synced, and one that is not; and its state before, and with
/// each of them.
struct Crashed {
    image: Vec<u8>,
    states: Vec<State>,
}

fn run_on(cpu: u32) {
    topology::pin_current_thread(&[cpu]).unwrap();
    topology::refresh_cpu();
}

/// Changes are made by the first CPU, and syncs by the second: where these differ, epochs' records
/// lie in a lane of their own.
fn crashed(syncs: u8, (changing_cpu, syncing_cpu): (u32, u32)) -> Crashed {
    let base = formatted(1, 1 << 20);
    let medium = Medium::new(&base, 1);
    let fs = open(base, Some(medium.clone()));
    fs.checkpoint().unwrap();
    let mut states = vec![state(&fs)];
    for number in 0..syncs {
        run_on(changing_cpu);
        fs.create(Ino::ROOT, &[b'a' + number], NewNode::File, BY).unwrap();
        run_on(syncing_cpu);
        fs.sync().unwrap();
        states.push(state(&fs));
    }
    run_on(changing_cpu);
    fs.create(Ino::ROOT, b"unsynced", NewNode::File, BY).unwrap();
    let mut image = medium.slices.lock().unwrap()[0].0.clone();
    another_boot(&mut image);
    Crashed { image, states }
}

/// Where the records of this kind lie that were written since the last checkpoint, in the order of
/// their stamps.
fn records(image: &[u8], is_epoch: bool, count: usize) -> Vec<usize> {
    let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
    let chunks =
        (16 * 4096..image.len()).step_by(4096).filter(|at| &image[*at..*at + 4] == b"NSCH");
    let mut found = Vec::new();
    for chunk in chunks {
        let mut at = chunk + LINE;
        while image[at + 4] != 0 {
            if (image[at + 6] == KIND_EPOCH) == is_epoch {
                found.push((word(at + 8), at));
            }
            at += LINE * usize::from(image[at + 4]);
        }
    }
    found.sort_unstable();
    let newest = found.split_off(found.len() - count);
    newest.into_iter().map(|(_, at)| at).collect()
}

fn open_flipped(image: &[u8], at: usize) -> Result<FileSystem, fs::Error> {
    let mut image = image.to_vec();
    image[at] ^= 1;
    try_open(vec![image], None)
}

/// Flips a bit of each record of each image.
fn flip_each_record(cpus: (u32, u32)) {
    for syncs in 1..5 {
        let Crashed { image, states } = crashed(syncs, cpus);
        assert_eq!(state(&open(vec![image.clone()], None)), states[usize::from(syncs)]);
        let changes = records(&image, false, usize::from(syncs) + 1);
        let epochs = records(&image, true, usize::from(syncs));
        // of the newest epoch nothing says that its sync has ended
        let last = usize::from(syncs) - 1;
        for (number, at) in changes[..last].iter().chain(&epochs[..last]).enumerate() {
            match open_flipped(&image, at + 40) {
                Ok(fs) => {
                    panic!("record {number} after {syncs} syncs: {:?}", state(&fs).keys());
                }
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.contains("a record of the log's lane"), "{error}");
                    assert!(error.contains("and it was synced"), "{error}");
                }
            }
        }
        for at in [changes[last], epochs[last]] {
            assert_eq!(state(&open_flipped(&image, at + 40).unwrap()), states[last]);
        }
        let unsynced = changes[last + 1];
        assert_eq!(state(&open_flipped(&image, unsynced + 40).unwrap()), states[last + 1]);
    }
}

#[test]
fn a_damaged_record_of_what_was_synced_is_told() {
    let cpu = topology::allowed_cpus().unwrap()[0];
    flip_each_record((cpu, cpu));
}

#[test]
fn a_damaged_record_is_told_where_epochs_have_a_lane_of_their_own() {
    match topology::allowed_cpus().unwrap()[..] {
        [one, other, ..] => flip_each_record((one, other)),
        _ => println!("skipped: takes two CPUs"),
    }
}

/// Damaged data is an error of who reads it; what was synced with it, before and behind, is there.
#[test]
fn damaged_data_that_was_synced_is_an_error_of_reads() {
    let base = formatted(1, 1 << 20);
    let medium = Medium::new(&base, 1);
    let fs = open(base, Some(medium.clone()));
    fs.checkpoint().unwrap();
    for (number, name) in (1u8..).zip([b"a", b"b", b"c"]) {
        let ino = fs.create(Ino::ROOT, name, NewNode::File, BY).unwrap().ino;
        let file = fs.open(ino).unwrap();
        fs.write(&file, 0, &[number; 3 * 4096]).unwrap();
        drop(file);
        fs.sync().unwrap();
    }
    let mut image = medium.slices.lock().unwrap()[0].0.clone();
    drop(fs);
    another_boot(&mut image);
    let block = |number: u8| {
        let is_it = |at: &usize| image[*at..at + 4096].iter().all(|byte| *byte == number);
        (0..image.len()).step_by(4096).find(is_it).unwrap()
    };
    let (second, third) = (block(2), block(3));
    let read = |fs: &FileSystem, name: &[u8]| {
        let ino = fs.lookup(Ino::ROOT, name).unwrap().ino;
        let file = fs.open(ino).unwrap();
        fs.read(&file, 0, &mut [0; 3 * 4096])
    };
    let fs = open_flipped(&image, second + 100).unwrap();
    assert_eq!(read(&fs, b"a").unwrap(), 3 * 4096);
    assert!(read(&fs, b"b").is_err());
    assert_eq!(read(&fs, b"c").unwrap(), 3 * 4096);
    let told = fs.info().notes.join("\n");
    assert!(told.contains("data that was synced is damaged"), "{told}");
    // of the newest nothing says that its sync has ended
    let fs = open_flipped(&image, third + 100).unwrap();
    assert_eq!(read(&fs, b"b").unwrap(), 3 * 4096);
    assert!(fs.lookup(Ino::ROOT, b"c").is_err());
}
