//! Sockets over a network.

use std::io::Result;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;

/// The port where a service listens, unless it is told another.
pub const PORT: u16 = 7401;

/// A connection in which nothing comes is asked after so long whether the other side is there,
const IDLE: Duration = Duration::from_secs(10);
/// and again so often,
const AGAIN: Duration = Duration::from_secs(3);
/// and has ended when so many of these are not answered,
const PROBES: u32 = 3;
/// or what was sent has not been acknowledged for so long.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(20);

/// Has a connected TCP socket send what it is given at once, and notice that the other side has
/// gone without a word.
///
/// # Errors
/// It is no TCP socket.
pub fn prepare(socket: impl AsFd) -> Result<()> {
    let socket = socket.as_fd();
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, IDLE)?;
    sockopt::set_tcp_keepintvl(socket, AGAIN)?;
    sockopt::set_tcp_keepcnt(socket, PROBES)?;
    sockopt::set_tcp_user_timeout(socket, UNACKNOWLEDGED_MAX.as_millis() as u32)?;
    Ok(())
}
