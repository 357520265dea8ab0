//! Waiting for a connection.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use wire::Link;

/// Waits until something of this may have happened, for so long at most.
pub fn wait(link: &Link, wanted: PollFlags, time: Duration) -> std::io::Result<()> {
    let transport = link.transport();
    if !transport.may_sleep() {
        return Ok(());
    }
    let wanted = if transport.rings_for_both() { PollFlags::IN } else { wanted };
    let bell = transport.bell();
    let mut events = [PollFd::new(&bell, wanted)];
    match poll(&mut events, Timespec::try_from(time).ok().as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
