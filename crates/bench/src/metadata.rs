//! Where the time of many threads goes that make names: one thread's locks are watched, and 224 are
//! played with them (`lock_model`).

use crate::error::Result;
use crate::lab::{Lab, OWNER, Shape};
use crate::lock_model::{Lock, Step, play};
use crate::options::Options;
use fs::{FileSystem, Ino, NewNode};
use locks::{Held, Mutex};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Threads that are played.
const THREADS: [usize; 6] = [1, 2, 8, 28, 112, 224];
/// Calls that are watched, of each of two threads.
const CALLS: u64 = 2000;
/// Calls before.
const WARM_UP: u64 = 20_000;
/// Calls of each thread that is played.
const PLAYED: usize = 300;
/// Lines of the source that are named.
const NAMED: usize = 4;

/// A call that was watched.
struct Call {
    began: Instant,
    ended: Instant,
    held: Vec<Held>,
}

/// What the rows say, as text.
///
/// # Errors
/// What the engine says.
pub fn metadata(options: &Options) -> Result<String> {
    let mut text = String::new();
    for (name, apart, unlinks) in [
        ("create, in directories of their own", true, false),
        ("create, in one directory", false, false),
        ("create and unlink, in directories of their own", true, true),
    ] {
        text.push_str(&case(options, name, apart, unlinks)?);
    }
    Ok(text)
}

fn case(options: &Options, name: &str, apart: bool, unlinks: bool) -> Result<String> {
    let lab = Lab::new(options.dir(), Shape::usual(options))?;
    let directory = |name: &str| {
        Ok::<_, crate::Error>(lab.fs.create(
            Ino::ROOT,
            name.as_bytes(),
            NewNode::Directory,
            OWNER,
        )?)
    };
    let first = directory("first")?.ino;
    let second = if apart { directory("second")?.ino } else { first };
    let watched = watch_both(&lab.fs, [first, second], unlinks)?;
    let (scripts, sites) = scripts(&watched);
    let mut text = format!("{name}:\n");
    let alone = play(&scripts, 1, PLAYED).rate;
    for threads in THREADS {
        let outcome = play(&scripts, threads, PLAYED);
        let mut waits: Vec<(f64, &str)> =
            outcome.waits.iter().map(|(site, part)| (*part, sites[*site].as_str())).collect();
        waits.sort_by(|a, b| b.0.total_cmp(&a.0));
        let waited: f64 = waits.iter().map(|wait| wait.0).sum();
        text.push_str(&format!(
            "  {threads:>4} threads: {:>9.0} calls/s, {:>6.1} times one; waiting {:>5.1} %",
            outcome.rate,
            outcome.rate / alone,
            waited * 100.0
        ));
        let named = waits.iter().filter(|wait| wait.0 >= 0.001).take(NAMED);
        let named: Vec<String> =
            named.map(|(part, site)| format!("{site} {:.1} %", part * 100.0)).collect();
        text.push_str(&format!(
            "{}{}\n",
            if named.is_empty() { "" } else { ": " },
            named.join(", ")
        ));
    }
    Ok(text)
}

/// Two threads make names, each on a CPU of its own, one after the other: nobody waits. Both live
/// until the end, so that neither gets memory that was the other's.
fn watch_both(fs: &FileSystem, dirs: [Ino; 2], unlinks: bool) -> Result<[Vec<Call>; 2]> {
    let cpus = topology::allowed_cpus()?;
    let (turn, over) = (Mutex::new(()), Barrier::new(2));
    std::thread::scope(|scope| {
        let watch = |index: usize| {
            let (turn, over, cpus) = (&turn, &over, &cpus);
            move || {
                let _ = topology::pin_current_thread(&[cpus[index % cpus.len()]]);
                let calls = {
                    let _turn = turn.lock();
                    watch(fs, dirs[index], ["a", "b"][index], unlinks)
                };
                over.wait();
                calls
            }
        };
        let threads = [scope.spawn(watch(0)), scope.spawn(watch(1))];
        let [first, second] = threads.map(|it| it.join().map_err(|_| crate::Error::Panicked)?);
        Ok([first?, second?])
    })
}

fn watch(fs: &FileSystem, dir: Ino, prefix: &str, unlinks: bool) -> Result<Vec<Call>> {
    locks::begin();
    let mut calls = Vec::new();
    for number in 0..WARM_UP + CALLS {
        let name = format!("{prefix}{number}");
        drop(locks::take());
        let began = Instant::now();
        fs.create(dir, name.as_bytes(), NewNode::File, OWNER)?;
        if unlinks {
            fs.unlink(dir, name.as_bytes())?;
        }
        let ended = Instant::now();
        if number >= WARM_UP {
            calls.push(Call { began, ended, held: locks::take() });
        }
    }
    Ok(calls)
}

/// What a look at the clock takes, ns.
fn look_ns() -> f64 {
    let began = Instant::now();
    let looks = 10_000;
    for _ in 0..looks {
        std::hint::black_box(Instant::now());
    }
    began.elapsed().as_nanos() as f64 / f64::from(looks)
}

/// The calls as steps, and what the sites are. A lock that both threads took is everybody's.
fn scripts(watched: &[Vec<Call>; 2]) -> (Vec<Vec<Step>>, Vec<String>) {
    let addresses = |calls: &[Call]| -> HashSet<usize> {
        calls.iter().flat_map(|call| call.held.iter().map(|held| held.address)).collect()
    };
    let [first, second] = [addresses(&watched[0]), addresses(&watched[1])];
    let (mut sites, mut names) = (HashMap::new(), Vec::new());
    let look = look_ns();
    let mut scripts = Vec::new();
    for call in watched.iter().flatten() {
        // by time; what is given back at the same moment comes first
        let mut events: BTreeMap<(Instant, bool, usize), Step> = BTreeMap::new();
        for (index, held) in call.held.iter().enumerate() {
            let site = *sites.entry((held.site.file(), held.site.line())).or_insert_with(|| {
                let file = held.site.file().trim_start_matches("crates/");
                names.push(format!("{}:{}", file.replace("/src", ""), held.site.line()));
                names.len() - 1
            });
            let shared = first.contains(&held.address) && second.contains(&held.address);
            let lock = Lock { id: held.address, own: !shared, exclusive: held.exclusive, site };
            events.insert((held.from, true, index), Step::Take(lock));
            // not before it is had, however short that was
            let to = held.to.max(held.from + Duration::from_nanos(1));
            events.insert((to, false, index), Step::Give(lock));
        }
        let mut script = Vec::new();
        let mut last = call.began;
        for ((at, ..), step) in events {
            let passed = at.duration_since(last).as_nanos() as f64 - look;
            script.extend([Step::Work(passed.max(0.0)), step]);
            last = at;
        }
        let passed = call.ended.duration_since(last).as_nanos() as f64 - look;
        script.push(Step::Work(passed.max(0.0)));
        scripts.push(script);
    }
    (scripts, names)
}
