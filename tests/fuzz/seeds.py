#!/usr/bin/env python3
"""seeds.py [--check] CORPUS: writes the inputs that fuzzing the two ends of the protocol starts from,
in the form of today's protocol; --check: says whether they are those that are there."""
import os
import stat
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "remote"))
import protocol as p  # noqa: E402


def frame(kind, identifier, payload=b""):
    return p.numbers(kind, identifier) + p.data(payload)


class Session:
    """What a client sends."""

    def __init__(self):
        self.bytes, self.requests = b"", 0

    def ask(self, kind, arguments=b"", order=0):
        self.requests += 1
        self.bytes += frame(kind, self.requests, p.put_caller() + p.number(order) + arguments)
        return self

    def say(self, kind, identifier, payload=b""):
        self.bytes += frame(kind, identifier, payload)
        return self


def open_file(session, name, handle, flags=os.O_RDWR):
    return session.ask(p.OPEN, p.target(name) + p.open_flags(flags) + p.numbers(handle, 4096))


def set_attributes(session, name, mask, **fields):
    return session.ask(p.SETATTR, p.target(name) + p.number(mask)
                       + p.put_attributes(p.NO_ATTRIBUTES._replace(**fields)))


def names():
    s = Session()
    s.ask(p.GETATTR, p.target(b"f") + p.object_id(p.NO_ID)).ask(p.READDIR, p.target() + p.number(1))
    s.ask(p.SCAN, p.target() + p.numbers(7, 2, 100, 4096, 65536)).say(p.CREDIT, 3, p.number(500))
    s.ask(p.SCAN, p.target() + p.numbers(2 | 16 | 32, 0, 0, 4096, 0) + p.search([b"x", b"abc"], 1, b"*.c", [5, 6]))
    s.ask(p.READLINK, p.target(b"l")).ask(p.MKDIR, p.name(b"d/e", (5, 77, 1)) + p.numbers(0o755, 0, 0))
    s.ask(p.MKNOD, p.name(b"d/n") + p.numbers(stat.S_IFIFO | 0o600, 0))
    s.ask(p.SYMLINK, p.string(b"to") + p.name(b"d/s")).ask(p.LINK, p.target(b"f") + p.name(b"d/g"))
    s.ask(p.RENAME, p.name(b"d/g") + p.name(b"h") + p.number(0) + p.object_id(p.NO_ID))
    s.ask(p.UNLINK, p.name(b"h") + p.object_id(p.NO_ID)).ask(p.RMDIR, p.name(b"d/e") + p.object_id(p.NO_ID))
    set_attributes(s, b"f", 1 | 8, mode=0o600, size=3)
    s.ask(p.SETXATTR, p.target(b"f") + p.string(b"user.a") + p.number(0) + p.data(b"v"))
    s.ask(p.GETXATTR, p.target(b"f") + p.string(b"user.a") + p.number(10))
    s.ask(p.LISTXATTR, p.target(b"f") + p.number(100)).ask(p.REMOVEXATTR, p.target(b"f") + p.string(b"user.a"))
    return s.ask(p.STATFS).ask(p.CHECK).say(p.CANCEL, 9).say(p.UNWATCH, 0, p.object_id((5, 77, 1))).bytes


def lock(handle, kind, wait=0):
    return p.number(handle) + p.put_lock(p.Lock(p.POSIX, kind, 1, 0, 5, 0)) + p.numbers(wait, 100)


def files():
    s = open_file(Session(), b"f", 1)
    s.ask(p.CREATE, p.name(b"c") + p.open_flags(os.O_RDWR | os.O_EXCL) + p.numbers(0o644, 2))
    s.ask(p.CREATE_UNNAMED, p.name(b"d") + p.open_flags(os.O_RDWR) + p.numbers(0o600, 3))
    s.ask(p.PREPARE, p.name(b"d") + p.open_flags(os.O_RDWR) + p.numbers(0o600, 4))
    s.ask(p.NAME, p.number(4) + p.name(b"given") + p.open_flags(os.O_RDWR) + p.number(1), order=4)
    for handle in 1, 2, 3:
        s.ask(p.WRITE, p.numbers(handle, 2) + p.data(b"written"), order=handle)
    s.ask(p.READ, p.numbers(1, 0, 100), order=1).ask(p.SEEK, p.numbers(1, 0, 1))
    s.ask(p.FALLOCATE, p.numbers(2, 0, 100, 50)).ask(p.COPY_RANGE, p.numbers(1, 0, 2, 10, 5))
    s.ask(p.LOCK, lock(1, p.EXCLUSIVE)).ask(p.LOCK_TEST, lock(1, p.SHARED)[:-2])
    s.ask(p.LOCK_RELEASE_OWNER, p.numbers(1, 1)).ask(p.LOCK, lock(2, p.EXCLUSIVE, wait=1))
    s.ask(p.LINK, p.target(handle=3) + p.name(b"named")).ask(p.FSYNC, p.number(1) + p.string(b"") + p.number(1))
    return s.ask(p.CLOSE, p.number(1), order=1).ask(p.CLOSE, p.number(2), order=2).bytes


BESIDE = 256  # + type: by the second connection


