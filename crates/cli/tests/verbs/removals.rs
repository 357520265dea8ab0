//! `mkdir`, `mv` and `rm`.

use crate::support::each_way;

#[test]
fn directories_are_made() {
    each_way(|scratch| {
        scratch.ok(&["mkdir", ":/a", ":/b/"]);
        scratch.fails(&["mkdir", ":/a"], 1, &[":/a: the name exists", "-p"]);
        scratch.fails(&["mkdir", ":/c/d"], 1, &[":/c/d: ", "missing", "-p"]);
        scratch.ok(&["mkdir", "-p", ":/c/d/e", ":/a"]);
        assert_eq!(scratch.all(), ["/a", "/b", "/c", "/c/d", "/c/d/e"]);
        scratch.put(":/file", b"x");
        scratch.fails(&["mkdir", "-p", ":/file"], 1, &[":/file", "not a directory"]);
        scratch.fails(&["mkdir", "-p", ":/file/x"], 1, &["not a directory"]);
        scratch.fails(&["mkdir", "@pool"], 2, &["POOL:/path"]);
    });
}

#[test]
fn names_are_moved_in_a_pool() {
    each_way(|scratch| {
        scratch.put(":/one", b"1");
        scratch.put(":/two", b"2");
        scratch.ok(&["mkdir", "-p", ":/dir/sub"]);
        scratch.ok(&["mv", ":/one", ":/two"]);
        assert_eq!(scratch.ok(&["cat", ":/two"]), "1");
        scratch.ok(&["mv", ":/two", ":/dir"]);
        scratch.ok(&["mv", ":/dir", ":/new/"]);
        assert_eq!(scratch.all(), ["/new", "/new/sub", "/new/two"]);
        scratch.fails(&["mv", ":/no", ":/x"], 1, &[":/no", "no such file"]);
        scratch.fails(&["mv", ":/new/two", ":/no/x"], 1, &["no such file"]);
        scratch.fails(&["mv", ":/new", ":/new/sub"], 1, &[":/new"]);
        scratch.fails(&["mv", ":/new/two", ":/new/sub/../two/x"], 1, &["not a directory"]);
        scratch.fails(&["mv", ":/new/.", ":/x"], 1, &["names no entry"]);
        scratch.fails(&["mv", ":/new", "@other:/new"], 2, &["one pool", "nearside cp"]);
        scratch.fails(&["mv", ":/new", "@new"], 2, &["POOL:/path"]);
        assert_eq!(scratch.all(), ["/new", "/new/sub", "/new/two"]);
    });
}

#[test]
fn what_is_named_is_removed_and_nothing_else() {
    each_way(|scratch| {
        let tree = scratch.root().join("tree");
        std::fs::create_dir_all(tree.join("sub")).unwrap();
        // More than one call to the engine lists.
        for n in 0..300 {
            std::fs::write(tree.join(format!("sub/{n}")), "x").unwrap();
        }
        std::os::unix::fs::symlink("/stays", tree.join("link")).unwrap();
        scratch.ok(&["cp", "-r", "@tree", ":/tree"]);
        scratch.ok(&["cp", "-r", "@tree/link", ":/link"]);
        scratch.ok(&["mkdir", ":/stays"]);
        scratch.put(":/stays/file", b"x");
        let before = scratch.all();
        scratch.fails(&["rm", ":/tree"], 1, &[":/tree: is a directory", "-r"]);
        for path in [":/", "://", ":/tree/.", ":/tree/.."] {
            scratch.fails(&["rm", "-rf", path], 1, &["names no entry"]);
        }
        scratch.fails(&["rm", "-r", ":/link/"], 1, &["no directory", "slash"]);
        scratch.fails(&["rm", ":/no"], 1, &[":/no", "no such file"]);
        scratch.fails(&["rm", "@x"], 2, &["POOL:/path"]);
        let would = scratch.ok(&["rm", "-r", "--dry-run", ":/tree", ":/link"]);
        assert_eq!(scratch.all(), before);
        assert_eq!(would.lines().count(), 304, "{would}");
        assert!(would.ends_with(&format!("{0}:/tree\n{0}:/link\n", scratch.pool().display())));
        let would = scratch.json(&["rm", "-r", "--dry-run", "--json", ":/tree", ":/link"]);
        let list = would.as_array().unwrap();
        assert_eq!(list.len(), 304);
        let link = &list[303];
        assert_eq!(link["path"], format!("{}:/link", scratch.pool().display()));
        assert_eq!((&link["kind"], &list[302]["kind"]), (&"symlink".into(), &"directory".into()));
        scratch.fails(&["rm", "--json", ":/link"], 2, &["--dry-run"]);
        assert_eq!(scratch.all(), before);
        scratch.ok(&["rm", "-f", ":/no"]);
        assert_eq!(scratch.ok(&["rm", "-r", ":/tree", ":/link"]), "");
        assert_eq!(scratch.all(), ["/stays", "/stays/file"]);
        scratch.check();
    });
}
