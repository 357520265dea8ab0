//! What is explored of the pages that kernels keep.

use sharing::pages::{Bounds, KernelBounds, Uses};

const IDLE: KernelBounds = KernelBounds::IDLE;
const NEVER: Uses = Uses::NEVER;
/// The first page, as bits.
const PAGE: u8 = 0b1;
/// Its bytes, as bits.
const LEFT: u8 = 0b1;
const RIGHT: u8 = 0b10;
const EITHER: u8 = LEFT | RIGHT;
/// Sizes that a file is cut to: nothing, and one byte; or to one byte, or to all again.
const TO_NOTHING: u8 = 0b1;
const TO_ONE: u8 = 0b10;
const TO_ONE_OR_ALL: u8 = 0b10010;

const NOTHING: Bounds = Bounds {
    kernels: [IDLE; 2],
    library_writes: NEVER,
    library_cuts: NEVER,
    kills: 0,
    stores_under_write_back: false,
    short_reads_tell_size: true,
    reads_beside: false,
    fault: None,
};

const fn uses(times: u8, at: u8) -> Uses {
    Uses::of(times, at)
}

/// A kernel reads the page twice and stores to these bytes of it.
const fn maps(stores: u8, at: u8) -> KernelBounds {
    KernelBounds { reads: uses(2, PAGE), stores: uses(stores, at), ..IDLE }
}

