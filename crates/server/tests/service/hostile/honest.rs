//! Honest work at any door, which compares all that it sees with what it did.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nearside::{File, Isolation, OpenFlags, Pool, Region};

use crate::regions::PAGE;
use crate::strangers::Random;

/// What all have mapped and some write, without a word to each other: the first blocks are honest
/// processes', so many for each; others store behind them, and would like to before.
pub const SHARED: &str = "/shared";
pub const BLOCKS_OF_ONE: u64 = 16;
/// Honest processes, with the service's own.
pub const ALL: u64 = 4;
/// Who is the service's own, in its process.
pub const OWNER: u64 = 0;
/// Who is of another user.
pub const OTHERS: u64 = 3;
/// That user.
pub const USER: u32 = 2000;
/// Words that all honest processes count in, in one step.
pub const COUNTS: [&str; 2] = ["/count-a", "/count-b"];
pub const COUNT_AT: usize = 8;
/// Longest that a file of one's own gets.
const OWN_MAX: usize = 300_000;
/// Longest that a call may take on a busy machine. It is shorter than every time-out that a call
/// could run into: a client's answer takes 30 s at most, a lingering close 60 s.
const CALL_MAX: Duration = Duration::from_secs(25);
const OWN_BYTES: usize = (BLOCKS_OF_ONE * PAGE as u64) as usize;

type Done = Result<(), String>;

/// The file of process `number` alone.
pub fn own(number: u64) -> String {
    format!("/home-{number}/own")
}

/// An honest process.
pub struct Honest {
    pool: Arc<Pool>,
    number: u64,
    random: Random,
    file: File,
    content: Vec<u8>,
    shared: File,
    ours: Vec<u8>,
    region: Option<Region>,
    counts: [Region; 2],
    pub counted: u64,
    pub calls: u64,
    longest: Duration,
    step: &'static str,
}

/// What an honest process did and saw.
#[derive(Debug)]
pub struct Account {
    pub number: u64,
    pub calls: u64,
    pub counted: u64,
    pub longest_ms: u64,
    /// Checksums of its file, and of its part of what is shared.
    pub sums: [u32; 2],
}

/// Whether an honest process made enough calls for a round to show something.
pub fn made_enough_calls(calls: u64, counted: u64) -> bool {
    calls > 20 && counted > 0
}

impl Account {
    pub fn said(&self) -> String {
        let Account { number, calls, counted, longest_ms, sums: [own, part] } = self;
        format!("done {number} {calls} {counted} {longest_ms} {own} {part}")
    }

    pub fn heard(line: &str) -> Option<Account> {
        let words = line.strip_prefix("done ")?.split(' ');
        let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let [number, calls, counted, longest_ms, own, part] = numbers[..] else { return None };
        Some(Account { number, calls, counted, longest_ms, sums: [own as u32, part as u32] })
    }
}

/// A part of what is shared.
pub fn part(number: u64) -> std::ops::Range<usize> {
    let at = number as usize * OWN_BYTES;
    at..at + OWN_BYTES
}

impl Honest {
    pub fn new(pool: Arc<Pool>, number: u64, seed: u64) -> nearside::Result<Honest> {
        let flags = OpenFlags::new().read(true).write(true).create(true).mode(0o600);
        let file = pool.open_file(own(number), &flags)?;
        let shared = pool.open_file(SHARED, &flags)?;
        let map = |name| {
            let file = pool.open_file(name, &flags)?;
            pool.map(&file, 0, PAGE as u64)
        };
        let counts = [map(COUNTS[0])?, map(COUNTS[1])?];
        // nobody has a lease of what the service's own process has mapped
        let all = ALL * OWN_BYTES as u64;
        let region = (number != OWNER).then(|| pool.map(&shared, 0, all)).transpose()?;
        let mut ours = vec![0; OWN_BYTES];
        shared.read_at(&mut ours, part(number).start as u64)?;
        Ok(Honest {
            random: Random(seed),
            content: pool.read(own(number))?,
            pool,
            number,
            file,
            shared,
            ours,
            region,
            counts,
            counted: 0,
            calls: 0,
            longest: Duration::ZERO,
            step: "",
        })
    }

