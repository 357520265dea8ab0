//! `df`, `ls`, `stat`, `tree`: what they show, and that they change nothing.

use crate::support::{Scratch, each_way, run};

#[test]
fn df_counts_what_is_used() {
    each_way(|scratch| {
        let pool = scratch.pool().display().to_string();
        let before = scratch.json(&["df", &pool, "--json"]);
        scratch.put(":/file", &[7; 4 << 20]);
        let after = scratch.json(&["df", &pool, "--json"]);
        let number = |of: &serde_json::Value, key: &str| of[key].as_u64().unwrap();
        assert!(number(&after, "used_bytes") >= number(&before, "used_bytes") + (4 << 20));
        assert_eq!(number(&after, "inodes"), number(&before, "inodes") + 1);
        assert!(number(&after, "inodes_free") > 0);
        assert!(number(&after, "used_percent") > number(&before, "used_percent"));
        let slices = after["slices"].as_array().unwrap();
        assert_eq!(slices.len(), 2);
        let sum = |key: &str| -> u64 { slices.iter().map(|slice| number(slice, key)).sum() };
        assert_eq!(sum("bytes"), number(&after, "bytes"));
        assert_eq!(sum("used_bytes"), number(&after, "used_bytes"));
        let (free, kept) = (number(&after, "free_bytes"), number(&after, "kept_bytes"));
        assert_eq!(sum("free_bytes"), free + kept);
        assert_eq!(number(&after, "bytes"), number(&after, "used_bytes") + free + kept);
        let info = scratch.json(&["info", &pool, "--json"]);
        assert_eq!(number(&info, "free_bytes"), free);
        assert_eq!(number(&info, "used_bytes"), number(&after, "used_bytes"));
        assert_eq!(number(&info, "kept_bytes"), kept);
        let text = scratch.ok(&["df", &pool]);
        assert_eq!(text.lines().count(), 4, "{text}");
        for word in ["SLICE", "total", "MiB", "%"] {
            assert!(text.contains(word), "no {word} in {text}");
        }
    });
}

#[test]
fn ls_and_stat_show_what_is_there() {
    each_way(|scratch| {
        let pool = scratch.pool().display().to_string();
        scratch.ok(&["mkdir", ":/dir"]);
        scratch.put(":/dir/b", &[1; 1536]);
        scratch.put(":/dir/a", b"");
        scratch.put(":/dir/.hidden", b"x");
        std::os::unix::fs::symlink("b", scratch.outside("link")).unwrap();
        scratch.ok(&["cp", "-r", "@link", ":/dir/link"]);
        assert_eq!(scratch.ok(&["ls", &pool]), "dir\n");
        assert_eq!(scratch.ok(&["ls", ":/dir"]), "a\nb\nlink\n");
        assert_eq!(scratch.ok(&["ls", "-a", ":/dir/"]), ".hidden\na\nb\nlink\n");
        assert_eq!(scratch.ok(&["ls", ":/dir/b"]), "/dir/b\n");
        let long = scratch.ok(&["ls", "-l", ":/dir"]);
        let lines: Vec<&str> = long.lines().collect();
        assert!(lines[1].starts_with("-rw-r--r--  1  "), "{long}");
        assert!(lines[1].contains("  1.5 KiB  ") && lines[1].ends_with("  b"), "{long}");
        assert!(lines[2].starts_with('l') && lines[2].ends_with("  link -> b"), "{long}");
        let list = scratch.json(&["ls", "--json", ":/dir"]);
        let names: Vec<_> = list.as_array().unwrap().iter().map(|it| &it["name"]).collect();
        assert_eq!(names, ["a", "b", "link"]);
        assert_eq!(list[1]["bytes"], 1536);
        let about = scratch.json(&["stat", "--json", ":/dir"]);
        assert_eq!((&about["kind"], &about["mode"]), (&"directory".into(), &"0755".into()));
        let text = scratch.ok(&["stat", ":/dir/b"]);
        for word in ["path      /dir/b\n", "size      1536 bytes (1.5 KiB)\n", "0644 (-rw-r--r--)"]
        {
            assert!(text.contains(word), "no {word} in {text}");
        }
        assert!(scratch.ok(&["stat", ":/dir/link"]).contains("/dir/link -> b\n"));
        let tree = scratch.ok(&["tree", ":/"]);
        let below = "└── dir\n    ├── .hidden\n    ├── a\n    ├── b\n    └── link\n";
        assert!(tree.ends_with(&format!(":/\n{below}1 directories, 4 files\n")), "{tree}");
    });
}

#[test]
fn what_is_not_there_is_named() {
    each_way(|scratch| {
        scratch.put(":/file", b"x");
        let pool = scratch.pool().display().to_string();
        for verb in ["ls", "stat", "tree", "cat"] {
            scratch.fails(&[verb, ":/no/such"], 1, &[&pool, ":/no/such", "no such file"]);
            scratch.fails(&[verb, "@nowhere:/x"], 1, &["nowhere"]);
            scratch.fails(&[verb, "@:/x"], 1, &["no pool here"]);
            scratch.fails(&[verb, "a", "--frob"], 2, &["--frob"]);
            scratch.fails(&[verb], 2, &["POOL"]);
            let help = scratch.ok(&[verb, "--help"]);
            assert!(help.contains("Examples:") && help.contains("nearside "), "{help}");
        }
        scratch.fails(&["tree", ":/file"], 1, &[":/file", "no directory"]);
        scratch.fails(&["df", "@nowhere"], 1, &["nowhere"]);
        scratch.fails(&["df", "@"], 1, &["no pool here"]);
        scratch.fails(&["ls", ""], 2, &["POOL:/path"]);
        scratch.fails(&["stat", &pool], 2, &["POOL:/path"]);
    });
}

#[test]
fn those_that_read_change_not_one_byte() {
    let scratch = Scratch::new();
    scratch.put(":/file", &[3; 100_000]);
    let pool = scratch.pool();
    let bytes = || -> Vec<(std::ffi::OsString, Vec<u8>)> {
        let mut files: Vec<_> = std::fs::read_dir(&pool)
            .unwrap()
            .flatten()
            .map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap()))
            .collect();
        files.sort();
        files
    };
    let before = bytes();
    let root = pool.as_os_str();
    assert!(run(["df".as_ref(), root]).status.success());
    for verb in ["ls", "tree", "stat", "cat"] {
        scratch.run(&[verb, ":/file"]);
    }
    scratch.ok(&["cp", ":/file", "@out"]);
    scratch.ok(&["rm", "--dry-run", ":/file"]);
    assert!(bytes() == before);
}

#[test]
fn a_pool_in_use_is_refused_and_its_holder_named() {
    let scratch = Scratch::new();
    scratch.put(":/file", b"x");
    let pool = scratch.pool().display().to_string();
    let open = nearside::Pool::open(scratch.pool()).unwrap();
    let holder = std::process::id().to_string();
    let cases: [&[&str]; 9] = [
        &["df", &pool],
        &["ls", ":/"],
        &["tree", ":/"],
        &["stat", ":/file"],
        &["cat", ":/file"],
        &["cp", ":/file", "@out"],
        &["mkdir", ":/dir"],
        &["mv", ":/file", ":/other"],
        &["rm", ":/file"],
    ];
    for words in cases {
        scratch.fails(words, 1, &["in use", &holder]);
    }
    drop(open);
    assert_eq!(scratch.all(), ["/file"]);
}
