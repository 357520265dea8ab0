"""What a call by each caller answers, and what it leaves: where owners and groups decide.

A line for each call and caller: the answer, and then what the call changed. Run as root, behind
`doors.py`. Arguments: the directory where the files are made and looked at, the same directory at
the door where the calls are made, the callers with + between them, and "ids" or "squashed": the
calls are made with the caller's ids, or by root, which the door takes for the caller. With a
program and the name of its test besides, it makes the calls, attached at the door.
"""
import errno
import fcntl
import mmap
import stat
import sys
import tempfile

MADE = os.path.abspath(sys.argv[1])
CALLED, CALLED_BY, IDS = sys.argv[2:5]
PROGRAM = sys.argv[5:]
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
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
LIST = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", *entry)
    for entry in ((1, 7, -1 & 0xFFFFFFFF), (2, 6, 900), (4, 5, -1 & 0xFFFFFFFF),
                  (16, 7, -1 & 0xFFFFFFFF), (32, 5, -1 & 0xFFFFFFFF)))
MINIMAL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, bits, 0xFFFFFFFF) for tag, bits in ((1, 7), (4, 7), (32, 5)))
opened = []
door = Kernel()


def opens(name, flags, mode=0o666):
    opened.append(door.open(name, flags, mode))
    return opened[-1]


def unnamed(mode, name):
    f = opens("g", os.O_TMPFILE | os.O_RDWR, mode)
    checked(libc.linkat(-100, f"/proc/self/fd/{f}".encode(), -100, name.encode(), 0x400))


def appends(flags, *changes):
    """Opens, changes the flags, and writes at an offset."""
    f = opens("a/file", flags)
    for change in changes:
        fcntl.fcntl(f, fcntl.F_SETFL, change)
    door.pwrite(f, b"XY", 1)


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
    door.copy(source, 0, opens("a/other", os.O_WRONLY | os.O_APPEND), 0, 3)


def cuts_appending():
    os.ftruncate(opens("a/file", os.O_WRONLY | os.O_APPEND), 2)


def unwatched_read(name):
    os.read(opens(name, os.O_RDONLY | os.O_NOATIME), 10)


def lists():
    door.listdir("d")
    return f"time {time(door.time_of_read('d'))}"


def lists_unwatched():
    f = opens("d", os.O_RDONLY | os.O_DIRECTORY | os.O_NOATIME)
    os.listdir(f)
    return f"time {time(os.fstat(f).st_atime)}"


def unwatched_later(name):
    f = opens(name, os.O_RDONLY)
    fcntl.fcntl(f, fcntl.F_SETFL, os.O_NOATIME)
    os.read(f, 10)


def touch(name):
    os.utime(name)


def commits(name, flags=os.O_RDWR, offset=1):
    """Stores to a region, which is compared with a write."""
    door.commit((opens(name, flags), offset, b"XY"))


def commits_to_two():
    f, g = opens("f", os.O_RDWR), opens("b", os.O_RDWR)
    door.commit((f, 1, b"XY"), (g, 2, b"Z"))


def commits_after(change):
    f = opens("b", os.O_RDWR)
    change()
    door.commit((f, 1, b"XY"))


def commits_what_it_read():
    door.commit_read((opens("b", os.O_RDWR), 1, b"XY"))


def again(change, give):
    """Changes a new file so often that an attached process gets a lease, and then gives it
    privileges and changes it once more."""
    f = opens("s/new", os.O_CREAT | os.O_RDWR)
    for _ in range(200 if PROGRAM else 1):
        change(f)
    give("s/new")
    change(f)


def writes_again(give):
    again(lambda f: door.pwrite(f, b"XY", 1), give)


def commits_again(give):
    again(lambda f: door.commit((f, 1, b"XY")), give)


def set_id(name):
    door.chmod(name, 0o6777)


def capable(name):
    door.setxattr(name, "security.capability", CAPABILITY)


def born(make, change):
    def call():
        make()
        change()
    return call


