//! Streams over the fabrics that every machine has, between two endpoints of this process.

#![cfg(feature = "libfabric")]
#![allow(missing_docs, clippy::unwrap_used)]

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use fabric::{
    Broken, Endpoint, Keys, Libfabric, MATERIAL_BYTES, Provider, RECEIVES, Refused, Side, Stream,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

type End = Stream<Libfabric>;

const STEPS: usize = 30;

/// An endpoint at this machine's address.
fn open(provider: Provider) -> Libfabric {
    let here = std::env::var("NEARSIDE_FABRIC_HOST").map(|host| host.parse().unwrap());
    Libfabric::open(provider, here.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))).unwrap()
}

fn keys(side: Side) -> Keys {
    Keys::new(&[7; MATERIAL_BYTES], side).unwrap()
}

/// Two ends, and what is beside them.
fn pair(provider: Provider) -> ([End; 2], (UnixStream, UnixStream)) {
    let beside = UnixStream::pair().unwrap();
    let (mut one, mut other) = (open(provider), open(provider));
    let waits = if one.bell().is_some() { "its descriptor" } else { "the clock" };
    println!("the fabric {provider} is libfabric's {}, and rings by {waits}", one.provider());
    one.meet(other.name()).unwrap();
    other.meet(one.name()).unwrap();
    let one = Stream::new(one, keys(Side::Program), beside.0.as_fd()).unwrap();
    let other = Stream::new(other, keys(Side::Service), beside.1.as_fd()).unwrap();
    ([one, other], beside)
}

fn wait(end: &End) {
    if end.may_sleep() {
        let time = Timespec { tv_sec: 20, tv_nsec: 0 };
        let mut events = [PollFd::new(end, PollFlags::IN)];
        assert_eq!(poll(&mut events, Some(&time)), Ok(1), "nothing rings");
    }
}

fn send(end: &End, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match end.send([bytes, &[], &[]]) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(end),
            Err(error) => panic!("{error}"),
        }
    }
    while !end.flush().unwrap() {
        wait(end);
    }
}

fn receive(end: &End, bytes: usize) -> Vec<u8> {
    let mut seen = vec![0; bytes];
    let mut len = 0;
    while len < bytes {
        match end.receive(&mut seen[len..]) {
            Ok(more) => len += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(end),
            Err(error) => panic!("{error}"),
        }
    }
    seen
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(seed + 7) >> 3) as u8).collect()
}

fn speak(provider: Provider) {
    let (ends, _beside) = pair(provider);
    let [one, other] = &ends;
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for step in 0..STEPS {
                let bytes = [1, 100, 5000, 40_000, 1 << 20][step % 5];
                assert!(receive(other, bytes) == pattern(step, bytes), "step {step}");
                send(other, &pattern(step + 1, bytes));
            }
        });
        for step in 0..STEPS {
            let bytes = [1, 100, 5000, 40_000, 1 << 20][step % 5];
            send(one, &pattern(step, bytes));
            assert!(receive(one, bytes) == pattern(step + 1, bytes), "step {step}");
        }
    });
    ends.iter().for_each(Stream::end);
    let until = Instant::now() + Duration::from_secs(20);
    ends.iter().for_each(|end| end.settle(until));
}

#[test]
fn what_is_sent_arrives_over_tcp() {
    speak(Provider::Tcp);
}

#[test]
fn what_is_sent_arrives_over_shm() {
    speak(Provider::Shm);
}

/// On a machine that has another one.
#[test]
fn what_is_sent_arrives_over_the_one_that_is_asked_for() {
    if let Ok(name) = std::env::var("NEARSIDE_FABRIC") {
        speak(name.parse().unwrap());
    }
}

/// Somebody who knows where an end is, and not its keys.
fn intrude(provider: Provider) {
    let (mut one, mut other, mut stranger) = (open(provider), open(provider), open(provider));
    let beside = UnixStream::pair().unwrap();
    one.meet(other.name()).unwrap();
    other.meet(one.name()).unwrap();
    stranger.meet(one.name()).unwrap();
    let one = Stream::new(one, keys(Side::Program), beside.0.as_fd()).unwrap();
    let other = Stream::new(other, keys(Side::Service), beside.1.as_fd()).unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| send(&other, b"before"));
        assert_eq!(receive(&one, 6), b"before");
    });
    // as the next message would be, but for its tag
    let place = stranger.place(RECEIVES);
    place[..100].fill(0);
    place[0] = 1;
    place[8] = RECEIVES as u8;
    place[16] = 60;
    while !stranger.send(RECEIVES, 100).unwrap() {
        stranger.poll().unwrap();
        one.may_sleep();
    }
    let error = loop {
        match one.receive(&mut [0; 100]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                stranger.poll().unwrap();
                one.may_sleep();
            }
            said => break said.unwrap_err(),
        }
    };
    let broken = error.get_ref().and_then(|inner| inner.downcast_ref::<Broken>());
    assert_eq!(broken, Some(&Broken::Refused(Refused::Changed)));
    assert!(one.send([b"after", &[], &[]]).is_err() && one.receive(&mut [0; 100]).is_err());
}

#[test]
fn a_strangers_message_ends_a_stream_over_tcp() {
    intrude(Provider::Tcp);
}

#[test]
fn a_strangers_message_ends_a_stream_over_shm() {
    intrude(Provider::Shm);
}
