"""Files whose owners, groups and modes decide what a call may do, and what of them it can change.
"""
import stat

OLD = 1_000_000_000
SETS = ("user.a", "trusted.a", "security.a")


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
    os.symlink("f", "g/l")
    os.chown("g/l", 500, 77, follow_symlinks=False)


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


