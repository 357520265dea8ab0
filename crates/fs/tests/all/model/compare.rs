//! Compares what the file system shows with the reference.

use crate::model::content::BLOCK;
use crate::model::harness::Verdict;
use crate::model::reference::{ANY_ERROR, Model, Node};
use fs::{Attr, FileKind, FileSystem, Ino};
use std::collections::BTreeMap;
use std::path::Path;

fn ok<T>(what: &str, result: fs::Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("{what}: {error}"))
}

fn equal<T: PartialEq + std::fmt::Debug>(what: String, found: T, expected: T) -> Verdict {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: {found:?}; expected {expected:?}"))
}

/// `check` finds nothing.
/// A check finds nothing, but that a file is missing where one is `away`.
pub fn clean(dir: &Path, away: bool) -> Verdict {
    let mut findings = ok("check", fs::check(dir))?.findings;
    findings.retain(|finding| !away || !finding.what.contains("the pool is degraded"));
    match findings.is_empty() {
        true => Ok(()),
        false => Err(format!("check found {findings:#?}")),
    }
}

/// Attributes against the reference.
pub fn attr(attr: &Attr, node: &Node) -> Verdict {
    let what = |what: &str| format!("{what} of inode {}", attr.ino.0);
    equal(what("kind"), attr.kind, node.kind)?;
    equal(what("mode"), attr.mode, node.mode)?;
    equal(what("links"), attr.links, node.links)?;
    equal(what("owner"), (attr.uid, attr.gid), (node.uid, node.gid))?;
    equal(what("rdev"), attr.rdev, node.rdev)?;
    equal(what("size"), attr.size, node.size())?;
    let (least, most) = node.content.takes();
    if !(least * 8..=most * 8).contains(&attr.sectors) {
        return Err(format!(
            "{}: {}, not {least} to {most} times 8",
            what("sectors"),
            attr.sectors
        ));
    }
    if let Some(time) = node.modified {
        equal(what("modified"), attr.modified.0, time)?;
    }
    if let Some(time) = node.accessed {
        equal(what("accessed"), attr.accessed.0, time)?;
    }
    Ok(())
}

/// What a read should give.
pub fn expected_read(node: &Node, offset: u64, len: usize) -> Result<Vec<u8>, i32> {
    match node.kind {
        FileKind::File => Ok(node.content.read(offset, len)),
        FileKind::Directory => Err(libc::EISDIR),
        _ => Err(ANY_ERROR),
    }
}

/// One inode against the reference: attributes, content, holes, extended attributes.
pub fn node(fs: &FileSystem, ino: Ino, node: &Node) -> Verdict {
    attr(&ok("getattr", fs.getattr(ino))?, node)?;
    equal(format!("layout of inode {}", ino.0), ok("layout", fs.layout(ino))?, node.layout)?;
    match node.kind {
        FileKind::File => content(fs, ino, node)?,
        FileKind::Symlink => {
            let target = ok("readlink", fs.readlink(ino))?;
            equal(format!("target of inode {}", ino.0), &target, &node.target)?;
        }
        FileKind::Directory => entries(fs, ino, node)?,
        _ => {}
    }
    let names = ok("listxattr", fs.listxattr(ino))?;
    let expected: Vec<Vec<u8>> = node.xattrs.keys().cloned().collect();
    equal(format!("attributes of inode {}", ino.0), &names, &expected)?;
    for (name, value) in &node.xattrs {
        let found = ok("getxattr", fs.getxattr(ino, name))?;
        equal(format!("attribute {name:?} of inode {}", ino.0), &found, value)?;
    }
    Ok(())
}

fn content(fs: &FileSystem, ino: Ino, node: &Node) -> Verdict {
    let handle = ok("open", fs.open(ino))?;
    for number in node.content.blocks.keys() {
        let (offset, len) = (number * BLOCK, BLOCK as usize);
        let mut found = vec![0xCC; len];
        let read = ok("read", fs.read(&handle, offset, &mut found))?;
        found.truncate(read);
        if found != node.content.read(offset, len) {
            return Err(format!("inode {}: block {number} is different", ino.0));
        }
    }
    let mut at = 0;
    let mut data = true;
    loop {
        let found = match fs.seek(&handle, at, data) {
            Ok(found) => Some(found),
            Err(error) if error.errno() == libc::ENXIO => None,
            Err(error) => return Err(format!("seek: {error}")),
        };
        let what =
            format!("inode {}: next {} from {at}", ino.0, if data { "data" } else { "hole" });
        equal(what, found, node.content.seek(at, data))?;
        match found {
            Some(found) => at = found,
            None => return Ok(()),
        }
        data = !data;
    }
}

fn entries(fs: &FileSystem, ino: Ino, node: &Node) -> Verdict {
    let mut found = BTreeMap::new();
    let mut last = 0;
    let mut order = Ok(());
    ok(
        "readdir",
        fs.readdir(ino, 0, &mut |entry| {
            if entry.cookie <= last {
                order = Err(format!("cookie {} comes after {last}", entry.cookie));
            }
            last = entry.cookie;
            if found.insert(entry.name.clone(), entry.ino).is_some() {
                order = Err(format!("{:?} is listed twice", entry.name));
            }
            true
        }),
    )?;
    order?;
    equal(format!("entries of inode {}", ino.0), &found, &node.entries)?;
    // a directory without a name is not looked into
    for (name, expected) in node.entries.iter().filter(|_| node.links > 0) {
        let found = ok("lookup", fs.lookup(ino, name))?.ino;
        equal(format!("{name:?} in inode {}", ino.0), found, *expected)?;
    }
    Ok(())
}

/// Everything against the reference.
pub fn all(fs: &FileSystem, model: &Model) -> Verdict {
    for (ino, expected) in &model.nodes {
        node(fs, *ino, expected)?;
    }
    equal("inodes in statfs".to_owned(), fs.statfs().inodes, model.nodes.len() as u64)
}

/// Attributes of all inodes, as the file system shows them.
pub fn attributes(fs: &FileSystem, model: &Model) -> Result<Vec<Attr>, String> {
    model.nodes.keys().map(|ino| ok("getattr", fs.getattr(*ino))).collect()
}

/// A listing during which the directory changed from `before` to `after`: what is in both comes
/// exactly once, what is in neither not at all.
pub fn listing(
    seen: Vec<(Vec<u8>, Ino)>,
    before: &BTreeMap<Vec<u8>, Ino>,
    after: &BTreeMap<Vec<u8>, Ino>,
) -> Verdict {
    let mut counts: BTreeMap<(Vec<u8>, Ino), u32> = BTreeMap::new();
    for entry in seen {
        *counts.entry(entry).or_default() += 1;
    }
    for (entry, count) in &counts {
        let known = [before, after].iter().any(|set| set.get(&entry.0) == Some(&entry.1));
        if !known || *count > 1 {
            return Err(format!("{entry:?} was listed {count} times"));
        }
    }
    for (name, ino) in before {
        let stayed = after.get(name) == Some(ino);
        if stayed && !counts.contains_key(&(name.clone(), *ino)) {
            return Err(format!("{name:?} was there all the time and was not listed"));
        }
    }
    Ok(())
}
