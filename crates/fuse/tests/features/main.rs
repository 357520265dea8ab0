//! What the mount does with each capability of the kernel's, and what it does without.
//!
//! Each test has the same calls made with and without a capability: they mean the same, but the
//! kernel asks otherwise. What it asks is how a test knows that it was really without. A capability
//! that changes nothing that could be seen here is in `files_work_without_any_one_capability` of
//! the tests named takeover.
//!
//! Needs root and /dev/fuse; without them the tests say so and pass.

#![allow(missing_docs, clippy::unwrap_used)]

mod asked;
mod mounted;

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use asked::{Asked, Seen};
use mounted::Mounted;
use nearside_fuse::wire::Capabilities;

const MIB: usize = 1 << 20;
/// More than one listing brings with attributes.
const NAMES: usize = 600;
/// Bytes of 32 pages: the largest request where none was agreed on.
const SMALL_REQUEST: usize = 128 << 10;

/// What the kernel asks for `calls`, with all that it has and without `masked`; `None` where
/// nothing can be mounted. `prepare` is not noted.
fn with_and_without(
    masked: Capabilities,
    prepare: impl Fn(&Mounted),
    calls: impl Fn(&Mounted),
) -> Option<[Seen; 2]> {
    let seen = |masked| {
        let mounted = Mounted::without(masked, true)?;
        prepare(&mounted);
        mounted.notes.take();
        calls(&mounted);
        let seen = mounted.notes.take();
        mounted.finish();
        Some(seen)
    };
    Some([seen(Capabilities::default())?, seen(masked)?])
}

fn truncated(asked: &Asked) -> bool {
    *asked == Asked::Open { truncates: true }
}

#[test]
fn a_file_is_opened_and_then_cut_whatever_the_kernel_could() {
    let prepare = |at: &Mounted| std::fs::write(at.at("f"), "content").unwrap();
    let calls = |at: &Mounted| {
        let file = OpenOptions::new().write(true).truncate(true).open(at.at("f")).unwrap();
        assert_eq!(file.metadata().unwrap().size(), 0);
    };
    let Some(both) = with_and_without(Capabilities::ATOMIC_O_TRUNC, prepare, calls) else {
        return;
    };
    for asked in both {
        assert_eq!((asked.count(truncated), asked.has(&Asked::Resize)), (0, true), "{asked:?}");
    }
}

fn names_of(dir: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let names = std::fs::read_dir(dir).unwrap().map(name);
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

fn many_names(at: &Mounted) {
    std::fs::create_dir(at.at("d")).unwrap();
    (0..NAMES).for_each(|name| drop(File::create(at.at(&format!("d/{name}"))).unwrap()));
}

/// Lists them, which nobody looks at then: with the choice, the kernel stops asking for attributes.
fn list_them(at: &Mounted) {
    let mut names: Vec<String> = (0..NAMES).map(|name| name.to_string()).collect();
    names.sort();
    assert_eq!(names_of(&at.at("d")), names);
}

#[test]
fn without_attributes_in_listings_plain_ones_are_read() {
    let capability = Capabilities::DO_READDIRPLUS;
    let Some([with, without]) = with_and_without(capability, many_names, list_them) else {
        return;
    };
    assert!(with.has(&Asked::Readdirplus) && with.has(&Asked::Readdir), "{with:?}");
    assert!(!without.has(&Asked::Readdirplus) && without.has(&Asked::Readdir), "{without:?}");
}

#[test]
fn without_the_choice_of_listings_all_bring_attributes() {
    let capability = Capabilities::READDIRPLUS_AUTO;
    let Some([with, without]) = with_and_without(capability, many_names, list_them) else {
        return;
    };
    assert!(with.has(&Asked::Readdir), "{with:?}");
    assert!(without.has(&Asked::Readdirplus) && !without.has(&Asked::Readdir), "{without:?}");
}

fn largest(seen: &Seen) -> usize {
    let bytes = |asked: &Asked| match asked {
        Asked::Read { bytes } | Asked::Write { bytes, .. } => *bytes,
        _ => 0,
    };
    seen.all.iter().map(bytes).max().unwrap_or(0)
}

/// Direct calls of 4 MiB.
fn read_and_write_directly(at: &Mounted) {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT);
    let file = options.open(at.at("f")).unwrap();
    let data: Vec<u8> = (0..4 * MIB).map(|at| (at / 1000) as u8).collect();
    file.write_all_at(&data, 0).unwrap();
    let mut read = vec![0; data.len()];
    file.read_exact_at(&mut read, 0).unwrap();
    assert!(read == data);
}

#[test]
fn without_large_requests_small_ones_do_the_same() {
    let Some([with, without]) =
        with_and_without(Capabilities::MAX_PAGES, |_| (), read_and_write_directly)
    else {
        return;
    };
    // A buffer that begins inside a page takes a page more than it has.
    assert!((MIB - 4096..=MIB).contains(&largest(&with)), "{}", largest(&with));
    assert!(largest(&without) <= SMALL_REQUEST, "{}", largest(&without));
}

