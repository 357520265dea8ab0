//! Ways to a file, and opening it: path_resolution(7), open(2).

use nearside::OpenFlags;

use crate::support::{ANN, BEN, Scratch, TEAM, denied, errno};

#[test]
fn every_directory_of_a_path_must_be_searchable() {
    let pool = Scratch::new();
    pool.dir("/a", ANN, 0o711);
    pool.dir("/a/closed", ANN, 0o700);
    pool.dir("/a/closed/open", ANN, 0o777);
    pool.file("/a/closed/open/file", ANN, 0o666);
    let (ann, ben) = (pool.of(ANN, &[]), pool.of(BEN, &[]));
    assert_eq!(ann.read("/a/closed/open/file").unwrap(), b"content");
    assert!(ben.metadata("/a/closed").unwrap().is_dir(), "its parent is searchable");
    for path in ["/a/closed/open/file", "/a/closed/nothing", "/a/closed/.", "/a/closed/../closed"] {
        denied(ben.metadata(path));
        denied(ben.symlink_metadata(path));
        denied(ben.exists(path));
    }
    denied(ben.read("/a/closed/open/file"));
    denied(ben.read_link("/a/closed/open/file"));
    denied(ben.write("/a/closed/open/new", "x"));
    denied(ben.create_dir_all("/a/closed/open/x/y"));
    assert!(pool.root().exists("/a/closed/open/file").unwrap());
    pool.set_permissions("/", 0o700).unwrap();
    denied(ann.metadata("/a"));
    assert!(ann.metadata("/").is_ok(), "nothing was looked up there");
    pool.set_permissions("/", 0o755).unwrap();
}

#[test]
fn targets_of_links_are_walked_with_the_same_rights() {
    let pool = Scratch::new();
    pool.dir("/closed", ANN, 0o700);
    pool.file("/closed/file", ANN, 0o666);
    pool.dir("/links", BEN, 0o755);
    pool.symlink("/closed/file", "/links/absolute").unwrap();
    pool.symlink("../closed/file", "/links/relative").unwrap();
    pool.symlink("../closed", "/links/dir").unwrap();
    let (ann, ben) = (pool.of(ANN, &[]), pool.of(BEN, &[]));
    for path in ["/links/absolute", "/links/relative", "/links/dir/file"] {
        assert_eq!(ann.read(path).unwrap(), b"content");
        denied(ben.read(path));
        denied(ben.metadata(path));
    }
    assert!(ben.read_link("/links/absolute").is_ok(), "a link is read by who can come to it");
    denied(ben.open_file("/links/dir/new", &OpenFlags::new().write(true).create(true)));
}

#[test]
fn a_file_is_opened_by_the_bits_of_its_class_alone() {
    let pool = Scratch::new();
    pool.file("/f", ANN, 0o640);
    let reads = OpenFlags::new().read(true);
    let writes = OpenFlags::new().write(true);
    let (ann, ben) = (pool.of(ANN, &[]), pool.of(BEN, &[]));
    let member = pool.of(BEN, &[77, ANN.1, 5]);
    assert!(ann.open_file("/f", &reads.write(true)).is_ok());
    assert!(member.open_file("/f", &reads).is_ok());
    for flags in [writes, OpenFlags::new().append(true), reads.write(true), writes.truncate(true)] {
        denied(member.open_file("/f", &flags));
        denied(ben.open_file("/f", &flags));
    }
    denied(ben.open_file("/f", &reads));
    // no class has what another one has
    pool.settle("/f", ANN, 0o077);
    denied(ann.open_file("/f", &reads));
    assert!(ben.open_file("/f", &reads.write(true)).is_ok());
    pool.settle("/f", ANN, 0o707);
    denied(member.open_file("/f", &reads));
    assert!(ben.open_file("/f", &reads).is_ok());
    let (root, process) = (pool.root(), &*pool);
    pool.settle("/f", ANN, 0);
    for all in [&root, process] {
        assert!(all.open_file("/f", &reads.write(true).truncate(true)).is_ok());
    }
    assert_eq!(pool.metadata("/f").unwrap().len(), 0);
}

#[test]
fn what_is_open_stays_open_whatever_becomes_of_the_rights() {
    let pool = Scratch::new();
    pool.file("/f", ANN, 0o666);
    let ben = pool.of(BEN, &[]);
    let file = ben.open_file("/f", &OpenFlags::new().read(true).write(true)).unwrap();
    pool.settle("/f", ANN, 0);
    file.write_all_at(b"later", 0).unwrap();
    file.set_len(5).unwrap();
    let mut content = [0; 5];
    file.read_exact_at(&mut content, 0).unwrap();
    assert_eq!(&content, b"later");
    denied(ben.open_file("/f", &OpenFlags::new().read(true)));
}

#[test]
fn who_makes_a_file_may_use_it_whatever_its_bits_say() {
    let pool = Scratch::new();
    pool.dir("/d", ANN, 0o755);
    let new = OpenFlags::new().read(true).write(true).create_new(true).mode(0);
    let ann = pool.of(ANN, &[]);
    let file = ann.open_file("/d/f", &new).unwrap();
    file.write_all_at(b"mine", 0).unwrap();
    denied(ann.read("/d/f"));
}

#[test]
fn creating_needs_the_parent_only_where_there_is_nothing() {
    let pool = Scratch::new();
    pool.dir("/d", ANN, 0o755);
    pool.file("/d/f", ANN, 0o666);
    let ben = pool.of(BEN, &[TEAM]);
    let create = OpenFlags::new().write(true).create(true);
    assert!(ben.open_file("/d/f", &create).is_ok());
    denied(ben.open_file("/d/new", &create));
    let new = OpenFlags::new().write(true).create_new(true);
    assert_eq!(errno(ben.open_file("/d/f", &new)), libc::EEXIST);
    pool.symlink("/d/new", "/to_new").unwrap();
    denied(ben.open_file("/to_new", &create));
    // to write there is not enough, nor to search
    for mode in [0o752, 0o751] {
        pool.settle("/d", ANN, mode);
        denied(ben.open_file("/d/new", &create));
    }
    pool.settle("/d", (ANN.0, TEAM), 0o730);
    assert!(ben.open_file("/d/new", &create).is_ok());
    assert_eq!(pool.owner("/d/new"), BEN);
}

#[test]
fn listing_a_directory_needs_permission_to_read_it() {
    let pool = Scratch::new();
    pool.dir("/d", ANN, 0o711);
    pool.file("/d/f", ANN, 0o644);
    let ben = pool.of(BEN, &[]);
    denied(ben.read_dir("/d"));
    assert_eq!(ben.read("/d/f").unwrap(), b"content");
    pool.settle("/d", ANN, 0o744);
    assert_eq!(ben.read_dir("/d").unwrap().count(), 1);
    denied(ben.read("/d/f"));
}
