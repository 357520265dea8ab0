use super::*;
use std::collections::HashSet;

fn all_of(frames: &Arc<Frames>) -> Vec<Frame> {
    std::iter::from_fn(|| frames.take().0).collect()
}

#[test]
fn each_frame_is_lent_once_and_there_are_no_more() {
    let frames = Frames::new(100, None);
    assert_eq!((frames.count(), frames.free()), (100, 100));
    let mut lent = all_of(&frames);
    assert_eq!((lent.len(), frames.free()), (100, 0));
    let places: HashSet<usize> = lent.iter().map(|it| it.bytes().as_ptr() as usize).collect();
    assert_eq!(places.len(), 100);
    assert!(places.iter().all(|at| at.is_multiple_of(BLOCK)));
    let (first, last) = (places.iter().min(), places.iter().max());
    assert_eq!(last.unwrap() - first.unwrap(), 99 * BLOCK, "side by side");
    for (byte, frame) in (1..).zip(&mut lent) {
        assert!(frame.bytes().iter().all(|byte| *byte == 0));
        frame.bytes_mut().fill(byte);
    }
    for (byte, frame) in (1u8..).zip(&lent) {
        assert!(frame.bytes() == [byte; BLOCK]);
    }
}

#[test]
fn what_is_dropped_comes_back_and_the_last_one_keeps_the_mapping() {
    let frames = Frames::new(10, None);
    let mut lent = all_of(&frames);
    let place = lent[3].bytes().as_ptr();
    drop(lent.swap_remove(3));
    assert_eq!(frames.free(), 1);
    let (again, left) = frames.take();
    let mut again = again.unwrap();
    assert_eq!((again.bytes().as_ptr(), left), (place, 0));
    drop((frames, lent));
    again.bytes_mut().fill(7);
    assert!(again.bytes() == [7; BLOCK]);
}

#[test]
fn threads_never_have_the_same_frame() {
    let frames = Frames::new(64, None);
    std::thread::scope(|scope| {
        for thread in 1..=4u8 {
            let frames = &frames;
            scope.spawn(move || {
                for round in 0..2000 {
                    let mut own: Vec<Frame> =
                        (0..1 + round % 40).filter_map(|_| frames.take().0).collect();
                    own.iter_mut().for_each(|frame| frame.bytes_mut().fill(thread));
                    std::thread::yield_now();
                    assert!(own.iter().all(|frame| frame.bytes() == [thread; BLOCK]));
                }
            });
        }
    });
    assert_eq!(frames.free(), 64);
}

/// Whether the memory of each frame is there.
fn resident(frames: &Frames) -> Vec<bool> {
    let mut there = vec![0u8; frames.count()];
    let at = frames.base.as_ptr().cast();
    // SAFETY: the mapping has so many pages, and the list a byte for each.
    assert_eq!(unsafe { libc::mincore(at, frames.count() * BLOCK, there.as_mut_ptr()) }, 0);
    there.iter().map(|byte| byte & 1 == 1).collect()
}

#[test]
fn memory_is_taken_when_it_is_touched_and_given_back() {
    let frames = Frames::new(256, None);
    // huge pages would be there as a whole
    // SAFETY: a hint about a mapping of this test's own.
    unsafe { libc::madvise(frames.base.as_ptr().cast(), 256 * BLOCK, libc::MADV_NOHUGEPAGE) };
    assert!(!resident(&frames).contains(&true));
    let mut lent = all_of(&frames);
    assert!(!resident(&frames).contains(&true), "nobody touched them");
    lent.iter_mut().for_each(|frame| frame.bytes_mut().fill(1));
    assert!(!resident(&frames).contains(&false));
    let kept = lent.split_off(200);
    drop(lent);
    assert!(!resident(&frames).contains(&false), "for the next ones");
    frames.release();
    assert_eq!(resident(&frames).iter().filter(|is_there| **is_there).count(), 56);
    assert!(kept.iter().all(|frame| frame.bytes() == [1; BLOCK]));
    assert_eq!(frames.take().0.unwrap().bytes(), [0; BLOCK], "anew");
    assert_eq!(frames.free(), 200);
}

#[test]
fn a_cache_for_which_there_is_no_memory_is_smaller() {
    let frames = Frames::new(usize::MAX, None);
    assert!(frames.count() > 0 && frames.count() <= u32::MAX as usize);
    let none = Frames::new(0, Some(0));
    assert_eq!((none.take().0.is_none(), none.free(), none.is_bound()), (true, 0, false));
}

#[test]
fn a_node_that_is_not_there_is_no_reason_to_have_no_frames() {
    for node in [1000, 70_000, u32::MAX] {
        let frames = Frames::new(10, Some(node));
        assert!(!frames.is_bound(), "{node}");
        frames.take().0.unwrap().bytes_mut().fill(1);
    }
}
