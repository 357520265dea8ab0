//! A terminal taken over for a while, and given back as it was, however that ends.

use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Other screen, no cursor, which goes to the upper left.
const TAKE: &str = "\x1b[?1049h\x1b[?25l\x1b[H";
/// Upper left.
const HOME: &str = "\x1b[H";
/// Cursor, first screen.
const GIVE: &str = "\x1b[?25h\x1b[?1049l";
/// Size of a terminal that does not say.
const USUAL: Size = Size { columns: 80, rows: 24 };

/// Columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters of a line.
    pub columns: usize,
    /// Lines.
    pub rows: usize,
}

/// What a wait ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The time was over.
    Time,
    /// The terminal has another size.
    Resized,
    /// A key.
    Key(u8),
    /// A signal to end, or nobody sits at the terminal any more.
    End,
}

/// A terminal taken over.
pub struct Screen {
    before: Termios,
    signals: SignalFd,
}

/// Whether there is a terminal to take over.
pub fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

impl Screen {
    /// Takes the terminal over. Signals that end a process are blocked and come as events: call it
    /// while there is one thread only.
    pub fn take() -> io::Result<Screen> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGWINCH] {
            set.add(signal);
        }
        set.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&set, flags)?;
        let before = tcgetattr(io::stdin())?;
        let mut now = before.clone();
        // Keys come one by one and unseen, Ctrl-C among them.
        now.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        let screen = Screen { before, signals };
        tcsetattr(io::stdin(), OptionalActions::Now, &now)?;
        write(TAKE)?;
        Ok(screen)
    }

    /// Its size now.
    pub fn size(&self) -> Size {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                Size { columns: size.ws_col.into(), rows: size.ws_row.into() }
            }
            _ => USUAL,
        }
    }

    /// Shows these lines, as many and as long as fit.
    pub fn show(&self, lines: &[String]) -> io::Result<()> {
        let size = self.size();
        let mut text = String::new();
        for row in 0..size.rows {
            let line = lines.get(row).map_or("", String::as_str);
            // Cleared before it is written: a full line leaves the cursor on its last letter. No
            // newline behind the last line, it would scroll.
            text.push_str(if row == 0 { "\x1b[K" } else { "\n\x1b[K" });
            text.extend(line.chars().take(size.columns));
        }
        text.push_str(HOME);
        write(&text)
    }

    /// Waits for something to happen, at the longest until `until`.
    pub fn wait(&self, until: Instant) -> io::Result<Event> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left.max(Duration::from_millis(1))).ok();
            let stdin = io::stdin();
            let mut polled = [
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN),
            ];
            match poll(&mut polled, timeout.as_ref()) {
                Ok(0) => return Ok(Event::Time),
                Err(rustix::io::Errno::INTR) => continue,
                done => done?,
            };
            let keyed = !polled[1].revents().is_empty();
            if let Some(signal) = self.signals.read_signal()? {
                return Ok(match signal.ssi_signo as i32 == Signal::SIGWINCH as i32 {
                    true => Event::Resized,
                    false => Event::End,
                });
            }
            if keyed {
                let mut key = [0];
                return Ok(match stdin.lock().read(&mut key) {
                    Ok(1) => Event::Key(key[0]),
                    _ => Event::End,
                });
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that went away needs neither.
        let _ = write(GIVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}
