//! Finds the commit that `nearside version` names, and gives it to the compiler as the variable
//! `NEARSIDE_COMMIT`. Outside git the variable stays as the environment has it.
//!
//! Cargo runs this script again after a commit or a checkout. It also does after a change of any
//! source, since the checkout may then have become dirty.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let Some(checkout) = package.ancestors().nth(2).and_then(Checkout::at) else { return };
    for path in checkout.head_files().into_iter().chain(checkout.sources()) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    if let Some(commit) = checkout.commit() {
        println!("cargo:rustc-env=NEARSIDE_COMMIT={commit}");
    }
}

/// A git checkout of this repository.
pub struct Checkout {
    root: PathBuf,
}

impl Checkout {
    /// The checkout at `root`. None without git, outside git, or if `root` is a folder within the
    /// checkout of another repository.
    pub fn at(root: &Path) -> Option<Checkout> {
        let checkout = Checkout { root: root.to_path_buf() };
        let folder = checkout.git(&["rev-parse", "--show-prefix"])?;
        folder.is_empty().then_some(checkout)
    }

    /// Twelve digits of the commit, and `-dirty` if a source differs from it. None before the first
    /// commit.
    pub fn commit(&self) -> Option<String> {
        let commit = self.git(&["rev-parse", "--short=12", "HEAD"])?;
        // as in `sources`
        let changed = self.git(&[
            "--no-optional-locks",
            "status",
            "--porcelain",
            "--untracked-files=no",
            "--",
            "Cargo.toml",
            "Cargo.lock",
            "crates",
            ":(exclude,glob)crates/*/tests/**",
        ])?;
        Some(if changed.is_empty() { commit } else { format!("{commit}-dirty") })
    }

    /// Files and folders below `.git`. Every commit and every checkout changes one of them. All of
    /// them exist: for a file that is missing, Cargo would run this script at every build.
    pub fn head_files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = ["HEAD", "packed-refs", "reftable"]
            .iter()
            .filter_map(|name| self.git_path(name))
            .filter(|path| path.exists())
            .collect();
        let branch = self.git(&["symbolic-ref", "--quiet", "HEAD"]);
        if let Some(path) = branch.and_then(|branch| self.git_path(&branch)) {
            // A branch that is only in packed-refs gets its file with the next commit.
            files.extend(path.ancestors().find(|path| path.exists()).map(Path::to_path_buf));
        }
        files
    }

    /// The sources of all programs: everything in the folders of crates, except for tests.
    pub fn sources(&self) -> Vec<PathBuf> {
        let entries = |folder: &Path| {
            let entries = std::fs::read_dir(folder).into_iter().flatten();
            entries.filter_map(|entry| Some(entry.ok()?.path())).collect::<Vec<_>>()
        };
        let crates = entries(&self.root.join("crates"));
        let parts = crates.iter().flat_map(|folder| entries(folder));
        let mut sources: Vec<PathBuf> = parts.filter(|part| !part.ends_with("tests")).collect();
        sources.extend(["Cargo.toml", "Cargo.lock"].map(|name| self.root.join(name)));
        sources.sort();
        sources
    }

    /// The path of a file below `.git`, which for a linked worktree lies in the main checkout.
    fn git_path(&self, name: &str) -> Option<PathBuf> {
        Some(self.root.join(self.git(&["rev-parse", "--git-path", name])?))
    }

    /// The output of git, without the end of its last line. None if git fails.
    fn git(&self, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new("git");
        command.arg("-C").arg(&self.root).args(arguments);
        // Git sets these for hooks. They may name another repository.
        for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
            command.env_remove(name);
        }
        let output = command.output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim_end().to_owned())
    }
}
