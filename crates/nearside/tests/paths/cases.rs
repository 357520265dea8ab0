//! Paths on a real pool: where they lead, and what calls on them do.

use std::time::{Duration, UNIX_EPOCH};

use nearside::{Error, FileKind, OpenFlags, RenameMode, XattrMode};

use crate::scratch::Scratch;

fn errno<T: std::fmt::Debug>(result: Result<T, Error>) -> i32 {
    result.unwrap_err().errno()
}

fn writing() -> OpenFlags {
    OpenFlags::new().write(true)
}

#[test]
fn paths_lead_where_posix_says() {
    let pool = Scratch::new();
    pool.create_dir_all("/a/b/c").unwrap();
    pool.write("/a/f", "content").unwrap();
    for path in ["/a/f", "a/f", "//a///f", "/a/./f", "/a/b/../f", "/../../a/b/c/../../f"] {
        assert_eq!(pool.read(path).unwrap(), b"content", "{path}");
    }
    assert!(pool.metadata("/").unwrap().is_dir());
    assert!(pool.metadata("/a/b/").unwrap().is_dir());
    assert_eq!(errno(pool.metadata("/a/f/")), libc::ENOTDIR);
    assert_eq!(errno(pool.metadata("/a/f/x")), libc::ENOTDIR);
    assert_eq!(errno(pool.metadata("/a/nothing")), libc::ENOENT);
    assert_eq!(errno(pool.metadata("/nothing/x")), libc::ENOENT);
    assert_eq!(errno(pool.metadata("")), libc::ENOENT);
    assert_eq!(errno(pool.metadata("x".repeat(256))), libc::ENAMETOOLONG);
    assert_eq!(errno(pool.metadata("x/".repeat(2048))), libc::ENAMETOOLONG);
    assert!(pool.exists("/a/b").unwrap() && !pool.exists("/a/x").unwrap());
    assert!(!pool.exists("/a/f/x").unwrap());
    pool.finish();
}

#[test]
fn symbolic_links_are_followed_and_loops_found() {
    let pool = Scratch::new();
    pool.create_dir_all("/d/e").unwrap();
    pool.write("/d/f", "there").unwrap();
    pool.symlink("d", "/to_d").unwrap();
    pool.symlink("/d/f", "/absolute").unwrap();
    pool.symlink("../f", "/d/e/up").unwrap();
    pool.symlink("e/", "/d/slash").unwrap();
    pool.symlink("to_d/e/up", "/chain").unwrap();
    for path in ["/to_d/f", "/absolute", "/d/e/up", "/d/slash/up", "/chain"] {
        assert_eq!(pool.read(path).unwrap(), b"there", "{path}");
    }
    assert!(pool.symlink_metadata("/to_d").unwrap().is_symlink());
    // A final slash follows the link, as lstat("link/") does.
    assert!(pool.symlink_metadata("/to_d/").unwrap().is_dir());
    assert_eq!(pool.read_link("/chain").unwrap().to_str(), Some("to_d/e/up"));
    assert_eq!(errno(pool.read_link("/d/f")), libc::EINVAL);

    pool.symlink("loop_b", "/loop_a").unwrap();
    pool.symlink("loop_a", "/loop_b").unwrap();
    assert_eq!(errno(pool.read("/loop_a")), libc::ELOOP);
    for step in 1..=41 {
        let target = if step == 1 { "d".to_owned() } else { format!("s{}", step - 1) };
        pool.symlink(target, format!("/s{step}")).unwrap();
    }
    assert!(pool.metadata("/s40").unwrap().is_dir());
    assert_eq!(errno(pool.metadata("/s41")), libc::ELOOP);
    pool.finish();
}

