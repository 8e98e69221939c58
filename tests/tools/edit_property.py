"""edit on random files: what is not replaced stays byte by byte, the diff applies, an unlucky edit
changes nothing, one of two racing edits wins, kill -9 and a full disk lose nothing."""
import hashlib
import os
import random
import signal
import stat
import subprocess
import time

from toolslib import PATIENCE, PROGRAM, check, code, each_in_new_directory, equal, finish, private_home, run

ENDS = [b"\n", b"\r\n", b"\r"]
WORDS = [b"alpha", b"beta", b"gamma", "d\u00e9j\u00e0".encode(), "\u65e5\u672c".encode(), b"x = 1;",
         b"{", b"}", b"\tindent", b"", b"trailing  "]


def random_file(rng):
    kind = rng.randrange(6)
    lines = []
    for i in range(rng.randrange(1, 60)):
        line = b" ".join(rng.choice(WORDS) for _ in range(rng.randrange(0, 5))) + b" #%d" % i
        if kind == 1 and rng.random() < 0.2:
            line += bytes([rng.randrange(0x80, 0x100)])
        lines.append(line + (rng.choice(ENDS) if kind == 2 else ENDS[kind % 3]))
    data = b"".join(lines)
    if rng.random() < 0.2:
        data = b"\xef\xbb\xbf" + data
    if rng.random() < 0.4:
        data = data.rstrip(b"\r\n")
    return data


