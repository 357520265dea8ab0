//! What is drawn on a terminal, and what becomes of the terminal.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::support::Scratch;

/// Longest time that anything may take to be drawn.
const PATIENCE: Timespec = Timespec { tv_sec: 120, tv_nsec: 0 };

/// A terminal with a command in it, which is the leader of its session.
pub struct Terminal {
    master: File,
    slave: File,
    child: Child,
    before: Termios,
    /// All that was drawn so far, and how much of it was looked at.
    drawn: String,
    seen: usize,
}

impl Terminal {
    /// Starts `nearside` with these words.
    pub fn start(scratch: &Scratch, words: &[&str], columns: u16, rows: u16) -> Terminal {
        // No child holds the master's end, or the terminal would never go away.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = File::options()
            .read(true)
            .write(true)
            .custom_flags(nix::libc::O_NOCTTY)
            .open(name)
            .unwrap();
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        let before = tcgetattr(&slave).unwrap();
        let end = || slave.try_clone().unwrap();
        let words = words.iter().map(|word| match word.strip_prefix('@') {
            Some(name) => scratch.outside(name),
            None if word.starts_with(":/") => scratch.inside(&word[1..]),
            None => OsString::from(word),
        });
        let child = Command::new("setsid")
            .arg("--ctty")
            .arg(env!("CARGO_BIN_EXE_nearside"))
            .args(words)
            .env_remove("NO_COLOR")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        Terminal { master: File::from(master), slave, child, before, drawn: String::new(), seen: 0 }
    }

    /// What was drawn up to `text` and with it, from where the last call ended.
    pub fn until(&mut self, text: &str) -> String {
        let mut piece = [0; 4096];
        loop {
            if let Some(at) = self.drawn[self.seen..].find(text) {
                let end = self.seen + at + text.len();
                let new = self.drawn[self.seen..end].to_owned();
                self.seen = end;
                return new;
            }
            let mut polled = [PollFd::new(&self.master, PollFlags::IN)];
            let ready = poll(&mut polled, Some(&PATIENCE)).unwrap();
            assert!(ready > 0, "no {text:?} in {:?}", &self.drawn[self.seen..]);
            let bytes = self.master.read(&mut piece).unwrap();
            self.drawn.push_str(&String::from_utf8_lossy(&piece[..bytes]));
        }
    }

    /// Types, and gives how the command ended and what it drew then.
    pub fn answer(mut self, text: &str) -> (std::process::ExitStatus, String) {
        self.master.write_all(text.as_bytes()).unwrap();
        let status = self.child.wait().unwrap();
        let mut piece = [0; 4096];
        let bytes = self.master.read(&mut piece).unwrap();
        (status, String::from_utf8_lossy(&piece[..bytes]).into_owned())
    }

    /// The next frame that is drawn.
    fn frame(&mut self) -> String {
        if self.seen == 0 {
            // What takes the terminal over.
            self.until("\u{1b}[H");
        }
        self.until("\u{1b}[H")
    }

    /// Ends by itself, and leaves the terminal as it was.
    fn ends(mut self) {
        self.until("\u{1b}[?1049l");
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.drawn);
        let after = tcgetattr(&self.slave).unwrap();
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert!(self.drawn.contains("\u{1b}[?25h"), "the cursor is back");
    }
}

/// The lines of a frame, without what moves the cursor.
fn lines(frame: &str) -> Vec<String> {
    let frame = frame.replace("\u{1b}[H", "").replace("\u{1b}[K", "");
    frame.split("\r\n").map(str::to_owned).collect()
}

