//! Runs beside what is known of them: by arithmetic, and of the engine on emulated machines.

use super::*;
use crate::system::Rule;
use crate::system::{Layout, Moves};
use crate::trace::{Trace, TraceText};
use crate::workload::{Made, Step};
use crate::{KNOWN, parse};
use placement::{Class, Curve, DataRule, Machine, MachineAccess};
use std::sync::Arc;

/// A node moves 1000 MiB/s, and each thread half of that.
fn simple(nodes: u32) -> Machine {
    let points = vec![(1, 500.0), (2, 1000.0), (64, 1000.0)];
    let local = Curve::new(vec![Class { bytes: 4096, points }]).unwrap();
    let access = MachineAccess { local, remote_factor: 0.5, latency_ns: [0.0, 0.0] };
    Machine {
        name: "simple".to_owned(),
        source: String::new(),
        nodes,
        cpus: 4,
        granule_bytes: 64,
        hand_off_ns: 0.0,
        move_thread_ns: 1000.0,
        link: f64::INFINITY,
        directory: 0.0,
        read: access.clone(),
        write: access,
    }
}

fn bare(layout: Layout) -> System {
    System { layout, ..System::default() }
}

fn setting(machine: Machine, system: System, workload: Workload) -> Setting {
    Setting { machine, system, workload, others: Vec::new(), seed: 1, time: [1e6, 1e8] }
}

fn near(found: f64, wanted: f64) {
    assert!((found / wanted - 1.0).abs() < 0.01, "{found} is not {wanted}");
}

#[test]
fn callers_share_what_a_node_moves() {
    for (threads, rate) in [(1, 500.0), (2, 1000.0), (4, 1000.0)] {
        let workload = Workload::fio(Kind::Read, 64 << 10, threads);
        let outcome = run(&setting(simple(2), bare(Layout::One), workload)).unwrap();
        near(outcome.rate(), rate);
        near(outcome.latency.mean(), f64::from(threads) * 0.0625 / rate * 1e9);
        assert_eq!((outcome.remote_part(), outcome.nodes[1]), (0.0, NodeOutcome::default()));
    }
}

#[test]
fn who_runs_elsewhere_gets_less_and_is_counted() {
    let far = Workload { threads: 8, is_spread: true, ..Workload::fio(Kind::Write, 4096, 8) };
    let outcome = run(&setting(simple(2), bare(Layout::One), far.clone())).unwrap();
    // each of eight has an eighth, and half of them half of that
    near(outcome.rate(), 750.0);
    near(outcome.remote_part(), 1.0 / 3.0);
    let outcome = run(&setting(simple(2), bare(Layout::Near), far)).unwrap();
    near(outcome.rate(), 2000.0);
    assert_eq!(outcome.remote_part(), 0.0);
}

#[test]
fn workers_copy_the_stripes_of_one_call_at_once() {
    let workload = Workload::fio(Kind::Read, 1 << 20, 1);
    let striped = System {
        rule: Rule::Fixed(Policy {
            read: placement::Side { delegate_remote: 1, delegate_local: 1, ..Default::default() },
            ..Policy::default()
        }),
        workers: Some(2),
        piece_bytes: Some(32 << 10),
        ..bare(Layout::Stripe(32 << 10))
    };
    let outcome = run(&setting(simple(4), striped, workload)).unwrap();
    near(outcome.rate(), 4000.0);
    assert!(outcome.nodes.iter().all(|node| node.workers > 0 && node.local + node.remote == 0));
}

#[test]
fn what_only_one_may_do_is_done_one_after_the_other() {
    let system = System { call_ns: [0.0, 300.0], serial_ns: [0.0, 1000.0], ..bare(Layout::Near) };
    let outcome = run(&setting(simple(2), system, Workload::fio(Kind::Write, 64, 8))).unwrap();
    near(outcome.latency.calls() as f64, 1e5);
}

