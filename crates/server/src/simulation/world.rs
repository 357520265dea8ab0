//! The services, one after the other, their pool, and the connections to them.

use std::collections::{BTreeMap, HashSet};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use nearside::files::TakeOver;
use nearside::{FormatOptions, LockKind, OpenFlags, OpenOptions, Pool, SliceSpec};
use rustix::event::epoll::EventFlags;

use super::link::Link;
use super::strangers::STRANGER;
use crate::options::Options;
use crate::remote::{Guest, Heard, Trust, attach, listen};
use crate::rights::Rights;
use crate::shared::Shared;
use crate::stream::Next;
use crate::{ATTACHED_NAME, grace, serve};

/// Bytes of the pool's one slice.
const SLICE_BYTES: u64 = 4 << 20;

/// How often what happened.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    pub calls: u64,
    pub cuts: u64,
    pub returns: u64,
    pub kills: u64,
    pub changed: u64,
    pub repeated: u64,
    pub forgotten: u64,
    pub locks: u64,
    /// A grace of locks is known to be over before its time.
    pub early: u64,
    pub strange: u64,
    /// All that happened, in order.
    pub told: Vec<String>,
}

impl Counts {
    fn numbers(&self) -> [u64; 10] {
        let Counts { calls, cuts, returns, kills, changed, repeated, .. } = self;
        let Counts { forgotten, locks, early, strange, .. } = self;
        [calls, cuts, returns, kills, changed, repeated, forgotten, locks, early, strange]
            .map(|it| *it)
    }

    pub fn add(&mut self, other: &Counts) {
        self.calls += other.calls;
        self.cuts += other.cuts;
        self.returns += other.returns;
        self.kills += other.kills;
        self.changed += other.changed;
        self.repeated += other.repeated;
        self.forgotten += other.forgotten;
        self.locks += other.locks;
        self.early += other.early;
        self.strange += other.strange;
    }

    pub fn all_happened(&self) -> bool {
        self.numbers().iter().all(|count| *count > 0)
    }
}

/// A service, until it is killed.
struct Life {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    /// Who made calls to the one before.
    before: HashSet<u128>,
    /// Anybody may have locks; nobody is awaited any more.
    pub locks_are_free: bool,
    pub is_over: bool,
}

/// The services, and the connections to them.
pub struct World {
    scratch: tempfile::TempDir,
    lives: u32,
    life: Option<Life>,
    /// By a number of their own.
    pub links: BTreeMap<usize, Link>,
    next: usize,
    /// Sessions of this service whose connection it knows to be lost, and whose they are.
    pub lost: Vec<(u64, usize)>,
}

/// What bringing something to the service has led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Led {
    /// Somebody is attached now who was not.
    ToSession,
    ToNothing,
}

/// A directory in memory, if there is one.
fn scratch() -> tempfile::TempDir {
    let memory = PathBuf::from("/dev/shm");
    let place = if memory.is_dir() { memory } else { std::env::temp_dir() };
    tempfile::tempdir_in(place).unwrap()
}

/// The files of a new pool.
fn formatted() -> Vec<(PathBuf, Vec<u8>)> {
    let scratch = scratch();
    let format = FormatOptions {
        slices: vec![SliceSpec::default()],
        slice_bytes: SLICE_BYTES,
        process: true,
        ..FormatOptions::default()
    };
    Pool::format(scratch.path().join("pool"), &format).unwrap();
    read(&scratch.path().join("pool"))
}

/// The files of a directory, and of those in it.
fn read(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let name = PathBuf::from(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            false => files.push((name, std::fs::read(entry.path()).unwrap())),
            true => {
                let inner = read(&entry.path()).into_iter();
                files.extend(inner.map(|(inner, bytes)| (name.join(inner), bytes)));
            }
        }
    }
    files
}

/// Makes a directory of these files. Most of a pool is zeros, which take no memory.
fn write(files: &[(PathBuf, Vec<u8>)], dir: &Path) {
    const BLOCK_BYTES: usize = 4096;
    std::fs::create_dir(dir).unwrap();
    for (name, bytes) in files {
        std::fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(dir.join(name)).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        for (number, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
            if *block != [0; BLOCK_BYTES][..block.len()] {
                file.write_all_at(block, (number * BLOCK_BYTES) as u64).unwrap();
            }
        }
    }
}

impl World {
    pub fn new() -> World {
        let scratch = scratch();
        let (lives, links, next, lost) = Default::default();
        let mut world = World { scratch, lives, life: None, links, next, lost };
        // each run has the same one, but for what it is told apart by
        static FORMATTED: OnceLock<Vec<(PathBuf, Vec<u8>)>> = OnceLock::new();
        write(FORMATTED.get_or_init(formatted), &world.dir());
        world.begin();
        world
    }

    fn dir(&self) -> PathBuf {
        self.scratch.path().join(self.lives.to_string())
    }

    fn life(&self) -> &Life {
        self.life.as_ref().unwrap()
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.life().shared
    }

    /// Starts a service.
    fn begin(&mut self) {
        let dir = self.dir();
        let asked = TakeOver { keep_orphans: true, returning: true, ..TakeOver::default() };
        let pool = Arc::new(Pool::take_over(&dir, &OpenOptions::default(), &asked).unwrap());
        let attached = Some(dir.join(ATTACHED_NAME));
        let options = Options { attached, lanes: None, ..Options::default() };
        let shared = Arc::new(Shared::new(pool.clone(), &options).unwrap());
        let awaits = shared.identities().awaits;
        if !awaits {
            pool.fs().end_inheritance().unwrap();
        }
        let before = pool.fs().returning_clients();
        let life = Life { shared, pool, before, locks_are_free: !awaits, is_over: !awaits };
        self.life = Some(life);
    }

