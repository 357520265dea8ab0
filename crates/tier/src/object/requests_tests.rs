use super::super::fake::{Fake, Next};
use super::*;
use tokio::runtime::{Builder, Runtime};

const BLOCK: usize = OBJECT_BYTES / OBJECT_BLOCKS as usize;

fn requests(store: &Arc<Fake>) -> Requests {
    Requests {
        store: store.clone(),
        prefix: Path::from("p"),
        is_conditional: true,
        locks: std::array::from_fn(|_| Mutex::default()),
        room: Semaphore::new(DEPTH),
        validity: None,
    }
}

fn both() -> (Arc<Fake>, Requests, Runtime) {
    let store = Arc::new(Fake::default());
    let requests = requests(&store);
    (store, requests, Builder::new_current_thread().enable_all().build().unwrap())
}

fn patch(block: usize, byte: u8, blocks: usize) -> Patch {
    Patch { from: block * BLOCK, bytes: vec![byte; blocks * BLOCK] }
}

/// The first byte of a block.
async fn byte(requests: &Requests, object: u64, block: usize) -> u8 {
    let piece = Piece { object, from: block * BLOCK, of: 0..BLOCK };
    requests.read(piece).await.unwrap().map_or(0, |bytes| bytes[0])
}

#[test]
fn each_object_is_put_once_and_read_only_if_a_part_of_it_stays() {
    let (store, requests, runtime) = both();
    runtime.block_on(async {
        let writes = BTreeMap::from([
            (0, vec![patch(0, 1, 100), patch(100, 2, 156)]),
            (1, vec![patch(3, 3, 1), patch(5, 4, 1), patch(200, 5, 2)]),
            (0x2a, vec![patch(0, 6, 256)]),
        ]);
        requests.make(Vec::new(), writes).await.unwrap();
        let sorted = |mut list: Vec<String>| {
            list.sort();
            list
        };
        let names = ["p/00000000", "p/00000001", "p/0000002a"].map(str::to_owned);
        assert_eq!(sorted(std::mem::take(&mut store.puts.lock())), names);
        let whole = |(name, is_head): &(String, bool)| (!is_head).then(|| name.clone());
        let read: Vec<String> = store.gets.lock().iter().filter_map(whole).collect();
        assert_eq!(read, ["p/00000001"]);
        let found = [(0, 0), (0, 99), (0, 100), (1, 3), (1, 4), (1, 201), (0x2a, 255)];
        for ((object, block), expected) in found.into_iter().zip([1, 1, 2, 3, 0, 5, 6]) {
            assert_eq!(byte(&requests, object, block).await, expected, "{object} {block}");
        }
    });
}

/// A put whose answer was given up arrives after another one that was acknowledged.
#[test]
fn what_arrives_late_changes_nothing() {
    let (store, requests, runtime) = both();
    runtime.block_on(async {
        for whole in [false, true] {
            let blocks = if whole { 256 } else { 2 };
            for object in [7, 8] {
                // an object that is there, and one that is not
                if object == 8 {
                    requests.write(object, vec![patch(0, 9, 256)]).await.unwrap();
                }
                *store.next.lock() = Next::Late;
                requests.write(object, vec![patch(0, 1, blocks)]).await.unwrap();
                requests.write(object, vec![patch(1, 2, 1)]).await.unwrap();
                let answers = store.deliver().await;
                assert!(answers.len() == 1 && is_stale(answers[0].as_ref().unwrap_err()));
                assert_eq!(byte(&requests, object, 1).await, 2);
            }
        }
    });
}

/// The store may have put what it never answered.
#[test]
fn a_write_without_an_answer_is_made_again() {
    let (store, requests, runtime) = both();
    runtime.block_on(async {
        *store.next.lock() = Next::Unanswered;
        requests.write(3, vec![patch(0, 1, 2)]).await.unwrap();
        requests.write(3, vec![patch(1, 2, 2)]).await.unwrap();
        for (block, expected) in [(0, 1), (1, 2), (2, 2), (3, 0)] {
            assert_eq!(byte(&requests, 3, block).await, expected);
        }
    });
}

#[test]
fn a_store_that_does_nothing_is_an_error() {
    let (store, requests, runtime) = both();
    runtime.block_on(async {
        *store.next.lock() = Next::Gone;
        requests.write(3, vec![patch(0, 1, 2)]).await.unwrap_err();
        requests.write(3, vec![patch(0, 1, 256)]).await.unwrap_err();
        let piece = Piece { object: 3, from: 0, of: 0..BLOCK };
        requests.read(piece).await.unwrap_err();
    });
}

#[test]
fn an_object_that_changes_before_it_is_put_is_read_again() {
    let (store, requests, runtime) = both();
    runtime.block_on(async {
        requests.write(3, vec![patch(0, 1, 2)]).await.unwrap();
        let other = vec![5; OBJECT_BYTES + MARK_BYTES];
        *store.before.lock() = Some((requests.object(3), other));
        requests.write(3, vec![patch(1, 2, 1)]).await.unwrap();
        for (block, expected) in [(0, 5), (1, 2), (2, 5)] {
            assert_eq!(byte(&requests, 3, block).await, expected);
        }
    });
}

#[test]
fn equal_objects_have_different_tags() {
    let (store, requests, runtime) = both();
    runtime.block_on(async {
        let mut marks = std::collections::BTreeSet::new();
        for _ in 0..4 {
            requests.write(3, vec![patch(0, 1, 256)]).await.unwrap();
            let all = store.inner.get(&requests.object(3)).await.unwrap().bytes().await.unwrap();
            marks.insert(all[OBJECT_BYTES..].to_vec());
        }
        assert_eq!(marks.len(), 4);
    });
}

#[test]
fn what_is_no_object_of_a_device_is_an_error() {
    let (store, requests, runtime) = both();
    runtime.block_on(async {
        store.inner.put(&requests.object(3), vec![0; 10_000].into()).await.unwrap();
        requests.write(3, vec![patch(0, 1, 1)]).await.unwrap_err();
        let piece = Piece { object: 3, from: 2 * BLOCK, of: 0..BLOCK };
        requests.read(piece).await.unwrap_err();
        assert_eq!(requests.size().await.unwrap(), None);
        requests.put_size(77 << 20).await.unwrap();
        assert_eq!(requests.size().await.unwrap(), Some(77 << 20));
        store.inner.put(&requests.named("layout"), "something".into()).await.unwrap();
        requests.size().await.unwrap_err();
    });
}
