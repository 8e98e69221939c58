#!/usr/bin/env python3
"""hostile_client_test.py HELPER: clients that break the rules.  Whatever they do, the helper answers an
error or closes the connection, stays within its bounds, never leaves its directory, and ends."""
import errno
import fcntl
import os
import socket
import struct
import sys
import tempfile
import threading
import time

import functions
import protocol as p

helper = sys.argv[1]
top = os.fsencode(tempfile.mkdtemp(prefix="isthmus-hostile-"))
root = os.path.join(top, b"root")
MEMORY_MAX_KB = 120 << 10  # of what may wait to be sent: 64 MiB, and its copies in the allocator


def wait_until(condition, what, seconds=30):
    end = time.monotonic() + seconds * p.PATIENCE
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.005)


def peak_kb(pid):
    try:
        with open(f"/proc/{pid}/status") as status:
            for line in status:
                if line.startswith("VmHWM"):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0  # it has ended


def has_ended(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


class Attack(p.Client):
    """Ends with the check that the helper does."""

    def __init__(self, **more):
        super().__init__([helper], root, **more)
        front = self.helper.pid
        with open(f"/proc/{front}/task/{front}/children") as children:
            self.session = int(children.read().split()[0])

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        peak = peak_kb(self.session)
        self.drop()
        wait_until(lambda: has_ended(self.session), "the session goes on")
        if "-v" in sys.argv:
            print(f"{peak} KiB")
        assert peak < MEMORY_MAX_KB, f"{peak} KiB"

    def raw(self, size, kind, identifier=1, zeros=(0, 0), ack=0, payload=b""):
        self.lane.write(struct.pack("<IBBHII", size, kind, *zeros, identifier, ack) + payload)

    def is_closed(self):
        try:
            while True:
                self.lane.receive()
        except p.Ended:
            return

    def is_alive(self):
        assert self.call(p.STATFS).result == 0

    def fails(self, code, kind, arguments):
        answer = self.wait(self.ask(kind, arguments))
        assert answer.result == -code, f"{answer.result} of {kind}, not {errno.errorcode[code]}"


# ---- Frames ---------------------------------------------------------------------------------


def test_headers_that_nobody_sends():
    for more in ({"size": p.PAYLOAD_MAX + 1, "kind": p.GETATTR}, {"size": 0xFFFFFFFF, "kind": p.PING},
                 {"size": 0, "kind": p.PING, "zeros": (1, 0)}, {"size": 0, "kind": p.PING, "zeros": (0, 1)},
                 {"size": 0, "kind": p.PING, "ack": 77}, {"size": 0, "kind": 0}, {"size": 0, "kind": 5},
                 {"size": 0, "kind": 31}, {"size": 0, "kind": p.CHECK + 1}, {"size": 0, "kind": 255}):
        with Attack() as a:
            a.raw(**more)
            a.is_closed()


def packed(size, said):
    """So many zeros, compressed, that are said to be another number."""
    deflate = p.zlib.compressobj(wbits=-15)
    return p.number(said) + deflate.compress(bytes(size)) + deflate.flush(p.zlib.Z_SYNC_FLUSH)


def test_compressed_frames_that_are_none():
    for payload in (b"", b"\xff" * 20, p.number(5), p.number(5) + b"\3\0", packed(1000, 1001), packed(1000, 999), packed(64 << 20, 1 << 20),
                    packed(2 << 20, 2 << 20), packed(0, (1 << 64) - 1)):
        with Attack() as a:
            a.lane.write(struct.pack("<IBBHII", len(payload), p.WRITE, 1, 0, 1, 0) + payload)
            a.is_closed()


def test_much_in_few_bytes_fills_no_memory():
    with Attack(compression=2) as a:
        if not a.welcome.compression:
            return
        a.call(p.CREATE, p.name(b"zeros") + p.open_flags(os.O_RDWR) + p.numbers(0o600, 1))
        asked = [a.ask(p.WRITE, p.numbers(1, 0) + p.data(bytes(1 << 18)), order=1) for _ in range(2000)]
        for identifier in asked:
            assert a.wait(identifier).result == 1 << 18
        a.is_alive()


def test_frames_of_the_other_side():
    for kind in (p.REPLY, p.CHANGE, p.OUTPUT, p.EXIT, p.INPUT_CREDIT):
        with Attack() as a:
            a.lane.send(kind, 1, bytes(20))
            a.is_closed()


def test_content_for_nothing():
    with Attack() as a:
        for i in range(100):
            a.lane.send(p.DATA, 1 << 20 | i, bytes(1 << 20))
        a.is_alive()


def test_more_writes_than_there_may_be_whose_content_never_comes():
    with Attack() as a:
        a.call(p.CREATE, p.name(b"nothing") + p.open_flags(os.O_RDWR) + p.numbers(0o600, 1))
        for i in range(1500):
            a.ask(p.WRITE_DETACHED, p.numbers(1, 0, 10), order=i % 2)


def test_frames_cut_off():
    with Attack() as a:
        a.raw(1000, p.GETATTR, payload=b"only this")
    with Attack() as a:
        a.lane.write(b"\1\2\3")


def test_callers_that_are_none():
    for prologue in (b"", b"\xff" * 11, p.numbers(1 << 32, 0, 0, 0, 0), p.numbers(0, 0, 0o1000, 0, 0),
                     p.numbers(0, 0, 0, 1025, *range(1025), 0), p.numbers(0, 0, 0, 1024, 1, 2)):
        with Attack() as a:
            a.lane.send(p.STATFS, 1, prologue)
            a.is_closed()


def test_an_id_twice_at_a_time():
    with Attack() as a:
        a.call(p.CREATE, p.name(b"twice") + p.open_flags(os.O_RDWR) + p.numbers(0o600, 1))
        other = os.open(root + b"/twice", os.O_RDWR)
        p_lock = p.number(1) + p.put_lock(p.Lock(p.FLOCK, p.EXCLUSIVE, 0, 0, 0, 0)) + p.numbers(1, 0)
        fcntl.flock(other, fcntl.LOCK_EX)
        for _ in range(2):
            a.lane.send(p.LOCK, 4242, p.put_caller() + p.number(0) + p_lock)
        a.is_closed()
        os.close(other)


def test_malformed_arguments_are_errors():
    with Attack() as a:
        for kind in range(p.GETATTR, p.WATCH + 1):
            for arguments in (b"\xff", b"\xff" * 12, p.number(1 << 62), p.string(b"x") + b"\xff" * 30):
                answer = a.wait(a.ask(kind, arguments))
                assert answer.result in (-errno.EPROTO, -errno.EBADF, -errno.ESRCH), (kind, answer.result)
        a.fails(errno.EPROTO, p.EXEC, p.numbers(1, 0, 0, 0, 0) + p.string(b"") + p.string(b"") + p.number(65536))
        a.is_alive()


def test_answers_to_what_was_never_asked():
    with Attack() as a:
        for kind in (p.CREDIT, p.OUTPUT_CREDIT):
            a.lane.send(kind, 4711, p.number(0xFFFFFFFF))
        for kind in (p.CANCEL, p.KILL, p.INPUT):
            a.lane.send(kind, 4711)
        for number in 0, 4711, 1 << 63:
            a.lane.send(p.UNWATCH, 0, p.object_id((number, number, number)))
        a.is_alive()


def test_what_comes_after_goodbye():
    with Attack(linger=1000) as a:
        a.lane.send(p.BYE)
        try:
            for _ in range(1000):
                a.ask(p.GETATTR, p.target(b"") + p.object_id(p.NO_ID))
            a.is_closed()
        except p.Ended:
            pass


# ---- Ways out of the directory -------------------------------------------------------------------


def requests_with(path):
    """Each request that takes a path."""
    text, name = p.string(path), p.name(path)
    yield p.GETATTR, text + p.numbers(0, 0, 0, 0) + p.object_id(p.NO_ID)
    yield p.READLINK, text + p.numbers(0, 0, 0, 0)
    yield p.READDIR, text + p.numbers(0, 0, 0, 0, 0)
    yield p.SCAN, text + p.numbers(0, 0, 0, 0, 2, 0, 0, 999, 0)
    yield p.MKDIR, name + p.numbers(0o700, 0o600, 78)
    yield p.MKNOD, name + p.numbers(0o100600, 0)
    yield p.SYMLINK, p.string(b"x") + name
    yield p.LINK, p.target(b"file") + name
    yield p.LINK, text + p.numbers(0, 0, 0, 0) + p.name(b"stolen")
    yield p.UNLINK, name + p.object_id(p.NO_ID)
    yield p.RMDIR, name + p.object_id(p.NO_ID)
    yield p.RENAME, name + p.name(b"stolen") + p.number(0) + p.object_id(p.NO_ID)
    yield p.RENAME, p.name(b"file") + name + p.number(0) + p.object_id(p.NO_ID)
    yield p.SETATTR, text + p.numbers(0, 0, 0, 0, 1) + p.put_attributes(p.NO_ATTRIBUTES)
    yield p.GETXATTR, text + p.numbers(0, 0, 0, 0) + p.string(b"user.x") + p.number(10)
    yield p.SETXATTR, text + p.numbers(0, 0, 0, 0) + p.string(b"user.x") + p.number(0) + p.data(b"x")
    yield p.OPEN, text + p.numbers(0, 0, 0, 0) + p.open_flags(os.O_RDWR) + p.numbers(77, 1000)
    yield p.CREATE, name + p.open_flags(os.O_RDWR) + p.numbers(0o600, 77)
    yield p.CREATE_UNNAMED, name + p.open_flags(os.O_RDWR) + p.numbers(0o600, 77)
    yield p.PREPARE, name + p.open_flags(os.O_RDWR) + p.numbers(0o600, 77)
    yield p.FSYNC, p.number(0) + text + p.number(0)
    yield p.EXEC, p.numbers(1, 2, 0, 0, 0) + text + p.string(b"true") + p.numbers(0, 0)


def everything_outside():
    return {os.path.join(d, f): os.lstat(os.path.join(d, f)) for d, ds, fs in os.walk(outside) for f in ds + fs}


def test_paths_that_lead_out():
    with Attack() as a:
        for path in (b"..", b"../outside/secret", b"d/../../outside/secret", b"/etc/passwd", b"/", b"d/.", b"d//d",
                     b"d/", b"./d", b"d/.."):
            for kind, arguments in requests_with(path):
                a.fails(errno.EPROTO, kind, arguments)
        a.fails(errno.EPROTO, p.GETATTR, b"\4a\0bc\0" + p.numbers(0, 0, 0, 0) + p.object_id(p.NO_ID))
        a.is_alive()


def test_symbolic_links_that_lead_out():
    before = everything_outside()
    with Attack() as a:
        for path in (b"absolute/secret", b"upwards/secret", b"absolute/new", b"upwards/new", b"proc/self/root" + outside + b"/new"):
            for kind, arguments in requests_with(path):
                answer = a.wait(a.ask(kind, arguments))
                assert answer.result < 0, (path, kind)
        answer = a.wait(a.ask(p.OPEN, p.target(b"absolute") + p.open_flags(os.O_RDONLY) + p.numbers(78, 1000)))
        assert answer.result < 0
        answer = a.wait(a.ask(p.SCAN, p.target(b"") + p.numbers(2, 0, 0, 4096, 0)))
        assert not [e for e in answer.listing if e.content == b"secret"]
    assert before == everything_outside()


def swap(stop):
    """d is a directory, and a link to another outside, and a directory ..."""
    while not stop.is_set():
        os.rename(root + b"/swapped", root + b"/directory")
        os.rename(root + b"/upwards", root + b"/swapped")
        os.rename(root + b"/swapped", root + b"/upwards")
        os.rename(root + b"/directory", root + b"/swapped")


def test_a_link_swapped_in():
    before = everything_outside()
    stop = threading.Event()
    thread = threading.Thread(target=swap, args=(stop,))
    with Attack() as a:
        thread.start()
        try:
            for i in range(150):
                asked = [a.ask(kind, arguments) for kind, arguments in (
                    (p.OPEN, p.target(b"swapped/secret") + p.open_flags(os.O_RDONLY) + p.numbers(1000 + i, 1000)),
                    (p.CREATE, p.name(b"swapped/new%d" % i) + p.open_flags(os.O_RDWR) + p.numbers(0o600, 5000 + i)),
                    (p.RENAME, p.name(b"swapped/new%d" % i) + p.name(b"swapped/more%d" % i) + p.number(0) + p.object_id(p.NO_ID)),
                    (p.MKDIR, p.name(b"swapped/d%d" % i) + p.numbers(0o700, 0, 0)),
                    (p.UNLINK, p.name(b"swapped/secret") + p.object_id(p.NO_ID)),
                    (p.SETATTR, p.target(b"swapped/secret") + p.number(1) + p.put_attributes(p.NO_ATTRIBUTES)))]
                answers = [a.wait(one) for one in asked]
                assert b"secret" not in answers[0].body.rest()
        finally:
            stop.set()
            thread.join()
    assert before == everything_outside()


def test_handles_of_another_session():
    with Attack() as theirs, Attack() as ours:
        theirs.call(p.CREATE, p.name(b"theirs") + p.open_flags(os.O_RDWR) + p.numbers(0o600, 5))
        ours.fails(errno.EBADF, p.READ, p.numbers(5, 0, 10))
        ours.fails(errno.EBADF, p.CLOSE, p.numbers(5))
        ours.fails(errno.EBADF, p.GETATTR, p.target(handle=5) + p.object_id(p.NO_ID))
        try:
            Attack(resume=theirs, token=bytes(15) + b"\1")
        except p.Refused:
            pass
        else:
            raise AssertionError("a session was adopted")


# ---- Floods ------------------------------------------------------------------------------------------


def flood(attack, kind, arguments, seconds=0.4):
    """Sends without ever reading, until nothing is taken any more."""
    frame = p.put_caller() + p.number(0) + arguments
    end, sent = time.monotonic() + seconds, 0
    fd = attack.lane.out_fd
    while time.monotonic() < end and sent < 100000:
        sent += 1
        raw = struct.pack("<IBBHII", len(frame), kind, 0, 0, sent, 0) + frame
        while raw and time.monotonic() < end:
            try:
                raw = raw[os.write(fd, raw):]
            except BlockingIOError:
                time.sleep(0.002)
            except OSError:
                return


def test_answers_that_are_never_read():
    with open(root + b"/large", "wb") as f:
        f.truncate(1 << 20)
    for kind, arguments in ((p.READ, p.numbers(1, 0, 256 << 10)), (p.READDIR, p.target(b"many") + p.number(0)),
                            (p.GETXATTR, p.target(b"file") + p.string(b"user.big") + p.number(1 << 16)),
                            (p.READ, p.numbers(1, 1 << 20, 256 << 10)), (p.STATFS, b"")):
        with Attack() as a:
            a.call(p.OPEN, p.target(b"large") + p.open_flags(os.O_RDONLY) + p.numbers(1, 0))
            flood(a, kind, arguments)


def test_pings_whose_answers_are_never_read():
    with Attack() as a:
        try:
            end = time.monotonic() + 20
            while time.monotonic() < end:
                try:
                    os.write(a.lane.out_fd, struct.pack("<IBBHII", 0, p.PING, 0, 0, 1, 0) * 256)
                except BlockingIOError:
                    time.sleep(0.002)
            raise AssertionError("they are all kept")
        except BrokenPipeError:
            pass


def execute(attack, process, command, flags=0):
    attack.call(p.EXEC, p.numbers(process, flags, 0, 0, 0) + p.string(b"") + p.string(command) + p.numbers(0, 0))


def test_input_byte_by_byte():
    with Attack() as a:
        execute(a, 1, b"exec sleep 1000")
        before = peak_kb(a.session)
        a.lane.sent += 200000
        a.lane.write(b"".join(struct.pack("<IBBHII", 1, p.INPUT, 0, 0, 1, 0) + b"x" for _ in range(200000)))
        a.is_alive()
        grown = peak_kb(a.session) - before
        assert grown < 4 << 10, f"{grown} KiB for 200,000 bytes"


def test_input_beyond_its_credit():
    with Attack() as a:
        execute(a, 1, b"exec sleep 1000")
        try:
            for _ in range(3):
                a.lane.send(p.INPUT, 1, bytes(256 << 10))
            a.is_closed()
        except p.Ended:
            pass


def test_output_without_end_and_credit_without_end():
    with Attack() as a:
        for i in range(4):
            execute(a, i, b"exec cat /dev/zero", flags=2)
            a.lane.send(p.OUTPUT_CREDIT, i, p.number(0xFFFFFFFF))

        def taken():
            return sum(len(frame.payload) for frame in a.others)

        while taken() < 4 << 20:
            a.receive()
        for _ in range(50):
            a.is_alive()
        # What was sent when the credit came may be sent once more.
        assert taken() - (4 << 20) <= 4 * (1 << 20) + 8 * (40 << 10), taken()


def test_locks_that_all_wait():
    """Threads that serve everybody must not all wait: for a CLOSE that none is left to do, or a lock."""
    with Attack() as a:
        for handle in (1, 2):
            a.call(p.OPEN, p.target(b"file") + p.open_flags(os.O_RDWR) + p.numbers(handle, 0))
        a.call(p.OPEN, p.target(b"large-copy") + p.open_flags(os.O_RDWR) + p.numbers(3, 0))
        # Behind the slow request comes the CLOSE; those that wait for it come before it in turn.
        lock = p.put_lock(p.Lock(p.POSIX, p.EXCLUSIVE, 1, 0, 0, 0))
        for _ in range(30):
            a.call(p.OPEN, p.target(b"file") + p.open_flags(os.O_RDWR) + p.numbers(4, 0))
            asked = [a.ask(p.FSYNC, p.number(3) + p.string(b"") + p.number(0), order=4),
                     a.ask(p.WRITE, p.number(3) + p.number(0) + p.data(bytes(200000)), order=4),
                     a.ask(p.CLOSE, p.number(4), order=4)]
            asked += [a.ask(p.LOCK_TEST, p.number(1) + lock) for _ in range(40)]
            assert all(a.wait(one).result >= 0 for one in asked)
        a.call(p.LOCK, p.number(1) + p.put_lock(p.Lock(p.FLOCK, p.EXCLUSIVE, 0, 0, 0, 0)) + p.numbers(0, 0))
        flock = p.number(2) + p.put_lock(p.Lock(p.FLOCK, p.EXCLUSIVE, 0, 0, 0, 0)) + p.numbers(1, 0)
        for _ in range(600):
            a.ask(p.LOCK, flock)
        a.is_alive()


def test_opens_without_end():
    with Attack() as a:
        asked = [a.ask(p.OPEN, p.target(b"file") + p.open_flags(os.O_RDONLY) + p.numbers(i, 0)) for i in range(1, 900)]
        results = {a.wait(one).result for one in asked}
        assert results <= {0, -errno.EMFILE, -errno.ENFILE}, results
        a.fails(errno.EBADF, p.OPEN, p.target(b"file") + p.open_flags(os.O_RDONLY) + p.numbers(1, 0))
        a.fails(errno.EBADF, p.OPEN, p.target(b"file") + p.open_flags(os.O_RDONLY) + p.numbers(0, 0))
        a.is_alive()


def test_watches_and_ranges_without_end():
    with Attack() as a:
        for _ in range(100):
            a.call(p.WATCH)
        for _ in range(300):
            a.call(p.READDIR, p.target(b"d") + p.number(1))
        a.call(p.OPEN, p.target(b"file") + p.open_flags(os.O_RDWR) + p.numbers(1, 0))
        asked = [a.ask(p.LOCK, p.number(1) + p.put_lock(p.Lock(p.POSIX, p.EXCLUSIVE, i, 2 * i, 1, 0)) + p.numbers(0, 0))
                 for i in range(900)]
        assert all(a.wait(one).result in (0, -errno.ENOLCK) for one in asked)
        a.is_alive()


def test_fronts_that_hand_over_something_else():
    with Attack() as a:
        descriptors = f"/proc/{a.session}/fd"
        a.is_alive()  # its last descriptors are made after the welcome
        before = len(os.listdir(descriptors))
        for count in range(4):
            for _ in range(20):
                front = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                front.connect(b"\0isthmus-" + a.welcome.session.hex().encode())
                socket.send_fds(front, [b"no hello"], [0] * count)
                front.recv(1)
                front.close()
        wait_until(lambda: len(os.listdir(descriptors)) <= before, "descriptors are left")
        a.is_alive()


def prepare():
    global outside
    outside = os.path.join(top, b"outside")
    for name in (b"root", b"outside", b"root/d", b"root/swapped", b"root/many"):
        os.mkdir(os.path.join(top, name))
    with open(outside + b"/secret", "wb") as f:
        f.write(b"secret")
    for name in (b"file", b"large-copy"):
        with open(os.path.join(root, name), "wb") as f:
            f.write(b"content")
    os.setxattr(root + b"/file", b"user.big", bytes(2000))
    for i in range(2000):
        os.symlink("x", root + b"/many/" + b"%0200d" % i)
    os.symlink(outside, root + b"/absolute")
    os.symlink("../outside", root + b"/upwards")
    os.symlink("/proc", root + b"/proc")


functions.run(globals(), top, prepare)
