#!/usr/bin/env bash
# What: a FUSE server's thread that tells the kernel to drop a file's pages (FUSE_NOTIFY_INVAL_INODE)
# waits, where one of them is dirty, until that page is written back, which the same server has to
# answer. It waits uninterruptibly, so SIGKILL does not end the server: as long as that thread is there
# the connection stays open, so that the write-back is never given up, so that the thread never ends.
# The processes that use the mount hang with it. Something else has to abort the connection (umount -f,
# or the file `abort` of fusectl). A server that was killed while it waits in read(2) of /dev/fuse ends
# at once, and its connection with it.
#
# Seen with Linux 6.18.44 and fuser 0.16.0:
#   killed: ended after 3 s: no, a thread in state D
#   umount -f: ended: yes
# Source: fs/fuse/inode.c, fuse_reverse_inval_inode; mm/truncate.c, invalidate_inode_pages2_range;
# fs/fuse/file.c, fuse_launder_folio (waits by folio_wait_writeback).
#
# Needs root, /dev/fuse, cargo, python3. Everything is made in a temporary directory.
set -euo pipefail
dir=$(mktemp -d)
server='' storer=''
ends() {
    umount -f "$dir/mnt" 2>/dev/null || true
    [[ -z $storer ]] || kill -9 "$storer" 2>/dev/null || true
    [[ -z $server ]] || kill -9 "$server" 2>/dev/null || true
    umount -l "$dir/mnt" 2>/dev/null || true
    rm -rf "$dir"
}
trap ends EXIT
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

const SIZE: usize = 1 << 16;
const TTL: Duration = Duration::from_secs(60);

/// A file of zeros. Writes to it are not answered.
struct One(Vec<ReplyWrite>);

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
        reply.data(&vec![0; (size as usize).min(SIZE - at)])
    }
    fn write(&mut self, _: &Request, _: u64, _: u64, _: i64, _: &[u8], _: u32, _: i32, _: Option<u64>, reply: ReplyWrite) {
        self.0.push(reply)
    }
}

fn main() {
    let dir = std::env::args().nth(1).unwrap();
    let options = [MountOption::FSName("one".into())];
    let mut session = Session::new(One(Vec::new()), &dir, &options).unwrap();
    let notifier = session.notifier();
    std::thread::spawn(move || {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        println!("telling");
        println!("told: {:?}", notifier.inval_inode(2, 0, 0));
    });
    session.run().unwrap();
}
RUST
CARGO_TARGET_DIR=$dir/target cargo build --quiet --manifest-path "$dir/server/Cargo.toml"
mkfifo "$dir/tell"
"$dir/target/debug/server" "$dir/mnt" <"$dir/tell" >"$dir/said" &
server=$!
exec 3>"$dir/tell"
for ((n = 0; n < 100; n++)); do
    mountpoint -q "$dir/mnt" && break
    sleep 0.1
done
cat >"$dir/store.py" <<'PY'
import mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(fd, 4096)
m[0:6] = b"stored"
print("stored", flush=True)
time.sleep(60)
PY
python3 "$dir/store.py" "$dir/mnt/file" >"$dir/stored" &
storer=$!
for ((n = 0; n < 100; n++)); do
    [[ -s $dir/stored ]] && break
    sleep 0.1
done
echo >&3
sleep 1
# Whether a thread of the server waits so that no signal reaches it; it ends, or not, in so many seconds.
state() { awk '/^State/ { print $2 }' /proc/"$server"/task/*/status 2>/dev/null | sort -u | tr -d '\n'; }
ended_in() {
    local n
    for ((n = 0; n < $1 * 10; n++)); do
        [[ $(state) == '' || $(state) == Z ]] && { echo yes; return; }
        sleep 0.1
    done
    echo no
}
kill -9 "$server"
killed=$(ended_in 3)
states=$(state)
umount -f "$dir/mnt" 2>/dev/null || true # it aborts the connection, and is busy
unmounted=$(ended_in 10)
echo "Linux $(uname -r), fuser 0.16.0"
echo "said: $(tr '\n' ' ' <"$dir/said")"
echo "killed: ended after 3 s: $killed, $([[ $states == *D* ]] && echo "a thread in state D")"
echo "umount -f: ended: $unmounted"
[[ $(<"$dir/said") == telling && $killed == no && $states == *D* && $unmounted == yes ]]
