//! Regions whose pages a service keeps: one that is played here.

use super::{MIB, pattern};
use region::{
    Bytes, Error, Faults, Isolation, PAGE_BYTES, Region, Regions, Result, Seen, ServedFile,
    Service, Settings, Shows,
};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::thread::sleep;
use std::time::Duration;

/// A service of one file.
#[derive(Debug, Default)]
struct Played {
    state: Mutex<State>,
    returns: Condvar,
}

#[derive(Debug, Default)]
struct State {
    content: Vec<u8>,
    changes: u64,
    /// Which service it is.
    number: u64,
    /// There is none now: who asks waits.
    is_away: bool,
    is_broken: bool,
    copies: HashMap<u64, (File, Weak<dyn Shows>)>,
    /// Reads of one moment, places.
    reads: usize,
}

fn memory(bytes: usize) -> File {
    // SAFETY: the name is a string that ends; the descriptor is new, and nobody else's.
    let file = unsafe {
        let made = libc::memfd_create(c"played".as_ptr(), libc::MFD_CLOEXEC);
        assert!(made >= 0);
        File::from_raw_fd(made)
    };
    file.set_len(bytes as u64).unwrap();
    file
}

fn given(file: &File) -> OwnedFd {
    file.try_clone().unwrap().into()
}

impl Played {
    fn new(content: Vec<u8>) -> Arc<Played> {
        let state = State { content, number: 1, ..State::default() };
        Arc::new(Played { state: Mutex::new(state), returns: Condvar::new() })
    }

    fn asked(&self) -> MutexGuard<'_, State> {
        let state = self.state.lock().unwrap();
        self.returns.wait_while(state, |state| state.is_away).unwrap()
    }

    /// It dies: nothing is shown, and who asks waits.
    fn die(&self) {
        let mut state = self.state.lock().unwrap();
        state.is_away = true;
        let shows: Vec<_> = state.copies.values().map(|(_, shows)| shows.clone()).collect();
        drop(state);
        shows.iter().filter_map(Weak::upgrade).for_each(|shows| shows.show(None));
    }

    /// The next one is there, after `change` by somebody.
    fn come_back(&self, change: impl FnOnce(&mut [u8])) {
        let mut state = self.state.lock().unwrap();
        change(&mut state.content);
        let bytes = state.content.len();
        let mut all = Vec::new();
        for (file, shows) in state.copies.values_mut() {
            *file = memory(bytes);
            all.push((given(file), shows.clone()));
        }
        // counted anew
        (state.number, state.changes) = (state.number + 1, 0);
        drop(state);
        for (file, shows) in all {
            shows.upgrade().inspect(|shows| shows.show(Some(file)));
        }
        self.state.lock().unwrap().is_away = false;
        self.returns.notify_all();
    }
}

impl Service for Played {
    fn map(
        &self,
        _file: &ServedFile,
        (_, bytes): (u64, u64),
        make: &mut dyn FnMut(u64, OwnedFd) -> Result<Weak<dyn Shows>>,
    ) -> Result<()> {
        let mut state = self.asked();
        let (number, file) = (state.copies.len() as u64 + 1, memory(state.content.len()));
        assert!(bytes as usize <= state.content.len());
        let shows = make(number, given(&file))?;
        state.copies.insert(number, (file, shows));
        Ok(())
    }

    fn unmap(&self, copy: u64) {
        assert!(self.asked().copies.remove(&copy).is_some(), "once");
    }

    fn fill(&self, copy: u64, page: u64, pages: usize) -> Result<()> {
        let state = self.asked();
        let (file, shows) = state.copies.get(&copy).ok_or(Error::Outside)?;
        shows.upgrade().inspect(|shows| shows.expect(page, pages as u64));
        if state.is_broken {
            return Err(Error::File(fs::Error::Interrupted));
        }
        let all = state.content.chunks(PAGE_BYTES).enumerate();
        for (page, bytes) in all.skip(page as usize).take(pages) {
            file.write_all_at(bytes, (page * PAGE_BYTES) as u64).unwrap();
        }
        Ok(())
    }

    fn read(&self, _file: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let state = self.asked();
        let from = (offset as usize).min(state.content.len());
        let len = buffer.len().min(state.content.len() - from);
        buffer[..len].copy_from_slice(&state.content[from..from + len]);
        Ok(len)
    }

