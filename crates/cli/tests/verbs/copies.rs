//! `cp` and `cat`: what comes out is what went in, and a failure leaves no half file.

use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use crate::support::{binary, command, each_way, ok, run};

#[test]
fn three_mebibytes_come_back_byte_for_byte() {
    each_way(|scratch| {
        let content = binary((3 << 20) + 17);
        std::fs::write(scratch.outside("in"), &content).unwrap();
        scratch.ok(&["cp", "@in", ":/big"]);
        scratch.ok(&["cp", ":/big", "@out"]);
        assert!(std::fs::read(scratch.outside("out")).unwrap() == content);
        assert!(ok(scratch.run(&["cat", ":/big"])) == content);
        // Two files, one behind the other; an empty one adds nothing.
        scratch.put(":/small", b"\xff\0\n");
        scratch.put(":/empty", b"");
        let both = ok(scratch.run(&["cat", ":/small", ":/empty", ":/big"]));
        assert!(both[..3] == *b"\xff\0\n" && both[3..] == content);
        // A copy over a longer file leaves nothing of that.
        scratch.ok(&["cp", ":/small", ":/big"]);
        assert_eq!(ok(scratch.run(&["cat", ":/big"])), b"\xff\0\n");
        assert_eq!(scratch.all(), ["/big", "/empty", "/small"]);
        scratch.check();
    });
}

#[test]
fn trees_are_copied_in_out_and_between_pools() {
    each_way(|scratch| {
        let tree = scratch.root().join("tree");
        std::fs::create_dir_all(tree.join("deep/er")).unwrap();
        std::fs::create_dir(tree.join("hollow")).unwrap();
        std::fs::write(tree.join("deep/er/file"), binary(5000)).unwrap();
        std::os::unix::fs::symlink("deep/er", tree.join("link")).unwrap();
        let all = ["/deep", "/deep/er", "/deep/er/file", "/hollow", "/link"];
        let below = |top: &str| -> Vec<String> {
            [String::new()]
                .into_iter()
                .chain(all.map(str::to_owned))
                .map(|it| top.to_owned() + &it)
                .collect()
        };
        scratch.fails(&["cp", "@tree", ":/a"], 1, &["tree", "is a directory", "-r"]);
        scratch.ok(&["cp", "-r", "@tree", ":/a"]);
        assert_eq!(scratch.all(), below("/a"));
        assert_eq!(scratch.json(&["stat", "--json", ":/a/link"])["target"], "deep/er");
        // Into a directory that exists goes a copy with the same name; a source without a name of
        // its own is merged.
        scratch.ok(&["mkdir", ":/b"]);
        scratch.ok(&["cp", "-r", ":/a", ":/b"]);
        scratch.ok(&["cp", "-r", "@tree/.", ":/b"]);
        let mut want: Vec<String> = [below("/a"), below("/b"), below("/b/a")].concat();
        want.sort();
        let mut found = scratch.all();
        found.sort();
        assert_eq!(found, want);
        // To another pool and out of that.
        scratch.format("other");
        let other = |path: &str| format!("{}/other:{path}", scratch.root().display());
        scratch.ok(&["cp", "-r", ":/", &other("/all")]);
        scratch.ok(&["cp", "-r", &other("/all/b"), "@back"]);
        let back = scratch.root().join("back");
        assert!(std::fs::read(back.join("a/deep/er/file")).unwrap() == binary(5000));
        assert_eq!(std::fs::read_link(back.join("link")).unwrap().to_str(), Some("deep/er"));
        assert!(back.join("a/hollow").is_dir());
        scratch.check();
    });
}

