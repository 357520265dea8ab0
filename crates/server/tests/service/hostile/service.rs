//! The service's process: it serves, and works itself, at the embedded door.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nearside::files::TakeOver;
use nearside::{OpenOptions, Pool};
use server::{ATTACHED_NAME, Door, Options, Service};

use super::honest::{self, ALL, COUNTS, Honest, OTHERS, OWNER, SHARED, USER};
use super::strange::STRANGE;
use crate::child;
use crate::served::{LONG_GRACE, SOON};

/// Blocks behind those of honest processes, in what is shared.
pub const STRANGE_BLOCKS: u64 = 64;

/// What there is before anybody comes.
fn prepare(pool: &Pool) -> nearside::Result<()> {
    let own = nix::unistd::geteuid();
    for number in 0..ALL {
        let user = if number == OTHERS && own.is_root() { USER } else { own.as_raw() };
        let home = format!("/home-{number}");
        pool.create_dir(&home)?;
        pool.set_permissions(&home, 0o700)?;
        pool.write(honest::own(number), "")?;
        for path in [&home, &honest::own(number)] {
            pool.set_owner(path, Some(user), Some(user))?;
        }
    }
    for name in COUNTS {
        pool.write(name, [0; 4096])?;
        pool.set_owner(name, Some(own.as_raw()), Some(USER))?;
        pool.set_permissions(name, 0o660)?;
    }
    let blocks = ALL * honest::BLOCKS_OF_ONE + STRANGE_BLOCKS;
    pool.write(SHARED, vec![0; (blocks * 4096) as usize])?;
    pool.set_permissions(SHARED, 0o666)?;
    pool.create_dir(STRANGE)?;
    pool.set_permissions(STRANGE, 0o777)
}

/// Serves until it is told to end. It does not come back.
pub fn serve(dir: &Path, seed: u64) -> ! {
    // a thread that panics is not to go unnoticed
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        usual(info);
        std::process::abort();
    }));
    let asked = TakeOver { keep_orphans: true, returning: true, ..TakeOver::default() };
    let pool = Arc::new(Pool::take_over(dir, &OpenOptions::default(), &asked).unwrap());
    prepare(&pool).unwrap();
    let attached = Some(dir.join(ATTACHED_NAME));
    let (lanes, grace, linger) = (Some(dir.to_owned()), LONG_GRACE, LONG_GRACE);
    let options = Options { attached, lanes, grace, linger, ..Options::default() };
    let door = Door::open(&dir.join(nearside::ATTACH_SOCKET), 0o666).unwrap();
    let service = Service::start(pool.clone(), door, &options).unwrap();
    // of the owner's door, with regions of its own
    let honest = Honest::new(pool.clone(), OWNER, seed).unwrap();
    child::say("serves");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let works = threads.spawn(|| work(honest, &is_over));
        while child::told() == "stand" {
            let (sessions, copied) = (service.sessions(), service.copied_bytes());
            let free = pool.statfs().blocks_free;
            child::say(&format!("stands {sessions} {copied} {free}"));
        }
        is_over.store(true, Ordering::Relaxed);
        child::say(&works.join().unwrap());
    });
    child::wait_to_be_told();
    drop(service);
    pool.close().unwrap();
    child::say("closed");
    std::process::exit(0)
}

/// Works until it is over, or something is wrong, and says which.
pub fn work(mut honest: Honest, is_over: &AtomicBool) -> String {
    let mut steps = 0u64;
    // On a busy machine it needs more time for enough calls.
    let since = Instant::now();
    let may_go_on = || since.elapsed() < SOON;
    let has_enough = |honest: &Honest| honest::made_enough_calls(honest.calls, honest.counted);
    while !is_over.load(Ordering::Relaxed) || (!has_enough(&honest) && may_go_on()) {
        if let Err(wrong) = honest.work() {
            return format!("wrong: {wrong}");
        }
        // others are to come to something, too
        steps += 1;
        if steps.is_multiple_of(16) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    match honest.finish() {
        Ok(account) => account.said(),
        Err(wrong) => format!("wrong: {wrong}"),
    }
}
