"""Changes at one door of a file that another door has mapped, or sends by its pages.

two_doors.py X Y [WAIT]: two directories that are the same one. What a mapping shows may be as old as
WAIT seconds after a change has returned; 0: it is as it is. Prints each check, and ends with 1 if one
fails.
"""

import ctypes
import mmap
import os
import struct
import subprocess
import sys
import threading
import time

X, Y = sys.argv[1:3]
WAIT = float(sys.argv[3]) if len(sys.argv) > 3 else 0
PAGE, SECTOR = 4096, 512
LIBC = ctypes.CDLL(None, use_errno=True)
# fallocate(2)
KEEP_SIZE, PUNCH, ZERO = 1, 2, 0x10
# x86_64 and the others number libaio's calls differently
AIO = {"x86_64": (206, 209, 208), "aarch64": (0, 2, 4)}[os.uname().machine]
failed = []
made = 0


def soon(is_right):
    """Whether this is right, in the time that it may take."""
    late = time.monotonic() + WAIT
    right = is_right()
    while not right and time.monotonic() < late:
        time.sleep(0.001)
        right = is_right()
    return right


def check(what, is_right):
    """Tells what was found."""
    right = soon(is_right)
    print(("right" if right else "WRONG"), what, flush=True)
    if not right:
        failed.append(what)


def new(size=2 * PAGE):
    """A file of `a`s, open at both doors; its name."""
    global made
    made += 1
    name = f"file-{made}"
    fx = os.open(f"{X}/{name}", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(fx, b"a" * size)
    return name, fx, os.open(f"{Y}/{name}", os.O_RDWR)


def touched(fd, size=2 * PAGE):
    """A mapping whose pages are there."""
    mapped = mmap.mmap(fd, size)
    for page in range(0, size, PAGE):
        mapped[page]
    return mapped


def aligned(byte, size=PAGE):
    memory = mmap.mmap(-1, size)
    memory[:] = byte * size
    return memory


def fallocate(fd, mode, offset, size):
    result = LIBC.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(size))
    assert result == 0, os.strerror(ctypes.get_errno())


def aio_write(fd, memory, offset):
    """Begins a write by libaio, and waits until it has ended."""
    setup, submit, events = AIO
    context = ctypes.c_ulong(0)
    assert LIBC.syscall(setup, 8, ctypes.byref(context)) == 0
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    # struct iocb: data, key, flags, opcode (1: pwrite), priority, descriptor, buffer, length, offset
    words = struct.pack("QIIHhIQQqQII", 0, 0, 0, 1, 0, fd, address, len(memory), offset, 0, 0, 0)
    block = ctypes.create_string_buffer(words, 64)
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(block))
    assert LIBC.syscall(submit, context, ctypes.c_long(1), pointers) == 1
    event = ctypes.create_string_buffer(32)
    assert LIBC.syscall(events, context, ctypes.c_long(1), ctypes.c_long(1), event, None) == 1
    assert struct.unpack("q", event.raw[16:24])[0] == len(memory)
    LIBC.syscall(setup + 1, context)


def sector(at):
    """Of the bytes around this place, changed there."""
    memory = aligned(b"a", SECTOR)
    memory[at % SECTOR:at % SECTOR + 5] = b"OTHER"
    return memory


def by_write(name, fx, at):
    os.pwrite(fx, b"OTHER", at)


