//! Tests of the tickets in the trees: how many, how long, and what is no ticket.

use crate::checkpoint::FileBlocks;
use crate::format::format;
use crate::keys;
use crate::request::{Answer, RequestId};
use crate::system::FileSystem;
use crate::take_over::TakeOver;
use crate::tickets::{NUMBER_MAX, encode};
use crate::types::{Creation, Ino, NewNode, SetAttr};
use pool::tree::{Change, Key};
use pool::{FormatOptions, OpenOptions, SliceBatch, SliceSpec};
use std::collections::VecDeque;
use std::path::Path;

fn formatted(slice_bytes: u64, log_bytes: Option<u64>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let options = FormatOptions {
        slices: vec![SliceSpec::default()],
        slice_bytes,
        process: true,
        log_bytes,
        ..FormatOptions::default()
    };
    format(dir.path(), &options).unwrap();
    dir
}

fn open(dir: &Path, requests: &[RequestId]) -> FileSystem {
    let asked = TakeOver { requests: requests.to_vec(), ..TakeOver::default() };
    FileSystem::take_over_pool(dir, &OpenOptions::default(), &asked).unwrap()
}

fn id(client: u128, sequence: u64) -> RequestId {
    RequestId { client, sequence }
}

/// A request that changes the root directory.
fn serve(fs: &FileSystem, id: RequestId) {
    let change = SetAttr { uid: Some(id.sequence as u32), ..SetAttr::default() };
    fs.with_request(id, || fs.setattr(Ino::ROOT, &change)).unwrap();
}

/// Tickets in the tree, and entries of it.
fn in_tree(fs: &FileSystem) -> (usize, u64) {
    let (from, to) = keys::tickets();
    let mut count = 0;
    let each = &mut |_: Key, _: &[u8]| {
        count += 1;
        true
    };
    fs.core.pool.scan(0, from, to, each).unwrap();
    (count, fs.core.pool.roots().trees[0].entries)
}

/// The table would keep every request, and the tree every one that a checkpoint met.
#[test]
fn a_million_answered_requests_leave_nothing_behind() {
    const LATE: usize = 8;
    let dir = formatted(64 << 20, None);
    let fs = open(dir.path(), &[]);
    let by = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };
    let file = fs.create(Ino::ROOT, b"f", NewNode::File, by).unwrap();
    let file = fs.open(file.ino).unwrap();
    fs.write(&file, 0, &[1; 4096]).unwrap();
    fs.checkpoint().unwrap();
    let before = in_tree(&fs);
    let mut late = VecDeque::new();
    let mut met = 0;
    for sequence in 0..1_000_000u64 {
        let id = id(3, sequence);
        fs.with_request(id, || fs.write(&file, sequence % 4000, b"bytes")).unwrap();
        late.push_back(id);
        if late.len() > LATE {
            fs.acknowledge(late.pop_front().unwrap());
        }
        if sequence % 20_000 == 0 {
            fs.checkpoint().unwrap();
            let (tickets, _) = in_tree(&fs);
            assert!(tickets <= LATE + 1, "{tickets} tickets");
            met = met.max(tickets);
        }
    }
    assert!(met >= LATE, "checkpoints met requests in flight");
    late.into_iter().for_each(|id| fs.acknowledge(id));
    fs.checkpoint().unwrap();
    assert_eq!(in_tree(&fs), before);
    fs.close().unwrap();
}

#[test]
fn a_request_is_remembered_until_it_is_answered_over_checkpoints_kills_and_closes() {
    let dir = formatted(8 << 20, None);
    let (answered, late, other) = (id(1, 1), id(1, 2), id(2, 2));
    let all = [answered, late, other];
    let fs = open(dir.path(), &[]);
    all.iter().for_each(|id| serve(&fs, *id));
    fs.checkpoint().unwrap();
    assert!(all.iter().all(|id| fs.was_done(*id)));
    assert_eq!(in_tree(&fs).0, 3);
    fs.acknowledge(answered);
    drop(fs);
    // asked for again and again, through a kill without a change, and a close
    for close in [false, true, false] {
        let fs = open(dir.path(), &[late, other, id(1, 3)]);
        assert!(fs.was_done(late) && fs.was_done(other));
        assert!(!fs.was_done(answered) && !fs.was_done(id(1, 3)), "not asked for, not done");
        if close {
            fs.close().unwrap();
            assert_eq!(in_tree(&fs).0, 2, "what was answered went at the close");
        }
    }
    // the other client never comes back
    let fs = open(dir.path(), &[late]);
    assert!(fs.was_done(late) && !fs.was_done(other));
    fs.checkpoint().unwrap();
    assert_eq!(in_tree(&fs).0, 1);
    // one that the log has and one that the tree has
    serve(&fs, id(1, 9));
    fs.forget_client(2);
    assert!(fs.was_done(late) && fs.was_done(id(1, 9)));
    fs.forget_client(1);
    assert!(!fs.was_done(late) && !fs.was_done(id(1, 9)));
    fs.checkpoint().unwrap();
    assert_eq!(in_tree(&fs).0, 0);
}

