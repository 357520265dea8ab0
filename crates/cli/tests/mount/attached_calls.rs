//! A process that is attached to a service and makes the calls that a script tells it (`doors.py`):
//! this program again, told by its environment.
//!
//! A line of words between tabs is a call; the answer is a line that begins with [`MARK`], as the
//! test harness writes others. Bytes are in hexadecimal.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use nearside::{File, Isolation, OpenFlags, Pool, RenameMode, XattrMode};

use crate::support::Scratch;

/// Tells a process where it is to attach.
const PLACE: &str = "NEARSIDE_ATTACHED_CALLS";
/// Begins an answer.
const MARK: &str = "@ ";
/// Bytes that regions are a multiple of.
const PAGE: u64 = 4096;
/// Permission bits of a directory whose maker names none: 0755.
const DIRECTORY_MODE: &str = "493";

/// The answer to a call, or an errno.
type CallResult = Result<String, i32>;

/// Makes the calls that its input names, if its environment says so, and never returns then.
pub fn run_if_told() {
    let Ok(place) = std::env::var(PLACE) else { return };
    let mut calls = AttachedCalls { pool: Pool::attach(place).unwrap(), files: Vec::new() };
    // the harness has begun a line
    println!("\n{MARK}attached");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (call, words) = line.split_once('\t').unwrap();
        match calls.make(call, &words.split('\t').collect::<Vec<_>>()) {
            Ok(answer) => println!("{MARK}{answer}"),
            Err(errno) => println!("{MARK}-{errno}"),
        }
    }
    std::process::exit(0);
}

/// An attached pool and the files that the calls have opened.
struct AttachedCalls {
    pool: Pool,
    /// By their numbers.
    files: Vec<Option<File>>,
}

fn number<T: FromStr<Err: std::fmt::Debug>>(word: &str) -> T {
    word.parse().unwrap()
}

