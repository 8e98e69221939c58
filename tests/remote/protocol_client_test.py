#!/usr/bin/env python3
"""protocol_client_test.py HELPER: a client written from PROTOCOL.md alone does each operation through the
helper, and os.* on the same directory says whether it happened."""
import errno
import fcntl
import os
import secrets
import stat
import sys
import tempfile
import time

import functions
import protocol as p

helper = sys.argv[1]
root = os.fsencode(tempfile.mkdtemp(prefix="isthmus-protocol-"))
client = None
handles = iter(range(1, 1 << 32))


def at(name):
    return os.path.join(root, name)


def write_file(name, content=b"content\n"):
    with open(at(name), "wb") as f:
        f.write(content)
    return name


def read_file(name):
    with open(at(name), "rb") as f:
        return f.read()


def same(want, got):
    if want != got:
        raise AssertionError(f"want {want!r}, got {got!r}")


def fails(code, call, *arguments, **more):
    try:
        call(*arguments, **more)
    except OSError as error:
        same(errno.errorcode[code], errno.errorcode.get(error.errno))
    else:
        raise AssertionError(f"no {errno.errorcode[code]}")


def getattr_of(name, identity=p.NO_ID, handle=0):
    answer = client.call(p.GETATTR, p.target(name, identity, handle) + p.object_id(p.NO_ID))
    attributes = answer.body.attributes()
    answer.body.end()
    return attributes


def known(attributes):
    """Without what os.stat does not say: the generation number, and when it looked."""
    return attributes._replace(id=attributes.id[:2] + (0,), lately=0)


def same_as_stat(name, attributes):
    want = known(p.attributes_of(os.lstat(at(name))))
    same(want, known(attributes)._replace(atime=want.atime))


def open_file(name, flags=os.O_RDONLY, inline=0, identity=p.NO_ID):
    handle = next(handles)
    answer = client.call(p.OPEN, p.target(name, identity) + p.open_flags(flags) + p.numbers(handle, inline))
    return handle, answer


def create(name, flags=os.O_RDWR, mode=0o644):
    handle = next(handles)
    client.call(p.CREATE, p.name(name) + p.open_flags(flags) + p.numbers(mode, handle))
    return handle


def close(handle):
    client.call(p.CLOSE, p.number(handle), order=handle)


def write(handle, offset, content):
    return client.call(p.WRITE, p.numbers(handle, offset) + p.data(content), order=handle).result


def read(handle, offset, size):
    answer = client.call(p.READ, p.numbers(handle, offset, size))
    content = answer.body.rest()
    same(answer.result, len(content))
    return content


def put_lock(handle, kind, owner=1, how=p.POSIX, wait=0, start=0, length=0, size=0):
    return p.number(handle) + p.put_lock(p.Lock(how, kind, owner, start, length, 0)) + p.numbers(wait, size)


# ---- Names ------------------------------------------------------------------------------


def test_welcome():
    s = os.stat(root)
    same((p.VERSION, 0, b"", 0), client.welcome[:4])
    same((s.st_uid, s.st_gid), (client.welcome.uid, client.welcome.gid))
    same(p.CAN_EXEC | p.CAN_WATCH, client.welcome.capabilities & (p.CAN_EXEC | p.CAN_WATCH | p.READ_ONLY))


def test_getattr():
    same_as_stat(b"", getattr_of(b""))
    same_as_stat(write_file(b"file"), getattr_of(b"file"))
    os.symlink("file", at(b"link"))
    same_as_stat(b"link", getattr_of(b"link"))
    fails(errno.ENOENT, getattr_of, b"none")
    fails(errno.ENOTDIR, getattr_of, b"file/below")


def test_getattr_of_another_object_is_stale():
    write_file(b"replaced")
    identity = getattr_of(b"replaced").id
    same_as_stat(b"replaced", getattr_of(b"replaced", identity))
    write_file(b"other")
    os.rename(at(b"other"), at(b"replaced"))
    fails(errno.ESTALE, getattr_of, b"replaced", identity)


def make_tree(name):
    for directory in (b"", b"/.hidden", b"/sub", b"/sub/deep"):
        os.mkdir(at(name) + directory)
        write_file(name + directory + b"/one", b"1" * 100)
        write_file(name + directory + b"/two", b"2" * 3000)
    os.symlink("one", at(name) + b"/sub/link")
    return name


def test_readdir():
    make_tree(b"listed")
    answer = client.call(p.READDIR, p.target(b"listed") + p.number(0))
    same(sorted(os.listdir(at(b"listed"))), sorted(e.path for e in answer.listing))
    for entry in answer.listing:
        same_as_stat(b"listed/" + entry.path, entry.attributes)
    same(0, answer.body.number())
    answer.body.end()


def test_readdir_of_many_entries_needs_credit():
    os.mkdir(at(b"many"))
    for i in range(3000):
        os.close(os.open(at(b"many/%d" % i), os.O_CREAT | os.O_WRONLY))
    answer = client.call(p.READDIR, p.target(b"many") + p.number(0))
    same(sorted(os.listdir(at(b"many"))), sorted(e.path for e in answer.listing))


def scan(name, flags=0, depth=0, entries=0, each=0, total=0):
    return client.call(p.SCAN, p.target(name) + p.numbers(flags, depth, entries, each, total)).listing


def walk(name):
    found = {b""}
    for directory, directories, files in os.walk(at(name)):
        found |= {os.path.relpath(os.path.join(directory, f), at(name)) for f in directories + files}
    return found


def test_scan():
    make_tree(b"scanned")
    entries = scan(b"scanned")
    same(walk(b"scanned"), {e.path for e in entries})
    same(b"", entries[0].path)
    for entry in entries:
        same_as_stat(os.path.join(b"scanned", entry.path).rstrip(b"/"), entry.attributes)
        same(stat.S_ISDIR(entry.attributes.mode), bool(entry.complete))
        same(True, entry.at > 0)
        same(0, entry.since)
        same(b"one" if entry.path == b"sub/link" else None, entry.target)


def test_scan_that_is_packed():
    make_tree(b"packed")
    os.utime(at(b"packed/one"), ns=(-5 * 10**9 + 3, 2**34 * 10**9))
    os.utime(at(b"packed/two"), ns=(-5 * 10**9 + 3, 7))
    answer = client.call(p.SCAN, p.target(b"packed") + p.numbers(128, 0, 0, 0, 0))
    same(walk(b"packed"), {e.path for e in answer.listing})
    for entry in answer.listing:
        same_as_stat(os.path.join(b"packed", entry.path).rstrip(b"/"), entry.attributes)
    same({e.path: e.attributes.id for e in scan(b"packed")}, {e.path: e.attributes.id for e in answer.listing})


def test_what_changed_just_now_is_said_to_have():
    make_tree(b"lately")
    same({1}, {entry.attributes.lately for entry in scan(b"lately")})
    time.sleep(4)
    same({0}, {entry.attributes.lately for entry in scan(b"lately")})


