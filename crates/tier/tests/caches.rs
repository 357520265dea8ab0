//! How much memory the caches take, and on which node it is.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use pool::{
    BLOCK_BYTES, BlockAddr, Capacity, Device, FormatOptions, OpenOptions, Pool, Scatter, Transfer,
};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use tier::{CacheRoom, Tier};

const BLOCK: usize = BLOCK_BYTES as usize;
const MIB: u64 = 1 << 20;
/// Neighbouring blocks that one cache has.
const RANGE: u64 = 256;

/// One test at a time: they look at the memory of the process.
static ALONE: Mutex<()> = Mutex::new(());

/// A device of which each block holds its number, without having them.
#[derive(Debug)]
struct Numbers;

impl Device for Numbers {
    fn bytes(&self) -> u64 {
        1 << 40
    }

    fn transfer(&self, transfers: &mut [Transfer<'_>]) -> io::Result<()> {
        for transfer in transfers {
            let Transfer::Read(first, bytes) = transfer else { return Err(io::Error::other("")) };
            for (number, block) in (*first..).zip(bytes.chunks_exact_mut(BLOCK)) {
                block.as_chunks_mut().0.fill(number.to_le_bytes());
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn path(&self) -> String {
        "numbers".to_owned()
    }
}

/// A tier with a cache of so many bytes on each of these nodes.
struct Tried {
    tier: Tier,
    devices: Vec<Capacity>,
    _pool: Pool,
    _scratch: tempfile::TempDir,
}

fn tried(nodes: &[Option<u32>], cache_bytes: u64) -> Tried {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("pool");
    let capacity = vec![pool::SliceSpec { path: None, bytes: Some(MIB) }];
    let options = FormatOptions {
        slice_bytes: 16 * MIB,
        process: true,
        capacity,
        ..FormatOptions::default()
    };
    pool::format(&dir, &options, &mut |_, _| true).unwrap();
    let devices = tier::open_devices(&dir, false).unwrap();
    let (pool, _) = Pool::open(&dir, &OpenOptions { devices, ..OpenOptions::default() }).unwrap();
    let own = &pool.devices()[0];
    let devices =
        vec![Capacity { device: Arc::new(Numbers), uuid: own.uuid, space: own.space.clone() }];
    let room = |node: &Option<u32>| CacheRoom { bytes: cache_bytes, node: *node };
    let rooms: Vec<CacheRoom> = nodes.iter().map(room).collect();
    let tier = Tier::new(&rooms, pool.reclaim().clone());
    Tried { tier, devices, _pool: pool, _scratch: scratch }
}

impl Tried {
    /// Fetches neighbouring blocks, and finds in them what is there. They stay held.
    fn fetch(&self, first: u64, count: u64) {
        let addrs: Vec<_> =
            (first..first + count).map(|block| BlockAddr::on_device(0, block)).collect();
        self.tier.fetch(&self.devices, &addrs).unwrap();
        for addr in addrs {
            let page = self.tier.page(addr).expect("it is held");
            assert!(page.bytes().as_chunks().0.iter().all(|it| *it == addr.block().to_le_bytes()));
        }
    }
}

/// A device that is asked for pieces only.
#[derive(Debug, Default)]
struct Pieces {
    /// Runs of each call: the first block, and how many pieces of one block each.
    asked: Mutex<Vec<Vec<(u64, usize)>>>,
}

impl Device for Pieces {
    fn bytes(&self) -> u64 {
        1 << 40
    }

    fn transfer(&self, _: &mut [Transfer<'_>]) -> io::Result<()> {
        Err(io::Error::other("what was read was to be copied"))
    }

    fn scatter(&self, runs: &mut [Scatter<'_>]) -> io::Result<()> {
        let mut asked = Vec::new();
        for run in runs {
            asked.push((run.block, run.into.len()));
            for (block, piece) in (run.block..).zip(&mut run.into) {
                assert_eq!(piece.len(), BLOCK);
                piece.as_chunks_mut().0.fill(block.to_le_bytes());
            }
        }
        self.asked.lock().unwrap().push(asked);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn path(&self) -> String {
        "pieces".to_owned()
    }
}

/// Neighbours are one run of one call, and nothing lies between the device and the frames.
#[test]
fn blocks_are_read_straight_into_the_frames_of_the_cache() {
    let mut tried = tried(&[None], MIB);
    let device = Arc::new(Pieces::default());
    tried.devices[0].device = device.clone();
    tried.fetch(100, 1);
    tried.fetch(98, 20);
    let asked = std::mem::take(&mut *device.asked.lock().unwrap());
    assert_eq!(asked, [vec![(100, 1)], vec![(98, 2), (101, 17)]]);
}

/// Memory of this process that is no file's, bytes.
fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Four threads read four times as much as the cache has room for: one block, and neighbours.
fn read_more_than_fits(tried: &Tried, cache_bytes: u64) -> u64 {
    let each = cache_bytes / BLOCK_BYTES;
    let (most, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|thread| {
                scope.spawn(move || {
                    let (mut block, end) = (thread * each, (thread + 1) * each);
                    while block < end {
                        let count = if block % 3 == 0 { 1 } else { 40.min(end - block) };
                        tried.fetch(block, count);
                        tried.tier.let_go();
                        block += count;
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                most.fetch_max(anonymous_bytes(), Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    most.into_inner().max(anonymous_bytes())
}

#[test]
fn memory_stays_within_a_twentieth_of_the_setting() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let setting = 128 * MIB;
    for with_evictors in [false, true] {
        let tried = tried(&[None], setting);
        if with_evictors {
            tried.tier.start_evictors(|_| Vec::new()).unwrap();
        }
        let before = anonymous_bytes();
        let most = read_more_than_fits(&tried, setting) - before;
        let counts = tried.tier.counts();
        let percent = most * 100 / setting;
        println!("evictors {with_evictors}: at most {percent} % of the setting, {counts:?}");
        assert!(most <= setting + setting / 20, "{percent} %");
        assert!(most >= setting * 7 / 8, "{percent} %: it is not used");
        assert!(counts.cached_bytes <= setting && counts.cached_bytes >= setting * 7 / 8);
        tried.tier.evict_all();
        let after = anonymous_bytes().saturating_sub(before);
        assert!(after <= setting / 20, "{after} bytes when all is let go");
    }
}

/// What threads have fetched all together is more than there is room for: each of them finds what
/// is its own, and afterwards it is no more than that.
#[test]
fn what_threads_hold_is_counted_and_goes_with_them() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for with_evictors in [false, true] {
        let tried = tried(&[None], 4 * MIB);
        if with_evictors {
            tried.tier.start_evictors(|_| Vec::new()).unwrap();
        }
        let (tried, all_hold) = (&tried, &Barrier::new(5));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    tried.fetch(thread * 10_000, 512);
                    all_hold.wait();
                    all_hold.wait();
                    tried.fetch(thread * 10_000, 512);
                    tried.tier.let_go();
                });
            }
            all_hold.wait();
            assert_eq!(tried.tier.counts().cached_bytes, 8 * MIB);
            all_hold.wait();
        });
        let counts = tried.tier.counts();
        assert_eq!(counts.read_blocks, 2048, "none was read twice");
        assert!(counts.cached_bytes <= 4 * MIB, "{counts:?}");
    }
}

/// On which nodes the memory of these pages is; what is not there is negative.
fn nodes_of(pages: &[*const u8]) -> Vec<i32> {
    let mut nodes = vec![i32::MIN; pages.len()];
    let none = std::ptr::null::<i32>();
    // SAFETY: without nodes to go to, the kernel moves nothing and writes where each page is: the
    // list has room for them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0 as libc::c_long,
            pages.len(),
            pages.as_ptr(),
            none,
            nodes.as_mut_ptr(),
            0 as libc::c_long,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    nodes
}

/// The nodes of the machine that have memory, as the kernel numbers them.
fn nodes_with_memory(machine: &topology::Topology) -> Vec<u32> {
    let has_some = |node: &u32| machine.memory_bytes(*node).is_some_and(|bytes| bytes > 0);
    (0..machine.node_count()).filter(has_some).filter_map(|node| machine.kernel_id(node)).collect()
}

#[test]
fn pages_lie_on_the_node_of_their_cache_whoever_reads_them() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let machine = topology::Topology::system().unwrap();
    let nodes = nodes_with_memory(&machine);
    if nodes.len() < 2 {
        println!("skipped: this machine has one node");
        return;
    }
    let settings: Vec<Option<u32>> = nodes.iter().map(|node| Some(*node)).collect();
    let cpus = machine.all_cpus();
    for cpu in cpus {
        let before = topology::pin_current_thread(&[cpu]).unwrap();
        let tried = tried(&settings, 4 * MIB);
        tried.fetch(0, RANGE * nodes.len() as u64);
        for (slice, node) in nodes.iter().enumerate() {
            assert!(tried.tier.is_bound(slice), "node {node}");
            let first = slice as u64 * RANGE;
            let pages: Vec<_> = (first..first + RANGE)
                .map(|block| tried.tier.page(BlockAddr::on_device(0, block)).unwrap())
                .collect();
            let places: Vec<_> = pages.iter().map(|page| page.bytes().as_ptr()).collect();
            assert_eq!(nodes_of(&places), vec![*node as i32; RANGE as usize], "by CPU {cpu}");
            println!("read by CPU {cpu}: all pages of slice {slice} on node {node}");
        }
        tried.tier.let_go();
        topology::pin_current_thread(&before).unwrap();
    }
}

/// A page that came back since it was looked at often may hold other bytes than it held then.
#[test]
fn nothing_is_copied_to_a_slice_that_nobody_has_compared() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let tried = tried(&[None], MIB);
    let (far, near) = (BlockAddr::on_device(0, 7), BlockAddr::new(0, 3000));
    let promote = || {
        let mut written = None;
        let is_copied = tried.tier.promote(far, near, |bytes| written = Some(bytes.to_vec()));
        is_copied.then_some(written).flatten()
    };
    assert_eq!(promote(), None, "nothing is there");
    tried.fetch(7, 1);
    assert_eq!(promote(), None);
    tried.tier.page(far).unwrap().set_compared();
    assert_eq!(promote(), Some(tried.tier.page(far).unwrap().bytes().to_vec()));
    assert_eq!(tried.tier.near(far), Some(near));
    // its place is given away: the copy goes, and the page that comes next is another one
    tried.tier.let_go();
    tried.tier.forget(far);
    assert_eq!(tried.tier.near(far), None);
    tried.fetch(7, 1);
    assert_eq!(promote(), None);
    tried.tier.let_go();
}
