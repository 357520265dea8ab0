//! The command line: what it prints, what it refuses, what it exits with.

use std::process::{Command, Output};

use crate::support::Scratch;

fn nearside(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nearside")).args(args).output().unwrap()
}

/// It failed with `code` and said so, naming `words`.
fn assert_fails(output: &Output, code: i32, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "no \"{word}\" in: {said}");
    }
    if code == 1 {
        assert!(said.starts_with("nearside: "), "{said}");
    }
}

#[test]
fn help_shows_examples_and_wrong_usage_exits_2() {
    let help = nearside(&["--help"]);
    assert!(help.status.success());
    assert!(String::from_utf8_lossy(&help.stdout).contains("Examples:"));
    assert!(String::from_utf8_lossy(&nearside(&["mount", "--help"]).stdout).contains("Examples:"));
    assert_fails(&nearside(&[]), 2, &["Usage"]);
    assert_fails(&nearside(&["format"]), 2, &["POOL"]);
    assert_fails(&nearside(&["format", "p", "--size", "lots"]), 2, &["lots", "64M"]);
    assert_fails(&nearside(&["format", "p"]), 2, &["--size"]);
    let lines = ["format", "p", "--size", "64M", "--log-line", "128"];
    assert_fails(&nearside(&lines), 2, &["--log-line", "64 or 256 bytes"]);
    assert_fails(&nearside(&["frobnicate"]), 2, &["frobnicate"]);
}

#[test]
fn what_is_not_there_is_named() {
    let root = tempfile::tempdir().unwrap();
    let nowhere = root.path().join("nowhere").display().to_string();
    let empty = root.path().display().to_string();
    assert_fails(&nearside(&["info", &nowhere]), 1, &[&nowhere]);
    assert_fails(&nearside(&["info", &empty]), 1, &[&empty]);
    assert_fails(&nearside(&["check", &nowhere]), 2, &[&nowhere]);
    assert_fails(&nearside(&["check", &empty]), 2, &[&empty]);
    assert_fails(&nearside(&["mount", &nowhere, &empty]), 1, &[&nowhere]);
    assert_fails(&nearside(&["umount", &empty]), 1, &["no Nearside pool is mounted"]);
    assert_fails(&nearside(&["umount", &nowhere]), 1, &["no Nearside pool is mounted"]);
}

#[test]
fn the_lines_of_a_log_are_those_that_format_was_asked_for() {
    let root = tempfile::tempdir().unwrap();
    for (option, bytes, shown) in
        [("", 64, "64 B"), ("--log-line=256", 256, "256 B"), ("--log-line=64", 64, "64 B")]
    {
        let pool = root.path().join(format!("pool{option}")).display().to_string();
        let mut format = vec!["format", &pool, "--size=4M", "--slices=2"];
        format.extend(Some(option).filter(|option| !option.is_empty()));
        assert!(nearside(&format).status.success());
        let said = nearside(&["info", &pool, "--json"]).stdout;
        let info: serde_json::Value = serde_json::from_slice(&said).unwrap();
        for slice in info["slices"].as_array().unwrap() {
            assert_eq!(slice["log_line_bytes"], bytes, "{option}");
        }
        let said = String::from_utf8(nearside(&["info", &pool]).stdout).unwrap();
        let row = said.lines().skip_while(|line| !line.contains("LINE")).nth(1).unwrap();
        assert!(row.contains(shown), "{said}");
    }
}

#[test]
fn info_and_check_speak_json() {
    let Some(scratch) = Scratch::formatted() else { return };
    let pool = scratch.pool();
    let json = |verb: &str| -> serde_json::Value {
        serde_json::from_str(&scratch.run_ok([verb.as_ref(), pool.as_os_str(), "--json".as_ref()]))
            .unwrap()
    };
    let info = json("info");
    assert_eq!(info["domain"], "process");
    assert_eq!(info["slices"].as_array().unwrap().len(), 2);
    assert!(info["free_bytes"].as_u64().unwrap() > 0);
    let check = json("check");
    assert_eq!(check["clean"], true);
    assert!(scratch.run_ok(["info".as_ref(), pool.as_os_str()]).contains("SLICE"));
    let again = scratch.run(["format".as_ref(), pool.as_os_str(), "--size=96M".as_ref()]);
    assert_fails(&again, 1, &[&pool.display().to_string()]);
}

#[test]
fn a_pool_in_use_is_refused() {
    let Some(scratch) = Scratch::mounted() else { return };
    let (pool, mnt) = (scratch.pool(), scratch.mnt());
    let server = scratch.keeper().to_string();
    let other = scratch.root().join("other");
    std::fs::create_dir(&other).unwrap();
    let mount =
        |dir: &std::path::Path| scratch.run(["mount".as_ref(), pool.as_os_str(), dir.as_os_str()]);
    assert_fails(&mount(&other), 1, &[&server, "umount"]);
    assert_fails(&mount(&mnt), 1, &["mounted here"]);
    // What only asks, and what works on files, goes by the server.
    for verb in ["info", "df", "check"] {
        scratch.run_ok([verb.as_ref(), pool.as_os_str()]);
    }
    let root = format!("{}:/", pool.display());
    scratch.run_ok(["mkdir", &format!("{root}dir")]);
    assert_eq!(scratch.run_ok(["ls", &root]), "dir\n");
    let format = scratch.run(["format".as_ref(), pool.as_os_str(), "--size=96M".as_ref()]);
    assert_fails(&format, 1, &[]);
    scratch.finish();
}

#[test]
fn bad_mount_points_are_refused_and_nothing_is_left() {
    let Some(scratch) = Scratch::formatted() else { return };
    let pool = scratch.pool();
    std::fs::write(scratch.root().join("file"), "").unwrap();
    std::fs::create_dir_all(scratch.root().join("full/x")).unwrap();
    std::fs::create_dir(pool.join("inside")).unwrap();
    let cases = [
        ("missing", "No such file"),
        ("file", "not a directory"),
        ("full", "not empty"),
        ("pool/inside", "own directory"),
        (".", "hide"),
    ];
    for (dir, word) in cases {
        let dir = scratch.root().join(dir);
        let output = scratch.run(["mount".as_ref(), pool.as_os_str(), dir.as_os_str()]);
        assert_fails(&output, 1, &[word]);
    }
    assert!(!pool.join("nearside.pid").exists());
    scratch.mount();
    scratch.finish();
}

#[test]
fn the_log_says_as_much_as_was_asked_for() {
    let Some(scratch) = Scratch::formatted() else { return };
    let mount = |level: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nearside"));
        command.arg("mount").arg(scratch.pool()).arg(scratch.mnt());
        command.env("NEARSIDE_LOG", level).output().unwrap()
    };
    assert_fails(&mount("loud"), 2, &["NEARSIDE_LOG=loud", "debug"]);
    let dir = scratch.mnt().join("dir");
    for (level, refused, done) in
        [("info", false, false), ("debug", true, false), ("trace", true, true)]
    {
        assert!(mount(level).status.success());
        std::fs::create_dir_all(dir.join("sub")).unwrap();
        std::fs::remove_dir(&dir).unwrap_err();
        scratch.umount();
        let log = scratch.log();
        assert_eq!(log.contains("refused call=Rmdir"), refused, "{level}: {log}");
        assert_eq!(log.contains("done call="), done, "{level}: {log}");
    }
    scratch.mount();
    scratch.finish();
}
