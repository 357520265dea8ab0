//! A network between a process and a service that can be cut.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::net::connect_unspec;

/// What of the connections is cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Both sides are told.
    Both,
    /// The process alone: the service learns of it when the process comes back.
    Process,
}

/// Two connections, and whether they are cut.
type Pair = ([TcpStream; 2], Arc<AtomicBool>);

/// Passes on what each side says.
pub struct WireCutter {
    pub address: String,
    /// Of the process, of the service.
    pairs: Arc<Mutex<Vec<Pair>>>,
    is_closed: Arc<AtomicBool>,
    /// Connections to the service over which nothing comes any more.
    silent: Mutex<Vec<TcpStream>>,
}

impl WireCutter {
    /// In front of the service at this address.
    pub fn before(address: &str) -> WireCutter {
        let (scheme, to) = address.split_once("://").unwrap();
        let to = to.to_owned();
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("{scheme}://{}", door.local_addr().unwrap());
        let pairs = Arc::<Mutex<Vec<Pair>>>::default();
        let is_closed = Arc::<AtomicBool>::default();
        let (all, closed) = (pairs.clone(), is_closed.clone());
        // it ends with the test's process
        std::thread::spawn(move || {
            for process in door.incoming() {
                if closed.load(Ordering::SeqCst) {
                    continue;
                }
                let (Ok(process), Ok(service)) = (process, TcpStream::connect(&to)) else { return };
                let is_cut = Arc::<AtomicBool>::default();
                for (from, to) in [(&process, &service), (&service, &process)] {
                    to.set_nodelay(true).unwrap();
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let is_cut = is_cut.clone();
                    std::thread::spawn(move || pass(from, to, &is_cut));
                }
                all.lock().unwrap().push(([process, service], is_cut));
            }
        });
        WireCutter { address, pairs, is_closed, silent: Mutex::default() }
    }

    /// Nobody gets through any more.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Cuts all connections that there are.
    pub fn cut(&self, what: Cut) {
        for ([process, service], is_cut) in self.pairs.lock().unwrap().drain(..) {
            is_cut.store(true, Ordering::SeqCst);
            // resets it, as a router does that has forgotten the connection
            let _ = connect_unspec(&process);
            match what {
                Cut::Both => drop(connect_unspec(&service)),
                // closed, it would say so
                Cut::Process => self.silent.lock().unwrap().push(service),
            }
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    // an end is passed on, a cut is not
    if !is_cut.load(Ordering::SeqCst) {
        let _ = to.shutdown(Shutdown::Write);
    }
}