    fn read_together(
        &self,
        places: &[(u64, u64, usize)],
        files: &[u64],
        buffer: &mut [u8],
    ) -> Result<Seen> {
        let mut state = self.asked();
        state.reads += places.len();
        let mut rest = buffer;
        for (_, offset, len) in places {
            let (part, others) = rest.split_at_mut(*len);
            part.copy_from_slice(&state.content[*offset as usize..][..*len]);
            rest = others;
        }
        let counts = vec![state.changes; files.len()];
        Ok(Seen { service: state.number, before: counts.clone(), after: counts })
    }

    fn commit(&self, writes: &[Bytes<'_>], expected: &[Bytes<'_>]) -> Result<()> {
        let mut state = self.asked();
        let is_there = |it: &Bytes<'_>| state.content[it.offset as usize..].starts_with(it.data);
        if !expected.iter().all(is_there) {
            return Err(Error::File(fs::Error::Conflict));
        }
        for Bytes { offset, data, .. } in writes {
            state.content[*offset as usize..][..data.len()].copy_from_slice(data);
            state.copies.values().for_each(|(file, _)| {
                // where nothing is there, more of the page is than the bytes: as a service that
                // knows no better, this one brings it whole
                let (first, end) =
                    (*offset as usize / PAGE_BYTES, (*offset as usize + data.len()) / PAGE_BYTES);
                let bytes = first * PAGE_BYTES..((end + 1) * PAGE_BYTES).min(state.content.len());
                file.write_all_at(&state.content[bytes.clone()], bytes.start as u64).unwrap();
            });
        }
        state.changes += 1;
        Ok(())
    }
}

const FILE: u64 = 7;

/// Regions of a played service; none, where this process gets no userfaultfd.
fn regions(played: &Arc<Played>) -> Option<Regions> {
    let service: Arc<dyn Service> = played.clone();
    match Regions::served(&service, &Settings::default()) {
        Ok(regions) => Some(regions),
        Err(error) => {
            assert!(matches!(error, Error::NoUserfault), "{error}");
            println!("skipped: {error}");
            None
        }
    }
}

fn mapped(regions: &Regions, bytes: u64) -> Region {
    let file = ServedFile { number: FILE, ino: FILE, open: Arc::new(()) };
    Region::map_served(regions, &file, 0, bytes, true).unwrap()
}

fn put(regions: &Regions, region: &Region, at: usize, value: u64) {
    let mut tx = regions.begin().unwrap();
    tx.put(region, at, &value).unwrap();
    tx.commit().unwrap();
}

#[test]
fn pages_are_asked_for_and_what_is_committed_is_loaded() {
    let content = pattern(3, MIB as usize);
    let played = Played::new(content.clone());
    let Some(regions) = regions(&played) else { return };
    let (region, other) = (mapped(&regions, MIB), mapped(&regions, 10_000));
    let mut seen = vec![0; MIB as usize];
    region.load(0, &mut seen).unwrap();
    assert!(seen == content);
    assert_eq!(other.get::<u64>(9992).unwrap().to_ne_bytes(), content[9992..10_000]);
    put(&regions, &region, 9992, 5);
    assert_eq!((region.get(9992).unwrap(), other.get(9992).unwrap()), (5u64, 5u64));
    let info = regions.info();
    assert_eq!((info.regions, info.resident_bytes), (2, 0), "they are the service's");
    assert!(info.brought_bytes >= MIB && info.waits > 0, "{info:?}");
    // the last page of it goes on, but the region does not
    assert!(matches!(other.load(9993, &mut [0; 8]), Err(Error::Outside)));
    drop(region);
    assert_eq!((regions.info().regions, played.state.lock().unwrap().copies.len()), (1, 1));
}