#[test]
fn open_flags_do_what_std_does() {
    let pool = Scratch::new();
    assert_eq!(errno(pool.open_file("/f", &writing())), libc::ENOENT);
    let new = writing().create_new(true).mode(0o600);
    pool.open_file("/f", &new).unwrap().write_all_at(b"12345", 0).unwrap();
    assert_eq!(pool.metadata("/f").unwrap().mode(), 0o600);
    assert_eq!(errno(pool.open_file("/f", &new)), libc::EEXIST);
    let file = pool.open_file("/f", &writing().create(true)).unwrap();
    assert_eq!(file.len().unwrap(), 5);
    assert_eq!(errno(file.read_at(&mut [0], 0)), libc::EBADF);
    let reader = pool.open_file("/f", &OpenFlags::new().read(true)).unwrap();
    assert_eq!(errno(reader.write_at(b"x", 0)), libc::EBADF);
    assert_eq!(errno(reader.append(b"x")), libc::EBADF);
    assert_eq!(errno(reader.set_len(0)), libc::EBADF);
    let log = pool.open_file("/f", &OpenFlags::new().append(true)).unwrap();
    assert_eq!(log.append(b"67").unwrap(), 5);
    assert_eq!(errno(log.write_at(b"x", 0)), libc::EBADF);
    assert_eq!(pool.read("/f").unwrap(), b"1234567");
    pool.open_file("/f", &writing().truncate(true)).unwrap();
    assert!(pool.read("/f").unwrap().is_empty());

    pool.create_dir("/d").unwrap();
    assert_eq!(errno(pool.open_file("/d", &OpenFlags::new().read(true))), libc::EISDIR);
    pool.symlink("/d/made", "/dangling").unwrap();
    assert_eq!(errno(pool.open_file("/dangling", &new)), libc::EEXIST);
    pool.write("/dangling", "through").unwrap();
    assert_eq!(pool.read("/d/made").unwrap(), b"through");
    drop((file, reader, log));
    pool.finish();
}

#[test]
fn names_are_made_moved_and_removed() {
    let pool = Scratch::new();
    pool.create_dir("/d/").unwrap();
    assert_eq!(errno(pool.create_dir("/d")), libc::EEXIST);
    assert_eq!(errno(pool.create_dir("/")), libc::EEXIST);
    pool.write("/d/a", "a").unwrap();
    pool.hard_link("/d/a", "/d/b").unwrap();
    assert_eq!(pool.metadata("/d/b").unwrap().links(), 2);
    assert_eq!(errno(pool.hard_link("/d", "/e")), libc::EPERM);
    assert_eq!(errno(pool.remove_dir("/d")), libc::ENOTEMPTY);
    assert_eq!(errno(pool.remove_file("/d")), libc::EISDIR);
    assert_eq!(errno(pool.remove_dir("/d/a")), libc::ENOTDIR);
    assert_eq!(errno(pool.remove_dir("/")), libc::EINVAL);
    pool.remove_file("/d/a").unwrap();
    pool.write("/c", "c").unwrap();
    assert_eq!(errno(pool.rename_with("/c", "/d/b", RenameMode::NoReplace)), libc::EEXIST);
    pool.rename_with("/c", "/d/b", RenameMode::Exchange).unwrap();
    assert_eq!(pool.read("/c").unwrap(), b"a");
    pool.rename("/c", "/d/b").unwrap();
    assert_eq!(pool.read("/d/b").unwrap(), b"a");
    assert!(!pool.exists("/c").unwrap());
    pool.rename("/d", "/moved/").unwrap();
    assert_eq!(errno(pool.rename("/moved", "/moved/in")), libc::EINVAL);
    assert_eq!(pool.read("/moved/b").unwrap(), b"a");
    pool.create_dir_all("/x/y/z").unwrap();
    pool.create_dir_all("/x/y/z").unwrap();
    assert_eq!(errno(pool.create_dir_all("/moved/b/c")), libc::ENOTDIR);
    pool.finish();
}

#[test]
fn directories_list_every_entry_once_also_while_they_change() {
    let pool = Scratch::new();
    pool.create_dir("/d").unwrap();
    for number in 0..1000 {
        pool.write(format!("/d/{number}"), "").unwrap();
    }
    let mut names: Vec<u32> = Vec::new();
    for entry in pool.read_dir("/d").unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.kind(), FileKind::File);
        let number: u32 = entry.file_name().to_str().unwrap().parse().unwrap();
        // What was listed goes, what is new comes: neither may disturb the others.
        pool.remove_file(format!("/d/{number}")).unwrap();
        pool.write(format!("/d/{}", number + 100_000), "").unwrap();
        if number < 100_000 {
            names.push(number);
        } else {
            break;
        }
    }
    names.sort_unstable();
    names.dedup();
    assert!(!names.is_empty());
    for entry in pool.read_dir("/d").unwrap() {
        let name = entry.unwrap().file_name().to_owned();
        pool.remove_file(std::path::Path::new("/d").join(name)).unwrap();
    }
    assert_eq!(pool.read_dir("/d").unwrap().count(), 0);
    assert_eq!(errno(pool.read_dir("/nothing")), libc::ENOENT);
    pool.write("/f", "").unwrap();
    assert_eq!(errno(pool.read_dir("/f")), libc::ENOTDIR);
    pool.finish();
}

