//! What those may do who come over a network.

use std::path::PathBuf;

use nearside::{Caller, Pool};

/// Which users of a mount on another machine are taken for the one of its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// All of them.
    #[default]
    All,
    /// Root. Others are who they say, each with the one group that a request says.
    Root,
    /// Nobody. The machine is trusted as if it was this one: its kernel says who asks and has asked
    /// whether he may.
    None,
}

/// Whose files somebody may use who comes over a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The user whose rights it has.
    pub user: u32,
    /// The user's group,
    pub group: u32,
    /// and others.
    pub groups: Vec<u32>,
    /// The directory that it sees as the root; none: that of the pool.
    pub subtree: Option<PathBuf>,
    /// Nothing that it asks for changes anything.
    pub read_only: bool,
    /// Whose rights the users of a mount have.
    pub squash: Squash,
}

impl Rights {
    /// Of this user and this group alone.
    pub fn new(user: u32, group: u32) -> Rights {
        Rights {
            user,
            group,
            groups: Vec::new(),
            subtree: None,
            read_only: false,
            squash: Squash::All,
        }
    }

    /// As the engine asks for it.
    pub fn caller(&self) -> Caller {
        Caller::new(self.user, self.group, self.groups.clone())
    }

    /// The pool as it may use it.
    ///
    /// # Errors
    /// There is no such directory as it is to see.
    pub fn view(&self, pool: &Pool) -> nearside::Result<Pool> {
        match &self.subtree {
            None => Ok(pool.for_caller(self.caller())),
            Some(dir) => pool.for_caller_in(self.caller(), dir),
        }
    }
}