def pick(rng, data):
    """Some regions that are UTF-8 text and occur once; sorted and apart."""
    regions, at = [], 3 if data.startswith(b"\xef\xbb\xbf") else 0
    for _ in range(rng.randrange(1, 4)):
        start = at + rng.randrange(0, max(1, len(data) // 4))
        end = start + rng.randrange(1, 60)
        piece = data[start:end]
        try:
            piece.decode()
        except UnicodeDecodeError:
            continue
        # A CR LF must not be torn apart: the text of a model never does.
        if not piece or data.count(piece) != 1 or piece.startswith(b"\n") or piece.endswith(b"\r"):
            continue
        regions.append((start, end))
        at = end
    return regions


def patched(directory, old, diff):
    with open(directory + "/patched", "wb") as file:
        file.write(old)
    with open(directory + "/diff", "wb") as file:
        file.write(diff)
    done = subprocess.run(["patch", "--binary", "-s", "patched", "diff"], cwd=directory,
                          capture_output=True, check=False)
    check(done.returncode == 0, "patch: %s" % done.stdout)
    with open(directory + "/patched", "rb") as file:
        return file.read()


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def diff_of(result):
    data = result["data"]
    return read(data["diff_file"]) if data["diff_truncated"] else data["diff"].encode()


def test_random_edits(directory, rounds=120):
    rng = random.Random(5)
    path = directory + "/file"
    for _ in range(rounds):
        data = random_file(rng)
        regions = pick(rng, data)
        if not regions:
            continue
        write(path, data)
        news = [rng.choice(["", "new", "one\ntwo", "z\u00fcrich\n", "a\n\nb\n"]) for _ in regions]
        result = run("edit", {"path": "file", "edits": [
            {"old_text": data[s:e].decode(), "new_text": n} for (s, e), n in zip(regions, news)]},
            directory)
        got = read(path)
        if code(result) == "NO_CHANGE":
            equal(data, got, "no change")
            continue
        if not check(code(result) == "OK", "%s of %r in %r" % (result, regions, data)):
            continue
        # Everything between the regions is there, in order and byte by byte.
        at, where = 0, 0
        for (start, end), new in zip(regions + [(len(data), None)], news + [None]):
            keep = data[at:start]
            check(got[where:where + len(keep)] == keep, "untouched bytes: %r" % keep)
            where += len(keep)
            if new is None:
                equal(len(got), where, "nothing more")
                break
            options = [new.encode(), new.replace("\n", "\r\n").encode(), new.replace("\n", "\r").encode()]
            fits = [o for o in options if got[where:where + len(o)] == o]
            where += len(max(fits, key=len)) if check(fits, "the new text is there") else 0
            at = end
        if not result["data"].get("diff_lossy"):
            equal(got, patched(directory, data, diff_of(result)), "diff applied with patch")


def test_large_files(directory):
    path = directory + "/large"
    many = b"".join(b"line %d of many\n" % i for i in range(600000))
    one = b"x" * 5000000 + b"needle" + b"y" * 5000000
    for data, old, new in [(many, b"line 4711 of many", b"changed"), (one, b"needle", b"pin")]:
        write(path, data)
        start = time.time()
        result = run("edit", {"path": "large", "edits": [
            {"old_text": old.decode(), "new_text": new.decode()}]}, directory)
        check(code(result) == "OK" and time.time() - start < 10, "large: %s" % str(result)[:300])
        equal(hashlib.md5(data.replace(old, new)).digest(), hashlib.md5(read(path)).digest(), "content")
        check(patched(directory, data, diff_of(result)) == read(path), "large diff")


def test_tolerant(directory):
    path = directory + "/t"
    for data, old, want in [
            ("say \u201chi\u201d \u2014 now\n", 'say "hi" - now', "NEW\n"),
            ("a  \nb\t\nc\n", "a\nb\n", "NEWc\n"),
            ("a\r\nb\r\nc\r\n", "a\nb\n", "NEWc\r\n"),
            ("caf\u0065\u0301 x\n", "caf\u00e9 x", "NEW\n"),
            ("\uff21\uff22 \ufb01n\n", "AB fin", "NEW\n"),
            ("f\u00a0(x)\n", "f (x)", "NEW\n"),
            ("\ud55c\uae00 z\n", "\u1112\u1161\u11ab\u1100\u1173\u11af z", "NEW\n")]:
        write(path, data.encode())
        result = run("edit", {"path": "t", "edits": [{"old_text": old, "new_text": "NEW"}]}, directory)
        check(code(result) == "OK" and result["data"]["tolerant"], "tolerant: %r %s" % (data, result))
        equal(want.encode(), read(path), "tolerant: %r" % data)


def test_unlucky_edits_change_nothing(directory):
    path = directory + "/u.json"
    data = b'{"a": 1,\r\n "b": 1, "c": "caf\xe9"}'
    write(path, data)
    os.chmod(path, 0o640)
    before = os.stat(path)
    for edits, want in [
            ([("zzz", "y")], "NO_MATCH"), ([("1", "2")], "AMBIGUOUS_MATCH"), ([('"a"', '"a"')], "NO_CHANGE"),
            ([('"a": 1', "x"), ('a": 1,', "y")], "INVALID_ARGUMENT"), ([('"b"', '"b')], "SYNTAX_ERROR"),
            ([('"a"', "x"), ("nope", "y")], "NO_MATCH"), ([("", "x")], "INVALID_ARGUMENT"),
            ([("caf\ufffd", "x")], "NO_MATCH")]:
        result = run("edit", {"path": "u.json", "edits": [
            {"old_text": o, "new_text": n} for o, n in edits]}, directory)
        equal(want, code(result), str(edits))
        check("ai_message" in result["error"], "it says what to do")
        equal(data, read(path), "content after %s" % want)
    equal((before.st_ino, before.st_mtime_ns), (os.stat(path).st_ino, os.stat(path).st_mtime_ns), "untouched")
    result = run("edit", {"path": "u.json", "edits": [{"old_text": "1", "new_text": "2"}]}, directory)
    check("lines 1, 2" in result["error"]["message"], "line numbers: " + result["error"]["message"])
    equal(["u.json"], os.listdir(directory), "no litter")


def test_what_a_write_keeps(directory):
    path = directory + "/keep"
    write(path, b"old\n")
    os.chmod(path, 0o4751)
    os.setxattr(path, "user.note", b"kept")
    if os.geteuid() == 0:
        os.chown(path, 1234, 2345)
        os.chmod(path, 0o4751)
    os.symlink("keep", directory + "/link")
    result = run("edit", {"path": "link", "edits": [{"old_text": "old", "new_text": "new"}],
                          "create_backup": True}, directory)
    equal("OK", code(result), "through a link")
    status = os.stat(path)
    equal((b"new\n", 0o4751, b"kept"), (read(path), stat.S_IMODE(status.st_mode),
                                        os.getxattr(path, "user.note")), "mode and xattrs")
    if os.geteuid() == 0:
        equal((1234, 2345), (status.st_uid, status.st_gid), "owner")
    check(os.path.islink(directory + "/link"), "the link stays")
    equal(b"old\n", read(path + ".bak"), "backup, beside the target")
    os.link(path, directory + "/second")
    run("write", {"path": "keep", "content": "both\n"}, directory)
    equal((b"both\n", 2), (read(directory + "/second"), os.stat(path).st_nlink), "hard links")
    for want in [".bak", ".bak.1", ".bak.2"]:
        result = run("edit_file", {"path": "second", "content": want}, directory)
        equal("second" + want, result["data"]["backup"], "names of backups")


def test_one_of_two_wins(directory):
    path = directory + "/race"
    for i in range(25):
        write(path, b"start\n")
        expected = run("read", {"path": "race"}, directory)["data"]["hash"]
        racers = [subprocess.Popen(
            [PROGRAM, "tool", "edit", "--root", directory, "--output", "json", "race", "--old-text", "start",
             "--new-text", "winner %d" % n, "--expected-hash", expected],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for n in range(2)]
        outs = [r.communicate(timeout=20 * PATIENCE)[0] for r in racers]
        winners = [n for n in range(2) if racers[n].returncode == 0]
        if check(len(winners) == 1, "exactly one wins, round %d: %s" % (i, winners)):
            equal(b"winner %d\n" % winners[0], read(path), "the winner's text")
            loser = outs[1 - winners[0]]
            check(b"CONFLICT" in loser and b"winner" in loser, "the fresh region: %s" % loser)
    # Without a hash, edits of different places must all be there.
    write(path, b"".join(b"<%d>\n" % n for n in range(12)))
    racers = [subprocess.Popen([PROGRAM, "tool", "edit", "--root", directory, "race", "--old-text", "<%d>" % n,
                                "--new-text", "done %d" % n], stdout=subprocess.DEVNULL) for n in range(12)]
    for racer in racers:
        equal(0, racer.wait(20), "racing edits")
    equal(b"".join(b"done %d\n" % n for n in range(12)), read(path), "no edit is lost")


def test_kill_at_any_moment(directory, rounds=120):
    rng = random.Random(6)
    path = directory + "/victim"
    old, new = b"old" + b"." * 3000000, b"new" + b"." * 3000000
    write(path, old)
    for _ in range(rounds):
        process = subprocess.Popen([PROGRAM, "tool", "edit", "--root", directory, "victim", "--old-text",
                                    "old", "--new-text", "new"], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(rng.random() * 0.03)
        process.send_signal(signal.SIGKILL)
        process.wait()
        got = read(path)
        check(got in (old, new), "a mixture after kill -9")
        if got == new:
            write(path, old)
    for _ in range(50):
        if os.listdir(directory) == ["victim"]:
            break
        time.sleep(0.1)
    equal(["victim"], os.listdir(directory), "no litter")


def test_kill_during_an_overwrite(directory, rounds=60):
    """A file with two names is written in place: a child finishes what was begun."""
    rng = random.Random(7)
    path = directory + "/victim"
    old, new = b"old" + b"." * 9000000, b"new" + b"," * 9000000
    write(directory + "/new", new)
    write(path, old)
    os.link(path, directory + "/second")
    start = time.time()
    run("write", {"path": "victim", "content": old.decode()}, directory)
    whole = time.time() - start
    for _ in range(rounds):
        process = subprocess.Popen([PROGRAM, "tool", "write", "--root", directory, "victim",
                                    "--content-from", directory + "/new"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(whole * rng.uniform(0.3, 1))
        process.send_signal(signal.SIGKILL)
        process.wait()
        for _ in range(100):
            got = read(path)
            if got in (old, new):
                break
            time.sleep(0.02)
        if not check(got in (old, new), "a mixture after kill -9"):
            return
        if got == new:
            run("write", {"path": "second", "content": old.decode()}, directory)
            equal(old, read(path), "the other name")
    equal(["new", "second", "victim"], sorted(os.listdir(directory)), "no litter")


def test_full_disk(directory):
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", directory],
                             capture_output=True, check=False).returncode == 0
    if not mounted:
        print("skipped: a full tmpfs (mounting needs root)")
        return
    try:
        path, big = directory + "/f.txt", "y" * 2000000
        write(path, b"old " * 500000)
        write(directory + "/rest", b"r" * 1700000)
        os.link(directory + "/rest", directory + "/rest2")
        os.symlink("named", directory + "/link")
        for name, arguments in [
                ("write", {"path": "f.txt", "content": big + "z"}),
                ("write", {"path": "new.txt", "content": big}),
                ("write", {"path": "link", "content": big}),
                ("create_file", {"path": "new.txt", "content": big}),
                ("create_file", {"path": "made/for/new.txt", "content": big}),
                ("edit_file", {"path": "f.txt", "content": "small"}),
                ("edit", {"path": "f.txt", "create_backup": True,
                          "edits": [{"old_text": "old", "new_text": "n", "replace_all": True}]}),
                ("write", {"path": "rest", "content": big + big})]:
            result = run(name, arguments, directory)
            equal("NO_SPACE", code(result), "%s on a full disk" % name)
            check("Free space" in result["error"]["ai_message"], "what to do")
            check(read(path) == b"old " * 500000, "the old content is whole after " + name)
            check(read(directory + "/rest") == b"r" * 1700000, "the linked file is whole after " + name)
            equal(["f.txt", "link", "rest", "rest2"], sorted(os.listdir(directory)), "no litter after " + name)
    finally:
        subprocess.run(["umount", directory], check=True)


private_home()
each_in_new_directory(globals())
finish()
