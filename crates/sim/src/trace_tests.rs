use super::*;

fn recorded() -> String {
    let mut text = TraceText::new(2);
    text.file(0, 8192, Some(1));
    text.call([100, 50], (77, 0), Kind::Read, (0, 0, 4096));
    text.file(1, 0, None);
    text.call([120, 10], (5, 1), Kind::Write, (1, 0, 100));
    text.call([200, 10], (77, 1), Kind::Read, (0, 6000, 4096));
    text.end(3)
}

#[test]
fn what_is_written_is_read() {
    let trace = Trace::parse(&recorded()).unwrap();
    assert_eq!((trace.nodes, trace.lost, trace.calls(), trace.longest()), (2, 3, 3, 4096));
    // as long as calls say, where that is longer
    let files = [(10_096, Some(1)), (100, None)];
    assert_eq!(trace.files, files.map(|(bytes, node)| TracedFile { bytes, node }));
    let call = |thinks_ns, kind, file, at, bytes| TracedCall { thinks_ns, kind, file, at, bytes };
    let threads = [
        (0, vec![call(0.0, Kind::Read, 0, 0, 4096), call(50.0, Kind::Read, 0, 6000, 4096)], 0.0),
        (1, vec![call(20.0, Kind::Write, 1, 0, 100)], 80.0),
    ];
    let thread = |(node, calls, rests_ns)| TracedThread { node, calls, rests_ns };
    assert_eq!((trace.span_ns, trace.threads), (110.0, threads.map(thread).into()));
}

#[test]
fn what_makes_no_sense_is_said_with_its_line_and_field() {
    let fine = recorded();
    for (from, to, says) in [
        ("nearside trace 1", "nearside trace 2", "line 1, head: this is no recording"),
        ("nodes 2", "nodes 0", "line 2, nodes: a machine has one"),
        ("nodes 2", "nodes 1025", "line 2, nodes: \"1025\" is no number from 0 to 1024"),
        ("nodes 2", "threads 2", "line 2, nodes: \"threads\" comes before"),
        ("file 0 8192 1", "file 1 8192 1", "line 3, file: 1 comes where 0 is next"),
        ("file 0 8192 1", "file 0 -1 1", "line 3, bytes of the file: \"-1\" is no number"),
        ("file 0 8192 1", "file 0 8192 2", "line 3, node: \"2\" is no node of 2"),
        ("file 0 8192 1", "file 0 8192", "line 3, node: it is missing"),
        ("file 0 8192 1", "file 0 8192 1 7", "line 3, end of line: \"7\" is too much"),
        ("call 100 50 77 0", "call 100 50 77 2", "line 4, node: \"2\" is no node"),
        ("call 100 50 77 0", "call 1e9 50 77 0", "line 4, began: \"1e9\" is no number"),
        ("read 0 0 4096", "move 0 0 4096", "line 4, kind: \"move\" is neither"),
        ("read 0 0 4096", "read 1 0 4096", "line 4, file: there is no file 1"),
        ("read 0 0 4096", "read 0 0 0", "line 4, bytes: a call has one at least"),
        ("read 0 0 4096", "read 0 0 1073741825", "line 4, bytes: \"1073741825\" is no number"),
        ("read 0 0 4096", "read 0 1125899906842624 4096", "line 4, where: a file has"),
        ("call 120 10", "call 99 10", "line 6, began: 99 is before the call before it, 100"),
        ("end 3 3", "end 4 3", "line 8, calls: it says 4, and there are 3"),
        ("end 3 3", "", "line 8, line: it is missing"),
        ("end 3 3\n", "", "line 7, end: it is not there"),
        ("end 3 3\n", "end 3 3\nend 3 3\n", "line 9, line: it comes after the end"),
        ("call 100", "note 100", "line 4, line: \"note\" is no file, call or end"),
    ] {
        assert!(fine.contains(from), "{from}");
        let said = Trace::parse(&fine.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(said.starts_with(says), "{to}: {said}");
    }
    assert!(Trace::parse("").unwrap_err().to_string().contains("cut off"));
    let none = TraceText::new(1).end(0);
    assert!(Trace::parse(&none).unwrap_err().to_string().contains("there is no call"));
}

/// Whatever is cut off, it is no recording any more.
#[test]
fn what_is_cut_off_is_no_recording() {
    let fine = recorded();
    let last = fine.rfind("end").unwrap();
    for end in 0..last + "end 3 3".len() {
        let cut = &fine[..end];
        assert!(Trace::parse(cut).is_err(), "{cut:?}");
    }
}