def test_scan_with_content():
    make_tree(b"content")
    for entry in scan(b"content", flags=2, each=1000):
        name = os.path.join(b"content", entry.path)
        small = stat.S_ISREG(entry.attributes.mode) and entry.attributes.size <= 1000
        same(read_file(name) if small else None, entry.content)


def test_scan_with_what_is_read_first():
    make_tree(b"first")
    for path in (b"Makefile", b"sub/.gitignore", b"sub/rules.mk"):
        write_file(b"first/" + path, b"all:")
    write_file(b"first/sub/deep/Makefile", b"x" * ((16 << 10) + 1))
    same(p.CAN_READ_FIRST, client.welcome.capabilities & p.CAN_READ_FIRST)
    same({b"Makefile", b"sub/.gitignore", b"sub/rules.mk"},
         {e.path for e in scan(b"first", flags=64) if e.content is not None})


def search(name, each=1000, **what):
    arguments = p.numbers(2 | 16 | 32, 0, 0, each, 0) + p.search(**what)
    return {e.path: e for e in client.call(p.SCAN, p.target(name) + arguments).listing}


def test_scan_that_searches():
    make_tree(b"searched")
    for path, content in {b".gitignore": b"left\n", b"left": b"1", b"deep.c": b"x" * 131070 + b"NeedLe",
                          b"zero": b"1" * 10 + b"\0needle", b"sub/deep/.gitignore": b"one\n"}.items():
        write_file(b"searched/" + path, content)
    os.mkdir(at(b"searched/.git"))
    write_file(b"searched/.git/index", b"needle")
    found = search(b"searched", texts=[b"needle", b"222"], ignore_case=1)
    same(walk(b"searched"), set(found))
    same({b"one", b"sub/one", b".hidden/one", b"zero", b".gitignore", b"sub/deep/.gitignore"},
         {path for path, e in found.items() if e.lacks})
    same({b".gitignore", b"sub/deep/.gitignore"}, {path for path, e in found.items() if e.content is not None})
    same(b"left\n", found[b".gitignore"].content)
    same(1, search(b"searched", texts=[b"needle"])[b"deep.c"].lacks)
    found = search(b"searched", texts=[b"NeedLe"], names=b"*.c", each=1 << 18)
    same(b"x" * 131070 + b"NeedLe", found[b"deep.c"].content)
    same([], [path for path, e in found.items() if e.lacks])
    known = [os.lstat(at(b"searched/one")).st_ino, os.lstat(at(b"searched/two")).st_ino]
    found = search(b"searched", texts=[b"needle"], known=known)
    same([0, 0, 1], [found[path].lacks for path in (b"one", b"two", b"sub/one")])


def test_scan_that_tells_lines():
    os.mkdir(at(b"lines"))
    for path, content in {b"few": b"a\nb\na needle\nc\nd\n" + b"x\n" * 50 + b"a Needle", b"most": b"needle\n" * 9 + b"b",
                          b"zero": b"x" * 99 + b"\nneedle\n\0", b"long": b"needle\n" + b"x" * (1 << 17)}.items():
        write_file(b"lines/" + path, content)
    found = search(b"lines", texts=[b"needle"], lines=1)
    same({b"few": b"3 9\na needle\n"}, {path: e.lines for path, e in found.items() if e.lines is not None})
    same({b"most", b"zero"}, {path for path, e in found.items() if e.content is not None})
    found = search(b"lines", texts=[b"needle", b"zz"], ignore_case=1, lines=2)
    same(b"2 13\nb\na needle\nc\n", found[b"few"].lines[:18])
    same(None, search(b"lines", texts=[b"needle"])[b"few"].lines)
    fails(errno.EPROTO, search, b"lines", texts=[b"needle"], lines=1002)


def test_scan_that_searches_for_nothing_is_malformed():
    for texts in [], [b""], [b"x"] * 9, [b"x" * (16 * 1024 + 1)]:
        arguments = p.numbers(16 | 32, 0, 0, 0, 0) + p.search(texts)
        fails(errno.EPROTO, client.call, p.SCAN, p.target() + arguments)


def test_scan_within_bounds():
    make_tree(b"bounds")
    same({b""} | set(os.listdir(at(b"bounds"))), {e.path for e in scan(b"bounds", depth=1)})
    same(False, b".hidden/one" in {e.path for e in scan(b"bounds", flags=4)})
    some = scan(b"bounds", entries=3)
    same({b""} | set(os.listdir(at(b"bounds"))), {e.path for e in some})
    same([0, 0], [e.complete for e in some if e.path in (b"sub", b".hidden")])


def test_readlink():
    os.symlink(b"over/there", at(b"a link"))
    answer = client.call(p.READLINK, p.target(b"a link"))
    same(os.readlink(at(b"a link")), answer.body.string())
    fails(errno.EINVAL, client.call, p.READLINK, p.target(b""))


def test_mkdir():
    made = client.call(p.MKDIR, p.name(b"made") + p.numbers(0o777, 0, 0)).body.attributes()
    same_as_stat(b"made", made)
    same(0o755, stat.S_IMODE(os.stat(at(b"made")).st_mode))
    fails(errno.EEXIST, client.call, p.MKDIR, p.name(b"made") + p.numbers(0o777, 0, 0))


def test_mknod():
    same_as_stat(b"fifo", client.call(p.MKNOD, p.name(b"fifo") + p.numbers(stat.S_IFIFO | 0o600, 0)).body.attributes())
    same(True, stat.S_ISFIFO(os.stat(at(b"fifo")).st_mode))


def test_symlink():
    same_as_stat(b"sym", client.call(p.SYMLINK, p.string(b"to/where") + p.name(b"sym")).body.attributes())
    same(b"to/where", os.readlink(at(b"sym")))


def test_link():
    write_file(b"linked")
    same_as_stat(b"second", client.call(p.LINK, p.target(b"linked") + p.name(b"second")).body.attributes())
    same(2, os.stat(at(b"linked")).st_nlink)


def test_unlink():
    write_file(b"doomed")
    identity = getattr_of(b"doomed").id
    wrong = (identity[0], identity[1] + 1, identity[2])
    fails(errno.ESTALE, client.call, p.UNLINK, p.name(b"doomed") + p.object_id(wrong))
    client.call(p.UNLINK, p.name(b"doomed") + p.object_id(identity))
    same(False, os.path.exists(at(b"doomed")))
    os.mkdir(at(b"undoomed"))
    fails(errno.EISDIR, client.call, p.UNLINK, p.name(b"undoomed") + p.object_id(p.NO_ID))


def test_rmdir():
    os.makedirs(at(b"full/inner"))
    fails(errno.ENOTEMPTY, client.call, p.RMDIR, p.name(b"full") + p.object_id(p.NO_ID))
    client.call(p.RMDIR, p.name(b"full/inner") + p.object_id(p.NO_ID))
    same([], os.listdir(at(b"full")))


