//! `stats` and the metrics: what is counted is what was done.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::support::{SOON, Scratch, binary, command};

fn call<'a>(sample: &'a Value, name: &str) -> &'a Value {
    let calls = sample["calls"].as_array().unwrap();
    calls.iter().find(|call| call["call"] == name).unwrap_or(&Value::Null)
}

fn number(call: &Value, key: &str) -> u64 {
    call[key].as_u64().unwrap_or(0)
}

#[test]
fn calls_and_checkpoints_are_counted() {
    let Some(scratch) = Scratch::mounted() else { return };
    let (pool, mnt) = (scratch.pool(), scratch.mnt().display().to_string());
    let stats = || scratch.json(&["stats", &mnt, "--json"]);
    let before = stats();
    let file = scratch.mnt().join("file");
    std::fs::write(&file, binary(3 << 20)).unwrap();
    for n in 0..7 {
        std::fs::create_dir(scratch.mnt().join(format!("dir{n}"))).unwrap();
    }
    let not_empty = std::fs::create_dir(scratch.mnt().join("dir0/x"))
        .and_then(|()| std::fs::remove_dir(scratch.mnt().join("dir0")));
    assert!(not_empty.is_err());
    scratch.ok(&["check", &pool.display().to_string()]);
    let after = scratch.json(&["stats", &pool.display().to_string(), "--json"]);
    let more = |name, key| number(call(&after, name), key) - number(call(&before, name), key);
    assert_eq!(more("write", "bytes"), 3 << 20);
    assert_eq!(more("write", "count"), 3);
    assert_eq!(more("mkdir", "count"), 8);
    assert_eq!((more("rmdir", "count"), more("rmdir", "errors")), (1, 1));
    let buckets = call(&after, "mkdir")["buckets"].as_array().unwrap().clone();
    let in_buckets: u64 = buckets.iter().map(|pair| pair[1].as_u64().unwrap()).sum();
    assert_eq!(in_buckets, number(call(&after, "mkdir"), "count"));
    // The check has made one.
    let checkpoints = |sample: &Value| sample["checkpoints"]["count"].as_u64().unwrap();
    assert!(checkpoints(&after) > checkpoints(&before), "{after}");
    assert!(after["checkpoints"]["age_seconds"].as_f64().is_some());
    let slices = |sample: &Value| sample["slices"].as_array().unwrap().clone();
    let written = |sample: &Value| -> u64 {
        slices(sample).iter().map(|slice| number(slice, "log_written_bytes")).sum()
    };
    assert!(written(&after) > written(&before));
    for name in ["write", "mkdir", "rmdir"] {
        for key in ["count", "errors", "bytes"] {
            let of_slices: u64 = slices(&after).iter().map(|it| number(call(it, name), key)).sum();
            assert_eq!(of_slices, number(call(&after, name), key), "{name} {key}: {after}");
        }
    }
    for key in ["map_bytes", "entry_bytes", "page_bytes", "inodes"] {
        let of_slices: u64 = slices(&after).iter().map(|it| number(&it["cache"], key)).sum();
        assert_eq!(of_slices, number(&after["cache"], key), "{key}: {after}");
        // Entries are counted when they were folded.
        assert!(of_slices > 0 || key == "entry_bytes", "{key}: {after}");
    }
    assert_eq!(after["process"], scratch.server().as_raw());
    let info = scratch.json(&["info", &mnt, "--json"]);
    let each = info["bytes_per_user_byte"].as_f64().unwrap();
    assert!((1.0..1.5).contains(&each), "{info}");
    for verb in ["info", "stats"] {
        let text = scratch.ok(&[verb, &mnt]);
        assert!(text.contains(" PM bytes per user byte\n"), "{text}");
    }
    scratch.umount();
    let pool = pool.display().to_string();
    let info = scratch.json(&["info", &pool, "--json"]);
    assert_eq!(info["bytes_per_user_byte"], Value::Null, "nobody has written since");
}

#[test]
fn looks_are_repeated_as_often_as_asked() {
    let Some(scratch) = Scratch::mounted() else { return };
    let mnt = scratch.mnt().display().to_string();
    let lines = scratch.ok(&["stats", &mnt, "--every", "1", "--count", "2", "--json"]);
    let samples: Vec<Value> = lines.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(samples.len(), 2);
    let seconds = |at: usize| samples[at]["serving_seconds"].as_f64().unwrap();
    assert!(seconds(1) - seconds(0) >= 0.9, "{lines}");
    let text = scratch.ok(&["stats", &mnt]);
    for word in ["CALL", "P99", "SLICE", "checkpoints", "caches"] {
        assert!(text.contains(word), "no {word} in {text}");
    }
    // A reader that goes away ends it.
    let mut endless =
        command(["stats", &mnt, "--every", "1"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 16];
    endless.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert!(endless.wait().unwrap().success());
    let top = scratch.run(&["top", &mnt]);
    assert!(top.status.success(), "{top:?}");
    assert!(String::from_utf8_lossy(&top.stderr).contains("no terminal"), "{top:?}");
    assert!(String::from_utf8_lossy(&top.stdout).contains("CALL"), "{top:?}");
    scratch.umount();
    for verb in ["stats", "top"] {
        scratch.fails(&[verb, &mnt], 1, &["no pool in use"]);
        scratch.fails(&[verb, &mnt, "--every", "0"], 2, &["--every"]);
    }
}

fn asked(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    // The server may have heard enough before the end.
    let _ = stream.write_all(request);
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    String::from_utf8(said).unwrap()
}

#[test]
fn prometheus_reads_the_metrics() {
    let Some(scratch) = Scratch::mounted_with(&["--metrics=127.0.0.1:0"]) else { return };
    let address = scratch.http_address();
    std::fs::write(scratch.mnt().join("file"), binary(2 << 20)).unwrap();
    let metrics = || asked(address, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    // a call is counted when it has been answered
    let late = Instant::now() + SOON;
    let mut page = metrics();
    while !page.contains("{call=\"write\"} 2097152\n") && Instant::now() < late {
        page = metrics();
    }
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    assert!(body.contains("nearside_call_bytes_total{call=\"write\"} 2097152\n"), "{body}");
    assert!(body.contains("nearside_log_used_bytes{slice=\"1\"} "), "{body}");
    let said = asked(address, b"GET /sample.json HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let sample: Value = serde_json::from_str(said.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(sample["process"], scratch.server().as_raw());
    assert_eq!(number(call(&sample, "write"), "bytes"), 2 << 20);
    let bytes = binary(100_000);
    let idle: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
    for (request, status) in [
        (b"GET /other HTTP/1.1\r\n\r\n".as_slice(), "404"),
        (b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
        (b"PUT /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"nonsense\r\n\r\n", "400"),
    ] {
        let said = asked(address, request);
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{said}");
    }
    let said = asked(address, &bytes);
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{said}");
    assert!(asked(address, b"GET /metrics HTTP/1.0\r\n\r\n").contains("nearside_info"));
    drop(idle);
    if let Ok(mut check) = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
    {
        check.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
        assert!(check.wait().unwrap().success());
    } else {
        println!("not checked by promtool: it is not installed");
    }
    scratch.umount();
}

#[test]
fn a_port_that_is_taken_fails_the_mount() {
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.umount();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (pool, mnt) = (scratch.pool().display().to_string(), scratch.mnt().display().to_string());
    scratch.fails(&["mount", &pool, &mnt, "--http", &address], 1, &["--http", &address]);
    assert!(nearside_fuse::mounts::at(scratch.mnt()).unwrap().is_none());
    scratch.check();
}
