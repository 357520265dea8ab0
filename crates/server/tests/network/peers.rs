//! Peers of all kinds.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::served::{SOON, Served, resident};
use nearside::{LockKind, OpenFlags, Pool};
use wire::{DATA_BYTES_MAX, Decoder, Frame, Greeting, Reply, Request, WORDS, Welcome};

impl Served {
    pub fn connect(&self) -> Peer {
        let stream =
            TcpStream::connect(self.address.strip_prefix("near+insecure://").unwrap()).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        Peer { stream, incoming: Decoder::default() }
    }

    /// A peer that has been let in.
    pub fn attached(&self) -> Peer {
        let mut peer = self.connect();
        peer.greet(wire::VERSION);
        let welcome = peer.hear().unwrap();
        assert!(matches!(serde_json::from_slice(&welcome.1), Ok(Welcome::Attached { .. })));
        peer
    }
}

/// One that speaks by hand.
pub struct Peer {
    pub stream: TcpStream,
    incoming: Decoder,
}

impl Peer {
    pub fn send(&mut self, slot: u16, message: &[u8], data: &[u8]) {
        self.stream.write_all(&Frame { slot, message, data }.bytes()).unwrap();
    }

    pub fn greet(&mut self, version: u32) {
        let greeting = Greeting { version, returns: None, mount: None, fabric: None };
        self.send(WORDS, &serde_json::to_vec(&greeting).unwrap(), &[]);
    }

    pub fn call(&mut self, slot: u16, count: u64, request: &Request<'_>, data: &[u8]) {
        self.send(slot, &wire::encode(&(count, request), Vec::new()).unwrap(), data);
    }

    /// The next frame; none: the connection has ended.
    pub fn hear(&mut self) -> Option<(u16, Vec<u8>, Vec<u8>)> {
        loop {
            if let Some(frame) = self.incoming.frame().unwrap() {
                return Some((frame.slot, frame.message.to_vec(), frame.data.to_vec()));
            }
            match self.stream.read(self.incoming.room()) {
                Ok(0) => return None,
                Ok(bytes) => self.incoming.fill(bytes),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub fn answer(&mut self) -> (u16, Reply, Vec<u8>) {
        let (slot, message, data) = self.hear().unwrap();
        (slot, wire::decode(&message).unwrap(), data)
    }
}

/// How long the client waits for another service where a test shows that it does not.
const LONG_AWAY: Duration = Duration::from_secs(300);

/// For reading and writing, made where it is not there.
pub fn usual() -> OpenFlags {
    OpenFlags::new().read(true).write(true).create(true)
}

pub fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(seed + 7) >> 3) as u8).collect()
}

#[test]
fn many_threads_ask_over_one_connection_at_once() {
    let served = Served::new();
    let pool = served.attach();
    std::thread::scope(|threads| {
        for thread in 0..40 {
            let pool = &pool;
            threads.spawn(move || {
                let path = format!("/file-{thread}");
                let file = pool.open_file(&path, &usual()).unwrap();
                for step in 0..30 {
                    let len = [1, 64, 4096, 20_000, 300_000, DATA_BYTES_MAX][(thread + step) % 6];
                    let bytes = pattern(thread * 100 + step, len);
                    file.write_all_at(&bytes, 10).unwrap();
                    let mut seen = vec![0; len];
                    file.read_exact_at(&mut seen, 10).unwrap();
                    assert!(seen == bytes, "thread {thread}, step {step}");
                }
            });
        }
    });
    assert_eq!(served.service.sessions(), 1);
    drop(pool);
    served.wait_for_sessions(0);
    served.finish();
}

#[test]
fn who_takes_no_answers_holds_nobody_up_and_gets_them_later() {
    const SLOTS: u16 = 20;
    let served = Served::new();
    let pool = served.attach();
    let content = pattern(3, DATA_BYTES_MAX);
    pool.write("/large", &content).unwrap();
    let mut slow = served.attached();
    let flags = wire::Flags { read: true, ..wire::Flags::default() };
    slow.call(0, 1, &Request::Open(b"/large", flags), &[]);
    let (_, Reply::Opened(file, ..), _) = slow.answer() else { panic!("not opened") };
    for slot in 0..SLOTS {
        let read = Request::Read { file, offset: 0, len: DATA_BYTES_MAX as u32 };
        slow.call(slot, 2, &read, &[]);
    }
    let since = Instant::now();
    for step in 0..200 {
        pool.write("/small", [step]).unwrap();
        assert_eq!(pool.read("/small").unwrap(), [step]);
    }
    println!("400 calls beside one who takes nothing took {:?}", since.elapsed());
    let mut slots: Vec<u16> = (0..SLOTS)
        .map(|_| {
            let (slot, reply, data) = slow.answer();
            assert!(reply == Reply::Done && data == content, "slot {slot}");
            slot
        })
        .collect();
    slots.sort_unstable();
    assert_eq!(slots, (0..SLOTS).collect::<Vec<_>>());
    drop((slow, pool));
    served.wait_for_sessions(0);
    served.finish();
}

