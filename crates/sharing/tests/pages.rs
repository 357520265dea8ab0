//! All that kernels with pages of a file, their server and the library can do, in any order.

mod explored;
mod of_machine;

use explored::{explore, notice};
use of_machine::Explored;
use sharing::machine::Machine;
use sharing::pages::{Bounds, Fault, KernelBounds, State, Uses};

type Seen = of_machine::Seen<State>;

const PROMISE: &str = "kernels' pages are coherent";

const IDLE: KernelBounds = KernelBounds::IDLE;
/// Bits of pages and bytes.
const PAGE: u8 = 0b1;
const BOTH_PAGES: u8 = 0b11;
const LEFT: u8 = 0b1;
const RIGHT: u8 = 0b10;

/// A kernel maps a page and stores to its first byte.
const MAPS: KernelBounds =
    KernelBounds { reads: Uses::of(2, PAGE), stores: Uses::of(2, LEFT), evictions: 1, ..IDLE };

/// The library writes to the other byte.
const LIBRARY: Bounds = Bounds {
    kernels: [MAPS, IDLE],
    library_writes: Uses::of(2, LEFT | RIGHT),
    library_cuts: Uses::NEVER,
    kills: 0,
    stores_under_write_back: true,
    short_reads_tell_size: true,
    fault: None,
};
/// The library cuts the file, and makes it long again.
const CUT: Bounds = Bounds {
    kernels: [
        KernelBounds { reads: Uses::of(2, PAGE), stores: Uses::of(2, LEFT | RIGHT), ..IDLE },
        IDLE,
    ],
    library_writes: Uses::of(1, RIGHT),
    library_cuts: Uses::of(2, 0b10010),
    short_reads_tell_size: false,
    ..LIBRARY
};
/// Two kernels store to one page.
const TWO: Bounds = Bounds {
    kernels: [
        KernelBounds { reads: Uses::of(2, PAGE), stores: Uses::of(2, LEFT), ..IDLE },
        KernelBounds { reads: Uses::of(2, PAGE), stores: Uses::of(1, RIGHT), ..IDLE },
    ],
    library_writes: Uses::NEVER,
    ..LIBRARY
};
/// A kernel stores to one byte by a mapping and writes the other through its pages.
const WRITES: Bounds = Bounds {
    kernels: [
        KernelBounds {
            reads: Uses::of(2, PAGE),
            stores: Uses::of(1, LEFT),
            writes: Uses::of(2, RIGHT),
            ..IDLE
        },
        IDLE,
    ],
    library_writes: Uses::of(2, RIGHT),
    ..LIBRARY
};
/// The same, and it writes whole pages.
const WHOLE: Bounds = Bounds {
    kernels: [
        KernelBounds {
            reads: Uses::of(1, PAGE),
            stores: Uses::of(1, LEFT),
            whole_writes: Uses::of(1, PAGE),
            ..IDLE
        },
        IDLE,
    ],
    library_writes: Uses::of(2, RIGHT),
    ..LIBRARY
};
/// It writes past its pages.
const DIRECT: Bounds = Bounds {
    kernels: [
        KernelBounds {
            reads: Uses::of(2, PAGE),
            stores: Uses::of(1, LEFT),
            directs: Uses::of(2, RIGHT),
            ..IDLE
        },
        IDLE,
    ],
    library_writes: Uses::of(1, RIGHT),
    ..LIBRARY
};
/// It cuts the file itself.
const OWN_CUT: Bounds = Bounds {
    kernels: [
        KernelBounds {
            reads: Uses::of(2, PAGE),
            stores: Uses::of(1, LEFT),
            cuts: Uses::of(2, 0b10),
            ..IDLE
        },
        IDLE,
    ],
    library_writes: Uses::of(2, RIGHT),
    ..LIBRARY
};
const WRITER: KernelBounds =
    KernelBounds { reads: Uses::of(1, PAGE), writes: Uses::of(1, LEFT), evictions: 1, ..IDLE };
/// Two kernels write to one page, which each may have dropped unasked.
const TWO_WRITERS: Bounds = Bounds {
    kernels: [WRITER, KernelBounds { writes: Uses::of(1, RIGHT), ..WRITER }],
    library_writes: Uses::NEVER,
    ..LIBRARY
};
const CUTTER: KernelBounds = KernelBounds {
    reads: Uses::of(1, PAGE),
    stores: Uses::of(1, LEFT),
    cuts: Uses::of(1, 0b10),
    ..IDLE
};
/// Two kernels cut the file while their pages are dirty.
const TWO_CUTTERS: Bounds = Bounds {
    kernels: [CUTTER, KernelBounds { cuts: Uses::of(1, 0b1), ..CUTTER }],
    library_writes: Uses::NEVER,
    ..LIBRARY
};
/// A kernel maps; another one writes, and the library too.
const OTHERS: Bounds = Bounds {
    kernels: [
        KernelBounds { evictions: 0, stores: Uses::of(2, LEFT | RIGHT), ..MAPS },
        KernelBounds { directs: Uses::of(1, LEFT | RIGHT), ..IDLE },
    ],
    library_writes: Uses::of(1, LEFT | RIGHT),
    ..LIBRARY
};
/// The server is killed.
const KILL: Bounds = Bounds {
    kernels: [
        KernelBounds { reads: Uses::of(1, PAGE), stores: Uses::of(2, LEFT | RIGHT), ..IDLE },
        IDLE,
    ],
    library_writes: Uses::of(2, LEFT | RIGHT),
    kills: 1,
    ..LIBRARY
};