def left_by(kind, arguments):
    """The facts of a change, whose position is higher than that of a look before it."""
    before = client.call(p.GETATTR, p.target() + p.object_id(p.NO_ID)).position
    answer = client.call(kind, arguments)
    same(True, answer.position > before)
    if kind in (p.MKDIR, p.MKNOD, p.SYMLINK, p.LINK, p.CREATE):
        answer.body.attributes()
    if kind == p.MKDIR:
        same(0, answer.body.number())
    facts = answer.body.facts()
    answer.body.end()
    return facts


def same_facts(facts, **names):
    for kind in p.Facts._fields:
        same(kind in names, getattr(facts, kind) is not None)
        if kind in names:
            same_as_stat(names[kind], getattr(facts, kind))


def test_changes_tell_what_they_left():
    os.makedirs(at(b"left/to"))
    same_facts(left_by(p.MKDIR, p.name(b"left/d") + p.numbers(0o755, 0, 0)), parent=b"left")
    same_facts(left_by(p.MKNOD, p.name(b"left/f") + p.numbers(stat.S_IFREG | 0o644, 0)), parent=b"left")
    same_facts(left_by(p.SYMLINK, p.string(b"x") + p.name(b"left/s")), parent=b"left")
    same_facts(left_by(p.LINK, p.target(b"left/f") + p.name(b"left/to/l")), parent=b"left/to")
    same_facts(left_by(p.UNLINK, p.name(b"left/s") + p.object_id(p.NO_ID)), parent=b"left")
    same_facts(left_by(p.RMDIR, p.name(b"left/d") + p.object_id(p.NO_ID)), parent=b"left")
    same_facts(left_by(p.RENAME, p.name(b"left/f") + p.name(b"left/to/f") + p.number(0) + p.object_id(p.NO_ID)),
               parent=b"left", new_parent=b"left/to", object=b"left/to/f")
    same_facts(left_by(p.CREATE, p.name(b"left/c") + p.open_flags(os.O_RDWR) + p.numbers(0o644, 4321)), parent=b"left")
    same_facts(left_by(p.WRITE, p.numbers(4321, 0) + p.data(b"some")), object=b"left/c")
    same_facts(left_by(p.FALLOCATE, p.numbers(4321, 0, 0, 100)), object=b"left/c")
    same_facts(left_by(p.COPY_RANGE, p.numbers(4321, 0, 4321, 1000, 100)), object=b"left/c")
    client.call(p.CLOSE, p.number(4321))
    if has_xattrs():
        same_facts(left_by(p.SETXATTR, p.target(b"left/c") + p.string(b"user.x") + p.number(0) + p.data(b"v")), object=b"left/c")
        same_facts(left_by(p.REMOVEXATTR, p.target(b"left/c") + p.string(b"user.x")), object=b"left/c")


def has_xattrs():
    try:
        os.setxattr(at(b"left/c"), b"user.probe", b"1")
    except OSError:
        return False
    return True


def test_a_name_in_another_directory_is_stale():
    os.makedirs(at(b"held/inner"))
    held = getattr_of(b"held").id
    write_file(b"held/file")
    client.call(p.MKDIR, p.name(b"held/made", held) + p.numbers(0o755, 0, 0))
    client.call(p.GETATTR, p.target(b"held/file") + p.object_id(held))
    os.rename(at(b"held"), at(b"held.old"))
    os.makedirs(at(b"held/inner"))
    write_file(b"held/file")
    there = getattr_of(b"held").id
    for kind, arguments in (
            (p.GETATTR, p.target(b"held/file") + p.object_id(held)),
            (p.MKDIR, p.name(b"held/new", held) + p.numbers(0o755, 0, 0)),
            (p.MKNOD, p.name(b"held/new", held) + p.numbers(stat.S_IFIFO | 0o600, 0)),
            (p.SYMLINK, p.string(b"to") + p.name(b"held/new", held)),
            (p.LINK, p.target(b"held/file") + p.name(b"held/new", held)),
            (p.UNLINK, p.name(b"held/file", held) + p.object_id(p.NO_ID)),
            (p.RMDIR, p.name(b"held/inner", held) + p.object_id(p.NO_ID)),
            (p.RENAME, p.name(b"held/file", held) + p.name(b"held/new", there) + p.number(0) + p.object_id(p.NO_ID)),
            (p.RENAME, p.name(b"held/file", there) + p.name(b"held/new", held) + p.number(0) + p.object_id(p.NO_ID)),
            (p.CREATE, p.name(b"held/new", held) + p.open_flags(os.O_RDWR) + p.numbers(0o600, 4000)),
            (p.CREATE_UNNAMED, p.name(b"held", held) + p.open_flags(os.O_RDWR) + p.numbers(0o600, 4000))):
        fails(errno.ESTALE, client.call, kind, arguments)
    assert sorted(os.listdir(at(b"held"))) == [b"file", b"inner"]


def rename(old, new, flags=0, identity=p.NO_ID):
    client.call(p.RENAME, p.name(old) + p.name(new) + p.number(flags) + p.object_id(identity))


def test_rename():
    write_file(b"old", b"old")
    write_file(b"new", b"new")
    fails(errno.EEXIST, rename, b"old", b"new", 1)
    rename(b"old", b"new", 2)
    same((b"new", b"old"), (read_file(b"old"), read_file(b"new")))
    rename(b"old", b"new")
    same((False, b"new"), (os.path.exists(at(b"old")), read_file(b"new")))


# ---- Attributes -----------------------------------------------------------------------------


def set_attributes(name, mask, handle=0, **fields):
    want = p.NO_ATTRIBUTES._replace(**fields)
    return client.call(p.SETATTR, p.target(name, handle=handle) + p.number(mask) + p.put_attributes(want)).body.attributes()


def test_setattr_mode_and_size():
    write_file(b"set", b"0123456789")
    same_as_stat(b"set", set_attributes(b"set", 1, mode=0o640))
    same(0o640, stat.S_IMODE(os.stat(at(b"set")).st_mode))
    set_attributes(b"set", 8, size=4)
    same(b"0123", read_file(b"set"))


def test_setattr_times():
    write_file(b"times")
    set_attributes(b"times", 16 | 32, atime=-5 * 10**9 + 7, mtime=1700000000123456789)
    s = os.stat(at(b"times"))
    same((-5 * 10**9 + 7, 1700000000123456789), (s.st_atime_ns, s.st_mtime_ns))
    set_attributes(b"times", 64 | 128)
    same(True, abs(os.stat(at(b"times")).st_mtime - time.time()) < 300)


def test_setattr_owner():
    write_file(b"owned")
    if os.getuid() == 0:
        set_attributes(b"owned", 2 | 4, uid=12, gid=34)
        s = os.stat(at(b"owned"))
        same((12, 34), (s.st_uid, s.st_gid))


