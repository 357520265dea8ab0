//! `scripts/install`: the files that it puts below a prefix, and that it removes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{ok, run};

/// A folder that stands for the root of a machine, and a program to install there.
struct Machine {
    scratch: tempfile::TempDir,
}

const PREFIX: &str = "/usr/local";
const LIST: &str = "usr/local/share/nearside/command.list";

impl Machine {
    fn new() -> Machine {
        let machine = Machine { scratch: tempfile::tempdir().unwrap() };
        fs::create_dir(machine.root()).unwrap();
        // a small program in place of the one that the tests have, which is large
        let script = format!("#!/bin/sh\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_nearside"));
        fs::write(machine.program(), script).unwrap();
        fs::set_permissions(machine.program(), PermissionsExt::from_mode(0o700)).unwrap();
        machine
    }

    fn root(&self) -> PathBuf {
        self.scratch.path().join("root")
    }

    fn program(&self) -> PathBuf {
        self.scratch.path().join("nearside")
    }

    /// Runs a command of the shell in the repository, as a user who keeps files private.
    fn shell(&self, program: &Path, command: &str) -> Output {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let mut bash = Command::new("bash");
        bash.args(["-euc", &format!("umask 077; {command}")]).current_dir(repository);
        bash.env("DESTDIR", self.root()).env("NEARSIDE", program).output().unwrap()
    }

    fn install(&self, args: &str) -> Output {
        self.shell(&self.program(), &format!("scripts/install {args}"))
    }

    /// Path and mode of everything below the root.
    fn files(&self) -> BTreeMap<String, u32> {
        let (root, mut files) = (self.root(), BTreeMap::new());
        let mut pending = vec![root.clone()];
        while let Some(folder) = pending.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let meta = fs::symlink_metadata(&path).unwrap();
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                if meta.is_dir() {
                    pending.push(path);
                    files.insert(name + "/", meta.mode() & 0o7777);
                } else {
                    files.insert(name, meta.mode() & 0o7777);
                }
            }
        }
        files
    }

    fn local(&self, path: &str) -> PathBuf {
        self.root().join("usr/local").join(path)
    }
}

/// Runs a program on a file, if the program is there.
fn accepted_by(program: &str, args: &[&str], file: &Path) {
    match Command::new(program).args(args).arg(file).output() {
        Ok(output) => drop(ok(output)),
        Err(_) => println!("skipped: {program} is not installed"),
    }
}

#[test]
fn command_pages_and_completions_are_installed_for_all_users() {
    let machine = Machine::new();
    ok(machine.install(PREFIX));
    let mut expected: Vec<String> = [
        "bin/nearside",
        "share/bash-completion/completions/nearside",
        "share/fish/vendor_completions.d/nearside.fish",
        "share/zsh/site-functions/_nearside",
        "share/nearside/command.list",
    ]
    .map(str::to_owned)
    .to_vec();
    let pages = tempfile::tempdir().unwrap();
    ok(run(["man".as_ref(), "--out".as_ref(), pages.path().as_os_str()]));
    for page in fs::read_dir(pages.path()).unwrap() {
        let page = page.unwrap().file_name().into_string().unwrap();
        expected.push(format!("share/man/man1/{page}"));
    }
    expected.sort();
    let files = machine.files();
    let found: Vec<&str> = files
        .keys()
        .filter(|path| !path.ends_with('/'))
        .map(|path| path.strip_prefix("usr/local/").unwrap())
        .collect();
    assert_eq!(found, expected);
    for (path, mode) in &files {
        let is_program = path.ends_with('/') || path == "usr/local/bin/nearside";
        assert_eq!(*mode, if is_program { 0o755 } else { 0o644 }, "{path}");
    }
    let installed = machine.local("bin/nearside");
    assert_eq!(fs::read(&installed).unwrap(), fs::read(machine.program()).unwrap());

    ok(machine.install(PREFIX));
    assert_eq!(machine.files(), files, "the second time nothing else");
}

