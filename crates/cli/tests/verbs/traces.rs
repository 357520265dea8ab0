//! `trace`: the calls on a pool in use, which `simulate` plays.

use nearside::{OpenFlags, Pool};

use crate::support::{Scratch, command, ok, run};

/// A process that ends with the test.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn calls_on_a_pool_in_use_are_recorded_and_played() {
    let scratch = Scratch::new();
    scratch.fails(&["trace", "@pool"], 1, &["no pool in use"]);
    scratch.serve(&[]);
    // others that ask the server need no mount either
    assert_eq!(scratch.json(&["stats", "@pool", "--json"])["slices"].as_array().unwrap().len(), 2);
    scratch.fails(&["trace", "@pool", "--seconds", "1"], 1, &["nobody read or wrote"]);
    let (pool, out) = (Pool::attach(scratch.pool()).unwrap(), scratch.outside("calls"));
    // Longer than what attached processes read and write by themselves; and as long at every
    // moment, for the end of the recording may come at any.
    let mut bytes = vec![7; 300_000];
    pool.write("/file", &bytes).unwrap();
    let file = pool.open_file("/file", &OpenFlags::new().read(true).write(true)).unwrap();
    let dir = scratch.pool();
    let words = ["trace", dir.to_str().unwrap(), "--seconds", "300", "--calls", "50", "--out"];
    let words = words.map(Into::into).into_iter().chain([out.clone()]);
    let mut recording = Child(command(words).spawn().unwrap());
    while recording.0.try_wait().unwrap().is_none() {
        file.write_all_at(&bytes, 0).unwrap();
        file.read_exact_at(&mut bytes, 0).unwrap();
    }
    assert!(recording.0.wait().unwrap().success());
    let text = std::fs::read_to_string(&out).unwrap();
    let nodes = text.lines().nth(1).unwrap();
    assert!(text.starts_with("nearside trace 1\nnodes "), "{text}");
    assert!(text.contains(&format!("{nodes}\nfile 0 300000 ")), "{text}");
    assert!(text.contains(" read ") && text.contains(" write "), "{text}");
    let out = out.to_str().unwrap();
    let said = ok(run(["simulate", "--trace", out, "--machine", "optane-2-sockets"]));
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains(" of 1 threads about 1 files; 0 more"), "{said}");
    assert!(said.contains(": 50 recorded calls in "), "{said}");
    // all of it, and more where calls take less time than they did
    for system in ["nearside", "ext4-dax"] {
        let line = said.lines().find(|line| line.starts_with(system)).unwrap();
        let calls: u32 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(calls >= 45, "{said}");
    }
    scratch.ok(&["stop", "@pool"]);
    scratch.check();

    let cut = scratch.outside("cut");
    for (text, says) in [
        (text[..text.len() - 5].to_owned(), "line 54, calls: it is missing"),
        (text.replace(nodes, "nodes 9"), "it has 9 nodes, and eight sockets of Optane 8"),
        (text.replace(" read ", " raed "), ", kind: \"raed\" is neither read nor write"),
    ] {
        std::fs::write(&cut, text).unwrap();
        let failed = run(["simulate", "--trace", cut.to_str().unwrap()]);
        let said = String::from_utf8(failed.stderr).unwrap();
        assert!(failed.status.code() == Some(1) && said.contains(says), "{said}");
    }
    let failed = run(["simulate", "--trace", "/nowhere"]);
    assert_eq!(failed.status.code(), Some(1));
}
