//! `nearside tier evict`: lets go of what is cached of the devices.

use std::path::Path;

use nearside::FileSystem;
use serde::{Deserialize, Serialize};

use crate::control::Client;
use crate::error::Result;
use crate::size::show;
use crate::{access, output};

/// What was let go, as JSON and the control socket say it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Evicted {
    /// Bytes of DRAM, and of clean copies in slices.
    pub evicted_bytes: u64,
}

impl Evicted {
    /// Does it.
    pub fn of(fs: &FileSystem) -> Evicted {
        Evicted { evicted_bytes: fs.evict_caches().unwrap_or_default() }
    }
}

/// Empties the caches of the tier of a pool. One that nobody has open has none.
pub fn run(pool: &Path, json: bool) -> Result<()> {
    let evicted = match access::has_server(pool)? {
        true => {
            let mut client = Client::connect(pool)?;
            client.facts()?.tier.ok_or_else(|| super::no_tier(pool))?;
            client.evict()?
        }
        false => {
            access::facts(pool)?.tier.ok_or_else(|| super::no_tier(pool))?;
            Evicted::default()
        }
    };
    if json {
        return output::json(&evicted);
    }
    let pool = output::shown(pool.display().to_string().as_bytes());
    output::text(&format!("{pool}: {} of copies let go\n", show(evicted.evicted_bytes)))
}
