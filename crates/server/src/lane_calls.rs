//! What a process asks of its lane and its leases.

use std::os::fd::AsFd;
use std::sync::Arc;

use fs::{Blocks, Error as FsError, Ino};
use lanes::{Happened, Target};
use nearside::Error;
use parking_lot::Mutex;
use wire::{Reply, Request, Said};

use crate::leases::{Closed, Holder, Leases};
use crate::serve::{Answer, Call, NO_SUCH_CALL};

/// The lane of a session.
#[derive(Debug)]
pub struct Lane {
    leases: Option<Arc<Leases>>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// It was not asked for.
    None,
    /// It is there.
    Some(Arc<Holder>),
    /// The session has ended, or has had its lane.
    Ended,
}

impl Lane {
    pub fn new(leases: Option<Arc<Leases>>) -> Lane {
        Lane { leases, state: Mutex::new(State::None) }
    }

    fn holder(&self) -> Option<(&Arc<Leases>, Arc<Holder>)> {
        match (&self.leases, &*self.state.lock()) {
            (Some(leases), State::Some(holder)) => Some((leases, holder.clone())),
            _ => None,
        }
    }

    /// Nobody else has a lease of these blocks, or gets one, as long as the answer lives: for who
    /// fills a copy of this session's.
    pub fn close_to_others(&self, blocks: &Blocks) -> Option<Closed> {
        let leases = self.leases.as_ref()?;
        let own = self.holder().map(|(_, holder)| holder);
        Some(leases.close_to_others(blocks, own.as_ref()))
    }

    /// The same, where nobody else has a lease of them now; else `None`.
    pub fn close_if_unleased(&self, blocks: &Blocks) -> Option<Option<Closed>> {
        let Some(leases) = &self.leases else { return Some(None) };
        let own = self.holder().map(|(_, holder)| holder);
        leases.close_if_unleased(blocks, own.as_ref()).map(Some)
    }

    /// Nobody has a lease of anything of these files, or gets one, as long as the answer lives: for
    /// who reads of several at one moment.
    pub fn close(&self, files: impl Iterator<Item = Ino>) -> Vec<Closed> {
        let Some(leases) = &self.leases else { return Vec::new() };
        let close = |ino| leases.close_to_others(&Blocks { ino, blocks: 0..=u64::MAX }, None);
        files.map(close).collect()
    }

    /// The session ends: so do its leases.
    pub fn end(&self) {
        let state = std::mem::replace(&mut *self.state.lock(), State::Ended);
        if let (Some(leases), State::Some(holder)) = (&self.leases, state) {
            leases.end(&holder);
        }
    }
}

impl Call<'_> {
    /// Calls about lanes and leases.
    pub fn of_lane(self, request: &Request<'_>) -> Answer {
        let lane = &self.session.lane;
        match *request {
            Request::Lane { connection } => self.new_lane(connection),
            Request::Lease { slot, file, first, last } => {
                let Some((leases, holder)) = lane.holder() else { return Ok(Reply::Nothing) };
                let file = self.file(file)?;
                file.check_writable()?;
                let caller = self.session.pool.caller().cloned().map(Arc::new);
                let target = Target { handle: file.handle()?.clone(), caller };
                Ok(match leases.lend(&holder, slot, target, first..=last) {
                    None => Reply::Nothing,
                    Some((generation, blocks)) => {
                        let (first, last) = blocks.into_inner();
                        Reply::Leased(generation, first, last)
                    }
                })
            }
            Request::GiveBack(slot) => {
                if let Some((leases, holder)) = lane.holder() {
                    leases.give_back(&holder, slot);
                }
                Ok(Reply::Done)
            }
            Request::Fold => {
                if let Some((leases, holder)) = lane.holder() {
                    leases.fold(&holder);
                }
                Ok(Reply::Done)
            }
            Request::Happened { connection, slot, generation, number } => {
                let Some(leases) = &lane.leases else { return Ok(Reply::Nothing) };
                let holder = lane.holder().map(|(_, holder)| holder);
                let asked = (slot, generation, number);
                Ok(match leases.happened(holder.as_ref(), connection, asked) {
                    Happened::Yes => Reply::Number(1),
                    Happened::No => Reply::Number(0),
                    Happened::Forgotten => Reply::Nothing,
                })
            }
            _ => Err(Error::Files(NO_SUCH_CALL)),
        }
    }

    /// A session has one lane, once.
    fn new_lane(&self, connection: u128) -> Answer {
        let lane = &self.session.lane;
        let Some(leases) = &lane.leases else { return Ok(Reply::Nothing) };
        let mut state = lane.state.lock();
        if !matches!(*state, State::None) {
            return Ok(Reply::Nothing);
        }
        let Some((holder, given)) = leases.connect(connection) else { return Ok(Reply::Nothing) };
        let said = Said::Lane { domain: given.domain.name().to_owned() };
        if let Err(error) = self.session.send(&said, &[given.lane.as_fd(), given.words.as_fd()]) {
            leases.end(&holder);
            let errno = error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error());
            return Err(FsError::Elsewhere { errno, words: "a lane".to_owned() }.into());
        }
        *state = State::Some(holder);
        Ok(Reply::Done)
    }
}
