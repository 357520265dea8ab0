//! What is known of a kernel's pages, without a kernel: the test drops them when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nearside::files::{Handle, SetAttr};
use nearside::{FileSystem, FormatOptions, OpenFlags, Pool, SliceSpec};
use parking_lot::Mutex;

use super::{FilePages, KernelPages, Tells, Way};

mod reads_beside_changes;
mod writes_in_doubt;

const BLOCK: usize = 4096;

/// Files that are to be told, until the test does.
#[derive(Default)]
struct Held(Mutex<Vec<Arc<FilePages>>>);

impl Tells for Held {
    fn tell(&self, file: Arc<FilePages>) {
        self.0.lock().push(file);
    }
}

impl Held {
    /// Drops the pages; gives where they were. Between the beginning and the end `meanwhile` runs.
    fn drop_pages(&self, meanwhile: impl FnOnce()) -> Vec<(i64, i64)> {
        let files = std::mem::take(&mut *self.0.lock());
        let told = files.iter().flat_map(|file| file.begin()).collect();
        meanwhile();
        for file in &files {
            file.end();
        }
        told
    }

    fn is_idle(&self) -> bool {
        self.0.lock().is_empty()
    }
}

struct Scratch {
    kernel: Arc<KernelPages>,
    handle: Arc<Handle>,
    held: Arc<Held>,
    fs: Arc<FileSystem>,
    /// Of the first one: it closes the pool.
    pool: Option<(Pool, tempfile::TempDir)>,
}

/// A file of two blocks of `a`, of which the kernel was given all.
fn scratch() -> Scratch {
    scratch_of(false, 1)
}

/// The same; the mount is the pool's only door, or it is not. All `threads` but one may wait.
fn scratch_of(is_sole: bool, threads: usize) -> Scratch {
    let root = tempfile::tempdir().unwrap();
    let options = FormatOptions {
        slices: vec![SliceSpec::default()],
        slice_bytes: 32 << 20,
        process: true,
        ..FormatOptions::default()
    };
    Pool::format(root.path().join("pool"), &options).unwrap();
    let pool = Pool::open(root.path().join("pool")).unwrap();
    let flags = OpenFlags::new().write(true).create_new(true);
    let ino = pool.open_file("/file", &flags).unwrap().metadata().unwrap().ino();
    let handle = pool.fs().open(nearside::files::Ino(ino)).unwrap();
    pool.fs().write(&handle, 0, &[b'a'; 2 * BLOCK]).unwrap();
    let kernel = KernelPages::new(pool.fs().clone(), is_sole, false);
    let held = Arc::new(Held::default());
    kernel.begin(held.clone(), threads, None);
    let fs = pool.fs().clone();
    let scratch = Scratch { kernel, handle, held, fs, pool: Some((pool, root)) };
    scratch.fill();
    scratch
}

impl Scratch {
    fn fs(&self) -> &FileSystem {
        &self.fs
    }

    /// The kernel fills its pages; what it has then.
    fn fill(&self) -> Vec<u8> {
        let mut buffer = vec![0; 2 * BLOCK];
        let bytes = self.kernel.read(&self.handle, 0, &mut buffer).unwrap();
        buffer[bytes..].fill(0);
        buffer
    }

    /// It writes them back.
    fn write_back(&self, offset: usize, pages: &[u8]) {
        let write = || self.kernel.write_back(&self.handle, offset as u64, pages);
        self.kernel.changing(Way::Back, write).unwrap();
    }

    /// Somebody else writes, who does not wait: another kernel's thread, of which there is one.
    fn other_writes(&self, offset: usize, data: &[u8]) {
        let other = KernelPages::new(self.fs.clone(), false, false);
        other.begin(Arc::new(Held::default()), 1, None);
        let write = || self.fs().write(&self.handle, offset as u64, data);
        other.changing(Way::Past, write).unwrap();
    }

    fn writes_through(&self, offset: u64, data: &[u8]) {
        self.kernel.writes_through(&self.handle, offset, data);
        let write = || self.fs().write(&self.handle, offset, data);
        self.kernel.changing(Way::Through(offset), write).unwrap();
    }

