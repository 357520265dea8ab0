//! A copy: what is where, in which order, and what a failure leaves.
//!
//! A file with a new name is written under a name of its own and renamed when it is whole, so that
//! a copy that fails leaves nothing under the final name. A file that exists is written anew in
//! place, as cp(1) does: it keeps its mode, its owner and its other names. A signal ends a copy
//! between two pieces: of a new file nothing is left then. What a copy that was killed left behind
//! is removed by the next one into the same directory. In a tree, what cannot be copied is told and
//! left out, and the rest is copied.

mod bytes;

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nearside::FileKind;
use nearside::files::Ino;

use crate::cp::CpArgs;
use crate::error::{self, Error, Result};
use crate::inside::Opening;
use crate::keep;
use crate::output;
use crate::pool_path::{self, Operand};
use crate::progress::Bar;
use crate::side::{Side, Stat, means_directory};
use crate::signals;

/// Bytes copied at once.
const PIECE_BYTES: usize = 1 << 20;
/// Permission bits that a copy takes over by itself.
const MODE_BITS: u16 = 0o777;
/// Bits that have a program run with its file's rights.
const SET_ID: u16 = 0o6000;

/// One copy, of a file or of a tree.
pub struct Copy<'a> {
    args: &'a CpArgs,
    from: Side<'a>,
    to: Side<'a>,
    /// Both sides are one pool that this process opened.
    same: bool,
    buffer: Vec<u8>,
    /// Pipes, sockets and devices that were left out.
    left_out: u64,
    /// What could not be copied, as was told.
    failed: u64,
    /// First copies of files of several names, with -a.
    copied: HashMap<(Option<u64>, u64), PathBuf>,
    /// Directories in which nothing is left of copies that were killed.
    cleared: HashSet<PathBuf>,
    bar: Bar,
}