#[test]
fn attributes_and_extended_attributes_are_kept() {
    let pool = Scratch::new();
    pool.write("/f", "x").unwrap();
    // a change of owner may take set-user-id away
    pool.set_owner("/f", Some(3), None).unwrap();
    pool.set_permissions("/f", 0o4711).unwrap();
    let early = UNIX_EPOCH - Duration::new(1, 200_000_000);
    let late = UNIX_EPOCH + Duration::new(4_000_000_000, 1);
    pool.set_times("/f", Some(early), Some(late)).unwrap();
    let metadata = pool.metadata("/f").unwrap();
    assert_eq!((metadata.mode(), metadata.attr().uid), (0o4711, 3));
    assert_eq!((metadata.accessed(), metadata.modified()), (early, late));
    assert_eq!(errno(pool.set_permissions("/f", 0o10000)), libc::EINVAL);

    assert_eq!(pool.xattr("/f", "user.a").unwrap(), None);
    pool.set_xattr("/f", "user.a", b"1", XattrMode::Create).unwrap();
    assert_eq!(errno(pool.set_xattr("/f", "user.a", b"2", XattrMode::Create)), libc::EEXIST);
    pool.set_xattr("/f", "user.a", b"2", XattrMode::Replace).unwrap();
    assert_eq!(errno(pool.set_xattr("/f", "user.b", b"", XattrMode::Replace)), libc::ENODATA);
    assert_eq!(pool.xattr("/f", "user.a").unwrap(), Some(b"2".to_vec()));
    assert_eq!(pool.list_xattrs("/f").unwrap(), ["user.a"]);
    pool.remove_xattr("/f", "user.a").unwrap();
    assert_eq!(errno(pool.remove_xattr("/f", "user.a")), libc::ENODATA);
    pool.finish();
}

#[test]
fn files_have_holes_and_ends() {
    let pool = Scratch::new();
    let file = pool.create_file("/f").unwrap();
    file.write_all_at(&[7; 8192], 1 << 20).unwrap();
    assert_eq!(file.seek_data(0).unwrap(), 1 << 20);
    assert_eq!(file.seek_hole(1 << 20).unwrap(), (1 << 20) + 8192);
    assert_eq!(errno(file.seek_data(2 << 20)), libc::ENXIO);
    file.punch_hole(1 << 20, 4096).unwrap();
    let mut block = [1; 4096];
    file.read_exact_at(&mut block, 1 << 20).unwrap();
    assert_eq!(block, [0; 4096]);
    file.allocate(0, 2 << 20).unwrap();
    assert_eq!(file.len().unwrap(), 2 << 20);
    file.set_len((1 << 20) + 5000).unwrap();
    let error = file.read_exact_at(&mut block, (1 << 20) + 4096).unwrap_err();
    assert!(matches!(error, Error::UnexpectedEnd { missing: 3192 }));
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::UnexpectedEof);
    assert_eq!(errno(file.write_at(b"x", u64::MAX)), libc::EFBIG);
    assert_eq!(file.read_at(&mut block, u64::MAX).unwrap(), 0);
    drop(file);
    pool.finish();
}

#[test]
fn an_open_file_outlives_its_name_and_a_pool_its_process() {
    let pool = Scratch::new();
    let file = pool.create_file("/f").unwrap();
    file.write_all_at(b"still here", 0).unwrap();
    pool.remove_file("/f").unwrap();
    assert_eq!(file.metadata().unwrap().links(), 0);
    let mut content = [0; 10];
    file.read_exact_at(&mut content, 0).unwrap();
    assert_eq!(&content, b"still here");
    drop(file);
    pool.write("/kept", "kept").unwrap();
    let pool = pool.dropped_and_opened();
    assert_eq!(pool.read("/kept").unwrap(), b"kept");
    assert!(!pool.exists("/f").unwrap());
    pool.finish();
}

