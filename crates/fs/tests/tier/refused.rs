//! Devices that are not there, or not the pool's.

use crate::common::{make, pattern};
use crate::{MIB, pool, tiered};
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