#[test]
fn who_asks_for_much_and_takes_nothing_takes_little_memory() {
    const CALLS: u64 = 2000;
    let served = Served::new();
    let pool = served.attach();
    pool.write("/large", pattern(3, DATA_BYTES_MAX)).unwrap();
    let mut greedy = served.attached();
    let flags = wire::Flags { read: true, ..wire::Flags::default() };
    greedy.call(0, 1, &Request::Open(b"/large", flags), &[]);
    let (_, Reply::Opened(file, ..), _) = greedy.answer() else { panic!("not opened") };
    let before = resident();
    greedy.stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    for count in 0..CALLS {
        let read = Request::Read { file, offset: 0, len: DATA_BYTES_MAX as u32 };
        // each is answered, though not taken, before the next one is looked at
        let message = wire::encode(&(count + 2, read), Vec::new()).unwrap();
        let bytes = Frame { slot: 0, message: &message, data: &[] }.bytes();
        if greedy.stream.write_all(&bytes).is_err() {
            break;
        }
        if count % 100 == 0 {
            pool.write("/small", [1]).unwrap();
        }
    }
    std::thread::sleep(Duration::from_millis(200));
    let grown = resident().saturating_sub(before);
    assert!(grown < 128 << 10, "{grown} KiB more for {CALLS} calls of {DATA_BYTES_MAX}");
    drop((greedy, pool));
    served.wait_for_sessions(0);
    served.finish();
}

#[test]
fn what_makes_no_sense_ends_the_connection_and_nothing_else() {
    let served = Served::new();
    let pool = served.attach();
    let file = pool.open_file("/file", &usual()).unwrap();
    file.write_all_at(b"whole", 0).unwrap();
    let request = wire::encode(&(1u64, Request::StatFs), Vec::new()).unwrap();
    let whole = Frame { slot: 0, message: &request, data: &[] }.bytes();
    let changed = |at: usize, to: u8| {
        let mut bytes = whole.clone();
        bytes[at] = to;
        bytes
    };
    let broken = [
        changed(0, whole[0] ^ 1),
        changed(4, 40),
        changed(7, 1),
        changed(11, 0xff),
        changed(15, 0x7f),
        changed(whole.len() - 1, 0xee),
        pattern(9, 3000),
        // the words come once
        Frame { slot: WORDS, message: b"{}", data: &[] }.bytes(),
    ];
    for bytes in &broken {
        for mut peer in [served.connect(), served.attached()] {
            peer.stream.write_all(bytes).unwrap();
            while peer.hear().is_some() {}
        }
    }
    // a call that makes no sense is told so, and the connection stays
    let mut peer = served.attached();
    for message in [&b""[..], b"\x01\xff\xff", &pattern(5, 500)] {
        peer.send(3, message, b"data");
        let (slot, reply, _) = peer.answer();
        assert!(slot == 3 && matches!(reply, Reply::Failed(_)), "{reply:?}");
    }
    peer.call(3, 1, &Request::StatFs, &[]);
    assert!(matches!(peer.answer(), (3, Reply::Space(_), _)));
    // two calls in one slot, of which the first waits
    file.lock(LockKind::Write, ..).unwrap();
    let flags = wire::Flags { read: true, write: true, ..wire::Flags::default() };
    peer.call(3, 2, &Request::Open(b"/file", flags), &[]);
    let (_, Reply::Opened(theirs, ..), _) = peer.answer() else { panic!("not opened") };
    let kind = LockKind::Write;
    let lock = Request::Lock { file: theirs, kind, start: 0, end: 9, wait: true };
    peer.call(0, 3, &lock, &[]);
    peer.stream.write_all(&whole).unwrap();
    assert!(peer.hear().is_none(), "nobody says which of them an answer is for");
    drop(peer);
    served.wait_for_sessions(1);
    let mut seen = [0; 5];
    file.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(&seen, b"whole");
    drop((file, pool));
    served.finish();
}

#[test]
fn who_says_nothing_or_half_of_it_is_sent_away() {
    let served = Served::new();
    let mut silent = served.connect();
    let mut slow = served.connect();
    let words = Frame { slot: WORDS, message: b"{}", data: &[] }.bytes();
    slow.stream.write_all(&words[..16]).unwrap();
    let pool = served.attach();
    pool.write("/file", "others work").unwrap();
    assert!(silent.hear().is_none() && slow.hear().is_none());
    let mut other = served.connect();
    other.greet(wire::VERSION + 1);
    let said = other.hear().unwrap().1;
    let said = serde_json::from_slice::<Welcome>(&said).unwrap();
    assert!(matches!(said, Welcome::Version { version: wire::VERSION, .. }), "{said:?}");
    assert!(other.hear().is_none());
    drop(pool);
    served.wait_for_sessions(0);
    served.finish();
}

#[test]
fn the_end_of_the_service_is_told_and_a_place_without_one_is() {
    let served = Served::new();
    // A client that waited for another service would wait this long.
    let away_max = LONG_AWAY;
    let options = nearside::AttachOptions { away_max, ..served.options() };
    let pool = Pool::attach_with(&served.address, &options).unwrap();
    let (address, port) = (served.address.clone(), served.address.rsplit_once(':').unwrap().1);
    let port: u16 = port.parse().unwrap();
    served.finish();
    let since = Instant::now();
    let error = pool.metadata("/").unwrap_err();
    assert_eq!(error.errno(), rustix::io::Errno::NOTCONN.raw_os_error(), "{error}");
    assert!(since.elapsed() < LONG_AWAY / 2, "it does not wait for another one");
    drop(pool);
    let error = Pool::attach(&address).unwrap_err().to_string();
    assert!(error.contains("no service") && error.contains(&address), "{error}");
    // one that is no service of ours
    let stranger = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let speaks = std::thread::spawn(move || {
        let (mut stream, _) = stranger.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let options = nearside::AttachOptions::default();
    assert!(Pool::attach_with(&address, &options).is_err());
    speaks.join().unwrap();
}
