//! Media that refuse: not to be written, full, or with holes where a slice was.

use crate::bad_input::read_only::{build, images, shown};
use crate::common::{TestPool, content, find, options, pattern, scratch, slices};
use fs::{FileSystem, Ino};
use pool::{FormatOptions, OpenOptions, SliceSpec};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A pool that was killed: what `build` made is in its log only.
fn dirty() -> TestPool {
    let pool = TestPool::new(2, 4 << 20);
    let fs = pool.start();
    build(&fs);
    drop(fs);
    pool
}

/// The pool in `dir` is refused for writing with this errno, and shown as it is for reading.
fn only_for_reading(dir: &Path, errno: i32) {
    let before = images(dir);
    let error = FileSystem::open_pool(dir, &OpenOptions::default()).map(|_| ()).unwrap_err();
    assert_eq!(error.errno(), errno, "{error}");
    for word in ["slice.0", "for writing", "read-only"] {
        assert!(error.to_string().contains(word), "{word:?} is not in {error}");
    }
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let fs = FileSystem::open_pool(dir, &options).unwrap();
    assert!(fs.replayed() > 0, "its log was to be replayed");
    shown(&fs);
    fs.close().unwrap();
    drop(fs);
    assert!(fs::check(dir).unwrap().findings.is_empty());
    assert!(images(dir) == before, "a medium that is not to be written was written");
}

#[test]
fn slices_without_write_permission_are_refused_for_writing_and_read_with_their_log() {
    let pool = dirty();
    let dir = pool.dir();
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    slices(&dir).iter().for_each(|slice| mode(slice, 0o444));
    mode(&dir, 0o755);
    mode(dir.parent().unwrap(), 0o755);
    // root may write all the same: nobody, in a thread that ends with it, may not
    std::thread::scope(|scope| {
        let nobody = scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                let nobody = rustix::process::Uid::from_raw(65_534);
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            only_for_reading(&dir, libc::EACCES);
        });
        nobody.join().unwrap();
    });
}

/// Tells a test that it runs again, in a process of its own, and where its directory is.
const AGAIN: &str = "NEARSIDE_MEDIA_AGAIN";

fn asked_again() -> Option<PathBuf> {
    std::env::var_os(AGAIN).map(PathBuf::from)
}

/// This test program, to run the test `name` again.
fn again(name: &str, dir: &Path, program: &[&str]) -> Command {
    let own = std::env::current_exe().unwrap();
    let own = [own.to_str().unwrap(), "--exact", name, "--nocapture"];
    let words: Vec<&str> = program.iter().copied().chain(own).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env(AGAIN, dir);
    command
}

#[track_caller]
fn passes(mut command: Command) {
    let out = command.output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    let ran = out.status.success() && text.contains("1 passed");
    assert!(ran, "{}{text}{}", out.status, String::from_utf8_lossy(&out.stderr));
}

/// Runs the test `name` again in a mount namespace of its own after `setup`, a script in which
/// `$dir` is the directory. Nothing is tested where this user may not mount.
fn with_mounts(name: &str, dir: &Path, setup: &str) {
    let script = format!("dir=$1; shift; {setup}; exec \"$@\"");
    let words = ["unshare", "--mount", "sh", "-ec", &script, "sh", dir.to_str().unwrap()];
    let tried = Command::new(words[0]).args(&words[1..]).arg("true").output();
    if !tried.is_ok_and(|out| out.status.success()) {
        eprintln!("{name}: this user may not mount; nothing is tested");
        return;
    }
    passes(again(name, dir, &words));
}

#[test]
fn a_pool_on_a_read_only_mount_is_refused_for_writing_and_read_with_its_log() {
    if let Some(dir) = asked_again() {
        return only_for_reading(&dir, libc::EROFS);
    }
    let pool = dirty();
    let setup = "mount --bind \"$dir\" \"$dir\"; mount -o remount,bind,ro \"$dir\"";
    let name = "bad_input::media::a_pool_on_a_read_only_mount_is_refused_for_writing_and_read_with_its_log";
    with_mounts(name, &pool.dir(), setup);
}

fn entries(dir: &Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}