#[test]
fn modes_and_times_are_kept_if_asked_for() {
    each_way(|scratch| {
        let tree = scratch.root().join("tree");
        std::fs::create_dir(&tree).unwrap();
        let file = tree.join("file");
        std::fs::write(&file, "x").unwrap();
        let long_ago = SystemTime::UNIX_EPOCH + Duration::new(951_782_400, 123_456_789);
        let times = std::fs::FileTimes::new().set_modified(long_ago).set_accessed(long_ago);
        std::fs::File::open(&file).unwrap().set_times(times).unwrap();
        // Setuid is not kept: the copy is its maker's.
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o4711)).unwrap();
        std::fs::set_permissions(&tree, PermissionsExt::from_mode(0o1750)).unwrap();
        std::fs::File::open(&tree).unwrap().set_times(times).unwrap();
        scratch.ok(&["cp", "-rp", "@tree", ":/kept"]);
        scratch.ok(&["cp", "-r", "@tree", ":/plain"]);
        scratch.ok(&["cp", "-rp", ":/kept", "@back"]);
        for (path, mode) in [(":/kept", "1750"), (":/kept/file", "0711")] {
            let about = scratch.json(&["stat", "--json", path]);
            assert_eq!(about["mode"], mode, "{path}");
            assert_eq!(about["modified"], "2000-02-29T00:00:00.123456789Z", "{path}");
        }
        let about = scratch.json(&["stat", "--json", ":/plain/file"]);
        assert_eq!(about["mode"], "0711");
        assert_ne!(about["modified"], "2000-02-29T00:00:00.123456789Z");
        for (path, mode) in [("back", 0o1750), ("back/file", 0o711)] {
            let meta = std::fs::metadata(scratch.outside(path)).unwrap();
            assert_eq!(meta.mode() & 0o7777, mode, "{path}");
            assert_eq!(meta.modified().unwrap(), long_ago, "{path}");
        }
    });
}

#[test]
fn holes_are_kept_if_asked_for() {
    each_way(|scratch| {
        // Far more than the pool has space for.
        let bytes = 1 << 30;
        let file = std::fs::File::create(scratch.outside("sparse")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &binary(4096), 512 << 20).unwrap();
        file.set_len(bytes).unwrap();
        scratch.fails(&["cp", "@sparse", ":/full"], 1, &["/full", "the pool is full"]);
        assert!(scratch.all().is_empty(), "{:?}", scratch.all());
        scratch.ok(&["cp", "--sparse", "@sparse", ":/sparse"]);
        let about = scratch.json(&["stat", "--json", ":/sparse"]);
        assert_eq!(about["bytes"], bytes);
        assert!(about["stored_bytes"].as_u64().unwrap() < 4 << 20, "{about}");
        scratch.ok(&["cp", "--sparse", ":/sparse", "@back"]);
        let back = std::fs::File::open(scratch.outside("back")).unwrap();
        let meta = back.metadata().unwrap();
        assert!(meta.len() == bytes && meta.blocks() * 512 < 4 << 20);
        let mut piece = vec![1; 12288];
        std::os::unix::fs::FileExt::read_exact_at(&back, &mut piece, (512 << 20) - 4096).unwrap();
        assert!(piece[..4096] == [0; 4096] && piece[4096..8192] == binary(4096));
        assert!(piece[8192..] == [0; 4096]);
    });
}

#[test]
fn copies_within_a_pool_take_no_space_and_go_their_own_ways() {
    each_way(|scratch| {
        let content = binary(16 << 20);
        std::fs::write(scratch.outside("in"), &content).unwrap();
        scratch.ok(&["cp", "@in", ":/first"]);
        let used = || scratch.json(&["df", "--json", "@pool"])["used_bytes"].as_u64().unwrap();
        let before = used();
        // as bytes they would not fit
        for copy in [":/second", ":/third", ":/fourth", ":/fifth"] {
            scratch.ok(&["cp", ":/first", copy]);
        }
        assert!(used() < before + (2 << 20), "{before} bytes, then {}", used());
        std::fs::write(scratch.outside("new"), &content[..77]).unwrap();
        scratch.ok(&["cp", "@new", ":/second"]);
        scratch.ok(&["rm", ":/first"]);
        assert!(ok(scratch.run(&["cat", ":/fifth"])) == content);
        assert!(ok(scratch.run(&["cat", ":/second"])) == content[..77]);
        scratch.check();
    });
}