#[test]
fn threads_go_to_their_data_where_the_rule_says_so() {
    let fio = Workload::fio(Kind::Read, 4096, 2);
    let beside = Workload { made: Made::Beside, on_nodes: 1, ..fio };
    let on = |name: &str| System { call_ns: [0.0; 2], ..System::known(name).unwrap() };
    let of = |system: System, workload: &Workload| {
        let outcome = run(&setting(simple(2), system, workload.clone())).unwrap();
        (outcome.rate(), outcome.remote_part(), outcome.nodes[1].local > 0)
    };
    let (rate, remote, _) = of(on("nova"), &beside);
    near(rate, 500.0);
    assert_eq!(remote, 1.0);
    for name in ["jericho", "nthread", "nearside"] {
        let system = System { layout: Layout::Near, rule: Rule::Callers, ..on(name) };
        let (rate, remote, is_there) = of(system, &beside);
        near(rate, 1000.0);
        assert!(remote == 0.0 && is_there, "{name}: {remote}");
    }
    // a program that keeps them where they are has its way
    let (_, remote, _) = of(on("jericho"), &Workload { is_pinned: true, ..beside.clone() });
    assert_eq!(remote, 1.0);
    // nobody goes to where all CPUs are in use, but Jericho
    let mut crowded = setting(simple(2), on("nthread"), beside);
    let there = Workload { from_node: 1, is_pinned: true, ..Workload::fio(Kind::Read, 4096, 4) };
    crowded.others = vec![there];
    let stays = run(&crowded).unwrap();
    assert!(stays.nodes[1].remote > 0 && stays.thread_moves == 0);
    crowded.system = on("jericho");
    crowded.time[0] = 0.0;
    let goes = run(&crowded).unwrap();
    assert!(goes.nodes[1].remote == 0 && goes.thread_moves == 2, "{goes:?}");
}

#[test]
fn data_comes_to_its_readers_from_an_overloaded_memory() {
    let steps = vec![Step::Whole(Kind::Read, 64 << 10)];
    let reads = Workload {
        steps,
        files: 40,
        file_bytes: 64 << 10,
        made: Made::On(0),
        from_node: 1,
        on_nodes: 1,
        ..Workload::fio(Kind::Read, 1, 2)
    };
    let others = Workload { is_pinned: true, on_nodes: 1, ..Workload::fio(Kind::Read, 4096, 4) };
    for name in ["dragonfly", "nearside"] {
        let system = System { layout: Layout::Near, ..System::known(name).unwrap() };
        let mut busy = setting(simple(2), system, reads.clone());
        (busy.others, busy.time) = (vec![others.clone()], [0.0, 5e8]);
        let outcome = run(&busy).unwrap();
        // most of it, once, and then it is read where it is
        assert_eq!(outcome.moved_bytes >> 16, 40, "{name}");
        assert!(
            outcome.nodes[1].local > 4 * outcome.nodes[0].remote,
            "{name}: {:?}",
            outcome.nodes
        );
        // what is made anew is where its maker is, and who writes meanwhile wins
        busy.workload.steps = vec![Step::Whole(Kind::Read, 64 << 10), Step::Make(64 << 10)];
        let outcome = run(&busy).unwrap();
        assert!(outcome.moved_bytes >> 16 <= 40, "{name}: {}", outcome.moved_bytes);
    }
    let still = System { moves: Moves::None, ..System::known("nearside").unwrap() };
    assert_eq!(run(&setting(simple(2), still, reads)).unwrap().moved_bytes, 0);
}

#[test]
fn who_has_no_cpu_waits_for_one() {
    let system = System { call_ns: [1e4; 2], ..bare(Layout::Near) };
    let calls = |threads| {
        let workload = Workload { on_nodes: 1, ..Workload::fio(Kind::Read, 64, threads) };
        run(&setting(simple(2), system.clone(), workload)).unwrap().latency.calls() as f64
    };
    near(calls(4), 4.0 * calls(1));
    near(calls(12), calls(4));
}

#[test]
fn a_link_is_shared_by_all_from_elsewhere() {
    let far = Workload { made: Made::On(0), is_spread: true, ..Workload::fio(Kind::Read, 4096, 3) };
    let machine = Machine { link: 100.0, ..simple(3) };
    let outcome = run(&setting(machine, bare(Layout::Near), far)).unwrap();
    // one who is there gets its third, the others share the link
    near(outcome.rate(), 1000.0 / 3.0 + 100.0);
    near(outcome.nodes[0].remote as f64, outcome.nodes[0].local as f64 * 0.3);
}

