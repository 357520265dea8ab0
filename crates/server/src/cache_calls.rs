//! What a process asks of its read cache.

use std::os::fd::AsFd;
use std::sync::Arc;

use fs::{Blocks, FILE_BYTES_MAX};
use parking_lot::Mutex;
use wire::{DATA_BYTES_MAX, Reply, Said};

use crate::bounds::Bounds;
use crate::copies::PAGE;
use crate::read_cache::{ReadCache, Reigns};
use crate::serve::{Answer, Call};

/// The read cache of a session.
#[derive(Debug)]
pub struct Cache {
    /// What is read is cached here.
    reigns: Option<Arc<Reigns>>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// It was not asked for.
    None,
    /// It is there.
    Some(Arc<ReadCache>),
    /// The session has ended.
    Ended,
}

impl Cache {
    pub fn new(bounds: &Bounds) -> Cache {
        Cache { reigns: bounds.reigns.clone(), state: Mutex::new(State::None) }
    }

    fn get(&self) -> Option<Arc<ReadCache>> {
        match &*self.state.lock() {
            State::Some(cache) => Some(cache.clone()),
            _ => None,
        }
    }

    /// The session ends. What is in it goes with the files that it has open.
    pub fn end(&self) {
        *self.state.lock() = State::Ended;
    }
}

impl Call<'_> {
    /// A session has one, once.
    pub fn new_cache(self) -> Answer {
        let session = self.session;
        let mut state = session.cache.state.lock();
        let word = session.cache.reigns.as_ref().and_then(|reigns| reigns.word());
        let (State::None, Some(word)) = (&*state, word) else { return Ok(Reply::Nothing) };
        let (cache, theirs) = ReadCache::new(session.copies.room(), wire::CACHED_PAGES)?;
        session
            .send(&Said::Cache, &[theirs.as_fd(), word.as_fd()])
            .map_err(|error| crate::copies::failed("sendmsg", &error))?;
        *state = State::Some(cache);
        Ok(Reply::Done)
    }

    /// Reads, and puts into the read cache what was read, where it can be there.
    pub fn read_cached(self, number: u64, offset: u64, len: u32) -> Answer {
        let file = self.file(number)?;
        let len = (len as usize).min(DATA_BYTES_MAX);
        let end = offset.checked_add(len as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let (first, behind) = (offset / PAGE, end.unwrap_or(0).div_ceil(PAGE));
        let is_short = first < behind && behind - first <= wire::CACHED_READ_PAGES;
        let cache = self.session.cache.get().filter(|_| is_short);
        let Some(cache) = cache else { return self.read(&file, offset, len) };
        file.check_readable()?;
        let handle = file.handle()?;
        // who makes the file longer changes what is behind its last page
        let has_end = handle.size() < behind * PAGE;
        let last = if has_end { u64::MAX } else { behind - 1 };
        let blocks = Blocks { ino: handle.ino(), blocks: first..=last };
        let Some(closed) = self.session.lane.close_if_unleased(&blocks) else {
            return self.read(&file, offset, len);
        };
        let cached = self.session.opened.cached(self.session.pool.fs(), number, &cache)?;
        let answer = self.answer;
        answer.resize(((behind - first) * PAGE) as usize, 0);
        let mut pages = Vec::new();
        let read = cached.read(first, answer, has_end, &mut pages)?;
        drop(closed);
        let skipped = (offset - first * PAGE) as usize;
        answer.truncate(read.min(skipped + len));
        answer.drain(..skipped.min(answer.len()));
        let last_bytes = match pages.len() {
            0 => 0,
            count => (read - (count - 1) * PAGE as usize).min(PAGE as usize) as u32,
        };
        Ok(Reply::Cached { pages, last_bytes })
    }
}