#[test]
fn threads_share_a_pool_and_its_files() {
    let pool = Scratch::new();
    let file = pool.create_file("/shared").unwrap();
    std::thread::scope(|threads| {
        for thread in 0..4u64 {
            let (pool, file) = (&pool, &file);
            threads.spawn(move || {
                let dir = format!("/t{thread}");
                pool.create_dir(&dir).unwrap();
                for turn in 0..50u64 {
                    let offset = (turn * 4 + thread) * 512;
                    file.write_all_at(&[thread as u8; 512], offset).unwrap();
                    pool.write(format!("{dir}/{turn}"), dir.as_bytes()).unwrap();
                }
            });
        }
    });
    let content = pool.read("/shared").unwrap();
    drop(file);
    assert_eq!(content.len(), 4 * 50 * 512);
    assert!(content.chunks(512).enumerate().all(|(at, part)| part == [(at % 4) as u8; 512]));
    for thread in 0..4 {
        assert_eq!(pool.read_dir(format!("/t{thread}")).unwrap().count(), 50);
    }
    pool.finish();
}

/// Found by histories: the file was made, lost its name to another caller, and was not to be opened
/// any more, so that the call said there was no such file.
#[test]
fn who_makes_a_file_has_it_whoever_takes_its_name_away() {
    let pool = Scratch::new();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !is_over.load(order) {
                    let _ = pool.remove_file("/f");
                }
            });
        }
        let until = std::time::Instant::now() + Duration::from_secs(1);
        let (new, any) = (writing().create_new(true), writing().create(true));
        let mut made = Ok(());
        while made.is_ok() && std::time::Instant::now() < until {
            made = match pool.open_file("/f", &new) {
                Err(error) if error.errno() == libc::EEXIST => Ok(()),
                opened => opened.and_then(|file| file.write_all_at(b"mine", 0)),
            };
            made = made.and_then(|()| pool.open_file("/f", &any).map(drop));
        }
        is_over.store(true, order);
        made.unwrap();
    });
    pool.finish();
}

#[test]
fn a_link_is_made_to_what_has_the_name_at_that_moment() {
    let pool = Scratch::new();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(order) {
                let linked = pool.hard_link("/a", "/b");
                assert!(linked.is_err(), "while there was /a, there was /b");
            }
        });
        let until = std::time::Instant::now() + Duration::from_secs(1);
        let make = |name: &str| pool.create_file(name).map(drop);
        let mut made = Ok(());
        while made.is_ok() && std::time::Instant::now() < until {
            made = make("/b")
                .and_then(|()| make("/a"))
                .and_then(|()| pool.hard_link("/a", "/kept"))
                .and_then(|()| pool.remove_file("/a"))
                .and_then(|()| pool.remove_file("/b"))
                .and_then(|()| pool.remove_file("/kept"));
        }
        is_over.store(true, order);
        made.unwrap();
    });
    pool.finish();
}

#[test]
fn pipelined_writes_are_done_in_order_and_their_errors_are_told() {
    let pool = Scratch::new();
    let flags = OpenFlags::new().read(true).write(true).create(true);
    let file = pool.open_file("/f", &flags).unwrap();
    let (mut content, mut random) = (vec![0; 70_000], 7u64);
    for _ in 0..3 {
        let mut writes = file.pipelined();
        for step in 0..300 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            let (at, len) = ((random >> 20) as usize % 60_000, (random >> 40) as usize % 9000);
            let len = if step % 50 == 0 { len } else { len % 200 };
            let bytes = vec![step as u8; len];
            writes.write_all_at(&bytes, at as u64).unwrap();
            content[at..at + len].copy_from_slice(&bytes);
        }
        writes.finish().unwrap();
        file.set_len(content.len() as u64).unwrap();
        assert!(pool.read("/f").unwrap() == content);
    }
    // more than one call can have
    let mut writes = file.pipelined();
    writes.write_all_at(b"before", 0).unwrap();
    let long = vec![9; 3 << 20];
    writes.write_all_at(&[8; 300_000], 2).unwrap();
    writes.write_all_at(&long, 3).unwrap();
    writes.write_all_at(b"behind", 1).unwrap();
    drop(writes);
    let seen = pool.read("/f").unwrap();
    assert!(&seen[..8] == b"bbehind\t" && seen.len() == long.len() + 3);
    // an error is told by the next one, or at the end
    let mut writes = file.pipelined();
    let told = (0..40u64).find_map(|at| writes.write_all_at(b"far", (1 << 62) + at * 3).err());
    let told = told.or_else(|| writes.finish().err()).unwrap();
    assert_eq!(told.errno(), libc::EFBIG, "{told}");
    let read_only = pool.open_file("/f", &OpenFlags::new().read(true)).unwrap();
    let error = read_only.pipelined().write_all_at(b"x", 0).unwrap_err();
    assert!(matches!(error, Error::NotOpenedFor(_)), "{error}");
    drop((file, read_only));
    pool.finish();
}
