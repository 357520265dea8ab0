//! Callers that do wrong, each of which the checker has to notice.

use serde::{Deserialize, Serialize};

use crate::door::DoorKind;
use crate::plan::Kind;

/// What a caller does wrong, to see that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mutant {
    /// A write is not made.
    Lost,
    /// A write is made in two halves.
    Torn,
    /// A read tells what the read before it of the same place saw.
    Stale,
    /// A write is made when it has returned.
    Late,
    /// A rename is made by a link and a removal.
    Halves,
    /// A copy into the pool leaves out a block.
    Gap,
}

impl Mutant {
    /// All of them, with the kind of history that shows it, and the door of the caller.
    pub const ALL: [(Mutant, Kind, DoorKind); 20] = [
        (Mutant::Lost, Kind::Data, DoorKind::Owner),
        (Mutant::Torn, Kind::Data, DoorKind::Owner),
        (Mutant::Stale, Kind::Data, DoorKind::Owner),
        (Mutant::Late, Kind::Data, DoorKind::Owner),
        (Mutant::Halves, Kind::Renames, DoorKind::Owner),
        (Mutant::Stale, Kind::Pages, DoorKind::Mapped),
        (Mutant::Lost, Kind::Pages, DoorKind::Mapped),
        (Mutant::Late, Kind::Pages, DoorKind::Mapped),
        (Mutant::Stale, Kind::Pages, DoorKind::Pipes),
        (Mutant::Lost, Kind::Pages, DoorKind::Pipes),
        (Mutant::Late, Kind::Pages, DoorKind::Pipes),
        (Mutant::Stale, Kind::Pages, DoorKind::Aio),
        (Mutant::Lost, Kind::Pages, DoorKind::Aio),
        (Mutant::Stale, Kind::Pages, DoorKind::Uring),
        (Mutant::Lost, Kind::Pages, DoorKind::Uring),
        (Mutant::Torn, Kind::Pages, DoorKind::Uring),
        (Mutant::Stale, Kind::Pages, DoorKind::Copies),
        (Mutant::Gap, Kind::Pages, DoorKind::CopiesIn),
        (Mutant::Stale, Kind::Pages, DoorKind::Regions),
        (Mutant::Torn, Kind::Pages, DoorKind::Regions),
    ];
}