/// A kernel maps, the library writes.
pub const LIBRARY: Bounds = Bounds {
    kernels: [KernelBounds { evictions: 1, ..maps(2, LEFT) }, IDLE],
    library_writes: uses(2, EITHER),
    stores_under_write_back: true,
    ..NOTHING
};
/// A kernel maps; another one writes, and the library too.
pub const OTHERS: Bounds = Bounds {
    kernels: [maps(2, EITHER), KernelBounds { directs: uses(1, EITHER), ..IDLE }],
    library_writes: uses(1, EITHER),
    ..NOTHING
};
/// A kernel maps, the library writes, and READs are served beside it.
pub const BESIDE: Bounds = Bounds {
    kernels: [maps(1, LEFT), IDLE],
    library_writes: uses(2, EITHER),
    reads_beside: true,
    ..NOTHING
};
/// The library cuts the file, another kernel makes it long again, and READs are served beside that.
pub const BESIDE_CUT: Bounds = Bounds { reads_beside: true, ..CUT_AND_OTHER };
/// A kernel writes beside READs.
pub const BESIDE_WRITER: Bounds = Bounds {
    kernels: [
        maps(1, LEFT),
        KernelBounds { writes: uses(1, RIGHT), directs: uses(1, LEFT), ..IDLE },
    ],
    library_writes: NEVER,
    ..BESIDE
};
/// The same with the library, and the server is killed.
pub const BESIDE_KILL: Bounds = Bounds { library_writes: uses(1, EITHER), kills: 1, ..BESIDE };
/// Two kernels store to one page.
pub const TWO: Bounds = Bounds { kernels: [maps(2, LEFT), maps(2, RIGHT)], ..NOTHING };
/// The library cuts the file, and makes it long again.
pub const CUT: Bounds = Bounds {
    kernels: [maps(2, EITHER), IDLE],
    library_writes: uses(1, RIGHT),
    library_cuts: uses(1, TO_ONE),
    short_reads_tell_size: false,
    ..NOTHING
};
/// The library cuts the file, and another kernel makes it long again.
pub const CUT_AND_OTHER: Bounds = Bounds {
    kernels: [
        KernelBounds { reads: uses(1, PAGE), ..maps(2, LEFT) },
        KernelBounds { directs: uses(1, RIGHT), size_asks: 0, ..IDLE },
    ],
    library_cuts: uses(1, TO_ONE),
    ..NOTHING
};
/// A kernel stores to one byte by a mapping and writes the other through its pages.
pub const WRITES: Bounds = Bounds {
    kernels: [KernelBounds { writes: uses(2, RIGHT), ..maps(1, LEFT) }, IDLE],
    library_writes: uses(2, RIGHT),
    ..NOTHING
};
/// The same, and the library cuts the file.
pub const WRITES_AND_CUT: Bounds = Bounds {
    kernels: [KernelBounds { writes: uses(1, RIGHT), size_asks: 1, ..maps(1, LEFT) }, IDLE],
    library_cuts: uses(1, TO_ONE),
    ..NOTHING
};
/// A kernel writes through its pages, and stores what was there before.
pub const WRITES_BACK: Bounds = Bounds {
    kernels: [
        KernelBounds {
            reads: uses(2, PAGE),
            writes: uses(1, RIGHT),
            stores_again: uses(1, RIGHT),
            evictions: 1,
            ..IDLE
        },
        IDLE,
    ],
    library_writes: uses(2, RIGHT),
    ..NOTHING
};
/// The same, and the server is killed.
pub const KILL_WRITES_BACK: Bounds = Bounds { kills: 1, ..WRITES_BACK };
/// The same beside READs.
pub const BESIDE_OWN: Bounds = Bounds { reads_beside: true, ..WRITES_BACK };
/// The library cuts the file, and the kernel has not heard of it when it stores and writes there.
pub const WRITES_ZEROS: Bounds = Bounds {
    kernels: [
        KernelBounds { stores: uses(1, RIGHT), size_asks: 0, ..WRITES_BACK.kernels[0] },
        IDLE,
    ],
    library_writes: NEVER,
    library_cuts: uses(1, TO_ONE),
    short_reads_tell_size: false,
    ..WRITES_BACK
};
/// A kernel writes whole pages.
pub const WHOLE: Bounds = Bounds {
    kernels: [
        KernelBounds { reads: uses(1, PAGE), whole_writes: uses(1, PAGE), ..maps(1, LEFT) },
        IDLE,
    ],
    library_writes: uses(2, RIGHT),
    ..NOTHING
};
/// A kernel writes a whole page, the library cuts the file.
pub const WHOLE_AND_CUT: Bounds = Bounds {
    kernels: [
        KernelBounds { reads: uses(1, PAGE), whole_writes: uses(1, PAGE), ..maps(1, LEFT) },
        IDLE,
    ],
    library_cuts: uses(1, TO_ONE),
    ..NOTHING
};
/// A kernel writes past its own pages.
pub const DIRECT: Bounds = Bounds {
    kernels: [KernelBounds { directs: uses(2, RIGHT), ..maps(1, LEFT) }, IDLE],
    library_writes: uses(1, RIGHT),
    ..NOTHING
};
/// A kernel cuts the file itself, twice.
pub const OWN_CUTS: Bounds = Bounds {
    kernels: [KernelBounds { cuts: uses(2, TO_ONE), size_asks: 1, ..maps(1, LEFT) }, IDLE],
    library_writes: uses(2, RIGHT),
    ..NOTHING
};
/// The same, once.
pub const OWN_CUT: Bounds = Bounds {
    kernels: [KernelBounds { cuts: uses(1, TO_ONE), size_asks: 1, ..maps(1, LEFT) }, IDLE],
    ..OWN_CUTS
};
const WRITER: KernelBounds =
    KernelBounds { reads: uses(1, PAGE), writes: uses(1, LEFT), evictions: 1, ..IDLE };
/// Two kernels write to one page, which each may have dropped unasked.
pub const TWO_WRITERS: Bounds =
    Bounds { kernels: [WRITER, KernelBounds { writes: uses(1, RIGHT), ..WRITER }], ..NOTHING };
const CUTTER: KernelBounds =
    KernelBounds { reads: uses(1, PAGE), cuts: uses(1, TO_ONE), size_asks: 0, ..maps(1, LEFT) };
/// Two kernels cut the file while their pages are dirty.
pub const TWO_CUTTERS: Bounds =
    Bounds { kernels: [CUTTER, KernelBounds { cuts: uses(1, TO_NOTHING), ..CUTTER }], ..NOTHING };
