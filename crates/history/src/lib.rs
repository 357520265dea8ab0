//! One coherence rule, checked: when a call has returned, every door sees it, and every call is
//! atomic for who reads at the same time.
//!
//! Processes call at several doors of one pool at once: the library in the process that owns it,
//! regions there, attached processes, and the mount. Each writes down when it began a call, when
//! that returned, and what it saw. Some are killed or stopped meanwhile, and so is the service. A
//! checker (`checker/`, a Go program around porcupine) looks for an order of the calls that
//! explains all that was seen, in which none comes before one that had returned when it began.
//!
//! | module | what it has |
//! |---|---|
//! | `plan` | what a history is: its kind, who calls what, when somebody is alone |
//! | `wrong_caller` | callers that do wrong |
//! | `record` | calls and answers, as they are written down |
//! | `door`, `library`, `outside`, `regions` | the same acts at each door |
//! | `page_acts` | acts on files that have doors through pages |
//! | `copied_files` | what `nearside cp` copies out, and in |
//! | `kernel_doors` | doors through mappings, pipes and queues of the kernel |
//! | `worker`, `owner` | the processes that call |
//! | `hosts`, `batch`, `run` | the pool, the kills, many histories |
//! | `checker` | the verdicts |
#![deny(unsafe_code)]

mod batch;
pub mod checker;
mod clock;
mod copied_files;
mod door;
mod hosts;
mod kernel_doors;
mod library;
mod outside;
pub mod owner;
mod page_acts;
mod plan;
mod record;
mod regions;
mod rng;
pub mod run;
mod watched;
pub mod worker;
mod wrong_caller;

pub use door::DoorKind;
pub use kernel_doors::queued_files::io_uring;
pub use plan::{HostKind, Kind};
pub use wrong_caller::Mutant;

/// What goes wrong here is told in words.
pub type Result<T> = std::result::Result<T, String>;

/// The words for an error of what was tried.
pub(crate) fn said<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}
