//! One image, used in every way. Whatever its bytes are, this returns: it panics, hangs or takes
//! memory without bounds only if the engine does, and panics itself where the engine is wrong.

use crate::corpus::requests;
use crate::place::Place;
use crate::seen::{Seen, State};
use fs::{Creation, Fallocate, FileSystem, Ino, NewNode, RenameMode, SetAttr, XattrMode};

/// How far an image came.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// It could not be opened.
    Open,
    /// It was opened, and something could not be read.
    Read,
    /// Everything was read, and a change failed that should not.
    Change,
    /// Nothing failed, but `check` found something.
    Check,
    /// Nothing was wrong, as far as anybody can see.
    Whole,
}

/// What is known of an image.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'s> {
    /// The states that it may show, if they are known.
    pub legal: Option<&'s [State]>,
    /// Its checksums were not made to fit: what they prove is true.
    pub sound: bool,
    /// It ends by a kill, not by a close.
    pub kill: bool,
    /// Its blocks are moved to the capacity tier before they are changed, not only afterwards.
    pub moves: bool,
}

/// An open or a check that is refused says where and what, with an errno of damage.
fn tells(error: &fs::Error) {
    let text = error.to_string();
    let slices = ["slice", "inode", "object", "root", "superblock", "stamp", "pool", "block"];
    let mut places = slices.iter().chain(&["device", "capacity"]);
    assert!(places.any(|place| text.contains(place)), "says not where: {text:?}");
    let errno = error.errno();
    let fine = [libc::EIO, libc::EINVAL, libc::ENOSPC, libc::ENODATA].contains(&errno);
    assert!(fine, "errno {errno}: {text:?}");
}

/// A call that failed says why, and that the caller can do something about.
fn explains(error: &fs::Error) {
    assert!(error.to_string().len() > 8, "{error:?} says nothing");
    assert!(error.errno() > 0 && error.errno() != libc::EAGAIN, "{error:?}");
}

/// Opens, checks, reads, changes, writes back, closes and opens again the image in `place`.
pub fn exercise(place: &impl Place, terms: Terms<'_>) -> Stage {
    let checksum = place.checksum();
    let (clean, before) = look(place);
    assert_eq!(place.checksum(), checksum, "a check or a reader changed the medium");
    let fs = match place.open(false) {
        Ok(fs) => fs,
        Err(error) => {
            tells(&error);
            assert!(!clean, "check is content, opening is not: {error}");
            return Stage::Open;
        }
    };
    let seen = Seen::of(&fs);
    judge(&seen, before.as_ref(), terms, clean);
    let sound = clean || terms.sound;
    if terms.moves {
        move_all(&fs, &seen, clean, sound);
    }
    let changed = change(&fs, clean);
    if fs.tier_stats().is_some() {
        move_all(&fs, &Seen::of(&fs), clean, sound);
        // a kill is to leave more than a checkpoint
        if !terms.kill {
            scrub(&fs, clean);
        }
    }
    let whole = seen.whole();
    let ended = terms.kill || fs.close().map_err(|error| explains(&error)).is_ok();
    drop(fs);
    again(place, &Ended { clean, sound, changed, ended });
    match (whole, changed && ended, clean) {
        (false, ..) => Stage::Read,
        (true, false, _) => Stage::Change,
        (true, true, false) => Stage::Check,
        (true, true, true) => Stage::Whole,
    }
}

/// Repairs the image in `place`: what comes of it is a pool like any other, but for data that is
/// damaged.
pub fn mend(place: &impl Place) {
    let done = match place.repair() {
        Ok(done) => done,
        Err(error) => return tells(&error),
    };
    let is_data =
        |finding: &str| finding.contains("file offset") && finding.contains("the data at");
    let found = check(place);
    let left: Vec<&String> = found.iter().filter(|finding| !is_data(finding)).collect();
    assert!(left.is_empty(), "after a repair there is {left:?}; it did {done:?}");
    let opened = place.open(false);
    let Ok(fs) = opened else { panic!("what was repaired cannot be opened: {opened:?}") };
    let seen = Seen::of(&fs);
    let whole = !found.is_empty() || seen.whole();
    assert!(whole, "check is content, reading is not: {:?}", seen.errors);
    let changed = change(&fs, found.is_empty());
    assert!(changed || !found.is_empty(), "what was repaired takes no changes");
    if fs.tier_stats().is_some() {
        move_all(&fs, &Seen::of(&fs), found.is_empty(), true);
        scrub(&fs, found.is_empty());
    }
    let closed = fs.close();
    assert!(closed.is_ok(), "what was repaired cannot be closed: {closed:?}");
    drop(fs);
    let after = check(place);
    let left: Vec<&String> = after.iter().filter(|finding| !is_data(finding)).collect();
    assert!(left.is_empty(), "after a repair and changes there is {left:?}");
}

