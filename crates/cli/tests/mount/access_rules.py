"""What a call by each caller answers, and what it leaves: where owners and groups decide.

A line for each call and caller: the answer, and then what the call changed. Run as root. Arguments:
the directory where the files are made and looked at, the same directory at the door where the calls
are made, the callers with + between them, and "ids" or "squashed": the calls are made with the
caller's ids, or by root, which the door takes for the caller.
"""
import ctypes
import errno
import fcntl
import mmap
import os
import stat
import struct
import sys
import tempfile

MADE, CALLED = map(os.path.abspath, sys.argv[1:3])
CALLED_BY, IDS = sys.argv[3:5]
# user, group, groups besides. "owner" has the files and is not in their group, "keeper" has the
# directories and is.
CALLERS = {
    "root": (0, 0, []),
    "owner": (500, 500, []),
    "keeper": (400, 77, []),
    "member": (1000, 1000, [5, 77]),
    "group": (1000, 77, []),
    "other": (1000, 1000, []),
}
OLD = 1_000_000_000
NOW, OMIT = (1 << 30) - 1, (1 << 30) - 2
SETS = ("user.a", "trusted.a", "security.a")
CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 2, 0, 0, 0)
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
LIST = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", *entry)
    for entry in ((1, 7, -1 & 0xFFFFFFFF), (2, 6, 900), (4, 5, -1 & 0xFFFFFFFF),
                  (16, 7, -1 & 0xFFFFFFFF), (32, 5, -1 & 0xFFFFFFFF)))
MINIMAL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, bits, 0xFFFFFFFF) for tag, bits in ((1, 7), (4, 7), (32, 5)))
libc = ctypes.CDLL(None, use_errno=True)
opened = []


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "call")


def rename(flags):
    def call(old, new):
        checked(libc.renameat2(-100, old.encode(), -100, new.encode(), flags))
    return call


NOREPLACE, EXCHANGE, WHITEOUT = map(rename, (1, 2, 4))


def utime(name, accessed, modified):
    """Sets times by (seconds, ns)."""
    times = (ctypes.c_long * 4)(*accessed, *modified)
    checked(libc.utimensat(-100, name.encode(), times, 0))


def opens(name, flags, mode=0o666):
    opened.append(os.open(name, flags, mode))
    return opened[-1]


def unnamed(mode, name):
    f = opens("g", os.O_TMPFILE | os.O_RDWR, mode)
    checked(libc.linkat(-100, f"/proc/self/fd/{f}".encode(), -100, name.encode(), 0x400))


def appends(flags, *changes):
    """Opens, changes the flags, and writes at an offset."""
    f = opens("a/file", flags)
    for change in changes:
        fcntl.fcntl(f, fcntl.F_SETFL, change)
    os.pwrite(f, b"XY", 1)


def appends_direct():
    page = mmap.mmap(-1, 4096)
    os.truncate("a/file", 4096)
    os.pwrite(opens("a/file", os.O_WRONLY | os.O_APPEND | os.O_DIRECT), page, 0)


def maps_appending():
    f = opens("a/file", os.O_RDWR | os.O_APPEND)
    shared = mmap.mmap(f, 3)
    shared[:1] = b"M"
    shared.flush()


def copies_appending():
    source = opens("a/file", os.O_RDONLY)
    os.copy_file_range(source, opens("a/other", os.O_WRONLY | os.O_APPEND), 3, 0, 0)


def cuts_appending():
    os.ftruncate(opens("a/file", os.O_WRONLY | os.O_APPEND), 2)


def unwatched_read(name):
    os.read(opens(name, os.O_RDONLY | os.O_NOATIME), 10)


def lists(flags):
    f = opens("d", os.O_RDONLY | os.O_DIRECTORY | flags)
    os.listdir(f)
    return f"time {time(os.fstat(f).st_atime)}"


def unwatched_later(name):
    f = opens(name, os.O_RDONLY)
    fcntl.fcntl(f, fcntl.F_SETFL, os.O_NOATIME)
    os.read(f, 10)


def born(make, change):
    def call():
        make()
        change()
    return call


def tells(value):
    """A call's answer goes into its line."""
    return value if value is None else str(value)


def write(name):
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))


