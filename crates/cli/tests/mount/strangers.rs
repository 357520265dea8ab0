//! Pools and mounts of other users, who may mean harm, and directories of a mount elsewhere.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use nix::mount::{MsFlags, mount, umount};

use crate::support::Scratch;

const USER: u32 = 1000;

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn give_to_user(pool: &Path) {
    for entry in std::fs::read_dir(pool).unwrap() {
        lchown(entry.unwrap().path(), Some(USER), Some(USER)).unwrap();
    }
    chown(pool, Some(USER), Some(USER)).unwrap();
}

fn try_mount(scratch: &Scratch) -> Output {
    scratch.run(["mount".as_ref(), scratch.pool().as_os_str(), scratch.mnt().as_os_str()])
}

fn as_user(program: &Path, args: &[&str]) -> Output {
    Command::new(program).args(args).uid(USER).gid(USER).output().unwrap()
}

/// What is written in the slices is read by nobody who may not read the pool's files.
#[test]
fn pools_are_made_for_their_owner_only() {
    let Some(scratch) = Scratch::mounted() else { return };
    std::fs::write(scratch.mnt().join("secret"), "TOP SECRET").unwrap();
    let of = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(of(&scratch.pool()), 0o700);
    for name in ["slice.0", "slice.1", "nearside.pid", "nearside.log", "nearside.sock"] {
        assert_eq!(of(&scratch.pool().join(name)), 0o600, "{name}");
    }
    let slice = scratch.pool().join("slice.0");
    let read = as_user(Path::new("/bin/cat"), &[slice.to_str().unwrap()]);
    assert!(!read.status.success());
    scratch.umount();
    // One that was opened to others is said to be.
    mode(&scratch.pool(), 0o755);
    mode(&slice, 0o644);
    let output = try_mount(&scratch);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("chmod 700"), "{said}");
    scratch.finish();
}

/// Who owns the pool chooses what lies in its directory: no link there is followed.
#[test]
fn names_of_ours_that_lead_elsewhere_are_refused() {
    let Some(scratch) = Scratch::formatted() else { return };
    let victim = scratch.root().join("victim");
    for name in ["nearside.pid", "nearside.log", ".nearside.sock.new", "nearside.keeper"] {
        std::fs::write(&victim, "root's").unwrap();
        mode(&victim, 0o640);
        let planted = scratch.pool().join(name);
        let _ = std::fs::remove_file(&planted);
        symlink(&victim, &planted).unwrap();
        give_to_user(&scratch.pool());
        if try_mount(&scratch).status.success() {
            scratch.umount();
        }
        assert_eq!(std::fs::read(&victim).unwrap(), b"root's", "{name}");
        let found = std::fs::metadata(&victim).unwrap();
        assert_eq!((found.mode() & 0o777, found.uid()), (0o640, 0), "{name}");
        let _ = std::fs::remove_file(&planted);
    }
    // Nobody ever writes to this one; it is not waited for.
    let pipe = scratch.pool().join("nearside.pid");
    let _ = std::fs::remove_file(&pipe);
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let refused = try_mount(&scratch);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("move it away"), "{said}");
    std::fs::remove_file(&pipe).unwrap();
    scratch.run_ok(["df".as_ref(), scratch.pool().as_os_str()]);
}

/// Where a user can write to the pool, a program of root's with the set-id bit is the user's work.
#[test]
fn set_id_bits_and_devices_count_in_roots_own_pools_only() {
    let Some(scratch) = Scratch::formatted() else { return };
    let id = scratch.mnt().join("id");
    let runs_as = || {
        let output = as_user(&id, &["-u"]);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let device_opens = || std::fs::File::open(scratch.mnt().join("null")).is_ok();
    scratch.mount();
    std::fs::copy("/usr/bin/id", &id).unwrap();
    mode(&id, 0o4755);
    let kind = nix::sys::stat::SFlag::S_IFCHR;
    let device = nix::sys::stat::makedev(1, 3);
    let bits = nix::sys::stat::Mode::from_bits_truncate(0o666);
    nix::sys::stat::mknod(&scratch.mnt().join("null"), kind, bits, device).unwrap();
    assert_eq!(runs_as(), "0");
    assert!(device_opens());
    scratch.umount();
    give_to_user(&scratch.pool());
    scratch.mount();
    assert_eq!(runs_as(), USER.to_string());
    assert!(!device_opens());
    // Nor do they stay where other content comes in their place.
    let program = scratch.root().join("program");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    let target = format!("{}:/id", scratch.pool().display());
    scratch.run_ok(["cp".as_ref(), program.as_os_str(), target.as_ref()]);
    assert_eq!(std::fs::metadata(&id).unwrap().mode() & 0o7000, 0);
    scratch.finish();
}

/// A directory of the mount that is mounted elsewhere is not the pool's root.
#[test]
fn a_part_of_the_mount_elsewhere_is_not_taken_for_the_pool() {
    let Some(scratch) = Scratch::mounted() else { return };
    let at = |name: &str| scratch.mnt().join(name);
    std::fs::create_dir(at("sub")).unwrap();
    std::fs::write(at("twice"), "top").unwrap();
    std::fs::write(at("sub/twice"), "sub").unwrap();
    let other = scratch.root().join("other");
    std::fs::create_dir(&other).unwrap();
    mount(Some(&at("sub")), &other, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    let inside = |name: &str| format!("{}:/{name}", scratch.pool().display());
    let read = scratch.run_ok(["cat".to_owned(), inside("twice")]);
    let removed = scratch.run(["rm".to_owned(), inside("twice")]);
    umount(&other).unwrap();
    assert_eq!(read, "top");
    assert!(removed.status.success());
    assert!(!at("twice").exists() && at("sub/twice").exists());
    scratch.finish();
}

/// Anybody may mount a FUSE file system, and say of it what they like.
#[test]
fn a_strangers_mount_that_names_the_pool_is_not_believed() {
    let Some(scratch) = Scratch::formatted() else { return };
    let spoof = scratch.root().join("spoof");
    std::fs::create_dir(&spoof).unwrap();
    // As fusermount3 would mount it for the user; nobody ever answers there.
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let settings = format!(
        "fd={},rootmode=40000,user_id={USER},group_id={USER},allow_other",
        std::os::fd::AsRawFd::as_raw_fd(&device)
    );
    let source = format!("nearside:{}", scratch.pool().display());
    let (source, settings) = (source.as_str(), settings.as_str());
    mount(Some(source), &spoof, Some("fuse.nearside"), MsFlags::empty(), Some(settings)).unwrap();
    let listed = scratch.run(["ls".as_ref(), scratch.pool().as_os_str()]);
    let unmounted = scratch.run(["umount".as_ref(), spoof.as_os_str()]);
    nix::mount::umount2(&spoof, nix::mount::MntFlags::MNT_DETACH).unwrap();
    drop(device);
    assert!(listed.status.success(), "{listed:?}");
    assert!(!unmounted.status.success(), "{unmounted:?}");
}