#[test]
fn a_failed_copy_leaves_nothing_and_an_existing_file_keeps_its_mode() {
    each_way(|scratch| {
        std::fs::write(scratch.outside("big"), vec![1; 80 << 20]).unwrap();
        scratch.fails(&["cp", "@big", ":/big"], 1, &[":/big: ", "the pool is full"]);
        assert!(scratch.all().is_empty());
        std::fs::write(scratch.outside("script"), "old").unwrap();
        let mode = PermissionsExt::from_mode(0o751);
        std::fs::set_permissions(scratch.outside("script"), mode).unwrap();
        scratch.put(":/new", b"new");
        scratch.ok(&["cp", ":/new", "@script"]);
        assert_eq!(std::fs::read(scratch.outside("script")).unwrap(), b"new");
        assert_eq!(std::fs::metadata(scratch.outside("script")).unwrap().mode() & 0o777, 0o751);
        let names: Vec<_> = std::fs::read_dir(scratch.root()).unwrap().flatten().collect();
        assert_eq!(names.len(), 4, "{names:?}"); // pool, big, script, put
        scratch.check();
    });
}

#[test]
fn bad_copies_are_refused_with_a_reason() {
    each_way(|scratch| {
        scratch.put(":/file", b"content");
        scratch.ok(&["mkdir", "-p", ":/dir/below", ":/other"]);
        scratch.ok(&["cp", ":/file", ":/dir/file"]);
        std::fs::create_dir(scratch.outside("here")).unwrap();
        let cases: [(&[&str], i32, &[&str]); 14] = [
            (&["cp", "@put", "@other"], 2, &["neither side", "POOL:/path"]),
            (&["cp", ":/file"], 2, &["DST"]),
            (&["cp", ":/no", "@x"], 1, &[":/no", "no such file"]),
            (&["cp", "@no", ":/x"], 1, &["no such file"]),
            (&["cp", "@put", "@nopool:/x"], 1, &["nopool"]),
            (&["cp", ":/dir", "@x"], 1, &[":/dir", "-r"]),
            (&["cp", "@put", ":/no/x"], 1, &[":/no/x", "mkdir -p"]),
            (&["cp", "@put", ":/no/"], 1, &[":/no/", "mkdir -p"]),
            (&["cp", "@put", ":/file/x"], 1, &[":/file", "not a directory"]),
            (&["cp", ":/file", ":/file"], 1, &["the very file"]),
            (&["cp", ":/file", ":/dir/../file"], 1, &["the very file"]),
            (&["cp", "-r", ":/dir", ":/dir"], 1, &["very directory"]),
            (&["cp", "-r", ":/dir", ":/dir/below/new"], 1, &["very directory"]),
            (&["cp", "-r", ":/dir", ":/file"], 1, &["no directory"]),
        ];
        let before = scratch.all();
        for (words, code, said) in cases {
            scratch.fails(words, code, said);
        }
        assert_eq!(scratch.all(), before);
        assert_eq!(scratch.ok(&["cat", ":/file"]), "content");
        // Beside the directory is fine, also by a way that leads through it.
        scratch.ok(&["cp", "-r", ":/dir", ":/dir/../copy"]);
        assert!(scratch.all().contains(&"/copy/below".to_owned()));
        scratch.put(":/dirs", b"");
        scratch.fails(&["cp", ":/file", ":/dir/below/../.."], 1, &["the very file"]);
    });
}

