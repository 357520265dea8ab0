//! Rights that go while somebody uses them: what is asked for and what is done are one step.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nearside::{OpenFlags, Pool};

use crate::support::{ANN, BEN, Scratch};

const LASTS: Duration = Duration::from_millis(700);
/// Of several that asked at one moment, one comes first and the others too late.
const ATTACKERS: usize = 4;
/// Longest wait until the other side takes its turn, on a busy machine too.
const SOON: Duration = Duration::from_secs(120);

/// Ends the attack, also where a check failed.
struct Ends<'e>(&'e AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `attack` over and over on threads of its own while `act` runs over and over here, and
/// checkpoints hold changes up before they begin.
fn against(pool: &Pool, attack: impl Fn() + Sync, act: impl Fn()) {
    let ended = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let _ends = Ends(&ended);
        for _ in 0..ATTACKERS {
            threads.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    attack();
                }
            });
        }
        threads.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                pool.checkpoint().unwrap();
            }
        });
        let started = Instant::now();
        while started.elapsed() < LASTS {
            act();
        }
    });
}

#[test]
fn a_file_that_was_given_away_is_not_made_set_user_id_by_who_had_it() {
    let pool = Scratch::new();
    pool.file("/f", ANN, 0o755);
    let (ann, root) = (pool.of(ANN, &[]), pool.root());
    let attack = || drop(ann.set_permissions("/f", 0o4755));
    against(&pool, attack, || {
        root.set_owner("/f", Some(BEN.0), None).unwrap();
        for _ in 0..20 {
            assert_eq!(pool.mode("/f"), 0o755, "it is another one's");
        }
        root.set_owner("/f", Some(ANN.0), None).unwrap();
    });
}

#[test]
fn a_name_in_a_sticky_directory_is_removed_only_while_it_is_the_caller_s_file() {
    let pool = Scratch::new();
    pool.dir("/tmp", (0, 0), 0o1777);
    pool.dir("/ann", ANN, 0o755);
    pool.file("/ann/file", ANN, 0o644);
    let (ann, ben) = (pool.of(ANN, &[]), pool.of(BEN, &[]));
    let attack = || drop(ann.remove_file("/tmp/x").or_else(|_| ann.rename("/tmp/x", "/tmp/y")));
    against(&pool, attack, || {
        ann.hard_link("/ann/file", "/tmp/x").unwrap();
        let new = OpenFlags::new().write(true).create_new(true);
        // there is room as soon as ann has removed hers
        let since = Instant::now();
        while ben.open_file("/tmp/x", &new).is_err() {
            assert!(since.elapsed() < SOON, "nobody removed it");
        }
        for _ in 0..200 {
            assert!(ben.exists("/tmp/x").unwrap(), "ann took ben's file");
        }
        ben.remove_file("/tmp/x").unwrap();
    });
}
