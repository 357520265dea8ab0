//! What a session may not ask for, whatever the files allow: all that changes anything, where it is
//! for reading only.
//!
//! Every request is named here, so that none is forgotten. What a session sees of the pool is not
//! asked here: its paths begin at its own root (`nearside::Pool::for_caller_in`), and what it has
//! open it has opened there.

use wire::{Flags, Request};

/// Whether it is for what changes something: what is stored, or what others find there.
pub fn is_change(request: &Request<'_>) -> bool {
    match request {
        Request::Open(_, flags) => is_for_changes(flags),
        // opened so before, under the same rights, which say the same again
        Request::Restore { flags, .. } => flags.as_ref().is_some_and(is_for_changes),
        Request::Commit { writes, .. } | Request::Stage { writes, .. } => !writes.is_empty(),
        Request::Write { .. }
        | Request::Append(_)
        | Request::Copy { .. }
        | Request::SetLength(..)
        | Request::PunchHole(..)
        | Request::Allocate(..)
        | Request::SetMode(..)
        | Request::SetOwner(..)
        | Request::SetTimes(..)
        | Request::SetXattr(..)
        | Request::RemoveXattr(..)
        | Request::Make(..)
        | Request::Remove(..)
        | Request::Rename(..)
        | Request::Checkpoint
        | Request::Lane { .. }
        | Request::Lease { .. }
        | Request::Fold => true,
        Request::Close(_)
        | Request::Restored
        | Request::Read { .. }
        | Request::Cache
        | Request::ReadCached { .. }
        | Request::FileAttributes(_)
        | Request::Sync
        | Request::Seek(..)
        | Request::Lock { .. }
        | Request::Attributes(..)
        | Request::Xattr(..)
        | Request::ListXattrs(_)
        | Request::ReadLink(_)
        | Request::OpenDirectory(_)
        | Request::ReadDirectory(..)
        | Request::StatFs
        | Request::Info
        | Request::Unstage(_)
        | Request::Map { .. }
        | Request::Fill { .. }
        | Request::Unmap(_)
        | Request::GiveBack(_)
        | Request::Happened { .. }
        | Request::ReadTogether { .. } => false,
    }
}

fn is_for_changes(flags: &Flags) -> bool {
    let Flags { read: _, write, append, truncate, create, create_new, mode: _ } = *flags;
    write || append || truncate || create || create_new
}
