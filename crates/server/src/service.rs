//! The service as a whole.

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use nearside::Pool;
use wire::Said;

use crate::door::Door;
use crate::gate::{Gate, Secured};
use crate::grace;
use crate::holders::OTHER_DOOR;
use crate::idleness::Idleness;
use crate::options::Options;
use crate::remote::Trust;
use crate::rights::Rights;
use crate::shared::Shared;
use crate::{Error, Result, fabrics, listener, remote, worker};

/// Serves processes until it is dropped, and tells them so then. It does not close the pool.
#[derive(Debug)]
pub struct Service {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Another one goes on.
    has_left: bool,
}

impl Service {
    /// Serves `pool` to whoever comes through this door.
    pub fn start(pool: Arc<Pool>, door: Door, options: &Options) -> Result<Service> {
        listener::take_descriptors();
        let shared = Arc::new(Shared::new(pool, options)?);
        let mut service = Service { shared: shared.clone(), threads: Vec::new(), has_left: false };
        let listening = shared.clone();
        service.spawn("ns-listener", move || listener::run(&listening, &door))?;
        service.await_the_returning(options)?;
        for station in shared.stations.all() {
            for _ in 0..station.workers(options.workers) {
                let (shared, here) = (shared.clone(), station.clone());
                service.spawn(&station.name(), move || worker::run(&shared, &here))?;
            }
        }
        Ok(service)
    }

    /// Serves whoever comes through this door, too, over a network, with these rights.
    /// Nothing is encrypted, and nobody is asked who it is.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn listen(&mut self, door: TcpListener, rights: Rights) -> Result<()> {
        self.listen_for(door, Trust::Network(rights))
    }

    /// Serves whoever comes through this door, too, over a network, encrypted, by certificates that
    /// both sides show, and with the rights that the access file gives. What the files say holds
    /// from when they change; where they make no sense now nobody is let in until they do.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn listen_secured(&mut self, door: TcpListener, secured: Secured) -> Result<()> {
        self.listen_for(door, Trust::Certified(Box::new(Gate::new(secured))))
    }

    fn listen_for(&mut self, door: TcpListener, trust: Trust) -> Result<()> {
        door.set_nonblocking(true).map_err(Error::io("listen"))?;
        fabrics::check(&self.shared.fabrics, &door)?;
        let shared = self.shared.clone();
        self.spawn("ns-remote", move || remote::run(&shared, &door, trust))
    }

    /// Sees the grace through, if there is one.
    fn await_the_returning(&mut self, options: &Options) -> Result<()> {
        let keeps_orphans = options.keeps_orphans;
        let end = move |shared: &Shared| {
            let fs = shared.pool().fs();
            let ended = if keeps_orphans { fs.end_returning() } else { fs.end_inheritance() };
            if let Err(error) = ended {
                // they stay on the pool's list, and the next open tries again
                tracing::warn!("files without a name: {error}");
            }
        };
        // before anybody makes a call; or left by a service that ended before it knew who had gone
        let before = self.shared.pool().fs().returning_clients();
        if !self.shared.identities().awaits {
            self.shared.pool().fs().forget_clients(&before);
            end(&self.shared);
            return Ok(());
        }
        if keeps_orphans {
            self.shared.grace().awaits(OTHER_DOOR);
        }
        let times = grace::Times { locks: options.grace_of_locks, all: options.grace };
        let shared = self.shared.clone();
        self.spawn("ns-grace", move || grace::run(&shared, &before, times, end))
    }

    /// The other door, which goes on with what it had, has its locks again.
    pub fn other_door_is_back(&self) {
        self.shared.grace().has_its_locks(OTHER_DOOR);
    }

    /// Stops for a service that goes on in its place, maybe of another program: between two calls.
    /// What processes have open stays so: this process is to end now, as if it were killed, and
    /// then they come back.
    pub fn leave(mut self) {
        self.has_left = true;
        self.shared.leave();
        self.stop();
        // closed, files without a name would be gone
        std::mem::forget(self.shared.clone());
    }

    fn stop(&mut self) {
        self.shared.stop();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(thread.map_err(Error::io("a thread"))?);
        Ok(())
    }

    /// How many processes are attached.
    pub fn sessions(&self) -> usize {
        self.shared.count()
    }

    /// Bytes of pages that processes have mapped and that are there.
    pub fn copied_bytes(&self) -> u64 {
        self.shared.bounds().copies.bytes() + self.shared.bounds().copies_there.bytes()
    }

    /// Bytes of long calls that are coming over networks, and of answers that are not taken.
    pub fn stream_bytes(&self) -> usize {
        self.shared.credit.used()
    }

    /// What tells whether anybody is attached, also after the service has ended.
    pub fn idleness(&self) -> Idleness {
        Idleness::of(self.shared.clone())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.has_left {
            return;
        }
        self.stop();
        for session in self.shared.sessions() {
            // one that does not listen hears of it by the end of the connection
            let _ = session.send(&Said::Ends, &[]);
            self.shared.end_session(session.number);
        }
        if self.shared.leases().is_some() {
            self.shared.pool().fs().set_lender(None);
        }
        self.shared.bounds().reigns.as_ref().inspect(|reigns| reigns.end());
        self.shared.holders().end();
        self.shared.identities().end();
        // whoever drops the pool next is the last who has it
        self.shared.slow.wait_for_the_last();
    }
}
