//! Telling a kernel to drop pages, by a process that does nothing else.
//!
//! The kernel writes a page that a program stored to back before it drops it. Who told it to drop
//! the page waits meanwhile in the kernel, and no signal ends that. A server that is killed then
//! does not end before the page is written back; that takes the next server, which begins when the
//! one before has ended. So servers that others follow have a process of its own tell the kernel.
//! It has nothing of the pool, neither memory nor locks, and ends with its server: at once, or when
//! the next one has written the page back.
//!
//! Over its stdin, a socket, it is asked: inode, offset, length (8 bytes each), and answers with an
//! errno, or 0 (4 bytes). Its stdout is the kernel's device.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use zerocopy::IntoBytes;

use crate::wire::{Channel, Notifier};

/// The name under which a program is to call [`run_page_dropper`].
pub const PAGE_DROPPER: &str = "nearside-page-dropper";

const ASKED_BYTES: usize = 24;

/// The program that is started under that name.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
/// The process that this one has started.
static DROPPER: Mutex<Option<PageDropper>> = Mutex::new(None);

/// From now on this process has kernels told to drop pages by `program`, which it starts under the
/// name [`PAGE_DROPPER`]. Without it a thread of this process tells them.
pub fn drop_pages_by(program: &Path) {
    // the first one counts
    let _ = PROGRAM.set(program.to_owned());
}

/// What a program does that was started under the name [`PAGE_DROPPER`]: until its stdin is closed.
///
/// # Errors
/// Stdin or stdout is not what it should be.
pub fn run_page_dropper() -> io::Result<()> {
    let mut requests = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let device = io::stdout().as_fd().try_clone_to_owned()?;
    let notifier = Notifier::new(Arc::new(Channel::new(device)));
    let mut asked = [0; ASKED_BYTES];
    loop {
        match requests.read_exact(&mut asked) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let (words, _) = asked.as_chunks::<8>();
        let [ino, offset, len] = [words[0], words[1], words[2]].map(i64::from_ne_bytes);
        let told = notifier.inval_inode(ino as u64, offset, len);
        let errno = told.map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0);
        match requests.write_all(&errno.to_ne_bytes()) {
            // its server has gone meanwhile
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
    }
}

/// Tells the kernel to drop pages, and returns when it has: see [`Notifier::inval_inode`].
pub(crate) fn drop_pages(notifier: &Notifier, run: (u64, i64, i64)) -> io::Result<()> {
    let (Some(program), Some(device)) = (PROGRAM.get(), notifier.device()) else {
        return notifier.inval_inode(run.0, run.1, run.2);
    };
    let mut dropper = DROPPER.lock();
    // one that somebody has ended is followed by another
    for _ in 0..2 {
        let started = match dropper.take() {
            Some(started) => Ok(started),
            None => PageDropper::start(program, device),
        };
        let mut started = match started {
            Ok(started) => started,
            Err(error) => {
                tracing::warn!("a thread tells the kernel to drop pages: {error}");
                break;
            }
        };
        if let Ok(errno) = started.ask(run) {
            *dropper = Some(started);
            return match errno {
                0 => Ok(()),
                errno => Err(io::Error::from_raw_os_error(errno)),
            };
        }
        started.end();
    }
    drop(dropper);
    notifier.inval_inode(run.0, run.1, run.2)
}

#[derive(Debug)]
struct PageDropper {
    process: Child,
    requests: UnixStream,
}

impl PageDropper {
    fn start(program: &Path, device: BorrowedFd<'_>) -> io::Result<PageDropper> {
        let (requests, theirs) = UnixStream::pair()?;
        let mut command = Command::new(program);
        command.arg0(PAGE_DROPPER).stdin(std::os::fd::OwnedFd::from(theirs));
        command.stdout(device.try_clone_to_owned()?).current_dir("/").process_group(0);
        Ok(PageDropper { process: command.spawn()?, requests })
    }

    fn ask(&mut self, (ino, offset, len): (u64, i64, i64)) -> io::Result<i32> {
        let mut errno = [0; 4];
        self.requests.write_all([ino as i64, offset, len].as_bytes())?;
        self.requests.read_exact(&mut errno)?;
        Ok(i32::from_ne_bytes(errno))
    }

    /// It does not answer any more.
    fn end(mut self) {
        let _ = self.process.kill();
        // it has ended, or waits in the kernel
        let _ = self.process.try_wait();
    }
}
