"""Random calls at two doors of one file, and the same calls on a file of another file system.

sequences.py OTHER X Y FIRST COUNT [WAIT]: OTHER is a directory of ext4, X and Y are one directory.
Each sequence, from number FIRST on, does the same at both and compares what each call gives. What a
mapping or sendfile shows, and where a copy ends, may be as old as WAIT seconds. Ends with 1 if something differs.
"""

import ctypes
import mmap
import os
import random
import sys
import time

OTHER, X, Y = sys.argv[1:4]
FIRST, COUNT = int(sys.argv[4]), int(sys.argv[5])
WAIT = float(sys.argv[6]) if len(sys.argv) > 6 else 0
PAGE = 4096
LONGEST = 6 * PAGE
CALLS = 40
LIBC = ctypes.CDLL(None, use_errno=True)
KEEP_SIZE, PUNCH, ZERO = 1, 2, 0x10


class Door:
    """A file as one door has it: descriptors that stay open, and a mapping of the most it can be."""

    def __init__(self, path):
        self.path = path
        self.fd = os.open(path, os.O_RDWR)
        self.append = os.open(path, os.O_WRONLY | os.O_APPEND)
        self.direct = os.open(path, os.O_RDWR | os.O_DIRECT)
        self.memory = mmap.mmap(-1, LONGEST)

    def close(self):
        for fd in (self.fd, self.append, self.direct):
            os.close(fd)

    def write(self, at, data):
        return os.pwrite(self.fd, data, at)

    def write_end(self, data):
        return os.write(self.append, data)

    def write_direct(self, page, data):
        self.memory[:len(data)] = data
        return os.pwritev(self.direct, [memoryview(self.memory)[:len(data)]], page * PAGE)

    def read(self, at, size):
        return os.pread(self.fd, size, at)

    def read_direct(self, page):
        got = os.preadv(self.direct, [memoryview(self.memory)[:PAGE]], page * PAGE)
        return bytes(self.memory[:got])

    def size(self):
        return os.fstat(self.fd).st_size

    def store(self, at, data):
        """Stores to a mapping, as far as the file goes, and has it written back."""
        size = self.size()
        data = data[:max(0, size - at)]
        if data:
            with mmap.mmap(self.fd, size) as mapped:
                mapped[at:at + len(data)] = data
                mapped.flush()
        return len(data)

    def load(self, at, size):
        end = self.size()
        if end == 0:
            return b""
        with mmap.mmap(self.fd, end) as mapped:
            return mapped[at:at + size]

    def send(self, at, size):
        # the kernel learns that a file is longer now when it is asked (docs/SEMANTICS.md)
        self.size()
        out = os.memfd_create("out")
        try:
            sent = 0
            while sent < size:
                more = os.sendfile(out, self.fd, at + sent, size - sent)
                if more == 0:
                    break
                sent += more
            return os.pread(out, size, 0)
        finally:
            os.close(out)

    def cut(self, size):
        os.ftruncate(self.fd, size)

    def fallocate(self, mode, at, size):
        if LIBC.fallocate(self.fd, mode, ctypes.c_long(at), ctypes.c_long(size)):
            return os.strerror(ctypes.get_errno())
        return "done"

    def copy(self, at, to, size):
        self.size()
        return os.copy_file_range(self.fd, self.fd, size, at, to)

    def sync(self):
        os.fsync(self.fd)


def a_call(rng, number):
    """A name and arguments; whether what it gives may be late."""
    at, size = rng.randrange(LONGEST - PAGE), rng.choice([1, 7, 100, PAGE, 5000])
    data = bytes([1 + number % 255]) * size
    page = rng.randrange(LONGEST // PAGE - 1)
    calls = [
        ("write", (at, data), False),
        ("write_end", (data[:300],), False),
        ("write_direct", (page, data[:1] * PAGE), False),
        ("read", (at, size), False),
        ("read_direct", (page,), False),
        ("size", (), False),
        ("store", (at, data), False),
        ("store", (at, data[:3]), False),
        ("load", (at, size), True),
        ("load", (0, LONGEST), True),
        ("send", (at, size), True),
        ("send", (0, LONGEST), True),
        ("cut", (at,), False),
        ("fallocate", (PUNCH | KEEP_SIZE, at, size), False),
        ("fallocate", (ZERO, at, size), False),
        ("fallocate", (0, at, size), False),
        ("sync", (), False),
    ]
    half = LONGEST // 2
    calls.append(("copy", (at % half, half + at % (half - PAGE), min(size, PAGE)), True))
    return rng.choice(calls)


def call(door, name, args):
    try:
        return getattr(door, name)(*args)
    except OSError as error:
        return os.strerror(error.errno)


def run(number):
    """One sequence; what differed."""
    rng = random.Random(number)
    name = f"sequence-{number}"
    for place in (OTHER, X):
        with open(f"{place}/{name}", "wb") as file:
            file.write(b"a" * rng.choice([0, 100, PAGE, 3 * PAGE]))
        rng = random.Random(number)
    others = [Door(f"{OTHER}/{name}") for _ in range(2)]
    ours = [Door(f"{place}/{name}") for place in (X, Y)]
    said = []
    for turn in range(CALLS):
        door = rng.randrange(2)
        what, args, may_be_late = a_call(rng, turn)
        wanted, got = call(others[door], what, args), call(ours[door], what, args)
        late = time.monotonic() + (WAIT if may_be_late else 0)
        while got != wanted and time.monotonic() < late:
            time.sleep(0.005)
            got = call(ours[door], what, args)
        said.append((what, "XY"[door], [it if isinstance(it, int) else len(it) for it in args]))
        if got != wanted:
            at = next((at for at, (one, two) in enumerate(zip(wanted, got)) if one != two), None) \
                if isinstance(wanted, bytes) and isinstance(got, bytes) else None
            short = [it if not isinstance(it, bytes) else f"{len(it)} bytes" for it in (wanted, got)]
            print(f"sequence {number}, call {turn}: {short[1]} for {short[0]}, differ at {at}")
            print("\n".join(f"  {it}" for it in said), flush=True)
            break
    else:
        said = None
    for one in others + ours:
        one.close()
    os.unlink(f"{OTHER}/{name}"), os.unlink(f"{X}/{name}")
    return said


differ = sum(run(number) is not None for number in range(FIRST, FIRST + COUNT))
print(f"{differ} of {COUNT} sequences differ")
sys.exit(bool(differ))
