"""The doors at which a script makes the calls of its callers: the kernel's calls on a mount, and
the library's in a process that is attached to a service. Both have the same methods.
"""
import ctypes
import os
import struct
import subprocess

libc = ctypes.CDLL(None, use_errno=True)
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
NOW, OMIT = (1 << 30) - 1, (1 << 30) - 2
CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 2, 0, 0, 0)
PUNCH, ZERO, KEEP = 2, 16, 1


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "call")


class Kernel:
    """The kernel's calls, by names from the working directory on."""

    def __getattr__(self, name):
        return getattr(os, name)

    def rename(self, old, new, flags=0):
        checked(libc.renameat2(-100, old.encode(), -100, new.encode(), flags))

    def utime(self, name, accessed, modified, follow_symlinks=True):
        """Sets times by (seconds, ns)."""
        times = (ctypes.c_long * 4)(*accessed, *modified)
        flags = 0 if follow_symlinks else 0x100
        checked(libc.utimensat(-100, name.encode(), times, flags))

    def makedirs(self, name):
        os.mkdir(os.path.dirname(name), 0o755)
        os.mkdir(name, 0o755)

    def pipelined(self, f, *writes):
        for offset, data in writes:
            os.pwrite(f, data, offset)

    def append(self, f, data):
        """Writes at the end, however the file is open."""
        os.pwritev(f, [data], 1, os.RWF_APPEND)

    def fallocate(self, f, mode, length):
        checked(libc.fallocate(f, mode, ctypes.c_long(0), ctypes.c_long(length)))

    def copy(self, source, offset, to, to_offset, length):
        assert os.copy_file_range(source, to, length, offset, to_offset) == length

    def time_of_read(self, name):
        """When the file or directory was read last."""
        return os.stat(name).st_atime

    def commit(self, *stores):
        """Makes stores of (file, offset, bytes): what a transaction on regions is compared with."""
        for f, offset, data in stores:
            os.pwrite(f, data, offset)

    def commit_read(self, *stores):
        """The same of a transaction that has read there before, which moves no access time."""
        self.commit(*stores)


class Attached:
    """The library's calls in a process with these ids (user, group, groups besides), by names from
    the directory `at` of the pool on. `program` makes them, attached at `place`: it is told a call
    by a line of words, and says an answer, or an errno after "-"."""

    FLAGS = {os.O_CREAT: "c", os.O_EXCL: "x", os.O_TRUNC: "t", os.O_APPEND: "a"}

    def __init__(self, program, test, place, ids):
        user, group, groups = ids
        self.at = ""
        self.appending = set()
        self.process = subprocess.Popen(
            [program, "--exact", test, "--nocapture", "--test-threads=1"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/",
            env={"NEARSIDE_ATTACHED_CALLS": place, "HOME": "/nonexistent"},
            user=user, group=group, extra_groups=groups)
        assert self.hear() == "attached"

    def end(self):
        self.process.stdin.close()
        assert self.process.wait() == 0

    def hear(self):
        for line in self.process.stdout:
            if line.startswith(b"@ "):
                return line[2:].decode().rstrip("\n")
        raise EOFError("the attached process has ended")

    def ask(self, *words):
        self.process.stdin.write("\t".join(map(str, words)).encode() + b"\n")
        self.process.stdin.flush()
        answer = self.hear()
        if answer.startswith("-"):
            raise OSError(int(answer[1:]), "call")
        return answer

    def path(self, name):
        return f"{self.at}/{name}"

    def bytes(self, data):
        """Bytes that are alike go as one and their number."""
        count = len(data) if len(set(data)) == 1 else 1
        return f"{data[:len(data) // count].hex()}*{count}"

    def open(self, name, flags, mode=0o666):
        letters = {os.O_RDONLY: "r", os.O_WRONLY: "w", os.O_RDWR: "rw"}[flags & os.O_ACCMODE]
        flags &= ~(os.O_ACCMODE | os.O_CLOEXEC)
        if flags & os.O_APPEND:
            # such a file is written at its end alone
            letters = letters.replace("w", "")
        for flag, letter in self.FLAGS.items():
            if flags & flag == flag:
                letters, flags = letters + letter, flags & ~flag
        assert flags == 0, f"the library has no such flags: {flags:#o}"
        f = int(self.ask("open", self.path(name), letters, mode))
        if "a" in letters:
            self.appending.add(f)
        return f

    def close(self, f):
        self.ask("close", f)

    def read(self, f, length):
        return bytes.fromhex(self.ask("read", f, length))

    def pwrite(self, f, data, offset):
        if f in self.appending:
            return self.append(f, data)
        self.ask("write", f, offset, self.bytes(data))

    def append(self, f, data):
        self.ask("append", f, self.bytes(data))

    def ftruncate(self, f, length):
        self.ask("set-len", f, length)

    def truncate(self, name, length):
        f = self.open(name, os.O_WRONLY)
        try:
            self.ftruncate(f, length)
        finally:
            self.close(f)

    def fallocate(self, f, mode, length):
        self.ask({0: "allocate", PUNCH | KEEP: "punch"}[mode], f, length)

    def copy(self, source, offset, to, to_offset, length):
        assert int(self.ask("copy", source, offset, to, to_offset, length)) == length

    def commit(self, *stores, call="commit"):
        self.ask(call, *(word for f, offset, data in stores
                         for word in (f, offset, self.bytes(data))))

    def commit_read(self, *stores):
        self.commit(*stores, call="commit-read")

    def time_of_read(self, name):
        return int(self.ask("time-of-read", self.path(name)))

    def listdir(self, name):
        return self.ask("list", self.path(name)).split()

    def mkdir(self, name, mode=0o777):
        self.ask("mkdir", self.path(name), mode)

    def makedirs(self, name):
        self.ask("mkdir-all", self.path(name))

    def pipelined(self, f, *writes):
        self.ask("pipelined", f, *(word for offset, data in writes
                                   for word in (offset, self.bytes(data))))

    def symlink(self, target, name):
        self.ask("symlink", target, self.path(name))

    def link(self, old, new):
        self.ask("link", self.path(old), self.path(new))

    def unlink(self, name):
        self.ask("unlink", self.path(name))

    def rmdir(self, name):
        self.ask("rmdir", self.path(name))

    def rename(self, old, new, flags=0):
        self.ask("rename", self.path(old), self.path(new), flags)

    def chmod(self, name, mode):
        self.ask("chmod", self.path(name), mode)

    def chown(self, name, user, group, follow_symlinks=True):
        self.ask("chown", self.path(name), user, group, int(follow_symlinks))

    def utime(self, name, accessed, modified, follow_symlinks=True):
        given = [f"{seconds}.{ns}" for seconds, ns in (accessed, modified)]
        assert f"0.{NOW}" not in given, "the library has no such time"
        given = ("-" if it == f"0.{OMIT}" else it for it in given)
        self.ask("times", self.path(name), *given, int(follow_symlinks))

    def setxattr(self, name, attribute, value):
        self.ask("set-xattr", self.path(name), attribute, self.bytes(value))

    def removexattr(self, name, attribute):
        self.ask("remove-xattr", self.path(name), attribute)

    def getxattr(self, name, attribute):
        return bytes.fromhex(self.ask("xattr", self.path(name), attribute))

    def listxattr(self, name):
        return self.ask("xattrs", self.path(name)).split()


