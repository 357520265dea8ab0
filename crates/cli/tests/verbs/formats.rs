//! What `nearside format` says of where it makes a pool.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Output};

fn nearside(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nearside")).args(args).output().unwrap()
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A directory on a tmpfs; `None` where there is none.
fn in_memory() -> Option<tempfile::TempDir> {
    let shared = Path::new("/dev/shm");
    let kind = Command::new("stat").args(["-f", "-c", "%T"]).arg(shared).output().unwrap();
    if words(&kind.stdout).trim() != "tmpfs" {
        println!("skipped: {} is no tmpfs", shared.display());
        return None;
    }
    Some(tempfile::tempdir_in(shared).unwrap())
}

#[test]
fn a_slice_in_memory_is_named() {
    let Some(memory) = in_memory() else { return };
    let slice = format!("--slice={}:16M", memory.path().join("slice").display());
    let dir = tempfile::tempdir().unwrap();
    let pool = |name: &str| dir.path().join(name).display().to_string();
    // that is what the domain says
    let made = nearside(&["format", &pool("meant"), &slice, "--durability=process"]);
    assert!(made.status.success() && made.stderr.is_empty(), "{made:?}");
    let made = nearside(&["format", &pool("not"), &slice, "--force"]);
    let said = words(&made.stderr);
    assert!(made.status.success() && said.contains("lies in memory (tmpfs)"), "{made:?}");
    assert_eq!(said.matches("slice").count(), 1, "one slice, one line: {said}");
    let info = nearside(&["info", &pool("not"), "--json"]);
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    assert_eq!(info["slices"][0]["medium"], "tmpfs", "{info}");
    // a device below slices on a disk
    let capacity = format!("--capacity={}:64M", memory.path().join("capacity").display());
    let made = nearside(&["format", &pool("below"), "--size=16M", &capacity]);
    let said = words(&made.stderr);
    assert!(
        made.status.success() && said.contains("capacity.0 lies in memory (tmpfs)"),
        "{made:?}"
    );
}

/// A name under /dev that is no device is a mistyped one: a file there would be in memory, too.
#[test]
fn a_device_that_is_not_there_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let pool = dir.path().join("pool").display().to_string();
    let missing = "/dev/nearside-test-pmem7";
    for place in [format!("--slice={missing}:16M"), format!("--capacity={missing}:64M")] {
        let size = if place.starts_with("--slice") { "--slices=1" } else { "--size=16M" };
        let refused = nearside(&["format", &pool, &place, size]);
        let said = words(&refused.stderr);
        assert!(!refused.status.success(), "{refused:?}");
        assert!(said.contains(missing) && said.contains("there is no such device"), "{said}");
        assert!(!Path::new(missing).exists() && !Path::new(&pool).exists(), "{said}");
    }
}

/// Nothing tells a mistyped path from a meant one but what is there.
#[test]
fn what_somebody_has_in_a_file_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (pool, thesis) = (at("pool").display().to_string(), at("thesis"));
    let text = "a thesis, all of it\n".repeat(4096);
    let format = |place: &str, more: &[&str]| {
        let place = format!("{place}={}:64M", thesis.display());
        nearside(&[&["format", &pool, "--slices=1", "--size=16M", &place][..], more].concat())
    };
    for place in ["--slice", "--capacity"] {
        std::fs::write(&thesis, &text).unwrap();
        for dry in [&["--dry-run"][..], &[]] {
            let refused = format(place, dry);
            let said = words(&refused.stderr);
            assert!(!refused.status.success(), "{place} {dry:?}: {refused:?}");
            assert!(said.contains("thesis: it holds data") && said.contains("--force"), "{said}");
            assert_eq!(std::fs::read_to_string(&thesis).unwrap(), text, "{place} {dry:?}");
            assert!(!at("pool/slice.0").exists());
        }
        let made = format(place, &["--force"]);
        assert!(made.status.success(), "{made:?}");
        std::fs::remove_dir_all(&pool).unwrap();
        // zeros are nobody's
        std::fs::write(&thesis, [0; 5000]).unwrap();
        let made = format(place, &[]);
        assert!(made.status.success(), "{made:?}");
        std::fs::remove_dir_all(&pool).unwrap();
    }
}

/// As a mounted file system has it, or a volume.
#[test]
fn a_device_in_use_is_never_taken() {
    let backing = tempfile::NamedTempFile::new().unwrap();
    backing.as_file().set_len(64 << 20).unwrap();
    let Some((disk, _open)) = crate::tiers::block_device(backing.path()) else { return };
    let exclusive = || File::options().read(true).custom_flags(libc::O_EXCL).open(&disk).unwrap();
    let claim = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let pool = dir.path().join("pool").display().to_string();
    let capacity = format!("--capacity={}", disk.display());
    for more in [&[][..], &["--force"], &["--dry-run"]] {
        let refused = nearside(&[&["format", &pool, "--size=16M", &capacity][..], more].concat());
        let said = words(&refused.stderr);
        assert!(!refused.status.success() && said.contains("this device is in use"), "{refused:?}");
    }
    drop(claim);
    let made = nearside(&["format", &pool, "--size=16M", &capacity]);
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn a_pool_is_not_replaced_by_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let pool = dir.path().join("pool").display().to_string();
    let made = nearside(&["format", &pool, "--size=16M"]);
    assert!(made.status.success(), "{made:?}");
    for more in [&[][..], &["--force"]] {
        let refused = nearside(&[&["format", &pool, "--size=16M"][..], more].concat());
        let said = words(&refused.stderr);
        assert!(!refused.status.success(), "{refused:?}");
        assert!(said.contains("and format replaces none"), "{said}");
    }
}
