//! Programs in C, compiled with the headers as they are shipped, and run.
#![allow(clippy::unwrap_used, clippy::expect_used)]

// the library itself is built only for who links it
use nearside_c as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo puts libnearside.so for a test: beside it.
fn library_dir() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let dir = own.parent().unwrap();
    assert!(dir.join(BUILT).exists(), "{}", dir.display());
    dir.to_path_buf()
}

/// As cargo calls it.
const BUILT: &str = "libnearside_c.so";

/// A folder with the library under the names that it has where it is installed.
fn installed(to: &Path) -> PathBuf {
    let libraries = to.join("lib");
    std::fs::create_dir_all(&libraries).unwrap();
    for name in ["libnearside.so", "libnearside.so.0"] {
        let _ = std::os::unix::fs::symlink(library_dir().join(BUILT), libraries.join(name));
    }
    libraries
}

fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

fn compiled(name: &str, to: &Path) -> PathBuf {
    let (program, libraries) = (to.join(name), installed(to));
    let source = here().join("tests/c").join(format!("{name}.c"));
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    command.arg("-I").arg(here().join("include")).arg(source).arg("-o").arg(&program);
    command.arg("-L").arg(&libraries).arg("-lnearside");
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    program
}

/// Runs a program with the library, which is found by the name that the linker noted.
fn run(program: &Path, argument: Option<&Path>, pool: Option<&Path>) -> Output {
    let libraries = installed(program.parent().unwrap());
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", &libraries).args(argument);
    match pool {
        Some(pool) => command.env("NEARSIDE_POOL", pool),
        None => command.env_remove("NEARSIDE_POOL"),
    };
    command.output().unwrap()
}

#[track_caller]
fn said(output: &Output, expected: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {errors}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{errors}");
}

#[test]
fn every_call_does_what_its_header_says() {
    let scratch = scratch();
    let program = compiled("api", scratch.path());
    said(&run(&program, Some(&scratch.path().join("pool")), None), "fine\n");
}

fn formatted(scratch: &Path) -> PathBuf {
    let pool = scratch.join("pool");
    let options = engine::FormatOptions {
        slice_bytes: 32 << 20,
        process: true,
        ..engine::FormatOptions::default()
    };
    engine::Pool::format(&pool, &options).unwrap();
    pool
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
}

#[test]
fn a_forked_child_is_refused_and_harms_nobody() {
    let scratch = scratch();
    let program = compiled("forked", scratch.path());
    said(&run(&program, Some(&scratch.path().join("pool")), None), "fine\n");
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
