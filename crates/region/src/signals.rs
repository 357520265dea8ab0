//! Faults without userfaultfd: pages that are not there cannot be loaded from, and a handler of
//! SIGSEGV hands the address to a thread of this process and waits for its answer.
//!
//! The handler takes no lock and allocates nothing. It looks the address up in a list whose entries
//! stay for ever, sends the place of a few words on its own stack through a pipe, and sleeps on
//! them. What is no fault of a region's page goes to the handler that was there before.

use crate::error::{Error, Result};
use parking_lot::Mutex;
use pmem::Process;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Answers to a load that waits.
const NO_ANSWER: u32 = 0;
const GO_ON: u32 = 1;
const NEVER: u32 = 2;

/// A load that waits: on the stack of the thread whose load it is, until it is answered.
#[derive(Debug)]
struct Load {
    address: usize,
    answer: AtomicU32,
}

/// A load that was heard of, and waits.
#[derive(Debug)]
struct Waiting {
    address: usize,
    load: *const Load,
}

// SAFETY: the load stays where it is until its answer is stored, which is done once.
unsafe impl Send for Waiting {}

/// Memory whose faults somebody serves. Entries are used again, and never go.
#[derive(Debug, Default)]
struct Entry {
    /// Odd while the others change.
    version: AtomicU32,
    start: AtomicUsize,
    end: AtomicUsize,
    pipe: AtomicI32,
    /// Whose memory it is: a forked child may have regions of its own, but none of its parent's.
    process: AtomicU64,
    next: AtomicPtr<Entry>,
}

static ENTRIES: AtomicPtr<Entry> = AtomicPtr::new(std::ptr::null_mut());
/// One changes the list at a time.
static CHANGING: Mutex<()> = Mutex::new(());
static HANDLER: OnceLock<Option<Handler>> = OnceLock::new();

/// What the handler knows.
struct Handler {
    before: libc::sigaction,
}

// SAFETY: numbers, and functions that any thread may call.
unsafe impl Send for Handler {}
// SAFETY: as above; nobody changes it.
unsafe impl Sync for Handler {}

impl Entry {
    /// The pipe to whoever serves this address, if it is of this entry's memory.
    fn pipe_of(&self, address: usize) -> Option<RawFd> {
        // ordering: what is read between two loads of the same even version was stored together
        let version = self.version.load(Ordering::Acquire);
        let range = self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed);
        let pipe = self.pipe.load(Ordering::Relaxed);
        let process = self.process.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        let is_ours = || process == Process::here().number();
        (is_whole && range.contains(&address) && is_ours()).then_some(pipe)
    }

    /// Whose memory it is from now on. The caller has the list.
    fn set(&self, memory: Range<usize>, pipe: RawFd) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(memory.start, Ordering::Relaxed);
        self.end.store(memory.end, Ordering::Relaxed);
        self.pipe.store(pipe, Ordering::Relaxed);
        self.process.store(Process::here().number(), Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
}

/// All entries. Touches no lock: the handler goes through them.
fn entries() -> impl Iterator<Item = &'static Entry> {
    // ordering: Acquire, with the Release that put it there
    let mut next = ENTRIES.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: entries are leaked, and so there for ever.
        let entry: &'static Entry = unsafe { next.as_ref() }?;
        next = entry.next.load(Ordering::Acquire);
        Some(entry)
    })
}

/// Faults that come by signals.
#[derive(Debug)]
pub struct Signals {
    /// Where loads that wait come out.
    heard: OwnedFd,
    /// Where they go in.
    said: OwnedFd,
    /// Those that were heard of, and are not answered yet.
    waiting: Mutex<Vec<Waiting>>,
}

impl Signals {
    /// From now on this process asks us about SIGSEGV.
    pub fn new() -> Result<Signals> {
        if HANDLER.get_or_init(install).is_none() {
            return Err(Error::kernel("sigaction"));
        }
        let mut ends = [0; 2];
        // SAFETY: room for the two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(Error::kernel("pipe2"));
        }
        // SAFETY: the descriptors are new, and nobody else's.
        let [heard, said] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        // SAFETY: the descriptor is open; several threads look for what comes out.
        if unsafe { libc::fcntl(heard.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
            return Err(Error::kernel("fcntl"));
        }
        Ok(Signals { heard, said, waiting: Mutex::default() })
    }

    /// From now on faults of this memory come here.
    pub fn register(&self, memory: Range<usize>) {
        let _one = CHANGING.lock();
        let free = entries().find(|entry| entry.end.load(Ordering::Relaxed) == 0);
        let entry = free.unwrap_or_else(|| {
            let new: &'static Entry = Box::leak(Box::default());
            new.next.store(ENTRIES.load(Ordering::Relaxed), Ordering::Relaxed);
            // ordering: Release, so that who finds it finds where it leads
            ENTRIES.store(std::ptr::from_ref(new).cast_mut(), Ordering::Release);
            new
        });
        entry.set(memory, self.said.as_raw_fd());
    }

    /// From now on they do not.
    pub fn unregister(&self, memory: Range<usize>) {
        let _one = CHANGING.lock();
        let start = memory.start;
        let own = entries().find(|entry| entry.start.load(Ordering::Relaxed) == start);
        if let Some(entry) = own {
            entry.set(0..0, -1);
        }
    }

