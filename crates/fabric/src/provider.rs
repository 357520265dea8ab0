//! The kinds of fabric that are known here.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// A kind of fabric, by the name that libfabric has for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Provider {
    /// Sockets of the kernel: everywhere, and no faster than without a fabric.
    Tcp,
    /// Memory that two processes of one machine share.
    Shm,
    /// RDMA: InfiniBand, RoCE, iWARP.
    Verbs,
    /// Amazon's adapter; untested.
    Efa,
    /// Slingshot; untested.
    Cxi,
}

impl Provider {
    /// All of them.
    pub const ALL: [Provider; 5] =
        [Provider::Tcp, Provider::Shm, Provider::Verbs, Provider::Efa, Provider::Cxi];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Provider::Tcp => "tcp",
            Provider::Shm => "shm",
            Provider::Verbs => "verbs",
            Provider::Efa => "efa",
            Provider::Cxi => "cxi",
        }
    }

    /// What to ask libfabric for: connections alone are made datagrams by `ofi_rxm`.
    #[cfg(feature = "libfabric")]
    pub(crate) fn asked_for(self) -> &'static std::ffi::CStr {
        match self {
            Provider::Tcp => c"tcp;ofi_rxm",
            Provider::Shm => c"shm",
            Provider::Verbs => c"verbs;ofi_rxm",
            Provider::Efa => c"efa",
            Provider::Cxi => c"cxi",
        }
    }

    /// Whether its endpoints have addresses of IP.
    #[cfg(feature = "libfabric")]
    pub(crate) fn is_of_ip(self) -> bool {
        matches!(self, Provider::Tcp | Provider::Verbs)
    }
}

impl Display for Provider {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Provider {
    type Err = String;

    fn from_str(text: &str) -> Result<Provider, String> {
        let found = Provider::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| {
            let names = Provider::ALL.map(Provider::name).join(", ");
            format!("no fabric is called {text:?}: there are {names}")
        })
    }
}
