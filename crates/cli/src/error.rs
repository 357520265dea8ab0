//! Why a command failed.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;

use crate::inside::Failure;
use crate::{pool_path, signals};

/// Why a command failed; the text goes to stderr after `nearside: `.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments do not fit together.
    #[error("{0}; see nearside --help")]
    Usage(String),
    /// The library said no.
    #[error("{}", about(pool, source))]
    Pool {
        /// The pool.
        pool: PathBuf,
        /// Its answer.
        source: nearside::Error,
    },
    /// The pool could not be verified.
    #[error("cannot check {reason}")]
    Unchecked {
        /// The pool, and what stood in the way.
        reason: String,
    },
    /// The pool could not be scrubbed.
    #[error("cannot scrub {reason}")]
    Unscrubbed {
        /// The pool, and what stood in the way.
        reason: String,
    },
    /// The repair was tried, and not made.
    #[error("{}: {count} things are wrong; nothing was written{advice}", pool.display())]
    Unrepaired {
        /// The pool.
        pool: PathBuf,
        /// Findings.
        count: usize,
        /// What to do.
        advice: &'static str,
    },
    /// The check found something.
    #[error("{}: damaged in {count} places (listed on stdout)", pool.display())]
    Damaged {
        /// The pool.
        pool: PathBuf,
        /// Findings.
        count: usize,
    },
    /// Slices have one copy that should have two.
    #[error("{}: degraded (listed on stdout)", pool.display())]
    Degraded {
        /// The pool.
        pool: PathBuf,
    },
    /// Mounting or unmounting failed.
    #[error(transparent)]
    Mount(#[from] nearside_fuse::Error),
    /// A file or directory could not be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// Something in a pool, or beside it, will not do.
    #[error("{}: {reason}", shown.display())]
    Path {
        /// Which, as the command line writes it.
        shown: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The mount point will not do.
    #[error("{}: {reason}", dir.display())]
    Place {
        /// The mount point.
        dir: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// A server runs on the pool already.
    #[error(
        "{}: process {process} serves this pool; end that first (nearside umount DIR, or nearside stop POOL)",
        pool.display()
    )]
    Served {
        /// The pool.
        pool: PathBuf,
        /// The server's process id, if it wrote one.
        process: String,
    },
    /// The server failed; the text is its own.
    #[error("{0}")]
    Server(String),
    /// A signal ended the command between two steps.
    #[error("stopped by {0}")]
    Stopped(Signal),
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Output(std::io::Error),
    /// A measurement failed.
    #[error(transparent)]
    Bench(#[from] nearside_bench::Error),
}

/// Result of a command.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// What the process exits with.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) | Error::Unchecked { .. } | Error::Unscrubbed { .. } => 2,
            Error::Bench(error) if error.is_usage() => 2,
            Error::Stopped(signal) => signals::code(*signal),
            _ => 1,
        }
    }
}

/// The library's own text, after the pool's path unless it names it already.
fn about(pool: &Path, source: &nearside::Error) -> String {
    let (pool, text) = (pool.display().to_string(), source.to_string());
    if text.starts_with(&pool) { text } else { format!("{pool}: {text}") }
}

/// Puts the path to an error of the kernel.
pub fn io(path: &Path) -> impl Fn(std::io::Error) -> Error + '_ {
    move |source| Error::Io { path: path.to_path_buf(), source }
}

/// Puts the path to what the kernel said of where it lies: only our mounts know that.
pub fn of_mount(path: &Path) -> impl Fn(std::io::Error) -> Error + '_ {
    move |source| match source.raw_os_error() {
        Some(libc::ENOTSUP | libc::ENODATA) => Error::Path {
            shown: path.to_path_buf(),
            reason: "not in a mounted pool; name a place in another one POOL:/path".to_owned(),
        },
        _ => io(path)(source),
    }
}

/// Puts the pool to an error of the library.
pub fn pool(pool: &Path) -> impl Fn(nearside::Error) -> Error + '_ {
    move |source| Error::Pool { pool: pool.to_path_buf(), source }
}

/// Puts the pool before the path that a failure inside it names.
pub fn inside(pool: &Path) -> impl Fn(Failure) -> Error + '_ {
    move |failure| {
        let mut reason = failure.what;
        if failure.errno == libc::ENOENT {
            reason.push_str(&format!("; nearside ls {}:/ shows what is there", pool.display()));
        }
        let shown = match failure.path {
            Some(path) => pool_path::shown(pool, &path),
            None => pool.to_path_buf(),
        };
        Error::Path { shown, reason }
    }
}