#[test]
fn man_and_shells_read_what_is_installed() {
    let machine = Machine::new();
    ok(machine.install(PREFIX));
    accepted_by("bash", &["-n"], &machine.local("share/bash-completion/completions/nearside"));
    accepted_by("zsh", &["-n"], &machine.local("share/zsh/site-functions/_nearside"));
    accepted_by("fish", &["-n"], &machine.local("share/fish/vendor_completions.d/nearside.fish"));
    if Command::new("man").arg("--version").output().is_err() {
        return println!("skipped: man is not installed");
    }
    for page in ["nearside", "nearside-mount", "nearside-tier-flush"] {
        let mut man = Command::new("man");
        man.arg("-M").arg(machine.local("share/man")).arg(page).env("MANWIDTH", "100");
        let shown = String::from_utf8(ok(man.output().unwrap())).unwrap();
        assert!(shown.contains("SYNOPSIS"), "{page}: {shown}");
    }
}

#[test]
fn a_removal_leaves_what_was_there_before() {
    let machine = Machine::new();
    ok(machine.install(PREFIX));
    ok(machine.install(&format!("--remove {PREFIX}")));
    assert_eq!(machine.files(), BTreeMap::new());

    let others = ["bin/other", "share/man/man1/nearside-other.1", "share/fish/note"];
    for other in others {
        fs::create_dir_all(machine.local(other).parent().unwrap()).unwrap();
        fs::write(machine.local(other), "").unwrap();
    }
    let before = machine.files();
    ok(machine.install(PREFIX));
    ok(machine.install(PREFIX));
    ok(machine.install(&format!("--remove {PREFIX}")));
    assert_eq!(machine.files(), before);

    let again = machine.install(&format!("--remove {PREFIX}"));
    assert!(again.status.success(), "{again:?}");
    assert!(String::from_utf8_lossy(&again.stderr).contains("nothing to remove"), "{again:?}");
    assert_eq!(machine.files(), before);
}

#[test]
fn files_that_only_an_earlier_version_had_are_removed() {
    let machine = Machine::new();
    ok(machine.install(PREFIX));
    let files = machine.files();
    fs::create_dir(machine.local("share/old")).unwrap();
    fs::write(machine.local("share/old/nearside-old.1"), "").unwrap();
    let mut list = fs::read_to_string(machine.root().join(LIST)).unwrap();
    list.push_str("/usr/local/share/old/\n/usr/local/share/old/nearside-old.1\n");
    fs::write(machine.root().join(LIST), list).unwrap();
    ok(machine.install(PREFIX));
    assert_eq!(machine.files(), files);
}

#[test]
fn an_installation_that_failed_midway_can_be_removed() {
    let machine = Machine::new();
    fs::create_dir_all(machine.local("share")).unwrap();
    let blocking = machine.local("share/zsh");
    fs::write(&blocking, "").unwrap();
    let before = machine.files();
    assert!(!machine.install(PREFIX).status.success());
    assert!(machine.local("bin/nearside").exists() && machine.root().join(LIST).exists());
    ok(machine.install(&format!("--remove {PREFIX}")));
    assert_eq!(machine.files(), before);
}

#[test]
fn an_installation_into_a_list_directory_that_was_there_before_can_be_removed_and_repeated() {
    let machine = Machine::new();
    fs::create_dir_all(machine.local("share/nearside")).unwrap();
    let blocking = machine.local("share/zsh");
    fs::write(&blocking, "").unwrap();
    let before = machine.files();
    assert!(!machine.install(PREFIX).status.success());
    ok(machine.install(&format!("--remove {PREFIX}")));
    assert_eq!(machine.files(), before);

    assert!(!machine.install(PREFIX).status.success());
    fs::remove_file(&blocking).unwrap();
    ok(machine.install(PREFIX));
    ok(machine.install(PREFIX));
    ok(machine.install(&format!("--remove {PREFIX}")));
    fs::write(&blocking, "").unwrap();
    assert_eq!(machine.files(), before);
}