#[test]
fn top_draws_within_its_screen_and_follows_its_size() {
    let Some(scratch) = Scratch::mounted() else { return };
    let mnt = scratch.mnt().display().to_string();
    let mut top = Terminal::start(&scratch, &["top", &mnt], 80, 24);
    let first = lines(&top.frame());
    assert!(first.len() <= 24, "{first:#?}");
    assert!(first.iter().all(|line| line.chars().count() <= 80), "{first:#?}");
    for word in ["calls/s", "checkpoints", "SLICE", "CALL"] {
        assert!(first.iter().any(|line| line.contains(word)), "no {word} in {first:#?}");
    }
    // A second look comes by itself.
    top.frame();
    let size = Winsize { ws_row: 12, ws_col: 40, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&top.master, size).unwrap();
    let mut small = lines(&top.frame());
    // Frames of the old size may still be in the terminal's buffer.
    for _ in 0..10 {
        if small.iter().all(|line| line.chars().count() <= 40) {
            break;
        }
        small = lines(&top.frame());
    }
    assert!(small.len() <= 12, "{small:#?}");
    assert!(small.iter().all(|line| line.chars().count() <= 40), "{small:#?}");
    top.master.write_all(b"q").unwrap();
    top.ends();
    scratch.umount();
}

#[test]
fn top_gives_the_terminal_back_however_it_ends() {
    let Some(scratch) = Scratch::mounted() else { return };
    let mnt = scratch.mnt().display().to_string();
    for key in [b"\x03", b"\x04"] {
        let mut top = Terminal::start(&scratch, &["top", &mnt], 80, 24);
        top.frame();
        top.master.write_all(key).unwrap();
        top.ends();
    }
    for signal in [nix::sys::signal::Signal::SIGTERM, nix::sys::signal::Signal::SIGINT] {
        let mut top = Terminal::start(&scratch, &["top", &mnt], 80, 24);
        top.frame();
        let process = nix::unistd::Pid::from_raw(top.child.id() as i32);
        nix::sys::signal::kill(process, signal).unwrap();
        top.ends();
    }
    // The server goes: said on the terminal that was given back.
    let mut top = Terminal::start(&scratch, &["top", &mnt], 80, 24);
    top.frame();
    scratch.umount();
    top.until("\u{1b}[?1049l");
    let said = top.until("\n");
    assert!(said.contains("nearside: "), "{said}");
    assert_eq!(top.child.wait().unwrap().code(), Some(1));
}

#[test]
fn a_terminal_that_goes_away_ends_top() {
    let Some(scratch) = Scratch::mounted() else { return };
    let mnt = scratch.mnt().display().to_string();
    let mut top = Terminal::start(&scratch, &["top", &mnt], 80, 24);
    top.frame();
    let Terminal { master, slave, mut child, .. } = top;
    drop(slave);
    drop(master);
    // By itself: it hangs otherwise, and the test with it.
    child.wait().unwrap();
    scratch.umount();
}

/// A progress line is on a terminal only, is cleared at the end, and nobody needs the terminal.
#[test]
fn a_copy_shows_how_far_it_is_and_outlives_its_terminal() {
    let Some(scratch) = Scratch::mounted() else { return };
    // A pipe that ends when this test lets it: the copy takes as long as that.
    let pipe = scratch.root().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut copy = Terminal::start(&scratch, &["cp", "@pipe", ":/copy"], 80, 24);
    let mut source = File::options().write(true).open(&pipe).unwrap();
    source.write_all(&[7; 100_000]).unwrap();
    let line = copy.until("/s, ");
    assert!(line.contains("\rcopying") || line.contains("copying: "), "{line:?}");
    drop(source);
    copy.until("\r\u{1b}[K");
    assert!(copy.child.wait().unwrap().success(), "{}", copy.drawn);
    assert_eq!(std::fs::metadata(scratch.mnt().join("copy")).unwrap().len(), 100_000);
    // The terminal goes away: the copy ends with it, or goes on; no half file has the name.
    let copy = Terminal::start(&scratch, &["cp", "@pipe", ":/other"], 80, 24);
    let mut source = File::options().write(true).open(&pipe).unwrap();
    source.write_all(&[7; 1000]).unwrap();
    let Terminal { master, slave, mut child, .. } = copy;
    drop((master, slave));
    let status = child.wait();
    drop(source);
    assert!(!status.unwrap().success());
    assert!(!scratch.mnt().join("other").exists());
    scratch.umount();
}
