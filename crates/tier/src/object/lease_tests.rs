use super::super::fake::{Fake, Next};
use super::*;

#[test]
fn a_lease_is_read_as_it_was_written() {
    let id = Uuid::new_v4();
    let mut holder = Holder {
        store: Arc::new(object_store::memory::InMemory::new()),
        path: Path::from("lease"),
        id,
        round: 0,
        tag: None,
        length: Duration::from_millis(1500),
        validity: Arc::default(),
    };
    let (held, free) = (holder.text("held"), holder.text("free"));
    let said = |is_free| Said { holder: id, is_free, length: holder.length };
    assert_eq!(Said::parse(&held), Some(said(false)));
    assert_eq!(Said::parse(&free), Some(said(true)));
    assert_ne!(held, holder.text("held"), "each differs");
    let for_ever = held.replace("1500", &u64::MAX.to_string());
    for wrong in ["", "nearside-lease 2\n", "nearside-lease 1\nholder x\n", "<xml>", &for_ever] {
        assert_eq!(Said::parse(wrong), None);
    }
}

/// Long enough for a holder that waits for a CPU to renew the lease in time.
const LENGTH: Duration = Duration::from_millis(1500);
/// Longest wait for an event that must come, on a busy machine too.
const SOON: Duration = Duration::from_secs(120);

fn eventually(is_so: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < SOON, "not so after {SOON:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

fn take(runtime: &Runtime, store: &Arc<Fake>) -> Option<(Lease, Arc<Validity>)> {
    let validity = Arc::<Validity>::default();
    let (store, path) = (store.clone(), Path::from("lease"));
    let lease = Lease::take_at(runtime, (store, path), &validity, LENGTH).unwrap();
    lease.map(|lease| (lease, validity))
}

#[test]
fn one_has_the_lease_until_he_gives_it_back() {
    let (store, runtime) = (Arc::new(Fake::default()), runtime());
    let (lease, validity) = take(&runtime, &store).unwrap();
    for _ in 0..3 {
        assert!(take(&runtime, &store).is_none());
        validity.check().unwrap();
    }
    drop(lease);
    validity.check().unwrap_err();
    let (_lease, other) = take(&runtime, &store).unwrap();
    other.check().unwrap();
    validity.check().unwrap_err();
}

#[test]
fn a_lease_that_nobody_renews_is_taken_after_its_user_has_stopped() {
    let (store, lost, own) = (Arc::new(Fake::default()), runtime(), runtime());
    let (lease, validity) = take(&lost, &store).unwrap();
    // nothing is given back, nor renewed
    lost.shutdown_background();
    let started = std::time::Instant::now();
    let taken = take(&own, &store);
    assert!(taken.is_some() && started.elapsed() >= LENGTH);
    validity.check().unwrap_err();
    drop(lease);
    taken.unwrap().1.check().unwrap();
    assert!(take(&own, &store).is_some(), "given back");
}

#[test]
fn a_renewal_without_an_answer_loses_nothing() {
    let (store, runtime) = (Arc::new(Fake::default()), runtime());
    let (_lease, validity) = take(&runtime, &store).unwrap();
    for next in [Next::Unanswered, Next::Late, Next::Unanswered] {
        let puts = store.puts.lock().len();
        *store.next.lock() = next;
        std::thread::sleep(LENGTH);
        // The put that fails, and the next one.
        eventually(|| store.puts.lock().len() >= puts + 2);
        validity.check().unwrap();
        assert_eq!(*store.next.lock(), Next::Done, "it was renewed");
        let late = runtime.block_on(store.deliver());
        assert!(late.iter().all(Result::is_err), "what is late changes nothing");
    }
}

#[test]
fn a_store_that_cannot_be_reached_ends_the_use() {
    let (store, runtime) = (Arc::new(Fake::default()), runtime());
    let (_lease, validity) = take(&runtime, &store).unwrap();
    *store.next.lock() = Next::Gone;
    // The lease expires by the clock, however busy the machine is.
    std::thread::sleep(LENGTH);
    validity.check().unwrap_err();
    *store.next.lock() = Next::Done;
    eventually(|| validity.check().is_ok());
}

/// The first put takes longer than a lease is counted on.
#[test]
fn a_lease_from_a_store_that_is_slow_at_first_is_good() {
    let (store, runtime) = (Arc::new(Fake::default()), runtime());
    *store.next.lock() = Next::Slow(LENGTH);
    let (_lease, validity) = take(&runtime, &store).unwrap();
    validity.check().unwrap();
    assert!(store.puts.lock().len() >= 2);
}