    /// The address of the next load that waits, if there is one now.
    pub fn next(&self) -> Option<u64> {
        let mut place = [0; size_of::<usize>()];
        // SAFETY: room for the bytes of one place, which are written at once.
        let read =
            unsafe { libc::read(self.heard.as_raw_fd(), place.as_mut_ptr().cast(), place.len()) };
        if read != place.len() as isize {
            return None;
        }
        let load = std::ptr::with_exposed_provenance::<Load>(usize::from_ne_bytes(place));
        // SAFETY: only the handler of this process writes there, and waits for the answer.
        let address = unsafe { (*load).address };
        // before the page's state is looked at: whoever brings it answers all that wait by then
        self.waiting.lock().push(Waiting { address, load });
        Some(address as u64)
    }

    /// Answers all who wait for these addresses.
    pub fn answer(&self, addresses: Range<usize>, is_there: bool) {
        let answer = if is_there { GO_ON } else { NEVER };
        self.waiting.lock().retain(|waiting| {
            let is_answered = addresses.contains(&waiting.address);
            if is_answered {
                // SAFETY: not answered yet, so it waits. After the store the place may be anything:
                // the kernel takes it as an address only.
                unsafe {
                    let place = &raw const (*waiting.load).answer;
                    (*place).store(answer, Ordering::Release);
                    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
                    libc::syscall(libc::SYS_futex, place, operation, 1);
                }
            }
            !is_answered
        });
    }

    /// The descriptor, to wait for it to be readable.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.heard.as_fd()
    }
}

fn install() -> Option<Handler> {
    // SAFETY: a structure of numbers, for which zeros are good.
    let (mut ours, mut before): (libc::sigaction, libc::sigaction) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    let function: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = handle;
    ours.sa_sigaction = function as usize;
    // while it waits another signal's handler may load from a region, too
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: both structures are whole; until this returns nobody has a region.
    let done = unsafe { libc::sigaction(libc::SIGSEGV, &ours, &mut before) };
    (done == 0).then_some(Handler { before })
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(handler) = HANDLER.get().and_then(Option::as_ref) else { return };
    // SAFETY: the kernel's structures, as they are given to a handler. The errno is the thread's.
    unsafe {
        let errno = *libc::__errno_location();
        // what somebody sent has a code that is not positive, and no address
        let is_load = (*info).si_code > 0 && !is_store(context);
        let is_served = is_load && wait((*info).si_addr() as usize);
        *libc::__errno_location() = errno;
        if !is_served {
            pmem::pass_on(signal, Some(&handler.before), info, context);
        }
    }
}

/// Whether it was a store that faulted, where the machine says so: nobody may store to a region.
///
/// # Safety
/// The context is the kernel's.
unsafe fn is_store(context: *mut libc::c_void) -> bool {
    let context = context.cast::<libc::ucontext_t>();
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: as the caller said. Bit 1 of the page fault's error code: a write.
        unsafe { (*context).uc_mcontext.gregs[libc::REG_ERR as usize] & 2 != 0 }
    }
    #[cfg(target_arch = "aarch64")]
    {
        const ESR_MAGIC: u32 = 0x4553_5201;
        const BYTES: usize = 4096;
        // SAFETY: as the caller said: behind the registers are records of 16 bytes at least, each
        // with a magic number and its length, and the last one has the length 0.
        unsafe {
            let registers = (&raw const (*context).uc_mcontext.pstate).add(1) as usize;
            let first = registers.next_multiple_of(16);
            let mut at = 0;
            while at + 16 <= BYTES {
                let record = (first + at) as *const u32;
                let (magic, len) = (*record, *record.add(1) as usize);
                if magic == ESR_MAGIC {
                    // bit 6 of the syndrome: write, not read
                    return *record.add(2).cast::<u64>() & 1 << 6 != 0;
                }
                if len < 8 {
                    return false;
                }
                at += len;
            }
        }
        false
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = context;
        false
    }
}

/// Waits until the page of this address has been brought; false: it is nobody's, or cannot be.
fn wait(address: usize) -> bool {
    let Some(pipe) = entries().find_map(|entry| entry.pipe_of(address)) else { return false };
    let load = Load { address, answer: AtomicU32::new(NO_ANSWER) };
    let place = (&raw const load).expose_provenance().to_ne_bytes();
    loop {
        // SAFETY: borrowed bytes, and a pipe that is open while there are regions of it.
        let written = unsafe { libc::write(pipe, place.as_ptr().cast(), place.len()) };
        if written == place.len() as isize {
            break;
        }
        // SAFETY: the errno is the thread's.
        if unsafe { *libc::__errno_location() } != libc::EINTR {
            return false;
        }
    }
    loop {
        match load.answer.load(Ordering::Acquire) {
            NO_ANSWER => {
                let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
                let for_ever = std::ptr::null::<libc::timespec>();
                // SAFETY: a word of this stack; it comes back when that changed, or for nothing.
                unsafe {
                    let word = &raw const load.answer;
                    libc::syscall(libc::SYS_futex, word, operation, NO_ANSWER, for_ever);
                }
            }
            answer => return answer == GO_ON,
        }
    }
}