impl<'a> Copy<'a> {
    /// A copy between two sides; `same` if both are one pool that this process opened.
    pub fn new(args: &'a CpArgs, from: Side<'a>, to: Side<'a>, same: bool) -> Copy<'a> {
        let buffer = vec![0; PIECE_BYTES];
        let (copied, cleared) = (HashMap::new(), HashSet::new());
        let bar = Bar::new("copying");
        let (left_out, failed) = (0, 0);
        Copy { args, from, to, same, buffer, left_out, failed, copied, cleared, bar }
    }

    /// Copies.
    pub fn run(mut self) -> Result<()> {
        let (from, to) = (path_of(&self.args.from), path_of(&self.args.to));
        let source = self.source(from)?;
        let target = self.to.stat(to, true).map_err(self.at_to(to))?;
        let into_dir = target.is_some_and(|stat| stat.kind == FileKind::Directory);
        let path = match own_name(from) {
            Some(name) if into_dir => to.join(name),
            _ => to.to_path_buf(),
        };
        self.refuse_place(&source, to, target.is_some())?;
        if source.kind == FileKind::Directory {
            self.refuse_into_itself(&source, &path)?;
        }
        self.copy(from, &source, &path)?;
        let reason = match (self.failed, self.left_out) {
            (0, 0) => return Ok(()),
            (0, count) => format!("all copied but {count} pipes, sockets or devices"),
            (count, 0) => format!("all copied but {count} files or directories, named above"),
            (count, more) => format!(
                "all copied but {count} files or directories, named above, and {more} pipes, \
                 sockets or devices"
            ),
        };
        Err(refuse(shown(&self.args.from, from), reason))
    }

    /// A new name needs a directory that is there.
    fn refuse_place(&self, source: &Stat, to: &Path, exists: bool) -> Result<()> {
        let missing = match to.parent() {
            _ if exists => false,
            _ if means_directory(to) && source.kind != FileKind::Directory => true,
            Some(parent) if !parent.as_os_str().is_empty() => {
                self.to.stat(parent, true).map_err(self.at_to(parent))?.is_none()
            }
            _ => false,
        };
        if missing {
            let reason = match self.args.to {
                Operand::Inside(_) => "no such directory; make it with nearside mkdir -p",
                Operand::Outside(_) => "no such directory; make it with mkdir -p",
            };
            return Err(refuse(shown(&self.args.to, to), reason));
        }
        Ok(())
    }

    /// What is to be copied. A link is followed unless a whole tree is copied.
    fn source(&self, path: &Path) -> Result<Stat> {
        let found = self.from.stat(path, !self.args.is_recursive()).map_err(self.at_from(path))?;
        found.ok_or_else(|| {
            let shown = shown(&self.args.from, path);
            refuse(shown, "no such file or directory; look at the name")
        })
    }

    fn copy(&mut self, from: &Path, source: &Stat, to: &Path) -> Result<()> {
        match source.kind {
            FileKind::Directory if !self.args.is_recursive() => {
                let reason = "is a directory; add -r to copy it with all that is in it";
                Err(refuse(shown(&self.args.from, from), reason))
            }
            FileKind::Directory => self.copy_dir(from, source, to),
            FileKind::Symlink => self.copy_link(from, source, to),
            FileKind::File if self.args.archive && source.links > 1 => {
                self.copy_one_of_several(from, source, to)
            }
            FileKind::File => self.copy_file(from, source, to),
            // Named by itself it is read to its end, like /dev/stdin.
            _ if !self.args.is_recursive() => self.copy_file(from, source, to),
            _ => {
                self.left_out += 1;
                let shown = shown(&self.args.from, from);
                output::complain(&format!("{}: no file, left out", shown.display()));
                Ok(())
            }
        }
    }

    fn copy_dir(&mut self, from: &Path, source: &Stat, to: &Path) -> Result<()> {
        let found = self.to.stat(to, true).map_err(self.at_to(to))?;
        let made = found.is_none();
        match found {
            Some(stat) if stat.kind == FileKind::Directory => {}
            Some(_) => {
                let reason = "exists and is no directory; remove it first";
                return Err(refuse(shown(&self.args.to, to), reason));
            }
            // Its maker must be able to fill it.
            None => {
                let mode = source.mode & MODE_BITS | 0o700;
                self.to.make_dir(to, mode).map_err(self.at_to(to))?;
            }
        }
        for name in self.from.names(from).map_err(self.at_from(from))? {
            // One that is damaged, say, keeps nobody from the others.
            if let Err(error) = self.copy_entry(&from.join(&name), &to.join(&name)) {
                signals::goes_on()?;
                self.failed += 1;
                output::complain(&error.to_string());
            }
        }
        if made && !self.args.preserves() && source.mode & 0o700 != 0o700 {
            let now = self.to.stat(to, true).map_err(self.at_to(to))?;
            let mode = now.map_or(0, |stat| stat.mode) & source.mode;
            self.to.set_mode(to, mode).map_err(self.at_to(to))?;
        }
        self.preserve(from, source, to)
    }

    fn copy_entry(&mut self, from: &Path, to: &Path) -> Result<()> {
        signals::goes_on()?;
        match self.from.stat(from, false).map_err(self.at_from(from))? {
            Some(stat) => self.copy(from, &stat, to),
            // Somebody removed it meanwhile.
            None => Ok(()),
        }
    }

    fn copy_link(&self, from: &Path, source: &Stat, to: &Path) -> Result<()> {
        let target = self.from.read_link(from).map_err(self.at_from(from))?;
        match self.to.stat(to, false).map_err(self.at_to(to))? {
            None => self.to.make_link(&target, to).map_err(self.at_to(to))?,
            Some(stat) => {
                self.refuse_over(&stat, source, to)?;
                let scratch = to.with_file_name(keep::scratch_name());
                let made = self.to.make_link(&target, &scratch);
                let done = made.and_then(|()| self.to.rename(&scratch, to));
                if done.is_err() {
                    let _ = self.to.remove_file(&scratch);
                }
                done.map_err(self.at_to(to))?;
            }
        }
        if self.args.archive {
            keep::owner(source, self.to, to, false).map_err(self.at_to(to))?;
            self.to.set_times(to, source, false).map_err(self.at_to(to))?;
        }
        Ok(())
    }

    /// A file that has other names: once copied, its copy gets one more name.
    fn copy_one_of_several(&mut self, from: &Path, source: &Stat, to: &Path) -> Result<()> {
        let number = (source.device, source.ino);
        let Some(first) = self.copied.get(&number) else {
            self.copy_file(from, source, to)?;
            self.copied.insert(number, to.to_path_buf());
            return Ok(());
        };
        if self.to.stat(to, false).map_err(self.at_to(to))?.is_none() {
            return self.to.hard_link(first, to).map_err(self.at_to(to));
        }
        let scratch = to.with_file_name(keep::scratch_name());
        let linked = self.to.hard_link(first, &scratch);
        let done = linked.and_then(|()| self.to.rename(&scratch, to));
        // Of two names of one file a rename leaves both.
        let _ = self.to.remove_file(&scratch);
        done.map_err(self.at_to(to))
    }

    fn copy_file(&mut self, from: &Path, source: &Stat, to: &Path) -> Result<()> {
        match self.to.stat(to, true).map_err(self.at_to(to))? {
            None => self.copy_new(from, source, to),
            Some(stat) => {
                self.refuse_over(&stat, source, to)?;
                if stat.mode & SET_ID != 0 {
                    // Other content is not to run with the rights that this had. Who does not own
                    // the file cannot say so: what he writes takes them away.
                    match self.to.set_mode(to, stat.mode & !SET_ID) {
                        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
                        set => set.map_err(self.at_to(to))?,
                    }
                }
                self.fill(from, to, to, Opening::Emptied)?;
                self.preserve(from, source, to)
            }
        }
    }

    /// What is at `to` may not be replaced if it is a directory, or what is to be copied.
    fn refuse_over(&self, found: &Stat, source: &Stat, to: &Path) -> Result<()> {
        let reason = match found.kind {
            FileKind::Directory => "is a directory; remove it first, or choose another name",
            _ if self.on_one(found, source) && found.ino == source.ino => {
                "is the very file to be copied"
            }
            _ => return Ok(()),
        };
        Err(refuse(shown(&self.args.to, to), reason))
    }

    fn copy_new(&mut self, from: &Path, source: &Stat, to: &Path) -> Result<()> {
        let dir = to.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new("."));
        if self.cleared.insert(dir.to_path_buf()) {
            keep::clear(self.to, dir);
        }
        let scratch = to.with_file_name(keep::scratch_name());
        let mode = Opening::New(source.mode & MODE_BITS);
        let filled = self
            .fill(from, &scratch, to, mode)
            .and_then(|()| self.preserve(from, source, &scratch));
        let done = filled.and_then(|()| self.to.rename(&scratch, to).map_err(self.at_to(to)));
        if done.is_err() {
            // The first error is what matters; it may even be that nothing was made.
            let _ = self.to.remove_file(&scratch);
        }
        done
    }