/// Each of them is a value to be folded; the smallest pool's reserve holds few pages.
#[test]
fn more_requests_in_flight_than_a_checkpoint_can_fold_are_folded_by_several() {
    let dir = formatted(1 << 20, Some(256 << 10));
    let all: Vec<RequestId> = (0..4000).map(|sequence| id(5, sequence)).collect();
    let fs = open(dir.path(), &[]);
    let before = in_tree(&fs);
    all.iter().for_each(|id| serve(&fs, *id));
    drop(fs);
    let fs = open(dir.path(), &all);
    assert!(all.iter().all(|id| fs.was_done(*id)));
    assert!(fs.info().generation > 2, "checkpoints were made");
    all.iter().for_each(|id| fs.acknowledge(*id));
    fs.checkpoint().unwrap();
    assert_eq!(in_tree(&fs), before);
    fs.close().unwrap();
    drop(fs);
    let report = crate::check(dir.path()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// Folds these values as if they were tickets.
fn put(dir: &Path, values: &[(u64, Vec<u8>)]) {
    let fs = open(dir, &[]);
    let core = &fs.core;
    let value = |(number, value): &(u64, Vec<u8>)| (keys::ticket(*number), value.clone());
    let changes = values.iter().map(value).map(|(key, value)| (key, Change::Put(value))).collect();
    let closed = core.pool.close_gate();
    let cut = core.pool.cut(&closed, 1);
    drop(closed);
    core.pool.commit(cut, &[SliceBatch { changes, ..SliceBatch::default() }], &FileBlocks).unwrap();
}

#[test]
fn what_is_no_ticket_is_found_and_refused() {
    let value = encode(id(1, 1));
    let wrong = [(7, value[..23].to_vec()), (7, [&value[..], b"more"].concat())];
    for (number, value) in wrong.into_iter().chain([(NUMBER_MAX, value.clone())]) {
        let dir = formatted(8 << 20, None);
        put(dir.path(), &[(number, value)]);
        assert_eq!(crate::check(dir.path()).unwrap().findings.len(), 1);
        let asked = TakeOver::default();
        let refused = FileSystem::take_over_pool(dir.path(), &OpenOptions::default(), &asked);
        assert!(matches!(refused, Err(crate::Error::Damaged(_))), "{refused:?}");
    }
    // one request twice: one of the two goes
    let dir = formatted(8 << 20, None);
    put(dir.path(), &[(7, value.clone()), (9, value)]);
    assert_eq!(crate::check(dir.path()).unwrap().findings.len(), 1);
    let fs = open(dir.path(), &[id(1, 1)]);
    assert!(fs.was_done(id(1, 1)));
    fs.close().unwrap();
    assert_eq!(in_tree(&fs).0, 1);
}

/// Nobody says at an open which requests attached processes send again.
#[test]
fn of_each_slot_the_last_request_is_remembered_with_its_answer() {
    let dir = formatted(8 << 20, None);
    let slot = RequestId::of_slot;
    let returning = || {
        let asked = TakeOver { returning: true, ..TakeOver::default() };
        FileSystem::take_over_pool(dir.path(), &OpenOptions::default(), &asked).unwrap()
    };
    let fs = open(dir.path(), &[]);
    let by = Creation { mode: 0o644, umask: 0, uid: 0, gid: 0 };
    let make = || fs.create(Ino::ROOT, b"f", NewNode::File, by);
    let made = fs.with_request(slot(1, 0, 7), make).unwrap().ino;
    let file = fs.open(made).unwrap();
    let append = |fs: &FileSystem, id| {
        let file = fs.open(made).unwrap();
        fs.with_request(id, || fs.append(&file, b"eight by")).unwrap()
    };
    assert_eq!(append(&fs, slot(1, 1, 1)), 0);
    assert_eq!(append(&fs, slot(1, 1, 2)), 8);
    assert_eq!(append(&fs, slot(2, 1, 1)), 16);
    serve(&fs, id(9, 2));
    drop((file, fs));
    // from the log, from the tree, after a close
    for round in 0..4 {
        let fs = returning();
        assert_eq!(fs.answer_to(slot(1, 0, 7)), Some(Some(Answer::Made(made))), "round {round}");
        assert_eq!(fs.answer_to(slot(1, 1, 2)), Some(Some(Answer::At(8))));
        assert_eq!(fs.answer_to(slot(2, 1, 1)), Some(Some(Answer::At(16))));
        assert!(!fs.was_done(slot(1, 1, 1)), "a later one says that it was answered");
        assert!(!fs.was_done(id(9, 2)), "no slot's, and nobody asked");
        let mut all = fs.requests_of(1);
        all.sort();
        assert_eq!(all, [slot(1, 1, 2), slot(1, 0, 7)]);
        match round {
            1 => fs.checkpoint().unwrap(),
            2 => fs.close().unwrap(),
            _ => {}
        }
        assert_eq!(in_tree(&fs).0, 3);
    }
    let fs = returning();
    assert_eq!(append(&fs, slot(2, 1, 2)), 24);
    fs.acknowledge(slot(2, 1, 1));
    assert_eq!(fs.returning_clients(), [1, 2].into());
    fs.forget_clients(&[1, 3].into());
    assert!(!fs.was_done(slot(1, 0, 7)) && fs.was_done(slot(2, 1, 2)));
    fs.checkpoint().unwrap();
    assert_eq!(in_tree(&fs).0, 1);
    drop(fs);
    let fs = returning();
    assert_eq!(fs.answer_to(slot(2, 1, 2)), Some(Some(Answer::At(24))));
    fs.close().unwrap();
    drop(fs);
    assert!(crate::check(dir.path()).unwrap().findings.is_empty());
}
