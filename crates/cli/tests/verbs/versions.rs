//! `version` and `--version`: the facts of a build, and when Cargo looks for its commit again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::support::{ok, run};

#[path = "../../build.rs"]
#[allow(dead_code)]
mod build_script;

use build_script::Checkout;

fn text(args: &[&str]) -> String {
    String::from_utf8(ok(run(args))).unwrap()
}

fn told() -> Value {
    serde_json::from_str(&text(&["version", "--json"])).unwrap()
}

#[test]
fn the_version_names_features_format_and_protocol() {
    let told = told();
    assert_eq!(told["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(told["format_version"], pool::FORMAT_VERSION);
    assert_eq!(told["protocol_version"], wire::VERSION);
    let features =
        [("object-store", cfg!(feature = "object-store")), ("fabric", cfg!(feature = "fabric"))];
    let features: Vec<&str> = features.iter().filter(|it| it.1).map(|it| it.0).collect();
    assert_eq!(told["features"], json!(features));

    let commit = told["commit"].as_str().unwrap_or("unknown").to_owned();
    let mark = if told["dirty"] == true { "-dirty" } else { "" };
    let features = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
    let expected = format!(
        "nearside {}\ncommit      {commit}{mark}\nfeatures    {features}\nformat      {}\n\
         protocol    {}\n",
        env!("CARGO_PKG_VERSION"),
        pool::FORMAT_VERSION,
        wire::VERSION
    );
    assert_eq!(text(&["version"]), expected);
    assert_eq!(text(&["--version"]), expected);
    assert_eq!(text(&["-V"]), format!("nearside {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_format_is_that_of_a_new_pool() {
    let scratch = crate::support::Scratch::new();
    let format = scratch.json(&["info", "@pool", "--json"])["format_version"].clone();
    assert_eq!(told()["format_version"], format);
}

#[test]
fn the_commit_is_that_of_the_checkout() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let Some(commit) = Checkout::at(root).and_then(|checkout| checkout.commit()) else {
        return println!("skipped: not in a git checkout");
    };
    // A commit may have been made while the tests ran.
    let made = git(root, &["log", "-1", "--format=%ct"]).trim().parse().unwrap();
    let made = SystemTime::UNIX_EPOCH + Duration::from_secs(made);
    let built = std::fs::metadata(env!("CARGO_BIN_EXE_nearside")).unwrap().modified().unwrap();
    if made > built {
        return println!("skipped: the commit is younger than the program");
    }
    assert_eq!(told()["commit"], commit.trim_end_matches("-dirty"));
    let digits = git(root, &["rev-parse", "HEAD"]);
    assert!(digits.starts_with(told()["commit"].as_str().unwrap()), "{digits}");
}

/// A repository of one commit with the folders of this one.
struct Repository {
    scratch: tempfile::TempDir,
}

impl Repository {
    /// None where there is no git.
    fn new() -> Option<Repository> {
        if Command::new("git").arg("--version").output().is_err() {
            println!("skipped: git is not installed");
            return None;
        }
        let repository = Repository { scratch: tempfile::tempdir().unwrap() };
        let root = repository.root();
        std::fs::create_dir_all(root.join("crates/cli/src")).unwrap();
        std::fs::create_dir_all(root.join("crates/cli/tests")).unwrap();
        git(&root, &["init", "--quiet", "--initial-branch=main"]);
        for file in SOURCES.iter().chain(&OTHERS) {
            std::fs::write(root.join(file), "first").unwrap();
        }
        git(&root, &["add", "."]);
        commit(&root);
        Some(repository)
    }

    fn root(&self) -> PathBuf {
        self.scratch.path().join("checkout")
    }
}

const SOURCES: [&str; 4] =
    ["Cargo.toml", "Cargo.lock", "crates/cli/Cargo.toml", "crates/cli/src/main.rs"];
const OTHERS: [&str; 2] = ["README.md", "crates/cli/tests/main.rs"];

#[track_caller]
fn git(root: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.arg("-C").arg(root).args(["-c", "user.name=test", "-c", "user.email=test@localhost"]);
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    String::from_utf8(ok(command.args(args).output().unwrap())).unwrap()
}

fn commit(root: &Path) {
    git(root, &["commit", "--quiet", "--allow-empty", "--no-gpg-sign", "--message=x"]);
}

/// The modification times of these paths and of everything below, which Cargo compares.
fn times(paths: &[PathBuf]) -> BTreeMap<PathBuf, Option<SystemTime>> {
    let mut times = BTreeMap::new();
    let mut pending = paths.to_vec();
    while let Some(path) = pending.pop() {
        let entries = std::fs::read_dir(&path).into_iter().flatten();
        pending.extend(entries.map(|entry| entry.unwrap().path()));
        let time = std::fs::metadata(&path).and_then(|meta| meta.modified()).ok();
        times.insert(path, time);
    }
    times
}

/// Makes a few commits in the checkout at `root`. Cargo must run the build script again after each,
/// and not after `git status`.
#[track_caller]
fn each_commit_is_noticed(root: &Path) {
    for _ in 0..3 {
        let checkout = Checkout::at(root).unwrap();
        let (files, before) = (checkout.head_files(), checkout.commit().unwrap());
        assert!(files.iter().all(|file| file.exists()), "{files:?}");
        let unchanged = times(&files);
        std::thread::sleep(Duration::from_millis(20));
        git(root, &["status"]);
        assert_eq!(times(&files), unchanged, "no commit was made");
        commit(root);
        assert_ne!(times(&files), unchanged, "{files:?}");
        assert_ne!(checkout.commit().unwrap(), before);
        assert_eq!(
            checkout.commit().unwrap(),
            git(root, &["rev-parse", "--short=12", "HEAD"]).trim()
        );
    }
}

#[test]
fn commits_are_noticed_on_branches_packed_or_not_and_in_worktrees() {
    let Some(repository) = Repository::new() else { return };
    let root = repository.root();
    each_commit_is_noticed(&root);
    git(&root, &["pack-refs", "--all"]);
    each_commit_is_noticed(&root);
    git(&root, &["checkout", "--quiet", "-b", "topic/of/two"]);
    git(&root, &["pack-refs", "--all"]);
    each_commit_is_noticed(&root);
    git(&root, &["checkout", "--quiet", "--detach"]);
    each_commit_is_noticed(&root);
    let worktree = repository.scratch.path().join("worktree");
    git(&root, &["worktree", "add", "--quiet", "-b", "other", worktree.to_str().unwrap()]);
    each_commit_is_noticed(&worktree);
    git(&root, &["pack-refs", "--all"]);
    each_commit_is_noticed(&worktree);
}

#[test]
fn a_checkout_of_another_branch_is_noticed() {
    let Some(repository) = Repository::new() else { return };
    let root = repository.root();
    git(&root, &["branch", "other"]);
    let files = Checkout::at(&root).unwrap().head_files();
    let before = times(&files);
    std::thread::sleep(Duration::from_millis(20));
    git(&root, &["checkout", "--quiet", "other"]);
    assert_ne!(times(&files), before);
}

#[test]
fn changed_sources_make_a_build_dirty_and_nothing_else_does() {
    let Some(repository) = Repository::new() else { return };
    let root = repository.root();
    let checkout = Checkout::at(&root).unwrap();
    let sources = checkout.sources();
    let clean = checkout.commit().unwrap();
    assert_eq!(clean.len(), 12);
    for file in SOURCES {
        let path = root.join(file);
        let before = times(&sources);
        std::thread::sleep(Duration::from_millis(20));
        std::fs::write(&path, "second").unwrap();
        assert_eq!(checkout.commit(), Some(format!("{clean}-dirty")), "{file}");
        assert_ne!(times(&sources), before, "{file}: Cargo does not look again");
        std::fs::write(&path, "first").unwrap();
        assert_eq!(checkout.commit().as_ref(), Some(&clean), "{file}");
    }
    for file in OTHERS {
        std::fs::write(root.join(file), "second").unwrap();
    }
    std::fs::write(root.join("crates/cli/src/untracked"), "").unwrap();
    assert_eq!(checkout.commit().as_ref(), Some(&clean));
}

#[test]
fn outside_git_and_in_a_checkout_of_something_else_no_commit_is_found() {
    let Some(repository) = Repository::new() else { return };
    let root = repository.root();
    assert!(Checkout::at(&root.join("crates")).is_none());
    let unpacked = tempfile::tempdir().unwrap();
    assert!(Checkout::at(unpacked.path()).is_none());
    git(unpacked.path(), &["init", "--quiet"]);
    let empty = Checkout::at(unpacked.path()).unwrap();
    assert_eq!(empty.commit(), None);
    assert!(empty.head_files().iter().all(|file| file.exists()));
}
