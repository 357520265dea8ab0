//! Devices that are not there, or not the pool's.

use crate::common::{make, pattern};
use crate::tier::{MIB, pool, tiered};
use fs::FileSystem;
use pool::{FormatOptions, OpenOptions};
use std::path::Path;

fn refused(dir: &Path) -> String {
    let options = OpenOptions::default();
    FileSystem::open_pool(dir, &options).map(drop).unwrap_err().to_string()
}

#[test]
fn a_pool_without_one_of_its_devices_is_refused_and_left_as_it_is() {
    let pool = pool(1, 16 * MIB, &[32 * MIB, 32 * MIB]);
    let fs = pool.start();
    let file = make(&fs, "file");
    let data = pattern(1, 30 * MIB as usize);
    fs.write(&file, 0, &data).unwrap();
    fs.close().unwrap();
    drop((file, fs));
    let (device, away) = (pool.dir().join("capacity.1"), pool.dir().join("away"));
    std::fs::rename(&device, &away).unwrap();
    let message = refused(&pool.dir());
    assert!(message.contains("device 1 of the capacity tier"), "{message}");
    assert!(fs::check(&pool.dir()).is_err());
    std::fs::rename(&away, &device).unwrap();
    pool.assert_clean();
}

#[test]
fn another_pools_device_is_refused() {
    let (one, other) = (pool(1, 16 * MIB, &[32 * MIB]), pool(1, 16 * MIB, &[32 * MIB]));
    let (own, foreign) = (one.dir().join("capacity.0"), other.dir().join("capacity.0"));
    std::fs::copy(&foreign, &own).unwrap();
    let message = refused(&one.dir());
    assert!(message.contains("belongs to another pool"), "{message}");
    std::fs::write(&own, vec![0; 32 << 20]).unwrap();
    let message = refused(&one.dir());
    assert!(message.contains("is no device of a capacity tier"), "{message}");
}

#[test]
fn devices_that_cannot_be_are_refused_at_format() {
    let scratch = crate::common::scratch();
    let dir = scratch.path().join("pool");
    let format = |options: &FormatOptions| fs::format(&dir, options).unwrap_err().to_string();
    let message = format(&tiered(1, 16 * MIB, &[4096]));
    assert!(message.contains("at least 1048576 bytes"), "{message}");
    let mut unknown = tiered(1, 16 * MIB, &[0]);
    unknown.capacity[0].bytes = None;
    let message = format(&unknown);
    assert!(message.contains("say how large"), "{message}");
    let both = FormatOptions { data_copies: 2, ..tiered(2, 32 * MIB, &[32 * MIB]) };
    let message = format(&both);
    assert!(message.contains("either the tier or two copies"), "{message}");
    assert!(!dir.exists(), "nothing is left");
}

#[test]
fn a_device_that_is_in_use_is_refused() {
    let scratch = crate::common::scratch();
    let shared = scratch.path().join("device");
    let options = |bytes| FormatOptions {
        capacity: vec![pool::SliceSpec { path: Some(shared.clone()), bytes }],
        ..tiered(1, 16 * MIB, &[])
    };
    let (one, other) = (scratch.path().join("one"), scratch.path().join("other"));
    fs::format(&one, &options(Some(32 * MIB))).unwrap();
    let fs = FileSystem::open_pool(&one, &OpenOptions::default()).unwrap();
    // one that has it may not be lost, and while it is open it cannot be
    for bytes in [None, Some(MIB), Some(64 * MIB)] {
        for (force, errno) in [(false, libc::EEXIST), (true, libc::EBUSY)] {
            let options = FormatOptions { force, ..options(bytes) };
            let error = fs::format(&other, &options).unwrap_err();
            assert_eq!(error.errno(), errno, "{error}");
            assert!(!other.exists());
            assert_eq!(std::fs::metadata(&shared).unwrap().len(), 32 * MIB);
        }
    }
    // nor a slice of it
    let slice =
        vec![pool::SliceSpec { path: Some(one.join("slice.0")), bytes: Some(16 * MIB / 2) }];
    let stolen = FormatOptions { slices: slice, force: true, ..tiered(1, 16 * MIB, &[]) };
    assert_eq!(fs::format(&other, &stolen).unwrap_err().errno(), libc::EBUSY);
    assert_eq!(std::fs::metadata(one.join("slice.0")).unwrap().len(), 16 * MIB);
    drop(fs);
    FileSystem::open_pool(&one, &OpenOptions::default()).unwrap();
}

/// Other files of the pool's directory are no devices, whatever they are called.
#[test]
fn what_is_called_nearly_so_is_no_device() {
    let pool = pool(1, 16 * MIB, &[32 * MIB]);
    let dir = pool.dir();
    std::fs::copy(dir.join("capacity.0"), dir.join("capacity.0.bak")).unwrap();
    std::fs::create_dir(dir.join("capacity-notes")).unwrap();
    std::fs::create_dir(dir.join("capacity.txt")).unwrap();
    pool.start().close().unwrap();
}

#[test]
fn a_damaged_pool_with_a_tier_is_repaired() {
    let pool = pool(1, 16 * MIB, &[32 * MIB]);
    let fs = pool.start();
    let (away, near) = (make(&fs, "away"), make(&fs, "near"));
    let data = pattern(1, 3 * MIB as usize);
    fs.write(&away, 0, &data).unwrap();
    fs.write_back_all().unwrap();
    fs.write(&near, 0, &data).unwrap();
    let at = fs.extents(near.ino(), 0, 1).unwrap().0[0].at;
    fs.close().unwrap();
    drop((away, near, fs));
    let slice = pool.dir().join("slice.0");
    let mut bytes = std::fs::read(&slice).unwrap();
    bytes[at as usize + 5] ^= 1;
    std::fs::write(&slice, bytes).unwrap();
    assert_eq!(pool.check().findings.len(), 1);
    let repair = fs::repair(&pool.dir(), &mut |_, _| ()).unwrap().expect("there is damage");
    let undo = pool.dir().join("undo");
    repair.write(&undo).unwrap();
    let fs = pool.start();
    let away = crate::common::find(&fs, "away");
    assert!(crate::common::content(&fs, &away) == data);
}
