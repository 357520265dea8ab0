//! The recorder sees every byte that changes, in an order that makes sense.
#![cfg(feature = "recorder")]
#![allow(clippy::unwrap_used)]

use pmem::recorder::{Event, EventKind, Recorder};
use pmem::{Domain, Mapping, fence};
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

/// An event that owns its data.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    Store(u64, Vec<u8>),
    NtStore(u64, Vec<u8>),
    Flush(u64, usize),
    Fence,
    Sync,
}

#[derive(Default)]
struct Log {
    events: Mutex<Vec<(u64, u32, &'static str, Kind)>>,
}

impl Recorder for Log {
    fn event(&self, event: Event<'_>) {
        let kind = match event.kind {
            EventKind::Store { offset, data } => Kind::Store(offset, data.to_vec()),
            EventKind::NtStore { offset, data } => Kind::NtStore(offset, data.to_vec()),
            EventKind::Flush { offset, len } => Kind::Flush(offset, len),
            EventKind::Fence => Kind::Fence,
            EventKind::Sync => Kind::Sync,
        };
        self.events.lock().unwrap().push((event.thread, event.mapping, event.call, kind));
    }
}

impl Log {
    fn kinds(&self) -> Vec<Kind> {
        self.events.lock().unwrap().iter().map(|event| event.3.clone()).collect()
    }
}

fn recorded(len: usize, domain: Domain) -> (Mapping, Arc<Log>) {
    let mapping = Mapping::memory(len, domain).unwrap();
    let log = Arc::new(Log::default());
    mapping.set_recorder(Some(log.clone()));
    mapping.set_id(7);
    (mapping, log)
}

const LEN: usize = 16 << 10;

proptest! {
    #[test]
    fn replaying_the_stores_gives_the_image(
        calls in proptest::collection::vec((0u8..5, 0u64..9000, 0usize..7000), 1..20),
    ) {
        let (mapping, log) = recorded(LEN, Domain::CpuFlush);
        for (number, (call, offset, len)) in calls.into_iter().enumerate() {
            let data = vec![number as u8 + 1; len];
            match call {
                0 => { fence(mapping.write(offset, &data)); }
                1 => { fence(mapping.write_crc(offset, &data).0); }
                2 => { fence(mapping.flush(mapping.store(offset, &data), offset, len)); }
                3 => { fence(mapping.zero(offset, len)); }
                _ => {
                    let offset = offset / 8 * 8;
                    fence(mapping.flush(mapping.store_u64(offset, 1), offset, 8));
                }
            }
        }
        let mut image = vec![0; LEN];
        for kind in log.kinds() {
            if let Kind::Store(offset, data) | Kind::NtStore(offset, data) = kind {
                image[offset as usize..][..data.len()].copy_from_slice(&data);
            }
        }
        prop_assert!(image == mapping.copy_image());
    }

    /// So that a model which drops what was neither flushed nor non-temporal loses nothing. Other
    /// architectures have no flush here, and no domain that needs one.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn every_ordinary_store_of_a_write_is_flushed_before_the_fence(
        offset in 0u64..9000, len in 1usize..7000,
    ) {
        let (mapping, log) = recorded(LEN, Domain::Process);
        fence(mapping.write(offset, &vec![1; len]));
        let mut unflushed: Vec<(u64, usize)> = Vec::new();
        let mut fences = 0;
        for kind in log.kinds() {
            match kind {
                Kind::Store(offset, data) => unflushed.push((offset, data.len())),
                Kind::Flush(offset, len) => unflushed.retain(|&dirty| dirty != (offset, len)),
                Kind::Fence => {
                    prop_assert!(unflushed.is_empty());
                    fences += 1;
                }
                Kind::NtStore(offset, data) => {
                    prop_assert_eq!((offset % 64, data.len() % 64), (0, 0));
                }
                Kind::Sync => prop_assert!(false),
            }
        }
        prop_assert_eq!(fences, 1);
    }
}

/// With the flush that only x86-64 has here.
#[cfg(target_arch = "x86_64")]
#[test]
fn events_say_thread_mapping_and_call() {
    let (mapping, log) = recorded(4096, Domain::CpuFlush);
    pmem::recorder::set_call("rename");
    fence(mapping.write(100, &[1; 4]));
    std::thread::scope(|scope| {
        scope.spawn(|| fence(mapping.write(200, &[1; 4])));
    });
    let events = log.events.lock().unwrap().clone();
    let (thread, other) = (events[0].0, events[3].0);
    assert_ne!(thread, other);
    assert_eq!(
        events,
        [
            (thread, 7, "rename", Kind::Store(100, vec![1; 4])),
            (thread, 7, "rename", Kind::Flush(100, 4)),
            (thread, pmem::recorder::EVERY_MAPPING, "rename", Kind::Fence),
            (other, 7, "", Kind::Store(200, vec![1; 4])),
            (other, 7, "", Kind::Flush(200, 4)),
            (other, pmem::recorder::EVERY_MAPPING, "", Kind::Fence),
        ]
    );
}

#[test]
fn a_fence_that_orders_nothing_is_not_recorded() {
    let (mapping, log) = recorded(4096, Domain::CpuFlush);
    fence(pmem::InFlight::none());
    assert_eq!(log.kinds(), []);
    fence(mapping.write(0, &[1; 64]));
    let before = log.kinds().len();
    fence(pmem::InFlight::none());
    assert_eq!(log.kinds().len(), before);
}

#[test]
fn one_fence_for_two_mappings_of_one_recorder_is_one_event() {
    let (mapping, log) = recorded(4096, Domain::CpuFlush);
    let second = Mapping::memory(4096, Domain::CpuFlush).unwrap();
    second.set_recorder(Some(log.clone()));
    fence(mapping.write(0, &[1; 8]).and(second.write(0, &[2; 8])));
    assert_eq!(log.kinds().iter().filter(|kind| **kind == Kind::Fence).count(), 1);
}

#[test]
fn domains_that_need_no_flush_record_none() {
    for domain in [Domain::Sync, Domain::CpuCache] {
        let (mapping, log) = recorded(4096, domain);
        fence(mapping.write(1, &[1; 4]));
        mapping.sync().unwrap();
        let mut expected = vec![Kind::Store(1, vec![1; 4]), Kind::Fence];
        if domain == Domain::Sync {
            expected.push(Kind::Sync);
        }
        assert_eq!(log.kinds(), expected, "{domain}");
    }
}

#[test]
fn a_recorder_taken_away_hears_no_more() {
    let (mapping, log) = recorded(4096, Domain::CpuFlush);
    mapping.set_recorder(None);
    fence(mapping.write(0, &[1; 64]));
    assert_eq!(log.kinds(), []);
}