#[test]
fn cat_says_what_it_cannot_print() {
    each_way(|scratch| {
        scratch.put(":/file", &binary(4 << 20));
        scratch.fails(&["cat", ":/"], 1, &[":/: is a directory", "nearside ls"]);
        scratch.fails(&["cat", ":/no"], 1, &[":/no: no such file", "nearside ls"]);
        scratch.fails(&["cat", ":/file/x"], 1, &["not a directory"]);
        scratch.fails(&["cat", "file"], 2, &["POOL:/path"]);
        scratch.fails(&["cat"], 2, &["POOL:/PATH"]);
        scratch.put(":/one", b"one");
        let paths = ["/one", "/no", "/one", "/nor-this"].map(|path| scratch.inside(path));
        let words = [OsString::from("cat")].into_iter().chain(paths);
        let output = command(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b"oneone"[..]), "{said}");
        assert!(said.contains(":/no: ") && said.contains(":/nor-this: "), "{said}");
        // A reader that goes away is no error, a disk that is full is.
        let mut child = command([OsString::from("cat"), scratch.inside("/file")])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        ok(child.wait_with_output().unwrap());
        scratch.put(":/short", b"no newline");
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command([OsString::from("cat"), scratch.inside("/short")])
            .stdout(full)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    });
}

#[test]
fn a_pipe_can_be_copied_into_a_pool() {
    each_way(|scratch| {
        let mut child = command([OsString::from("cp"), "/dev/stdin".into(), scratch.inside("/x")])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let content = binary(3 << 20);
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), &content).unwrap();
        assert!(child.wait().unwrap().success());
        assert!(ok(run([OsString::from("cat"), scratch.inside("/x")])) == content);
    });
}