def by_direct(name, fx, at):
    fd = os.open(f"{X}/{name}", os.O_WRONLY | os.O_DIRECT)
    os.pwritev(fd, [sector(at)], at // SECTOR * SECTOR)
    os.close(fd)


def by_aio(name, fx, at):
    fd = os.open(f"{X}/{name}", os.O_WRONLY | os.O_DIRECT)
    aio_write(fd, sector(at), at // SECTOR * SECTOR)
    os.close(fd)


def by_copy(name, fx, at):
    source = os.open(f"{X}/{name}-source", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(source, b"OTHER")
    assert os.copy_file_range(source, fx, 5, 0, at) == 5
    os.close(source)


def by_mapping(name, fx, at):
    with mmap.mmap(fx, 2 * PAGE) as mapped:
        mapped[at:at + 5] = b"OTHER"
        mapped.flush()


def by_append(name, fx, at):
    os.ftruncate(fx, at)
    fd = os.open(f"{X}/{name}", os.O_RDWR | os.O_APPEND)
    os.write(fd, b"OTHER")
    os.close(fd)
    os.ftruncate(fx, 2 * PAGE)


def by_punch(name, fx, at):
    fallocate(fx, PUNCH | KEEP_SIZE, at, 5)


def by_zero(name, fx, at):
    fallocate(fx, ZERO, at, 5)


def by_cut(name, fx, at):
    os.ftruncate(fx, at)
    os.ftruncate(fx, 2 * PAGE)


WAYS = [by_write, by_direct, by_aio, by_copy, by_mapping, by_append, by_punch, by_zero, by_cut]
ZEROS = {by_punch, by_zero, by_cut}


def changes_stay():
    """A change of some bytes stays when others of the same page are stored to, before or after."""
    at = PAGE + 904
    for way in WAYS:
        # what ends behind the change is taken away with it
        store_at = PAGE
        for when in ["after", "before"]:
            name, fx, fy = new()
            mapped = touched(fy)
            if when == "before":
                mapped[store_at] = ord("B")
            way(name, fx, at)
            os.fsync(fx)
            wanted = bytes(5) if way in ZEROS else b"OTHER"
            what = f"{way.__name__}, a store {when}"
            check(f"{what}: the mapping shows it", lambda: mapped[at:at + 5] == wanted)
            if when == "after":
                mapped[store_at] = ord("B")
            mapped.flush()
            for door, fd in [("X", fx), ("Y", fy)]:
                check(f"{what}: it is there at {door}", lambda: os.pread(fd, 5, at) == wanted)
                check(f"{what}: so is the store", lambda: os.pread(fd, 1, store_at) == b"B")
                check(f"{what}: the file is as long", lambda: os.fstat(fd).st_size == 2 * PAGE)
            mapped.close()
            os.close(fx), os.close(fy)


def storing_beside():
    """No store, and no write, is lost where both go on in one page."""
    name, fx, fy = new()
    mapped, ends = touched(fy), threading.Event()
    last = 0

    def store():
        nonlocal last
        while not ends.is_set():
            last = (last + 1) % 250
            mapped[PAGE + 1] = last

    def sync():
        while not ends.is_set():
            mapped.flush()

    threads = [threading.Thread(target=it) for it in (store, sync)]
    for thread in threads:
        thread.start()
    lost = 0
    for turn in range(150):
        wanted = b"%05d" % turn
        os.pwrite(fx, wanted, PAGE + 904)
        lost += os.pread(fx, 5, PAGE + 904) != wanted
        time.sleep(0.001)
        lost += os.pread(fx, 5, PAGE + 904) != wanted
    ends.set()
    for thread in threads:
        thread.join()
    mapped.flush()
    check(f"writes beside stores: {lost} of 150 lost", lambda: lost == 0)
    check("the last store is there", lambda: os.pread(fx, 1, PAGE + 1)[0] == last)
    os.close(fx), os.close(fy)


def both_store():
    """Two mappings at two doors, each with a byte of its own in one page."""
    name, fx, fy = new()
    mx, my = touched(fx), touched(fy)
    lost = 0
    for turn in range(100):
        mx[10], my[20] = turn, turn + 1
        mx.flush(), my.flush()
        lost += os.pread(fx, 1, 10)[0] != turn
        lost += os.pread(fx, 1, 20)[0] != turn + 1
    check(f"both store: {lost} of 200 lost", lambda: lost == 0)
    os.close(fx), os.close(fy)


def copies_beside_stores():
    """Nothing is lost where stores and copies go on in one page, each to bytes of its own."""
    name, fx, fy = new()
    mapped, ends = touched(fy), threading.Event()
    copied = lost_copies = lost_stores = 0

    def copy():
        nonlocal copied, lost_copies
        source = os.open(f"{X}/{name}-source", os.O_RDWR | os.O_CREAT, 0o600)
        while not ends.is_set():
            copied += 1
            wanted = struct.pack("I", copied) * 128
            os.pwrite(source, wanted, 0)
            # from the beginning of a page, and from its middle
            at = PAGE + copied % 2 * 1024
            assert os.copy_file_range(source, fx, SECTOR, 0, at) == SECTOR
            lost_copies += os.pread(fx, SECTOR, at) != wanted
        os.close(source)

    copier = threading.Thread(target=copy)
    copier.start()
    for turn in range(300):
        wanted = struct.pack("Q", turn + 1)
        mapped[PAGE + 2048:PAGE + 2056] = wanted
        mapped.flush()
        lost_stores += os.pread(fy, 8, PAGE + 2048) != wanted
    ends.set()
    copier.join()
    check(f"stores beside copies: {lost_stores} of 300 lost", lambda: lost_stores == 0)
    check(f"copies beside stores: {lost_copies} of {copied} lost", lambda: lost_copies == 0)
    os.close(fx), os.close(fy)


def sizes_are_learned():
    """What a file grew by is there for who has asked how long it is."""
    short = 0
    for turn in range(40):
        name, fx, fy = new(6 * PAGE)
        mapped = touched(fy, 6 * PAGE)
        size = 8 * PAGE + 232
        fallocate(fx, 0, 0, size)
        check(f"grown by fallocate ({turn})", lambda: os.fstat(fy).st_size == size)
        time.sleep(0.02)
        reads, writes = os.pipe()
        sent = os.sendfile(writes, fy, 6 * PAGE, size)
        short += sent != size - 6 * PAGE
        os.close(reads), os.close(writes)
        mapped.close()
        os.close(fx), os.close(fy)
    check(f"grown by fallocate: {short} of 40 cut short", lambda: short == 0)


STORE = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
mapped = mmap.mmap(fd, 8192)
mapped[0], mapped[4096]
print(flush=True)
sys.stdin.readline()
mapped[5000] = ord("B")
mapped.flush()
"""


def a_cut_file_stays_cut():
    """A store behind the end of a file that was cut at another door does not let it grow."""
    name, fx, fy = new()
    args = [sys.executable, "-c", STORE, f"{Y}/{name}"]
    child = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    os.ftruncate(fx, PAGE)
    time.sleep(WAIT)
    child.communicate(b"\n")
    check("a store behind the end: SIGBUS", lambda: child.returncode == -7)
    check("it is as long as it was cut", lambda: os.fstat(fx).st_size == PAGE)
    os.ftruncate(fx, 2 * PAGE)
    check("what it grows by is zeros", lambda: os.pread(fx, PAGE, PAGE) == bytes(PAGE))
    os.close(fx), os.close(fy)

    name, fx, fy = new()
    mapped = touched(fy)
    mapped[PAGE + 1] = ord("B")
    os.ftruncate(fx, PAGE)
    mapped.flush()
    check("pages that are written back do not make it longer",
          lambda: os.fstat(fx).st_size == PAGE and os.fstat(fy).st_size == PAGE)
    os.close(fx), os.close(fy)


def sendfile_is_fresh():
    """What sendfile gives is what is there, on a descriptor opened before."""
    name, fx, fy = new()

    def sent():
        out = os.memfd_create("out")
        os.sendfile(out, fy, 0, 4 * PAGE)
        data = os.pread(out, 4 * PAGE, 0)
        os.close(out)
        return data

    stale = 0
    for turn in range(20):
        wanted = b"%08d" % turn * 1024
        sent()
        os.pwrite(fx, wanted, 0)
        stale += not soon(lambda: sent() == wanted)
    check(f"sendfile: {stale} of 20 stale", lambda: stale == 0)
    sent()
    os.ftruncate(fx, 100)
    check("sendfile ends where the file was cut", lambda: len(sent()) == 100)
    os.close(fx), os.close(fy)


def direct_writes_and_pages():
    """Direct writes by libaio of a file that others read by pages, at both doors."""
    name, fx, fy = new(16 * PAGE)
    mx, my = touched(fx, 16 * PAGE), touched(fy, 16 * PAGE)
    direct = os.open(f"{X}/{name}", os.O_WRONLY | os.O_DIRECT)
    ends = threading.Event()

    def load():
        while not ends.is_set():
            for page in range(16):
                mx[page * PAGE], my[page * PAGE]
                os.pread(fy, 10, page * PAGE)

    reader = threading.Thread(target=load)
    reader.start()
    stale = lost = 0
    for turn in range(48):
        page, byte = turn % 16, bytes([turn + 1])
        aio_write(direct, aligned(byte), page * PAGE)
        stale += not soon(lambda: mx[page * PAGE] == turn + 1)
        stale += not soon(lambda: my[page * PAGE] == turn + 1)
        mx[page * PAGE + 1] = 255
        mx.flush()
        lost += os.pread(fx, PAGE, page * PAGE) != byte + b"\xff" + byte * (PAGE - 2)
    ends.set()
    reader.join()
    check(f"direct writes by libaio: {stale} of 96 stale", lambda: stale == 0)
    check(f"direct writes by libaio: {lost} of 48 taken back", lambda: lost == 0)
    os.close(fx), os.close(fy), os.close(direct)


changes_stay()
storing_beside()
both_store()
copies_beside_stores()
sizes_are_learned()
a_cut_file_stays_cut()
sendfile_is_fresh()
direct_writes_and_pages()
print(f"{len(failed)} wrong")
sys.exit(bool(failed))