/// Bytes as `HEXADECIMAL*COUNT`.
fn bytes(word: &str) -> Vec<u8> {
    let (digits, count) = word.split_once('*').unwrap();
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.as_bytes().chunks(2).map(byte).collect::<Vec<_>>().repeat(number(count))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An owner or a group; -1 leaves it as it is.
fn owner(word: &str) -> Option<u32> {
    (word != "-1").then(|| number(word))
}

/// A time as `SECONDS.NANOSECONDS`; "-" leaves it as it is.
fn time(word: &str) -> Option<SystemTime> {
    let (seconds, nanoseconds) = word.split_once('.')?;
    Some(SystemTime::UNIX_EPOCH + Duration::new(number(seconds), number(nanoseconds)))
}

fn flags(letters: &str, mode: &str) -> OpenFlags {
    let has = |letter| letters.contains(letter);
    let flags = OpenFlags::new().read(has('r')).write(has('w')).append(has('a'));
    let created = flags.create(has('c')).create_new(has('x'));
    created.truncate(has('t')).mode(number(mode))
}

/// Names with blanks between them.
fn joined<T: AsRef<OsStr>>(names: impl IntoIterator<Item = T>) -> String {
    let names = names.into_iter().map(|name| name.as_ref().to_str().unwrap().to_owned());
    names.collect::<Vec<_>>().join(" ")
}

impl AttachedCalls {
    fn file(&self, word: &str) -> &File {
        self.files[number::<usize>(word)].as_ref().unwrap()
    }

    fn make(&mut self, call: &str, words: &[&str]) -> CallResult {
        let done = match (call, words) {
            ("open", [path, letters, mode]) => {
                let file = self.pool.open_file(path, &flags(letters, mode));
                file.map(|file| {
                    self.files.push(Some(file));
                    (self.files.len() - 1).to_string()
                })
            }
            ("close", [file]) => {
                self.files[number::<usize>(file)] = None;
                Ok(String::new())
            }
            (
                "read" | "write" | "pipelined" | "append" | "set-len" | "allocate" | "punch"
                | "copy",
                _,
            ) => self.change(call, words),
            ("commit", stores) => self.commit(Isolation::Committed, stores),
            ("commit-read", stores) => self.commit(Isolation::Serialisable, stores),
            ("set-xattr" | "remove-xattr" | "xattr" | "xattrs", [path, ..]) => {
                return self.attribute(call, path, &words[1..]);
            }
            ("time-of-read" | "list" | "chmod" | "chown" | "times", [path, ..]) => {
                self.inode(call, path, &words[1..])
            }
            _ => self.name(call, words).map(|()| String::new()),
        };
        done.map_err(|error| error.errno())
    }

    /// Reads or changes the content of an open file.
    fn change(&self, call: &str, words: &[&str]) -> nearside::Result<String> {
        let (file, words) = (self.file(words[0]), &words[1..]);
        match (call, words) {
            ("read", [length]) => {
                let mut content = vec![0; number(length)];
                let read = file.read_at(&mut content, 0)?;
                return Ok(hexadecimal(&content[..read]));
            }
            ("write", [offset, data]) => {
                let data = bytes(data);
                // that of no bytes is a call, too
                let written = file.write_at(&data, number(offset))?;
                file.write_all_at(&data[written..], number::<u64>(offset) + written as u64)?;
            }
            ("pipelined", writes) => {
                let mut pipeline = file.pipelined();
                for write in writes.chunks(2) {
                    pipeline.write_all_at(&bytes(write[1]), number(write[0]))?;
                }
                pipeline.finish()?;
            }
            ("append", [data]) => drop(file.append(&bytes(data))?),
            ("set-len", [length]) => file.set_len(number(length))?,
            ("allocate", [length]) => file.allocate(0, number(length))?,
            ("punch", [length]) => file.punch_hole(0, number(length))?,
            ("copy", [offset, to, to_offset, length]) => {
                let (offset, to_offset) = (number(offset), number(to_offset));
                let copied = file.copy_to(offset, self.file(to), to_offset, number(length))?;
                return Ok(copied.to_string());
            }
            _ => panic!("no such call: {call} {words:?}"),
        }
        Ok(String::new())
    }

    /// Maps files as regions, and stores to them in one transaction; one that is serialisable reads
    /// there before.
    fn commit(&self, isolation: Isolation, stores: &[&str]) -> nearside::Result<String> {
        let store = |it: &[&str]| (number(it[0]), number::<u64>(it[1]), bytes(it[2]));
        let stores: Vec<(usize, _, _)> = stores.chunks(3).map(store).collect();
        let map = |(file, offset, data): &(usize, u64, Vec<u8>)| {
            let end = offset + data.len() as u64;
            self.pool.map(self.files[*file].as_ref().unwrap(), 0, end.next_multiple_of(PAGE))
        };
        let regions = stores.iter().map(map).collect::<nearside::Result<Vec<_>>>()?;
        let mut transaction = self.pool.begin_with(isolation)?;
        for (region, (_, offset, data)) in regions.iter().zip(&stores) {
            if isolation == Isolation::Serialisable {
                transaction.read(region, *offset as usize, &mut vec![0; data.len()])?;
            }
            transaction.write(region, *offset as usize, data)?;
        }
        transaction.commit()?;
        Ok(String::new())
    }

    fn attribute(&self, call: &str, path: &str, words: &[&str]) -> CallResult {
        let pool = &self.pool;
        let done = match (call, words) {
            ("set-xattr", [name, value]) => {
                pool.set_xattr(path, name, &bytes(value), XattrMode::Any).map(|()| String::new())
            }
            ("remove-xattr", [name]) => pool.remove_xattr(path, name).map(|()| String::new()),
            ("xattr", [name]) => {
                let value = pool.xattr(path, name).map_err(|error| error.errno())?;
                return value.map(|value| hexadecimal(&value)).ok_or(libc::ENODATA);
            }
            ("xattrs", []) => pool.list_xattrs(path).map(joined),
            _ => panic!("no such call: {call} {words:?}"),
        };
        done.map_err(|error| error.errno())
    }

    fn inode(&self, call: &str, path: &str, words: &[&str]) -> nearside::Result<String> {
        let pool = &self.pool;
        match (call, words) {
            ("time-of-read", []) => {
                let time = pool.metadata(path)?.accessed();
                let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
                return Ok(since.as_secs().to_string());
            }
            ("list", []) => {
                let entries = pool.read_dir(path)?.collect::<nearside::Result<Vec<_>>>()?;
                let names = entries.iter().map(|entry| OsStr::from_bytes(entry.name_bytes()));
                return Ok(joined(names));
            }
            ("chmod", [mode]) => pool.set_permissions(path, number(mode))?,
            ("chown", [user, group, "1"]) => pool.set_owner(path, owner(user), owner(group))?,
            ("chown", [user, group, "0"]) => {
                pool.set_symlink_owner(path, owner(user), owner(group))?;
            }
            ("times", [accessed, modified, "1"]) => {
                pool.set_times(path, time(accessed), time(modified))?;
            }
            ("times", [accessed, modified, "0"]) => {
                pool.set_symlink_times(path, time(accessed), time(modified))?;
            }
            _ => panic!("no such call: {call} {words:?}"),
        }
        Ok(String::new())
    }

    fn name(&self, call: &str, words: &[&str]) -> nearside::Result<()> {
        let pool = &self.pool;
        match (call, words) {
            ("mkdir", [path, DIRECTORY_MODE]) => pool.create_dir(path),
            ("mkdir-all", [path]) => pool.create_dir_all(path),
            ("mkdir", [path, mode]) => pool.create_dir_with_mode(path, number(mode)),
            ("symlink", [target, path]) => pool.symlink(target, path),
            ("link", [old, new]) => pool.hard_link(old, new),
            ("unlink", [path]) => pool.remove_file(path),
            ("rmdir", [path]) => pool.remove_dir(path),
            ("rename", [old, new, "0"]) => pool.rename(old, new),
            ("rename", [old, new, "1"]) => pool.rename_with(old, new, RenameMode::NoReplace),
            ("rename", [old, new, "2"]) => pool.rename_with(old, new, RenameMode::Exchange),
            ("rename", [old, new, "4"]) => {
                pool.rename_with(old, new, RenameMode::Whiteout { uid: 0, gid: 0 })
            }
            _ => panic!("no such call: {call} {words:?}"),
        }
    }
}

/// A copy of this program that every user can run, and every user can attach to the pool.
pub fn program_for_all(scratch: &Scratch) -> String {
    let pass = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(scratch.pool(), pass).unwrap();
    let program = scratch.root().join("attached-calls");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    program.to_str().unwrap().to_owned()
}
