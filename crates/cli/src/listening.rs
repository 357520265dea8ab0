//! Serving over a network: where, and as whom.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use server::{Rights, Secured, Service};
use wire::Provider;

use crate::error::{self, Error, Result};

/// The user whom Linux knows as nobody, and its group.
const NOBODY: &str = "65534:65534";

/// Where programs of other machines attach, and whose rights they have.
#[derive(Clone, Debug, Args)]
pub struct Listening {
    /// Serve programs over a network, too, at this address, HOST or HOST:PORT [default port: 7401];
    /// with --credentials.
    #[arg(long, value_name = "ADDR", value_parser = address, requires = "trust")]
    pub listen: Option<SocketAddr>,
    /// Directory with ca.pem, whose programs are let in, cert.pem and key.pem of the service, and
    /// perhaps revoked.pem; `nearside cert` makes one. Files that change hold at once.
    #[arg(long, value_name = "DIR", requires = "listen", group = "trust")]
    pub credentials: Option<PathBuf>,
    /// File that says what each of these programs may do, a line for each: NAME
    /// UID:GID[,GROUP...] [path=/SUBTREE] [read-only] [squash=all|root|none] [default: DIR/access].
    #[arg(long, value_name = "FILE", requires = "credentials", conflicts_with = "insecure")]
    pub access: Option<PathBuf>,
    /// Encrypt nothing and ask nobody who it is; for addresses of this machine alone.
    #[arg(long, requires = "listen", group = "trust")]
    pub insecure: bool,
    /// With --insecure, at an address that other machines reach: who reads or changes what is on
    /// the wire has your files.
    #[arg(long, requires = "insecure")]
    pub trust_network: bool,
    /// Let those who come go on over a fabric of libfabric, of these kinds: tcp, shm, verbs, efa,
    /// cxi. They attach at near+fabric-PROVIDER://HOST.
    #[arg(long, value_name = "PROVIDER", requires = "listen", value_delimiter = ',')]
    pub fabric: Vec<Provider>,
    /// With --insecure: user and group whose rights everybody has who comes over the network, as
    /// numbers.
    #[arg(long, value_name = "UID:GID", value_parser = user, default_value = NOBODY)]
    #[arg(conflicts_with = "credentials")]
    pub listen_as: (u32, u32),
    /// With --insecure: which users of a mount on another machine have these rights; the others
    /// have their own, by number, and with none the other machine's root is this one's.
    #[arg(long, value_name = "USERS", value_enum, default_value_t)]
    #[arg(conflicts_with = "credentials")]
    pub squash: Squash,
}

/// Which users of a mount are taken for the one of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Squash {
    /// All of them.
    #[default]
    All,
    /// Root.
    Root,
    /// Nobody.
    None,
}

impl From<Squash> for server::Squash {
    fn from(squash: Squash) -> server::Squash {
        match squash {
            Squash::All => server::Squash::All,
            Squash::Root => server::Squash::Root,
            Squash::None => server::Squash::None,
        }
    }
}

fn address(text: &str) -> std::result::Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, server::PORT));
    }
    let found = match text.rsplit_once(':') {
        Some(_) => text.to_socket_addrs(),
        None => (text, server::PORT).to_socket_addrs(),
    };
    let mut found = found.map_err(|error| error.to_string())?;
    found.next().ok_or_else(|| "it has no address".to_owned())
}

fn user(text: &str) -> std::result::Result<(u32, u32), String> {
    let numbers = text
        .split_once(':')
        .and_then(|(user, group)| Some((user.parse::<u32>().ok()?, group.parse::<u32>().ok()?)));
    // the kernel knows nobody by this number; chown(2) takes it for "as it is"
    let is_one = |(user, group): &(u32, u32)| *user != u32::MAX && *group != u32::MAX;
    numbers.filter(is_one).ok_or_else(|| "say two numbers, like 1000:1000".to_owned())
}

