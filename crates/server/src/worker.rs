//! Threads that look after the sessions that rang.
//!
//! A session's bell rings when its process asks while nobody looks. The worker that hears it looks
//! at the session's slots until nothing was asked for a while, and only then lets it ring again; it
//! looks after several sessions in turn. What may take long is done by a thread of its own, so that
//! the others do not wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};

use crate::serve;
use crate::session::Session;
use crate::shared::Shared;
use crate::stations::Station;
use crate::stream::Next;

/// How long a silent session is looked at before it has to ring.
const LOOKS_FOR: Duration = Duration::from_micros(50);
/// Rounds between two looks at the bells while there are sessions to look after.
const ROUNDS: u32 = 64;
/// Calls of one session that are served before the others have their turn.
const BURST: usize = 16;

struct Watched {
    session: Arc<Session>,
    /// When it asked last.
    asked: Instant,
}

/// Serves at this station until the service ends.
pub fn run(shared: &Arc<Shared>, station: &Station) {
    let _held = station.hold();
    let mut watched: Vec<Watched> = Vec::new();
    let mut room = serve::Room::default();
    while !shared.has_ended() {
        hear(shared, station, &mut watched);
        for _ in 0..ROUNDS {
            watched.retain_mut(|one| look(shared, one, &mut room));
            if watched.is_empty() {
                break;
            }
        }
        // who is to ask may wait for this very CPU
        std::thread::yield_now();
    }
}

/// Takes over the sessions that rang; waits for one if there is none to look after.
fn hear(shared: &Shared, station: &Station, watched: &mut Vec<Watched>) {
    let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 4];
    let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let limit = (!watched.is_empty()).then_some(&zero);
    let count = epoll::wait(station.bells(), &mut events, limit).unwrap_or(0);
    for event in &events[..count] {
        if let Some(session) = shared.session(event.data.u64()) {
            session.line.silence();
            watched.push(Watched { session, asked: Instant::now() });
        }
    }
}

/// Serves what the session asks. False: it has been silent for long, and rings from now on.
fn look(shared: &Arc<Shared>, one: &mut Watched, room: &mut serve::Room) -> bool {
    let session = &one.session;
    let mut from = 0;
    for _ in 0..BURST {
        let serve::Room { message, data, answer } = room;
        let mut serves = serve::Of { shared, session, answer };
        match session.line.serve_next(from, (message, data), &mut serves) {
            Next::Served(taken) => from = taken.slot() + 1,
            Next::Nothing => break,
            // it rings again
            Next::Waits => return false,
        }
        one.asked = Instant::now();
    }
    if from > 0 {
        return true;
    }
    std::hint::spin_loop();
    if session.has_ended() {
        return false;
    }
    if one.asked.elapsed() < LOOKS_FOR || !session.line.park() {
        return true;
    }
    shared.listen_for(session);
    false
}