def tells(value):
    """A call's answer goes into its line."""
    return value if value is None else str(value)


RULES = {
    sticky_files: {
        "unlink": lambda: door.unlink("s/f"),
        "unlink, not sticky": lambda: door.unlink("p/f"),
        "rmdir": lambda: door.rmdir("s/d"),
        "rename": lambda: door.rename("s/f", "s/new"),
        "rename out": lambda: door.rename("s/f", "p/new"),
        "rename in": lambda: door.rename("p/f", "s/new"),
        "replace": lambda: door.rename("p/f", "s/g"),
        "replace from": lambda: door.rename("s/f", "p/g"),
        "replace within": lambda: door.rename("s/g", "s/f"),
        "rename a directory out": lambda: door.rename("s/d", "p/new"),
        "rename a directory in": lambda: door.rename("p/d", "s/new"),
        "replace a directory": lambda: door.rename("p/d", "s/e"),
        "turn a directory": lambda: door.rename("p/l", "s/new"),
        "turn none": lambda: door.rename("p/l", "p/new"),
        "noreplace": lambda: door.rename("s/f", "s/new", NOREPLACE),
        "exchange": lambda: door.rename("s/f", "s/g", EXCHANGE),
        "exchange out": lambda: door.rename("s/f", "p/g", EXCHANGE),
        "exchange in": lambda: door.rename("p/f", "s/g", EXCHANGE),
        "exchange directories": lambda: door.rename("p/d", "s/e", EXCHANGE),
        "exchange, turned": lambda: door.rename("p/d", "s/l", EXCHANGE),
        "whiteout": lambda: door.rename("s/f", "s/new", WHITEOUT),
        "whiteout, not sticky": lambda: door.rename("p/f", "p/new", WHITEOUT),
        "link in": lambda: door.link("p/f", "s/new"),
        "link out": lambda: door.link("s/f", "p/new"),
        "link within": lambda: door.link("s/f", "s/new"),
    },
    group_files: {
        "create": lambda: opens("g/new", os.O_CREAT | os.O_RDWR, 0o666),
        "create set-id": lambda: opens("g/new", os.O_CREAT | os.O_RDWR, 0o6775),
        "create locking": lambda: opens("g/new", os.O_CREAT | os.O_RDWR, 0o2666),
        "create set-id, no group": lambda: opens("p/new", os.O_CREAT | os.O_RDWR, 0o6775),
        "mkdir": lambda: door.mkdir("g/new", 0o755),
        "mkdir closed": lambda: door.mkdir("g/new", 0o750),
        "mkdir within": lambda: door.makedirs("g/new/sub"),
        "mkdir set-id": lambda: door.mkdir("g/new", 0o6777),
        "mkdir set-id, no group": lambda: door.mkdir("p/new", 0o7777),
        "mknod": lambda: door.mknod("g/new", 0o2775 | stat.S_IFREG),
        "mkfifo": lambda: door.mknod("g/new", 0o2775 | stat.S_IFIFO),
        "device": lambda: door.mknod("g/new", 0o666 | stat.S_IFCHR, os.makedev(1, 3)),
        "no device": lambda: door.mknod("g/new", 0o666 | stat.S_IFCHR, 0),
        "symlink": lambda: door.symlink("target", "g/new"),
        "unnamed": lambda: unnamed(0o666, "g/new"),
        "unnamed set-id": lambda: unnamed(0o6775, "g/new"),
        "unnamed locking": lambda: unnamed(0o2666, "g/new"),
        "chmod after": born(lambda: opens("g/new", os.O_CREAT | os.O_RDWR),
                            lambda: door.chmod("g/new", 0o2775)),
        "fchmod after": born(lambda: opens("g/new", os.O_CREAT | os.O_RDWR),
                             lambda: door.fchmod(opened[-1], 0o6775)),
        "chmod directory after": born(lambda: door.mkdir("g/new"),
                                      lambda: door.chmod("g/new", 0o3775)),
        "chgrp after": born(lambda: opens("p/new", os.O_CREAT | os.O_RDWR, 0o6775),
                            lambda: door.chown("p/new", -1, 77)),
        "chgrp away": lambda: door.chown("g/f", -1, 88),
        "chgrp to own": lambda: door.chown("g/f", -1, 500),
        "chgrp to same": lambda: door.chown("g/f", -1, 77),
        "chgrp locking": lambda: door.chown("g/b", -1, 77),
        "chgrp of a link": lambda: door.chown("g/l", -1, 500, follow_symlinks=False),
        "chown of a link": lambda: door.chown("g/l", 1000, -1, follow_symlinks=False),
        "chgrp by a link": lambda: door.chown("g/l", -1, 500),
        "chown to same": lambda: door.chown("g/f", 500, -1),
        "chown away": lambda: door.chown("g/f", 1000, -1),
        "chown to root": lambda: door.chown("g/f", 0, 0),
        "times of a link": lambda: door.utime("g/l", (7, 0), (9, 0), follow_symlinks=False),
        "chmod by a link": lambda: door.chmod("g/l", 0o2700),
        "chmod": lambda: door.chmod("g/f", 0o2700),
        "chmod set-id": lambda: door.chmod("g/f", 0o6777),
        "chmod directory": lambda: door.chmod("g", 0o3700),
    },
    attribute_files: {
        "touch": lambda: touch("f"),
        "touch, not written": lambda: touch("r"),
        "touch directory": lambda: touch("s"),
        "times": lambda: door.utime("f", (7, 0), (9, 0)),
        "time of change": lambda: door.utime("f", (0, OMIT), (9, 0)),
        "one now": lambda: door.utime("f", (0, NOW), (0, OMIT)),
        "one now, one set": lambda: door.utime("f", (0, NOW), (9, 0)),
        "both now": lambda: door.utime("f", (0, NOW), (0, NOW)),
        "no time": lambda: door.utime("r", (0, OMIT), (0, OMIT)),
        "read": lambda: door.read(opens("r", os.O_RDONLY), 10),
        "unwatched": lambda: unwatched_read("f"),
        "unwatched, not written": lambda: unwatched_read("r"),
        "unwatched write": lambda: opens("f", os.O_WRONLY | os.O_NOATIME),
        "unwatched directory": lambda: opens("s", os.O_RDONLY | os.O_DIRECTORY | os.O_NOATIME),
        "unwatched later": lambda: unwatched_later("f"),
        "unwatched new": lambda: opens("s/new", os.O_CREAT | os.O_RDWR | os.O_NOATIME),
        "unwatched, created": lambda: opens("f", os.O_CREAT | os.O_RDWR | os.O_NOATIME),
        "list directory": lists,
        "list unwatched": lists_unwatched,
        "commit": lambda: commits("f"),
        "commit, not written": lambda: commits("r"),
        "commit, set-id": lambda: commits("b"),
        "commit, longer": lambda: commits("b", offset=5000),
        "commit, reading": lambda: commits("f", os.O_RDONLY),
        "commit to two": commits_to_two,
        "commit after chmod": lambda: commits_after(lambda: door.chmod("b", 0o6000)),
        "commit after chgrp": lambda: commits_after(lambda: door.chown("b", -1, 500)),
        "commit after unlink": lambda: commits_after(lambda: door.unlink("b")),
        "commit what was read": commits_what_it_read,
        "write again, set-id": lambda: writes_again(set_id),
        "write again, capable": lambda: writes_again(capable),
        "commit again, set-id": lambda: commits_again(set_id),
        "commit again, capable": lambda: commits_again(capable),
        "set user": lambda: door.setxattr("f", "user.b", b"v"),
        "set user, not written": lambda: door.setxattr("r", "user.b", b"v"),
        "set user, sticky": lambda: door.setxattr("s", "user.b", b"v"),
        "set user, pipe": lambda: door.setxattr("q", "user.b", b"v"),
        "set trusted": lambda: door.setxattr("f", "trusted.b", b"v"),
        "set security": lambda: door.setxattr("f", "security.b", b"v"),
        "set capability": lambda: door.setxattr("f", "security.capability", CAPABILITY),
        "set list": lambda: door.setxattr("f", ACCESS, LIST),
        "set list, set-id": lambda: door.setxattr("b", ACCESS, LIST),
        "set short list, set-id": lambda: door.setxattr("b", ACCESS, MINIMAL),
        "set default list": lambda: door.setxattr("d", DEFAULT, LIST),
        "set list of directory": lambda: door.setxattr("d", ACCESS, LIST),
        "remove list": lambda: door.removexattr("d", ACCESS),
        "remove user": lambda: door.removexattr("f", "user.a"),
        "remove trusted": lambda: door.removexattr("f", "trusted.a"),
        "remove security": lambda: door.removexattr("f", "security.a"),
        "get user": lambda: tells(door.getxattr("r", "user.a")),
        "get trusted": lambda: tells(door.getxattr("f", "trusted.a")),
        "get security": lambda: tells(door.getxattr("f", "security.a")),
        "list": lambda: tells(sorted(set(door.listxattr("f")) & set(SETS))),
    },
    append_files: {
        "cut": lambda: door.truncate("a/file", 1),
        "append": lambda: appends(os.O_WRONLY | os.O_APPEND),
        "append, read": lambda: appends(os.O_RDWR | os.O_APPEND),
        "append no more": lambda: appends(os.O_WRONLY | os.O_APPEND, 0),
        "append no more, read": lambda: appends(os.O_RDWR | os.O_APPEND, 0),
        "append later": lambda: appends(os.O_WRONLY, os.O_APPEND),
        "append again": lambda: appends(os.O_RDWR | os.O_APPEND, 0, os.O_APPEND),
        "append once": lambda: door.append(opens("a/file", os.O_WRONLY), b"XY"),
        "append direct": appends_direct,
        "append, mapped": maps_appending,
        "append a copy": copies_appending,
        "append and cut": cuts_appending,
    },
}