impl Listening {
    /// Refuses what would show files to a network by mistake.
    pub fn refuse_if_careless(&self) -> Result<()> {
        match self.listen {
            Some(address)
                if self.insecure && !address.ip().is_loopback() && !self.trust_network =>
            {
                Err(Error::Server(format!(
                    "{address} can be reached from other machines, and nothing is encrypted: listen \
                     at 127.0.0.1, or say --trust-network where nobody else is on the network"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Says where files are, whatever directory this process has later.
    pub fn settle(&mut self) -> Result<()> {
        for path in [&mut self.credentials, &mut self.access].into_iter().flatten() {
            *path = std::path::absolute(&*path).map_err(error::io(path))?;
        }
        Ok(())
    }

    fn secured(&self) -> Option<Secured> {
        let credentials = self.credentials.clone()?;
        Some(Secured { credentials, access: self.access.clone() })
    }

    /// Listens.
    pub fn open(&self) -> Result<Option<TcpListener>> {
        let Some(address) = self.listen else { return Ok(None) };
        let failed = |error| Error::Server(format!("cannot listen at {address}: {error}"));
        for provider in &self.fabric {
            let checked = wire::check_fabric(*provider, address.ip());
            checked.map_err(|error| Error::Server(error.to_string()))?;
        }
        if let Some(secured) = self.secured() {
            secured.check().map_err(|error| Error::Server(error.to_string()))?;
        }
        let door = TcpListener::bind(address).map_err(failed)?;
        let (address, (user, group)) = (door.local_addr().map_err(failed)?, self.listen_as);
        tracing::info!("listening at {address}");
        if self.insecure && !address.ip().is_loopback() {
            tracing::warn!(
                "nothing is encrypted: whoever reaches {address} is user {user}, group {group}"
            );
        }
        Ok(Some(door))
    }

    /// Has a service let programs in at this door.
    pub fn serve(&self, service: &mut Service, door: TcpListener) -> server::Result<()> {
        match self.secured() {
            Some(secured) => service.listen_secured(door, secured),
            None => {
                let (user, group) = self.listen_as;
                let squash = self.squash.into();
                service.listen(door, Rights { squash, ..Rights::new(user, group) })
            }
        }
    }

    /// The arguments that say the same.
    pub fn arguments(&self) -> Vec<OsString> {
        let Some(address) = self.listen else { return Vec::new() };
        let mut list: Vec<OsString> = vec![format!("--listen={address}").into()];
        for (name, path) in [("--credentials=", &self.credentials), ("--access=", &self.access)] {
            list.extend(path.as_ref().map(|path| {
                let mut word = OsString::from(name);
                word.push(path);
                word
            }));
        }
        if self.insecure {
            let (user, group) = self.listen_as;
            list.push(format!("--listen-as={user}:{group}").into());
        }
        list.extend(self.fabric.iter().map(|provider| format!("--fabric={provider}").into()));
        match self.squash {
            Squash::All => {}
            Squash::Root => list.push("--squash=root".into()),
            Squash::None => list.push("--squash=none".into()),
        }
        list.extend(self.insecure.then(|| "--insecure".into()));
        list.extend(self.trust_network.then(|| "--trust-network".into()));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port() {
        let port = server::PORT;
        for (text, seen) in [
            ("127.0.0.1", format!("127.0.0.1:{port}")),
            ("127.0.0.1:80", "127.0.0.1:80".to_owned()),
            ("::1", format!("[::1]:{port}")),
            ("[::1]", format!("[::1]:{port}")),
            ("[::1]:80", "[::1]:80".to_owned()),
        ] {
            assert_eq!(address(text).unwrap().to_string(), seen);
        }
        assert!(address("localhost").unwrap().ip().is_loopback());
        for text in ["", ":", "127.0.0.1:", "127.0.0.1:70000", "a host", "[::1"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn users_are_two_numbers() {
        assert_eq!(user("0:7"), Ok((0, 7)));
        for text in ["", "7", "7:", "x:7", "7:-1", "4294967295:0", "0:4294967296"] {
            assert!(user(text).is_err(), "{text}");
        }
    }
}