#[test]
fn without_asynchronous_direct_calls_their_requests_come_one_by_one() {
    let prepare = |at: &Mounted| {
        std::fs::write(at.at("f"), vec![7; 4 * MIB]).unwrap();
        at.notes.take();
    };
    let read = |at: &Mounted| {
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_DIRECT).open(at.at("f")).unwrap();
        let mut read = vec![0; 4 * MIB];
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read.iter().all(|byte| *byte == 7));
    };
    let meeting = |at: &Mounted| {
        at.notes.meet();
        read(at);
    };
    let none = Capabilities::default();
    let Some([with, _]) = with_and_without(none, prepare, meeting) else { return };
    let watched = |at: &Mounted| {
        at.notes.watch();
        read(at);
    };
    let Some([_, without]) = with_and_without(Capabilities::ASYNC_DIO, prepare, watched) else {
        return;
    };
    assert!(with.under_way_max >= 2, "{with:?}");
    assert_eq!(without.under_way_max, 1, "{without:?}");
}

/// Reads ahead, by a reader that goes from the beginning to the end.
#[test]
fn without_asynchronous_reads_one_file_is_read_request_by_request() {
    let calls = |at: &Mounted| {
        std::fs::write(at.at("f"), vec![7; 8 * MIB]).unwrap();
        // What is not in the kernel's pages is asked for.
        let file = File::open(at.at("f")).unwrap();
        nix::fcntl::posix_fadvise(&file, 0, 0, nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED)
            .unwrap();
        at.notes.take();
        at.notes.watch();
        let mut read = Vec::new();
        (&file).read_to_end(&mut read).unwrap();
        assert!(read.len() == 8 * MIB && read.iter().all(|byte| *byte == 7));
    };
    let Some([with, without]) = with_and_without(Capabilities::ASYNC_READ, |_| (), calls) else {
        return;
    };
    let reads = |seen: &Seen| seen.count(|asked| matches!(asked, Asked::Read { .. }));
    assert!(reads(&with) > 1 && reads(&without) > 1, "{with:?} {without:?}");
    assert_eq!(without.under_way_max, 1, "{without:?}");
}

/// Two threads look names of one directory up.
fn look_up(at: &Mounted) {
    let look = |thread: usize| {
        for name in 0..100 {
            assert!(!at.at(&format!("none {thread} {name}")).exists());
        }
    };
    std::thread::scope(|threads| {
        (0..2).for_each(|thread| drop(threads.spawn(move || look(thread))))
    });
}

#[test]
fn without_parallel_look_ups_those_of_a_directory_come_one_by_one() {
    let meeting = |at: &Mounted| {
        at.notes.meet();
        look_up(at);
    };
    let none = Capabilities::default();
    let Some([with, _]) = with_and_without(none, |_| (), meeting) else { return };
    let watched = |at: &Mounted| {
        at.notes.watch();
        look_up(at);
    };
    let capability = Capabilities::PARALLEL_DIROPS;
    let Some([_, without]) = with_and_without(capability, |_| (), watched) else { return };
    assert_eq!(with.under_way_max, 2, "{with:?}");
    assert_eq!(without.under_way_max, 1, "{without:?}");
}

#[test]
fn without_cached_links_each_target_is_asked_for() {
    let prepare = |at: &Mounted| std::os::unix::fs::symlink("target", at.at("l")).unwrap();
    let calls = |at: &Mounted| {
        for _ in 0..5 {
            assert_eq!(std::fs::read_link(at.at("l")).unwrap(), Path::new("target"));
        }
    };
    let Some([with, without]) = with_and_without(Capabilities::CACHE_SYMLINKS, prepare, calls)
    else {
        return;
    };
    let asked = |seen: &Seen| seen.count(|asked| *asked == Asked::Readlink);
    assert_eq!((asked(&with), asked(&without)), (1, 5));
}

/// A write by a user who may not keep set-id bits.
fn write_as_another(at: &Mounted) {
    let mut command = Command::new("sh");
    command.args(["-c", "printf x >> f"]).current_dir(at.at("")).uid(1000).gid(1000);
    assert!(command.status().unwrap().success());
    assert_eq!(std::fs::metadata(at.at("f")).unwrap().mode() & 0o7777, 0o777);
}

#[test]
fn without_word_from_the_kernel_set_id_bits_go_by_its_own_hand() {
    let prepare = |at: &Mounted| {
        std::fs::write(at.at("f"), "").unwrap();
        std::fs::set_permissions(at.at("f"), PermissionsExt::from_mode(0o6777)).unwrap();
    };
    let capability = Capabilities::HANDLE_KILLPRIV_V2;
    let Some([with, without]) = with_and_without(capability, prepare, write_as_another) else {
        return;
    };
    assert!(with.has(&Asked::Write { bytes: 1, kill_set_id: true }), "{with:?}");
    assert!(!with.has(&Asked::Chmod), "{with:?}");
    assert!(without.has(&Asked::Write { bytes: 1, kill_set_id: false }), "{without:?}");
    assert!(without.has(&Asked::Chmod), "{without:?}");
}