/// Slice 0 fits and slice 1 does not: both go again, and nothing stands in a later format's way.
#[test]
fn a_format_that_finds_the_host_full_leaves_nothing_behind() {
    if let Some(dir) = asked_again() {
        let error = fs::format(&dir, &options(2, 2 << 20)).unwrap_err();
        assert_eq!(error.errno(), libc::ENOSPC, "{error}");
        assert!(error.to_string().contains("slice.1"), "{error}");
        assert_eq!(entries(&dir), 0);
        fs::format(&dir, &options(1, 2 << 20)).unwrap();
        assert!(fs::check(&dir).unwrap().findings.is_empty());
        return;
    }
    let dir = scratch();
    let name = "bad_input::media::a_format_that_finds_the_host_full_leaves_nothing_behind";
    with_mounts(name, dir.path(), "mount -t tmpfs -o size=3m none \"$dir\"");
}

#[test]
fn a_format_of_more_than_the_host_can_have_leaves_nothing_behind() {
    let dir = scratch();
    let mut asked = options(2, 1 << 20);
    asked.slices[1].bytes = Some(1 << 55);
    let error = fs::format(dir.path(), &asked).unwrap_err();
    assert!([libc::ENOSPC, libc::EFBIG].contains(&error.errno()), "{error}");
    assert!(error.to_string().contains("slice.1"), "{error}");
    assert_eq!(entries(dir.path()), 0);
}

/// A file that was there before is not the format's to remove, nor to leave longer than it was.
#[test]
fn a_failed_format_leaves_a_file_that_it_did_not_make() {
    let (dir, other) = (scratch(), scratch());
    let file = other.path().join("of the user");
    std::fs::write(&file, b"content").unwrap();
    let asked = FormatOptions {
        slices: vec![SliceSpec { path: Some(file.clone()), bytes: Some(1 << 55) }],
        ..options(1, 1 << 20)
    };
    assert!(fs::format(dir.path(), &asked).is_err());
    assert_eq!(std::fs::read(&file).unwrap(), b"content");
    assert_eq!(entries(dir.path()), 0, "its link is gone");
}

/// Holes where there was data: what they held is damage, and what is left is right.
#[test]
fn a_slice_with_holes_where_data_was_is_damage_and_nothing_else_is_lost() {
    let pool = TestPool::new(1, 4 << 20);
    let fs = pool.start();
    build(&fs);
    fs.write(&crate::common::make(&fs, "large"), 0, &pattern(9, 400_000)).unwrap();
    fs.close().unwrap();
    drop(fs);
    let path = &slices(&pool.dir())[0];
    let image = std::fs::read(path).unwrap();
    let data = pattern(9, 400_000);
    let at = image.windows(64).position(|bytes| bytes == &data[8192..8256]).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, at as u64, 8192).unwrap();
    let findings = format!("{:?}", pool.check().findings);
    assert!(findings.contains("is damaged"), "{findings}");
    let fs = pool.start();
    let large = find(&fs, "large");
    let mut half = vec![0; 8192];
    fs.read(&large, 0, &mut half).unwrap();
    assert!(half == pattern(9, 8192));
    let error = fs.read(&large, 8192, &mut half).unwrap_err();
    assert_eq!(error.errno(), libc::EIO, "{error}");
    assert!(content(&fs, &find(&fs, "file"))[5000..] == pattern(1, 20_000));
    assert_eq!(fs.lookup(Ino::ROOT, b"dir").unwrap().kind, fs::FileKind::Directory);
}

#[test]
fn a_cpu_setting_that_makes_no_sense_is_named_with_what_it_may_be() {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    if let Some(dir) = asked_again() {
        let error = FileSystem::open_pool(&dir, &options).map(|_| ()).unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL);
        for word in ["NEARSIDE_CPU=nonsense", "portable"] {
            assert!(error.to_string().contains(word), "{word:?} is not in {error}");
        }
        return;
    }
    let pool = dirty();
    let name = "bad_input::media::a_cpu_setting_that_makes_no_sense_is_named_with_what_it_may_be";
    let mut command = again(name, &pool.dir(), &[]);
    command.env("NEARSIDE_CPU", "nonsense");
    passes(command);
    shown(&FileSystem::open_pool(&pool.dir(), &options).unwrap());
}