def test_xattrs():
    write_file(b"x")
    name = b"user.note"

    def put(value, flags=0):
        client.call(p.SETXATTR, p.target(b"x") + p.string(name) + p.number(flags) + p.data(value))

    put(b"v\0alue")
    same(b"v\0alue", os.getxattr(at(b"x"), name))
    fails(errno.EEXIST, put, b"", 1)
    answer = client.call(p.GETXATTR, p.target(b"x") + p.string(name) + p.number(100))
    same((6, b"v\0alue"), (answer.result, answer.body.rest()))
    answer = client.call(p.GETXATTR, p.target(b"x") + p.string(name) + p.number(0))
    same((6, 0), (answer.result, answer.body.left()))
    fails(errno.ERANGE, client.call, p.GETXATTR, p.target(b"x") + p.string(name) + p.number(2))
    names = client.call(p.LISTXATTR, p.target(b"x") + p.number(1000)).body.rest()
    same(sorted(os.fsencode(n) for n in os.listxattr(at(b"x"))), sorted(names.split(b"\0")[:-1]))
    client.call(p.REMOVEXATTR, p.target(b"x") + p.string(name))
    same([], [n for n in os.listxattr(at(b"x")) if n == "user.note"])
    fails(errno.ENODATA, client.call, p.GETXATTR, p.target(b"x") + p.string(name) + p.number(9))
    fails(errno.ENODATA, put, b"", 2)


def test_statfs():
    answer = client.call(p.STATFS)
    got = [answer.body.number() for _ in range(8)]
    answer.body.end()
    s = os.statvfs(root)
    same([s.f_bsize, s.f_frsize, s.f_blocks], got[:3])
    same(s.f_namemax, got[7])


def test_check():
    same(p.CAN_CHECK, client.welcome.capabilities & p.CAN_CHECK)
    same(0, client.call(p.CHECK).result)
    os.rename(root, root + b"-moved")
    fails(errno.ESTALE, client.call, p.CHECK)
    os.mkdir(root)
    fails(errno.ESTALE, client.call, p.CHECK)
    os.rmdir(root)
    os.rename(root + b"-moved", root)
    same(0, client.call(p.CHECK).result)


# ---- Files --------------------------------------------------------------------------------------


def test_open_and_read():
    content = os.urandom(700000)
    write_file(b"big", content)
    handle, answer = open_file(b"big")
    same(0, answer.result)
    same_as_stat(b"big", answer.body.attributes())
    answer.body.end()
    same(content[:262144], read(handle, 0, 262144))
    same(content[690000:], read(handle, 690000, 262144))
    same(b"", read(handle, 800000, 10))
    close(handle)
    fails(errno.EBADF, read, handle, 0, 1)


def test_open_with_content():
    write_file(b"inline", b"i" * 5000)
    for room in (100, 5000, 65536):
        handle, answer = open_file(b"inline", inline=room)
        same(1, answer.result)
        same_as_stat(b"inline", answer.body.attributes())
        same(b"i" * min(room, 5000), answer.body.rest())
        close(handle)


def test_open_flags():
    write_file(b"flags", b"before")
    handle, _ = open_file(b"flags", os.O_WRONLY | os.O_APPEND)
    write(handle, 0, b"+after")
    same(b"before+after", read_file(b"flags"))
    fails(errno.EBADF, read, handle, 0, 1)
    close(handle)
    close(open_file(b"flags", os.O_WRONLY | os.O_TRUNC)[0])
    same(b"", read_file(b"flags"))
    fails(errno.EISDIR, open_file, b"")


def test_create_and_write():
    handle = create(b"created", mode=0o666)
    same(0o644, stat.S_IMODE(os.stat(at(b"created")).st_mode))
    same(5, write(handle, 3, b"hello"))
    same(b"\0\0\0hello", read_file(b"created"))
    same_as_stat(b"created", getattr_of(b"", handle=handle))
    close(handle)
    fails(errno.EEXIST, create, b"created")


def test_writes_of_one_order_keep_it():
    handle = create(b"ordered")
    last = [client.ask(p.WRITE, p.numbers(handle, 0) + p.data(b"%04d" % i), order=handle) for i in range(200)][-1]
    same(4, client.wait(last).result)
    same(b"0199", read_file(b"ordered"))
    close(handle)


def test_handle_outlives_the_name():
    handle = create(b"unlinked")
    os.unlink(at(b"unlinked"))
    write(handle, 0, b"still")
    same(b"still", read(handle, 0, 10))
    same(0, getattr_of(b"", handle=handle).nlink)
    set_attributes(b"", 8, handle=handle, size=2)
    same(b"st", read(handle, 0, 10))
    close(handle)


def test_create_unnamed_and_name_it():
    handle = next(handles)
    client.call(p.CREATE_UNNAMED, p.name(b"") + p.open_flags(os.O_RDWR) + p.numbers(0o600, handle))
    write(handle, 0, b"unnamed")
    client.call(p.LINK, p.target(handle=handle) + p.name(b"named"))
    same(b"unnamed", read_file(b"named"))
    close(handle)


def test_prepare_and_name():
    handle = next(handles)
    reader = client.call(p.PREPARE, p.name(b"") + p.open_flags(os.O_RDWR) + p.numbers(0o640, handle))
    prepared = reader.body.attributes()
    same(0, prepared.nlink)
    write_file(b"taken")
    fails(errno.EEXIST, client.call, p.NAME, p.number(handle) + p.name(b"taken") + p.open_flags(os.O_WRONLY | os.O_EXCL) + p.number(1))
    reader = client.call(p.NAME, p.number(handle) + p.name(b"given") + p.open_flags(os.O_WRONLY | os.O_EXCL) + p.number(1))
    given = reader.body.attributes()
    same((prepared.id, prepared.mode, prepared.uid, prepared.gid), (given.id, given.mode, given.uid, given.gid))
    same(1, given.nlink)
    write(handle, 0, b"written")
    same(b"written", read_file(b"given"))
    fails(errno.EBADF, client.call, p.NAME, p.number(handle) + p.name(b"again") + p.open_flags(os.O_WRONLY) + p.number(1))
    close(handle)


def test_mkdir_prepares_a_file():
    handle = next(handles)
    body = client.call(p.MKDIR, p.name(b"with") + p.numbers(0o755, 0o640, handle)).body
    body.attributes()
    same(1, body.number())
    prepared = body.attributes()
    same((0, 0o640), (prepared.nlink, stat.S_IMODE(prepared.mode)))
    same([], os.listdir(at(b"with")))
    reader = client.call(p.NAME, p.number(handle) + p.name(b"with/file") + p.open_flags(os.O_WRONLY | os.O_EXCL) + p.number(1))
    same(prepared.id, reader.body.attributes().id)
    close(handle)
    # A handle in use: the directory is made all the same.
    handle = create(b"in use")
    body = client.call(p.MKDIR, p.name(b"without") + p.numbers(0o755, 0o640, handle)).body
    body.attributes()
    same(0, body.number())
    close(handle)