def contents():
    s = open_file(Session().say(BESIDE + p.DATA, 2, b"early"), b"f", 1)
    s.ask(p.WRITE_DETACHED, p.numbers(1, 0, 5), order=1).ask(p.WRITE_DETACHED, p.numbers(1, 2, 5), order=1)
    s.ask(p.WRITE, p.numbers(1, 4) + p.data(b"behind"), order=1).say(BESIDE + p.DATA, 3, b"later")
    s.say(p.DATA, 3, b"twice").say(BESIDE + p.DATA, 3, b"again")
    s.ask(p.WRITE_DETACHED, p.numbers(1, 0, 4), order=1).say(p.DATA, 5, b"size")
    s.ask(p.WRITE_DETACHED, p.numbers(1, 0, 4), order=1).say(p.CANCEL, 6).ask(p.WRITE_DETACHED, p.numbers(9, 0, 4))
    return s.say(BESIDE + p.READ, 9, p.put_caller() + p.numbers(0, 1, 0, 100)).bytes


def commands():
    s = Session()
    run = p.string(b"") + p.string(b"true") + p.strings([]) + p.strings([b"A=b"])
    s.ask(p.EXEC, p.numbers(1, 0, 0, 0, 0) + run).say(p.INPUT, 1, b"input").say(p.OUTPUT_CREDIT, 1, p.number(64))
    s.ask(p.RESIZE, p.numbers(1, 20, 80)).say(p.INPUT, 1, b"x" * 1500).say(p.INPUT, 1)
    s.ask(p.EXEC, p.numbers(2, 1, 9, 20, 80) + run).ask(p.SIGNAL, p.numbers(2, 15))
    return s.ask(p.EXEC, p.numbers(3, 0, 0, 0, 0) + run).say(p.INPUT, 3, b"lost").say(p.KILL, 3).bytes


def feed():
    s = open_file(Session().ask(p.WATCH), b"f", 1)
    s.ask(p.WRITE, p.numbers(1, 0) + p.data(b"more than it was"), order=1).ask(p.CLOSE, p.number(1), order=1)
    set_attributes(s, b"f", 1, mode=0o640)
    return set_attributes(s, b"d", 1, mode=0o700).bytes


def hostile():
    s = open_file(Session(), b"../../etc/passwd", 1)
    open_file(s, b"/etc/passwd", 1)
    open_file(s, b"f", 1)
    s.ask(p.WRITE, p.numbers(1, (1 << 63) - 1) + p.data(b"far"), order=1).ask(p.READ, p.numbers(1, 1 << 63, 1 << 40))
    s.ask(p.SYMLINK, p.string(b"..") + p.name(b"up")).ask(p.MKDIR, p.name(b"up/out") + p.numbers(0o777, 0, 0))
    return s.ask(p.SCAN, p.target() + p.numbers(*[(1 << 32) - 1] * 5)).bytes


ATTRIBUTES = p.Attributes((5, 77, 1), stat.S_IFREG | 0o644, 1, 0, 0, 0, 7, 8, 4096, 10**9, 2 * 10**9, 3 * 10**9, 0)


def replies():
    answer = p.result(0, 5) + p.put_attributes(ATTRIBUTES) + p.put_facts(ATTRIBUTES, None, ATTRIBUTES)
    return b"".join(frame(p.REPLY, i, answer) for i in range(1, 5)) + frame(p.REPLY, 5, p.result(-2, 5))


def listing():
    entries = [p.Entry(b"d/f", 4, 1, ATTRIBUTES, None, b"content", 6), p.Entry(b"d/l", 0, 1, ATTRIBUTES, b"to", None, 3),
               p.Entry(b"d/m", 0, 0, ATTRIBUTES, None, None, 3, 1)]
    return b"".join(frame(p.DATA, 3, part) for part in p.put_listing(entries)) + frame(p.REPLY, 3, p.result(0, 5))


def changes():
    entry = p.number(0) + p.string(b"d/f") + p.object_id((5, 6, 0)) + p.numbers(6, 1) + p.put_attributes(ATTRIBUTES)
    return (frame(p.CHANGE, 0, entry + p.number(1) + bytes(16)) + frame(p.CHANGE, 0, entry + p.number(0))
            + frame(p.CHANGE, 0, p.number(0) + p.string(b"gone") + p.object_id(p.NO_ID) + p.numbers(6, 0))
            + frame(p.CHANGE, 0, p.number(1) + p.string(b"") + p.object_id(p.NO_ID) + p.numbers(7, 0))
            + frame(p.CHANGE, 0, p.number(2) + p.string(b"d") + p.object_id((5, 6, 0)) + p.numbers(8, 0)))


def outputs():
    return (frame(p.OUTPUT, 1, b"\0out") + frame(p.OUTPUT, 1, b"\1err") + frame(p.INPUT_CREDIT, 1, p.number(5))
            + frame(p.EXIT, 1, p.signed(3) + p.numbers(0, 0)))


SEEDS = {
    "server": {"names": names, "files": files, "commands": commands, "feed": feed, "contents": contents, "hostile": hostile},
    "client": {"replies": replies, "listing": listing, "changes": changes, "outputs": outputs},
}


def main():
    check = sys.argv[1] == "--check"
    corpus = sys.argv[-1]
    for target, seeds in SEEDS.items():
        for name, make in seeds.items():
            path = os.path.join(corpus, target, name)
            if not check:
                with open(path, "wb") as file:
                    file.write(make())
                continue
            with open(path, "rb") as file:
                if file.read() != make():
                    sys.exit(f"{path} is not of today's protocol: run tests/fuzz/seeds.py tests/fuzz/corpus")


if __name__ == "__main__":
    main()
