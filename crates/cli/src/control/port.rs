//! The port of `--http`: a new mount has it at once or fails, a server that takes over goes on
//! without it and tries again, for its mount is worth more than what is shown of it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

/// Pause between two tries.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The port, if one is asked for.
#[derive(Debug)]
pub(super) struct Port {
    listener: Option<TcpListener>,
    /// What is still to be had, and when to try.
    wanted: Option<(SocketAddr, Instant)>,
}

impl Port {
    /// Listens on `address`, if there is one; where it is taken and it `may_wait`, later.
    pub(super) fn open(address: Option<SocketAddr>, may_wait: bool) -> io::Result<Port> {
        let mut port = Port { listener: None, wanted: None };
        let Some(address) = address else { return Ok(port) };
        match listen(address) {
            Ok(listener) => port.listener = Some(listener),
            Err(error) if may_wait => {
                tracing::warn!("--http {address}: {error}; going on, and trying again");
                port.wanted = Some((address, Instant::now() + RETRY_PAUSE));
            }
            Err(error) => return Err(error),
        }
        Ok(port)
    }

    /// Where to let in who asks.
    pub(super) fn listener(&self) -> Option<&TcpListener> {
        self.listener.as_ref()
    }

    /// When to try again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.wanted.map(|(_, at)| at)
    }

    /// Tries again, if it is time.
    pub(super) fn retry(&mut self, now: Instant) {
        let Some((address, at)) = self.wanted else { return };
        if at > now {
            return;
        }
        self.wanted = match listen(address) {
            Ok(listener) => {
                self.listener = Some(listener);
                None
            }
            // Said once; again and again it would fill the log.
            Err(_) => Some((address, now + RETRY_PAUSE)),
        };
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    tracing::info!(address = %listener.local_addr()?, "http");
    Ok(listener)
}