#[test]
fn empty_lines_of_a_list_are_skipped() {
    let machine = Machine::new();
    ok(machine.install(PREFIX));
    let files = machine.files();
    let add_empty_lines = || {
        let list = fs::read_to_string(machine.root().join(LIST)).unwrap();
        fs::write(machine.root().join(LIST), format!("\n{list}\n\n")).unwrap();
    };
    add_empty_lines();
    ok(machine.install(PREFIX));
    assert_eq!(machine.files(), files);
    add_empty_lines();
    ok(machine.install(&format!("--remove {PREFIX}")));
    assert_eq!(machine.files(), BTreeMap::new());
}

#[test]
fn a_removal_that_was_interrupted_can_be_repeated() {
    let machine = Machine::new();
    ok(machine.install(PREFIX));
    // Stands for the end of the script in the middle of its work.
    let interrupted = format!(
        "rm() {{ [[ $* != *bin/nearside* ]] || exit 9; command rm \"$@\"; }}; \
         source scripts/installation.sh; use_prefix command {PREFIX}; remove_installation"
    );
    let output = machine.shell(&machine.program(), &interrupted);
    assert_eq!(output.status.code(), Some(9), "{output:?}");
    assert!(machine.root().join(LIST).exists(), "the list is removed last");
    ok(machine.install(&format!("--remove {PREFIX}")));
    assert_eq!(machine.files(), BTreeMap::new());
}

#[test]
fn a_file_of_others_is_replaced_only_with_force() {
    let machine = Machine::new();
    let other = machine.local("share/man/man1/nearside.1");
    fs::create_dir_all(other.parent().unwrap()).unwrap();
    fs::write(&other, "precious").unwrap();
    let before = machine.files();
    let refused = machine.install(PREFIX);
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("man1/nearside.1 exists") && said.contains("--force"), "{said}");
    assert_eq!(machine.files(), before, "nothing was installed");
    assert_eq!(fs::read(&other).unwrap(), b"precious");

    ok(machine.install(&format!("--force {PREFIX}")));
    assert_ne!(fs::read(&other).unwrap(), b"precious");
    ok(machine.install(PREFIX));
    ok(machine.install(&format!("--remove {PREFIX}")));
    assert!(!other.exists());
}

