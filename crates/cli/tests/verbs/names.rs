//! Names with blanks, newlines, bytes that are no text, and what commands a terminal.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::support::{command, each_way, ok, run};

const NAMES: [&[u8]; 5] = [b"a b", b"line\nline", b"\x1b[31mred", b"\xff\xfe", b":/ -r"];

fn words(words: &[&str], path: OsString) -> Vec<OsString> {
    words.iter().map(OsString::from).chain([path]).collect()
}

#[test]
fn any_name_works_with_every_verb() {
    each_way(|scratch| {
        std::fs::write(scratch.outside("put"), "content").unwrap();
        for name in NAMES.iter().filter(|name| !name.contains(&b'/')) {
            let path = |top: &str| {
                let bytes = [top.as_bytes(), *name].concat();
                scratch.inside(OsString::from_vec(bytes))
            };
            let copy = [OsString::from("cp"), scratch.outside("put"), path("/")];
            ok(run(copy));
            assert_eq!(ok(run(words(&["cat"], path("/")))), b"content");
            let list = ok(run(words(&["ls"], scratch.inside("/"))));
            assert_eq!(list, [name, &b"\n"[..]].concat(), "raw, for programs");
            let json = ok(run(words(&["ls", "--json"], scratch.inside("/"))));
            let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
            match std::str::from_utf8(name) {
                Ok(name) => assert_eq!(json[0]["name"], name),
                Err(_) => assert_eq!(json[0]["name_bytes"], serde_json::json!(name)),
            }
            ok(run([OsString::from("mv"), path("/"), path("/x")]));
            ok(run(words(&["stat"], path("/x"))));
            let would = ok(run(words(&["rm", "--dry-run"], path("/x"))));
            assert_eq!(would, [path("/x").as_bytes(), b"\n"].concat());
            ok(run(words(&["rm"], path("/x"))));
            ok(run(words(&["mkdir"], path("/"))));
            ok(run(words(&["rm", "-r"], path("/"))));
        }
        assert!(scratch.all().is_empty());
    });
}

#[test]
fn a_pools_name_ends_at_the_first_colon_before_a_slash() {
    each_way(|scratch| {
        scratch.ok(&["mkdir", ":/a:"]);
        scratch.put(":/a:/b", b"x");
        assert_eq!(scratch.ok(&["cat", ":/a:/b"]), "x");
    });
}

#[test]
fn a_terminal_gets_no_commands_from_names() {
    each_way(|scratch| {
        scratch.put(":/\x1b[31mred", b"x");
        let pair = nix::pty::openpty(None, None).unwrap();
        let mut listing = command(words(&["ls"], scratch.inside("/")));
        let child = listing.stdout(pair.slave.try_clone().unwrap()).spawn();
        assert!(child.unwrap().wait().unwrap().success());
        let mut failing = command(words(&["ls"], scratch.inside("/\x1b[32mgreen")));
        let child = failing.stderr(pair.slave.try_clone().unwrap()).spawn();
        assert_eq!(child.unwrap().wait().unwrap().code(), Some(1));
        // Both fit into the terminal's buffer, so that a read finds what was written.
        let mut said = Vec::new();
        let mut buffer = [0; 4096];
        while !String::from_utf8_lossy(&said).contains("green") {
            let bytes = nix::unistd::read(&pair.master, &mut buffer).unwrap();
            said.extend_from_slice(&buffer[..bytes]);
        }
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains("\\u{1b}[31mred") && said.contains("\\u{1b}[32mgreen"), "{said:?}");
        assert!(!said.contains('\x1b'), "{said:?}");
    });
}