def make(name, uid, mode, how=write, gid=77):
    how(name)
    os.chown(name, uid, gid, follow_symlinks=False)
    os.chmod(name, mode)


def sticky_files():
    for directory, mode in (("s", 0o1777), ("p", 0o777)):
        make(directory, 400, mode, os.mkdir)
        make(f"{directory}/f", 500, 0o666)
        make(f"{directory}/g", 600, 0o666)
        make(f"{directory}/d", 500, 0o777, os.mkdir)
        make(f"{directory}/e", 600, 0o777, os.mkdir)
        make(f"{directory}/l", 500, 0o755, os.mkdir)


def group_files():
    make("g", 400, 0o2777, os.mkdir)
    make("p", 400, 0o777, os.mkdir)
    make("g/f", 500, 0o2777)
    make("g/b", 500, 0o6666)


def attribute_files():
    for name, uid, mode in (("f", 500, 0o666), ("r", 500, 0o644), ("b", 500, 0o2775)):
        make(name, uid, mode)
        with open(name, "w") as f:
            f.write("123")
        os.chmod(name, mode)
        for attribute in SETS:
            os.setxattr(name, attribute, b"value")
        os.utime(name, (OLD, OLD))
    make("s", 400, 0o1777, os.mkdir)
    make("d", 500, 0o2777, os.mkdir)
    os.utime("d", (OLD, OLD))
    make("q", 500, 0o666, os.mkfifo)


def append_files():
    make("a", 400, 0o777, os.mkdir)
    for name in ("a/file", "a/other"):
        make(name, 500, 0o666)
        with open(name, "w") as f:
            f.write("123")
        os.utime(name, (OLD, OLD))


