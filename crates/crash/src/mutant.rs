//! Faults put into the engine, to see that the explorer finds them.
//!
//! A mutant is a line of the engine that does not do its work. What a flush, a fence or a sync does
//! nobody can see but the medium; so to leave one out is to leave it out of what was recorded, of
//! the workload and of recovery. A checksum that nobody looks at is a switch of the engine itself.

use crate::events::{Event, Kind};
use std::panic::Location;

/// A line of the engine.
pub type Site = &'static Location<'static>;

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mutant {
    /// What is stored there is never flushed or streamed.
    Flush(Site),
    /// There is no fence.
    Fence(Site),
    /// There is no sync.
    Sync(Site),
    /// What follows the fence, a store or the return of the call, comes before it.
    Swap(Site),
    /// A checksum always fits.
    Checksum(Site),
}

impl Mutant {
    /// The line.
    pub fn site(&self) -> Site {
        match self {
            Mutant::Flush(site) | Mutant::Fence(site) | Mutant::Sync(site) => site,
            Mutant::Swap(site) | Mutant::Checksum(site) => site,
        }
    }

    /// The mutants that these events show to be possible.
    pub fn of_events(events: &[Event]) -> Vec<Mutant> {
        let of = |event: &Event| match event.kind {
            Kind::Flush { .. } | Kind::Store { streamed: true, .. } => {
                vec![Mutant::Flush(event.site)]
            }
            Kind::Fence => vec![Mutant::Fence(event.site), Mutant::Swap(event.site)],
            Kind::Sync { .. } => vec![Mutant::Sync(event.site)],
            _ => Vec::new(),
        };
        events.iter().flat_map(of).collect()
    }

    /// What would have been recorded with the fault.
    pub fn apply(self, events: &mut Vec<Event>) {
        match self {
            Mutant::Flush(site) => events.retain_mut(|event| {
                if let (Kind::Store { streamed, .. }, true) = (&mut event.kind, event.site == site)
                {
                    *streamed = false;
                }
                event.site != site || !matches!(event.kind, Kind::Flush { .. })
            }),
            Mutant::Fence(site) => {
                events.retain(|e| e.site != site || !matches!(e.kind, Kind::Fence))
            }
            Mutant::Sync(site) => {
                events.retain(|e| e.site != site || !matches!(e.kind, Kind::Sync { .. }));
            }
            Mutant::Swap(site) => swap(events, site),
            Mutant::Checksum(_) => {}
        }
    }

    /// Whether the events with the fault are others.
    pub fn is_in(self, events: &[Event]) -> bool {
        Mutant::of_events(events).contains(&self)
    }

    /// The checksum that always fits.
    pub fn blind(self) -> Option<Site> {
        if let Mutant::Checksum(site) = self { Some(site) } else { None }
    }
}

impl std::fmt::Display for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, site) = match self {
            Mutant::Flush(site) => ("no flush", site),
            Mutant::Fence(site) => ("no fence", site),
            Mutant::Sync(site) => ("no sync", site),
            Mutant::Swap(site) => ("a late fence", site),
            Mutant::Checksum(site) => ("no look at the checksum", site),
        };
        write!(f, "{what} at {}:{}", site.file(), site.line())
    }
}

/// Moves each fence of a site behind the next store of its thread, with its flush, or behind the
/// end of the call.
fn swap(events: &mut Vec<Event>, site: Site) {
    let mut index = 0;
    while index < events.len() {
        let fence = matches!(events[index].kind, Kind::Fence) && events[index].site == site;
        if fence && let Some(to) = behind_next(events, index) {
            let fence = events.remove(index);
            events.insert(to, fence);
            index = to;
        }
        index += 1;
    }
}

/// Where the fence at `index` is to go, counted without it.
fn behind_next(events: &[Event], index: usize) -> Option<usize> {
    let thread = events[index].thread;
    let mut stored = false;
    for (at, event) in events.iter().enumerate().skip(index + 1) {
        match event.kind {
            Kind::End(_) if !stored => return Some(at),
            Kind::Store { streamed, .. } if event.thread == thread && !stored => {
                stored = true;
                if streamed {
                    return Some(at);
                }
            }
            Kind::Flush { .. } if event.thread == thread && stored => return Some(at),
            Kind::Fence | Kind::End(_) if event.thread == thread || stored => return None,
            _ => {}
        }
    }
    None
}

/// A canary: each operation returned before its last fence.
pub fn return_early(events: &mut Vec<Event>, first: usize) {
    let mut index = first;
    while index < events.len() {
        if matches!(events[index].kind, Kind::End(_)) {
            let fence = events[..index].iter().rposition(|event| matches!(event.kind, Kind::Fence));
            if let Some(fence) = fence.filter(|fence| *fence >= first) {
                let end = events.remove(index);
                events.insert(fence, end);
            }
        }
        index += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(offset: u64, streamed: bool) -> Kind {
        Kind::Store { slice: 0, offset, data: vec![1; 8], streamed }
    }

    /// All of one thread, each at a line of its own.
    fn events() -> Vec<Event> {
        let at = |kind, site| Event { thread: 1, call: "", site, kind };
        vec![
            at(store(0, true), Location::caller()),
            at(Kind::Fence, fence_site()),
            at(store(64, false), Location::caller()),
            at(Kind::Flush { slice: 0, offset: 64, len: 8 }, flush_site()),
            at(Kind::Fence, Location::caller()),
            at(Kind::End(0), Location::caller()),
        ]
    }

    fn fence_site() -> Site {
        static SITE: std::sync::OnceLock<Site> = std::sync::OnceLock::new();
        SITE.get_or_init(|| Location::caller())
    }

    fn flush_site() -> Site {
        static SITE: std::sync::OnceLock<Site> = std::sync::OnceLock::new();
        SITE.get_or_init(|| Location::caller())
    }

    fn shapes(events: &[Event]) -> Vec<&'static str> {
        events.iter().map(|event| event.kind.shape().0).collect()
    }

    #[test]
    fn a_mutant_changes_what_its_line_did_and_nothing_else() {
        let with = |mutant: Mutant| {
            let mut events = events();
            assert!(mutant.is_in(&events));
            mutant.apply(&mut events);
            shapes(&events)
        };
        assert_eq!(shapes(&events()), ["stream", "fence", "store", "flush", "fence", "end"]);
        let fence = with(Mutant::Fence(fence_site()));
        assert_eq!(fence, ["stream", "store", "flush", "fence", "end"]);
        let flush = with(Mutant::Flush(flush_site()));
        assert_eq!(flush, ["stream", "fence", "store", "fence", "end"]);
        let streamed = with(Mutant::Flush(events()[0].site));
        assert_eq!(streamed, ["store", "fence", "store", "flush", "fence", "end"]);
        let late = with(Mutant::Swap(fence_site()));
        assert_eq!(late, ["stream", "store", "flush", "fence", "fence", "end"]);
        let last = with(Mutant::Swap(events()[4].site));
        assert_eq!(last, ["stream", "fence", "store", "flush", "end", "fence"]);
    }
}