# Calls that an attached process does not have, by why.
ABSENT = {
    "the library makes no device, pipe or other inode by its kind": [
        "mknod", "mkfifo", "device", "no device"],
    "the library opens no file without a name": ["unnamed", "unnamed set-id", "unnamed locking"],
    "the library changes modes by names alone": ["fchmod after"],
    "the library sets times that it is given, and has none that means now": [
        "touch", "touch, not written", "touch directory", "one now", "one now, one set",
        "both now"],
    "the library has no O_NOATIME": [
        "unwatched", "unwatched, not written", "unwatched write", "unwatched directory",
        "unwatched later", "unwatched new", "unwatched, created", "list unwatched"],
    "the flags of an open file stay, in the library": [
        "append no more", "append no more, read", "append later", "append again"],
    "the library has no O_DIRECT": ["append direct"],
    "a file that is open for appending is written at its end alone, in the library": [
        "append, mapped", "append and cut"],
}


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
        if PROGRAM:
            door.at = f"/{self.name}"
        else:
            os.chdir(os.path.join(DOOR, self.name))
            become(*ids)
        try:
            said = call()
            answer = said if isinstance(said, str) else "done"
        except OSError as error:
            answer = errno.errorcode[error.errno]
        if not PROGRAM:
            become(0, 0, [])
        while opened:
            door.close(opened.pop())
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
DOOR = CALLED if PROGRAM else os.path.abspath(CALLED)
absent = sum(ABSENT.values(), []) if PROGRAM else []
assert set(absent) <= {name for calls in RULES.values() for name in calls}
for files, calls in RULES.items():
    tree = Tree(files)
    for caller in CALLED_BY.split("+"):
        ids = CALLERS[caller if IDS == "ids" else "root"]
        if PROGRAM:
            door = Attached(*PROGRAM, CALLED, ids)
        for name, call in calls.items():
            done = "absent" if name in absent else tree.run(call, ids)
            print(f"{name} by {caller}: {done}", flush=True)
        if PROGRAM:
            door.end()
