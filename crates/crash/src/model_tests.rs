use super::*;
use std::panic::Location;

fn event(thread: u64, kind: Kind) -> Event {
    Event { thread, call: "", site: Location::caller(), kind }
}

fn store(thread: u64, offset: u64, data: &[u8], streamed: bool) -> Event {
    event(thread, Kind::Store { slice: 0, offset, data: data.to_vec(), streamed })
}

fn fence(thread: u64) -> Event {
    event(thread, Kind::Fence)
}

fn flush(thread: u64, offset: u64, len: usize) -> Event {
    event(thread, Kind::Flush { slice: 0, offset, len })
}

fn model_of(domain: Domain, events: &[Event]) -> Model {
    let mut model = Model::new(domain, vec![vec![0; 256]]).unwrap();
    events.iter().enumerate().for_each(|(index, event)| model.event(index, event));
    model
}

fn model(events: &[Event]) -> Model {
    model_of(Domain::CpuFlush, events)
}

fn units(model: &Model) -> Vec<Unit> {
    model.in_flight().iter().map(|flying| flying.unit).collect()
}

/// The images with so many steps of each unit.
fn image(model: &Model, steps: &[u16]) -> Vec<u8> {
    model.images_with(&model.changed(steps)).remove(0)
}

#[test]
fn a_fence_orders_only_what_its_thread_streamed_or_flushed() {
    let events = [
        store(1, 0, &[1; 64], true),
        store(2, 64, &[2; 64], true),
        store(1, 128, &[3; 8], false),
        store(1, 192, &[4; 8], false),
        flush(1, 192, 8),
        fence(1),
    ];
    let model = model(&events);
    let left = [Unit::Line((0, 1)), Unit::Line((0, 2))];
    assert_eq!(units(&model), left, "another thread's, and one without a flush");
    assert_eq!((model.images()[0][0], model.images()[0][192]), (1, 4));
}

#[test]
fn a_flush_covers_what_was_stored_before_it_only() {
    let events =
        [store(1, 0, &[1; 8], false), flush(1, 0, 8), store(1, 0, &[2; 8], false), fence(1)];
    let model = model(&events);
    assert_eq!(model.images()[0][0], 1);
    assert_eq!(model.in_flight().len(), 1);
}

#[test]
fn a_line_keeps_a_prefix_of_its_words_and_is_put_back_after() {
    let model = model(&[store(1, 4, &[7; 20], false), store(1, 0, &[9; 8], false)]);
    assert_eq!(model.in_flight()[0].stores, [(0, 3), (1, 4)]);
    let bytes = |arena: &Arena| arena.mappings(None).unwrap()[0].copy_image();
    let seen = |steps| {
        let seen = model.with(&model.changed(&[steps]), |arena| {
            // what is stored during a look goes back, too
            let mapping = arena.mappings(None).unwrap().remove(0);
            let _ = pmem::fence(mapping.write(192, &[5; 9]));
            assert_eq!(mapping.copy_image()[192..201], [5; 9]);
            bytes(arena)[..32].to_vec()
        });
        assert_eq!(image(&model, &[steps])[..32], seen);
        assert_eq!(model.with(&[], bytes), vec![0; 256]);
        seen
    };
    let mut expected = vec![0; 32];
    assert_eq!(seen(0), expected);
    expected[4..8].fill(7);
    assert_eq!(seen(1), expected);
    expected[4..16].fill(7);
    assert_eq!(seen(2), expected);
    expected[4..24].fill(7);
    assert_eq!(seen(3), expected);
    expected[..8].fill(9);
    assert_eq!(seen(4), expected);
    assert_eq!(model.images()[0], vec![0; 256]);
}

#[test]
fn equal_images_have_equal_hashes_whether_committed_or_in_flight() {
    let stores = [store(1, 0, &[1; 64], true), store(1, 64, &[2; 64], true)];
    let open = model(&stores);
    let closed = model(&[stores.as_slice(), &[fence(1)]].concat());
    let hash = |model: &Model, steps: &[u16]| model.hash(&model.changed(steps));
    assert_eq!(hash(&open, &[8, 8]), hash(&closed, &[]));
    assert_ne!(hash(&open, &[8, 8]), hash(&open, &[8, 0]));
    assert_eq!(image(&open, &[8, 8]), image(&closed, &[]));
}

#[test]
fn caches_that_survive_keep_a_threads_stores_in_order_and_streamed_ones_in_none() {
    let events = [
        store(1, 0, &[1; 16], false),
        store(1, 64, &[2; 64], true),
        store(1, 128, &[3; 8], false),
        store(2, 0, &[4; 8], false),
    ];
    let open = model_of(Domain::CpuCache, &events);
    let expected = [Unit::Line((0, 1)), Unit::Thread(1), Unit::Thread(2)];
    assert_eq!(units(&open), expected);
    let seen = |steps: &[u16; 3]| {
        let image = image(&open, steps);
        [image[0], image[8], image[64], image[128]]
    };
    assert_eq!(seen(&[0, 1, 0]), [1, 0, 0, 0]);
    assert_eq!(seen(&[0, 3, 0]), [1, 1, 0, 3], "the streamed one in no order with the others");
    assert_eq!(seen(&[8, 0, 1]), [4, 0, 2, 0]);
    assert_eq!(seen(&[8, 3, 1]), [4, 1, 2, 3], "two threads' in the order in which they came");
    let closed = model_of(Domain::CpuCache, &[events.as_slice(), &[fence(1)]].concat());
    assert_eq!(units(&closed), [Unit::Thread(2)]);
    assert_eq!(closed.images()[0][128], 3);
}

#[test]
fn a_plain_file_keeps_nothing_for_certain_but_by_a_sync() {
    let sync = event(1, Kind::Sync { slice: 0 });
    let stores = [store(1, 0, &[1; 64], true), store(2, 64, &[2; 8], false), fence(1), fence(2)];
    let open = model_of(Domain::Sync, &stores);
    assert_eq!(open.in_flight().len(), 2);
    let closed = model_of(Domain::Sync, &[stores.as_slice(), &[sync]].concat());
    assert!(closed.in_flight().is_empty());
    assert_eq!((closed.images()[0][0], closed.images()[0][64]), (1, 2));
    let settles = |domain, kind: &Event| Model::settles(domain, &kind.kind);
    assert!(!settles(Domain::Sync, &stores[2]) && settles(Domain::CpuFlush, &stores[2]));
}
