"""What is left of the privileges that a file gives, after each change of its content.

A line for each: the change, the caller, the file, and then its permission bits and whether it names
capabilities. Run as root, behind `doors.py`, in the directory where the files are to be. Arguments:
the callers with + between them. With three more (a program, the name of its test, and where it
attaches) the program makes the changes, with the caller's ids or, after a fifth, with root's.
"""
import mmap
import sys

CHANGED_BY, PROGRAM, SQUASHED = sys.argv[1].split("+"), sys.argv[2:5], sys.argv[5:]
GROUP = 77
door = Kernel()


def append(f):
    g = door.open("file", os.O_WRONLY | os.O_APPEND)
    door.pwrite(g, b"x", 0)
    door.close(g)


def direct(f):
    page = mmap.mmap(-1, 4096)
    page[:4] = b"page"
    g = os.open(f"/proc/self/fd/{f}", os.O_WRONLY | os.O_DIRECT)
    os.pwrite(g, page, 0)


def store(f):
    shared = mmap.mmap(f, 4096)
    shared[:5] = b"store"
    shared.flush()


def sent(f):
    os.lseek(f, 0, os.SEEK_SET)
    g = os.open("other", os.O_RDONLY)
    assert os.sendfile(f, g, 0, 10) == 10


CHANGES = {
    "write": lambda f: door.pwrite(f, b"x", 0),
    "large": lambda f: door.pwrite(f, b"x" * 3000000, 0),
    "pipelined": lambda f: door.pipelined(f, (0, b"x"), (5000, b"y" * 100000)),
    "nothing": lambda f: door.pwrite(f, b"", 0),
    "append": append,
    "direct": direct,
    "shorten": lambda f: door.ftruncate(f, 10),
    "lengthen": lambda f: door.truncate("file", 20000),
    "same": lambda f: door.ftruncate(f, 8192),
    "empty": lambda f: door.close(door.open("file", os.O_WRONLY | os.O_TRUNC)),
    "reserve": lambda f: door.fallocate(f, 0, 4096),
    "punch": lambda f: door.fallocate(f, PUNCH | KEEP, 4096),
    "zero": lambda f: door.fallocate(f, ZERO, 4096),
    "copy": lambda f: door.copy(f, 0, f, 5000, 100),
    "send": sent,
    "store": store,
    "chown": lambda f: door.chown("file", -1, GROUP),
    "commit": lambda f: door.commit((f, 10, b"xy")),
    "commit large": lambda f: door.commit((f, 10, b"x" * 3000000)),
    "commit what was read": lambda f: door.commit_read((f, 10, b"xy"), (f, 100, b"xy")),
    "commit more": lambda f: door.commit((f, 10, b"xy"), (f, 7000, b"x" * 3000)),
}
# Changes that an attached process does not have, by why.
ABSENT = {
    "the library has no O_DIRECT": ["direct"],
    "the library zeroes no range but by punching it": ["zero"],
    "sendfile and stores to mappings are the kernel's": ["send", "store"],
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
    """Gives an error of the change."""
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
            os._exit(error.errno)
    status = os.waitpid(child, 0)[1]
    os.close(f)
    return os.waitstatus_to_exitcode(status)


def run_attached(change):
    f = door.open("file", os.O_RDWR)
    try:
        CHANGES[change](f)
        return 0
    except OSError as error:
        return error.errno
    finally:
        door.close(f)


os.umask(0)
with open("other", "wb") as f:
    f.write(b"0123456789")
absent = sum(ABSENT.values(), []) if PROGRAM else []
assert set(absent) <= CHANGES.keys()
for caller in CHANGED_BY:
    if PROGRAM:
        door = Attached(*PROGRAM, CALLERS["root" if SQUASHED else caller])
    for change in CHANGES:
        for file, (mode, capable) in FILES.items():
            if change in absent:
                print(f"{change} {caller} {file}: absent")
                continue
            make(mode, capable)
            failed = run_attached(change) if PROGRAM else run(change, caller)
            said = os.strerror(failed) + ", " if failed else ""
            left = os.stat("file").st_mode & 0o7777
            has = "security.capability" in os.listxattr("file")
            said += f"{left:o} {'capable' if has else '-'}"
            print(f"{change} {caller} {file}: {said}", flush=True)
    if PROGRAM:
        door.end()