def test_name_that_makes_nothing_opens_what_is_there():
    handle = next(handles)
    client.call(p.PREPARE, p.name(b"") + p.open_flags(os.O_RDWR) + p.numbers(0o640, handle))
    fails(errno.ENOENT, client.call, p.NAME, p.number(handle) + p.name(b"not there") + p.open_flags(os.O_WRONLY) + p.number(0))
    same(False, os.path.exists(at(b"not there")))
    write_file(b"was there", b"long ago")
    reader = client.call(p.NAME, p.number(handle) + p.name(b"was there") + p.open_flags(os.O_WRONLY | os.O_TRUNC) + p.number(0))
    same((os.stat(at(b"was there")).st_ino, 0), (reader.body.attributes().id[1], os.stat(at(b"was there")).st_size))
    write(handle, 0, b"now")
    same(b"now", read_file(b"was there"))
    close(handle)


# Without O_EXCL what somebody else has made does, too.
def test_name_opens_what_is_there():
    for name, flags, expected in ((b"cut", os.O_TRUNC, b"new"), (b"written over", 0, b"newes"), (b"longer", os.O_APPEND, b"takesnew")):
        handle = next(handles)
        reader = client.call(p.PREPARE, p.name(b"") + p.open_flags(os.O_RDWR) + p.numbers(0o640, handle))
        prepared = reader.body.attributes()
        write_file(name, b"takes")
        os.mkdir(at(name + b".d"))
        os.symlink(name, at(name + b".l"))
        fails(errno.EISDIR, client.call, p.NAME, p.number(handle) + p.name(name + b".d") + p.open_flags(os.O_WRONLY | flags) + p.number(1))
        fails(errno.ELOOP, client.call, p.NAME, p.number(handle) + p.name(name + b".l") + p.open_flags(os.O_WRONLY | flags) + p.number(1))
        reader = client.call(p.NAME, p.number(handle) + p.name(name) + p.open_flags(os.O_WRONLY | flags) + p.number(1))
        found = reader.body.attributes()
        same(os.stat(at(name)).st_ino, found.id[1])
        same(False, found.id == prepared.id)
        same(0 if flags & os.O_TRUNC else 5, found.size)
        same(0, reader.body.number())
        write(handle, 0, b"new")
        close(handle)
        same(expected, read_file(name))


def test_fsync():
    handle = create(b"synced")
    client.call(p.FSYNC, p.number(handle) + p.string(b"") + p.number(1))
    client.call(p.FSYNC, p.number(0) + p.string(b"") + p.number(0))
    close(handle)


def test_fallocate_and_seek():
    handle = create(b"sparse")
    write(handle, 1 << 20, b"end")
    seek = lambda offset, hole: client.call(p.SEEK, p.numbers(handle, offset, hole)).result
    with open(at(b"sparse"), "rb") as f:
        for offset, hole in ((0, 0), (0, 1), (1 << 20, 1)):
            same(os.lseek(f.fileno(), offset, os.SEEK_HOLE if hole else os.SEEK_DATA), seek(offset, hole))
    fails(errno.ENXIO, seek, 2 << 20, 0)
    client.call(p.FALLOCATE, p.numbers(handle, 0, 2 << 20, 4096))
    same((2 << 20) + 4096, os.stat(at(b"sparse")).st_size)
    close(handle)


def test_copy_range():
    write_file(b"from", b"0123456789" * 1000)
    source, _ = open_file(b"from")
    to = create(b"to")
    same(5000, client.call(p.COPY_RANGE, p.numbers(source, 5000, to, 100, 9000)).result)
    same(bytes(100) + read_file(b"from")[5000:], read_file(b"to"))
    close(source)
    close(to)


# ---- Locks ------------------------------------------------------------------------------------------


