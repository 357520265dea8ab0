//! A lock that is asked for, or given up, while a service is told all.

use std::fs::File;
use std::time::Duration;

use zerocopy::FromBytes;

use super::*;
use crate::state::LockMemory;
use crate::wire::Channel;

/// Time in which a thread gets as far as it can.
const A_WHILE: Duration = Duration::from_millis(100);

/// The numbers of what was told.
type Numbers = Vec<(&'static str, u64)>;

/// A service. While it is told that requests follow, another thread does `meanwhile`.
#[derive(Default)]
struct Listening {
    told: Mutex<Numbers>,
    meanwhile: Mutex<Option<std::sync::mpsc::Sender<()>>>,
}

impl Tells for Listening {
    fn tell(&self, told: &Told, data: &[u8]) -> client::Result<()> {
        let number = |data: &[u8]| Ask::read_from_bytes(data).unwrap().unique;
        match told {
            Told::Begin => {
                if let Some(meanwhile) = self.meanwhile.lock().take() {
                    meanwhile.send(()).unwrap();
                    std::thread::sleep(A_WHILE);
                }
            }
            Told::Lock => self.told.lock().push(("lock", number(data))),
            Told::Interrupt(unique) => self.told.lock().push(("interrupt", *unique)),
            _ => {}
        }
        Ok(())
    }
}

fn ask(unique: u64) -> Ask {
    let (order, node, handle, owner, start, end, pid) = (0, 1, 1, 1, 0, 9, 1);
    let kind = libc::F_WRLCK;
    Ask { unique, order, node, handle, owner, start, end, kind, pid, flock: 0, waits: 0 }.kept()
}

/// What a service is told that is told all while `meanwhile` is done.
fn told(before: &[u64], meanwhile: impl FnOnce(&Locks, &Arc<Channel>) + Send) -> Numbers {
    let memory = LockMemory::new().unwrap();
    let (journal, replies, told_over) =
        (Mutex::new(memory.journal), Mutex::default(), Mutex::default());
    let (asked, _) = Asked::take_over(memory.asked, &[]).unwrap();
    let locks = Locks { asked, journal, replies, owes: Arc::new(|_| true), told_over };
    // takes every answer
    let device = File::options().write(true).open("/dev/null").unwrap();
    let channel = Arc::new(Channel::new(device.into()));
    for unique in before {
        locks.ask(&ask(*unique), Reply::new(&channel, *unique), false);
    }
    let (begins, begun) = std::sync::mpsc::channel();
    let service = Arc::new(Listening::default());
    *service.meanwhile.lock() = Some(begins);
    std::thread::scope(|scope| {
        let (locks, channel) = (&locks, &channel);
        scope.spawn(move || {
            begun.recv().unwrap();
            meanwhile(locks, channel);
        });
        let as_tells: Arc<dyn Tells> = service.clone();
        locks.tell_all(&as_tells, &[], true).unwrap();
    });
    std::mem::take(&mut *service.told.lock())
}

#[test]
fn a_lock_that_is_asked_for_meanwhile_is_told_once() {
    let numbers = told(&[2], |locks, channel| {
        locks.ask(&ask(4), Reply::new(channel, 4), false);
    });
    assert_eq!(numbers, [("lock", 2), ("lock", 4)]);
}

#[test]
fn a_signal_that_comes_meanwhile_is_told() {
    let numbers = told(&[2], |locks, _| assert!(locks.interrupt(2)));
    assert_eq!(numbers, [("lock", 2), ("interrupt", 2)]);
}

#[test]
fn where_the_connection_is_lost_the_next_one_is_told() {
    let numbers = told(&[2], |locks, channel| {
        locks.lost();
        locks.ask(&ask(4), Reply::new(channel, 4), false);
        let next = Arc::new(Listening::default());
        let as_tells: Arc<dyn Tells> = next.clone();
        locks.tell_all(&as_tells, &[], false).unwrap();
        assert_eq!(*next.told.lock(), [("lock", 2), ("lock", 4)]);
    });
    assert_eq!(numbers, [("lock", 2)]);
}
