//! From a socket to a fabric: each side says where it is there, over a connection on which both
//! have said who they are, and the keys for what goes by the fabric are that connection's.
//!
//! Where nothing is encrypted the keys are made of what was said in the clear: then they show
//! damage, and nothing else.

use std::io;
use std::net::IpAddr;

use fabric::Provider;

/// Why there is no fabric.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoFabric {
    /// The program has nothing to do with fabrics.
    #[error("this program was built without fabrics: build it with the cargo feature `fabric`")]
    NotBuilt,
    /// There is none here.
    #[error("no fabric {provider} can be used here: {why}; `fi_info -p {provider}` shows those")]
    None {
        /// Its kind.
        provider: Provider,
        /// What libfabric says.
        why: String,
    },
    /// What the other side says of itself is of no use.
    #[error("what the other side says of its fabric makes no sense: {0}")]
    Nonsense(String),
    /// The kernel refuses.
    #[error("a fabric: {0}")]
    Io(#[from] io::Error),
}

/// Whether there is such a fabric at this address of this machine.
///
/// # Errors
/// There is none.
pub fn check(provider: Provider, here: IpAddr) -> Result<(), NoFabric> {
    there::open(provider, here).map(drop)
}

pub use there::Joining;

#[cfg(feature = "fabric")]
mod there {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::os::fd::AsFd;

    use fabric::{
        Failed, Keys, Libfabric, MATERIAL_BYTES, NONCE_BYTES, Provider, Side, Stream, draw_nonce,
    };

    use super::NoFabric;
    use crate::link::OverFabric;
    use crate::{FabricPlace, Link};

    /// What the keys are for.
    const LABEL: &[u8] = b"EXPORTER-nearside-fabric-1";

    /// A side that is about to go on over a fabric.
    #[derive(Debug)]
    pub struct Joining {
        provider: Provider,
        endpoint: Libfabric,
        nonce: [u8; NONCE_BYTES],
        /// What the other side drew.
        theirs: Vec<u8>,
    }

    pub fn open(provider: Provider, here: IpAddr) -> Result<Libfabric, NoFabric> {
        Libfabric::open(provider, here.to_canonical()).map_err(none(provider))
    }

    fn none(provider: Provider) -> impl Fn(Failed) -> NoFabric {
        move |Failed(why)| NoFabric::None { provider, why }
    }

    impl Joining {
        /// From the address of this machine by which this connection goes.
        ///
        /// # Errors
        /// There is no such fabric.
        pub fn begin(provider: Provider, link: &Link) -> Result<Joining, NoFabric> {
            let here = rustix::net::getsockname(link).map_err(std::io::Error::from)?;
            let here = SocketAddr::try_from(here).map(|address| address.ip());
            let here = here.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
            let endpoint = open(provider, here)?;
            Ok(Joining { provider, endpoint, nonce: draw_nonce()?, theirs: Vec::new() })
        }

        /// What to say of this side.
        ///
        /// # Errors
        /// The fabric does not say where it is.
        pub fn place(&self) -> Result<FabricPlace, NoFabric> {
            let (provider, address) = (self.provider.to_string(), hex(self.endpoint.name()));
            Ok(FabricPlace { provider, address, nonce: hex(&self.nonce) })
        }

        /// What libfabric calls what it uses.
        pub fn provider(&self) -> String {
            self.endpoint.provider()
        }

        /// The other side is the one that said this.
        ///
        /// # Errors
        /// It makes no sense.
        pub fn meet(&mut self, theirs: &FabricPlace) -> Result<(), NoFabric> {
            if theirs.provider != self.provider.name() {
                return Err(NoFabric::Nonsense("it is another one".to_owned()));
            }
            let nonsense = || NoFabric::Nonsense("these are no digits".to_owned());
            let address = bytes(&theirs.address).ok_or_else(nonsense)?;
            let nonce = bytes(&theirs.nonce).filter(|nonce| nonce.len() == NONCE_BYTES);
            self.theirs = nonce.ok_or_else(nonsense)?;
            self.endpoint.meet(&address).map_err(|Failed(why)| NoFabric::Nonsense(why))
        }

        /// Goes on over the fabric, beside the connection, with who was met.
        ///
        /// # Errors
        /// The fabric does not do what it is asked to.
        pub fn join(self, link: Link, side: Side) -> Result<Link, NoFabric> {
            let nonces = match side {
                Side::Program => [&self.nonce[..], &self.theirs],
                Side::Service => [&self.theirs[..], &self.nonce],
            };
            let keys = match link.secret::<MATERIAL_BYTES>(LABEL, &nonces.concat()) {
                Some(material) => Keys::new(&material, side)?,
                None => Keys::in_the_clear(nonces, side)?,
            };
            let stream = Stream::new(self.endpoint, keys, link.as_fd())?;
            Ok(Link::over_fabric(OverFabric::new(stream, link)))
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn bytes(hex: &str) -> Option<Vec<u8>> {
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let pairs = hex.as_bytes().chunks(2);
        hex.len().is_multiple_of(2).then(|| pairs.map(byte).collect()).flatten()
    }
}

#[cfg(not(feature = "fabric"))]
mod there {
    use std::net::IpAddr;

    use fabric::{Provider, Side};

    use super::NoFabric;
    use crate::{FabricPlace, Link};

    /// A side that is about to go on over a fabric: there is none in a program without fabrics.
    #[derive(Debug)]
    pub enum Joining {}

    pub fn open(_: Provider, _: IpAddr) -> Result<Joining, NoFabric> {
        Err(NoFabric::NotBuilt)
    }

    impl Joining {
        /// From the address of this machine by which this connection goes.
        ///
        /// # Errors
        /// There is no such fabric.
        pub fn begin(_: Provider, _: &Link) -> Result<Joining, NoFabric> {
            Err(NoFabric::NotBuilt)
        }

        /// What to say of this side.
        ///
        /// # Errors
        /// None.
        pub fn place(&self) -> Result<FabricPlace, NoFabric> {
            match *self {}
        }

        /// What libfabric calls what it uses.
        pub fn provider(&self) -> String {
            match *self {}
        }

        /// The other side is the one that said this.
        ///
        /// # Errors
        /// None.
        pub fn meet(&mut self, _: &FabricPlace) -> Result<(), NoFabric> {
            match *self {}
        }

        /// Goes on over the fabric, beside the connection, with who was met.
        ///
        /// # Errors
        /// None.
        pub fn join(self, _: Link, _: Side) -> Result<Link, NoFabric> {
            match self {}
        }
    }
}