    /// This call waits until the pages are dropped; what they are then comes back first.
    fn waits_for_drop(&self, pages: &[u8], call: impl FnOnce() + Send) {
        let dropped = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let call = scope.spawn(|| {
                call();
                dropped.load(Ordering::SeqCst)
            });
            while self.held.is_idle() {
                std::thread::yield_now();
            }
            self.held.drop_pages(|| {
                self.write_back(0, pages);
                dropped.store(1, Ordering::SeqCst);
            });
            assert_eq!(call.join().unwrap(), 1, "it has waited");
        });
    }

    fn content(&self) -> Vec<u8> {
        let mut bytes = vec![0; 3 * BLOCK];
        let read = self.fs().read(&self.handle, 0, &mut bytes).unwrap();
        bytes.truncate(read);
        bytes
    }

    fn cut(&self, size: u64) {
        let other = KernelPages::new(self.fs.clone(), false, false);
        other.begin(Arc::new(Held::default()), 1, None);
        let change = SetAttr { size: Some(size), ..SetAttr::default() };
        other.changing(Way::Cut, || self.fs().setattr(self.handle.ino(), &change)).unwrap();
    }

    fn close(self) {
        drop((self.kernel, self.handle, self.fs));
        if let Some((pool, _root)) = self.pool {
            pool.close().unwrap();
        }
    }
}

#[test]
fn pages_that_are_written_back_twice_take_nothing_back() {
    let scratch = scratch();
    let mut pages = scratch.fill();
    scratch.other_writes(100, b"one");
    pages[10] = b'B';
    scratch.write_back(0, &pages[..BLOCK]);
    // the same byte, by the other one
    scratch.other_writes(10, b"C");
    pages[11] = b'D';
    scratch.write_back(0, &pages[..BLOCK]);
    let mut wanted = vec![b'a'; 2 * BLOCK];
    wanted[100..103].copy_from_slice(b"one");
    wanted[10..12].copy_from_slice(b"CD");
    assert!(scratch.content() == wanted);
    assert_eq!(scratch.held.drop_pages(|| ()), [(0, 4096)]);
    assert!(scratch.held.is_idle());
    assert!(scratch.fill() == wanted);
    scratch.close();
}

#[test]
fn what_is_given_while_pages_are_dropped_stays_known() {
    let scratch = scratch();
    scratch.other_writes(100, b"one");
    let mut pages = Vec::new();
    scratch.held.drop_pages(|| {
        pages = scratch.fill();
        scratch.other_writes(200, b"two");
    });
    pages[10] = b'B';
    scratch.write_back(0, &pages[..BLOCK]);
    let mut wanted = vec![b'a'; 2 * BLOCK];
    wanted[10] = b'B';
    wanted[100..103].copy_from_slice(b"one");
    wanted[200..203].copy_from_slice(b"two");
    assert!(scratch.content() == wanted);
    // and is dropped after that
    assert!(!scratch.held.is_idle());
    scratch.held.drop_pages(|| ());
    assert!(scratch.held.is_idle());
    scratch.close();
}

#[test]
fn zeros_that_the_kernel_put_behind_a_cut_are_not_stores() {
    let scratch = scratch();
    let mut pages = scratch.fill();
    scratch.cut(4000);
    // it heard of the size, and then the file grows again
    pages[4000..].fill(0);
    pages[10] = b'B';
    scratch.other_writes(4050, b"other");
    scratch.write_back(0, &pages);
    let mut wanted = vec![b'a'; 4055];
    wanted[10] = b'B';
    wanted[4000..4050].fill(0);
    wanted[4050..].copy_from_slice(b"other");
    assert!(scratch.content() == wanted);
    scratch.close();
}

#[test]
fn what_was_left_behind_the_end_does_not_come_when_the_file_grows() {
    let scratch = scratch();
    let mut pages = scratch.fill();
    pages[5000] = b'B';
    scratch.cut(4500);
    scratch.write_back(0, &pages);
    assert_eq!(scratch.content().len(), 4500);
    scratch.cut(2 * BLOCK as u64);
    pages[4400] = b'C';
    scratch.write_back(0, &pages);
    let mut wanted = vec![b'a'; 4500];
    wanted.resize(2 * BLOCK, 0);
    wanted[4400] = b'C';
    assert!(scratch.content() == wanted);
    scratch.close();
}

