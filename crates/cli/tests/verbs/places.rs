//! Where files lie: `where` and `set`.

use std::path::Path;

use rustix::io::Errno;
use serde_json::Value;

use crate::support::{Scratch, binary, ok, run};

const LARGE: usize = 3 << 20;

fn shares(told: &Value) -> Vec<u64> {
    let slices = told["slices"].as_array().unwrap();
    assert!(slices.iter().zip(0u64..).all(|(slice, index)| slice["slice"] == index));
    slices.iter().map(|slice| slice["bytes"].as_u64().unwrap()).collect()
}

/// What the extents say of the same.
fn check_extents(told: &Value) {
    let mut sums = vec![0; shares(told).len()];
    let mut end = 0;
    for extent in told["extents"].as_array().unwrap() {
        let number = |name: &str| extent[name].as_u64().unwrap();
        assert!(number("offset") >= end, "{told}");
        end = number("offset") + number("bytes");
        sums[number("slice") as usize] += number("bytes");
    }
    assert_eq!(sums, shares(told));
    assert_eq!(told["bytes"].as_u64(), Some(sums.iter().sum()));
}

fn mounted(path: &Path) -> Value {
    let output = ok(run(["where".as_ref(), path.as_os_str(), "--json".as_ref()]));
    serde_json::from_slice(&output).unwrap()
}

#[test]
fn where_a_file_lies_is_told_and_set() {
    let scratch = Scratch::new();
    scratch.put(":/large", &binary(LARGE));
    let told = scratch.json(&["where", ":/large", "--json"]);
    assert_eq!(
        (shares(&told).iter().sum::<u64>(), &told["layout"]),
        (LARGE as u64, &"auto".into())
    );
    // stripes of 256 KiB, 12 of them: at most the first one lies elsewhere than in its turn
    assert!(shares(&told).iter().all(|bytes| *bytes >= 5 * (256 << 10)), "{told}");
    check_extents(&told);
    scratch.ok(&["mkdir", ":/near"]);
    scratch.ok(&["set", ":/near", "layout=node:0"]);
    scratch.put(":/near/file", &binary(LARGE));
    let told = scratch.json(&["where", ":/near/file", "--json"]);
    // both slices are on this machine's first node
    assert_eq!((shares(&told), &told["layout"]), (vec![LARGE as u64 / 2; 2], &"node:0".into()));
    assert_eq!(told["local_percent"], 100.0);
    let text = scratch.ok(&["where", ":/near/file", "--extents"]);
    assert!(text.contains("layout node:0; 3 MiB in ") && text.contains("OFFSET"), "{text}");
    let told = scratch.json(&["where", ":/near", "--json"]);
    assert_eq!((&told["layout"], &told["local_percent"]), (&"node:0".into(), &Value::Null));
    scratch.fails(&["set", ":/near", "layout=node:7"], 1, &["no slice of the pool", "near"]);
    scratch.fails(&["set", ":/near", "layout=far"], 2, &["node:K"]);
    scratch.fails(&["set", ":/gone", "layout=near"], 1, &["gone"]);
    scratch.fails(&["where", "@elsewhere"], 1, &["elsewhere"]);
    std::fs::write(scratch.outside("elsewhere"), b"x").unwrap();
    scratch.fails(&["where", "@elsewhere"], 1, &["not in a mounted pool", "POOL:/path"]);
    scratch.fails(&["set", "@elsewhere", "layout=near"], 1, &["not in a mounted pool"]);
}

#[test]
fn a_mount_tells_it_of_any_path() {
    let Some(scratch) = Scratch::mounted() else { return };
    let dir = scratch.mnt().join("dir");
    std::fs::create_dir(&dir).unwrap();
    ok(run(["set".as_ref(), dir.as_os_str(), "layout=stripe".as_ref()]));
    let file = dir.join("file");
    std::fs::write(&file, binary(LARGE)).unwrap();
    let told = mounted(&file);
    assert_eq!((shares(&told), &told["layout"]), (vec![LARGE as u64 / 2; 2], &"stripe".into()));
    check_extents(&told);
    // the same by the pool's name, and without the mount
    let by_name = scratch.json(&["where", ":/dir/file", "--json"]);
    assert_eq!((shares(&by_name), &by_name["extents"]), (shares(&told), &told["extents"]));
    // as any program can ask, and no list shows
    let ask = |name: &str| {
        let mut value = [0u8; 4096];
        let len = rustix::fs::getxattr(&file, name, &mut value[..]);
        len.map(|len| String::from_utf8(value[..len].to_vec()).unwrap())
    };
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(&file, name, value, rustix::fs::XattrFlags::empty())
    };
    assert_eq!(ask("nearside.layout").unwrap(), "stripe");
    assert_eq!(ask("nearside.slices").unwrap().lines().count(), 2);
    assert_eq!(ask("nearside.other"), Err(Errno::OPNOTSUPP));
    assert_eq!(set("nearside.layout", b"far"), Err(Errno::INVAL));
    assert_eq!(set("nearside.slices", b"0 0"), Err(Errno::PERM));
    assert_eq!(set("nearside.layout", b"near"), Ok(()));
    assert_eq!(ask("nearside.layout").unwrap(), "near");
    assert_eq!(rustix::fs::removexattr(&file, "nearside.layout"), Ok(()));
    assert_eq!(ask("nearside.layout").unwrap(), "auto");
    assert_eq!(set("nearside.layout", b"stripe"), Ok(()));
    let listed = rustix::fs::listxattr(&file, &mut [0u8; 0][..]).unwrap();
    assert_eq!(listed, 0);
    let refused = run(["set".as_ref(), file.as_os_str(), "layout=node:9".as_ref()]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no slice of the pool"));
    scratch.umount();
    let closed = scratch.json(&["where", ":/dir/file", "--json"]);
    assert_eq!((&closed["extents"], &closed["layout"]), (&told["extents"], &"stripe".into()));
    scratch.check();
}

/// More nodes than slices: those lie on the first ones, and CPUs of the others are near some slice.
#[test]
fn a_pool_with_more_virtual_nodes_than_slices_works() {
    let scratch = Scratch::new();
    let pool = scratch.outside("nodes");
    let words = ["--slices=2", "--virtual-nodes=8", "--size=32M", "--durability=process"];
    let format = ["format".into(), pool.clone()].into_iter();
    ok(run(format.chain(words.map(std::ffi::OsString::from))));
    std::fs::write(scratch.outside("put"), binary(LARGE)).unwrap();
    let mut inside = pool.clone();
    inside.push(":/large");
    ok(run(["cp".into(), scratch.outside("put"), inside.clone()]));
    let told = ok(run(["where".into(), inside, "--json".into()]));
    let told: Value = serde_json::from_slice(&told).unwrap();
    assert_eq!(shares(&told).iter().sum::<u64>(), LARGE as u64);
    let nodes: Vec<u64> =
        told["slices"].as_array().unwrap().iter().map(|it| it["node"].as_u64().unwrap()).collect();
    assert_eq!(nodes, [0, 1]);
    ok(run(["check".into(), pool]));
}
