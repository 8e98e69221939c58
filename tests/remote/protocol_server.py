#!/usr/bin/env python3
"""protocol_server.py: a helper written from PROTOCOL.md alone.  It serves a directory over stdin and
stdout, one request after the other; no commands, no watching, and a session ends with its connection."""
import collections
import errno
import fcntl
import os
import secrets
import stat
import sys

import protocol as p

DATA_MAX = 4 << 20


class Fault(OSError):
    def __init__(self, code):
        super().__init__(code, os.strerror(code))


def check(done, code):
    if not done:
        raise Fault(code)


class Server:
    """A method for each request: takes the Reader of the arguments, returns result and payload."""

    capabilities = 0

    def __init__(self, in_fd, out_fd):
        self.lane = p.Lane(in_fd, out_fd)
        self.handles = {}
        self.waiting = collections.deque()  # requests that came while a listing waited for credit
        self.methods = {number: getattr(self, name.lower()) for name, number in vars(p).items()
                        if isinstance(number, int) and 32 <= number <= p.WATCH and hasattr(self, name.lower())}

    # ---- The connection ---------------------------------------------------------------

    def welcome_client(self):
        nonce, body = self.lane.receive_opening(p.HELLO)
        r = p.Reader(body)
        r.number(), r.raw(32), r.number(), r.number()
        self.root = r.string().rstrip(b"/")
        s = os.stat(self.root or b"/")
        self.lane.write(p.welcome(nonce, secrets.token_bytes(16), secrets.token_bytes(16), self.capabilities,
                                  s.st_uid, s.st_gid))

    def serve(self):
        self.welcome_client()
        try:
            while True:
                frame = self.waiting.popleft() if self.waiting else self.lane.receive(timeout=600)
                if frame.type == p.BYE:
                    return
                if frame.type >= 32:
                    self.answer(frame)
        except p.Ended:
            pass

    def answer(self, frame):
        r = p.Reader(frame.payload)
        self.identifier = frame.id
        self.kind, self.position = frame.type, p.draw()
        try:
            self.uid, self.gid, self.umask, _ = r.caller()
            r.number()  # everything is in order here
            if frame.type not in self.methods:
                raise Fault(errno.EOPNOTSUPP)
            before = self.position
            answer = self.methods[frame.type](r)
            if self.kind in p.CHANGES and self.position == before:
                self.position = p.draw()
            code, payload = answer if isinstance(answer, tuple) else (0, answer or b"")
        except p.Malformed:
            code, payload = -errno.EPROTO, b""
        except OSError as error:
            code, payload = -error.errno, b""
        self.reply(code, payload)

    def reply(self, code, payload):
        if code >= 0 and self.kind in p.CHANGES:
            payload += p.put_facts(None, None, None)
        self.lane.send(p.REPLY, self.identifier, p.result(code, self.position) + payload)

    def send_listing(self, entries):
        credit = DATA_MAX
        for payload in p.put_listing(entries):
            while credit <= 0:
                frame = self.lane.receive()
                if frame.type == p.CANCEL and frame.id == self.identifier:
                    raise Fault(errno.EINTR)
                if frame.type == p.CREDIT and frame.id == self.identifier:
                    credit += p.Reader(frame.payload).number()
                else:
                    self.waiting.append(frame)
            self.lane.send(p.DATA, self.identifier, payload)
            credit -= 16 + len(payload)

    # ---- Objects ------------------------------------------------------------------------

    def full(self, path):
        return self.root + b"/" + path if path else self.root or b"/"

    def find(self, r):
        """A path of this machine, or a descriptor."""
        path, identity, handle = r.target()
        if handle:
            return self.file(handle)
        self.check_identity(self.full(path), identity)
        return self.full(path)

    def check_identity(self, path, identity):
        if identity[1]:
            s = os.lstat(path)
            check((s.st_dev, s.st_ino) == identity[:2], errno.ESTALE)

    def name(self, r):
        path, directory = r.name()
        self.check_directory(self.full(path), directory)
        return self.full(path)

    def check_directory(self, path, identity):
        try:
            self.check_identity(os.path.dirname(path), identity)
        except FileNotFoundError as error:
            raise Fault(errno.ESTALE) from error

    def file(self, handle):
        check(handle in self.handles, errno.EBADF)
        return self.handles[handle]

    def attributes(self, where):
        self.position = p.draw()
        return p.put_attributes(p.attributes_of(os.fstat(where) if isinstance(where, int) else os.lstat(where)))

    def made(self, path):
        if os.geteuid() == 0:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)
        return self.attributes(path)

    def getattr(self, r):
        where, directory = self.find(r), r.object_id()
        if not isinstance(where, int):
            self.check_directory(where, directory)
        return self.attributes(where)

    def entries(self, path):
        for name in os.listdir(path):
            attributes = p.attributes_of(os.lstat(os.path.join(path, name)))
            yield p.Entry(name, 0, 0, attributes, None, None, self.position)

    def readdir(self, r):
        self.send_listing(self.entries(self.find(r)))
        return p.number(0)

    def scan(self, r):
        where = self.find(r)
        _, depth, _, _, _ = (r.number() for _ in range(5))
        found = [p.Entry(b"", 0, 1, p.attributes_of(os.lstat(where)), None, None, self.position)]
        for entry in self.entries(where):
            is_link = stat.S_ISLNK(entry.attributes.mode)
            found.append(entry._replace(target=os.readlink(os.path.join(where, entry.path)) if is_link else None))
        self.send_listing(found)

    def readlink(self, r):
        return p.string(os.readlink(self.find(r)))

    # ---- Names ----------------------------------------------------------------------------

    def mkdir(self, r):
        path, mode, _mode_of_file, _handle = self.name(r), r.number(), r.number(), r.number()
        os.mkdir(path)
        os.chmod(path, mode & ~self.umask)
        return self.made(path) + p.number(0)

    def mknod(self, r):
        path, mode, rdev = self.name(r), r.number(), r.number()
        os.mknod(path, mode & ~self.umask, rdev)
        return self.made(path)

    def symlink(self, r):
        target, path = r.string(), self.name(r)
        os.symlink(target, path)
        return self.made(path)

    def link(self, r):
        where, path = self.find(r), self.name(r)
        if isinstance(where, int):
            os.link(f"/proc/self/fd/{where}", path, follow_symlinks=True)
        else:
            os.link(where, path, follow_symlinks=False)
        return self.attributes(path)

    def unlink(self, r):
        path = self.name(r)
        self.check_identity(path, r.object_id())
        os.unlink(path)

    def rmdir(self, r):
        path = self.name(r)
        self.check_identity(path, r.object_id())
        os.rmdir(path)

    def rename(self, r):
        old, new, flags, identity = self.name(r), self.name(r), r.number(), r.object_id()
        self.check_identity(old, identity)
        check(flags in (0, 1), errno.EINVAL)
        check(not flags or not os.path.lexists(new), errno.EEXIST)
        os.rename(old, new)

    # ---- Attributes -------------------------------------------------------------------------

    def setattr(self, r):
        where, mask, want = self.find(r), r.number(), r.attributes()
        now = os.fstat(where) if isinstance(where, int) else os.lstat(where)
        follow = {} if isinstance(where, int) else {"follow_symlinks": False}
        if mask & 6:
            os.chown(where, want.uid if mask & 2 else -1, want.gid if mask & 4 else -1, **follow)
        if mask & 1:
            os.chmod(where, stat.S_IMODE(want.mode))
        if mask & 8:
            os.truncate(where, want.size)
        if mask & 0xF0:
            times = [want.atime if mask & 16 else now.st_atime_ns, want.mtime if mask & 32 else now.st_mtime_ns]
            clock = p.time.time_ns()
            times = [clock if mask & 64 else times[0], clock if mask & 128 else times[1]]
            os.utime(where, ns=tuple(times), **follow)
        return self.attributes(where)

    def sized(self, value, size):
        check(not size or len(value) <= size, errno.ERANGE)
        return len(value), value if size else b""

    def xattr_place(self, r):
        where = self.find(r)
        return (where, {}) if isinstance(where, int) else (where, {"follow_symlinks": False})

    def getxattr(self, r):
        where, follow = self.xattr_place(r)
        return self.sized(os.getxattr(where, r.string(), **follow), r.number())

    def listxattr(self, r):
        where, follow = self.xattr_place(r)
        return self.sized(b"".join(os.fsencode(n) + b"\0" for n in os.listxattr(where, **follow)), r.number())

    def setxattr(self, r):
        where, follow = self.xattr_place(r)
        name, flags, value = r.string(), r.number(), r.data()
        os.setxattr(where, name, value, flags, **follow)

    def removexattr(self, r):
        where, follow = self.xattr_place(r)
        os.removexattr(where, r.string(), **follow)

    def statfs(self, r):
        s = os.statvfs(self.full(b""))
        return p.numbers(s.f_bsize, s.f_frsize, s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree, s.f_namemax)

    # ---- Files ----------------------------------------------------------------------------------

    def keep(self, handle, fd):
        check(handle not in self.handles, errno.EBADF)
        self.handles[handle] = fd

    def open_object(self, where, flags):
        if isinstance(where, int):
            return os.open(f"/proc/self/fd/{where}", flags)
        return os.open(where, flags | os.O_NOFOLLOW)

    def open(self, r):
        where, flags, handle, inline = self.find(r), r.open_flags(), r.number(), r.number()
        fd = self.open_object(where, flags)
        check(not stat.S_ISDIR(os.fstat(fd).st_mode), errno.EISDIR)
        self.keep(handle, fd)
        if not inline:
            return self.attributes(fd)
        return 1, self.attributes(fd) + os.pread(fd, inline, 0)

    def create(self, r):
        path, flags, mode, handle = self.name(r), r.open_flags(), r.number(), r.number()
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        os.fchmod(fd, mode & ~self.umask & 0o7777)
        self.keep(handle, fd)
        return self.made(path)

    def create_unnamed(self, r):
        path, identity = self.full(r.path()), r.object_id()
        flags, mode, handle = r.open_flags(), r.number(), r.number()
        self.check_identity(path, identity)
        fd = os.open(path, flags & ~os.O_EXCL | os.O_TMPFILE, mode & ~self.umask & 0o7777)
        self.keep(handle, fd)
        if os.geteuid() == 0:
            os.fchown(fd, self.uid, self.gid)
        return self.attributes(fd)

    def read(self, r):
        fd, offset, size = self.file(r.number()), r.number(), r.number()
        content = os.pread(fd, size, offset)
        return len(content), content

    def write(self, r):
        fd, offset, content = self.file(r.number()), r.number(), r.data()
        return os.pwrite(fd, content, offset), b""

    def fsync(self, r):
        handle, path, _ = r.number(), r.path(), r.number()
        if handle:
            os.fsync(self.file(handle))

    def close(self, r):
        handle = r.number()
        os.close(self.file(handle))
        del self.handles[handle]

    def fallocate(self, r):
        fd, mode, offset, length = self.file(r.number()), r.number(), r.number(), r.number()
        check(mode == 0, errno.EOPNOTSUPP)
        os.posix_fallocate(fd, offset, length)

    def seek(self, r):
        fd, offset, hole = self.file(r.number()), r.number(), r.number()
        return os.lseek(fd, offset, os.SEEK_HOLE if hole else os.SEEK_DATA), b""

    def copy_range(self, r):
        source, start, to, offset, size = (r.number() for _ in range(5))
        return os.copy_file_range(self.file(source), self.file(to), min(size, 1 << 20), start, offset), b""

    def lock(self, r):
        """As one thread serves all, nobody can wait."""
        fd, lock, _, size = self.file(r.number()), r.lock(), r.number(), r.number()
        check(lock.kind == p.FLOCK, errno.EOPNOTSUPP)
        fcntl.flock(fd, [fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN][lock.type] | fcntl.LOCK_NB)
        return p.data(os.pread(fd, size, 0) if size else b"") + p.put_facts()


def main(server_class=Server):
    server_class(0, 1).serve()


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        print("isthmus-helper in Python")
    else:
        main()
