//! Faults that end a process, or come as signals: each in a process of its own, which this program
//! starts anew for one test.

use super::{MIB, TestPool, alone, find, make, ways};
use libc::{c_int, c_void, siginfo_t};
use pool::BLOCK_BYTES;
use region::{Faults, PAGE_BYTES, Region, Regions, Settings};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

const CHILD: &str = "NEARSIDE_TEST_CHILD";

fn by(faults: Option<Faults>) -> Settings {
    Settings { faults, ..Settings::default() }
}

/// Runs the test of this name in another process for this way; gives the signal that ended it.
fn end_of(test: &str, way: Faults) -> Option<i32> {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args(["--exact", &format!("signals::{test}"), "--nocapture"]);
    let output = command.env(CHILD, way.name()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("child begins"), "{said}");
    assert!(!said.contains("child goes on"), "{said}");
    output.status.signal()
}

/// The way that a child is to take; `None`: this is no child.
fn as_child() -> Option<Option<Faults>> {
    let name = std::env::var(CHILD).ok()?;
    println!("child begins");
    ways().into_iter().find(|way| way.unwrap().name() == name)
}

#[test]
fn a_store_ends_the_process() {
    let Some(way) = as_child() else {
        for way in ways() {
            assert_eq!(end_of("a_store_ends_the_process", way.unwrap()), Some(libc::SIGSEGV));
        }
        return;
    };
    let pool = TestPool::new(16 * MIB, None);
    let fs = pool.open();
    let regions = Regions::new(&fs, &by(way)).unwrap();
    let region = Region::map(&regions, &make(&fs, "file"), 0, MIB).unwrap();
    assert_eq!(region.get::<u64>(8).unwrap(), 0);
    drop(pool);
    // SAFETY: not at all; that is what is tried.
    unsafe { region.as_ptr().cast_mut().add(8).write_volatile(1) };
    println!("child goes on");
}

#[test]
fn a_page_that_cannot_be_read_ends_who_loads_it() {
    let Some(way) = as_child() else {
        for way in ways() {
            let end = end_of("a_page_that_cannot_be_read_ends_who_loads_it", way.unwrap());
            assert_eq!(end, Some(libc::SIGSEGV));
        }
        return;
    };
    let pool = TestPool::new(16 * MIB, Some(64 * MIB));
    {
        let fs = pool.open();
        let file = make(&fs, "file");
        fs.write(&file, 0, &vec![7; 64 * PAGE_BYTES]).unwrap();
        assert!(fs.write_back_all().unwrap() > 0);
    }
    let device = std::fs::read_dir(pool.dir()).unwrap().map(|entry| entry.unwrap().path());
    let mut device = device.filter(|path| path.to_string_lossy().contains("capacity"));
    let bytes = std::fs::OpenOptions::new().write(true).read(true).open(device.next().unwrap());
    let bytes = bytes.unwrap();
    let mut block = vec![0; BLOCK_BYTES as usize];
    for at in 0..bytes.metadata().unwrap().len() / BLOCK_BYTES {
        bytes.read_exact_at(&mut block, at * BLOCK_BYTES).unwrap();
        if block.iter().all(|byte| *byte == 7) {
            bytes.write_all_at(&[8], at * BLOCK_BYTES).unwrap();
        }
    }
    let fs = pool.open();
    let regions = Regions::new(&fs, &by(way)).unwrap();
    let region = Region::map(&regions, &find(&fs, "file"), 0, MIB).unwrap();
    assert_eq!(region.get::<u8>(100 * PAGE_BYTES).unwrap(), 0, "others can be loaded");
    drop(pool);
    let byte = region.get::<u8>(5 * PAGE_BYTES).unwrap();
    println!("child goes on with {byte}");
}

#[test]
fn who_loads_from_a_region_that_is_gone_is_ended() {
    let Some(way) = as_child() else {
        for way in ways() {
            let end = end_of("who_loads_from_a_region_that_is_gone_is_ended", way.unwrap());
            assert_eq!(end, Some(libc::SIGSEGV));
        }
        return;
    };
    let pool = TestPool::new(16 * MIB, None);
    let fs = pool.open();
    let regions = Regions::new(&fs, &by(way)).unwrap();
    let file = make(&fs, "file");
    let region = Region::map(&regions, &file, 0, MIB).unwrap();
    let mut transaction = regions.begin().unwrap();
    transaction.write(&region, 0, &[7; 8]).unwrap();
    drop(region);
    transaction.commit().unwrap();
    let region = Region::map(&regions, &file, 0, MIB).unwrap();
    assert_eq!(region.get::<u8>(0).unwrap(), 7, "what was written is committed for all that");
    let page = region.as_ptr();
    // it keeps the mapping
    let mut transaction = regions.begin().unwrap();
    transaction.write(&region, 0, &[8; 8]).unwrap();
    drop((region, pool));
    // SAFETY: not at all; that is what is tried: a page that was there.
    unsafe { page.read_volatile() };
    println!("child goes on");
}

