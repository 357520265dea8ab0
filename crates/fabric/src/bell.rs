//! The descriptor that says when to look again: readable where there may be something to do.
//!
//! It is an epoll of the fabric's own descriptor, of the connection beside the fabric, and of one
//! that is rung here. A provider that has no descriptor is looked at by the clock instead: 0.2 ms
//! after the last look, and twice that each time that nothing has come, up to [`REST_MAX`].

use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// Time until the first look by the clock.
const REST: Duration = Duration::from_micros(200);
/// Longest time between two looks by the clock, about.
const REST_MAX: Duration = Duration::from_millis(10);

/// Says when to look again.
#[derive(Debug)]
pub struct Bell {
    epoll: OwnedFd,
    rung: OwnedFd,
    /// Where the fabric has no descriptor.
    clock: Option<(OwnedFd, Duration)>,
    /// The clock is to ring, or has.
    is_wound: bool,
    /// For who receives.
    has_news: bool,
    /// For who sends.
    has_room: bool,
}

impl Bell {
    /// Of a fabric's descriptor, if it has one, and that of the connection beside it.
    pub fn new(fabric: Option<BorrowedFd<'_>>, beside: BorrowedFd<'_>) -> Result<Bell> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let rung = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let add = |fd: BorrowedFd<'_>, flags| epoll::add(&epoll, fd, EventData::new_u64(0), flags);
        add(rung.as_fd(), EventFlags::IN)?;
        add(beside, EventFlags::IN | EventFlags::RDHUP)?;
        let clock = match fabric {
            Some(fabric) => {
                add(fabric, EventFlags::IN)?;
                None
            }
            None => {
                let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
                let clock = timerfd_create(TimerfdClockId::Monotonic, flags)?;
                add(clock.as_fd(), EventFlags::IN)?;
                Some((clock, REST))
            }
        };
        Ok(Bell { epoll, rung, clock, is_wound: false, has_news: false, has_room: false })
    }

    /// Who receives looks: it does not ring for what rang it before.
    pub fn heard(&mut self) {
        if std::mem::take(&mut self.is_wound)
            && let Some((clock, _)) = &self.clock
        {
            // one that has rung is silent, too
            let _ = set_clock(clock, Duration::ZERO);
        }
        self.set_news(false);
    }

    /// Whether it rings for who receives.
    pub fn set_news(&mut self, has_news: bool) {
        self.set(has_news, self.has_room);
    }

    /// Whether it rings for who sends.
    pub fn set_room(&mut self, has_room: bool) {
        self.set(self.has_news, has_room);
    }

    fn set(&mut self, has_news: bool, has_room: bool) {
        let rang = self.has_news || self.has_room;
        (self.has_news, self.has_room) = (has_news, has_room);
        match (rang, has_news || has_room) {
            (false, true) => drop(rustix::io::write(&self.rung, &1u64.to_ne_bytes())),
            (true, false) => drop(rustix::io::read(&self.rung, &mut [0u8; 8])),
            _ => {}
        }
    }

    /// Something has come: the clock goes as fast as it can.
    pub fn hurry(&mut self) {
        if let Some((_, rest)) = &mut self.clock {
            *rest = REST;
        }
    }

    /// Somebody is to wait: has the clock ring, where there is one.
    pub fn wind(&mut self) -> Result<()> {
        let Some((clock, rest)) = &mut self.clock else { return Ok(()) };
        set_clock(clock, *rest)?;
        *rest = (*rest * 2).min(REST_MAX);
        self.is_wound = true;
        Ok(())
    }
}

/// Has it ring once, after less than a second; never: after none.
fn set_clock(clock: &OwnedFd, rest: Duration) -> Result<()> {
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    let it_value = Timespec { tv_sec: 0, tv_nsec: i64::from(rest.subsec_nanos()) };
    let spec = Itimerspec { it_interval: zero, it_value };
    timerfd_settime(clock, TimerfdTimerFlags::empty(), &spec)?;
    Ok(())
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