/// `cp -a`: what a file is besides its content, wherever it is copied.
#[test]
fn an_archive_keeps_owners_attributes_times_and_links() {
    if !nix::unistd::geteuid().is_root() {
        return println!("skipped: giving files away takes root");
    }
    each_way(|scratch| {
        let tree = scratch.root().join("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("one"), "content").unwrap();
        std::fs::hard_link(tree.join("one"), tree.join("two")).unwrap();
        std::os::unix::fs::symlink("one", tree.join("link")).unwrap();
        for (name, uid) in [("one", 1001), ("link", 1002), ("", 1003)] {
            std::os::unix::fs::lchown(tree.join(name), Some(uid), Some(uid + 10)).unwrap();
        }
        std::fs::set_permissions(tree.join("one"), PermissionsExt::from_mode(0o4755)).unwrap();
        let xattr = |name: &str, value: &str| {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(tree.join("one"), name, value.as_bytes(), flags)
        };
        let has_xattrs = xattr("user.colour", "green").and(xattr("trusted.t", "kept")).is_ok();
        let long_ago = rustix::fs::Timespec { tv_sec: 951_782_400, tv_nsec: 5 };
        let times = rustix::fs::Timestamps { last_access: long_ago, last_modification: long_ago };
        for name in ["one", "link", ""] {
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::utimensat(rustix::fs::CWD, tree.join(name), &times, flags).unwrap();
        }
        scratch.ok(&["cp", "-a", "@tree", ":/kept"]);
        scratch.ok(&["cp", "-a", ":/kept", ":/again"]);
        scratch.ok(&["cp", "-a", ":/again", "@back"]);
        for top in [":/kept", ":/again"] {
            let about = |name: &str| scratch.json(&["stat", "--json", &format!("{top}{name}")]);
            let (one, two, link, dir) = (about("/one"), about("/two"), about("/link"), about(""));
            assert_eq!((&one["inode"], &one["links"]), (&two["inode"], &2.into()), "{one}");
            assert_eq!((&one["uid"], &one["gid"]), (&1001.into(), &1011.into()), "{one}");
            assert_eq!(one["mode"], "4755");
            assert_eq!((&link["uid"], &dir["uid"]), (&1002.into(), &1003.into()));
            for it in [one, link, dir] {
                assert_eq!(it["modified"], "2000-02-29T00:00:00.000000005Z", "{it}");
            }
        }
        let back = |name: &str| std::fs::symlink_metadata(scratch.root().join("back").join(name));
        let one = back("one").unwrap();
        assert_eq!((one.uid(), one.gid(), one.mode() & 0o7777), (1001, 1011, 0o4755));
        assert_eq!((one.nlink(), one.ino()), (2, back("two").unwrap().ino()));
        assert_eq!(
            (back("link").unwrap().uid(), back("link").unwrap().mtime()),
            (1002, 951_782_400)
        );
        if has_xattrs {
            let mut value = [0; 16];
            let path = scratch.root().join("back/one");
            let bytes = rustix::fs::getxattr(&path, "user.colour", &mut value).unwrap();
            assert_eq!(value[..bytes], *b"green");
            assert_eq!(rustix::fs::getxattr(&path, "trusted.t", &mut value), Ok(4));
        } else {
            println!("attributes not tried: this file system has none");
        }
        // Without it a copy is its maker's.
        scratch.ok(&["cp", "-r", "@tree", ":/plain"]);
        let plain = scratch.json(&["stat", "--json", ":/plain/one"]);
        assert_eq!(
            (&plain["uid"], &plain["links"], &plain["mode"]),
            (&0.into(), &1.into(), &"0755".into())
        );
        scratch.check();
    });
}

/// A mounted pool is reached from outside, too: a copy onto itself would empty the file.
#[test]
fn a_file_of_a_mount_is_not_copied_onto_itself() {
    let Some(scratch) = crate::support::Scratch::mounted() else { return };
    let file = scratch.mnt().join("file");
    std::fs::write(&file, "content").unwrap();
    std::fs::create_dir(scratch.mnt().join("dir")).unwrap();
    let path = |path: &std::path::Path| path.display().to_string();
    let dir = scratch.mnt().join("dir");
    scratch.fails(&["cp", &path(&file), ":/file"], 1, &["the very file"]);
    scratch.fails(&["cp", ":/file", &path(&file)], 1, &["the very file"]);
    scratch.fails(&["cp", "-r", &path(&dir), ":/dir/x"], 1, &["very directory"]);
    scratch.fails(&["cp", "-r", ":/dir", &path(&dir.join("x"))], 1, &["very directory"]);
    assert_eq!(std::fs::read(&file).unwrap(), b"content");
    // Links and dots do not lead out of the pool.
    std::os::unix::fs::symlink("/file", dir.join("link")).unwrap();
    assert_eq!(scratch.ok(&["cat", ":/dir/link"]), "content");
    assert_eq!(scratch.ok(&["cat", ":/../../file"]), "content");
    // The caller's own umask is for files outside.
    scratch.ok(&["mkdir", ":/made"]);
    assert_eq!(std::fs::metadata(scratch.mnt().join("made")).unwrap().mode() & 0o777, 0o755);
    scratch.umount();
}

/// Whatever ends a copy: the name is there whole or not at all, and the next copy clears up.
#[test]
fn a_killed_copy_leaves_no_half_file_and_the_next_clears_up() {
    each_way(|scratch| {
        let content = binary(24 << 20);
        std::fs::write(scratch.outside("big"), &content).unwrap();
        let mut killed = 0;
        for round in 0..12u64 {
            let words = [OsString::from("cp"), scratch.outside("big"), scratch.inside("/big")];
            let mut child = command(words).spawn().unwrap();
            // Spread over what a copy takes, from the very begin on.
            std::thread::sleep(Duration::from_millis(round * 4));
            let process = nix::unistd::Pid::from_raw(child.id() as i32);
            let signals = [nix::sys::signal::Signal::SIGKILL, nix::sys::signal::Signal::SIGINT];
            nix::sys::signal::kill(process, signals[round as usize % 2]).unwrap();
            killed += u64::from(!child.wait().unwrap().success());
            if scratch.all().contains(&"/big".to_owned()) {
                assert!(ok(scratch.run(&["cat", ":/big"])) == content, "round {round}");
                scratch.ok(&["rm", ":/big"]);
            }
        }
        assert!(killed > 0, "every copy was quicker than its signal");
        scratch.put(":/small", b"x");
        assert_eq!(scratch.all(), ["/small"], "what was left behind is gone");
        scratch.check();
    });
}