#[test]
fn nothing_is_installed_or_removed_through_a_link_out_of_the_prefix() {
    let machine = Machine::new();
    ok(machine.install(PREFIX));
    let (zsh, outside) = (machine.local("share/zsh"), machine.scratch.path().join("outside"));
    fs::remove_dir_all(&zsh).unwrap();
    let precious = outside.join("site-functions/_nearside");
    fs::create_dir_all(precious.parent().unwrap()).unwrap();
    fs::write(&precious, "precious").unwrap();
    std::os::unix::fs::symlink(&outside, &zsh).unwrap();
    let before = machine.files();
    for (args, outcome) in [("--remove", "removed"), ("", "installed"), ("--force", "installed")] {
        let refused = machine.install(&format!("{args} {PREFIX}"));
        assert!(!refused.status.success(), "{args}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("symbolic link"), "{said}");
        assert!(said.contains(&format!("nothing was {outcome}")), "{said}");
        assert_eq!(machine.files(), before, "{args}");
        assert_eq!(fs::read(&precious).unwrap(), b"precious");
    }
    // A link that stays below the prefix does no harm.
    fs::remove_file(&zsh).unwrap();
    fs::create_dir(machine.local("elsewhere")).unwrap();
    std::os::unix::fs::symlink("../elsewhere", &zsh).unwrap();
    ok(machine.install(PREFIX));
    assert!(machine.local("elsewhere/site-functions/_nearside").exists());
    ok(machine.install(&format!("--remove {PREFIX}")));
    assert!(!machine.local("elsewhere/site-functions").exists());
}

#[test]
fn the_last_of_two_installations_removes_the_folders_that_both_are_in() {
    let machine = Machine::new();
    let library = |command: &str| {
        let script = format!("source scripts/installation.sh; use_prefix library {PREFIX}; ");
        ok(machine.shell(&machine.program(), &(script + command)));
    };
    ok(machine.install(PREFIX));
    library("begin_installation; put 644 Cargo.toml share/nearside/it; end_installation");
    ok(machine.install(&format!("--remove {PREFIX}")));
    let left: Vec<String> = machine.files().into_keys().collect();
    let of_the_library = [
        "usr/",
        "usr/local/",
        "usr/local/share/",
        "usr/local/share/nearside/",
        "usr/local/share/nearside/it",
        "usr/local/share/nearside/library.list",
    ];
    assert_eq!(left, of_the_library);
    library("remove_installation");
    assert_eq!(machine.files(), BTreeMap::new());
}

#[test]
fn a_list_that_names_files_elsewhere_is_refused() {
    let machine = Machine::new();
    ok(machine.install(PREFIX));
    fs::write(machine.root().join("usr/precious"), "").unwrap();
    let list = fs::read_to_string(machine.root().join(LIST)).unwrap();
    for line in ["/usr/precious", "/usr/local/../precious", "/usr/local/.."] {
        fs::write(machine.root().join(LIST), format!("{list}{line}\n")).unwrap();
        let before = machine.files();
        let refused = machine.install(&format!("--remove {PREFIX}"));
        assert!(!refused.status.success(), "{line}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("nothing was removed"), "{said}");
        assert_eq!(machine.files(), before, "{line}");
    }
}

#[test]
fn wrong_arguments_are_refused() {
    let machine = Machine::new();
    let wrong = ["relative", "/a /b", "--other", "--remove --debug", "--debug --remove /a"];
    for args in wrong.into_iter().chain(["--remove --force /a", "--force --remove /a"]) {
        let refused = machine.install(args);
        assert_eq!(refused.status.code(), Some(2), "{args}: {refused:?}");
    }
    assert_eq!(machine.files(), BTreeMap::new());
}

#[test]
fn symbols_are_installed_apart_and_lines_if_they_are_asked_for() {
    let here = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !here("objcopy") || !here("readelf") {
        return println!("skipped: binutils are not installed");
    }
    let machine = Machine::new();
    let sections = |file: &Path| {
        // Of a file that has symbols alone it says that no interpreter is there.
        let output = Command::new("readelf").arg("-SW").arg(file).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let built = Path::new(env!("CARGO_BIN_EXE_nearside"));
    if !sections(built).contains(" .debug_info ") {
        return println!("skipped: the tests were built without debug info");
    }
    let (program, apart) =
        (machine.local("bin/nearside"), machine.local("bin/.debug/nearside.debug"));
    for (option, has_lines) in [("", false), ("--debug", true)] {
        ok(machine.shell(built, &format!("scripts/install {option} {PREFIX}")));
        let left = sections(&program);
        assert!(!left.contains(" .debug_info ") && !left.contains(" .symtab "), "{left}");
        assert!(left.contains(" .gnu_debuglink "), "{left}");
        assert!(sections(&apart).contains(" .symtab "), "names of functions");
        assert_eq!(sections(&apart).contains(" .debug_info "), has_lines);
        assert_eq!(fs::metadata(&apart).unwrap().mode() & 0o7777, 0o644);
        let version = Command::new(&program).arg("--version").output().unwrap();
        assert_eq!(ok(version), ok(run(["--version"])));
    }
    if here("gdb") {
        let source = include_str!("../../src/main.rs");
        let line = source.lines().position(|line| line.contains("parse()")).unwrap() + 1;
        let ask = format!("info line main.rs:{line}");
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-batch", "-ex", &ask]).arg(&program);
        let shown = String::from_utf8_lossy(&gdb.output().unwrap().stdout).into_owned();
        assert!(shown.contains("crates/cli/src/main.rs\" starts at"), "{ask}: {shown}");
    }
    // A program without symbols takes the file away, which belongs to another one.
    ok(machine.install(PREFIX));
    assert!(!apart.exists() && !apart.parent().unwrap().exists());

    let without = machine.install(&format!("--debug {PREFIX}"));
    assert!(!without.status.success(), "a script has no debug info");
}
