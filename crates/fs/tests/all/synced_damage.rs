//! Damage in what the `sync` domain has acknowledged.

use crate::sync_crash::{Medium, another_boot, formatted, open, state, try_open};
use fs::{Creation, Ino, NewNode};

/// An epoch is closed only after the one before was synced: damage in what that one covers is no
/// torn write. It is told; what was acknowledged does not go in silence.
#[test]
fn damage_in_what_was_synced_is_told() {
    let base = formatted(1, 1 << 20);
    let cpus = topology::allowed_cpus().unwrap();
    if cpus.len() < 2 {
        println!("skipped: the epochs' records need a lane of their own");
        return;
    }
    let run_on = |cpu: usize| {
        topology::pin_current_thread(&cpus[cpu..=cpu]).unwrap();
        topology::refresh_cpu();
    };
    let by = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };
    for syncs in 1..4 {
        let medium = Medium::new(&base, 1);
        let fs = open(base.clone(), Some(medium.clone()));
        let before = state(&fs);
        fs.checkpoint().unwrap();
        for number in 0..syncs {
            run_on(0);
            fs.create(Ino::ROOT, &[b'a' + number], NewNode::File, by).unwrap();
            run_on(1);
            fs.sync().unwrap();
        }
        run_on(0);
        fs.create(Ino::ROOT, b"unsynced", NewNode::File, by).unwrap();
        let mut image = medium.slices.lock().unwrap()[0].0.clone();
        drop(fs);
        let chunks =
            (16 * 4096..image.len()).step_by(4096).filter(|at| &image[*at..*at + 4] == b"NSCH");
        let sequence = |at: &usize| u64::from_le_bytes(image[at + 8..at + 16].try_into().unwrap());
        // those taken last are of the two lanes, that of the changes first
        let mut chunks: Vec<usize> = chunks.collect();
        chunks.sort_by_key(sequence);
        let chunk = chunks[chunks.len() - 2];
        another_boot(&mut image);
        let whole = state(&open(vec![image.clone()], None));
        assert!(whole.len() >= before.len() + usize::from(syncs), "what was synced is there");
        // the first record, which makes the first file
        image[chunk + 64 + 40] ^= 1;
        match (syncs, try_open(vec![image], None)) {
            // nothing says that its sync has ended
            (1, Ok(fs)) => assert_eq!(state(&fs), before),
            (1, Err(error)) => panic!("{error}"),
            (_, Ok(fs)) => panic!("{syncs} syncs, and then {:?}", state(&fs).keys()),
            (_, Err(error)) => {
                assert!(error.to_string().contains("a record of the log's lane"), "{error}");
            }
        }
    }
}
