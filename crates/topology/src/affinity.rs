//! Where a thread runs and may run: four system calls about threads.
//!
//! The only `unsafe` of this crate. Masks are buffers of our own that cover [`CPU_LIMIT`] CPUs,
//! because the C library's `cpu_set_t` ends at 1024 and larger machines answer EINVAL to it.

use crate::{CPU_LIMIT, Error, Result};
use std::cell::Cell;
use std::io;

const WORD_BITS: usize = u64::BITS as usize;
const MASK_WORDS: usize = CPU_LIMIT as usize / WORD_BITS;
const MASK_BYTES: usize = MASK_WORDS * size_of::<u64>();

// The C library may treat the buffer as a `cpu_set_t`: it must be large enough for one, and as
// strictly aligned.
const _: () = assert!(MASK_BYTES >= size_of::<libc::cpu_set_t>());
const _: () = assert!(align_of::<u64>() >= align_of::<libc::cpu_set_t>());

/// CPUs that the calling thread may run on, sorted: its own mask within its cpuset.
pub fn allowed_cpus() -> Result<Vec<u32>> {
    allowed_cpus_of(0)
}

/// The same of a thread of any process, by its number; 0: the calling one.
pub fn allowed_cpus_of(thread: u32) -> Result<Vec<u32>> {
    let mut mask = [0u64; MASK_WORDS];
    // SAFETY: `mask` is writable for MASK_BYTES and aligned for a cpu_set_t (asserted above); the
    // kernel writes at most that many bytes. Number 0 is the calling thread.
    let rc =
        unsafe { libc::sched_getaffinity(thread as i32, MASK_BYTES, mask.as_mut_ptr().cast()) };
    if rc != 0 {
        return Err(Error::Affinity { what: "read", source: io::Error::last_os_error() });
    }
    // Most of the mask is empty on most machines.
    let words = (0u32..).zip(mask).filter(|(_, word)| *word != 0);
    let cpus = words.flat_map(|(number, word)| {
        let first = number * u64::BITS;
        (first..first + u64::BITS).filter(move |cpu| word & bit(*cpu) != 0)
    });
    Ok(cpus.collect())
}

/// Lets the calling thread run on `cpus` only, and returns where it was allowed before: handing
/// that to this function again undoes the call. CPUs that are offline or outside the cpuset are
/// ignored by the kernel as long as one remains.
pub fn pin_current_thread(cpus: &[u32]) -> Result<Vec<u32>> {
    pin_thread(0, cpus)
}

/// The same of a thread of this user's, by its number; 0: the calling one.
pub fn pin_thread(thread: u32, cpus: &[u32]) -> Result<Vec<u32>> {
    let mut mask = [0u64; MASK_WORDS];
    for &cpu in cpus {
        if cpu >= CPU_LIMIT {
            return Err(Error::CpuList(format!("CPU {cpu} goes beyond {}", CPU_LIMIT - 1)));
        }
        mask[word(cpu)] |= bit(cpu);
    }
    if cpus.is_empty() {
        return Err(Error::NoCpus);
    }
    let before = allowed_cpus_of(thread)?;
    // SAFETY: `mask` is readable for MASK_BYTES and aligned for a cpu_set_t (asserted above); the
    // call only reads it. Number 0 is the calling thread.
    let rc = unsafe { libc::sched_setaffinity(thread as i32, MASK_BYTES, mask.as_ptr().cast()) };
    if rc != 0 {
        return Err(Error::Affinity { what: "set", source: io::Error::last_os_error() });
    }
    Ok(before)
}

/// The number that the kernel has for the calling thread.
pub fn current_thread() -> u32 {
    // SAFETY: takes no argument and touches no memory of ours.
    let number = unsafe { libc::gettid() };
    number as u32
}

/// The calling thread, held to some CPUs until this is dropped.
#[derive(Debug)]
pub struct Pinned {
    before: Vec<u32>,
}

impl Pinned {
    /// Holds it to `cpus`; where that cannot be, it stays where it is.
    pub fn to(cpus: &[u32]) -> Pinned {
        Pinned { before: pin_current_thread(cpus).unwrap_or_default() }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if !self.before.is_empty() {
            let _ = pin_current_thread(&self.before);
        }
    }
}

/// The CPU that the calling thread runs on, true at the moment of the call only. Nanoseconds:
/// the C library reads it from memory that the kernel keeps up to date, without a system call.
#[inline]
pub fn current_cpu() -> u32 {
    // SAFETY: takes no argument and touches no memory of ours.
    let cpu = unsafe { libc::sched_getcpu() };
    // It fails only on kernels without the call; any CPU is a right answer to a hint.
    u32::try_from(cpu).unwrap_or(0)
}

thread_local! {
    static RECENT: Cell<u32> = const { Cell::new(0) };
    /// The CPU that it pretends to run on; NOBODY: it does not.
    static ASSUMED: Cell<u32> = const { Cell::new(NOBODY) };
}

const NOBODY: u32 = u32::MAX;

/// The same, and remembers it for [`recent_cpu`]; or the one that it is to pretend.
#[inline]
pub fn refresh_cpu() -> u32 {
    let assumed = ASSUMED.get();
    let cpu = if assumed == NOBODY { current_cpu() } else { assumed };
    RECENT.set(cpu);
    cpu
}

/// From now on the calling thread passes for one on `cpu`, whichever it runs on: for who plays a
/// machine that has more.
pub fn assume_cpu(cpu: u32) {
    ASSUMED.set(cpu);
    RECENT.set(cpu);
}

/// The CPU that the calling thread ran on when it last called [`refresh_cpu`] (0: never): a hint
/// for what follows soon, for a tenth of the price.
#[inline]
pub fn recent_cpu() -> u32 {
    RECENT.get()
}

/// The place of `cpu` among `places` (at least one): its own, where there are enough.
#[inline]
pub fn place_of(cpu: usize, places: usize) -> usize {
    // a division takes as long as some thirty other instructions, on the way of every call
    if cpu < places { cpu } else { cpu % places }
}

fn word(cpu: u32) -> usize {
    cpu as usize / WORD_BITS
}

fn bit(cpu: u32) -> u64 {
    1 << (cpu as usize % WORD_BITS)
}
