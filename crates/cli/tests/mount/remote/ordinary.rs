//! What programs do, over a network.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{XattrFlags, getxattr, setxattr};

use super::Remote;
use crate::support::is_mounted;

#[test]
fn files_and_directories_are_as_on_any_other() {
    let Some(remote) = Remote::mounted() else { return };
    remote.scratch.sh(r#"
        umask 022
        echo hello > a; test "$(cat a)" = hello; test "$(stat -c '%a %s %h' a)" = "644 6 1"
        mkdir -p d/e/f; mv a d/e/f/b; ln d/e/f/b c; test "$(stat -c %h c)" = 2
        ln -s d/e l; test "$(readlink l)" = d/e; test "$(cat l/f/b)" = hello
        mkfifo p; test -p p; rm p; ! rmdir d 2>/dev/null
        seq 1 20000 > n; test "$(wc -l < n)" = 20000; truncate -s 100 n
        test "$(stat -c %s n)" = 100; chmod 600 n; touch -d @1000 n
        test "$(stat -c '%a %Y' n)" = "600 1000"
        i=0; while [ $i -lt 300 ]; do : > d/$i; i=$((i + 1)); done
        test "$(ls d | wc -l)" = 301; rm -r d; test ! -e d
        dd if=/dev/urandom of=big bs=1M count=9 2>/dev/null; cp big copy; cmp big copy
        df . | grep -q near+insecure://; echo x >> c; echo y >> c; test "$(tail -n 1 c)" = y
    "#);
    let path = remote.scratch.mnt().join("c");
    setxattr(&path, "user.a", b"value", XattrFlags::empty()).unwrap();
    let mut value = [0; 16];
    assert_eq!(getxattr(&path, "user.a", &mut value).unwrap(), 5);
    assert_eq!(&value[..5], b"value");
    let large = vec![7; 3000];
    setxattr(&path, "user.b", &large, XattrFlags::empty()).unwrap();
    let mut value = vec![0; 65_536];
    assert_eq!(getxattr(&path, "user.b", &mut value).unwrap(), large.len());
    assert!(value.starts_with(&large));
    remote.finish();
}

#[test]
fn what_is_open_without_a_name_stays_until_it_is_closed() {
    let Some(remote) = Remote::mounted() else { return };
    let path = remote.scratch.mnt().join("f");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all_at(b"kept", 0).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    remote.kill_service();
    remote.kill_forwarder(&remote.scratch.mnt());
    let mut found = [0; 4];
    file.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"kept");
    drop(file);
    remote.finish();
}

#[test]
fn two_mounts_see_what_each_other_does() {
    let Some(remote) = Remote::mounted() else { return };
    let (one, two) = (remote.scratch.mnt(), remote.second());
    let mut log = File::create(one.join("log")).unwrap();
    for round in 0..200 {
        writeln!(log, "{round}").unwrap();
        let seen = std::fs::read_to_string(two.join("log")).unwrap();
        assert_eq!(seen.lines().count(), round + 1, "a write returned before this read");
        let (from, to) = (one.join(format!("a{round}")), two.join(format!("b{round}")));
        std::fs::write(&from, "x").unwrap();
        std::fs::rename(two.join(format!("a{round}")), &to).unwrap();
        assert!(!from.exists() && one.join(format!("b{round}")).exists());
        std::fs::remove_file(one.join(format!("b{round}"))).unwrap();
        assert!(!to.exists());
    }
    drop(log);
    remote.unmount(&two);
    remote.finish();
}

#[test]
fn a_part_of_a_pool_can_be_the_root() {
    let Some(remote) = Remote::mounted() else { return };
    remote.scratch.sh("mkdir -p a/b; echo in > a/b/f; echo out > f; ln -s /b a/l");
    let dir = remote.scratch.root().join("second");
    remote.mount_on(&dir, &format!("{}/a", remote.address));
    assert_eq!(std::fs::read_to_string(dir.join("b/f")).unwrap(), "in\n");
    assert!(!dir.join("f").exists());
    std::fs::rename(dir.join("b/f"), dir.join("g")).unwrap();
    std::fs::hard_link(dir.join("g"), dir.join("h")).unwrap();
    let names = remote.scratch.sh("ls a");
    assert_eq!(names, "b\ng\nh\nl\n");
    remote.unmount(&dir);
    for (path, why) in [("none", "no such"), ("f", "not a directory")] {
        let address = format!("{}/{path}", remote.address);
        let output = remote.scratch.run(["mount".as_ref(), address.as_ref(), dir.as_os_str()]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(why), "{said}");
        assert!(!is_mounted(&dir));
    }
    remote.finish();
}
