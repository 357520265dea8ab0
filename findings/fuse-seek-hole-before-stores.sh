#!/usr/bin/env bash
# What: on a FUSE mount whose server finds data and holes (FUSE_LSEEK), lseek(SEEK_DATA) and
# lseek(SEEK_HOLE) do not see what a program has stored to a shared mapping of the same file, until
# msync: the kernel asks the server without writing dirty pages back first. So a program that copies by
# SEEK_DATA (cp, tar -S) leaves out bytes that read(2) of the same descriptor shows. On tmpfs and ext4
# the same calls find them.
#
# Seen with Linux 6.18.44 and fuser 0.16.0, its server without a write-back cache:
#   tmpfs: data at 299008 (read: 0123456789)
#   fuse:  no data (read: 0123456789); after msync: data at 299008
# Source: fs/fuse/file.c, fuse_file_llseek and fuse_lseek: no filemap_write_and_wait.
#
# Needs root, /dev/fuse, cargo, python3. Everything is made in a temporary directory.
set -euo pipefail
dir=$(mktemp -d)
server=
trap '[[ -z $server ]] || { umount -l "$dir/mnt" || true; kill "$server" 2>/dev/null || true; }; rm -rf "$dir"' EXIT
mkdir "$dir/server" "$dir/server/src" "$dir/mnt"
cat >"$dir/server/Cargo.toml" <<'TOML'
[package]
name = "server"
version = "0.0.0"
edition = "2021"
[dependencies]
fuser = { version = "=0.16.0", default-features = false, features = ["abi-7-31"] }
libc = "=0.2.177"
TOML
cat >"$dir/server/src/main.rs" <<'RUST'
use fuser::*;
use std::time::{Duration, UNIX_EPOCH};

const SIZE: usize = 1 << 20;
const TTL: Duration = Duration::from_secs(0);

struct One(Vec<u8>);

fn attr(ino: u64) -> FileAttr {
    let (kind, perm) = if ino == 1 { (FileType::Directory, 0o755) } else { (FileType::RegularFile, 0o644) };
    FileAttr {
        ino, size: if ino == 1 { 0 } else { SIZE as u64 }, blocks: 0, atime: UNIX_EPOCH, mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH, crtime: UNIX_EPOCH, kind, perm, nlink: 1, uid: 0, gid: 0, rdev: 0,
        blksize: 4096, flags: 0,
    }
}

impl Filesystem for One {
    fn lookup(&mut self, _: &Request, _: u64, name: &std::ffi::OsStr, reply: ReplyEntry) {
        if name == "file" { reply.entry(&TTL, &attr(2), 0) } else { reply.error(libc::ENOENT) }
    }
    fn getattr(&mut self, _: &Request, ino: u64, _: Option<u64>, reply: ReplyAttr) {
        reply.attr(&TTL, &attr(ino))
    }
    fn read(&mut self, _: &Request, _: u64, _: u64, at: i64, size: u32, _: i32, _: Option<u64>, reply: ReplyData) {
        let at = (at as usize).min(SIZE);
        reply.data(&self.0[at..(at + size as usize).min(SIZE)])
    }
    fn write(&mut self, _: &Request, _: u64, _: u64, at: i64, data: &[u8], _: u32, _: i32, _: Option<u64>, reply: ReplyWrite) {
        let at = at as usize;
        self.0[at..at + data.len()].copy_from_slice(data);
        reply.written(data.len() as u32)
    }
    fn lseek(&mut self, _: &Request, _: u64, _: u64, at: i64, whence: i32, reply: ReplyLseek) {
        let block = |n: usize| self.0[n * 4096..(n + 1) * 4096].iter().any(|byte| *byte != 0);
        let wanted = whence == libc::SEEK_DATA;
        let found = (at as usize / 4096..SIZE / 4096).find(|n| block(*n) == wanted);
        match found {
            Some(n) => reply.offset((n as i64 * 4096).max(at)),
            None if wanted => reply.error(libc::ENXIO),
            None => reply.offset(SIZE as i64),
        }
    }
}

fn main() {
    let dir = std::env::args().nth(1).unwrap();
    fuser::mount2(One(vec![0; SIZE]), dir, &[MountOption::FSName("one".into())]).unwrap();
}
RUST
CARGO_TARGET_DIR=$dir/target cargo build --quiet --manifest-path "$dir/server/Cargo.toml"
"$dir/target/debug/server" "$dir/mnt" &
server=$!
for ((n = 0; n < 100; n++)); do
    mountpoint -q "$dir/mnt" && break
    sleep 0.1
done
cat >"$dir/look.py" <<'PY'
import mmap, os, sys

def data(fd):
    try:
        return f"data at {os.lseek(fd, 0, os.SEEK_DATA)}"
    except OSError:
        return "no data"

fd = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(fd, 1 << 20)
m[300000:300010] = b"0123456789"
before = data(fd)
read = os.pread(fd, 10, 300000).decode()
m.flush()
print(f"{before} (read: {read}); after msync: {data(fd)}")
PY
truncate -s 1M /dev/shm/seek-hole-file
tmpfs=$(python3 "$dir/look.py" /dev/shm/seek-hole-file)
rm /dev/shm/seek-hole-file
fuse=$(python3 "$dir/look.py" "$dir/mnt/file")
echo "Linux $(uname -r), fuser 0.16.0"
echo "tmpfs: $tmpfs"
echo "fuse:  $fuse"
[[ $tmpfs == "data at 299008 (read: 0123456789); after msync: data at 299008" ]]
[[ $fuse == "no data (read: 0123456789); after msync: data at 299008" ]]