    /// Does one thing or another; says what is not as it should be.
    pub fn work(&mut self) -> Done {
        let since = Instant::now();
        let done = match self.random.below(20) {
            0..4 => self.write(),
            4 => self.change_length(),
            5..8 => self.read(),
            8..12 => self.write_shared(),
            12..15 => self.store_shared(),
            15..17 => self.count(),
            17..19 => self.look(),
            _ => self.names(),
        };
        self.calls += 1;
        self.longest = self.longest.max(since.elapsed());
        match done {
            Err(error) => Err(format!("{}: {error}", self.step)),
            Ok(Err(wrong)) => Err(format!("{}: {wrong}", self.step)),
            Ok(Ok(())) if since.elapsed() > CALL_MAX => {
                Err(format!("{}: it took {:?}", self.step, since.elapsed()))
            }
            Ok(Ok(())) => Ok(()),
        }
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let (len, first) = (1 + self.random.below(most), self.random.next());
        (0..len).map(|at| (first ^ at.wrapping_mul(at)) as u8).collect()
    }

    fn write(&mut self) -> nearside::Result<Done> {
        self.step = "writes its file";
        let most = [64, 4096, 40_000][self.random.below(3) as usize];
        let data = self.bytes(most);
        let at = self.random.below((OWN_MAX - data.len()) as u64) as usize;
        self.file.write_all_at(&data, at as u64)?;
        if self.content.len() < at + data.len() {
            self.content.resize(at + data.len(), 0);
        }
        self.content[at..at + data.len()].copy_from_slice(&data);
        Ok(Ok(()))
    }

    fn change_length(&mut self) -> nearside::Result<Done> {
        self.step = "cuts, appends to and punches its file";
        let len = self.random.below(OWN_MAX as u64 - 200) as usize;
        self.file.set_len(len as u64)?;
        self.content.resize(len, 0);
        let data = self.bytes(100);
        let at = self.file.append(&data)?;
        self.content.extend_from_slice(&data);
        let hole = self.random.below(len as u64 + 1) as usize;
        self.file.punch_hole(hole as u64, 10_000)?;
        let end = self.content.len().min(hole + 10_000);
        self.content[hole..end].fill(0);
        Ok(same(at == len as u64, || format!("appended at {at} of {len}")))
    }

    fn read(&mut self) -> nearside::Result<Done> {
        self.step = "reads its file";
        let at = self.random.below(self.content.len() as u64 + 1) as usize;
        let mut seen = vec![1; 1 + self.random.below(60_000) as usize];
        let read = self.file.read_at(&mut seen, at as u64)?;
        let expected = &self.content[at..self.content.len().min(at + seen.len())];
        Ok(differs(&seen[..read], expected, at))
    }

    /// Where in the process's part, and what.
    fn choose(&mut self) -> (usize, Vec<u8>) {
        let most = [16, 4096, 9000][self.random.below(3) as usize];
        let data = self.bytes(most);
        (self.random.below((OWN_BYTES - data.len()) as u64) as usize, data)
    }

    fn write_shared(&mut self) -> nearside::Result<Done> {
        self.step = "writes what is shared";
        let (at, data) = self.choose();
        self.shared.write_all_at(&data, (part(self.number).start + at) as u64)?;
        self.ours[at..at + data.len()].copy_from_slice(&data);
        self.see_shared()
    }

    fn store_shared(&mut self) -> nearside::Result<Done> {
        if self.region.is_none() {
            return self.write_shared();
        }
        self.step = "commits to what is shared";
        let (at, data) = self.choose();
        if let Some(region) = &self.region {
            let mut tx = self.pool.begin()?;
            tx.write(region, part(self.number).start + at, &data)?;
            tx.commit()?;
        }
        self.ours[at..at + data.len()].copy_from_slice(&data);
        self.see_shared()
    }