RULES = {
    sticky_files: {
        "unlink": lambda: os.unlink("s/f"),
        "unlink, not sticky": lambda: os.unlink("p/f"),
        "rmdir": lambda: os.rmdir("s/d"),
        "rename": lambda: os.rename("s/f", "s/new"),
        "rename out": lambda: os.rename("s/f", "p/new"),
        "rename in": lambda: os.rename("p/f", "s/new"),
        "replace": lambda: os.rename("p/f", "s/g"),
        "replace from": lambda: os.rename("s/f", "p/g"),
        "replace within": lambda: os.rename("s/g", "s/f"),
        "rename a directory out": lambda: os.rename("s/d", "p/new"),
        "rename a directory in": lambda: os.rename("p/d", "s/new"),
        "replace a directory": lambda: os.rename("p/d", "s/e"),
        "turn a directory": lambda: os.rename("p/l", "s/new"),
        "turn none": lambda: os.rename("p/l", "p/new"),
        "noreplace": lambda: NOREPLACE("s/f", "s/new"),
        "exchange": lambda: EXCHANGE("s/f", "s/g"),
        "exchange out": lambda: EXCHANGE("s/f", "p/g"),
        "exchange in": lambda: EXCHANGE("p/f", "s/g"),
        "exchange directories": lambda: EXCHANGE("p/d", "s/e"),
        "exchange, turned": lambda: EXCHANGE("p/d", "s/l"),
        "whiteout": lambda: WHITEOUT("s/f", "s/new"),
        "whiteout, not sticky": lambda: WHITEOUT("p/f", "p/new"),
        "link in": lambda: os.link("p/f", "s/new"),
        "link out": lambda: os.link("s/f", "p/new"),
        "link within": lambda: os.link("s/f", "s/new"),
    },
    group_files: {
        "create": lambda: opens("g/new", os.O_CREAT | os.O_RDWR, 0o666),
        "create set-id": lambda: opens("g/new", os.O_CREAT | os.O_RDWR, 0o6775),
        "create locking": lambda: opens("g/new", os.O_CREAT | os.O_RDWR, 0o2666),
        "create set-id, no group": lambda: opens("p/new", os.O_CREAT | os.O_RDWR, 0o6775),
        "mkdir": lambda: os.mkdir("g/new", 0o755),
        "mkdir set-id": lambda: os.mkdir("g/new", 0o6777),
        "mkdir set-id, no group": lambda: os.mkdir("p/new", 0o7777),
        "mknod": lambda: os.mknod("g/new", 0o2775 | stat.S_IFREG),
        "mkfifo": lambda: os.mknod("g/new", 0o2775 | stat.S_IFIFO),
        "device": lambda: os.mknod("g/new", 0o666 | stat.S_IFCHR, os.makedev(1, 3)),
        "no device": lambda: os.mknod("g/new", 0o666 | stat.S_IFCHR, 0),
        "symlink": lambda: os.symlink("target", "g/new"),
        "unnamed": lambda: unnamed(0o666, "g/new"),
        "unnamed set-id": lambda: unnamed(0o6775, "g/new"),
        "unnamed locking": lambda: unnamed(0o2666, "g/new"),
        "chmod after": born(lambda: opens("g/new", os.O_CREAT | os.O_RDWR),
                            lambda: os.chmod("g/new", 0o2775)),
        "fchmod after": born(lambda: opens("g/new", os.O_CREAT | os.O_RDWR),
                             lambda: os.fchmod(opened[-1], 0o6775)),
        "chmod directory after": born(lambda: os.mkdir("g/new"),
                                      lambda: os.chmod("g/new", 0o3775)),
        "chgrp after": born(lambda: opens("p/new", os.O_CREAT | os.O_RDWR, 0o6775),
                            lambda: os.chown("p/new", -1, 77)),
        "chgrp away": lambda: os.chown("g/f", -1, 88),
        "chgrp to own": lambda: os.chown("g/f", -1, 500),
        "chgrp to same": lambda: os.chown("g/f", -1, 77),
        "chgrp locking": lambda: os.chown("g/b", -1, 77),
        "chown to same": lambda: os.chown("g/f", 500, -1),
        "chown away": lambda: os.chown("g/f", 1000, -1),
        "chown to root": lambda: os.chown("g/f", 0, 0),
        "chmod": lambda: os.chmod("g/f", 0o2700),
        "chmod set-id": lambda: os.chmod("g/f", 0o6777),
        "chmod directory": lambda: os.chmod("g", 0o3700),
    },
    attribute_files: {
        "touch": lambda: os.utime("f"),
        "touch, not written": lambda: os.utime("r"),
        "touch directory": lambda: os.utime("s"),
        "times": lambda: os.utime("f", (7, 9)),
        "time of change": lambda: utime("f", (0, OMIT), (9, 0)),
        "one now": lambda: utime("f", (0, NOW), (0, OMIT)),
        "one now, one set": lambda: utime("f", (0, NOW), (9, 0)),
        "both now": lambda: utime("f", (0, NOW), (0, NOW)),
        "no time": lambda: utime("r", (0, OMIT), (0, OMIT)),
        "read": lambda: os.read(opens("r", os.O_RDONLY), 10),
        "unwatched": lambda: unwatched_read("f"),
        "unwatched, not written": lambda: unwatched_read("r"),
        "unwatched write": lambda: opens("f", os.O_WRONLY | os.O_NOATIME),
        "unwatched directory": lambda: opens("s", os.O_RDONLY | os.O_DIRECTORY | os.O_NOATIME),
        "unwatched later": lambda: unwatched_later("f"),
        "unwatched new": lambda: opens("s/new", os.O_CREAT | os.O_RDWR | os.O_NOATIME),
        "unwatched, created": lambda: opens("f", os.O_CREAT | os.O_RDWR | os.O_NOATIME),
        "list directory": lambda: lists(0),
        "list unwatched": lambda: lists(os.O_NOATIME),
        "set user": lambda: os.setxattr("f", "user.b", b"v"),
        "set user, not written": lambda: os.setxattr("r", "user.b", b"v"),
        "set user, sticky": lambda: os.setxattr("s", "user.b", b"v"),
        "set user, pipe": lambda: os.setxattr("q", "user.b", b"v"),
        "set trusted": lambda: os.setxattr("f", "trusted.b", b"v"),
        "set security": lambda: os.setxattr("f", "security.b", b"v"),
        "set capability": lambda: os.setxattr("f", "security.capability", CAPABILITY),
        "set list": lambda: os.setxattr("f", ACCESS, LIST),
        "set list, set-id": lambda: os.setxattr("b", ACCESS, LIST),
        "set short list, set-id": lambda: os.setxattr("b", ACCESS, MINIMAL),
        "set default list": lambda: os.setxattr("d", DEFAULT, LIST),
        "set list of directory": lambda: os.setxattr("d", ACCESS, LIST),
        "remove list": lambda: os.removexattr("d", ACCESS),
        "remove user": lambda: os.removexattr("f", "user.a"),
        "remove trusted": lambda: os.removexattr("f", "trusted.a"),
        "remove security": lambda: os.removexattr("f", "security.a"),
        "get user": lambda: tells(os.getxattr("r", "user.a")),
        "get trusted": lambda: tells(os.getxattr("f", "trusted.a")),
        "get security": lambda: tells(os.getxattr("f", "security.a")),
        "list": lambda: tells(sorted(set(os.listxattr("f")) & set(SETS))),
    },
    append_files: {
        "cut": lambda: os.truncate("a/file", 1),
        "append": lambda: appends(os.O_WRONLY | os.O_APPEND),
        "append, read": lambda: appends(os.O_RDWR | os.O_APPEND),
        "append no more": lambda: appends(os.O_WRONLY | os.O_APPEND, 0),
        "append no more, read": lambda: appends(os.O_RDWR | os.O_APPEND, 0),
        "append later": lambda: appends(os.O_WRONLY, os.O_APPEND),
        "append again": lambda: appends(os.O_RDWR | os.O_APPEND, 0, os.O_APPEND),
        "append once": lambda: os.pwritev(opens("a/file", os.O_WRONLY), [b"XY"], 1, os.RWF_APPEND),
        "append direct": appends_direct,
        "append, mapped": maps_appending,
        "append a copy": copies_appending,
        "append and cut": cuts_appending,
    },
}


