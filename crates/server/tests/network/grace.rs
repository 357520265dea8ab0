//! The time in which those are awaited who had locks of a service that was killed: what others may
//! ask for meanwhile, programs, and mounts as their forwarders speak.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nearside::{LockKind, OpenFlags};
use server::{ATTACHED_NAME, MountOf, Mounts, Options};
use wire::{Greeting, MountAsk, MountServer, NOTICE, Outlet, Told, WORDS, Welcome};

use crate::peers::Peer;
use crate::served::{SOON, Served};
use crate::wire_cutter::{Cut, WireCutter};

/// Requests for locks that may wait.
const LOCKS_MAX: usize = 16 << 10;

/// Mounts that remember what they are told, and answer nothing.
#[derive(Clone, Debug, Default)]
struct Remembering {
    told: Arc<Mutex<Vec<Told>>>,
}

impl Mounts for Remembering {
    fn begin(
        &self,
        _of: MountOf<'_>,
        _outlet: Arc<dyn Outlet>,
    ) -> Result<Box<dyn MountServer>, String> {
        Ok(Box::new(self.clone()))
    }
}

impl MountServer for Remembering {
    fn serve(&self, _unique: u64, _again: bool, _request: &mut [u8]) {}

    fn told(&self, told: &Told, _data: &[u8]) -> bool {
        self.told.lock().unwrap().push(told.clone());
        true
    }

    fn takes_lock(&self, told: &Told, _data: &[u8]) -> bool {
        *told == Told::Lock
    }

    fn may_take_long(&self, _request: &[u8]) -> bool {
        false
    }
}