#[test]
fn a_forked_child_that_loads_is_ended() {
    for way in ways() {
        let pool = TestPool::new(16 * MIB, None);
        let fs = pool.open();
        let regions = Regions::new(&fs, &by(way)).unwrap();
        let region = Region::map(&regions, &make(&fs, "file"), 0, MIB).unwrap();
        // SAFETY: the child loads a byte, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: it ends without any of what this process has to do at its end.
            unsafe {
                region.as_ptr().read_volatile();
                libc::_exit(0);
            }
        }
        let mut status = 0;
        // SAFETY: a child of this process, and room for its status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV);
        assert_eq!(region.get::<u8>(0).unwrap(), 0, "the parent goes on");
    }
}

static ELSEWHERE: AtomicUsize = AtomicUsize::new(0);
static HEARD: AtomicUsize = AtomicUsize::new(0);

/// Makes the page that is looked at one that can be.
extern "C" fn allow(_signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    // SAFETY: what the kernel gives to a handler; the page is the test's.
    unsafe {
        let address = (*info).si_addr() as usize;
        let page = ELSEWHERE.load(Ordering::SeqCst);
        if address != page || libc::mprotect(page as *mut c_void, PAGE_BYTES, libc::PROT_READ) != 0
        {
            libc::_exit(3);
        }
        HEARD.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn other_faults_go_to_the_handler_that_was_there_before() {
    alone(
        "signals::other_faults_go_to_the_handler_that_was_there_before",
        other_faults_go_to_another_handler,
    );
}

fn other_faults_go_to_another_handler() {
    // SAFETY: a page of its own, and a handler for it.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), PAGE_BYTES, libc::PROT_NONE, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        ELSEWHERE.store(page as usize, Ordering::SeqCst);
        let mut action: libc::sigaction = std::mem::zeroed();
        let function: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = allow;
        action.sa_sigaction = function as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()), 0);
    }
    let pool = TestPool::new(16 * MIB, None);
    let fs = pool.open();
    let regions = Regions::new(&fs, &by(Some(Faults::Signals))).unwrap();
    let region = Region::map(&regions, &make(&fs, "file"), 0, MIB).unwrap();
    assert_eq!(region.get::<u64>(5 * PAGE_BYTES).unwrap(), 0);
    assert_eq!(HEARD.load(Ordering::SeqCst), 0, "that one was ours");
    let page = ELSEWHERE.load(Ordering::SeqCst) as *const u8;
    // SAFETY: the handler allows it.
    assert_eq!(unsafe { page.read_volatile() }, 0);
    assert_eq!(HEARD.load(Ordering::SeqCst), 1);
    assert_eq!(region.get::<u64>(50 * PAGE_BYTES).unwrap(), 0);
}

/// Takes up all the mappings that a process may have.
fn take_all_mappings() {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    for access in [libc::PROT_NONE, libc::PROT_READ].into_iter().cycle().take(1 << 20) {
        // SAFETY: memory of its own, which differs from its neighbour, so that they stay two.
        if unsafe { libc::mmap(std::ptr::null_mut(), PAGE_BYTES, access, flags, -1, 0) }
            == libc::MAP_FAILED
        {
            return;
        }
    }
    panic!("there is no end of mappings here");
}

/// Each run of pages that can be loaded from is a mapping.
#[test]
fn a_process_without_mappings_left_goes_on() {
    alone("signals::a_process_without_mappings_left_goes_on", a_process_goes_on_without_mappings);
}

fn a_process_goes_on_without_mappings() {
    const PAGES: usize = 128 << 10;
    let pool = TestPool::new(64 * MIB, None);
    let fs = pool.open();
    let file = make(&fs, "file");
    for page in (0..PAGES).step_by(64) {
        fs.write(&file, (page * PAGE_BYTES) as u64, &(page as u64 + 1).to_ne_bytes()).unwrap();
    }
    let regions = Regions::new(&fs, &by(Some(Faults::Signals))).unwrap();
    let bytes = (PAGES * PAGE_BYTES) as u64;
    let maps = [0, 0].map(|offset| Region::map(&regions, &file, offset, bytes).unwrap());
    for page in (0..200 * 64).step_by(64) {
        assert_eq!(maps[0].get::<u64>(page * PAGE_BYTES).unwrap(), page as u64 + 1);
    }
    take_all_mappings();
    for _ in 0..2 {
        for page in (0..PAGES).step_by(64) {
            for region in maps.iter().rev() {
                assert_eq!(region.get::<u64>(page * PAGE_BYTES).unwrap(), page as u64 + 1);
            }
        }
    }
    let mut tx = regions.begin().unwrap();
    tx.put(&maps[0], 64 * PAGE_BYTES, &9u64).unwrap();
    tx.commit().unwrap();
    assert_eq!(maps[1].get::<u64>(64 * PAGE_BYTES).unwrap(), 9);
    // what takes a page away hides it first
    fs.fallocate(&file, fs::Fallocate::PunchHole, 0, 128 * PAGE_BYTES as u64).unwrap();
    assert_eq!(maps[0].get::<u64>(64 * PAGE_BYTES).unwrap(), 0);
}
