//! One history on a pool and on a tmpfs: every call must give the same, or fail with the same
//! errno, and leave the same names, owners, modes, lists and attributes.
//!
//! `NEARSIDE_RIGHTS_CALLS` says how many calls a seed makes (5000), `NEARSIDE_RIGHTS_SEED` the
//! first seed (1), `NEARSIDE_RIGHTS_SEEDS` how many in a row (8). The same seed makes the same
//! calls.

use std::collections::{BTreeSet, VecDeque};

use nearside::{Caller, Pool};
use rustix::fs::XattrFlags;

use crate::history::{History, Op, Protected, Random, Tree, USERS, XATTRS};
use crate::kernel_side::{self, KernelUser};
use crate::lists;
use crate::pool_side::{self, Outcome, PoolUser};
use crate::support::Scratch;

/// Where the kernel has a file system that is quick and knows lists.
const TMPFS: &str = "/dev/shm";
/// Of a tmpfs, by statfs(2).
const TMPFS_MAGIC: i64 = 0x0102_1994;
/// Calls that are shown before one that differs.
const SHOWN: usize = 15;
/// Calls that failed after which all is compared; those that did something are followed by that.
const COMPARED_EVERY: u64 = 16;
/// Calls among which are some of each kind that are allowed, and some that are not.
const CALLS_FOR_ALL: u64 = 20_000;

/// Both sides.
struct Sides {
    users: Vec<(PoolUser, KernelUser)>,
    pool: Scratch,
    dir: tempfile::TempDir,
    shown: VecDeque<String>,
    /// Kinds of calls, with 0 for those that did something and the errnos of the others.
    answers: BTreeSet<(String, i32)>,
}

impl Sides {
    fn new() -> std::io::Result<Sides> {
        let pool = Scratch::new();
        pool.settle("/", (0, 0), 0o777);
        // users come in by their root directory, and nobody else does
        let dir = tempfile::tempdir_in(TMPFS)?;
        let root = dir.path().join("root");
        std::fs::create_dir(&root)?;
        rustix::fs::chmod(&root, rustix::fs::Mode::from_raw_mode(0o777))?;
        let mut users = Vec::new();
        for (uid, gid, groups) in USERS {
            let caller = Caller::new(uid, gid, groups.to_vec());
            let kernel = KernelUser::start(&root, (uid, gid, groups))?;
            users.push((PoolUser::new(pool.for_caller(caller)), kernel));
        }
        Ok(Sides { pool, dir, users, shown: VecDeque::new(), answers: BTreeSet::new() })
    }

    /// Makes one call on both; whether it did something.
    fn call(&mut self, user: usize, op: &Op, protected: Protected) -> bool {
        let Some(for_kernel) = same_for_kernel(&self.pool, user, op, protected) else {
            return false;
        };
        let (pool, kernel) = &mut self.users[user];
        let (ours, theirs) = (pool.call(op), kernel.call(&for_kernel));
        self.shown.push_back(format!("user {} {op:?}: {ours:?}", USERS[user].0));
        if self.shown.len() > SHOWN {
            self.shown.pop_front();
        }
        if ours != theirs && !is_known(&self.pool, op, &ours, &theirs) {
            self.fail(&format!("the kernel answers {theirs:?}"));
        }
        let kind = format!("{op:?}").split('(').next().unwrap_or_default().to_owned();
        self.answers.insert((kind, ours.as_ref().err().copied().unwrap_or_default()));
        ours.is_ok()
    }

    /// Compares all that there is, and gives it.
    fn compare(&self) -> Tree {
        let ours = pool_side::seen(&self.pool);
        let theirs = kernel_side::seen(&self.dir.path().join("root"));
        if ours != theirs {
            let only = |one: &[(String, String)], other: &[(String, String)]| {
                one.iter().filter(|entry| !other.contains(entry)).cloned().collect::<Vec<_>>()
            };
            let (ours, theirs) = (only(&ours, &theirs), only(&theirs, &ours));
            self.fail(&format!("the pool has {ours:#?}\nthe kernel {theirs:#?}"));
        }
        let mut tree = Tree::default();
        for (path, about) in ours {
            match about.as_bytes() {
                [b'4', ..] => tree.directories.push(path.clone()),
                [b'1', b'0', ..] => tree.files.push(path.clone()),
                _ => {}
            }
            tree.paths.push(path);
        }
        tree
    }

    fn fail(&self, what: &str) -> ! {
        let shown: Vec<&str> = self.shown.iter().map(String::as_str).collect();
        panic!("{}\n{what}", shown.join("\n"));
    }
}