/// Checks the image in `place`, and reads all of it without changing it: whether `check` is
/// content, and what is there, if it opens.
pub fn look(place: &impl Place) -> (bool, Option<Seen>) {
    let clean = check(place).is_empty();
    let seen = match place.open(true) {
        Ok(fs) => {
            let seen = Seen::of(&fs);
            let _ = fs.close();
            Some(seen)
        }
        Err(error) => {
            tells(&error);
            None
        }
    };
    let whole = seen.as_ref().is_some_and(Seen::whole);
    assert!(!clean || whole, "check is content, reading is not: {seen:?}");
    (clean, seen)
}

/// What `check` finds, but that a file of a mirrored pool is not there, or not current: the others
/// have everything.
fn check(place: &impl Place) -> Vec<String> {
    match place.check() {
        Ok(report) => {
            for finding in &report.findings {
                assert!(!finding.place.is_empty() && finding.what.len() > 8, "{finding:?}");
            }
            let is_away = |what: &str| {
                what.contains("the pool is degraded") || what.contains("is stale, as it was away")
            };
            let findings = report.findings.iter().filter(|finding| !is_away(&finding.what));
            findings.map(|found| format!("{}: {}", found.place, found.what)).collect()
        }
        Err(error) => {
            tells(&error);
            vec![error.to_string()]
        }
    }
}

fn judge(seen: &Seen, before: Option<&Seen>, terms: Terms<'_>, clean: bool) {
    seen.errors.iter().for_each(explains);
    assert!(!clean || seen.whole(), "check is content, reading is not: {:?}", seen.errors);
    if let Some(legal) = terms.legal {
        let fits = legal.iter().any(|state| seen.fits(state));
        let differing = legal.iter().map(|state| seen.differing(state)).enumerate();
        let nearest = differing.min_by_key(|(_, paths)| paths.len());
        let count = legal.len();
        assert!(fits, "none of {count} legal states is shown; the nearest differs in {nearest:?}");
    }
    let believed = terms.sound || clean && before.is_some_and(Seen::whole);
    if !believed {
        // a lie may be gone when the log is folded over it
        return;
    }
    let Some(before) = before else { panic!("a writer opens what a reader cannot") };
    let paths = || seen.paths.iter().filter(|(path, seen)| before.paths.get(*path) != Some(seen));
    let differ: Vec<_> = paths().map(|(path, _)| String::from_utf8_lossy(path)).collect();
    let same = before.paths == seen.paths;
    let errors = (&before.errors, &seen.errors);
    assert!(same, "a reader and a writer see different things: {differ:?}, errors {errors:?}");
}

const BY: Creation = Creation { mode: 0o600, umask: 0, uid: 0, gid: 0 };
const NEW: &[u8] = b"a new file";
const DATA: [u8; 9000] = [0xC3; 9000];

/// Changes what is there and adds a file; whether all went well.
fn change(fs: &FileSystem, clean: bool) -> bool {
    let mut failed = Vec::new();
    let mut inos = vec![Ino::ROOT];
    let _ = fs.readdir(Ino::ROOT, 0, &mut |entry| {
        inos.push(entry.ino);
        inos.len() < 12
    });
    for ino in inos {
        failed.extend(change_one(fs, ino).into_iter().filter_map(Result::err));
    }
    let new = || -> fs::Result<()> {
        let attr = fs.create(Ino::ROOT, NEW, NewNode::File, BY)?;
        let handle = fs.open(attr.ino)?;
        fs.write(&handle, 0, &DATA)?;
        fs.write(&handle, 50, &DATA[..100])?;
        fs.checkpoint()
    };
    let made = new();
    failed.extend(made.as_ref().err().cloned());
    failed.iter().for_each(explains);
    let damage = failed.iter().find(|error| error.errno() == libc::EIO);
    assert!(!clean || damage.is_none(), "check is content, a change is not: {damage:?}");
    made.is_ok()
}

fn change_one(fs: &FileSystem, ino: Ino) -> Vec<fs::Result<()>> {
    let mut done = vec![
        fs.setxattr(ino, b"user.fuzz", b"value", XattrMode::Any),
        fs.setattr(ino, &SetAttr { mode: Some(0o640), ..SetAttr::default() }).map(|_| ()),
        fs.create(ino, b"x1", NewNode::File, BY).map(|_| ()),
        fs.create(ino, b"x2", NewNode::Directory, BY).map(|_| ()),
        fs.rename((ino, b"x1"), (ino, b"x3"), RenameMode::Replace).map(|_| ()),
        fs.rename((ino, b"x2"), (Ino::ROOT, b"x4"), RenameMode::NoReplace).map(|_| ()),
        fs.link(ino, Ino::ROOT, b"x5").map(|_| ()),
        fs.unlink(ino, b"x3").map(|_| ()),
        fs.rmdir(Ino::ROOT, b"x4").map(|_| ()),
        fs.unlink(Ino::ROOT, b"x5").map(|_| ()),
    ];
    if let Ok(handle) = fs.open(ino) {
        let size = fs.getattr(ino).map_or(0, |attr| attr.size);
        done.push(fs.write(&handle, 4096, &DATA[..4096]).map(|_| ()));
        done.push(fs.write(&handle, 33, b"few").map(|_| ()));
        done.push(fs.append(&handle, b"more").map(|_| ()));
        done.push(fs.fallocate(&handle, Fallocate::PunchHole, 8192, 100_000));
        let keep_size = Fallocate::Allocate { keep_size: true };
        done.push(fs.fallocate(&handle, keep_size, 12_288, 50_000));
        done.push(fs.write(&handle, 20_000, &DATA[..4096]).map(|_| ()));
        let size = Some(size / 2 + 1);
        done.push(fs.setattr(ino, &SetAttr { size, ..SetAttr::default() }).map(|_| ()));
    }
    done
}

