//! `cp -r` of trees that cannot be copied whole, and onto trees that are there.

use std::os::unix::fs::{FileExt, symlink};

use crate::support::{Scratch, binary, each_way};

/// Turns one byte of `block`, which some slice of the pool holds.
fn damage(scratch: &Scratch, block: &[u8]) {
    let mut damaged = 0;
    for entry in std::fs::read_dir(scratch.pool()).unwrap().flatten() {
        if !entry.file_name().to_str().unwrap().starts_with("slice") {
            continue;
        }
        let bytes = std::fs::read(entry.path()).unwrap();
        if let Some(at) = bytes.chunks(block.len()).position(|chunk| chunk == block) {
            let place = at * block.len() + 77;
            let slice = std::fs::File::options().write(true).open(entry.path()).unwrap();
            slice.write_all_at(&[!bytes[place]], place as u64).unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1);
}

/// What is left of a damaged pool is copied out, as its owner is advised to.
#[test]
fn a_damaged_file_keeps_nobody_from_the_others() {
    let scratch = Scratch::new();
    let content = binary(3 << 20);
    for name in ["a", "c"] {
        scratch.put(&format!(":/{name}"), &content[..2 << 20]);
    }
    scratch.ok(&["mkdir", ":/b"]);
    scratch.put(":/b/bad", &content[2 << 20..]);
    scratch.put(":/b/good", b"good");
    damage(&scratch, &content[(2 << 20) + 8192..][..4096]);
    let all_but = "all copied but 1 files or directories, named above";
    scratch.fails(&["cp", "-r", ":/", "@out"], 1, &["pool:/b/bad: ", all_but]);
    let out = scratch.root().join("out");
    for name in ["a", "c"] {
        assert!(std::fs::read(out.join(name)).unwrap() == content[..2 << 20], "{name}");
    }
    assert_eq!(std::fs::read(out.join("b/good")).unwrap(), b"good");
    assert_eq!(std::fs::read_dir(out.join("b")).unwrap().count(), 1, "half a file is there");
}

#[test]
fn what_is_in_the_way_of_a_tree_is_told_and_left() {
    each_way(|scratch| {
        let tree = scratch.root().join("tree");
        std::fs::create_dir_all(tree.join("sub")).unwrap();
        for name in ["one", "sub/two", "sub/three"] {
            std::fs::write(tree.join(name), name).unwrap();
        }
        nix::unistd::mkfifo(&tree.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        scratch.ok(&["mkdir", "-p", ":/to/one", ":/to/sub/two"]);
        let said = ["/to/one: is a directory", "/to/sub/two: is a directory", "pipe: no file"];
        scratch.fails(&["cp", "-r", "@tree/.", ":/to"], 1, &said);
        let counts = "2 files or directories, named above, and 1 pipes";
        scratch.fails(&["cp", "-r", "@tree/.", ":/to"], 1, &[counts]);
        assert_eq!(scratch.ok(&["cat", ":/to/sub/three"]), "sub/three");
        scratch.check();
    });
}

/// cp(1) takes the place of links and files; so does a second copy of a tree.
#[test]
fn a_second_copy_of_a_tree_replaces_its_links() {
    each_way(|scratch| {
        let tree = scratch.root().join("tree");
        std::fs::create_dir_all(tree.join("dir")).unwrap();
        symlink("dir", tree.join("link")).unwrap();
        scratch.ok(&["cp", "-r", "@tree/.", ":/a"]);
        std::fs::remove_file(tree.join("link")).unwrap();
        symlink("elsewhere", tree.join("link")).unwrap();
        scratch.ok(&["cp", "-r", "@tree/.", ":/a"]);
        assert_eq!(scratch.json(&["stat", "--json", ":/a/link"])["target"], "elsewhere");
        scratch.ok(&["cp", "-a", ":/a", "@back"]);
        scratch.ok(&["cp", "-a", ":/a/.", "@back"]);
        let back = scratch.root().join("back");
        assert_eq!(std::fs::read_link(back.join("link")).unwrap().to_str(), Some("elsewhere"));
        // A file gives way, a directory does not.
        scratch.ok(&["rm", ":/a/link"]);
        scratch.put(":/a/link", b"file");
        scratch.ok(&["cp", "-r", "@tree/.", ":/a"]);
        assert_eq!(scratch.json(&["stat", "--json", ":/a/link"])["target"], "elsewhere");
        scratch.ok(&["rm", ":/a/link"]);
        scratch.ok(&["mkdir", ":/a/link"]);
        scratch.fails(&["cp", "-r", "@tree/.", ":/a"], 1, &["/a/link: is a directory"]);
        assert_eq!(scratch.all(), ["/a", "/a/dir", "/a/link"], "nothing else is left");
        scratch.check();
    });
}
