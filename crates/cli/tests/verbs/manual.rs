//! `man`, `completions`, `topology`, and help.

use std::process::{Command, Stdio};

use crate::support::{Scratch, ok, run};

const VERBS: [&str; 29] = [
    "format",
    "mount",
    "umount",
    "info",
    "check",
    "scrub",
    "resilver",
    "tier",
    "region",
    "df",
    "ls",
    "tree",
    "stat",
    "cat",
    "cert",
    "cp",
    "rm",
    "mv",
    "mkdir",
    "stats",
    "top",
    "topology",
    "where",
    "set",
    "completions",
    "man",
    "bench",
    "simulate",
    "version",
];

#[test]
fn every_verb_has_help_with_examples() {
    for verb in VERBS {
        let help = String::from_utf8(ok(run([verb, "--help"]))).unwrap();
        assert!(help.contains(&format!("Examples:\n  nearside {verb}")), "{help}");
    }
    let help = String::from_utf8(ok(run(["--help"]))).unwrap();
    let listed = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let listed = listed.take_while(|line| !line.is_empty()).filter(|line| !line.contains("  help"));
    let names: Vec<&str> = listed.filter_map(|line| line.split_whitespace().next()).collect();
    let missing: Vec<&&str> = VERBS.iter().filter(|verb| !names.contains(verb)).collect();
    assert!(missing.is_empty(), "{missing:?} in {help}");
}

#[test]
fn bash_takes_the_completion() {
    let script = ok(run(["completions", "bash"]));
    assert!(!String::from_utf8_lossy(&script).contains("--as-"), "what is hidden is offered");
    let mut bash = Command::new("bash");
    let tries = "source /dev/stdin && complete -p nearside && \
                 COMP_WORDS=(nearside st) COMP_CWORD=1 && _nearside nearside st nearside && \
                 echo \"${COMPREPLY[@]}\"";
    let mut child = bash
        .args(["--norc", "-c", tries])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), &script).unwrap();
    let said = String::from_utf8(ok(child.wait_with_output().unwrap())).unwrap();
    assert!(said.starts_with("complete ") && said.contains("-F _nearside nearside\n"), "{said}");
    assert!(said.ends_with("stat stats\n"), "{said}");
    for shell in ["zsh", "fish"] {
        let script = String::from_utf8(ok(run(["completions", shell]))).unwrap();
        assert!(script.contains("topology"), "{shell}");
    }
}

#[test]
fn man_reads_every_page() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("man1");
    ok(run(["man".as_ref(), "--out".as_ref(), out.as_os_str()]));
    let mut pages: Vec<String> = std::fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    for verb in VERBS {
        assert!(pages.contains(&format!("nearside-{verb}.1")), "{verb}: {pages:?}");
    }
    std::fs::write(out.join("first"), ok(run(["man"]))).unwrap();
    pages.push("first".to_owned());
    if Command::new("man").arg("--version").output().is_err() {
        return println!("skipped: man is not installed");
    }
    for page in pages {
        let mut man = Command::new("man");
        let read = man.args(["--warnings", "-E", "UTF-8", "-l"]).arg(out.join(&page));
        let read = read.env("MANWIDTH", "100").output().unwrap();
        let said = String::from_utf8_lossy(&read.stderr).into_owned();
        assert!(read.status.success() && said.is_empty(), "{page}: {said}");
        assert!(String::from_utf8_lossy(&read.stdout).contains("nearside"), "{page}");
    }
}

#[test]
fn the_machine_is_shown() {
    let scratch = Scratch::new();
    let machine = scratch.json(&["topology", "--json"]);
    let nodes = machine["nodes"].as_array().unwrap();
    assert!(!nodes.is_empty());
    for (index, node) in nodes.iter().enumerate() {
        assert!(!node["serving"].as_array().unwrap().is_empty(), "{machine}");
        assert_eq!(node["distances"].as_array().unwrap().len(), nodes.len());
        assert!(node["distances"][index].as_u64().unwrap() > 0);
    }
    let text = scratch.ok(&["topology"]);
    assert!(text.starts_with("NODE  MEMORY"), "{text}");
    let pretended = scratch.json(&["topology", "--virtual-nodes", "5", "--json"]);
    assert_eq!(pretended["nodes"].as_array().unwrap().len(), 5);
    scratch.fails(&["topology", "--virtual-nodes", "0"], 1, &["virtual nodes", "choose 1 to"]);
}

#[test]
fn a_format_can_be_tried_without_one() {
    let scratch = Scratch::new();
    let words = ["format", "@new", "--slices=2", "--size=32M", "--dry-run"];
    let text = scratch.ok(&words);
    assert!(text.contains("nothing was made") && text.contains("slice.1"), "{text}");
    let plan = scratch.json(&[&words[..], &["--json"]].concat());
    assert_eq!(plan["slices"][1]["bytes"], 32 << 20);
    assert_eq!(plan["slices"][0]["now"], "nothing");
    assert!(!scratch.root().join("new").exists());
    scratch.fails(&["format", "@new", "--size=9999T", "--dry-run"], 1, &["slice.0", "are free"]);
    scratch.fails(
        &["format", "@pool", "--size=32M", "--dry-run"],
        1,
        &["slice.", "a pool is there"],
    );
    scratch.fails(&["format", "@new", "--dry-run"], 2, &["--size"]);
}