/// A file that a shell makes whose umask is 027.
fn create_masked(at: &Mounted) {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 027; : > new"]).current_dir(at.at(""));
    assert!(command.status().unwrap().success());
    assert_eq!(std::fs::metadata(at.at("new")).unwrap().mode() & 0o7777, 0o640);
}

#[test]
fn without_the_servers_umask_the_kernel_applies_it() {
    let Some([with, without]) = with_and_without(Capabilities::DONT_MASK, |_| (), create_masked)
    else {
        return;
    };
    assert!(with.has(&Asked::Create { mode: 0o666, umask: 0o027 }), "{with:?}");
    assert!(without.has(&Asked::Create { mode: 0o640, umask: 0o027 }), "{without:?}");
}

/// The list of acl(5) that lets user 1000 read, and its owner do as he likes.
fn list_for_another() -> Vec<u8> {
    let entries = [
        (1u16, 6u16, u32::MAX),
        (2, 4, 1000),
        (4, 0, u32::MAX),
        (16, 4, u32::MAX),
        (32, 0, u32::MAX),
    ];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        list.extend([tag.to_le_bytes(), bits.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    list
}

/// Whether user 1000 reads a file that only an ACL lets him read.
fn acl_counts(masked: Capabilities) -> Option<bool> {
    let at = Mounted::without(masked, true)?;
    std::fs::write(at.at("f"), "content").unwrap();
    std::fs::set_permissions(at.at("f"), PermissionsExt::from_mode(0o600)).unwrap();
    let ino = at.pool.fs().lookup(nearside::files::Ino::ROOT, b"f").unwrap().ino;
    let name = b"system.posix_acl_access";
    at.pool.fs().setxattr(ino, name, &list_for_another(), nearside::XattrMode::Any).unwrap();
    let mut command = Command::new("cat");
    command.arg("f").current_dir(at.at("")).uid(1000).gid(1000);
    let output = command.output().unwrap();
    at.finish();
    Some(output.stdout == b"content")
}

/// Without it the bits count alone: those of the group, which are the list's mask (acl(5)).
#[test]
fn without_access_lists_the_permission_bits_count() {
    let Some(with) = acl_counts(Capabilities::default()) else { return };
    assert!(with);
    assert_eq!(acl_counts(Capabilities::POSIX_ACL), Some(false));
}

/// Where other doors change files: with it pages go when the kernel sees the change, without it
/// when the file is opened again.
#[test]
fn without_word_of_changes_pages_go_at_the_next_open() {
    for masked in [Capabilities::default(), Capabilities::AUTO_INVAL_DATA] {
        let Some(at) = Mounted::without(masked, false) else { return };
        for round in 0..10u8 {
            at.pool.write("f", vec![round; 5000 + usize::from(round)]).unwrap();
            let read = std::fs::read(at.at("f")).unwrap();
            assert!(read.iter().all(|byte| *byte == round), "{masked:?}");
            assert_eq!(read.len(), 5000 + usize::from(round));
        }
        at.finish();
    }
}

/// The upper half of the capabilities, and flags of setxattr(2) that only the kernel knows.
#[test]
fn without_later_parts_of_requests_their_first_parts_are_understood() {
    for masked in [
        Capabilities::INIT_EXT,
        Capabilities::SETXATTR_EXT,
        Capabilities::CREATE_SUPP_GROUP,
        Capabilities::BIG_WRITES,
        Capabilities::DIRECT_IO_ALLOW_MMAP,
    ] {
        let Some(at) = Mounted::without(masked, true) else { return };
        let mut command = Command::new("sh");
        let script =
            "mkdir d; chgrp 77 d; chmod 2775 d; : > d/f; mkdir d/s; printf 0123456789 > d/f
            test \"$(stat -c %g d/f d/s | sort -u)\" = 77; test \"$(cat d/f)\" = 0123456789";
        command.args(["-euc", script]).current_dir(at.at(""));
        assert!(command.status().unwrap().success(), "{masked:?}");
        let file = File::open(at.at("d/f")).unwrap();
        rustix::fs::fsetxattr(&file, "user.a", b"value", rustix::fs::XattrFlags::CREATE).unwrap();
        let met = rustix::fs::fsetxattr(&file, "user.a", b"", rustix::fs::XattrFlags::CREATE);
        assert_eq!(met, Err(rustix::io::Errno::EXIST), "{masked:?}");
        let mut value = [0; 16];
        let bytes = rustix::fs::fgetxattr(&file, "user.a", &mut value[..]).unwrap();
        assert_eq!(&value[..bytes], b"value", "{masked:?}");
        drop(file);
        at.finish();
    }
}
