//! The ring under every order of steps that the memory model allows: each request is taken once,
//! whole, and in order where one thread put them in.
//!
//! The source file is the engine's own; only atomics are loom's.
#![allow(clippy::unwrap_used, dead_code)]

#[path = "../src/ring.rs"]
mod ring;

mod sync {
    pub use loom::sync::atomic::{AtomicU64, Ordering};
}

use loom::sync::Arc;
use loom::thread;
use ring::{Ring, WORDS};

fn request(number: u64) -> [u64; WORDS] {
    std::array::from_fn(|word| number * 10 + word as u64)
}

fn number(request: [u64; WORDS]) -> u64 {
    assert!(request.iter().zip(0..).all(|(word, index)| *word == request[0] + index));
    request[0] / 10
}

#[test]
fn what_two_put_in_is_taken_once_and_whole() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(1));
        let putters: Vec<_> = [1, 2]
            .map(|own| {
                let ring = ring.clone();
                thread::spawn(move || u64::from(ring.put(&request(own))) * own)
            })
            .into();
        let mut taken = Vec::new();
        taken.extend(ring.take().map(number));
        let put: Vec<u64> = putters.into_iter().map(|it| it.join().unwrap()).collect();
        while let Some(request) = ring.take() {
            taken.push(number(request));
        }
        taken.sort_unstable();
        assert_eq!(taken, put, "there was room for both");
        assert!(ring.is_empty());
    });
}

#[test]
fn two_takers_share_what_is_there() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(1));
        assert!(ring.put(&request(1)) && ring.put(&request(2)));
        assert!(!ring.put(&request(3)), "it is full");
        let takers: Vec<_> = [(); 2]
            .map(|()| {
                let ring = ring.clone();
                thread::spawn(move || ring.take().map(number))
            })
            .into();
        let mut taken: Vec<_> = takers.into_iter().map(|it| it.join().unwrap()).collect();
        taken.sort_unstable();
        assert_eq!(taken, [Some(1), Some(2)]);
        assert_eq!(ring.take(), None);
        // its places are free again
        assert!(ring.put(&request(4)));
        assert_eq!(ring.take().map(number), Some(4));
    });
}

#[test]
fn one_thread_s_requests_stay_in_order_around_the_ring() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(1));
        let putter = {
            let ring = ring.clone();
            thread::spawn(move || -> Vec<u64> {
                (1..=3).filter(|own| ring.put(&request(*own))).collect()
            })
        };
        let mut taken = Vec::new();
        for _ in 0..2 {
            taken.extend(ring.take().map(number));
        }
        let put = putter.join().unwrap();
        while let Some(request) = ring.take() {
            taken.push(number(request));
        }
        assert_eq!(taken, put);
    });
}
