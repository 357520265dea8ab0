//! How programs are compiled and run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo puts libnearside.so for a test: beside it.
pub fn library_dir() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let dir = own.parent().unwrap();
    assert!(dir.join(BUILT).exists(), "{}", dir.display());
    dir.to_path_buf()
}

/// As cargo calls it.
pub const BUILT: &str = "libnearside_c.so";

/// A folder with the library under the names that it has where it is installed.
pub fn installed(to: &Path) -> PathBuf {
    let libraries = to.join("lib");
    std::fs::create_dir_all(&libraries).unwrap();
    for name in ["libnearside.so", "libnearside.so.0"] {
        let _ = std::os::unix::fs::symlink(library_dir().join(BUILT), libraries.join(name));
    }
    libraries
}

pub fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

pub fn compiled(name: &str, to: &Path) -> PathBuf {
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
pub fn run(program: &Path, argument: Option<&Path>, pool: Option<&Path>) -> Output {
    run_with(program, argument.as_slice(), pool)
}

/// The same, with several arguments.
pub fn run_with(program: &Path, arguments: &[&Path], pool: Option<&Path>) -> Output {
    let libraries = installed(program.parent().unwrap());
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", &libraries).args(arguments);
    match pool {
        Some(pool) => command.env("NEARSIDE_POOL", pool),
        None => command.env_remove("NEARSIDE_POOL"),
    };
    command.output().unwrap()
}

#[track_caller]
pub fn said(output: &Output, expected: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {errors}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{errors}");
}

pub fn formatted(scratch: &Path) -> PathBuf {
    let pool = scratch.join("pool");
    let options = engine::FormatOptions {
        slice_bytes: 32 << 20,
        process: true,
        ..engine::FormatOptions::default()
    };
    engine::Pool::format(&pool, &options).unwrap();
    pool
}

#[track_caller]
pub fn said_by(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
