//! Devices that fail, lie or hang.

use crate::common::{SOON, content, make, pattern, watched};
use crate::tier::{MIB, tiered};
use fs::{Error, FileSystem, Handle};
use parking_lot::{Condvar, Mutex};
use pool::{BLOCK_BYTES, Device, OpenOptions, PlainDevice, Transfer};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    None,
    /// Reads fail.
    Reads,
    /// Writes fail.
    Writes,
    /// A bit of everything that is read is another one.
    Flips,
    /// Writes say that they were made, and were not.
    Lies,
    /// Reads wait.
    Hangs,
    /// Writes take 20 ms each.
    Slow,
}

/// A device with a fault.
#[derive(Debug)]
pub struct Faulty {
    pub plain: PlainDevice,
    fault: Mutex<Fault>,
    changed: Condvar,
    /// Calls that read.
    reads: AtomicU64,
}

impl Faulty {
    /// How many calls read since this was asked last.
    pub fn take_reads(&self) -> u64 {
        self.reads.swap(0, Ordering::Relaxed)
    }

    /// Waits until so many calls have read, or wait to read, since the last `take_reads`.
    pub fn await_reads(&self, count: u64) {
        let began = Instant::now();
        while self.reads.load(Ordering::Relaxed) < count {
            assert!(began.elapsed() < SOON, "no call reads");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn set(&self, fault: Fault) {
        *self.fault.lock() = fault;
        self.changed.notify_all();
    }
}

impl Device for Faulty {
    fn bytes(&self) -> u64 {
        self.plain.bytes()
    }

    fn transfer(&self, transfers: &mut [Transfer<'_>]) -> io::Result<()> {
        let failed = || Err(io::Error::from_raw_os_error(libc::EIO));
        if transfers.iter().any(|it| matches!(it, Transfer::Read(..))) {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        for transfer in transfers {
            let is_read = matches!(transfer, Transfer::Read(..));
            let mut fault = self.fault.lock();
            while *fault == Fault::Hangs && is_read {
                self.changed.wait(&mut fault);
            }
            let fault = *fault;
            match fault {
                Fault::Reads if is_read => return failed(),
                Fault::Writes if !is_read => return failed(),
                Fault::Lies if !is_read => continue,
                Fault::Slow if !is_read => std::thread::sleep(Duration::from_millis(20)),
                _ => {}
            }
            match transfer {
                Transfer::Read(block, bytes) => {
                    self.plain.transfer(&mut [Transfer::Read(*block, bytes)])?;
                    if fault == Fault::Flips {
                        bytes.chunks_mut(BLOCK_BYTES as usize).for_each(|block| block[77] ^= 4);
                    }
                }
                Transfer::Write(block, bytes) => {
                    self.plain.transfer(&mut [Transfer::Write(*block, bytes)])?;
                }
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.plain.sync()
    }

    fn path(&self) -> String {
        "faulty".to_owned()
    }
}

/// A pool of 16 MiB over a device of 64 MiB, which has no fault yet.
pub fn opened(dir: &Path) -> (FileSystem, Arc<Faulty>) {
    fs::format(dir, &tiered(1, 16 * MIB, &[64 * MIB])).unwrap();
    reopened(dir)
}

pub fn reopened(dir: &Path) -> (FileSystem, Arc<Faulty>) {
    let plain = PlainDevice::open(&dir.join("capacity.0"), false).unwrap();
    let fault = Mutex::new(Fault::None);
    let device =
        Arc::new(Faulty { plain, fault, changed: Condvar::new(), reads: AtomicU64::new(0) });
    let devices: Vec<Arc<dyn Device>> = vec![device.clone()];
    let options = OpenOptions { devices, ..OpenOptions::default() };
    (FileSystem::open_pool(dir, &options).unwrap(), device)
}

/// Writes back all blocks, so many, with the thread that does so by itself.
pub fn write_back_all(fs: &FileSystem, blocks: u64) {
    while fs.tier_stats().unwrap().moved_blocks < blocks {
        fs.write_back_all().unwrap();
    }
}

fn read(fs: &FileSystem, file: &Handle, bytes: usize) -> Result<Vec<u8>, Error> {
    let mut seen = vec![0; bytes];
    fs.read(file, 0, &mut seen).map(|_| seen)
}

#[test]
fn what_cannot_be_read_is_an_error_until_it_can() {
    let scratch = crate::common::scratch();
    let (fs, device) = opened(&scratch.path().join("pool"));
    let (away, near) = (make(&fs, "away"), make(&fs, "near"));
    let data = pattern(1, 2 * MIB as usize);
    fs.write(&away, 0, &data).unwrap();
    fs.write_back_all().unwrap();
    for (fault, words) in [(Fault::Reads, "Input/output error"), (Fault::Flips, "inode")] {
        fs.write(&near, 0, &data).unwrap();
        fs.evict_caches();
        device.set(fault);
        let error = read(&fs, &away, 8192).unwrap_err();
        assert_eq!(error.errno(), libc::EIO, "{fault:?}: {error}");
        assert!(error.to_string().contains(words), "{fault:?}: {error}");
        // a part of a block is written anew with what is there: that must be read first
        assert_eq!(fs.write(&away, 10, b"small").unwrap_err().errno(), libc::EIO, "{fault:?}");
        assert!(content(&fs, &near) == data, "what is in slices is not concerned");
        device.set(Fault::None);
        assert!(read(&fs, &away, 8192).unwrap() == data[..8192], "{fault:?}");
        fs.write(&away, 0, &data[..8192]).unwrap();
        fs.write_back_all().unwrap();
    }
    assert!(content(&fs, &away) == data);
}

/// What was not written back is where it was; nothing is lost, and what is wrong is said.
#[test]
fn what_cannot_be_written_back_stays() {
    let scratch = crate::common::scratch();
    let dir = scratch.path().join("pool");
    let (fs, device) = opened(&dir);
    device.set(Fault::Writes);
    let mut files = Vec::new();
    let error = loop {
        let file = make(&fs, &format!("file{}", files.len()));
        let data = pattern(files.len() as u64, MIB as usize / 2);
        match fs.write(&file, 0, &data) {
            Ok(len) if len == data.len() => files.push((file, data)),
            Ok(_) => {}
            Err(error) => break error,
        }
        assert!(files.len() < 40, "more than the slices hold");
    };
    assert_eq!(error.errno(), libc::EIO, "{error}");
    assert!(error.to_string().contains("faulty"), "{error}");
    for (file, data) in &files {
        assert!(content(&fs, file) == *data);
    }
    device.set(Fault::None);
    let file = make(&fs, "more");
    let data = pattern(99, 20 * MIB as usize);
    assert_eq!(fs.write(&file, 0, &data).unwrap(), data.len());
    assert!(content(&fs, &file) == data);
    fs.close().unwrap();
    drop((file, files, fs, device));
    assert!(fs::check(&dir).unwrap().findings.is_empty());
}

/// A device that says that it wrote and did not: what is read then is never taken for right.
#[test]
fn what_a_device_lied_about_is_damage() {
    let scratch = crate::common::scratch();
    let dir = scratch.path().join("pool");
    let (fs, device) = opened(&dir);
    let file = make(&fs, "file");
    fs.write(&file, 0, &pattern(1, MIB as usize)).unwrap();
    device.set(Fault::Lies);
    assert_eq!(fs.write_back_all().unwrap(), 256);
    assert!(read(&fs, &file, 4096).is_ok(), "the copy in the slice is as it was");
    fs.evict_caches();
    device.set(Fault::None);
    let error = read(&fs, &file, 4096).unwrap_err();
    assert!(matches!(error, Error::Damaged(_)), "{error}");
    fs.close().unwrap();
    drop((file, fs, device));
    let report = fs::check(&dir).unwrap();
    assert_eq!(report.findings.len(), 256, "{:?}", report.findings.first());
    assert!(report.findings[0].what.contains("capacity device 0"), "{:?}", report.findings[0]);
}

/// While one waits for a device, others do what they like with everything else.
#[test]
fn nobody_waits_for_who_waits_for_a_device() {
    let scratch = crate::common::scratch();
    let (fs, device) = opened(&scratch.path().join("pool"));
    let fs = Arc::new(fs);
    let away = make(&fs, "away");
    fs.write(&away, 0, &pattern(1, MIB as usize)).unwrap();
    fs.write_back_all().unwrap();
    fs.evict_caches();
    device.take_reads();
    device.set(Fault::Hangs);
    let waiting: Vec<_> = (0..2)
        .map(|number| {
            let (fs, away) = (fs.clone(), away.clone());
            std::thread::spawn(move || match number {
                0 => read(&fs, &away, 8192).map(drop),
                _ => fs.write(&away, 100, b"a part of a block").map(drop),
            })
        })
        .collect();
    device.await_reads(1);
    std::thread::sleep(Duration::from_millis(50));
    let (other, same) = (fs.clone(), away.clone());
    watched(SOON, "the others", move || {
        let near = make(&other, "near");
        other.write(&near, 0, &pattern(2, MIB as usize)).unwrap();
        other.checkpoint().unwrap();
        // the same file, and the same blocks
        other.write(&same, 0, &pattern(3, 4096)).unwrap();
        other.sync().unwrap();
    });
    assert!(waiting.iter().all(|thread| !thread.is_finished()));
    device.set(Fault::None);
    for thread in waiting {
        thread.join().unwrap().unwrap();
    }
}

/// Who writes faster than a device does is slowed down before there is no room, and not by it.
#[test]
fn who_is_faster_than_a_device_is_slowed_down() {
    // On a busy machine the write-back may get its CPU late, so one round in five must hold.
    // Without the throttle every round has about 25 waits.
    let is_slowed_down = (0..5).any(|_| waits_beside_a_slow_device() < 12);
    assert!(is_slowed_down, "too many waits: 25 are usual without the throttle");
}

/// Waits for the device of a writer that is faster than it.
fn waits_beside_a_slow_device() -> u64 {
    let scratch = crate::common::scratch();
    let (fs, device) = opened(&scratch.path().join("pool"));
    device.set(Fault::Slow);
    let file = make(&fs, "file");
    let piece = pattern(1, 16384);
    for number in 0..40 * MIB / 16384 {
        fs.write(&file, number * 16384, &piece).unwrap();
    }
    let stats = fs.tier_stats().unwrap();
    assert!(stats.moved_blocks > 6000, "{stats:?}");
    assert!(stats.delayed_ns > 0, "{stats:?}");
    println!("waited {} times", stats.waits);
    stats.waits
}

/// However many write at once, and however slowly it is written back: while the device has room,
/// nobody is refused for want of it.
#[test]
fn many_who_write_over_a_slow_device_are_not_refused() {
    const EACH: u64 = 5 * MIB;
    let scratch = crate::common::scratch();
    let (fs, device) = opened(&scratch.path().join("pool"));
    device.set(Fault::Slow);
    let files: Vec<_> = (0..8).map(|number| make(&fs, &format!("file{number}"))).collect();
    let write = |seed: u64, file: &Handle| {
        let mut data = pattern(seed, EACH as usize);
        for (piece, at) in data.chunks(65536).zip((0..).step_by(65536)) {
            fs.write(file, at, piece).unwrap();
        }
        // and anew, here and there
        for number in 0..300 {
            let (at, piece) = (number * 7919 * 4096 % EACH, pattern(seed + number, 4096));
            data[at as usize..][..4096].copy_from_slice(&piece);
            fs.write(file, at, &piece).unwrap();
        }
        data
    };
    let data: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let writers = files.iter().zip(1..);
        let writers: Vec<_> =
            writers.map(|(file, seed)| scope.spawn(move || write(1000 * seed, file))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    device.set(Fault::None);
    for (file, data) in files.iter().zip(&data) {
        assert!(content(&fs, file) == *data);
    }
    let stats = fs.tier_stats().unwrap();
    assert!(stats.moved_blocks > 6000, "{stats:?}");
}