const CUT_WRITES: Bounds = Bounds {
    kernels: [
        KernelBounds {
            reads: Uses::of(2, PAGE),
            stores: Uses::of(1, LEFT),
            writes: Uses::of(1, RIGHT),
            ..IDLE
        },
        IDLE,
    ],
    library_writes: Uses::of(1, RIGHT),
    library_cuts: Uses::of(1, 0b10),
    ..LIBRARY
};
/// The server is killed while a kernel writes through its pages.
const KILL_WRITES: Bounds = Bounds {
    kernels: [
        KernelBounds {
            reads: Uses::of(2, PAGE),
            stores: Uses::of(1, LEFT),
            writes: Uses::of(1, RIGHT),
            ..IDLE
        },
        IDLE,
    ],
    library_writes: Uses::of(2, RIGHT),
    kills: 1,
    ..LIBRARY
};
const ALL: [(&str, Bounds); 13] = [
    ("killed while a kernel writes", KILL_WRITES),
    ("cut and own writes", CUT_WRITES),
    ("a kernel maps, the library writes", LIBRARY),
    ("the library cuts", CUT),
    ("two kernels map", TWO),
    ("a kernel maps, another and the library write", OTHERS),
    ("a kernel maps and writes", WRITES),
    ("a kernel writes whole pages", WHOLE),
    ("a kernel writes past its pages", DIRECT),
    ("a kernel cuts", OWN_CUT),
    ("two kernels write", TWO_WRITERS),
    ("two kernels cut", TWO_CUTTERS),
    ("the server is killed", KILL),
];

#[test]
fn scan() {
    for (name, bounds) in ALL {
        let start = std::time::Instant::now();
        let path = notice(Explored::<State> { bounds, sights: &[], promise: PROMISE });
        match path {
            Some(path) => {
                println!("{name}: {:?}", path.last_state().wrong());
                for (state, action) in path.into_vec() {
                    if let Some(action) = action {
                        println!("    {action:?}");
                    } else {
                        println!("{state:#?}");
                    }
                }
            }
            None => {
                explore(name, Explored::<State> { bounds, sights: &[], promise: PROMISE });
                println!("{:?}", start.elapsed());
            }
        }
    }
}

const FAULTS: [(Fault, Bounds); 36] = [
    (Fault::DoubtByNumbers, WRITES),
    (Fault::WriteInBaseLate, KILL_WRITES),
    (Fault::NoBases, LIBRARY),
    (Fault::ServerSendsNotices, LIBRARY),
    (Fault::HoldsRangeWhileWaiting, LIBRARY),
    (Fault::ReadWaits, LIBRARY),
    (Fault::WriteBackWaits, TWO),
    (Fault::LockedWriteWaits, TWO_WRITERS),
    (Fault::CutWaits, TWO_CUTTERS),
    (Fault::ReturnsEarly, LIBRARY),
    (Fault::MarksLate, LIBRARY),
    (Fault::MarksEarly, OTHERS),
    (Fault::ReadKeepsBase, LIBRARY),
    (Fault::OldNoticeEndsBase, LIBRARY),
    (Fault::SecondChangeReplacesBase, OTHERS),
    (Fault::WritesWholePage, LIBRARY),
    (Fault::WritesBehindEnd, CUT),
    (Fault::WriteBackNotCounted, TWO),
    (Fault::BaseNotUpdated, OTHERS),
    (Fault::CutOffNotInBase, CUT),
    (Fault::CutOffNotNotified, CUT),
    (Fault::DirectNotCounted, DIRECT),
    (Fault::WriteNotInBase, WRITES),
    (Fault::WriteCountsAsOthers, WRITES),
    (Fault::WholeWriteNotGiven, WHOLE),
    (Fault::NoDoubt, WRITES),
    (Fault::CutKeepsNoBase, CUT),
    (Fault::CutWithoutZeros, CUT),
    (Fault::OwnCutNotCounted, OWN_CUT),
    (Fault::BasesLost, KILL),
    (Fault::MarksLost, KILL),
    (Fault::NoticesLost, KILL),
    (Fault::ChangesBeforeBase, KILL),
    (Fault::BaseBeforeStore, KILL),
    (Fault::SentAgainNotInBase, KILL),
    (Fault::StoredTwice, KILL),
];

#[test]
fn canary_each_fault_is_noticed() {
    for (fault, bounds) in FAULTS {
        let bounds = Bounds { fault: Some(fault), ..bounds };
        let path = notice(Explored::<State> { bounds, sights: &[], promise: PROMISE });
        match path {
            Some(path) => println!(
                "{fault:?}: {:?} after {:?}",
                path.last_state().wrong(),
                path.into_actions()
            ),
            None => println!("XXX {fault:?} not noticed"),
        }
    }
}
const _: (u8, Option<Seen>) = (BOTH_PAGES, None);
