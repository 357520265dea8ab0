//! Programs that list and copy: what they are told of data, of holes, and of damage.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::remote::Remote;
use crate::support::{Scratch, has};

/// Bytes of a block, and of a page of a tree.
const BLOCK: usize = 4096;

/// Data that is so short that it has no block of its own is data to who copies by `st_blocks`.
#[test]
fn a_file_that_holds_data_has_a_block() {
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.sh(r#"
        truncate -s 1M hole
        for at in 0 500000 1048570; do
            truncate -s 1M short-$at
            printf 'short' | dd of=short-$at bs=1 seek=$at conv=notrunc status=none
        done
        truncate -s 1M many
        for at in 1 2 3 4 5 6 7 8 9; do
            printf '%0100d' $at | dd of=many bs=1 seek=${at}00000 conv=notrunc status=none
        done
    "#);
    let copies = |tool: &str, copy: &str| {
        if has(tool) {
            scratch.sh(&format!("for f in short-* many; do {copy}; cmp $f $OUTSIDE/copy; done"));
        }
    };
    for round in ["written", "synced", "mounted again"] {
        let blocks = |name: &str| std::fs::metadata(scratch.mnt().join(name)).unwrap().blocks();
        assert_eq!(blocks("hole"), 0, "{round}");
        for name in ["short-0", "short-500000", "short-1048570", "many"] {
            assert!(blocks(name) > 0, "{name}, {round}");
        }
        copies("tar", "tar -cSf $OUTSIDE/copy.tar $f; tar -xOf $OUTSIDE/copy.tar > $OUTSIDE/copy");
        copies("cp", "cp --sparse=auto $f $OUTSIDE/copy");
        // which else takes files of one length and second for the same
        copies("rsync", "rsync -S --ignore-times $f $OUTSIDE/copy");
        copies("bsdtar", "bsdtar -cf - $f | bsdtar -xOf - > $OUTSIDE/copy");
        match round {
            "written" => drop(scratch.sh("sync short-0 short-500000 many")),
            _ => {
                scratch.umount();
                scratch.mount();
            }
        }
    }
    scratch.finish();
}

/// Damages the pages of trees that have the attributes of this inode, and no name; gives how many.
fn lose_attributes(pool: &Path, ino: u64) -> usize {
    // an inode's attributes are its first value (docs/FORMAT.md)
    let key = [&ino.to_be_bytes()[..], &[1]].concat();
    let mut damaged = 0;
    for entry in std::fs::read_dir(pool).unwrap().map(|entry| entry.unwrap()) {
        if !entry.file_name().to_string_lossy().starts_with("slice.") {
            continue;
        }
        let mut image = std::fs::read(entry.path()).unwrap();
        for page in image.chunks_mut(BLOCK) {
            let is_leaf = page.starts_with(b"NSTP") && page[5] == 0;
            let holds = |sought: &[u8]| page.windows(sought.len()).any(|bytes| bytes == sought);
            if is_leaf && holds(&key) && !holds(b"named-") && !holds(b"backup") {
                page[2000] ^= 1;
                damaged += 1;
            }
        }
        std::fs::write(entry.path(), image).unwrap();
    }
    damaged
}

/// Programs that remove what they do not see elsewhere would take such a file for deleted.
#[test]
fn a_name_whose_inode_cannot_be_read_is_in_every_listing() {
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.sh(r#"
        mkdir d
        for n in $(seq 100 399); do echo $n > d/named-$n; done
        mkdir backup; cp d/* backup/
    "#);
    let ino = std::fs::metadata(scratch.mnt().join("d/named-250")).unwrap().ino();
    scratch.umount();
    assert!(lose_attributes(&scratch.pool(), ino) > 0);
    scratch.mount();
    let dir = scratch.mnt().join("d");
    // a second listing may come from what the kernel has kept of the first one
    for _ in 0..2 {
        let entries = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap());
        let names: BTreeSet<_> = entries.map(|entry| entry.file_name()).collect();
        assert_eq!(names.len(), 300);
        let found = names.iter().map(|name| std::fs::symlink_metadata(dir.join(name)));
        let lost: Vec<_> =
            found.filter_map(Result::err).map(|error| error.raw_os_error()).collect();
        assert!(!lost.is_empty() && lost.len() < 300, "{}", lost.len());
        assert!(lost.iter().all(|errno| *errno == Some(libc::EIO)), "{lost:?}");
    }
    for command in ["ls -l d", "cp -r d $OUTSIDE/copy", "tar -cf $OUTSIDE/d.tar d", "du -s d"] {
        let output = scratch.sh_as(None, command);
        assert!(!output.status.success(), "{command} says nothing of the damage");
    }
    if has("rsync") {
        let output = scratch.sh_as(None, "rsync -a --delete d/ backup");
        assert!(!output.status.success());
        assert_eq!(std::fs::read_dir(scratch.mnt().join("backup")).unwrap().count(), 300);
    }
    scratch.umount();
}

/// Programs that copy what they find to be data, as far as this machine has them. All but the first
/// make a repository each time, and are asked after the first store only.
const IF_INSTALLED: [(&str, &str); 3] = [
    ("qemu-img", "qemu-img convert -f raw -O raw -S 4k mapped copy"),
    (
        "restic",
        "rm -rf ../restic ../restored; export RESTIC_PASSWORD=none RESTIC_REPOSITORY=../restic
        restic init -q && restic backup -q --no-cache mapped &&
        restic restore -q --no-cache latest --target ../restored && mv ../restored/mapped copy",
    ),
    (
        "borg",
        "rm -rf ../borg ../restored; mkdir ../borg; export BORG_BASE_DIR=$PWD/../borg
        borg init -e none ../borg/repo 2>/dev/null && borg create ../borg/repo::one mapped &&
        mkdir ../restored && (cd ../restored && borg extract ../borg/repo::one) &&
        mv ../restored/mapped copy",
    ),
];

/// A mapping's stores that no program has synced are data to all who look for data.
const STORED: &str = r#"
import mmap, os, shutil, subprocess, sys
digits = b"0123456789"
f = os.open("mapped", os.O_RDWR | os.O_CREAT)
reader = os.open("mapped", os.O_RDONLY)
os.ftruncate(f, 1 << 20)
m = mmap.mmap(f, 1 << 20)
os.close(f)
for place in (300000, 0, (1 << 20) - 10, 700000):
    m[place:place + 10] = digits
    assert os.stat("mapped").st_blocks > 0
    at = os.lseek(reader, place, os.SEEK_DATA)
    assert at == place, (at, place)
    assert os.lseek(reader, place, os.SEEK_HOLE) >= place + 10
    want = bytes(m)
    ways = sys.argv[1:]
    for way in ways if place == 300000 else ways[:ways.index("")]:
        if not way:
            continue
        subprocess.run(["sh", "-c", way], check=True)
        assert open("copy", "rb").read() == want, (way, place)
        os.unlink("copy")
    copy = os.open("copy", os.O_RDWR | os.O_CREAT)
    done = 0
    while done < 1 << 20:
        done += os.copy_file_range(reader, copy, (1 << 20) - done, done, done)
    assert os.pread(copy, 1 << 20, 0) == want, place
    os.close(copy)
    os.unlink("copy")
# a hole stays one
assert os.lseek(reader, 8192, os.SEEK_HOLE) == 8192
assert os.lseek(reader, 8192, os.SEEK_DATA) == 300000 // 4096 * 4096
"#;

#[test]
fn what_was_stored_to_a_mapping_is_copied() {
    if !has("python3") {
        return;
    }
    let mut ways = vec![
        "cp mapped copy",
        "cp --sparse=always mapped copy",
        "cat mapped > copy",
        "tar -cSf copy.tar mapped && tar -xOf copy.tar > copy",
    ];
    for (at, (tool, way)) in IF_INSTALLED.iter().enumerate() {
        if at == 1 {
            ways.push("");
        }
        if has(tool) {
            ways.push(way);
        }
    }
    let run = |scratch: &Scratch, dir: &Path| {
        let mut command = std::process::Command::new("timeout");
        command.args(["180", "python3", "-c", STORED]).args(&ways).current_dir(dir);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}\n{}", scratch.log());
    };
    let Some(scratch) = Scratch::mounted() else { return };
    run(&scratch, &scratch.mnt());
    scratch.finish();
    let served = Remote::with_own_mount(&["--squash=none"]).unwrap();
    run(&served.scratch, &served.own());
    std::fs::remove_file(served.own().join("mapped")).unwrap();
    let away = served.scratch.mnt();
    served.mount_on(&away, &served.address);
    run(&served.scratch, &away);
    served.stop();
}
