//! Programs in C, compiled with the headers as they are shipped, and run.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod attached;
mod support;

// the library itself is built only for who links it
use nearside_c as _;
use std::process::Command;
use support::{BUILT, compiled, formatted, here, library_dir, run, said, said_by, scratch};

#[test]
fn every_call_does_what_its_header_says() {
    let scratch = scratch();
    let program = compiled("api", scratch.path());
    said(&run(&program, Some(&scratch.path().join("pool")), None), "fine\n");
}

/// The second run finds what the first one committed: it ended without closing anything.
#[test]
fn the_decks_example_runs_as_it_is_printed() {
    let scratch = scratch();
    let (program, pool) = (compiled("deck", scratch.path()), formatted(scratch.path()));
    said(&run(&program, None, Some(&pool)), "0 0\n1 2\n");
    said(&run(&program, None, Some(&pool)), "1 2\n1 2\n");
    let without = run(&program, None, None);
    assert!(!without.status.success());
    assert!(String::from_utf8_lossy(&without.stderr).contains("No such file"));
    let mode = engine::Pool::open(&pool).unwrap().metadata("/deck").unwrap().mode();
    assert_eq!(mode, 0o644);
}

#[test]
fn what_is_used_wrongly_is_refused() {
    let scratch = scratch();
    let (program, pool) = (compiled("nv_edges", scratch.path()), formatted(scratch.path()));
    said(&run(&program, None, Some(&pool)), "fine\n");
    let pool = engine::Pool::open(&pool).unwrap();
    assert!(pool.exists("/file").unwrap() && !pool.exists("/refused").unwrap());
}

#[test]
fn a_forked_child_is_refused_and_harms_nobody() {
    let scratch = scratch();
    let program = compiled("forked", scratch.path());
    said(&run(&program, Some(&scratch.path().join("pool")), None), "fine\n");
}

#[test]
fn threads_have_many_transactions_at_once() {
    let scratch = scratch();
    let (program, pool) = (compiled("threads", scratch.path()), formatted(scratch.path()));
    said(&run(&program, Some(&scratch.path().join("other")), Some(&pool)), "fine\n");
}

#[test]
fn a_mode_is_permission_bits_and_what_nv_h_adds() {
    let scratch = scratch();
    let (program, pool) = (compiled("nv_modes", scratch.path()), formatted(scratch.path()));
    said(&run(&program, None, Some(&pool)), "fine\n");
    let pool = engine::Pool::open(&pool).unwrap();
    let usual = pool.open_file("/usual", &engine::OpenFlags::new().write(true).create(true));
    let usual = usual.unwrap().metadata().unwrap().mode();
    for (name, mode, len) in [
        ("/private", 0o640, 8192),
        ("/shared", 0o604, 4096),
        ("/set-id", 0o4711, 4096),
        ("/plain", usual, 4096),
        ("/plain-shared", usual, 4096),
    ] {
        let found = pool.metadata(name).unwrap();
        assert_eq!((found.mode(), found.len()), (mode, len), "{name}");
    }
    assert!(!pool.exists("/wrong").unwrap(), "a refused call makes no file");
}

/// The build itself is stood in for: the library is the one that cargo built for this test.
#[test]
fn what_is_installed_is_found_by_pkg_config() {
    if Command::new("pkg-config").arg("--version").output().is_err() {
        println!("no pkg-config here");
        return;
    }
    let scratch = scratch();
    let (to, pool) = (scratch.path().join("prefix"), formatted(scratch.path()));
    let (bin, target) = (scratch.path().join("bin"), scratch.path().join("target"));
    for dir in [bin.clone(), target.join("release")] {
        std::fs::create_dir_all(dir).unwrap();
    }
    std::os::unix::fs::symlink("/bin/true", bin.join("cargo")).unwrap();
    std::fs::copy(library_dir().join(BUILT), target.join("release").join(BUILT)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut install = Command::new(here().join("../../scripts/install-c"));
    install.arg(&to).env("PATH", path).env("CARGO_TARGET_DIR", &target).env_remove("DESTDIR");
    said_by(&install.output().unwrap());

    let program = scratch.path().join("deck");
    let source = here().join("tests/c/deck.c");
    let mut compile = Command::new("sh");
    let script = "cc \"$1\" -o \"$2\" $(pkg-config --cflags --libs nearside)";
    compile.args(["-euc", script, "sh"]).args([&source, &program]);
    compile.env("PKG_CONFIG_PATH", to.join("lib/pkgconfig"));
    said_by(&compile.output().unwrap());
    let mut command = Command::new(&program);
    command.env("LD_LIBRARY_PATH", to.join("lib")).env("NEARSIDE_POOL", &pool);
    said(&command.output().unwrap(), "0 0\n1 2\n");
    let mut version = Command::new("pkg-config");
    version.args(["--modversion", "nearside"]);
    version.env("PKG_CONFIG_PATH", to.join("lib/pkgconfig"));
    said(&version.output().unwrap(), &format!("{}\n", env!("CARGO_PKG_VERSION")));
}

/// `nearside.h` is made from the source; with NEARSIDE_WRITE_HEADER set it is written anew.
#[test]
fn the_header_is_that_of_the_source() {
    let config = cbindgen::Config::from_file(here().join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new().with_crate(here()).with_config(config).generate();
    let mut made = Vec::new();
    bindings.unwrap().write(&mut made);
    let path = here().join("include/nearside.h");
    if std::env::var_os("NEARSIDE_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read(&path).unwrap_or_default();
    assert!(kept == made, "nearside.h is old: run this test with NEARSIDE_WRITE_HEADER=1");
}