#[test]
fn the_same_seed_has_the_same_outcome_and_another_one_has_not() {
    let machine = parse(KNOWN[0].1).unwrap();
    let system = System::known("nearside").unwrap();
    let setting = setting(machine, system, Workload::fio(Kind::Write, 4096, 40));
    let first = run(&setting).unwrap();
    assert_eq!(first, run(&setting).unwrap());
    assert_ne!(first, run(&Setting { seed: 2, ..setting }).unwrap());
}

#[test]
fn nonsense_is_refused_in_words() {
    let fine = setting(simple(2), bare(Layout::One), Workload::fio(Kind::Read, 4096, 1));
    let refused = |change: &dyn Fn(&mut Setting)| {
        let mut setting = fine.clone();
        change(&mut setting);
        run(&setting).unwrap_err().to_string()
    };
    assert!(refused(&|it| it.workload.threads = 0).contains("threads"));
    assert!(
        refused(&|it| it.workload.steps = vec![Step::Round(Kind::Read, 0)]).contains("a call has")
    );
    assert!(refused(&|it| it.workload.steps = vec![Step::Append(1 << 40)]).contains("a call has"));
    assert!(refused(&|it| it.workload.file_bytes = 1).contains("a file"));
    assert!(refused(&|it| it.machine.nodes = 0).contains("nodes"));
    assert!(refused(&|it| it.system.layout = Layout::Stripe(0)).contains("stripe"));
    assert!(refused(&|it| it.time[1] = f64::NAN).contains("time"));
    assert!(refused(&|it| it.time[0] = -1.0).contains("time"));
}

