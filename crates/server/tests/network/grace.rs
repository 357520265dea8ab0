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

#[test]
fn what_is_given_up_while_it_waits_is_given_up_behind() {
    let scratch = tempfile::tempdir().unwrap();
    let (served, mounts) = follows(scratch.path(), Duration::from_millis(300));
    let mut peer = mounted(&served);
    tell(&mut peer, &Told::Lock);
    tell(&mut peer, &Told::Interrupt(5));
    // at once, for it may be of another one, and behind what waits
    let wanted = [Told::Begin, Told::Interrupt(5), Told::Lock, Told::Interrupt(5)];
    wait_until_told(&mounts, |told| *told == wanted);
    drop(peer);
    served.finish();
}

/// A lost connection ends the wait: the call comes again over the next one, and so do others.
#[test]
fn a_connection_may_be_lost_while_a_lock_waits() {
    let scratch = tempfile::tempdir().unwrap();
    let (served, _) = follows(scratch.path(), Duration::from_secs(3));
    let network = WireCutter::before(&served.address);
    let pool = served.attach_at(&network.address);
    let file = pool.open_file("/f", &OpenFlags::new().write(true).create(true)).unwrap();
    std::thread::scope(|threads| {
        let waits = threads.spawn(|| file.lock(LockKind::Write, ..));
        for cut in [Cut::Both, Cut::Process, Cut::Both] {
            std::thread::sleep(Duration::from_millis(100));
            network.cut(cut);
            let since = Instant::now();
            pool.metadata("/f").unwrap();
            let took = since.elapsed();
            assert!(took < Duration::from_secs(2), "the lock is waited for: {took:?}");
        }
        assert!(!waits.is_finished(), "nobody gets a lock so far");
        waits.join().unwrap().unwrap();
    });
    drop((file, pool));
    served.wait_for_sessions(0);
    served.finish();
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
