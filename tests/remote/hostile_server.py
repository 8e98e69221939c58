#!/usr/bin/env python3
"""hostile_server.py: a helper that lies.  Which lie it tells depends on the name asked for; about all other
names it tells the truth.  A lie that ends the connection is told once in a while only: the client comes back."""
import errno
import os
import stat
import sys

import protocol as p
from protocol_server import Fault, Server, main

TYPES = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFSOCK, stat.S_IFCHR, 0, stat.S_IFMT)


class Liar(Server):
    capabilities = p.CAN_EXEC | p.CAN_WATCH

    def __init__(self, in_fd, out_fd):
        super().__init__(in_fd, out_fd)
        self.told = 0
        self.opened = {}

    def lie(self, name):
        """The method that lies about it, or None."""
        return getattr(self, "lie_" + os.path.basename(name).decode(errors="replace").split(".")[0], None)

    def check_identity(self, path, identity):
        pass

    def answer(self, frame):
        """The lies look at the request first."""
        r = p.Reader(frame.payload)
        r.caller(), r.number()
        name = b""
        if frame.type in (p.READ, p.WRITE, p.FSYNC, p.CLOSE, p.FALLOCATE, p.SEEK, p.COPY_RANGE, p.LOCK, p.LOCK_TEST):
            name = self.opened.get(r.number(), b"")
        elif frame.type == p.SYMLINK:
            r.string()
            name = r.string()
        elif frame.type == p.EXEC:
            for _ in range(5):
                r.number()
            r.string()
            name = r.string() or (r.strings() or [b""])[0]
        elif frame.type not in (p.STATFS, p.SIGNAL, p.RESIZE, p.WATCH):
            name = r.string()
        lie = self.lie(name)
        self.identifier, self.request = frame.id, frame
        if frame.type in (p.OPEN, p.CREATE):
            self.note_handle(frame, name)
        if not lie or not lie(frame.type, name):
            super().answer(frame)

    def note_handle(self, frame, name):
        r = p.Reader(frame.payload)
        r.caller(), r.number(), r.string(), r.object_id()
        if frame.type == p.OPEN:
            r.number()
        r.number()
        if frame.type == p.CREATE:
            r.number()
        self.opened[r.number()] = name

    def wrong(self, name, **fields):
        return p.put_attributes(p.attributes_of(os.lstat(self.full(name)))._replace(**fields))

    def watch(self, r):
        r.end()

    def readdir(self, r):
        super().readdir(r)
        return p.number(1)

    # ---- What an object is ------------------------------------------------------------------

    def lie_type(self, kind, name):
        """Another type each time, for the same id."""
        self.told += 1
        mode = TYPES[self.told % len(TYPES)] | 0o777
        if kind in (p.GETATTR, p.SETATTR):
            self.reply(0, self.wrong(name, mode=mode))
        elif kind == p.OPEN:
            self.reply(1, self.wrong(name, mode=mode) + b"content")
        elif kind == p.READLINK:
            self.reply(0, p.string(b"/does/not/exist"))
        else:
            return False
        return True

    def lie_made(self, kind, name):
        """What was made is an object that is known as something else."""
        if kind not in (p.MKDIR, p.MKNOD, p.SYMLINK, p.LINK, p.CREATE):
            return False
        other = b"lies/victims" if kind in (p.CREATE, p.SYMLINK, p.MKNOD) else b"lies/victim"
        identity = p.attributes_of(os.lstat(self.full(other))).id
        mode = {p.MKDIR: stat.S_IFDIR, p.SYMLINK: stat.S_IFLNK, p.MKNOD: stat.S_IFIFO}.get(kind, stat.S_IFREG)
        known = p.attributes_of(os.lstat(self.full(other)))
        # Told as what it should be, with the id of another; or as that other.
        fields = {"id": identity, "mode": mode | 0o700} if name.endswith(b".1") else known._asdict()
        self.reply(0, p.put_attributes(known._replace(**fields)) + (p.number(0) if kind == p.MKDIR else b""))
        return True

    def lie_numbers(self, kind, name):
        if kind != p.GETATTR:
            return False
        self.told += 1
        most = [{"size": 2**63 - 1}, {"size": 2**63}, {"nlink": 0}, {"nlink": 2**32}, {"uid": 2**32 - 1}, {"block_size": 0},
                {"atime": -2**62, "mtime": 2**62}, {"rdev": 2**64 - 1}, {"id": (0, 0, 0)}, {"id": (2**64 - 1,) * 3}]
        self.reply(0, self.wrong(name, **most[self.told % len(most)]))
        return True

    def lie_positions(self, kind, name):
        """The highest of all, one too high, the highest that may be, none."""
        self.told += 1
        position = [2**64 - 1, 2**42, 2**42 - 1, 0][self.told % 4]
        if kind == p.GETATTR:
            self.lane.send(p.REPLY, self.identifier, p.result(0, position) + self.wrong(name))
        return kind == p.GETATTR

    # ---- How much there is ----------------------------------------------------------------------

    def lie_large(self, kind, name):
        """A terabyte, of which nothing is there."""
        if kind == p.OPEN:
            self.reply(1, self.wrong(name, size=1 << 40))
        elif kind == p.GETATTR:
            self.reply(0, self.wrong(name, size=1 << 40))
        elif kind == p.READ:
            self.reply(0, b"")
        else:
            return False
        return True

    def lie_inline(self, kind, name):
        if kind == p.OPEN:
            self.reply(1, self.wrong(name) + bytes(300000))
        return kind == p.OPEN

    def lie_counts(self, kind, name):
        """Counts that are none, or not of what follows."""
        self.told += 1
        counts = [(-2**63, b""), (-10001, b""), (-1 << 32, b"x"), (2**63 - 1, b"x"), (100000, b"few"), (3, b"many more")]
        if kind in (p.READ, p.WRITE, p.SEEK, p.GETXATTR, p.LISTXATTR, p.COPY_RANGE, p.SETATTR, p.FSYNC, p.CLOSE, p.LOCK):
            self.reply(*counts[self.told % len(counts)])
            return True
        if kind == p.OPEN:
            self.reply(0, self.wrong(name, size=1 << 20))
            return True
        return False

    def lie_nothing(self, kind, name):
        """Each write takes nothing; each read of a file that is long gives nothing."""
        if kind in (p.READ, p.WRITE, p.COPY_RANGE):
            self.reply(0, b"")
            return True
        return False

    def lie_short(self, kind, name):
        """One byte for each read."""
        if kind == p.READ:
            self.reply(1, b"x")
        elif kind == p.OPEN:
            self.reply(0, self.wrong(name, size=300000))
        return kind in (p.READ, p.OPEN)

    # ---- Listings ---------------------------------------------------------------------------------

    def tell(self, entries):
        for payload in p.put_listing(entries):
            self.lane.send(p.DATA, self.identifier, payload)

    def entry(self, path, mode=stat.S_IFREG | 0o644, inode=None, **more):
        attributes = p.NO_ATTRIBUTES._replace(id=(77, inode or abs(hash(path)) % 2**48 + 2, 0), mode=mode, nlink=1)
        return p.Entry(path, more.get("watched", 0), more.get("complete", 0), attributes, more.get("target"), more.get("content"), 1)

    def listing(self, kind, entries):
        if kind not in (p.READDIR, p.SCAN):
            return False
        itself = [self.entry(b"", stat.S_IFDIR | 0o755, complete=1, watched=1)] if kind == p.SCAN else []
        self.tell(itself + list(entries))
        self.reply(0, p.number(1) if kind == p.READDIR else b"")
        return True

    def lie_slashes(self, kind, name):
        return self.listing(kind, [self.entry(b"x/y"), self.entry(b"/etc/passwd"), self.entry(b"a//b")])

    def lie_upwards(self, kind, name):
        evil = [b"..", b"../evil", b"../../evil", b".", b"./evil", b""]
        return self.listing(kind, [self.entry(path, content=b"evil") for path in evil])

    def lie_outside(self, kind, name):
        """Links that lead out, and entries below them."""
        link = stat.S_IFLNK | 0o777
        return self.listing(kind, [self.entry(b"link", link, target=b"/"), self.entry(b"link/evil", content=b"evil"),
                                   self.entry(b"up", link, target=b"../" * 50), self.entry(b"nul", link, target=b"")])

    def lie_twice(self, kind, name):
        return self.listing(kind, [self.entry(b"same", inode=5, content=b"%d" % i) for i in range(5000)])

    def lie_oneself(self, kind, name):
        """Everything has the id of the directory itself, and is a directory."""
        inode = os.lstat(self.full(name)).st_ino
        return self.listing(kind, [self.entry(b"d%d" % i, stat.S_IFDIR | 0o755, inode=inode) for i in range(300)])

    def lie_orphans(self, kind, name):
        return self.listing(kind, [self.entry(b"a/b/c/d%d" % i, content=b"x" * 100) for i in range(5000)])

    def lie_names(self, kind, name):
        return self.listing(kind, [self.entry(b"n" * 256), self.entry(b"n" * 100000), self.entry(b"\n\xff\x1b")])

    def lie_long(self, kind, name):
        """Each entry costs a few bytes here, and there the length of its path."""
        if kind not in (p.READDIR, p.SCAN):
            return False
        path = b"/".join([b"d" * 200] * 2000) + b"/"
        attributes = p.put_attributes(self.entry(b"").attributes)
        raw = p.put_entry(b"", 0, self.entry(path + b"x"))
        self.lane.send(p.DATA, self.identifier, raw + b"".join(
            p.numbers(0, len(path)) + p.string(b"%d" % i) + attributes for i in range(10000)))
        self.reply(0, p.number(1) if kind == p.READDIR else b"")
        return True

    def lie_broken(self, kind, name):
        if kind in (p.READDIR, p.SCAN):
            self.lane.send(p.DATA, self.identifier, b"\x10\xff\xff")
            self.reply(0, b"\1")
            return True
        return False

    def lie_endless(self, kind, name):
        if kind not in (p.READDIR, p.SCAN):
            return False
        names = p.put_entry(b"", 0, self.entry(b"0" * 200))
        for i in range(1, 100):
            names += p.put_entry(b"%0200d" % (i - 1), 1, self.entry(b"%0200d" % i, inode=i))
        try:
            while True:
                self.lane.send(p.DATA, self.identifier, names)
                if self.lane.pending and self.lane.receive().type in (p.CANCEL, p.BYE):
                    raise Fault(errno.EINTR)
        except OSError:
            self.reply(-errno.EINTR, b"")
        return True

    def lie_dribble(self, kind, name):
        """A listing in frames that have nothing in them, without a look at what comes back."""
        if kind not in (p.READDIR, p.SCAN):
            return False
        empty = p.struct.pack("<IBBHII", 0, p.DATA, 0, 0, self.identifier, self.lane.received)
        try:
            for _ in range(1500):
                self.lane.sent += 1000
                self.lane.write(empty * 1000)
        except p.Ended:
            sys.exit(0)
        return self.listing(kind, [])

    def lie_bottomless(self, kind, name):
        """As much as there is credit for, without end."""
        if kind == p.SCAN:  # which says nothing of what is in it
            itself = self.entry(b"", stat.S_IFDIR | 0o755)
            self.tell([itself._replace(attributes=p.attributes_of(os.lstat(self.full(name))))])
            self.reply(0, b"")
        if kind != p.READDIR:
            return kind == p.SCAN
        one, other = b"0" * 240, b"0" * 239 + b"1"
        again = p.put_entry(one, 1, self.entry(other)) + p.put_entry(other, 1, self.entry(one))
        names = p.put_entry(b"", 0, self.entry(one)) + 1000 * again
        credit = 4 << 20
        try:
            while True:
                self.lane.send(p.DATA, self.identifier, names)
                credit -= 16 + len(names)
                while credit < 0:
                    frame = self.lane.receive()
                    if frame.type in (p.CANCEL, p.BYE):
                        raise Fault(errno.EINTR)
                    credit += p.Reader(frame.payload).number() if frame.type == p.CREDIT else 0
        except OSError:
            self.reply(-errno.EINTR, b"")
        return True

    # ---- Frames -------------------------------------------------------------------------------------

    def lie_unasked(self, kind, name):
        """Answers to requests that were never made, and to those that were answered."""
        for identifier in (0, 77777, self.identifier + 4096, 0xFFFFFFFF):
            self.lane.send(p.REPLY, identifier, p.result(0, 1) + bytes(100))
            self.lane.send(p.DATA, identifier, bytes(100))
            self.lane.send(p.OUTPUT, identifier, b"\0nobody's")
            self.lane.send(p.EXIT, identifier, p.numbers(0, 0, 0))
            self.lane.send(p.INPUT_CREDIT, identifier, p.number(1))
        self.lane.send(p.PONG, 9)
        return False

    def lie_events(self, kind, name):
        """Changes of what is not there, of the root, of nothing at all."""
        there = p.number(1) + self.wrong(name, mode=stat.S_IFDIR) + p.number(1) + bytes(16)
        now = p.object_id((77, 1, 0)) + p.number(p.draw())
        for path in (b"", b"no/such/path", b"x" * 5000, name, name + b"/below", b"lies", b".isthmus/status"):
            for which in (0, 1, 2):
                self.lane.send(p.CHANGE, 0, p.number(which) + p.string(path) + now + p.number(0))
                self.lane.send(p.CHANGE, 0, p.number(which) + p.string(path) + now + there)
        return False

    def lie_hash(self, kind, name):
        """The file that was written is told to hold something else."""
        if kind == p.WRITE:
            super().answer(self.request)
            self.lane.send(p.CHANGE, 0, p.number(0) + p.string(name) + p.object_id(p.NO_ID) + p.numbers(p.draw(), 1)
                           + self.wrong(name) + p.number(1) + b"\5" * 16)
            return True
        return False

    def ends(self, kind, raw):
        if kind in (p.GETATTR, p.OPEN, p.READDIR, p.SCAN):
            self.lane.write(raw)
            sys.exit(0)
        return False

    def lie_cut(self, kind, name):
        return self.ends(kind, b"\x10\0\0\0\x08\0\0\0\1\0\0\0")

    def lie_oversized(self, kind, name):
        return self.ends(kind, b"\xff\xff\xff\xff\x08\0\0\0\1\0\0\0\0\0\0\0")

    def lie_bomb(self, kind, name):
        """A compressed frame that has far more than it says; before it, many that have what they say."""
        deflate = p.zlib.compressobj(wbits=-15)
        header = p.struct.pack("<BBHII", p.DATA, 1, 0, self.identifier, 0)
        for size in [1 << 20] * (200 if kind in (p.READDIR, p.SCAN) else 0) + [64 << 20]:
            packed = p.number(1 << 20) + deflate.compress(bytes(size)) + deflate.flush(p.zlib.Z_SYNC_FLUSH)
            self.lane.write(p.struct.pack("<I", len(packed)) + header + packed)
        return self.ends(kind, b"")

    def lie_escape(self, kind, name):
        return self.ends(kind, b"\x0f\0\0\0\x0c\0\0\0\0\0\0\0\0\0\0\0" + p.number(0) + p.string(b"../../evil") + p.numbers(1, 0))

    def lie_gone(self, kind, name):
        """The session ends with each request, and is never had back."""
        return self.ends(kind, b"")

    # ---- Commands -------------------------------------------------------------------------------------

    def process_of(self):
        r = p.Reader(self.request.payload)
        r.caller(), r.number()
        return r.number()

    def lie_flood(self, kind, name):
        """Output beyond all credit."""
        if kind != p.EXEC:
            return False
        self.reply(0, b"")
        try:
            for _ in range(400):
                self.lane.send(p.OUTPUT, self.process_of(), bytes(100000))
            self.lane.send(p.EXIT, self.process_of(), p.signed(3) + p.numbers(0, 0))
        except p.Ended:
            sys.exit(0)
        return True

    def lie_trickle(self, kind, name):
        """Output in frames of one byte, each from the other stream than the one before."""
        if kind != p.EXEC:
            return False
        with open(self.full(b"trickling"), "w") as file:
            file.write(str(os.getpid()))
        self.reply(0, b"")
        pair = b"".join(p.struct.pack("<IBBHII", 2, p.OUTPUT, 0, 0, self.process_of(), self.lane.received) + which + b"x"
                        for which in (b"\0", b"\1"))
        try:
            for _ in range(500):
                self.lane.sent += 2000
                self.lane.write(pair * 1000)
            self.lane.send(p.EXIT, self.process_of(), p.signed(3) + p.numbers(0, 0))
        except p.Ended:
            sys.exit(0)
        open(self.full(b"trickled"), "w").close()
        return True

    def lie_exits(self, kind, name):
        if kind != p.EXEC:
            return False
        self.lane.send(p.EXIT, self.process_of(), p.signed(-2**62) + p.numbers(64, 0))
        self.reply(0, b"")
        return True


if __name__ == "__main__":
    main(Liar)
