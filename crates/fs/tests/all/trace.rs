//! Calls that are recorded.

use crate::common::{TestPool, make, pattern};
use fs::{Layout, TracedCall, TracedFile, trace_as};
use placement::Kind;

const MIB: usize = 1 << 20;

#[test]
fn calls_are_recorded_while_somebody_asks() {
    let pool = TestPool::new(2, 32 << 20);
    let fs = pool.start();
    let file = make(&fs, "file");
    fs.set_layout(file.ino(), Layout::Node(1)).unwrap();
    fs.write(&file, 0, &pattern(1, MIB)).unwrap();
    assert_eq!(fs.trace(0), None);
    let number = fs.begin_trace();
    let take = || fs.trace(number).unwrap();
    assert_eq!(take().calls, [], "what was before is not known");
    let mut bytes = vec![0; 8192];
    fs.write(&file, MIB as u64, &bytes).unwrap();
    fs.read(&file, 4096, &mut bytes).unwrap();
    trace_as(77);
    fs.read(&file, MIB as u64 + 4096, &mut bytes).unwrap();
    assert_eq!(fs.append(&file, &bytes[..100]).unwrap(), MIB as u64 + 8192);
    trace_as(0);
    // there is nothing there, and so nothing of it
    assert_eq!(fs.read(&file, 1 << 40, &mut bytes).unwrap(), 0);
    assert!(fs.write(&file, u64::MAX - 5, &bytes).is_err());
    let traced = take();
    assert_eq!(traced.lost, 0);
    let of = |it: &TracedCall| (it.caller, it.kind, it.offset, it.bytes);
    let (own, mib) = (u64::from(topology::current_thread()), MIB as u64);
    let wanted = [
        (own, Kind::Write, mib, 8192),
        (own, Kind::Read, 4096, 8192),
        (77, Kind::Read, mib + 4096, 4096),
        (77, Kind::Write, mib + 8192, 100),
    ];
    assert_eq!(traced.calls.iter().map(of).collect::<Vec<_>>(), wanted);
    for pair in traced.calls.windows(2) {
        assert!(pair[0].began_ns + pair[0].took_ns <= pair[1].began_ns, "{pair:?}");
        assert_eq!((pair[0].ino, pair[0].took_ns > 0), (file.ino(), true));
    }
    let lies = TracedFile { bytes: mib + 8292, first: Some(1) };
    assert_eq!(fs.traced_file(file.ino()), Some(lies));
    assert_eq!(take().calls, []);
    // another one takes its place, and is none of its business
    fs.read(&file, 0, &mut bytes).unwrap();
    let other = fs.begin_trace();
    assert_eq!((fs.trace(number), fs.end_trace(number)), (None, None));
    fs.read(&file, 0, &mut bytes).unwrap();
    assert_eq!(fs.end_trace(other).unwrap().calls.len(), 1);
    assert_eq!((fs.trace(other), fs.end_trace(other)), (None, None));
    assert_eq!(fs.traced_file(fs::Ino(1 << 40)), None);
    let empty = make(&fs, "empty");
    assert_eq!(fs.traced_file(empty.ino()), Some(TracedFile { bytes: 0, first: None }));
}

/// Nobody takes them: there is a bound, and it is told how many there was no room for.
#[test]
fn calls_that_nobody_takes_have_a_bound() {
    let pool = TestPool::new(1, 32 << 20);
    let fs = pool.start();
    let file = make(&fs, "file");
    fs.write(&file, 0, &pattern(1, 4096)).unwrap();
    let number = fs.begin_trace();
    const CALLS: u64 = 70_000;
    let mut byte = [0];
    for _ in 0..CALLS {
        fs.read(&file, 0, &mut byte).unwrap();
    }
    let traced = fs.trace(number).unwrap();
    assert_eq!(traced.calls.len() as u64 + traced.lost, CALLS);
    assert!(traced.lost > 0 && traced.calls.len() > 1000, "{}", traced.lost);
    fs.read(&file, 0, &mut byte).unwrap();
    let traced = fs.trace(number).unwrap();
    assert_eq!((traced.calls.len(), traced.lost), (1, 0));
}
