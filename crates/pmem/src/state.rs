//! Type states of stores: [`Dirty`] -> [`InFlight`] -> [`Clean`].
//!
//! They weigh nothing at run time; they make a missing flush or fence a compile error (after
//! SquirrelFS, OSDI'24). They say that a step was not forgotten, not which bytes it was about.
//!
//! `Dirty` and `InFlight` stay on their thread: a fence orders the stores of its own thread only,
//! so one made elsewhere would prove nothing.

use std::marker::PhantomData;

/// Not `Send`, not `Sync`, and of size zero.
type ThisThread = PhantomData<*const ()>;

/// Stores made with ordinary instructions, still in the CPU's caches: to be flushed.
///
/// It cannot be fenced before it is flushed:
///
/// ```compile_fail,E0308
/// # use pmem::{Domain, Mapping, fence};
/// let mapping = Mapping::memory(4096, Domain::CpuFlush).unwrap();
/// let dirty = mapping.store(0, &[1; 8]);
/// fence(dirty);
/// ```
///
/// It goes through [`flush`](crate::Mapping::flush):
///
/// ```
/// # use pmem::{Domain, Mapping, fence};
/// let mapping = Mapping::memory(4096, Domain::CpuFlush)?;
/// let dirty = mapping.store(0, &[1; 8]);
/// fence(mapping.flush(dirty, 0, 8));
/// # Ok::<(), pmem::Error>(())
/// ```
#[must_use = "stores are durable only once flushed and fenced"]
#[derive(Debug)]
pub struct Dirty(ThisThread);

/// Stores that whoever holds this flushes at some later time, from any thread: the bytes lie in
/// the log meanwhile, so that losing them loses nothing.
///
/// A cache line is written back by a flush on any CPU; what must be ordered is only that the
/// stores are visible to the thread that flushes.
#[must_use = "stores are durable only once flushed and fenced"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deferred {
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

/// Stores on their way to the medium: to be fenced.
///
/// Dropping one is a warning, refused here:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use pmem::{Domain, Mapping};
/// let mapping = Mapping::memory(4096, Domain::CpuFlush).unwrap();
/// mapping.write(0, &[1; 8]);
/// ```
///
/// It cannot be fenced twice, nor by another thread:
///
/// ```compile_fail,E0382
/// # use pmem::{InFlight, fence};
/// let in_flight = InFlight::none();
/// fence(in_flight);
/// fence(in_flight);
/// ```
///
/// ```compile_fail,E0277
/// # use pmem::{InFlight, fence};
/// let in_flight = InFlight::none();
/// std::thread::spawn(move || fence(in_flight));
/// ```
#[must_use = "stores are ordered and durable only once fenced"]
#[derive(Debug)]
pub struct InFlight(ThisThread);

/// Proof that what was in flight has been fenced (and, but in the `sync` domain, is durable).
#[derive(Debug, Clone, Copy)]
pub struct Clean(());

impl Dirty {
    #[inline(always)]
    pub(crate) fn new() -> Dirty {
        Dirty(PhantomData)
    }

    /// Both.
    #[inline(always)]
    pub fn and(self, other: Dirty) -> Dirty {
        let _ = other;
        self
    }
}

impl InFlight {
    /// Nothing in flight.
    #[inline(always)]
    pub fn none() -> InFlight {
        InFlight(PhantomData)
    }

    /// Both.
    #[inline(always)]
    pub fn and(self, other: InFlight) -> InFlight {
        let _ = other;
        self
    }
}

/// Orders this thread's stores in flight before everything later.
///
/// Needed in every domain, `sync` and `cpu-cache` too: non-temporal stores are weakly ordered,
/// and another thread must not see a later store before an earlier one.
#[inline]
#[cfg_attr(feature = "recorder", track_caller)]
pub fn fence(in_flight: InFlight) -> Clean {
    let _ = in_flight;
    store_fence();
    #[cfg(feature = "recorder")]
    crate::recorder::fenced();
    Clean(())
}

/// The bare instruction.
#[inline(always)]
pub(crate) fn store_fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SFENCE is part of every x86-64 CPU and touches no memory of its own. Without
    // `nomem` the compiler moves no memory access over it either.
    unsafe {
        std::arch::asm!("sfence", options(nostack, preserves_flags))
    };
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}
