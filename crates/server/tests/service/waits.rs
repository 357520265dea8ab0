//! Processes that try to have the service wait for them, and with it all others.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::net::{
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg, sockopt::set_socket_linger,
};
use wire::{Channel, Greeting};

use crate::hand::{ByHand, connected};
use crate::served::Served;

/// Bytes, with these descriptors, or without where those are refused. True: they went.
pub fn send_with(channel: &Channel, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let (parts, flags) = (&[IoSlice::new(bytes)], SendFlags::NOSIGNAL);
    let sent = sendmsg(channel.as_fd(), parts, &mut control, flags);
    if sent == Err(Errno::PERM) {
        let _ = sendmsg(channel.as_fd(), parts, &mut SendAncillaryBuffer::default(), flags);
    }
    sent.is_ok() && !descriptors.is_empty()
}

/// The same, with a descriptor whose close waits as long as what is answered lives.
pub fn send_lingering(channel: &Channel, bytes: &[u8]) -> Option<TcpStream> {
    let (stream, peer) = lingering()?;
    if !send_with(channel, bytes, &[stream.as_fd()]) {
        // else this very process waits
        set_socket_linger(&stream, None).ok()?;
    }
    Some(peer)
}

/// How long the close of such a connection waits.
const CLOSES_IN: Duration = Duration::from_secs(60);

/// A connection whose close waits for a peer who does not read.
fn lingering() -> Option<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").ok()?;
    let stream = TcpStream::connect(listener.local_addr().ok()?).ok()?;
    let peer = listener.accept().ok()?.0;
    set_socket_linger(&stream, Some(CLOSES_IN)).ok()?;
    stream.set_nonblocking(true).ok()?;
    while std::io::Write::write(&mut &stream, &[0; 64 << 10]).is_ok() {}
    Some((stream, peer))
}

/// Closing what came with a message may wait for somebody else: for as long as he likes.
#[test]
fn a_descriptor_that_takes_long_to_close_keeps_nobody_out() {
    let (one, _other) = std::os::unix::net::UnixDatagram::pair().unwrap();
    if !shm::refuse_descriptors(one.as_fd()).unwrap() {
        println!("skipped: descriptors can be refused from Linux 6.16 on");
        return;
    }
    let served = Served::new();
    let mut kept = Vec::new();
    for attempt in 0..6 {
        let (channel, greeting) = match attempt % 3 {
            // with the first words, or nonsense in their place, or said when it is attached
            0 => (
                connected(&served.socket()),
                Greeting { version: wire::VERSION, returns: None, mount: None, fabric: None },
            ),
            1 => (
                connected(&served.socket()),
                Greeting { version: 0, returns: None, mount: None, fabric: None },
            ),
            _ => {
                let hand = ByHand::attach(&served.socket(), None);
                (hand.channel, Greeting { version: 0, returns: None, mount: None, fabric: None })
            }
        };
        let words = serde_json::to_vec(&greeting).unwrap();
        kept.push((send_lingering(&channel, &words), channel));
        let since = Instant::now();
        let pool = served.attach();
        pool.write("/f", "x").unwrap();
        drop(pool);
        let time = since.elapsed();
        // A service that waited for the close would take at least that long.
        assert!(time < CLOSES_IN / 2, "attempt {attempt}: {time:?} to attach and leave");
    }
    drop(kept);
    served.finish();
}

/// Takes the sound of a bell away, if it has rung; it never waits.
pub fn take(hand: &ByHand) {
    let (mut heard, flags) = ([0u8; 8], ReadWriteFlags::NOWAIT);
    let _ = preadv2(&hand.bell, &mut [IoSliceMut::new(&mut heard)], u64::MAX, flags);
}

/// A bell is one for both, and whether it waits for who reads it is the same for both.
#[test]
fn a_bell_that_waits_for_who_reads_it_keeps_no_worker() {
    let served = Served::new();
    let hand = ByHand::attach(&served.socket(), None);
    fcntl_setfl(&hand.bell, OFlags::RDWR).unwrap();
    let until = Instant::now() + Duration::from_secs(3);
    let mut tries = 0u64;
    while Instant::now() < until {
        hand.ring();
        (0..tries % 400).for_each(|_| std::hint::spin_loop());
        take(&hand);
        tries += 1;
        // it is silent for so long that it has to ring
        std::thread::sleep(Duration::from_micros(200));
        if is_reading("ns-service") {
            std::thread::sleep(Duration::from_millis(20));
            let waits = is_reading("ns-service");
            hand.ring();
            assert!(!waits, "a worker waits for a bell, after {tries} tries");
        }
    }
    drop(hand);
    served.finish();
}

/// Whether a thread of this name sleeps in a `read` call. A thread that waits for a CPU there is
/// runnable, and does not count.
fn is_reading(name: &str) -> bool {
    let is_it = |task: std::path::PathBuf| {
        let read = |what| std::fs::read_to_string(task.join(what)).unwrap_or_default();
        let sleeps = || read("stat").rsplit(')').next().is_some_and(|rest| rest.starts_with(" S"));
        read("comm").trim() == name
            && read("syscall").split(' ').next() == Some(&libc::SYS_read.to_string())
            && sleeps()
    };
    std::fs::read_dir("/proc/self/task").unwrap().any(|task| is_it(task.unwrap().path()))
}
