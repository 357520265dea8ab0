//! What a change costs the medium: one fence, or a sync that others share.

use fs::{Creation, FileSystem, Handle, Ino, NewNode, RenameMode, Write};
use pmem::recorder::{Event, EventKind, Recorder};
use pmem::{Domain, Mapping};
use pool::{Candidate, FormatOptions, OpenOptions, SliceSpec};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const MIB: usize = 1 << 20;
const BY: Creation = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };

/// Counts what orders stores, on any thread.
#[derive(Default)]
struct Count {
    fences: AtomicU64,
    syncs: AtomicU64,
    /// How long the medium takes for a sync.
    sync_takes: Duration,
}

impl Recorder for Count {
    fn event(&self, event: Event<'_>) {
        match event.kind {
            EventKind::Fence => self.fences.fetch_add(1, Ordering::Relaxed),
            EventKind::Sync => {
                std::thread::sleep(self.sync_takes);
                self.syncs.fetch_add(1, Ordering::Relaxed)
            }
            _ => 0,
        };
    }
}

/// A pool of two slices in memory that is used as in this domain, with nothing in the background.
fn opened(domain: Domain, count: &Arc<Count>) -> FileSystem {
    let options = FormatOptions {
        slices: vec![SliceSpec::default(); 2],
        slice_bytes: 32 * MIB as u64,
        virtual_nodes: Some(2),
        process: domain == Domain::Process,
        ..FormatOptions::default()
    };
    let mappings = [0, 1].map(|_| Mapping::memory(32 * MIB, domain).unwrap());
    let images: Vec<Vec<u8>> = {
        let made = Arc::new(Image::default());
        for (id, mapping) in mappings.iter().enumerate() {
            mapping.set_id(id as u32);
            mapping.set_recorder(Some(made.clone()));
        }
        fs::format_mappings(mappings.into(), &options).unwrap();
        std::mem::take(&mut *made.slices.lock().unwrap()).into()
    };
    let candidates = images.into_iter().map(|image| {
        let mapping = Mapping::memory_from(&image, domain).unwrap();
        mapping.set_recorder(Some(count.clone()));
        Candidate::from_mapping(Path::new("memory"), mapping, false).unwrap()
    });
    FileSystem::open_candidates(candidates.collect(), &OpenOptions::default(), false).unwrap()
}

/// What is stored while a pool is made.
#[derive(Default)]
struct Image {
    slices: std::sync::Mutex<[Vec<u8>; 2]>,
}

impl Recorder for Image {
    fn event(&self, event: Event<'_>) {
        if let EventKind::Store { offset, data } | EventKind::NtStore { offset, data } = event.kind
        {
            let slice = &mut self.slices.lock().unwrap()[event.mapping as usize];
            slice.resize(32 * MIB, 0);
            slice[offset as usize..offset as usize + data.len()].copy_from_slice(data);
        }
    }
}

fn make(fs: &FileSystem, name: &str) -> Arc<Handle> {
    let attr = fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, BY).unwrap();
    fs.open(attr.ino).unwrap()
}

#[test]
fn a_change_is_durable_with_one_fence() {
    for domain in [Domain::Process, Domain::CpuFlush, Domain::CpuCache] {
        let count = Arc::new(Count::default());
        let fs = &opened(domain, &count);
        let (one, two) = (&make(fs, "one"), &make(fs, "two"));
        let whole = vec![1; MIB];
        fs.write(one, 0, &whole).unwrap();
        fs.write(two, 0, &whole).unwrap();
        let put = |file, offset: usize, data| Write { file, offset: offset as u64, data };
        let changes: [(&str, &dyn Fn() -> fs::Result<()>); 12] = [
            ("a few bytes", &|| fs.write(one, 77, &[2; 10]).map(|_| ())),
            ("a part of a block", &|| fs.write(one, 5000, &[2; 2000]).map(|_| ())),
            ("a block", &|| fs.write(one, 8192, &[2; 4096]).map(|_| ())),
            ("a block and its neighbours", &|| fs.write(one, 12000, &[2; 9000]).map(|_| ())),
            ("many blocks", &|| fs.write(one, 16384, &whole[..300_000]).map(|_| ())),
            ("a hole", &|| fs.write(one, 9 << 30, &[2; 100]).map(|_| ())),
            ("an append", &|| fs.append(two, &[2; 5000]).map(|_| ())),
            ("a commit", &|| fs.commit(&[put(one, 300, &[3; 8])], &[])),
            ("a commit of many places", &|| {
                let writes: Vec<_> = (0..20)
                    .flat_map(|at| [put(one, at * 5000, &[4; 64]), put(two, at * 9000, &[4; 6000])])
                    .collect();
                fs.commit(&writes, &[])
            }),
            ("a name", &|| fs.create(Ino::ROOT, b"new", NewNode::File, BY).map(|_| ())),
            ("another name", &|| {
                let (from, to) = ((Ino::ROOT, &b"new"[..]), (Ino::ROOT, &b"newer"[..]));
                fs.rename(from, to, RenameMode::Replace).map(|_| ())
            }),
            ("a size", &|| {
                let shorter = fs::SetAttr { size: Some(10_000), ..fs::SetAttr::default() };
                fs.setattr(two.ino(), &shorter).map(|_| ())
            }),
        ];
        for (what, change) in changes {
            let before = count.fences.load(Ordering::Relaxed);
            change().unwrap();
            let fences = count.fences.load(Ordering::Relaxed) - before;
            assert_eq!(fences, 1, "{what} in the domain {domain:?}");
        }
        assert_eq!(count.syncs.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn commits_of_several_threads_share_syncs() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 50;
    let count = Arc::new(Count { sync_takes: Duration::from_millis(1), ..Count::default() });
    let fs = &opened(Domain::Sync, &count);
    let file = &make(fs, "file");
    fs.write(file, 0, &vec![1; MIB]).unwrap();
    fs.sync().unwrap();
    let (syncs, stored) = (fs.stats().syncs, count.syncs.load(Ordering::Relaxed));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    let (offset, data) = (thread * 8192, &round.to_ne_bytes()[..]);
                    fs.commit(&[Write { file, offset, data }], &[]).unwrap();
                    fs.sync().unwrap();
                }
            });
        }
    });
    let syncs = fs.stats().syncs - syncs;
    // how many are shared the machine decides; without sharing there is one for each
    assert!(syncs > 0 && syncs < THREADS * ROUNDS, "{syncs} syncs");
    // each of every slice
    assert!(count.syncs.load(Ordering::Relaxed) - stored >= syncs);
}