def test_posix_locks():
    handle = create(b"locked")
    client.call(p.LOCK, put_lock(handle, p.EXCLUSIVE, start=10, length=5))
    with open(at(b"locked"), "r+b") as f:
        fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)
        fails(errno.EAGAIN, fcntl.lockf, f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 12)
        fails(errno.EAGAIN, client.call, p.LOCK, put_lock(handle, p.SHARED, owner=2, length=1))
    answer = client.call(p.LOCK_TEST, p.number(handle) + p.put_lock(p.Lock(p.POSIX, p.SHARED, 2, 0, 0, 0)))
    found = answer.body.lock()
    same((p.EXCLUSIVE, 10, 5), (found.type, found.offset, found.length))
    client.call(p.LOCK_RELEASE_OWNER, p.numbers(handle, 1))
    client.call(p.LOCK, put_lock(handle, p.EXCLUSIVE, owner=2))
    close(handle)
    with open(at(b"locked"), "r+b") as f:
        fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_flock():
    handle = create(b"flocked")
    client.call(p.LOCK, put_lock(handle, p.EXCLUSIVE, how=p.FLOCK))
    with open(at(b"flocked"), "rb") as f:
        fails(errno.EAGAIN, fcntl.flock, f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        client.call(p.LOCK, put_lock(handle, p.NO_LOCK, how=p.FLOCK))
        fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
    close(handle)


def test_a_lock_comes_with_what_the_file_is_like():
    handle = create(b"guarded")
    with open(at(b"guarded"), "w") as f:
        f.write("0123456789")
    for size, start in ((4, b"0123"), (100, b"0123456789"), (0, b"")):
        answer = client.call(p.LOCK, put_lock(handle, p.EXCLUSIVE, size=size))
        same(start, answer.body.data())
        same_facts(answer.body.facts(), object=b"guarded")
        answer = client.call(p.LOCK, put_lock(handle, p.NO_LOCK, size=size))
        same(b"", answer.body.data())
        same_facts(answer.body.facts())
    close(handle)


def test_a_lock_is_released_behind_what_was_written():
    os.mkdir(at(b"much"))
    for i in range(12):
        with open(at(b"much/%d" % i), "wb") as f:
            f.write(b"x" * 500000)
    guard, data = create(b"guard"), create(b"data")
    how_it_is_released = (
        (p.LOCK, put_lock(guard, p.SHARED)),
        (p.LOCK, put_lock(guard, p.NO_LOCK)),
        (p.LOCK_RELEASE_OWNER, p.numbers(guard, 1)),
        (p.CLOSE, p.numbers(guard)))
    for size, (kind, arguments) in enumerate(how_it_is_released, 1):
        client.call(p.LOCK, put_lock(guard, p.EXCLUSIVE))
        # Without credit the write has to wait for the listing.
        listing = client.ask(p.SCAN, p.target(b"much") + p.numbers(2, 0, 0, 512 << 10, 0), order=data)
        writing = client.ask(p.WRITE, p.numbers(data, size - 1) + p.data(b"x"), order=data)
        release = client.ask(kind, arguments, order=guard)
        frames = [client.lane.receive()]
        while sum(16 + len(f.payload) for f in frames) < 4 << 20:
            frames.append(client.lane.receive())
        other = client.ask(p.STATFS)
        while (p.REPLY, other) != (frames[-1].type, frames[-1].id):
            frames.append(client.lane.receive())
        same([other], [f.id for f in frames if f.type == p.REPLY])
        credit = sum(16 + len(f.payload) for f in frames if f.type == p.DATA)
        client.lane.send(p.CREDIT, listing, p.number(credit))
        same(0, client.wait(release).result)
        same(size, os.stat(at(b"data")).st_size)
        same(1, client.wait(writing).result)
        same(0, client.wait(listing).result)
    close(data)


def test_waiting_lock_is_cancelled():
    handle = create(b"waited")
    with open(at(b"waited"), "rb") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        request = client.ask(p.LOCK, put_lock(handle, p.EXCLUSIVE, how=p.FLOCK, wait=1))
        same(0, client.call(p.STATFS).result)
        client.lane.send(p.CANCEL, request)
        same(-errno.EINTR, client.wait(request).result)
    close(handle)


# ---- Processes ----------------------------------------------------------------------------------------

processes = iter(range(1, 1 << 32))


def execute(command=b"", argv=(), flags=2, cwd=b"", environment=(), timeout=0):
    process = next(processes)
    client.call(p.EXEC, p.numbers(process, flags, timeout, 0, 0) + p.string(cwd) + p.string(command)
                + p.strings(argv) + p.strings(environment))
    return process


def result_of(process):
    """(stdout, stderr, exit code, signal, timed out), and gives credit meanwhile."""
    out = [b"", b""]
    while True:
        # Some, or all of it, may have come before the answer to EXEC.
        for frame in [f for f in client.others if f.id == process]:
            client.others.remove(frame)
            r = p.Reader(frame.payload)
            if frame.type == p.OUTPUT:
                which = r.number()
                out[which] += r.rest()
                client.lane.send(p.OUTPUT_CREDIT, process, p.number(16 + len(frame.payload)))
            elif frame.type == p.EXIT:
                return out[0], out[1], r.signed(), r.number(), r.number()
        client.receive()


def test_exec():
    os.mkdir(at(b"cwd"))
    process = execute(b"pwd; echo $X; echo oops >&2; exit 7", cwd=b"cwd", environment=[b"X=y z"])
    same((at(b"cwd") + b"\ny z\n", b"oops\n", 7, 0, 0), result_of(process))
    same((b"a b\n", b"", 0, 0, 0), result_of(execute(argv=[b"echo", b"a b"])))
    fails(errno.ENOENT, execute, argv=[b"no-such-program"])
    same((b"o\ne\n" * 9, b"", 0, 0, 0), result_of(execute(b"for i in 1 2 3 4 5 6 7 8 9; do echo o; echo e >&2; done", flags=34)))


def test_exec_output_needs_credit():
    out = result_of(execute(b"head -c 3000000 /dev/zero"))
    same((3000000, 0), (len(out[0]), out[2]))


def test_exec_input():
    process = execute(b"cat", flags=0)
    text = os.urandom(600000)
    credit, sent, got = 256 << 10, 0, b""
    while len(got) < len(text):
        some = text[sent:sent + min(credit, 50000)]
        if some:
            client.lane.send(p.INPUT, process, some)
            sent, credit = sent + len(some), credit - len(some)
            continue
        frame = client.receive()
        client.others.clear()
        if frame.type == p.INPUT_CREDIT:
            credit += p.Reader(frame.payload).number()
        elif frame.type == p.OUTPUT:
            got += frame.payload[1:]
            client.lane.send(p.OUTPUT_CREDIT, process, p.number(16 + len(frame.payload)))
    same(text, got)
    client.lane.send(p.INPUT, process)
    same(0, result_of(process)[2])


def test_exec_signal_timeout_and_kill():
    process = execute(b"exec sleep 100")
    client.call(p.SIGNAL, p.numbers(process, 15))
    same((-1, 15), result_of(process)[2:4])
    fails(errno.ESRCH, client.call, p.SIGNAL, p.numbers(process, 15))
    same(1, result_of(execute(b"exec sleep 100", timeout=50))[4])
    process = execute(b"echo $$; exec sleep 100")
    pid = int(p.Reader(client.next_of(p.OUTPUT).payload).rest()[1:])
    client.lane.send(p.KILL, process)
    end = time.monotonic() + 20
    while os.path.exists(f"/proc/{pid}/fd") and time.monotonic() < end:
        time.sleep(0.01)
    same(False, os.path.exists(f"/proc/{pid}/fd"))


def test_exec_on_a_terminal():
    process = execute(b"stty size; read x", flags=1)
    client.call(p.RESIZE, p.numbers(process, 33, 77))
    client.lane.send(p.INPUT, process, b"x\n")
    same(0, result_of(process)[2])
    process = next(processes)
    client.call(p.EXEC, p.numbers(process, 1, 0, 11, 22) + p.string(b"") + p.string(b"stty size") + p.numbers(0, 0))
    same(b"11 22\r\n", result_of(process)[0])


# ---- Changes, and the connection -----------------------------------------------------------------------


def next_change(after=[0]):
    r = p.Reader(client.next_of(p.CHANGE).payload)
    kind, path, directory, position, exists = r.number(), r.path(), r.object_id(), r.number(), r.number()
    attributes = r.attributes() if exists else None
    if exists and r.number() & 1:
        r.raw(16)
    r.end()
    same(True, position > 0 and position >= after[0])
    after[0] = position
    return kind, path, directory, position, attributes


def changes_until(name):
    while True:
        kind, path, directory, _, attributes = next_change()
        if path == name and kind == 0:
            same(getattr_of(os.path.dirname(name)).id, directory)
            return attributes


def test_changes():
    os.mkdir(at(b"watched"))
    client.call(p.WATCH)
    answer = client.call(p.READDIR, p.target(b"watched") + p.number(1))
    since = answer.body.number()
    same(True, 0 < since <= answer.position)
    answer = client.call(p.READDIR, p.target(b"watched") + p.number(1))
    same(since, answer.body.number())
    same([since], [e.since for e in scan(b"watched", flags=1)])
    write_file(b"watched/new")
    while changes_until(b"watched/new").size != len(b"content\n"):
        pass
    os.unlink(at(b"watched/new"))
    while changes_until(b"watched/new"):
        pass
    os.mkdir(at(b"other"))
    client.lane.send(p.UNWATCH, 0, p.object_id(getattr_of(b"other").id))  # is not watched
    answer = client.call(p.READDIR, p.target(b"watched") + p.number(1))
    same(since, answer.body.number())
    unwatched = getattr_of(b"watched").id
    client.call(p.READDIR, p.target(b"") + p.number(1))  # so that it is seen where they go
    os.rename(at(b"watched"), at(b"moved"))
    os.rename(at(b"other"), at(b"watched"))
    other_since = client.call(p.READDIR, p.target(b"watched") + p.number(1)).body.number()
    client.lane.send(p.UNWATCH, 0, p.object_id(unwatched))
    ends = []
    while not ends:
        kind, _, directory, position, _ = next_change()
        ends += [(directory, position)] if kind == 2 else []
    same(unwatched, ends[0][0])
    same(True, ends[0][1] > answer.position)
    same(other_since, client.call(p.READDIR, p.target(b"watched") + p.number(1)).body.number())


def test_what_watches_may_be_quicker_than_the_request_for_the_feed():
    other = p.Client([helper], root)
    os.mkdir(at(b"early"))
    same(True, other.call(p.READDIR, p.target(b"early") + p.number(1)).body.number() > 0)
    other.call(p.WATCH)
    write_file(b"early/new")
    path = None
    while path != b"early/new":
        r = p.Reader(other.next_of(p.CHANGE).payload)
        r.number()
        path = r.path()
    other.close()


def test_ping():
    client.lane.send(p.PING, 4711)
    same((p.PONG, 4711), client.next_of(p.PONG)[:2])


def test_malformed_arguments_are_an_error_of_the_request():
    fails(errno.EPROTO, client.call, p.GETATTR, b"")
    fails(errno.EPROTO, client.call, p.GETATTR, p.target(b"a/../b") + p.object_id(p.NO_ID))
    for kind, arguments in ((p.GETATTR, p.target(b"") + p.object_id(p.NO_ID)), (p.READLINK, p.target(b"")), (p.STATFS, b""), (p.WATCH, b"")):
        fails(errno.EPROTO, client.call, kind, arguments + b"more")


def test_groups_of_the_caller_count():
    if os.getuid() != 0:
        return
    os.chmod(root, 0o755)
    os.mkdir(at(b"group"), 0o700)
    os.chown(at(b"group"), 0, 4321)
    os.chmod(at(b"group"), 0o770)
    caller = p.put_caller(1234, 1234, 0o027, [4321])
    client.call(p.MKDIR, p.name(b"group/theirs") + p.numbers(0o777, 0, 0), caller=caller)
    s = os.stat(at(b"group/theirs"))
    same((1234, 1234, 0o750), (s.st_uid, s.st_gid, stat.S_IMODE(s.st_mode)))


def test_session_goes_on_over_a_new_connection():
    first = p.Client([helper], root, linger=20)
    handle = 9
    first.call(p.CREATE, p.name(b"kept") + p.open_flags(os.O_RDWR) + p.numbers(0o600, handle))
    # Two requests leave, and the connection breaks before their answers are read.
    lost = [first.ask(p.WRITE, p.numbers(handle, i) + p.data(b"%d" % i), order=handle) for i in range(2)]
    first.drop()
    second = p.Client([helper], root, resume=first)
    same(1, second.welcome.resumed)
    same([1, 1], [second.wait(i).result for i in lost])
    same(b"01", read_file(b"kept"))
    second.call(p.CLOSE, p.number(handle))
    try:
        p.Client([helper], root, token=secrets.token_bytes(16), resume=second)
    except p.Refused as refused:
        same(-errno.EACCES, refused.args[0])
    else:
        raise AssertionError("a wrong token is good enough")
    # Who has heard more than was sent has seen a later state of this session: it is not gone on with.
    second.lane.received += 1
    try:
        p.Client([helper], root, resume=second)
    except p.Refused as refused:
        same(-errno.ESTALE, refused.args[0])
    else:
        raise AssertionError("a session goes on that was set back")
    second.lane.received -= 1
    second.close()
    third = None
    while not third:
        try:
            third = p.Client([helper], root, resume=second)
        except p.Ended:  # the session was on its way out when this connection came to it
            time.sleep(0.01)
    same((0, True), (third.welcome.resumed, third.welcome.session != second.welcome.session))
    same(0, third.call(p.STATFS).result)
    third.close()


def test_what_is_sent_is_compressed_when_both_say_so():
    if not client.welcome.compression:
        return
    text = b"".join(b"line %d of a text\n" % i for i in range(20000))
    random = os.urandom(200000)
    write_file(b"text", text)
    write_file(b"random", random)
    first = p.Client([helper], root, linger=20, compression=2)

    def read(someone, name, size, handle):
        someone.call(p.OPEN, p.target(name) + p.open_flags(os.O_RDONLY) + p.numbers(handle, 0))
        asked = [someone.ask(p.READ, p.numbers(handle, at, 200000)) for at in range(0, size, 200000)]
        return asked, lambda someone: b"".join(someone.wait(i).body.rest() for i in asked)

    asked, take = read(first, b"text", len(text), 4)
    same(text, take(first))
    # More where the pipe looked thin, as to a busy machine: an answer then comes in pieces.
    same(True, first.lane.compressed >= len(asked))
    count = first.lane.compressed
    asked, take = read(first, b"random", len(random), 5)
    same(random, take(first))
    same(count, first.lane.compressed)  # not these
    # What was sent again over a new connection is part of its stream, or of none.
    asked, take = read(first, b"text", len(text), 6)
    first.drop()
    second = p.Client([helper], root, resume=first, compression=2)
    same(1, second.welcome.resumed)
    same(text, take(second))
    same(True, second.lane.compressed > 0)
    third = p.Client([helper], root, resume=second)
    asked, take = read(third, b"text", len(text), 7)
    same(text, take(third))
    same(0, third.lane.compressed)
    third.close()


def beside(channel, resume=None):
    return p.Client([helper], root, resume=resume or client, channel=channel)


def refuses(error, action, *arguments):
    try:
        action(*arguments)
    except p.Refused as refused:
        same(-error, refused.args[0])
    else:
        raise AssertionError("nothing was refused")


def ends(someone):
    try:
        while True:
            someone.receive()
    except p.Ended:
        someone.drop()


def test_more_channels_of_a_session_read():
    content = os.urandom(1000000)
    write_file(b"spread", content)
    handle, _ = open_file(b"spread")
    same(4, client.welcome.channels)
    channels = [client, *map(beside, (1, 2, 3))]
    same([client.welcome.session] * 4, [c.welcome.session for c in channels])
    asked = [c.ask(p.READ, p.numbers(handle, i * 250000, 250000)) for i, c in enumerate(channels)]
    same(content, b"".join(c.wait(i).body.rest() for c, i in zip(channels, asked)))
    # A new connection takes the channel over, and the others do not notice.
    again = beside(2)
    ends(channels[2])
    for c in (again, channels[1], client):
        same(content[:10], c.call(p.READ, p.numbers(handle, 0, 10)).body.rest())
    close(handle)
    fails(errno.EBADF, again.call, p.READ, p.numbers(handle, 0, 10))
    for c in (again, channels[1], channels[3]):
        c.drop()


def ask_detached(handle, offset, size, by=None):
    return (by or client).ask(p.WRITE_DETACHED, p.numbers(handle, offset, size), order=handle)


def send_content(by, identifier, content):
    """Returns once the helper has it."""
    by.lane.send(p.DATA, identifier, content)
    if by is client:
        client.call(p.STATFS)
    else:
        by.wait(by.ask(p.READ, p.numbers(0, 0, 1)))


def waits(identifier):
    try:
        client.wait(identifier, 0.3)
    except TimeoutError:
        return
    raise AssertionError("it has an answer")


def test_content_of_a_write_comes_by_another_connection():
    same(p.CAN_DETACH, client.welcome.capabilities & p.CAN_DETACH)
    handle, other = create(b"detached"), beside(1)
    before = ask_detached(handle, 2, 5)
    behind = client.ask(p.WRITE, p.numbers(handle, 4) + p.data(b"BEHIND"), order=handle)
    waits(before)
    waits(behind)
    same(0, os.stat(at(b"detached")).st_size)
    send_content(other, before, b"later")
    same([5, 6], [client.wait(i).result for i in (before, behind)])
    same(b"\0\0laBEHIND", read_file(b"detached"))
    send_content(other, client.requests + 1, b"early")
    same(5, client.wait(ask_detached(handle, 0, 5)).result)
    same(b"earlyEHIND", read_file(b"detached"))
    by_first = ask_detached(handle, 0, 5)
    send_content(client, by_first, b"first")
    same(5, client.wait(by_first).result)
    same(b"firstEHIND", read_file(b"detached"))
    close(handle)
    other.drop()


def test_content_of_a_write_that_comes_twice_counts_once():
    handle, other, third = create(b"twice"), beside(1), beside(2)
    for by in (other, third):
        send_content(by, client.requests + 1, b"%d" % (by is third))
    done = ask_detached(handle, 0, 1)
    same(1, client.wait(done).result)
    send_content(client, done, b"2")  # the request is done: it means nothing
    done = ask_detached(handle, 1, 1)
    hinders = client.ask(p.STATFS)
    for by in (other, third, client):
        by.lane.send(p.DATA, done, b"3")
    same([1, 0], [client.wait(i).result for i in (done, hinders)])
    same(b"03", read_file(b"twice"))
    close(handle)
    other.drop()
    third.drop()


def test_content_is_forgotten_with_its_connection():
    handle, other = create(b"forgotten"), beside(1)
    send_content(other, client.requests + 1, b"lost")
    other.drop()
    write = ask_detached(handle, 0, 4)
    waits(write)
    send_content(client, write, b"sent")
    same(4, client.wait(write).result)
    same(b"sent", read_file(b"forgotten"))
    close(handle)


def test_writes_that_wait_for_content_keep_nobody_else_waiting():
    handles_ = [create(b"waiting-%d" % i) for i in range(100)]
    asked = [ask_detached(handle, 0, 4) for handle in handles_]
    same(0, client.call(p.STATFS).result)
    for i in asked:
        client.lane.send(p.DATA, i, b"%04d" % i)
    same([4] * 100, [client.wait(i).result for i in asked])
    for i, identifier in enumerate(asked):
        same(b"%04d" % identifier, read_file(b"waiting-%d" % i))
    for handle in handles_:
        close(handle)


def test_content_of_another_size_is_malformed():
    handle = create(b"size")
    for size in (3, 5, 0, 1 << 21):
        write = ask_detached(handle, 0, size)
        send_content(client, write, b"four")
        same(-71, client.wait(write).result)
    same(b"", read_file(b"size"))
    same(4, write_at(handle, b"four"))
    close(handle)


def write_at(handle, content):
    return write(handle, 0, content)


def test_a_write_whose_content_never_comes_ends_with_a_cancel_or_the_session():
    handle = create(b"never")
    cancelled = ask_detached(handle, 0, 4)
    waits(cancelled)
    client.lane.send(p.CANCEL, cancelled)
    same(-errno.EINTR, client.wait(cancelled).result)
    same(4, write_at(handle, b"next"))
    close(handle)
    someone = p.Client([helper], root)
    someone.call(p.CREATE, p.name(b"nobody") + p.open_flags(os.O_RDWR) + p.numbers(0o644, 1))
    ask_detached(1, 0, 4, someone)
    someone.close()
    same(0, someone.helper.returncode)
    same(b"", read_file(b"nobody"))


def test_content_without_requests_is_bounded():
    def send_many(first, count):
        other = beside(1)
        try:
            for i in range(count):
                other.lane.send(p.DATA, first + i, bytes(1 << 20))
        except p.Ended:
            pass
        return other

    ends(send_many(1 << 30, 33))
    handle, other = create(b"bounded"), send_many(1 << 29, 31)  # what came before went with its connection
    send_content(other, client.requests + 1, b"good")
    same(4, client.wait(ask_detached(handle, 0, 4)).result)
    same(b"good", read_file(b"bounded"))
    close(handle)
    other.drop()


def test_content_of_what_is_no_write_ends_the_connection():
    someone = p.Client([helper], root)
    someone.call(p.CREATE, p.name(b"no-write") + p.open_flags(os.O_RDWR) + p.numbers(0o644, 1))
    holder, _ = open_file(b"no-write", os.O_RDWR)
    client.call(p.LOCK, p.number(holder) + p.put_lock(p.Lock(p.FLOCK, p.EXCLUSIVE, 1, 0, 0, 0)) + p.numbers(0, 0))
    lock = someone.ask(p.LOCK, p.number(1) + p.put_lock(p.Lock(p.FLOCK, p.EXCLUSIVE, 1, 0, 0, 0)) + p.numbers(1, 0))
    someone.lane.send(p.DATA, lock, b"content")
    ends(someone)
    close(holder)


def test_a_channel_does_nothing_but_read():
    other = beside(1)
    other.ask(p.MKDIR, p.name(b"by-channel") + p.numbers(0o777, 0, 0))
    ends(other)
    same(0, client.call(p.STATFS).result)
    same(False, os.path.exists(at(b"by-channel")))


def test_channels_are_for_whom_the_session_belongs_to():
    refuses(errno.ENOTCONN, p.Client, [helper], root, 0, None, None, 1)
    refuses(errno.EACCES, p.Client, [helper], root, 0, secrets.token_bytes(16), client, 1)
    same(0, client.call(p.STATFS).result)


def test_channels_end_with_the_session():
    first = p.Client([helper], root)
    other = beside(3, first)
    first.close()
    ends(other)


def test_the_helper_ends_after_goodbye():
    client.close()
    same(0, client.helper.returncode)


def connect():
    global client
    client = p.Client([helper], root)


functions.run(globals(), root, connect)
