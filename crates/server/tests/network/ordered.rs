//! Regions over a network: in which order what others commit is loaded.

use std::sync::atomic::{AtomicBool, Ordering};

use nearside::RegionSettings;

use crate::mapped::{PAGE, mapped, opened, put, random};
use crate::served::Served;

/// One writes to pages and says elsewhere to which, and what; whoever hears of it loads it, though
/// pages of his come and go all the time.
#[test]
fn nobody_hears_of_what_his_region_has_not() {
    const PAGES: usize = 512;
    let served = Served::new();
    let (writer, reader) = (served.attach(), served.attach());
    // room for an eighth of the pages
    let settings = RegionSettings { memory_bytes: 256 << 10, ..RegionSettings::default() };
    reader.set_region_settings(&settings).unwrap();
    let (theirs, region) = (mapped(&writer, "/f", PAGES), mapped(&reader, "/f", PAGES));
    let (said, heard) = (opened(&writer, "/said"), opened(&reader, "/said"));
    said.write_all_at(&[0; 16], 0).unwrap();
    let is_over = &AtomicBool::new(false);
    let heard_of = std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut state = 7;
            for value in 1..8000u64 {
                let page = random(&mut state) % PAGES;
                put(&writer, &theirs, page * PAGE + 8, value);
                let words = [page as u64, value].map(u64::to_ne_bytes).concat();
                said.write_all_at(&words, 0).unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        // pages come beside that, and go for them
        threads.spawn(|| {
            let mut state = 8;
            while !is_over.load(Ordering::Relaxed) {
                let page = random(&mut state) % (PAGES - 20);
                region.load(page * PAGE, &mut vec![0; 20 * PAGE]).unwrap();
            }
        });
        let (mut heard_of, mut last) = (0, 0);
        while !is_over.load(Ordering::Relaxed) {
            let mut words = [0; 16];
            heard.read_exact_at(&mut words, 0).unwrap();
            let [page, value] =
                [0, 8].map(|at| u64::from_ne_bytes(words[at..at + 8].try_into().unwrap()));
            let now = region.get::<u64>(page as usize * PAGE + 8).unwrap();
            assert!(now >= value, "{now} in page {page}, of which {value} was said");
            assert!(value >= last);
            heard_of += u64::from(value > last);
            last = value;
        }
        heard_of
    });
    println!("{heard_of} of 8000 were heard of");
    assert!(heard_of > 100);
    drop((region, theirs, said, heard, reader, writer));
    served.wait_for_sessions(0);
    assert_eq!(served.service.copied_bytes(), 0);
    served.finish();
}

/// A page comes while another one changes words of it, one after the other: none is missed.
#[test]
fn a_page_that_comes_while_it_changes_has_all_changes() {
    const WORDS: u64 = 512;
    let served = Served::new();
    let (writer, reader) = (served.attach(), served.attach());
    let theirs = mapped(&writer, "/f", 1);
    let (said, is_over) = (opened(&writer, "/said"), &AtomicBool::new(false));
    said.write_all_at(&[0; 8], 0).unwrap();
    std::thread::scope(|threads| {
        let readers = [(); 2].map(|()| {
            let reader = &reader;
            threads.spawn(move || {
                let (file, heard) = (opened(reader, "/f"), opened(reader, "/said"));
                for _ in 0..1500 {
                    let region = reader.map(&file, 0, PAGE as u64).unwrap();
                    region.get::<u64>(0).unwrap();
                    let mut word = [0; 8];
                    heard.read_exact_at(&mut word, 0).unwrap();
                    let round = u64::from_ne_bytes(word);
                    for word in 0..WORDS.min(round) {
                        // the last round that was one of this word's
                        let expected = round - (round + WORDS - word) % WORDS;
                        let now = region.get::<u64>(word as usize * 8).unwrap();
                        assert!(now >= expected, "{now} in word {word}, after round {round}");
                    }
                }
            })
        });
        threads.spawn(move || {
            let mut round = 0;
            while !is_over.load(Ordering::Relaxed) {
                round += 1;
                put(&writer, &theirs, (round % WORDS) as usize * 8, round);
                said.write_all_at(&round.to_ne_bytes(), 0).unwrap();
            }
            println!("{round} rounds");
        });
        let ended = readers.map(|one| one.join());
        is_over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|one| one.unwrap());
    });
    drop(reader);
    served.wait_for_sessions(0);
    assert_eq!(served.service.copied_bytes(), 0);
    served.finish();
}

/// What is loaded of one region leads to no older state of another one.
#[test]
fn who_loads_a_change_loads_what_came_before_it() {
    const PAGES: usize = 64;
    let served = Served::new();
    let (writer, teller, reader) = (served.attach(), served.attach(), served.attach());
    let pages = [&writer, &teller, &reader].map(|pool| mapped(pool, "/f", PAGES));
    let words = [&writer, &teller, &reader].map(|pool| mapped(pool, "/said", 1));
    let is_over = &AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut state = 5;
            for value in 1..4000u64 {
                let page = random(&mut state) % PAGES;
                // larger ones go without their bytes
                let mut tx = writer.begin().unwrap();
                let bytes = vec![value.to_ne_bytes(); if value % 3 == 0 { 1000 } else { 1 }];
                let at = (page * PAGE).min((PAGES - 2) * PAGE);
                tx.write(&pages[0], at, &bytes.concat()).unwrap();
                tx.commit().unwrap();
                put(&writer, &words[0], 0, (at as u64) << 32 | value);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        // another one loads it, and says so
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let word = words[1].get::<u64>(0).unwrap();
                let now = pages[1].get::<u64>((word >> 32) as usize).unwrap();
                assert!(now >= word & 0xFFFF_FFFF, "{now} and {word:x}");
                put(&teller, &words[1], 8, word);
            }
        });
        let mut heard_of = 0;
        while !is_over.load(Ordering::Relaxed) {
            for at in [8, 0] {
                let word = words[2].get::<u64>(at).unwrap();
                let now = pages[2].get::<u64>((word >> 32) as usize).unwrap();
                assert!(now >= word & 0xFFFF_FFFF, "{now} and {word:x} at {at}");
                heard_of += 1;
            }
        }
        println!("{heard_of} looks");
    });
    drop((pages, words, writer, teller, reader));
    served.wait_for_sessions(0);
    served.finish();
}