/// What is the same for the kernel and its tmpfs; `None`: there is nothing.
fn same_for_kernel(pool: &Pool, user: usize, op: &Op, protected: Protected) -> Option<Op> {
    match op {
        Op::Link(original, _) if protected.hardlinks && user != 0 => {
            let owner = pool.symlink_metadata(original).map(|it| it.attr().uid);
            owner.map_or(true, |uid| uid == USERS[user].0).then(|| op.clone())
        }
        // where there is a file, to make it means nothing
        Op::Open(path, flags) if protected.regular && flags.create && !flags.create_new => {
            let mut flags = *flags;
            flags.create = !pool.exists(path).is_ok_and(|exists| exists);
            Some(Op::Open(path.clone(), flags))
        }
        // a tmpfs takes set-group-id away, ext4 and XFS only where a list is set
        Op::RemoveXattr(path, lists::ACCESS) if user != 0 => {
            let keeps = pool.metadata(path).map_or(true, |it| it.mode() & 0o2000 == 0);
            keeps.then(|| op.clone())
        }
        op => Some(op.clone()),
    }
}

/// Where the library differs: it opens no directory for reading.
fn is_known(pool: &Pool, op: &Op, ours: &Outcome, theirs: &Outcome) -> bool {
    let Op::Open(path, _) = op else { return false };
    ours == &Err(libc::EISDIR)
        && theirs == &Err(libc::EACCES)
        && pool.metadata(path).is_ok_and(|it| it.is_dir())
}

fn option(name: &str) -> bool {
    let value = std::fs::read_to_string(format!("/proc/sys/fs/{name}"));
    value.is_ok_and(|value| value.trim() != "0")
}

/// Why this machine cannot make the comparison.
fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can act as other users".to_owned());
    }
    match rustix::fs::statfs(TMPFS) {
        Ok(found) if found.f_type == TMPFS_MAGIC => {}
        _ => return Some(format!("{TMPFS} is no tmpfs")),
    }
    let probe = tempfile::tempdir_in(TMPFS).unwrap();
    let value = |name: &str| match name {
        lists::ACCESS | lists::DEFAULT => lists::list(&[
            (lists::USER_OBJ, 7, 0),
            (lists::USER, 7, 1),
            (lists::GROUP_OBJ, 7, 0),
            (lists::MASK, 7, 0),
            (lists::OTHER, 7, 0),
        ]),
        _ => b"value".to_vec(),
    };
    let missing = XATTRS.iter().find(|name| {
        rustix::fs::setxattr(probe.path(), **name, &value(name), XattrFlags::empty()).is_err()
    });
    missing.map(|name| format!("this kernel's tmpfs has no {name}"))
}

fn number(name: &str, otherwise: u64) -> u64 {
    let asked = std::env::var(format!("NEARSIDE_RIGHTS_{name}"));
    asked.map_or(otherwise, |asked| asked.parse().unwrap())
}

#[test]
fn every_call_is_answered_as_the_kernel_answers_it() {
    if let Some(obstacle) = obstacle() {
        println!("rights: not compared with the kernel: {obstacle}");
        return;
    }
    let protected = Protected {
        hardlinks: option("protected_hardlinks"),
        symlinks: option("protected_symlinks"),
        regular: option("protected_regular"),
    };
    let (calls, first, seeds) = (number("CALLS", 5000), number("SEED", 1), number("SEEDS", 8));
    let mut answers = BTreeSet::new();
    for seed in first..first + seeds {
        println!("seed {seed}");
        let mut history = History { random: Random::new(seed), protected };
        let mut sides = Sides::new().unwrap();
        let mut tree = sides.compare();
        for call in 0..calls {
            let (user, op) = history.next(&tree);
            if sides.call(user, &op, protected) || call % COMPARED_EVERY == 0 {
                tree = sides.compare();
            }
        }
        answers.append(&mut sides.answers);
    }
    if calls * seeds >= CALLS_FOR_ALL {
        check_answers(&answers);
    }
}

/// A history in which all is refused, or nothing, would say little.
fn check_answers(answers: &BTreeSet<(String, i32)>) {
    let of_owners = ["Chmod", "Chown", "Times", "SetXattr", "RemoveXattr"];
    let of_sticky = ["Unlink", "RemoveDir", "Rename"];
    let others = [
        "Stat",
        "Open",
        "List",
        "MakeDir",
        "Symlink",
        "ReadLink",
        "Link",
        "GetXattr",
        "ListXattrs",
    ];
    let both = of_owners.iter().chain(&of_sticky);
    let wanted = both.clone().chain(&others).flat_map(|kind| [(kind, 0), (kind, libc::EACCES)]);
    for (kind, answer) in wanted.chain(both.map(|kind| (kind, libc::EPERM))) {
        assert!(answers.contains(&((*kind).to_owned(), answer)), "no {kind} was answered {answer}");
    }
}