/// The server is killed while a kernel maps and the library writes.
pub const KILL: Bounds = Bounds {
    kernels: [KernelBounds { reads: uses(1, PAGE), ..maps(2, EITHER) }, IDLE],
    library_writes: uses(2, EITHER),
    kills: 1,
    ..NOTHING
};
/// The server is killed while a kernel writes through its pages.
pub const KILL_WRITES: Bounds = Bounds {
    kernels: [KernelBounds { reads: uses(1, PAGE), writes: uses(1, RIGHT), ..maps(1, LEFT) }, IDLE],
    library_writes: uses(2, RIGHT),
    kills: 1,
    ..NOTHING
};

/// The same, and the kernel reads the page again.
pub const KILL_WRITES_AGAIN: Bounds = Bounds {
    kernels: [KernelBounds { writes: uses(1, RIGHT), ..maps(1, LEFT) }, IDLE],
    ..KILL_WRITES
};

const STORES: KernelBounds = maps(2, EITHER);

/// What takes minutes.
pub const LONG: [(&str, Bounds); 14] = [
    (
        "two kernels map, the library writes",
        Bounds {
            kernels: [STORES, KernelBounds { stores: uses(1, EITHER), ..STORES }],
            library_writes: uses(1, EITHER),
            ..NOTHING
        },
    ),
    (
        "two kernels map and write",
        Bounds {
            kernels: [
                KernelBounds { writes: uses(1, RIGHT), ..maps(1, LEFT) },
                KernelBounds { reads: uses(1, PAGE), writes: uses(1, LEFT), ..maps(1, RIGHT) },
            ],
            ..NOTHING
        },
    ),
    (
        "a kernel maps and stores while it writes back, the library writes three times",
        Bounds {
            kernels: [KernelBounds { reads: uses(3, PAGE), evictions: 1, ..STORES }, IDLE],
            library_writes: uses(3, EITHER),
            stores_under_write_back: true,
            ..NOTHING
        },
    ),
    (
        "a kernel writes in every way",
        Bounds {
            kernels: [
                KernelBounds { directs: uses(1, RIGHT), writes: uses(1, RIGHT), ..maps(1, LEFT) },
                IDLE,
            ],
            library_writes: uses(2, RIGHT),
            ..NOTHING
        },
    ),
    (
        "a kernel writes whole pages",
        Bounds {
            kernels: [KernelBounds { whole_writes: uses(2, PAGE), ..maps(2, LEFT) }, IDLE],
            library_writes: uses(2, EITHER),
            ..NOTHING
        },
    ),
    (
        "the library cuts, and makes long again",
        Bounds { library_cuts: uses(2, TO_ONE_OR_ALL), ..CUT },
    ),
    (
        "a kernel and the library cut",
        Bounds {
            kernels: [KernelBounds { cuts: uses(1, TO_ONE), size_asks: 1, ..STORES }, IDLE],
            library_writes: uses(1, RIGHT),
            library_cuts: uses(1, TO_ONE_OR_ALL),
            ..NOTHING
        },
    ),
    (
        "a kernel writes, the library writes and cuts",
        Bounds { library_writes: uses(1, RIGHT), ..WRITES_AND_CUT },
    ),
    (
        "two kernels write to two pages",
        Bounds {
            kernels: [
                KernelBounds { reads: uses(2, 0b11), writes: uses(2, 0b101), ..WRITER },
                KernelBounds { reads: uses(2, 0b11), writes: uses(1, 0b1010), ..WRITER },
            ],
            ..NOTHING
        },
    ),
    (
        "two kernels map, the server is killed",
        Bounds {
            kernels: [
                KernelBounds { reads: uses(1, PAGE), ..maps(1, LEFT) },
                KernelBounds { reads: uses(1, PAGE), ..maps(1, RIGHT) },
            ],
            library_writes: uses(1, LEFT),
            kills: 1,
            ..NOTHING
        },
    ),
    ("a kernel cuts twice", OWN_CUTS),
    (
        "a kernel writes whole pages, the library writes and cuts",
        Bounds { library_writes: uses(1, RIGHT), ..WHOLE_AND_CUT },
    ),
    ("two servers are killed", Bounds { kills: 2, ..KILL }),
    ("the server is killed while a kernel writes, which reads again", KILL_WRITES_AGAIN),
];