    /// Reads and loads what it wrote there.
    fn see_shared(&mut self) -> nearside::Result<Done> {
        let (at, start) =
            (self.random.below(OWN_BYTES as u64 - 1) as usize, part(self.number).start);
        let len = 1 + self.random.below((OWN_BYTES - at) as u64) as usize;
        let mut seen = vec![1; len];
        let expected = &self.ours[at..at + len];
        if self.random.below(2) == 0 {
            self.shared.read_exact_at(&mut seen, (start + at) as u64)?;
            return Ok(differs(&seen, expected, at));
        }
        let Some(region) = &self.region else { return Ok(Ok(())) };
        region.load(start + at, &mut seen)?;
        Ok(differs(&seen, expected, at).map_err(|wrong| format!("loaded {wrong}")))
    }

    fn count(&mut self) -> nearside::Result<Done> {
        self.step = "counts";
        let [a, b] = &self.counts;
        let (one, other) = self.pool.transact(Isolation::Serialisable, |tx| {
            let were: (u64, u64) = (tx.get(a, COUNT_AT)?, tx.get(b, COUNT_AT)?);
            tx.put(a, COUNT_AT, &(were.0 + 1))?;
            tx.put(b, COUNT_AT, &(were.0 + 1))?;
            Ok::<_, nearside::Error>(were)
        })?;
        self.counted += 1;
        let now: u64 = a.get(COUNT_AT)?;
        Ok(same(one == other && now > one, || format!("{one} and {other}, {now} is loaded")))
    }

    /// Sees both words as they were at one moment.
    fn look(&mut self) -> nearside::Result<Done> {
        self.step = "reads two files at one moment";
        let [a, b] = &self.counts;
        let before: u64 = a.get(COUNT_AT)?;
        let (one, other) = self.pool.transact(Isolation::Serialisable, |tx| {
            Ok::<(u64, u64), nearside::Error>((tx.get(a, COUNT_AT)?, tx.get(b, COUNT_AT)?))
        })?;
        let is_fine = one == other && one >= before && one >= self.counted;
        Ok(same(is_fine, || format!("{one} and {other}, {before} was loaded before")))
    }

    fn names(&mut self) -> nearside::Result<Done> {
        self.step = "makes, renames and removes";
        let [one, other] = ["one", "other"].map(|name| format!("/home-{}/{name}", self.number));
        self.pool.write(&one, "what it says")?;
        self.pool.rename(&one, &other)?;
        let is_fine = self.pool.read(&other)? == b"what it says";
        let is_gone = self.pool.read(&one).is_err();
        self.pool.remove_file(&other)?;
        Ok(same(is_fine && is_gone, || format!("{is_fine} {is_gone}")))
    }

    /// Looks at all once more; what it did.
    pub fn finish(mut self) -> Result<Account, String> {
        let failed = |error: nearside::Error| format!("at the end: {error}");
        let content = self.pool.read(own(self.number)).map_err(failed)?;
        differs(&content, &self.content, 0)
            .map_err(|wrong| format!("its file, at the end: {wrong}"))?;
        let (mut seen, start) = (vec![1; OWN_BYTES], part(self.number).start);
        self.shared.read_exact_at(&mut seen, start as u64).map_err(failed)?;
        differs(&seen, &self.ours, 0).map_err(|wrong| format!("its part, at the end: {wrong}"))?;
        if let Some(region) = &self.region {
            region.load(start, &mut seen).map_err(|error| failed(error.into()))?;
            differs(&seen, &self.ours, 0).map_err(|wrong| format!("loaded at the end: {wrong}"))?;
        }
        self.look().map_err(failed)??;
        Ok(Account {
            number: self.number,
            calls: self.calls,
            counted: self.counted,
            longest_ms: self.longest.as_millis() as u64,
            sums: [pmem::crc32c(0, &self.content), pmem::crc32c(0, &self.ours)],
        })
    }
}

fn same(is_so: bool, words: impl FnOnce() -> String) -> Done {
    if is_so { Ok(()) } else { Err(words()) }
}

/// Where what is seen is not what was written.
fn differs(seen: &[u8], expected: &[u8], at: usize) -> Done {
    let differs = seen.iter().zip(expected).position(|(seen, expected)| seen != expected);
    match differs {
        Some(place) => {
            let (seen, expected) = (seen[place], expected[place]);
            Err(format!("byte {}: {seen} in place of {expected}", at + place))
        }
        None => same(seen.len() == expected.len(), || {
            format!("{} bytes in place of {}, from {at} on", seen.len(), expected.len())
        }),
    }
}