    fn preserve(&self, from: &Path, source: &Stat, to: &Path) -> Result<()> {
        if !self.args.preserves() {
            return Ok(());
        }
        let mut bits = keep::MODE_BITS_KEPT;
        if self.args.archive {
            bits = keep::owner(source, self.to, to, true).map_err(self.at_to(to))?;
            let sides = ((self.from, from), (self.to, to));
            let left_out = keep::xattrs(sides.0, sides.1).map_err(self.at_to(to))?;
            for name in left_out {
                let (shown, name) = (shown(&self.args.from, from), name.display().to_string());
                let text = format!("{}: attribute {name}: not taken, left out", shown.display());
                output::complain(&text);
            }
        }
        self.to.set_times(to, source, true).map_err(self.at_to(to))?;
        self.to.set_mode(to, source.mode & bits).map_err(self.at_to(to))
    }

    /// A directory that was copied into itself would never be done. Asks the pool for what lies
    /// above, since links and `..` make the path's own parts say something else.
    fn refuse_into_itself(&self, source: &Stat, to: &Path) -> Result<()> {
        let found = self.to.stat(to, true).map_err(self.at_to(to))?;
        let mut above = match (found, to.parent()) {
            // Refused by who makes the directory.
            (Some(stat), _) if stat.kind != FileKind::Directory => return Ok(()),
            (None, Some(parent)) if parent.as_os_str().is_empty() => PathBuf::from("."),
            (None, Some(parent)) => parent.to_path_buf(),
            _ => to.to_path_buf(),
        };
        while let Some(stat) = self.to.stat(&above, true).map_err(self.at_to(&above))? {
            if !self.on_one(&stat, source) {
                break;
            }
            if stat.ino == source.ino {
                let reason = "lies in the very directory to be copied; choose a place outside";
                return Err(refuse(shown(&self.args.to, to), reason));
            }
            if stat.ino == Ino::ROOT.0 {
                break;
            }
            above.push("..");
        }
        Ok(())
    }

    /// Whether two files lie in one file system, where equal numbers mean one file. A mounted pool
    /// can be reached from outside, too.
    fn on_one(&self, one: &Stat, other: &Stat) -> bool {
        match (one.device, other.device) {
            (None, None) => self.same,
            (one, other) => one == other,
        }
    }

    fn at_from(&self, path: &Path) -> impl Fn(std::io::Error) -> Error + 'static {
        at(&self.args.from, path)
    }

    fn at_to(&self, path: &Path) -> impl Fn(std::io::Error) -> Error + 'static {
        at(&self.args.to, path)
    }
}

/// Puts the path to an error, as the command line writes it.
fn at(operand: &Operand, path: &Path) -> impl Fn(std::io::Error) -> Error + 'static {
    let shown = shown(operand, path);
    move |source| error::io(&shown)(source)
}

fn refuse(shown: PathBuf, reason: impl Into<String>) -> Error {
    Error::Path { shown, reason: reason.into() }
}

fn path_of(operand: &Operand) -> &Path {
    match operand {
        Operand::Inside(at) => &at.path,
        Operand::Outside(path) => path,
    }
}

/// `path` of the side that `operand` is on, as the command line writes it.
fn shown(operand: &Operand, path: &Path) -> PathBuf {
    match operand {
        Operand::Inside(at) => pool_path::shown(&at.pool, path),
        Operand::Outside(_) => path.to_path_buf(),
    }
}

/// The name that a copy of `path` gets in a directory; none for `/`, `.` and `..`.
fn own_name(path: &Path) -> Option<&std::ffi::OsStr> {
    let bytes = path.as_os_str().as_bytes();
    // The path's own parts do not show a final dot.
    if bytes.ends_with(b"/.") { None } else { path.file_name() }
}