    /// Kills the service, and starts the next one on what that leaves.
    pub fn kill(&mut self) {
        let old = self.dir();
        self.lives += 1;
        write(&read(&old), &self.dir());
        for link in self.links.values_mut() {
            // what it had sent is still under way
            link.hear_service();
            (link.far, link.guest) = (None, None);
            link.to_service.clear();
        }
        self.lost.clear();
        self.life = None;
        std::fs::remove_dir_all(old).unwrap();
        self.begin();
    }

    /// A connection to the service: of a program, or of who repeats what one has sent.
    pub fn connect(&mut self, program: usize, near: Option<TcpStream>) -> usize {
        let (far, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut link = Link::new(program, near, far, self.shared().new_number());
        link.guest = Some(Guest::new(wire::Link::plain(theirs.into())));
        self.next += 1;
        self.links.insert(self.next, link);
        self.next
    }

    /// Brings bytes to the service, which does what they ask for.
    pub fn bring_to_service(&mut self, link: usize, count: usize) -> Led {
        let Some(link) = self.links.get_mut(&link) else { return Led::ToNothing };
        link.bring_to_service(count);
        let (number, program) = (link.number, link.program);
        let mut led = Led::ToNothing;
        if let Some(guest) = &mut link.guest {
            match listen(guest) {
                Heard::Part => return led,
                Heard::Nonsense(_) => link.guest = None,
                Heard::Greeting(greeting) => {
                    let guest = link.guest.take().unwrap();
                    let user = if program == STRANGER { 1234 } else { 0 };
                    let trust = Trust::Network(Rights::new(user, user));
                    let shared = self.shared().clone();
                    attach(&shared, (number, guest), &greeting, &trust).unwrap();
                    if shared.session(number).is_some() {
                        led = Led::ToSession;
                    }
                }
            }
        }
        self.serve(number);
        led
    }

    fn serve(&mut self, number: u64) {
        let shared = self.shared().clone();
        if let Some(session) = shared.session(number) {
            let (mut message, mut data, mut answer) = Default::default();
            let room = (&mut message, &mut data);
            let (message, data) = room;
            loop {
                let (shared, session, answer) = (&shared, &session, &mut answer);
                let mut serves = serve::Of { shared, session, answer };
                match session.line.serve_next(0, (&mut *message, &mut *data), &mut serves) {
                    Next::Served(_) => {}
                    Next::Nothing => break,
                    Next::Waits => panic!("there is memory enough"),
                }
            }
            session.line.park();
            // what may take long has threads of its own
            shared.slow.wait_for_the_last();
        }
        self.hear_service();
    }

    fn hear_service(&mut self) {
        // of what it ended itself it hears the end, too
        let is_over =
            |link: &mut Link| (!link.hear_service()).then_some((link.number, link.program));
        let over: Vec<_> = self.links.values_mut().filter_map(is_over).collect();
        for (number, program) in over {
            self.socket_ended(number, program, EventFlags::HUP | EventFlags::RDHUP);
        }
    }

    fn socket_ended(&mut self, number: u64, program: usize, how: EventFlags) {
        self.shared().socket_ended(number, how);
        if self.shared().session(number).is_some() {
            self.lost.push((number, program));
        }
    }

    /// The service hears that there is nobody at the other end any more.
    pub fn hear_end(&mut self, id: usize, how: EventFlags) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let (number, program) = (link.number, link.program);
        let was_there = link.far.take().is_some();
        link.guest = None;
        link.to_service.clear();
        if was_there {
            self.socket_ended(number, program, how);
        }
        self.hear_service();
    }

    /// A program that has not come back for long is not waited for any more. False: it has.
    pub fn end_linger(&mut self, at: usize) -> bool {
        let (number, _) = self.lost.remove(at);
        let was_there = self.shared().session(number).is_some();
        self.shared().give_up(number);
        self.hear_service();
        was_there
    }

    pub fn locks_are_free(&self) -> bool {
        self.life().locks_are_free
    }

    pub fn is_over(&self) -> bool {
        self.life().is_over
    }

    /// The service knows that nobody has locks who has not said which.
    pub fn has_all_locks(&self) -> bool {
        self.life().shared.grace().has_all_locks()
    }

    /// Whether somebody has a lock of a file.
    pub fn is_locked(&self, name: &str) -> bool {
        let file = self.pool().open_file(name, &OpenFlags::new().read(true).write(true)).unwrap();
        !file.try_lock(LockKind::Write, ..).unwrap()
    }

    /// Anybody may have locks, also who had none of the service before.
    pub fn free_locks(&mut self) {
        let life = self.life.as_mut().unwrap();
        life.locks_are_free = true;
        life.shared.grace().free_locks(&life.shared);
        self.hear_service();
    }

    /// Nobody is awaited any more.
    pub fn end_grace(&mut self) {
        let life = self.life.as_mut().unwrap();
        life.is_over = true;
        assert!(grace::forget_the_absent(&life.shared, &life.before));
        life.pool.fs().end_inheritance().unwrap();
    }

    /// The pool, for who is to look at it.
    pub fn pool(&self) -> &Pool {
        &self.life().pool
    }

    /// Ends the service in order; nothing of its programs is left.
    pub fn finish(mut self) {
        self.links.clear();
        let Life { shared, pool, .. } = self.life.take().unwrap();
        assert_eq!(shared.credit.used(), 0);
        assert!(shared.is_idle(), "a session is left");
        shared.identities().end();
        drop(shared);
        pool.close().unwrap();
        drop(pool);
        let report = nearside::check(self.dir()).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        assert_eq!(report.requests, 0, "nothing is remembered of those who are gone");
    }
}