/// Moves all blocks to the capacity tier that can be there, and reads them from there: what is seen
/// stays what `before` is, where that is `sound`. Nothing happens in a pool without a tier.
fn move_all(fs: &FileSystem, before: &Seen, clean: bool, sound: bool) {
    if fs.tier_stats().is_none() {
        return;
    }
    let moved = fs.write_back_all();
    if let Err(error) = &moved {
        explains(error);
        assert!(!clean || error.errno() != libc::EIO, "check is content, moving is not: {error}");
    }
    fs.evict_caches();
    let after = Seen::of(fs);
    after.errors.iter().for_each(explains);
    if sound {
        let changed =
            |(path, seen): &(&Vec<u8>, &Option<u64>)| before.paths.get(*path) != Some(*seen);
        let differ: Vec<_> = after.paths.iter().filter(changed).collect();
        let differ: Vec<_> = differ.iter().map(|(path, _)| String::from_utf8_lossy(path)).collect();
        let errors = (&before.errors, &after.errors);
        assert!(
            before.paths == after.paths,
            "moves ({moved:?}) changed {differ:?}, errors {errors:?}"
        );
    }
}

/// Scrubs and checks what is in use: both are content where the check of before was.
fn scrub(fs: &FileSystem, clean: bool) {
    let scrubbed = fs.scrub(None, &mut |_, _| true).map(|report| report.map(|it| it.findings));
    let checked = fs.check(&mut |_, _| true).map(|report| report.map(|it| it.findings));
    for done in [scrubbed, checked] {
        match done {
            Ok(findings) => {
                let findings = findings.unwrap_or_default();
                assert!(
                    !clean || findings.is_empty(),
                    "check was content before use: {findings:?}"
                );
            }
            Err(error) => {
                explains(&error);
                assert!(!clean || error.errno() != libc::EIO, "a scrub is not content: {error}");
            }
        }
    }
}

/// How the first use of an image ended.
struct Ended {
    clean: bool,
    /// Nothing that it says of itself is a lie.
    sound: bool,
    /// The new file was made.
    changed: bool,
    /// It was closed, or killed.
    ended: bool,
}

/// Opens what the first use left.
fn again(place: &impl Place, ended: &Ended) {
    let found = check(place);
    let fine = !ended.clean || found.is_empty() || !ended.ended;
    assert!(fine, "check was content before the changes only: {found:?}");
    match place.take_over() {
        Ok(fs) => {
            let seen = Seen::of(&fs);
            seen.errors.iter().for_each(explains);
            move_all(&fs, &seen, ended.clean, ended.sound);
            if ended.sound && ended.changed {
                verify_new(&fs);
            }
            if fs.tier_stats().is_some() {
                scrub(&fs, ended.clean);
            }
            go_on(&fs, ended.clean);
        }
        Err(error) => {
            tells(&error);
            assert!(!(ended.sound && ended.changed), "what was changed does not open: {error}");
        }
    }
}

/// Uses what clients of before hold: inodes without a name, and requests.
fn go_on(fs: &FileSystem, clean: bool) {
    let mut failed: Vec<fs::Error> = Vec::new();
    for ino in fs.kept_orphans() {
        failed.extend(change_one(fs, ino).into_iter().filter_map(Result::err));
        failed.extend(fs.release_orphan(ino).err());
    }
    let attr = SetAttr { mode: Some(0o700), ..SetAttr::default() };
    for id in requests() {
        if !fs.was_done(id) {
            let done = fs.with_request(id, || fs.setattr(Ino::ROOT, &attr));
            assert!(done.is_err() || fs.was_done(id));
            failed.extend(done.err());
        }
    }
    requests().for_each(|id| fs.acknowledge(id));
    failed.extend(fs.checkpoint().err());
    failed.iter().for_each(explains);
    let damage = failed.iter().find(|error| error.errno() == libc::EIO);
    assert!(!clean || damage.is_none(), "check is content, going on is not: {damage:?}");
}

fn verify_new(fs: &FileSystem) {
    let read = || -> fs::Result<Vec<u8>> {
        let handle = fs.open(fs.lookup(Ino::ROOT, NEW)?.ino)?;
        let mut bytes = vec![0; DATA.len() + 1];
        let read = fs.read(&handle, 0, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => assert!(bytes == DATA, "a new file is not what was written"),
        Err(error) => panic!("a new file is not there: {error}"),
    }
}