#[test]
fn a_write_through_pages_that_were_dropped_before_it_is_not_taken_back() {
    let scratch = scratch();
    scratch.other_writes(100, b"one");
    scratch.held.drop_pages(|| ());
    // its pages had the bytes, were dropped, and are filled again before the request is served
    let pages = scratch.fill();
    scratch.writes_through(50, b"through");
    scratch.write_back(0, &pages[..BLOCK]);
    assert!(scratch.content()[50..57] == *b"through");
    assert!(!scratch.held.is_idle(), "the pages are to be dropped");
    scratch.held.drop_pages(|| ());
    assert!(scratch.fill()[50..57] == *b"through");
    scratch.close();
}

#[test]
fn at_the_only_door_files_are_known_from_the_first_write_past_pages_on() {
    let scratch = scratch_of(true, 1);
    let mut pages = scratch.fill();
    pages[10] = b'B';
    scratch.write_back(0, &pages[..BLOCK]);
    assert!(scratch.kernel.known(&scratch.handle).is_none());
    let past = |offset: u64, data: &[u8]| {
        scratch.kernel.writes_past(&scratch.handle);
        let write = || scratch.fs().write(&scratch.handle, offset, data);
        scratch.kernel.changing(Way::Past, write).unwrap();
    };
    past(100, b"past");
    // of pages that it had before
    pages[11] = b'C';
    scratch.write_back(0, &pages[..BLOCK]);
    let mut wanted = vec![b'a'; 2 * BLOCK];
    wanted[10..12].copy_from_slice(b"BC");
    wanted[100..104].copy_from_slice(b"past");
    assert!(scratch.content() == wanted);
    assert_eq!(scratch.held.drop_pages(|| ()), [(0, 0)]);
    // once: what it does not have any more it need not drop
    past(200, b"past");
    assert!(scratch.held.is_idle());
    scratch.fill();
    past(300, b"past");
    assert_eq!(scratch.held.drop_pages(|| ()), [(0, 4096)]);
    scratch.close();
}

#[test]
fn a_call_of_the_library_waits_until_the_pages_are_dropped() {
    let scratch = scratch();
    let dropped = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            scratch.fs().write(&scratch.handle, 0, b"other").unwrap();
            dropped.load(Ordering::SeqCst)
        });
        while scratch.held.is_idle() {
            std::thread::yield_now();
        }
        scratch.held.drop_pages(|| dropped.store(1, Ordering::SeqCst));
        assert_eq!(writer.join().unwrap(), 1);
    });
    // nothing was given since: nobody is to be waited for
    scratch.fs().write(&scratch.handle, 0, b"again").unwrap();
    assert!(scratch.held.is_idle());
    scratch.close();
}

#[test]
fn a_server_goes_on_with_the_bases_of_the_one_before() {
    let scratch = scratch();
    let memory = shm::create("nearside-bases", 1 << 20).unwrap();
    let area = |memory: &std::os::fd::OwnedFd| {
        use std::os::fd::AsFd;
        shm::map(memory.as_fd()).unwrap().cut(1 << 20).unwrap()
    };
    let begun = || {
        let kernel = KernelPages::new(scratch.fs.clone(), false, false);
        let held = Arc::new(Held::default());
        kernel.begin(held.clone(), 1, Some(area(&memory)));
        Scratch {
            kernel,
            held,
            handle: scratch.fs().open(scratch.handle.ino()).unwrap(),
            fs: scratch.fs.clone(),
            pool: None,
        }
    };
    let first = begun();
    let mut pages = first.fill();
    first.other_writes(100, b"one");
    // killed: what it kept is gone, and nobody tells it of anything
    first.close();
    let second = begun();
    assert!(!second.held.is_idle(), "the pages are to be dropped");
    second.other_writes(200, b"two");
    pages[10] = b'B';
    second.write_back(0, &pages[..BLOCK]);
    let mut wanted = vec![b'a'; 2 * BLOCK];
    wanted[10] = b'B';
    wanted[100..103].copy_from_slice(b"one");
    wanted[200..203].copy_from_slice(b"two");
    assert!(second.content() == wanted);
    while !second.held.is_idle() {
        second.held.drop_pages(|| ());
    }
    second.close();
    // nothing is left of what is not wanted any more
    let third = begun();
    assert!(third.fill() == wanted);
    third.close();
    scratch.close();
}
