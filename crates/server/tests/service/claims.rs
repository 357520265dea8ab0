//! Processes that say that they are others, or that what they did was something else.

use std::time::Duration;

use nearside::Pool;
use wire::{Flags, Identity, Proof, Reply, Request, Welcome};

use crate::child;
use crate::hand::{ByHand, said_to};
use crate::mortal::{Mortal, serve_if_told};
use crate::served::{Served, eventually};

fn errno(reply: Reply) -> i32 {
    let Reply::Failed(failure) = reply else { panic!("{reply:?}") };
    failure.error().errno()
}

const ALL: Flags = Flags {
    read: true,
    write: true,
    append: false,
    truncate: false,
    create: true,
    create_new: false,
    mode: 0o600,
};

#[test]
fn nobody_is_taken_for_another_process() {
    const NAME: &str = "claims::nobody_is_taken_for_another_process";
    serve_if_told();
    let mut mortal = Mortal::new(NAME);
    let victim = ByHand::attach(&mortal.socket(), None);
    let other = ByHand::attach(&mortal.socket(), None);
    // while it is attached nobody is it, not even with its secret
    let (_, welcome, _) = said_to(&mortal.socket(), Some(victim.identity.clone()));
    assert!(matches!(welcome, Welcome::Refused(_)), "{welcome:?}");
    mortal.kill();
    mortal.start(None);
    let his = victim.identity.clone();
    let claims = [
        Identity { client: his.client.clone(), ..other.identity.clone() },
        Identity { proof: other.identity.proof.clone(), ..his.clone() },
        Identity { proof: "0".repeat(32), ..his.clone() },
        Identity { proof: String::new(), ..his.clone() },
        Identity { service: his.service + 1, ..his.clone() },
        Identity { client: "x".repeat(32), ..his.clone() },
        Identity { client: "é".repeat(10_000), ..his.clone() },
    ];
    for claim in claims {
        let (_, welcome, _) = said_to(&mortal.socket(), Some(claim));
        assert!(matches!(welcome, Welcome::Stranger(_)), "{welcome:?}");
    }
    // another user with the right words
    if nix::unistd::geteuid().is_root() {
        let (_, welcome, _) = as_user(1000, || said_to(&mortal.socket(), Some(his.clone())));
        assert!(matches!(welcome, Welcome::Stranger(_)), "{welcome:?}");
    }
    assert!(ByHand::attach(&mortal.socket(), Some(his)).knows);
    drop((victim, other));
    mortal.finish();
}

/// Runs in a thread of another user: the kernel tells the user of the thread that connects.
fn as_user<T: Send>(user: u32, run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|threads| {
        let thread = threads.spawn(move || {
            rustix::thread::set_thread_uid(rustix::thread::Uid::from_raw(user)).unwrap();
            run()
        });
        thread.join().unwrap()
    })
}

#[test]
fn calls_of_before_are_not_made_again_and_answers_give_no_rights() {
    const NAME: &str = "claims::calls_of_before_are_not_made_again_and_answers_give_no_rights";
    serve_if_told();
    let mut mortal = Mortal::new(NAME);
    let hand = ByHand::attach(&mortal.socket(), None);
    let Reply::Opened(file, attr, proof) = hand.ask(1, &Request::Open(b"/f", ALL), &[]) else {
        panic!("it opens")
    };
    assert_eq!(hand.ask(2, &Request::Append(file), b"first"), Reply::Number(0));
    assert_eq!(hand.ask(3, &Request::Append(file), b"other"), Reply::Number(5));
    // sent again at once, or long after, it is not made again
    assert_eq!(hand.ask(3, &Request::Append(file), b"other"), Reply::Number(5));
    assert_eq!(errno(hand.ask(2, &Request::Append(file), b"first")), libc::EINVAL);
    assert_eq!(errno(hand.ask(0, &Request::Append(file), b"zeroth")), libc::EINVAL);
    assert_eq!(errno(hand.ask(u64::MAX, &Request::Append(file), b"huge")), libc::EINVAL);
    mortal.kill();
    mortal.start(None);
    let hand = ByHand::attach(&mortal.socket(), Some(hand.identity));
    let restore = |number, ino, flags, proof| Request::Restore {
        number,
        ino,
        flags: Some(flags),
        proof,
        locks: Vec::new(),
    };
    let forged = [
        restore(file, attr.ino.0 + 1, ALL, proof),
        restore(file + 1, attr.ino.0, ALL, proof),
        restore(file, attr.ino.0, Flags { append: true, ..ALL }, proof),
        restore(file, attr.ino.0, ALL, Proof([0; 16])),
    ];
    for request in forged {
        assert_eq!(errno(hand.ask(0, &request, &[])), libc::EPERM, "{request:?}");
    }
    let right = restore(file, attr.ino.0, ALL, proof);
    assert_eq!(hand.ask(0, &right, &[]), Reply::Done);
    assert_eq!(errno(hand.ask(0, &right, &[])), libc::EMFILE, "it is open already");
    // the last one is answered from what recovery found, as long as it asks the same
    assert_eq!(errno(hand.ask(3, &Request::Open(b"/f", ALL), &[])), libc::EINVAL);
    assert_eq!(hand.ask(3, &Request::Append(file), b"other"), Reply::Number(5));
    assert_eq!(errno(hand.ask(2, &Request::Append(file), b"first")), libc::EINVAL);
    assert_eq!(hand.ask(1 << 53, &Request::Append(file), b"!").clone(), Reply::Number(10));
    drop(hand);
    let pool = mortal.attach();
    assert_eq!(pool.read("/f").unwrap(), b"firstother!");
    drop(pool);
    mortal.finish();
}

#[test]
fn a_session_ends_with_exec() {
    const NAME: &str = "claims::a_session_ends_with_exec";
    if child::role() == "becomes another program" {
        let pool = Pool::attach(child::pool().unwrap()).unwrap();
        let file = pool.create_file("/f").unwrap();
        file.lock(nearside::LockKind::Write, ..).unwrap();
        child::say("locked");
        child::wait_to_be_told();
        let error =
            std::os::unix::process::CommandExt::exec(std::process::Command::new("cat").arg("-"));
        panic!("{error}");
    }
    let served = Served::new();
    let command = child::command_as("becomes another program", NAME, &served.dir);
    let mut other = child::Running::start(command);
    assert_eq!(other.hear(), "locked");
    let pool = served.attach();
    let flags = nearside::OpenFlags::new().read(true).write(true);
    let file = pool.open_file("/f", &flags).unwrap();
    assert!(!file.try_lock(nearside::LockKind::Write, ..).unwrap());
    other.tell();
    served.wait_for_sessions(1);
    eventually(|| file.try_lock(nearside::LockKind::Write, ..).unwrap());
    let is_other = || {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", other.id())).unwrap();
        name.trim() == "cat"
    };
    assert!(is_other(), "the process lives, as another program");
    std::thread::sleep(Duration::from_millis(10));
    other.kill();
    drop((file, pool));
    served.finish();
}
