"""What of the privileges that a file gives is left after each change of its content, by each caller.

A line for each: the change, the caller, the file, and then its permission bits and whether it names
capabilities. Run as root, in the directory where the files are to be.
"""
import ctypes
import mmap
import os
import struct
import sys

CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 2, 0, 0, 0)
PUNCH, ZERO, KEEP = 2, 16, 1
GROUP = 77
libc = ctypes.CDLL(None, use_errno=True)


def fallocate(f, mode):
    if libc.fallocate(f, mode, ctypes.c_long(0), ctypes.c_long(4096)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def direct(f):
    page = mmap.mmap(-1, 4096)
    page[:4] = b"page"
    g = os.open(f"/proc/self/fd/{f}", os.O_WRONLY | os.O_DIRECT)
    os.pwrite(g, page, 0)


def store(f):
    shared = mmap.mmap(f, 4096)
    shared[:5] = b"store"
    shared.flush()


def copy(f):
    assert os.copy_file_range(f, f, 100, 0, 5000) == 100


def sent(f):
    os.lseek(f, 0, os.SEEK_SET)
    g = os.open("other", os.O_RDONLY)
    assert os.sendfile(f, g, 0, 10) == 10


CHANGES = {
    "write": lambda f: os.pwrite(f, b"x", 0),
    "large": lambda f: os.pwrite(f, b"x" * 3000000, 0),
    "nothing": lambda f: os.pwrite(f, b"", 0),
    "append": lambda f: os.write(os.open(f"/proc/self/fd/{f}", os.O_WRONLY | os.O_APPEND), b"x"),
    "direct": direct,
    "shorten": lambda f: os.ftruncate(f, 10),
    "lengthen": lambda f: os.truncate("file", 20000),
    "same": lambda f: os.ftruncate(f, 8192),
    "empty": lambda f: os.open("file", os.O_WRONLY | os.O_TRUNC),
    "reserve": lambda f: fallocate(f, 0),
    "punch": lambda f: fallocate(f, PUNCH | KEEP),
    "zero": lambda f: fallocate(f, ZERO),
    "copy": copy,
    "send": sent,
    "store": store,
    "chown": lambda f: os.fchown(f, -1, GROUP),
}
# user, group, groups besides
CALLERS = {
    "root": (0, 0, []),
    "other": (1000, 1000, []),
    "member": (1000, 1000, [5, GROUP]),
    "group": (1000, GROUP, []),
    "owner": (500, 500, []),
}
FILES = {
    "set-id": (0o6777, False),
    "group-id": (0o2666, False),
    "capable": (0o777, True),
    "both": (0o4777, True),
}


def make(mode, capable):
    if os.path.exists("file"):
        os.unlink("file")
    with open("file", "wb") as f:
        f.write(b"a" * 8192)
    os.chown("file", 500, GROUP)
    if capable:
        os.setxattr("file", "security.capability", CAPABILITY)
    os.chmod("file", mode)


def run(change, caller):
    f = os.open("file", os.O_RDWR)
    child = os.fork()
    if child == 0:
        uid, gid, groups = CALLERS[caller]
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        try:
            CHANGES[change](f)
            os._exit(0)
        except OSError as error:
            os.write(1, f"{change} {caller} {os.strerror(error.errno)}\n".encode())
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, (change, caller)
    os.close(f)


os.umask(0)
with open("other", "wb") as f:
    f.write(b"0123456789")
for change in CHANGES:
    for caller in CALLERS:
        for file, (mode, capable) in FILES.items():
            make(mode, capable)
            run(change, caller)
            left = os.stat("file").st_mode & 0o7777
            has = "security.capability" in os.listxattr("file")
            print(f"{change} {caller} {file}: {left:o} {'capable' if has else '-'}", flush=True)
