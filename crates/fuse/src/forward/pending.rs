//! A request on its way: the place for its answer, in each slot.

use parking_lot::{Condvar, Mutex};

use crate::wire::LateReply;

/// What an answer opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opens {
    Nothing,
    /// This inode.
    Node(u64),
    /// The one that was made.
    New,
    /// It closes the file with this number.
    Closes(u64),
}

/// A slot's request.
#[derive(Debug, Default)]
pub(super) struct Pending {
    state: Mutex<State>,
    turned: Condvar,
}

#[derive(Debug, Default)]
enum State {
    /// There is none, or its answer is out.
    #[default]
    Done,
    Waits(Waiting),
    /// Its answer has come, and is on its way to the kernel.
    Answers,
}

/// A request that is not answered.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) reply: LateReply,
    pub(super) opens: Opens,
}

impl Pending {
    /// A request is about to be sent.
    pub(super) fn begin(&self, waiting: Waiting) {
        *self.state.lock() = State::Waits(waiting);
    }

    /// Its answer has come, or none will: whoever takes this answers, and says so by
    /// [`done`](Self::done).
    pub(super) fn take(&self) -> Option<Waiting> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Answers) {
            State::Waits(waiting) => Some(waiting),
            other => {
                *state = other;
                None
            }
        }
    }

    /// The answer is out.
    pub(super) fn done(&self) {
        *self.state.lock() = State::Done;
        self.turned.notify_all();
    }

    /// Has who waits look whether the connection is lost.
    pub(super) fn wake(&self) {
        drop(self.state.lock());
        self.turned.notify_all();
    }

    /// Waits until the answer is out (true), or `is_lost` says that it does not come over this
    /// connection.
    pub(super) fn wait(&self, is_lost: impl Fn() -> bool) -> bool {
        let mut state = self.state.lock();
        loop {
            match *state {
                State::Done => return true,
                State::Waits(_) if is_lost() => return false,
                _ => self.turned.wait(&mut state),
            }
        }
    }
}