/// A service after one that was killed, in the time in which nobody gets new locks.
fn follows(scratch: &Path, locks: Duration) -> (Served, Remembering) {
    let attached = scratch.join(ATTACHED_NAME);
    let key = "0".repeat(32);
    let left = format!(r#"{{"key":"{key}","service":1,"forgotten":0,"ended":false}}"#);
    std::fs::write(&attached, left).unwrap();
    let mounts = Remembering::default();
    let served = Served::with(Options {
        attached: Some(attached),
        grace_of_locks: locks,
        grace: Duration::from_secs(3600),
        mounts: Some(Arc::new(mounts.clone())),
        ..Options::default()
    });
    (served, mounts)
}

fn mounted(served: &Served) -> Peer {
    let mut peer = served.connect();
    let ask = MountAsk { path: b"/".to_vec(), capabilities: 0, turn: 1 };
    let version = wire::VERSION;
    let greeting = Greeting { version, returns: None, mount: Some(ask), fabric: None };
    peer.send(WORDS, &serde_json::to_vec(&greeting).unwrap(), &[]);
    let (_, welcome, _) = peer.hear().unwrap();
    let welcome: Welcome = serde_json::from_slice(&welcome).unwrap();
    assert!(matches!(welcome, Welcome::Attached { mount: Some(_), .. }), "{welcome:?}");
    tell(&mut peer, &Told::Begin);
    peer
}

/// Waits until the mount was told what it is to be told.
fn wait_until_told(mounts: &Remembering, is_it: impl Fn(&[Told]) -> bool) {
    let until = Instant::now() + SOON;
    while !is_it(&mounts.told.lock().unwrap()) {
        assert!(Instant::now() < until, "{:?}", mounts.told.lock().unwrap());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How many of them are requests for locks.
fn locks(told: &[Told]) -> usize {
    told.iter().filter(|told| **told == Told::Lock).count()
}

fn tell(peer: &mut Peer, told: &Told) {
    peer.send(NOTICE, &wire::encode(told, Vec::new()).unwrap(), &[]);
}

#[test]
fn locks_are_asked_for_when_anybody_may_have_them() {
    let scratch = tempfile::tempdir().unwrap();
    let (served, mounts) = follows(scratch.path(), Duration::from_millis(50));
    let mut peer = mounted(&served);
    (0..3).for_each(|_| tell(&mut peer, &Told::Lock));
    wait_until_told(&mounts, |told| locks(told) == 3);
    drop(peer);
    served.finish();
}

/// Runs `test` within a grace period. The test returns false when the grace period ended before it
/// could show anything, or when its calls took too long, as happens on a busy machine; it then runs
/// again with a longer one. A call that waits for the end of the grace period, or for a fixed time,
/// fails at every length.
fn in_a_grace(first: Duration, test: impl Fn(Duration) -> bool) {
    let mut times = [1, 4, 16, 64, 256].into_iter().map(|factor| first * factor);
    assert!(times.any(test), "each attempt ends after its grace period, or its calls are too slow");
}

#[test]
fn what_is_given_up_while_it_waits_is_given_up_behind() {
    in_a_grace(Duration::from_millis(300), is_given_up_behind);
}

fn is_given_up_behind(grace: Duration) -> bool {
    let (scratch, since) = (tempfile::tempdir().unwrap(), Instant::now());
    let (served, mounts) = follows(scratch.path(), grace);
    let mut peer = mounted(&served);
    tell(&mut peer, &Told::Lock);
    tell(&mut peer, &Told::Interrupt(5));
    // at once, for it may be of another one, and behind what waits
    let wanted = [Told::Begin, Told::Interrupt(5), Told::Lock, Told::Interrupt(5)];
    wait_until_told(&mounts, |told| told.contains(&wanted[1]));
    let is_in_time = since.elapsed() < grace;
    if is_in_time {
        wait_until_told(&mounts, |told| *told == wanted);
    }
    drop(peer);
    served.finish();
    is_in_time
}

/// Longest time of a call whose connection was cut: it comes again over the next one at once.
const CALL_MAX: Duration = Duration::from_secs(2);

/// A lost connection ends the wait: the call comes again over the next one, and so do others.
#[test]
fn a_connection_may_be_lost_while_a_lock_waits() {
    in_a_grace(Duration::from_secs(1), is_lost_while_a_lock_waits);
}

fn is_lost_while_a_lock_waits(grace: Duration) -> bool {
    let (scratch, since) = (tempfile::tempdir().unwrap(), Instant::now());
    let (served, _) = follows(scratch.path(), grace);
    let network = WireCutter::before(&served.address);
    let pool = served.attach_at(&network.address);
    let file = pool.open_file("/f", &OpenFlags::new().write(true).create(true)).unwrap();
    let mut longest = Duration::ZERO;
    let is_in_time = std::thread::scope(|threads| {
        let waits = threads.spawn(|| file.lock(LockKind::Write, ..));
        for cut in [Cut::Both, Cut::Process, Cut::Both] {
            std::thread::sleep(Duration::from_millis(100));
            network.cut(cut);
            // A call that waited for the lock would return after the grace period.
            let called = Instant::now();
            pool.metadata("/f").unwrap();
            longest = longest.max(called.elapsed());
        }
        let has_lock = waits.is_finished();
        let is_in_time = since.elapsed() < grace;
        assert!(!(is_in_time && has_lock), "nobody gets a lock so far");
        waits.join().unwrap().unwrap();
        is_in_time
    });
    drop((file, pool));
    served.wait_for_sessions(0);
    served.finish();
    is_in_time && longest < CALL_MAX
}

#[test]
fn more_locks_than_may_wait_end_the_connection() {
    let scratch = tempfile::tempdir().unwrap();
    let (served, mounts) = follows(scratch.path(), Duration::from_secs(3600));
    let mut peer = mounted(&served);
    (0..LOCKS_MAX).for_each(|_| tell(&mut peer, &Told::Lock));
    // it is served behind them
    peer.send(0, &1u64.to_le_bytes(), &[]);
    assert_eq!(peer.hear(), Some((0, Vec::new(), Vec::new())));
    tell(&mut peer, &Told::Lock);
    assert_eq!(peer.hear(), None);
    assert_eq!(locks(&mounts.told.lock().unwrap()), 0, "nobody has a lock so far");
    served.finish();
}
