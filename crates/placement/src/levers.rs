//! What of the policy is carried out.

use std::fmt;
use std::str::FromStr;

/// Whether a lever is used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Lever {
    /// Nobody asks whether it would pay.
    #[default]
    Off,
    /// What it would do is told, and not done.
    Report,
    /// It is used.
    On,
}

/// What may move. That workers copy is said by how many there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Levers {
    /// Threads of callers go to their data.
    pub threads: Lever,
    /// Data goes to its readers.
    pub data: Lever,
}

impl Default for Levers {
    /// Data moves where it is known to pay; whose threads they are decides about them.
    fn default() -> Levers {
        Levers { threads: Lever::Off, data: Lever::On }
    }
}

impl Levers {
    /// Nothing is withheld.
    pub const ALL: Levers = Levers { threads: Lever::On, data: Lever::On };

    /// As far as both let it.
    #[must_use]
    pub fn least(self, other: Levers) -> Levers {
        Levers { threads: self.threads.min(other.threads), data: self.data.min(other.data) }
    }

    /// Whether any is used, or told of.
    pub fn any(&self) -> bool {
        self.threads != Lever::Off || self.data != Lever::Off
    }
}

impl fmt::Display for Lever {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lever::Off => "off",
            Lever::Report => "report",
            Lever::On => "on",
        })
    }
}

impl FromStr for Lever {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Lever, &'static str> {
        match text {
            "off" => Ok(Lever::Off),
            "report" => Ok(Lever::Report),
            "on" => Ok(Lever::On),
            _ => Err("a lever is off, report or on"),
        }
    }
}
