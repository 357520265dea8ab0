//! The mount: a pool as a file system for every program, through FUSE.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = nearside::Pool::open("/pool")?;
//! let options = nearside_fuse::MountOptions::default();
//! let mount = nearside_fuse::mount(pool.fs().clone(), "/mnt/near".as_ref(), &options)?;
//! mount.wait()?; // until somebody unmounts it
//! pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! Parts, each of which knows nothing of the ones before it:
//!
//! - `session` and `connection` read requests and outlive servers; any [`Server`] will do;
//! - [`wire`] has the bytes of the protocol with the kernel, and `transport` puts its words into
//!   the engine's;
//! - `service` says what each request means to the engine, in the engine's own words;
//! - the engine, [`nearside::FileSystem`].
//!
//! Three things stay true. There is no write-back cache: when write(2) returns, the engine has the
//! bytes, and has made them durable unless the pool's domain is `sync`. One request is one atomic
//! change; the kernel cuts larger writes into requests of 1 MiB. A panic while one request is
//! served fails that request with EIO and no other.
#![forbid(unsafe_code)]

mod connection;
mod convert;
mod device;
mod error;
mod forward;
mod handles;
mod kernel_pages;
mod locks;
mod mount;
pub mod mounts;
mod options;
mod page_dropper;
pub mod placed;
mod remote;
mod server;
mod service;
mod session;
mod settings;
mod state;
mod transport;
pub mod wire;

pub use connection::{Connection, connect};
pub use error::{Error, Result};
pub use forward::{AWAY_MAX, FORWARDS_MAX, Forwarder};
pub use mount::{Mount, Turn, Unmounter, mount, mount_server, pool_server, serve, serve_by};
pub use options::MountOptions;
pub use page_dropper::{PAGE_DROPPER, drop_pages_by, run_page_dropper};
pub use remote::{Nodes, RemoteOptions, RemoteServer};
pub use server::{Connected, Server, Wishes};
pub use service::Users;
pub use session::{Leaver, Left};
