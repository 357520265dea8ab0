//! The calls of a history on a pool.

use std::time::{Duration, UNIX_EPOCH};

use nearside::{Error, File, OpenFlags, Pool, XattrMode};

use crate::history::{Flags, Op, XATTRS};

/// What a call gives, or its errno.
pub type Outcome = Result<String, i32>;

/// A user of the pool.
pub struct PoolUser {
    pool: Pool,
    /// What he opened last, and how.
    open: Option<(File, Flags)>,
}

impl PoolUser {
    pub fn new(pool: Pool) -> PoolUser {
        PoolUser { pool, open: None }
    }

    pub fn call(&mut self, op: &Op) -> Outcome {
        let done = match op {
            Op::Open(path, flags) => self.pool.open_file(path, &open_flags(flags)).map(|file| {
                self.open = Some((file, *flags));
                String::new()
            }),
            Op::Write => match &self.open {
                Some((file, flags)) if flags.append => file.append(b"x").map(|_| String::new()),
                Some((file, _)) => file.write_all_at(b"x", 0).map(|()| String::new()),
                None => Ok(String::new()),
            },
            Op::SetLen(bytes) => match &self.open {
                Some((file, flags)) if flags.write => file.set_len(*bytes).map(|()| String::new()),
                _ => Ok(String::new()),
            },
            op => tells(&self.pool, op).unwrap_or_else(|| changes(&self.pool, op)),
        };
        done.map_err(|error| error.errno())
    }
}

fn open_flags(flags: &Flags) -> OpenFlags {
    OpenFlags::new()
        .read(flags.read)
        .write(flags.write)
        .append(flags.append)
        .truncate(flags.truncate)
        .create(flags.create)
        .create_new(flags.create_new)
        .mode(flags.mode as u16)
}

/// Calls that say something; `None`: it is none of them.
fn tells(pool: &Pool, op: &Op) -> Option<Result<String, Error>> {
    Some(match op {
        Op::Stat(path) => pool.metadata(path).map(|_| String::new()),
        Op::List(path) => pool.read_dir(path).map(|entries| {
            let names = entries.map(|entry| entry.unwrap().file_name().to_owned());
            joined(names.map(|name| name.into_string().unwrap()).collect())
        }),
        Op::ReadLink(path) => pool.read_link(path).map(|to| to.to_str().unwrap().to_owned()),
        Op::GetXattr(path, name) => pool.xattr(path, name).map(|value| format!("{value:?}")),
        Op::ListXattrs(path) => pool.list_xattrs(path).map(|names| {
            joined(names.into_iter().map(|name| name.into_string().unwrap()).collect())
        }),
        _ => return None,
    })
}

/// Calls that change names or attributes.
fn changes(pool: &Pool, op: &Op) -> Result<String, Error> {
    match op {
        Op::MakeDir(path) => pool.create_dir(path),
        Op::Symlink(target, path) => pool.symlink(target, path),
        Op::Link(original, path) => pool.hard_link(original, path),
        Op::Unlink(path) => pool.remove_file(path),
        Op::RemoveDir(path) => pool.remove_dir(path),
        Op::Rename(from, to, mode) => pool.rename_with(from, to, *mode),
        Op::Chmod(path, mode) => pool.set_permissions(path, *mode as u16),
        Op::Chown(path, uid, gid) => pool.set_owner(path, *uid, *gid),
        Op::Times(path, accessed, modified) => {
            let time = UNIX_EPOCH + Duration::from_secs(77);
            pool.set_times(path, accessed.then_some(time), modified.then_some(time))
        }
        Op::SetXattr(path, name, value) => pool.set_xattr(path, name, value, XattrMode::Any),
        Op::RemoveXattr(path, name) => pool.remove_xattr(path, name),
        op => unreachable!("{op:?} is served elsewhere"),
    }
    .map(|()| String::new())
}

/// Names in order. Attributes that the machine gives its files are left out.
pub fn joined(mut names: Vec<String>) -> String {
    names.retain(|name| !name.contains('.') || XATTRS.contains(&name.as_str()));
    names.sort();
    names.join(" ")
}

/// Every path, and what can be seen of it.
pub fn seen(pool: &Pool) -> Vec<(String, String)> {
    let mut out = Vec::new();
    let mut pending = vec!["/".to_owned()];
    while let Some(path) = pending.pop() {
        let metadata = pool.symlink_metadata(&path).unwrap();
        let attr = metadata.attr();
        let mut about = format!(
            "{:o} {}:{} links {}",
            attr.kind.type_bits() | u32::from(attr.mode),
            attr.uid,
            attr.gid,
            attr.links
        );
        if metadata.is_symlink() {
            about += &format!(" to {:?}", pool.read_link(&path).unwrap());
        } else {
            for name in pool.list_xattrs(&path).unwrap() {
                about += &format!(" {name:?}: {:?}", pool.xattr(&path, &name).unwrap().unwrap());
            }
        }
        if metadata.is_file() {
            about += &format!(" {} bytes", metadata.len());
        }
        if metadata.is_dir() {
            let dir = if path == "/" { "" } else { &path };
            let names = pool.read_dir(&path).unwrap().map(|entry| entry.unwrap());
            pending.extend(
                names.map(|entry| format!("{dir}/{}", entry.file_name().to_str().unwrap())),
            );
        }
        out.push((path, about));
    }
    out.sort();
    out
}
