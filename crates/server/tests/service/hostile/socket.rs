//! What is said on the socket, and with the bell.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_setfl};
use wire::{Flags, Greeting, Identity, Proof, Reply, Request, Welcome};

use super::strange::{Attempt, Strange, opened};
use crate::hand::{ByHand, connected, try_said_to};
use crate::strangers::mutate;
use crate::waits::{send_lingering, send_with, take};

/// Bytes, and messages that are changed or cut, with descriptors; before the process is attached
/// and behind that, also where it does not listen.
pub fn says_anything(strange: &mut Strange) -> Attempt {
    let mut kept = Vec::new();
    for _ in 0..20 {
        let channel = connected(&strange.path);
        let returns = (strange.random.below(2) == 0).then(|| strange.victim.clone());
        let greeting = Greeting { version: wire::VERSION, returns, mount: None, fabric: None };
        let mut words = serde_json::to_vec(&greeting).unwrap();
        let random = &mut strange.random;
        match random.below(3) {
            0 => words = random.bytes(40_000),
            1 => mutate(random, &mut words),
            _ => {}
        }
        let descriptors: Vec<OwnedFd> = (0..random.below(20))
            .map(|_| eventfd(0, EventfdFlags::CLOEXEC).unwrap())
            .chain((random.below(4) == 0).then(|| channel.as_fd().try_clone_to_owned().unwrap()))
            .collect();
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        send_with(&channel, &words, &borrowed);
        if random.below(2) == 0 {
            // it says more than it should, in place of hearing
            send_with(&channel, &random.bytes(100), &borrowed);
        }
        if random.below(8) == 0 {
            let channel = connected(&strange.path);
            kept.push((send_lingering(&channel, &words), channel));
        }
        if random.below(3) == 0 {
            deaf(strange);
        }
    }
    std::thread::sleep(Duration::from_millis(20));
    Ok(vec![])
}

/// Asks for what comes by the socket, and takes none of it.
fn deaf(strange: &Strange) -> Option<()> {
    let hand = strange.attach()?;
    let file = opened(&hand, super::honest::SHARED, false)?;
    for copy in 0..600 {
        let map = Request::Map { copy, file, offset: 0, bytes: 4096 };
        hand.try_ask((1, 0), &map, &[], &mut [])?;
        hand.try_ask((1, 0), &Request::Unmap(copy), &[], &mut [])?;
    }
    Some(())
}

/// Rings, and takes the sound away again; and makes a bell that waits for who reads it.
pub fn rings(strange: &mut Strange) -> Attempt {
    let hands: Vec<_> = (0..4).filter_map(|_| strange.attach()).collect();
    let until = Instant::now() + Duration::from_millis(20 + strange.random.below(60));
    std::thread::scope(|threads| {
        for hand in &hands {
            // (a write to a bell that is full would wait, too)
            let huge = strange.random.below(4) == 0;
            threads.spawn(move || {
                while Instant::now() < until {
                    steal(hand, if huge { u64::MAX - 1 } else { 1 });
                }
            });
        }
    });
    Ok(vec![])
}

/// Rings a bell that waits for who reads it, and takes the sound away before others do.
fn steal(hand: &ByHand, sound: u64) {
    let _ = fcntl_setfl(&hand.bell, OFlags::RDWR);
    for _ in 0..200 {
        let _ = rustix::io::write(&hand.bell, &sound.to_ne_bytes());
        take(hand);
    }
    // whoever reads now waits
    std::thread::sleep(Duration::from_millis(20));
}

const ALL: Flags = Flags {
    read: true,
    write: true,
    append: false,
    truncate: false,
    create: false,
    create_new: false,
    mode: 0,
};

/// Says that it is the victim, or another one, or that it had open what others have.
pub fn claims(strange: &mut Strange) -> Attempt {
    let Some(hand) = strange.attach() else { return Ok(vec![]) };
    let (own, his) = (hand.identity.clone(), strange.victim.clone());
    let claims = [
        his.clone(),
        own.clone(),
        Identity { client: his.client.clone(), ..own.clone() },
        Identity { proof: own.proof.clone(), ..his.clone() },
        Identity { client: own.client.clone(), ..his.clone() },
        Identity { proof: format!("{:032x}", strange.random.next()), ..his.clone() },
        Identity { service: strange.random.next(), ..his },
        Identity { client: format!("{:032x}", strange.random.next()), ..own },
    ];
    for claim in claims {
        let words = format!("{claim:?}");
        if let Some((_, Welcome::Attached { .. }, _)) = try_said_to(&strange.path, Some(claim)) {
            return Err(format!("taken for {words}"));
        }
    }
    for _ in 0..30 {
        let number = strange.random.below(4);
        let restore = Request::Restore {
            number,
            ino: strange.random.below(40),
            flags: Some(ALL),
            proof: Proof(u128::from(strange.random.next()).to_le_bytes()),
            locks: Vec::new(),
        };
        let reply = hand.try_ask((2, 0), &restore, &[], &mut []);
        if reply.as_ref().is_some_and(|reply| !matches!(reply, Reply::Failed(_))) {
            return Err(format!("{restore:?}: {reply:?}"));
        }
    }
    Ok(vec![])
}
