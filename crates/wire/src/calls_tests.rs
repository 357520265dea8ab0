//! Calls, and those who lie about them.

use super::*;
use std::os::fd::AsFd;

fn both() -> (Calls, Served) {
    let memory = create().unwrap();
    (Calls::new(memory.as_fd()).unwrap(), Served::new(memory.as_fd()).unwrap())
}

#[test]
fn many_threads_call_at_once_and_each_gets_its_own_answer() {
    let ((calls, served), slots) = (both(), Slots::default());
    let is_over = AtomicBool::new(false);
    let serve = || {
        let mut message = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            while let Some(taken) = served.take(0, &mut message) {
                let mut data = vec![0; taken.data_len];
                served.data(taken, &mut data);
                data.reverse();
                served.answer(taken, &message, &data);
            }
            std::thread::yield_now();
        }
    };
    std::thread::scope(|threads| {
        threads.spawn(serve);
        let callers: Vec<_> = (0..2 * SLOTS as u32)
            .map(|caller| {
                let (calls, slots) = (&calls, &slots);
                threads.spawn(move || {
                    let (mut answer, mut data) = (Vec::new(), [0; 4]);
                    for call in 0..200u32 {
                        let asked = (caller << 16 | call).to_le_bytes();
                        let slot = slots.take();
                        let slot = slot.number();
                        let len = calls.ask(slot, &asked, &asked, &|| (), &mut answer, &mut data);
                        assert_eq!(len, Ok(4));
                        assert_eq!(answer, asked);
                        data.reverse();
                        assert_eq!(data, asked);
                    }
                })
            })
            .collect();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn whoever_sleeps_is_woken() {
    let (calls, served) = both();
    assert!(served.park());
    let (ring, rung) = std::sync::mpsc::channel();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let (mut answer, ring) = (Vec::new(), ring);
            let ring = || ring.send(()).unwrap();
            calls.ask(3, b"a", b"", &ring, &mut answer, &mut []).unwrap();
            assert_eq!(answer, b"b");
        });
        rung.recv().unwrap();
        // its caller is asleep by then
        std::thread::sleep(Duration::from_millis(20));
        assert!(!served.park(), "there is a call that waits");
        let taken = served.take(0, &mut Vec::new()).unwrap();
        assert!(served.park(), "it is being served");
        served.answer(taken, b"b", b"");
    });
}

#[test]
fn callers_learn_that_the_service_has_gone() {
    let (calls, served) = both();
    std::thread::scope(|threads| {
        let ask = || calls.ask(3, b"a", b"", &|| (), &mut Vec::new(), &mut []);
        let caller = threads.spawn(ask);
        let mut message = Vec::new();
        while served.take(0, &mut message).is_none() {}
        calls.lose();
        assert_eq!(caller.join().unwrap(), Err(Lost));
        assert_eq!(ask(), Err(Lost));
    });
}

#[test]
fn lengths_and_states_that_cannot_be_are_not_believed() {
    let memory = create().unwrap();
    let (served, hostile) =
        (Served::new(memory.as_fd()).unwrap(), Shared::map(memory.as_fd()).unwrap());
    let at = words_at(3);
    hostile.word(at + MESSAGE_LEN_AT).store(u32::MAX, Ordering::SeqCst);
    hostile.word(at + DATA_LEN_AT).store(u32::MAX, Ordering::SeqCst);
    hostile.word(at + STATE_AT).store(ASKED, Ordering::SeqCst);
    let mut message = Vec::new();
    let taken = served.take(0, &mut message).unwrap();
    assert_eq!((message.len(), taken.data_len), (MESSAGE_BYTES_MAX, DATA_BYTES_MAX));
    hostile.word(at + STATE_AT).store(ASKED, Ordering::SeqCst);
    assert!(served.take(0, &mut message).is_none(), "a call is served once at a time");
    hostile.word(at + STATE_AT).store(77, Ordering::SeqCst);
    served.answer(taken, b"", b"");
    assert!(served.take(0, &mut message).is_none());
    assert!(Served::new(shm::create("short", 8192).unwrap().as_fd()).is_err());
}