/// What the engine did on machines that are emulated, MiB/s (docs/performance.md, "On emulated
/// machines"), within a tenth. A call takes no time there: only the memory is played.
#[test]
fn the_engine_on_emulated_machines_is_predicted() {
    let machine = |known: usize, nodes: u32| Machine { nodes, ..parse(KNOWN[known].1).unwrap() };
    // threads and data stay where they are there
    let (call_ns, moves) = ([0.0; 2], Moves::None);
    let engine = System { call_ns, moves, ..System::known("nearside").unwrap() };
    let near_by = System { layout: Layout::Near, ..engine.clone() };
    let unlimited = System { rule: Rule::Callers, workers: Some(0), ..near_by.clone() };
    let odinfs =
        System { rule: System::known("odinfs").unwrap().rule, workers: Some(12), ..engine.clone() };
    let calls = |kind, bytes, threads| Workload {
        on_nodes: 1,
        file_bytes: 8 << 20,
        ..Workload::fio(kind, bytes, threads)
    };
    let spread = |workload: Workload, on_nodes| Workload { on_nodes, is_spread: true, ..workload };
    use Kind::{Read, Write};
    let (large, crowd, block) = (2 << 20, 64 << 10, 4 << 10);
    let all = |kind| spread(calls(kind, large, 32), 8);
    let blocks = |threads| spread(calls(Write, block, threads), 2);
    let cases = [
        ("write_nodes", machine(0, 4), &engine, calls(Write, large, 1), 29_289.0),
        ("write_nodes, on one", machine(0, 1), &engine, calls(Write, large, 1), 7_563.0),
        ("read_nodes", machine(0, 4), &engine, calls(Read, large, 1), 87_119.0),
        ("read_nodes, on one", machine(0, 1), &engine, calls(Read, large, 1), 23_905.0),
        ("write_crowd of 16", machine(0, 1), &near_by, calls(Write, crowd, 16), 7_590.0),
        ("write_crowd of 64", machine(0, 1), &near_by, calls(Write, crowd, 64), 7_590.0),
        (
            "the same without limits, 16",
            machine(0, 1),
            &unlimited,
            calls(Write, crowd, 16),
            5_850.0,
        ),
        (
            "the same without limits, 64",
            machine(0, 1),
            &unlimited,
            calls(Write, crowd, 64),
            4_335.0,
        ),
        ("read_crowd of 32", machine(0, 1), &near_by, calls(Read, crowd, 32), 24_500.0),
        ("write_all", machine(1, 8), &engine, all(Write), 60_600.0),
        ("read_all", machine(1, 8), &engine, all(Read), 198_700.0),
        ("blocks_32", machine(0, 2), &engine, blocks(32), 12_100.0),
        ("blocks_32 as OdinFS", machine(0, 2), &odinfs, blocks(32), 10_960.0),
        ("blocks_1", machine(0, 2), &engine, blocks(1), 1_719.0),
        ("blocks_1 as OdinFS", machine(0, 2), &odinfs, blocks(1), 1_474.0),
    ];
    let mut wrong = Vec::new();
    for (name, machine, system, workload, measured) in cases {
        let found = run(&setting(machine, system.clone(), workload)).unwrap().rate();
        println!("{name}: {found:.0} MiB/s, measured {measured}: {:.3}", found / measured);
        if (found / measured - 1.0).abs() > 0.1 {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// A recording of threads that read as a workload says, one call after the other.
fn recording((threads, node): (u32, u32), bytes: u64, pause: u64) -> Arc<Trace> {
    let mut text = TraceText::new(2);
    (0..threads).for_each(|thread| text.file(thread as usize, 64 * bytes, Some(0)));
    for call in 0..64 {
        for thread in 0..threads {
            let whose = (u64::from(thread), node);
            let what = (thread as usize, call * bytes, bytes);
            text.call([call * (1000 + pause), 1000], whose, Kind::Read, what);
        }
    }
    Arc::new(Trace::parse(&text.end(0)).unwrap())
}

#[test]
fn what_was_recorded_is_played_as_what_was_asked_for() {
    for node in [0, 1] {
        let made = Made::On(0);
        let fio = Workload { file_bytes: 4 << 20, ..Workload::fio(Kind::Read, 64 << 10, 4) };
        let asked = Workload { from_node: node, made, ..fio };
        let asked = run(&setting(simple(2), bare(Layout::Near), asked)).unwrap();
        let played = Workload::traced(recording((4, node), 64 << 10, 0));
        let played = run(&setting(simple(2), bare(Layout::Near), played)).unwrap();
        near(played.rate(), asked.rate());
        assert_eq!((played.remote_part(), asked.remote_part()), (f64::from(node), f64::from(node)));
    }
    // who pauses for as long as a call takes moves half as much
    let call = 64.0 / 1024.0 / 500.0 * 1e9;
    let paused = Workload::traced(recording((1, 0), 64 << 10, call as u64));
    near(run(&setting(simple(2), bare(Layout::Near), paused)).unwrap().rate(), 250.0);
}

/// Who waits between calls keeps neither a CPU nor a lock from others.
#[test]
fn who_rests_is_in_nobodys_way() {
    let rests = 1_000_000;
    let one = run(&setting(
        simple(2),
        bare(Layout::Near),
        Workload::traced(recording((1, 0), 4096, rests)),
    ));
    let locked = System { serial_ns: [100.0; 2], ..bare(Layout::Near) };
    let many = run(&setting(simple(2), locked, Workload::traced(recording((64, 0), 4096, rests))));
    // four CPUs
    let (one, many) = (one.unwrap().rate(), many.unwrap().rate());
    assert!(many > 60.0 * one && many < 65.0 * one, "{many} and {one}");
}

#[test]
fn recorded_files_of_any_length_move_as_wholes() {
    let mut text = TraceText::new(2);
    for (file, bytes) in [0, 10 << 20, 0, 4096, 3 << 20].into_iter().enumerate() {
        text.file(file, bytes, Some(0));
    }
    for call in 0..100 {
        text.call([call, 0], (1, 1), Kind::Read, (4, (call % 48) << 16, 64 << 10));
    }
    let trace = Arc::new(Trace::parse(&text.end(0)).unwrap());
    let rule = DataRule::weighs(placement::WINDOW_NS);
    let moves = Moves::Fixed(None, Some(rule));
    let system = System { moves, ..bare(Layout::Near) };
    let outcome = run(&setting(simple(2), system, Workload::traced(trace))).unwrap();
    // two units of 2 MiB, of which the last is half of one
    assert_eq!(outcome.moved_bytes, 3 << 20);
    assert!(outcome.nodes[1].local > outcome.nodes[0].remote, "{outcome:?}");
}
