"""The protocol of backends/remote/PROTOCOL.md, written from that text alone: values, records, the
opening, and frames.  Section numbers are those of the document."""
import collections
import itertools
import os
import secrets
import select
import struct
import subprocess
import time
import zlib

PATIENCE = int(os.environ.get("TEST_PATIENCE", 1))  # how many times longer than usual to wait

# ---- Section 3: values ----------------------------------------------------------------


class Malformed(Exception):
    pass


def number(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def signed(value):
    return number((value << 1) ^ (value >> 63) if value >= 0 else (-value << 1) - 1)


def numbers(*values):
    return b"".join(map(number, values))


def data(value):
    return number(len(value)) + value


def string(value):
    return number(len(value)) + value + b"\0"


def strings(values):
    return number(len(values)) + b"".join(map(string, values))


POSITIONS = itertools.count(1)


def draw():
    """The next position."""
    return next(POSITIONS)


def result(code, position):
    return struct.pack("<qQ", code, position)


def time_of(nanoseconds):
    return signed(nanoseconds // 10**9) + number(nanoseconds % 10**9)


ATTRIBUTES = "id mode nlink uid gid rdev size blocks block_size atime mtime ctime lately"
Attributes = collections.namedtuple("Attributes", ATTRIBUTES)
NO_ID = (0, 0, 0)
Facts = collections.namedtuple("Facts", "parent new_parent object")
NO_ATTRIBUTES = Attributes(NO_ID, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
Lock = collections.namedtuple("Lock", "kind type owner offset length pid")
Entry = collections.namedtuple("Entry", "path since complete attributes target content at lacks lines", defaults=(0, None))
FLOCK, POSIX = 0, 1
SHARED, EXCLUSIVE, NO_LOCK = 0, 1, 2


def object_id(value):
    return numbers(*value)


def put_attributes(a):
    return (object_id(a.id) + numbers(a.mode, a.nlink, a.uid, a.gid, a.rdev, a.size, a.blocks, a.block_size)
            + time_of(a.atime) + time_of(a.mtime) + time_of(a.ctime) + number(a.lately))


def attributes_of(s):
    return Attributes((s.st_dev, s.st_ino, 0), s.st_mode, s.st_nlink, s.st_uid, s.st_gid, s.st_rdev, s.st_size,
                      s.st_blocks, s.st_blksize, s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns, int(time.time_ns() - s.st_ctime_ns < 3 * 10**9))


def wrapped(number):
    """As a signed number of 64 bits."""
    return (number + 2**63) % 2**64 - 2**63


def put_facts(*facts):
    """Attributes or None of the directory, of that of the new name, of the object."""
    told = [fact for fact in facts if fact]
    return number(sum(1 << i for i, fact in enumerate(facts) if fact)) + b"".join(map(put_attributes, told))


def name(path, directory=NO_ID):
    return string(path) + object_id(directory)


def target(path=b"", identity=NO_ID, handle=0):
    """An "object"."""
    return string(path) + object_id(identity) + number(handle)


def search(texts, ignore_case=0, names=b"", known=(), lines=0):
    """What follows the other arguments of SCAN with flag 32."""
    known = sorted(known)
    steps = [number - before for number, before in zip(known, [0] + known)]
    return (numbers(ignore_case, len(texts)) + b"".join(map(data, texts)) + string(names)
            + numbers(lines, len(known), *steps))


def put_lock(lock):
    return numbers(lock.kind, lock.type, lock.owner, lock.offset, lock.length) + signed(lock.pid)


def put_caller(uid=0, gid=0, umask=0o022, groups=()):
    return numbers(uid, gid, umask, len(groups), *groups)


OPEN_BITS = ((4, os.O_APPEND), (8, os.O_TRUNC), (16, os.O_EXCL), (32, os.O_DSYNC), (128, os.O_NOATIME), (256, os.O_DIRECT))
O_SYNC_ALONE = os.O_SYNC & ~os.O_DSYNC


def open_flags(flags):
    bits = flags & os.O_ACCMODE
    for bit, flag in OPEN_BITS:
        bits |= bit if flags & flag else 0
    return number(bits | (64 if flags & O_SYNC_ALONE else 0))


def flags_of_bits(bits):
    flags = bits & 3
    for bit, flag in OPEN_BITS:
        flags |= flag if bits & bit else 0
    return flags | (os.O_SYNC if bits & 64 else 0)


def put_entry(before, at, entry):
    """One entry of a listing; `before` and `at` are of the entry before it in the same frame."""
    shared = len(os.path.commonprefix([before, entry.path]))
    bits = (entry.since > 0) | entry.complete << 1 | (entry.target is not None) << 2 | (entry.content is not None) << 3
    bits |= (entry.at != at) << 4 | entry.lacks << 5 | (entry.lines is not None) << 7
    out = numbers(bits, shared) + string(entry.path[shared:]) + put_attributes(entry.attributes)
    if entry.at != at:
        out += signed(entry.at - at)
    if entry.since:
        out += signed(entry.at - entry.since)
    if entry.target is not None:
        out += string(entry.target)
    return out + b"".join(data(some) for some in (entry.content, entry.lines) if some is not None)


def put_listing(entries, frame_bytes=64 << 10):
    """The payloads of DATA frames."""
    out, before, at = b"", b"", 0
    for entry in entries:
        out += put_entry(before, at, entry)
        before, at = entry.path, entry.at
        if len(out) >= frame_bytes:
            yield out
            out, before, at = b"", b"", 0
    if out:
        yield out


def is_path(path):
    return path == b"" or all(part not in (b"", b".", b"..") for part in path.split(b"/"))


class Reader:
    """Takes values one after the other."""

    def __init__(self, payload):
        self.payload, self.offset = payload, 0

    def left(self):
        return len(self.payload) - self.offset

    def raw(self, size):
        if size > self.left():
            raise Malformed("the message ends early")
        self.offset += size
        return self.payload[self.offset - size:self.offset]

    def rest(self):
        return self.raw(self.left())

    def end(self):
        if self.left():
            raise Malformed("bytes are left over")

    def number(self):
        value = 0
        for shift in range(0, 70, 7):
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 1 << 64:
                    break
                return value
        raise Malformed("a number of more than 64 bits")

    def signed(self):
        value = self.number()
        return value >> 1 ^ -(value & 1)

    def data(self):
        return self.raw(self.number())

    def string(self):
        value = self.raw(self.number() + 1)
        if value.find(b"\0") != len(value) - 1:
            raise Malformed("a string with a NUL inside, or without one")
        return value[:-1]

    def strings(self):
        return [self.string() for _ in range(self.number())]

    def path(self):
        path = self.string()
        if not is_path(path):
            raise Malformed(f"a path {path!r}")
        return path

    def result(self):
        return struct.unpack("<qQ", self.raw(16))

    def object_id(self):
        return self.number(), self.number(), self.number()

    def name(self):
        return self.path(), self.object_id()

    def time(self):
        seconds, nanoseconds = self.signed(), self.number()
        return seconds * 10**9 + nanoseconds

    def attributes(self):
        fields = [self.object_id()] + [self.number() for _ in range(8)] + [self.time() for _ in range(3)]
        return Attributes(*fields, self.number())

    def packed(self, a):
        bits, inode, size = self.number(), a.id[1] + self.signed(), self.number()
        mtime = wrapped(a.mtime + self.signed())
        atime, ctime = (wrapped(mtime + self.signed()) if bits & bit else mtime for bit in (1, 2))
        blocks = self.number() if bits & 4 else (size + 4095) // 4096 * 8
        mode = self.number() if bits & 8 else a.mode
        nlink = self.number() if bits & 16 else a.nlink
        uid, gid = (self.number(), self.number()) if bits & 32 else (a.uid, a.gid)
        generation = ((ctime ^ mode & 0o170000) + self.signed()) % 2**64 if bits & 64 else a.id[2]
        other = a.id[0], a.rdev, a.block_size, a.lately
        device, rdev, block_size, lately = [self.number() for _ in other] if bits & 128 else other
        return Attributes((device, inode, generation), mode, nlink, uid, gid, rdev, size, blocks, block_size, atime, mtime, ctime, lately)

    def facts(self):
        told = self.number()
        told_of = [self.attributes() if told >> i & 1 else None for i in range(3)]
        self.little_room = bool(told & 8)
        return Facts(*told_of)

    def target(self):
        return self.path(), self.object_id(), self.number()

    def open_flags(self):
        return flags_of_bits(self.number())

    def lock(self):
        return Lock(*[self.number() for _ in range(5)], self.signed())

    def caller(self):
        uid, gid, umask, count = (self.number() for _ in range(4))
        return uid, gid, umask, [self.number() for _ in range(count)]

    def listing(self):
        before, at, attributes = b"", 0, Attributes((0, 0, 0), *[0] * 12)
        while self.left():
            bits, shared = self.number(), self.number()
            if shared > len(before):
                raise Malformed("an entry shares more than there is")
            before = before[:shared] + self.string()
            attributes = self.packed(attributes) if bits & 64 else self.attributes()
            at += self.signed() if bits & 16 else 0
            since = at - self.signed() if bits & 1 else 0
            link = self.string() if bits & 4 else None
            content = self.data() if bits & 8 else None
            lines = self.data() if bits & 128 else None
            yield Entry(before, since, bits >> 1 & 1, attributes, link, content, at, bits >> 5 & 1, lines)


# ---- Section 2: the opening -------------------------------------------------------------

HELLO, WELCOME = b"\xffisthmC\x01", b"\xffisthmS\x01"
CAN_EXEC, CAN_WATCH, READ_ONLY, CAN_CHECK, CAN_SEARCH, CAN_READ_FIRST, CAN_DETACH = 1, 2, 8, 32, 64, 128, 512
VERSION = 6
Welcome = collections.namedtuple("Welcome", "version error reason resumed session token received capabilities uid gid channels identity compression")


def opening(magic, nonce, body):
    return magic + nonce + struct.pack("<I", len(body)) + body


def hello(root, nonce=None, session=bytes(16), token=bytes(16), received=0, linger=0, version=VERSION, channel=0, compression=0):
    nonce = nonce or secrets.token_bytes(16)
    return opening(HELLO, nonce, number(version) + session + token + numbers(received, linger) + string(root)
                   + numbers(0, channel, compression))


def welcome(nonce, session, token, capabilities, uid, gid, received=0, resumed=0, error=0, reason=b""):
    return opening(WELCOME, nonce, number(VERSION) + signed(error) + string(reason) + number(resumed) + session + token
                   + numbers(received, capabilities, uid, gid, 1) + string(b"") + number(0))


def read_welcome(body):
    r = Reader(body)
    return Welcome(r.number(), r.signed(), r.string(), r.number(), r.raw(16), r.raw(16), r.number(), r.number(),
                   r.number(), r.number(), r.number(), r.string(), r.number())


# ---- Section 4: frames -------------------------------------------------------------------

ACK, PING, PONG, BYE = 1, 2, 3, 4
(REPLY, DATA, CREDIT, CANCEL, CHANGE, OUTPUT, EXIT, INPUT, INPUT_CREDIT, KILL, UNWATCH, OUTPUT_CREDIT) = range(8, 20)
(GETATTR, READDIR, SCAN, READLINK, MKDIR, MKNOD, SYMLINK, LINK, UNLINK, RMDIR, RENAME, SETATTR, GETXATTR, LISTXATTR,
 SETXATTR, REMOVEXATTR, STATFS, OPEN, CREATE, CREATE_UNNAMED, READ, WRITE, FSYNC, CLOSE, FALLOCATE, SEEK, COPY_RANGE,
 LOCK, LOCK_TEST, LOCK_RELEASE_OWNER, EXEC, SIGNAL, RESIZE, WATCH, CHECK, PREPARE, NAME, WRITE_DETACHED) = range(32, 70)
CHANGES = {MKDIR, MKNOD, SYMLINK, LINK, UNLINK, RMDIR, RENAME, SETXATTR, REMOVEXATTR, CREATE, WRITE, FALLOCATE, COPY_RANGE, NAME, WRITE_DETACHED}

Frame = collections.namedtuple("Frame", "type id payload")
PAYLOAD_MAX = 1 << 20


class Ended(Exception):
    """The other side closed the connection."""


class Lane:
    """Frames over two descriptors, as one thread reads and writes them."""

    def __init__(self, in_fd, out_fd):
        self.in_fd, self.out_fd = in_fd, out_fd
        self.pending = bytearray()
        self.received, self.unacknowledged = 0, 0
        self.sent, self.kept = 0, collections.deque()  # what may have to be sent again
        self.waiting = bytearray()  # to be written
        self.deflate, self.inflate = None, zlib.decompressobj(-15)  # None: what is sent is not compressed
        self.compressed = 0  # frames that came
        self.pieces = {}  # by type and id
        os.set_blocking(out_fd, False)

    def write(self, raw, timeout=30):
        """Writes while it reads, so that two ends that both write do not wait for each other."""
        self.waiting += raw
        end = time.monotonic() + timeout * PATIENCE
        while self.waiting:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError("the other side does not read")
            readable, writable, _ = select.select([self.in_fd], [self.out_fd], [], left)
            if readable:
                self.fill()
            if writable:
                try:
                    del self.waiting[:os.write(self.out_fd, memoryview(self.waiting)[:65536])]
                except BlockingIOError:
                    pass
                except OSError as error:
                    raise Ended from error

    def fill(self):
        try:
            some = os.read(self.in_fd, 1 << 18)
        except OSError as error:
            raise Ended from error
        if not some:
            raise Ended
        self.pending += some

    def await_bytes(self, size, timeout):
        end = time.monotonic() + timeout * PATIENCE
        while len(self.pending) < size:
            if not select.select([self.in_fd], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("nothing comes")
            self.fill()

    def take(self, size, timeout):
        self.await_bytes(size, timeout)
        taken = bytes(self.pending[:size])
        del self.pending[:size]
        return taken

    def receive_opening(self, magic, nonce=None, timeout=30):
        """Returns nonce and body; what comes before is skipped."""
        skipped = 0
        window = self.take(28, timeout)
        while not window.startswith(magic + (nonce or b"")):
            skipped += 1
            if skipped > 8 << 20:
                raise Malformed("no opening in 8 MiB")
            window = window[1:] + self.take(1, timeout)
        size = struct.unpack("<I", window[24:])[0]
        if size > 65536:
            raise Malformed("an opening of more than 64 KiB")
        return window[8:24], self.take(size, timeout)

    def send(self, kind, identifier=0, payload=b"", timeout=30):
        if kind >= 8:
            self.sent += 1
            self.kept.append((self.sent, kind, identifier, payload))
        self.send_again(kind, identifier, payload, timeout)

    def send_again(self, kind, identifier, payload, timeout=30):
        self.unacknowledged = 0
        flags = 0
        if self.deflate and payload:
            flags = 1
            payload = number(len(payload)) + self.deflate.compress(payload) + self.deflate.flush(zlib.Z_SYNC_FLUSH)
        header = struct.pack("<IBBHII", len(payload), kind, flags, 0, identifier, self.received & 0xFFFFFFFF)
        self.write(header + payload, timeout)

    def receive(self, timeout=30):
        """The next frame that means something; PING and ACK are dealt with."""
        while True:
            self.await_bytes(16, timeout)
            size, kind, flags, zeros, identifier, ack = struct.unpack("<IBBHII", self.pending[:16])
            if size > PAYLOAD_MAX or flags > 3 or zeros:
                raise Malformed("a frame's header")
            raw = self.take(16 + size, timeout)
            self.check_ack(ack)
            if kind == PING:
                self.send(PONG, identifier)
            elif kind >= 8:
                self.received += 1
                self.unacknowledged += len(raw)
                if self.unacknowledged > 64 << 10 or self.received % 32 == 0:
                    self.send(ACK)
            if kind not in (ACK, PING):
                payload = self.pieces.pop((kind, identifier), b"") + (self.unpacked(raw[16:]) if flags & 1 else raw[16:])
                if not flags & 2:
                    return Frame(kind, identifier, payload)
                self.pieces[kind, identifier] = payload

    def unpacked(self, payload):
        r = Reader(payload)
        size = r.number()
        whole = self.inflate.decompress(r.rest())
        if len(whole) != size or size > PAYLOAD_MAX:
            raise Malformed(f"a frame of {size} bytes that are {len(whole)}")
        self.compressed += 1
        return whole

    def check_ack(self, ack):
        if (self.sent - ack) & 0xFFFFFFFF > 1 << 31:
            raise Malformed("an acknowledgement of what was never sent")
        while self.kept and (ack - self.kept[0][0]) & 0xFFFFFFFF < 1 << 31:
            self.kept.popleft()

    def resume(self, earlier, peer_received):
        """Goes on where the lane of an earlier connection was."""
        self.received, self.sent, self.kept, self.pieces = earlier.received, earlier.sent, earlier.kept, earlier.pieces
        while self.kept and self.kept[0][0] <= peer_received:
            self.kept.popleft()
        for _, kind, identifier, payload in list(self.kept):
            self.send_again(kind, identifier, payload)


# ---- A client ------------------------------------------------------------------------------

Answer = collections.namedtuple("Answer", "result body listing position")


class Refused(Exception):
    pass


class Client:
    """Speaks to a helper that it starts; with `resume`, goes on with the session of another client,
    or, as `channel`, beside that one."""

    def __init__(self, argv, root, linger=0, token=None, resume=None, channel=0, compression=0):
        self.helper = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.lane = Lane(self.helper.stdout.fileno(), self.helper.stdin.fileno())
        self.requests, self.answers, self.parts = 0, {}, {}
        self.others = collections.deque()  # frames that are no answers
        nonce = secrets.token_bytes(16)
        session = resume.welcome.session if resume else bytes(16)
        token = token or (resume.welcome.token if resume else bytes(16))
        received = resume.lane.received if resume and not channel else 0
        self.lane.write(hello(os.fsencode(root), nonce, session, token, received, linger, channel=channel, compression=compression))
        self.welcome = read_welcome(self.lane.receive_opening(WELCOME, nonce)[1])
        if self.welcome.error:
            self.drop()
            raise Refused(self.welcome.error, self.welcome.reason)
        if compression and self.welcome.compression:
            self.lane.deflate = zlib.compressobj(wbits=-15)
        if channel:
            self.requests = 1000000 * channel  # ids are the session's
        elif self.welcome.resumed:
            self.requests, self.answers, self.parts = resume.requests, resume.answers, resume.parts
            self.lane.resume(resume.lane, self.welcome.received)

    def ask(self, kind, arguments=b"", order=0, caller=None):
        """Sends a request and returns its id."""
        self.requests += 1
        self.lane.send(kind, self.requests, (caller or put_caller(os.getuid(), os.getgid())) + number(order) + arguments)
        return self.requests

    def receive(self, timeout=30):
        """Takes one frame and files it."""
        frame = self.lane.receive(timeout)
        if frame.type == REPLY:
            reader = Reader(frame.payload)
            code, position = reader.result()
            self.answers[frame.id] = Answer(code, reader, self.parts.pop(frame.id, []), position)
        elif frame.type == DATA:
            self.parts.setdefault(frame.id, []).extend(Reader(frame.payload).listing())
            self.lane.send(CREDIT, frame.id, number(16 + len(frame.payload)))
        else:
            self.others.append(frame)
        return frame

    def wait(self, identifier, timeout=30):
        end = time.monotonic() + timeout * PATIENCE
        while identifier not in self.answers:
            self.receive(max(0.01, end - time.monotonic()) / PATIENCE)
        return self.answers.pop(identifier)

    def call(self, kind, arguments=b"", order=0, caller=None):
        """A request and its answer.  Raises OSError for an error."""
        answer = self.wait(self.ask(kind, arguments, order, caller))
        if answer.result < 0:
            raise OSError(-answer.result, os.strerror(-answer.result))
        return answer

    def next_of(self, kind, timeout=30):
        """The next frame of a type that is no answer."""
        end = time.monotonic() + timeout * PATIENCE
        while True:
            for frame in self.others:
                if frame.type == kind:
                    self.others.remove(frame)
                    return frame
            self.receive(max(0.01, end - time.monotonic()) / PATIENCE)

    def drop(self):
        """Breaks the connection without a word."""
        self.helper.stdin.close()
        self.helper.stdout.close()
        self.helper.wait(30)

    def close(self):
        self.lane.send(BYE)
        try:
            while True:
                self.lane.receive()
        except Ended:
            pass
        self.drop()