def look(with_attributes):
    """What is here: names, and what of each a change can show, but for the content."""
    found = {}
    directories = ["."]
    while directories:
        at = directories.pop()
        for name in os.listdir(at):
            path = name if at == "." else f"{at}/{name}"
            it = os.lstat(path)
            said = [f"{it.st_mode:o} {it.st_uid}:{it.st_gid} {it.st_nlink}"]
            if stat.S_ISDIR(it.st_mode):
                directories.append(path)
            if stat.S_ISREG(it.st_mode):
                said.append(f"{time(it.st_atime)} {time(it.st_mtime)} {it.st_size} bytes")
            if with_attributes and (stat.S_ISREG(it.st_mode) or stat.S_ISDIR(it.st_mode)):
                # a system with modules for security has more of them
                said += sorted(x for x in os.listxattr(path) if x != "security.selinux")
            found[path] = " ".join(said)
    return found


def time(seconds):
    return str(int(seconds)) if seconds <= OLD else "new"


def content_of(path):
    with open(path, "rb") as f:
        return str(f.read(8))


def become(uid, gid, groups):
    os.seteuid(0)
    os.setgroups(groups)
    os.setegid(gid)
    os.seteuid(uid)


class Tree:
    """The files of one directory after another: one that a call left as it was serves the next."""

    def __init__(self, files):
        self.files, self.found = files, None

    def make(self):
        path = tempfile.mkdtemp(dir=MADE)
        os.chmod(path, 0o755)
        os.chdir(path)
        self.name = os.path.basename(path)
        self.files()
        self.found = look(self.files is attribute_files)

    def run(self, call, ids):
        if self.found is None:
            self.make()
        before = self.found
        os.chdir(f"{CALLED}/{self.name}")
        become(*ids)
        try:
            said = call()
            answer = said if isinstance(said, str) else "done"
        except OSError as error:
            answer = errno.errorcode[error.errno]
        become(0, 0, [])
        while opened:
            os.close(opened.pop())
        os.chdir(f"{MADE}/{self.name}")
        after = look(self.files is attribute_files)
        names = sorted(before.keys() | after.keys())
        changes = [f"{name} {after.get(name)}" for name in names
                   if before.get(name) != after.get(name)]
        if changes:
            self.found = None
            if self.files is append_files:
                changes += map(content_of, ("a/file", "a/other"))
        return "; ".join([answer, *changes])


os.umask(0)
for files, calls in RULES.items():
    tree = Tree(files)
    for caller in CALLED_BY.split("+"):
        ids = CALLERS[caller if IDS == "ids" else "root"]
        for name, call in calls.items():
            print(f"{name} by {caller}: {tree.run(call, ids)}", flush=True)
