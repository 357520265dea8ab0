//! Failures made on purpose, one at a time: the call that would be the n-th of its kind on a thread
//! fails, as the kernel or a full pool would have it.
//!
//! Only with the cargo feature `recorder`; without it nothing ever fails so, and no trace of this
//! is compiled.

/// What fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Space in the pool: there is none, this time.
    Space,
    /// Space in the pool: there is none from then on, but what is kept back for checkpoints.
    Full,
    /// A mapping of a file: no memory (ENOMEM).
    Map,
    /// A write to a file: an error (EIO), nothing is written.
    Write,
    /// A write to a file: half of it is written.
    Short,
    /// A sync of a file (EIO).
    Sync,
}

#[cfg(feature = "recorder")]
thread_local! {
    static NEXT: std::cell::Cell<Option<(Fault, u32)>> = const { std::cell::Cell::new(None) };
    static FAILED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// On this thread, after `after` more of its kind, one such call fails; or none does. Gives how
/// many have failed since the last call of this.
#[cfg(feature = "recorder")]
pub fn fail(next: Option<(Fault, u32)>) -> u32 {
    NEXT.set(next);
    FAILED.replace(0)
}

/// Whether this call is to fail.
#[inline(always)]
pub fn fails(fault: Fault) -> bool {
    #[cfg(feature = "recorder")]
    return is_next(fault);
    #[cfg(not(feature = "recorder"))]
    {
        let _ = fault;
        false
    }
}

#[cfg(feature = "recorder")]
fn is_next(fault: Fault) -> bool {
    match NEXT.get() {
        Some((kind, 0)) if kind == fault => {
            if fault != Fault::Full {
                NEXT.set(None);
            }
            FAILED.set(FAILED.get() + 1);
            true
        }
        Some((kind, after)) if kind == fault => {
            NEXT.set(Some((kind, after - 1)));
            false
        }
        _ => false,
    }
}