/// Words go up only, from service to service; and who loads while there is none waits.
#[test]
fn loads_wait_for_the_next_service_and_never_go_back() {
    const PAGES: usize = 16;
    let played = Played::new(vec![0; PAGES * PAGE_BYTES]);
    let Some(regions) = &regions(&played) else { return };
    let region = &mapped(regions, (PAGES * PAGE_BYTES) as u64);
    // Odd while there is no service.
    let (is_over, lives) = (&AtomicBool::new(false), &AtomicU64::new(0));
    std::thread::scope(|scope| {
        for reader in 0..3 {
            scope.spawn(move || {
                let (mut seen, mut page) = ([0; PAGES], reader);
                while !is_over.load(Ordering::Relaxed) {
                    page = (page + 7) % PAGES;
                    let begun = lives.load(Ordering::SeqCst);
                    let now = region.get::<u64>(page * PAGE_BYTES + 8).unwrap();
                    let is_within = begun % 2 == 1 && lives.load(Ordering::SeqCst) == begun;
                    assert!(!is_within, "no load succeeds while the service is down");
                    assert!(now >= seen[page], "{now} after {}", seen[page]);
                    seen[page] = now;
                }
            });
        }
        for round in 1..=100u64 {
            put(regions, region, round as usize % PAGES * PAGE_BYTES + 8, 2 * round);
            played.die();
            lives.fetch_add(1, Ordering::SeqCst);
            sleep(Duration::from_millis(if round % 10 == 0 { 20 } else { 0 }));
            lives.fetch_add(1, Ordering::SeqCst);
            // another one changes all of them
            played.come_back(|content| {
                for page in content.chunks_mut(PAGE_BYTES) {
                    page[8..16].copy_from_slice(&(2 * round + 1).to_ne_bytes());
                }
            });
            let at = round as usize * 5 % PAGES * PAGE_BYTES + 8;
            assert_eq!(region.get::<u64>(at).unwrap(), 2 * round + 1, "round {round}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_region_that_goes_while_there_is_no_service_is_gone_when_there_is() {
    let played = Played::new(vec![1; MIB as usize]);
    let Some(regions) = regions(&played) else { return };
    for _ in 0..20 {
        let region = mapped(&regions, MIB);
        region.load(0, &mut [0; 100]).unwrap();
        played.die();
        std::thread::scope(|scope| {
            let drops = scope.spawn(move || drop(region));
            sleep(Duration::from_millis(2));
            played.come_back(|_| ());
            drops.join().unwrap();
        });
        assert!(played.state.lock().unwrap().copies.is_empty());
        assert_eq!(regions.info().regions, 0);
    }
}

/// All reads are of one moment: where the file may have changed, all are made again.
#[test]
fn reads_are_made_again_only_where_something_changed() {
    let played = Played::new(pattern(1, 10 * PAGE_BYTES));
    let Some(regions) = regions(&played) else { return };
    let region = mapped(&regions, 10 * PAGE_BYTES as u64);
    let reads = || played.state.lock().unwrap().reads;
    for isolation in [Isolation::Snapshot, Isolation::Serialisable] {
        let before = reads();
        let mut tx = regions.begin_with(isolation).unwrap();
        (0..10).for_each(|page| _ = tx.get::<u64>(&region, page * PAGE_BYTES).unwrap());
        assert_eq!(reads() - before, 10);
        // elsewhere
        put(&regions, &region, 100, reads() as u64);
        tx.get::<u64>(&region, 200).unwrap();
        assert_eq!(reads() - before, 10 + 1 + 11);
        tx.get::<u64>(&region, 300).unwrap();
        assert_eq!(reads() - before, 10 + 1 + 11 + 1);
        // the numbers of another service are not those of this one
        played.die();
        played.come_back(|_| ());
        put(&regions, &region, 100, reads() as u64);
        tx.get::<u64>(&region, 400).unwrap();
        assert_eq!(reads() - before, 10 + 1 + 11 + 1 + 1 + 13);
        put(&regions, &region, 0, reads() as u64);
        assert!(tx.get::<u64>(&region, 500).unwrap_err().is_conflict());
        assert!(tx.commit().unwrap_err().is_conflict(), "it cannot any more");
    }
}

/// What a process commits by itself it stores into its copy: where pages are, and nowhere else.
#[test]
fn stores_come_into_pages_that_are_there_and_bring_none() {
    let played = Played::new(vec![1; 8 * PAGE_BYTES]);
    let Some(regions) = regions(&played) else { return };
    let region = mapped(&regions, 8 * PAGE_BYTES as u64);
    let (file, shows) = {
        let state = played.state.lock().unwrap();
        let (file, shows) = &state.copies[&1];
        (file.try_clone().unwrap(), shows.upgrade().unwrap())
    };
    let there = || file.metadata().unwrap().blocks() * 512 / PAGE_BYTES as u64;
    assert!(shows.can_store());
    // of no page is it known that it is there, or is coming
    shows.store(0, &[7; 3 * PAGE_BYTES]);
    assert_eq!(there(), 0);
    // not in order, which would bring more
    for page in [1, 5, 0] {
        assert_eq!(region.get::<u8>(page * PAGE_BYTES).unwrap(), 1);
    }
    // over the end of a page, and from one that is there into one that is not
    shows.store(PAGE_BYTES as u64 - 4, &[2; 8]);
    shows.store(2 * PAGE_BYTES as u64 - 4, &[3; 8]);
    let mut seen = [0; 8];
    region.load(PAGE_BYTES - 4, &mut seen).unwrap();
    assert_eq!(seen, [2; 8]);
    region.load(2 * PAGE_BYTES - 4, &mut seen[..4]).unwrap();
    assert_eq!((&seen[..4], there()), (&[3; 4][..], 3));
    // the service takes pages away, as it may at any moment
    for round in 0..20 {
        punch(&file, 0, 5 * PAGE_BYTES);
        punch(&file, 6 * PAGE_BYTES, 2 * PAGE_BYTES);
        assert_eq!(there(), 1);
        // twice: it is known behind the first one
        for value in [4, 5] {
            shows.store(PAGE_BYTES as u64 - 100, &[value; 200]);
            shows.store(5 * PAGE_BYTES as u64, &[round + value; 8]);
        }
        assert_eq!(there(), 1, "what was late came nowhere");
        assert_eq!(region.get::<[u8; 8]>(5 * PAGE_BYTES).unwrap(), [round + 5; 8]);
        for page in [1, 0] {
            assert_eq!(region.get::<u8>(page * PAGE_BYTES).unwrap(), 1, "as it was brought");
        }
        shows.store(PAGE_BYTES as u64 - 100, &[6; 200]);
        assert_eq!(region.get::<u8>(PAGE_BYTES).unwrap(), 6);
    }
    // other memory is stored to in the place of the first one
    played.die();
    shows.store(0, &[9; 16]);
    played.come_back(|_| ());
    assert_eq!(region.get::<u8>(0).unwrap(), 1);
    shows.store(0, &[8; 16]);
    assert_eq!(region.get::<[u8; 16]>(0).unwrap(), [8; 16]);
    let mut old = [0; 8];
    file.read_exact_at(&mut old, 0).unwrap();
    assert_eq!(old, [1; 8], "as it was");
}

fn punch(file: &File, at: usize, bytes: usize) {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: the descriptor is open.
    let punched = unsafe { libc::fallocate(file.as_raw_fd(), mode, at as i64, bytes as i64) };
    assert_eq!(punched, 0);
}

#[test]
fn what_cannot_be_is_refused() {
    let played = Played::new(vec![0; 2 * PAGE_BYTES]);
    let service: Arc<dyn Service> = played.clone();
    let by_signals = Settings { faults: Some(Faults::Signals), ..Settings::default() };
    let error = Regions::served(&service, &by_signals).unwrap_err();
    assert_eq!((matches!(error, Error::NoUserfault), error.errno()), (true, libc::EOPNOTSUPP));
    let Some(regions) = regions(&played) else { return };
    let file = ServedFile { number: FILE, ino: FILE, open: Arc::new(()) };
    let map = |offset, bytes| Region::map_served(&regions, &file, offset, bytes, true).map(drop);
    assert!(matches!(map(0, 0), Err(Error::Length)));
    assert!(matches!(map(1, 4096), Err(Error::Alignment)));
    assert!(matches!(map(4096, fs::FILE_BYTES_MAX), Err(Error::Length)));
    assert!(played.state.lock().unwrap().copies.is_empty(), "nobody was asked");
    let reads = Region::map_served(&regions, &file, 0, 4096, false).unwrap();
    let mut tx = regions.begin().unwrap();
    assert!(matches!(tx.put(&reads, 0, &1u64), Err(Error::ReadOnly)));
    // a read has an answer where a load has none
    played.state.lock().unwrap().is_broken = true;
    assert_eq!(tx.get::<u64>(&reads, 0).unwrap(), 0);
}
