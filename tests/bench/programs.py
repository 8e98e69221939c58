#!/usr/bin/env python3
"""programs.py BUILD_DIR [--rtt MS] [--rounds N] [--files N] [--only WORDS] [--json FILE]

What programs do all day, in a directory itself, on sshfs and bindfs (where they are installed;
bindfs shows what FUSE alone costs here) and on isthmus over ssh to this machine: SQLite with four
writers (with locks=local, too), configure, venv, npm, git, thousands of small files.  Each round
does one piece of work on every file system by turns, so that what else the machine does meets all
of them; a row has medians, and the ratios count.  "waited" are isthmus's round trips that a
caller waited for, "all" those of read-ahead and of queued writes, too, each of the last round.
Then the memory of the daemon over ten rounds of making, reading and removing files.
"""

import argparse
import base64
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tarfile
import time

import benchlib
from benchlib import Mount, Table, run, timed
from remote import FarEnd, RoundTrips

WRITERS, TRANSACTIONS = 4, 25
PACKAGES = 100
CHURN_ROUNDS = 10

# ---- SQLite ---------------------------------------------------------------------

WRITER = """
import sqlite3, sys
path, number, transactions = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
base = sqlite3.connect(path, timeout=120, isolation_level=None)
for step in range(transactions):
    base.execute("begin immediate")
    base.execute("update counter set value = value + 1")
    base.execute("insert into line values (?, ?, ?)", (number, step, "text " * 20))
    base.execute("commit")
base.close()
"""


def write_base(place, mode):
    """All writers end, and the base has what each of them wrote."""
    path = place / "base"
    base = sqlite3.connect(path, isolation_level=None)
    base.execute(f"pragma journal_mode = {mode}")
    base.execute("create table line (writer, step, text)")
    base.execute("create table counter (value)")
    base.execute("insert into counter values (0)")
    base.close()
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(n), str(TRANSACTIONS)])
        for n in range(WRITERS)
    ]
    failed = sum(writer.wait() != 0 for writer in writers)
    base = sqlite3.connect(path)
    (value,) = base.execute("select value from counter").fetchone()
    (lines,) = base.execute("select count(*) from line").fetchone()
    (check,) = base.execute("pragma integrity_check").fetchone()
    base.close()
    if failed or value != WRITERS * TRANSACTIONS or lines != value or check != "ok":
        sys.exit(f"bench: SQLite ({mode}) in {place}: {failed} writers failed, {value}, {lines}, {check}")


# ---- configure --------------------------------------------------------------------

CONFIGURE_AC = """
AC_INIT([bench], [1.0])
AC_CONFIG_HEADERS([config.h])
AC_PROG_CC
AC_PROG_INSTALL
AC_CHECK_HEADERS([{headers}])
AC_CHECK_FUNCS([{functions}])
AC_CHECK_SIZEOF([long])
AC_CHECK_SIZEOF([void *])
AC_TYPE_SIZE_T
AC_C_BIGENDIAN
AC_CONFIG_FILES([Makefile])
AC_OUTPUT
"""
HEADERS = """fcntl.h unistd.h stdlib.h string.h sys/time.h sys/stat.h sys/socket.h netdb.h poll.h
 termios.h locale.h wchar.h aio.h""".split()
FUNCTIONS = """mmap getpagesize strdup strtol memmove select socket gettimeofday posix_fadvise
 openat renameat2 statx copy_file_range getrandom mkostemp nosuchfunction""".split()


def make_configure(path):
    """The script that autoconf makes; without autoconf there is no such row."""
    if not shutil.which("autoconf"):
        return False
    if not (path / "configure").exists():
        path.mkdir(exist_ok=True)
        text = CONFIGURE_AC.format(headers=" ".join(HEADERS), functions=" ".join(FUNCTIONS))
        (path / "configure.ac").write_text(text)
        (path / "config.h.in").write_text("#undef HAVE_MMAP\n")
        (path / "Makefile.in").write_text("CC = @CC@\n")
        run(["autoconf"], cwd=path)
        shutil.copy("/bin/true", path / "install-sh")
        shutil.rmtree(path / "autom4te.cache", ignore_errors=True)
    return True


# ---- npm --------------------------------------------------------------------------


def package_tar(name):
    """A package as the registry has it: gzipped, all of it below package/."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        files = {"package.json": json.dumps({"name": name, "version": "1.0.0"})}
        files |= {f"lib/part{n}.js": "module.exports = 1\n" * 50 for n in range(10)}
        for path, text in files.items():
            entry = tarfile.TarInfo(f"package/{path}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


def make_npm_project(path):
    """A project with a lock file, all of whose packages are tars beside it."""
    if not shutil.which("npm"):
        return False
    if (path / "package-lock.json").exists():
        return True
    (path / "tars").mkdir(parents=True)
    dependencies, packages = {}, {}
    for number in range(PACKAGES):
        name, tar = f"p{number}", package_tar(f"p{number}")
        (path / f"tars/{name}.tgz").write_bytes(tar)
        dependencies[name] = f"file:tars/{name}.tgz"
        packages[f"node_modules/{name}"] = {
            "version": "1.0.0",
            "resolved": dependencies[name],
            "integrity": "sha512-" + base64.b64encode(hashlib.sha512(tar).digest()).decode(),
        }
    root = {"name": "bench", "version": "1.0.0", "dependencies": dependencies}
    lock = {"name": "bench", "version": "1.0.0", "lockfileVersion": 3, "requires": True}
    lock["packages"] = {"": root, **packages}
    (path / "package.json").write_text(json.dumps(root))
    (path / "package-lock.json").write_text(json.dumps(lock))
    return True


# ---- git ----------------------------------------------------------------------------


def make_repository(path):
    """A tree with a history of 30 commits, and a branch to be rebased."""
    if (path / "done").exists():
        return
    shutil.rmtree(path, ignore_errors=True)
    benchlib.make_tree(path / "tree", 1000, 10_000_000)
    git = ["git", "-C", str(path / "tree")]
    for branch, count in (("topic", 10), ("main", 20)):
        run(git + ["checkout", "-q", "-B", branch, *(["topic~10"] if branch == "main" else [])])
        for number in range(count):
            place = path / f"tree/dir{number % 20}/{branch}{number}.c"
            place.write_text(f"int {branch}{number};\n" * 200)
            run(git + ["add", "-A"])
            run(git + ["commit", "-qm", f"{branch} {number}"])
    (path / "done").touch()


def work_with_git(place, source):
    run(["git", "clone", "-q", "--no-local", "-b", "topic", str(source), "clone"], cwd=place)
    clone = place / "clone"
    run(["git", "rebase", "-q", "origin/main"], cwd=clone)
    run(["git", "gc", "-q"], cwd=clone)
    run(["git", "status", "--porcelain"], cwd=clone)


# ---- small files ----------------------------------------------------------------------


def make_files(place, count):
    for start in range(0, count, 1000):
        directory = place / f"files/d{start // 1000}"
        directory.mkdir(parents=True)
        for number in range(start, min(start + 1000, count)):
            (directory / f"file{number}").write_text(f"line of {number}\n")


def find_files(place):
    run(["find", "files", "-newer", "/proc/self/exe", "-size", "+100k"], cwd=place)


def grep_files(place):
    found = run(["grep", "-rl", "line of 77$", "files"], cwd=place)
    assert len(found.splitlines()) == 1, found


def remove_files(place):
    run(["rm", "-rf", "files"], cwd=place)


# ---- the rows -------------------------------------------------------------------------


def make_venv(place):
    run([sys.executable, "-m", "venv", "venv"], cwd=place)


def compile_all(place):
    run([str(place / "venv/bin/python"), "-m", "compileall", "-q", "-f", "venv/lib"], cwd=place)


def steps(args, sources):
    """(row, what is done with a place of its own), in the order in which a place sees them."""
    yield from (
        (f"SQLite {mode}, {WRITERS} writers",
         lambda place, mode=mode: [(place / mode).mkdir(), write_base(place / mode, mode)])
        for mode in ("wal", "delete", "truncate")
    )
    if make_configure(sources / "configure"):
        yield "configure", lambda place: run(
            ["bash", sources / "configure/configure", "--quiet"], cwd=place / "build"
        )
    yield "python -m venv", make_venv
    yield "compileall of it", compile_all
    if make_npm_project(sources / "npm"):
        yield f"npm ci, {PACKAGES} packages", lambda place: run(
            ["npm", "ci", "--offline", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=place / "npm",
        )
    make_repository(sources / "repository")
    yield "git clone, rebase, gc", lambda place: work_with_git(place, sources / "repository/tree")
    yield f"make {args.files} files", lambda place: make_files(place, args.files)
    yield "find in them", find_files
    yield "grep in them", grep_files
    yield "remove them", remove_files


def prepare_place(place, sources):
    """Made where the far end is, before the mounts see it."""
    shutil.rmtree(place, ignore_errors=True)
    (place / "build").mkdir(parents=True)
    if (sources / "configure").exists():
        for name in ("config.h.in", "Makefile.in", "install-sh"):
            shutil.copy(sources / "configure" / name, place / "build")
    if (sources / "npm").exists():
        shutil.copytree(sources / "npm", place / "npm")


class Row:
    def __init__(self, name):
        self.name, self.seconds, self.trips = name, {}, None

    def measure(self, mount, action, round_trips):
        before = round_trips(mount)
        try:
            seconds = timed(action)
        except (SystemExit, OSError) as failure:
            if mount.name in ("native", "isthmus"):
                raise
            print(f"  {self.name}: {mount.name} failed: {failure}", file=sys.stderr)
            return
        after = round_trips(mount)
        self.seconds.setdefault(mount.name, []).append(seconds)
        if before:
            self.trips = [a - b for a, b in zip(after, before)]
        print(f"  {self.name}: {mount.name} {benchlib.show_time(seconds)}", file=sys.stderr)

    def add_to(self, table):
        notes = dict(zip(("waited", "all"), self.trips or ()))
        values = {name: statistics.median(all_) for name, all_ in self.seconds.items()}
        table.add(self.name, values, **notes)


def measure_programs(args, mounts, data, sources, table, isthmus):
    rows = [(Row(name), action) for name, action in steps(args, sources)]
    rows = [(row, action) for row, action in rows if re.search(args.only, row.name)]
    round_trips = RoundTrips(isthmus)
    for number in range(args.rounds):
        for m in mounts:
            prepare_place(data / m.name, sources)
            m.start()
        for row, action in rows:
            for m in mounts[number % len(mounts):] + mounts[: number % len(mounts)]:
                if not takes_part(m, row):
                    continue
                row.measure(m, lambda: action(m.point / m.name), round_trips)
        for m in mounts:
            m.stop()
    for row, _ in rows:
        row.add_to(table)


# ---- memory ---------------------------------------------------------------------------


def anonymous_mb(pid):
    """Megabytes of a process' own, in memory or swapped out."""
    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    fields = dict(re.findall(r"^(\w+): +(\d+) kB", rollup, re.M))
    return (int(fields["Anonymous"]) + int(fields["Swap"])) / 1024


def idle_mb(pid, seconds=6):
    """After what the daemon does when nothing has happened for a while."""
    time.sleep(seconds)
    return anonymous_mb(pid)


def measure_memory(args, mount, data, isthmus):
    """Megabytes after each of the rounds; "known" while the files of the last one are there."""
    table = Table(
        f"memory of the daemon, idle: {args.files} files made, read and removed in each round",
        ["just mounted", "round 1", "round 2", f"round {CHURN_ROUNDS}", "files known"],
        [(f"round {CHURN_ROUNDS}", "round 2")],
    )
    place = mount.point / "churn"
    (data / "churn").mkdir()
    mount.start()
    values = {"just mounted": idle_mb(mount.process.pid)}
    for number in range(1, CHURN_ROUNDS + 1):
        make_files(place, args.files)
        grep_files(place)
        if number == CHURN_ROUNDS:
            values["files known"] = idle_mb(mount.process.pid)
        remove_files(place)
        if number in (1, 2, CHURN_ROUNDS):
            values[f"round {number}"] = idle_mb(mount.process.pid)
    mount.stop()
    table.add("anonymous memory", values, show=lambda mb: "-" if mb is None else f"{mb:.1f} MB")
    return table


def mounts_of(tmp, far, data, isthmus):
    mounts = [Mount("native", data, None)]
    if shutil.which("sshfs"):
        argv = ["sshfs", "-f", "-F", str(far.config), f"box:{data}", str(tmp / "sshfs")]
        mounts.append(Mount("sshfs", tmp / "sshfs", argv))
    if shutil.which("bindfs"):
        mounts.append(Mount("bindfs", tmp / "bindfs", ["bindfs", "-f", str(data), str(tmp / "bindfs")]))
    for name, options in (("locks=local", ",locks=local"), ("isthmus", "")):
        argv = [isthmus, "mount", "-f", "-o", f"ssh_command=ssh -F {far.config}{options}"]
        argv += [f"ssh://box{data}", str(tmp / name)]
        mounts.append(Mount(name, tmp / name, argv))
    return mounts


def takes_part(mount, row):
    """Nothing but SQLite locks often."""
    return mount.name != "locks=local" or row.name.startswith("SQLite")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rtt", type=float, default=0, metavar="MS")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=10000)
    parser.add_argument("--only", default=".", metavar="PATTERN", help="rows, or 'memory'")
    parser.add_argument("--json")
    args = parser.parse_args()

    build = args.build.resolve()
    isthmus = str(build / "fs/isthmus")
    sources = build / "bench-programs-sources"
    sources.mkdir(exist_ok=True)
    note = benchlib.note_load()
    tables = []
    with benchlib.private_directory() as tmp:
        data = tmp / "data"
        data.mkdir()
        far = FarEnd(tmp, str(build / "tests/bench/linksim"), args.rtt, 0)
        mounts = mounts_of(tmp, far, data, isthmus)
        ratios = [(m.name, "native") for m in mounts[1:]]
        table = Table(
            f"programs: {args.rtt:g} ms round trip; by turns, medians of {args.rounds}; {note}",
            [m.name for m in mounts], ratios, ["waited", "all"],
        )
        try:
            measure_programs(args, mounts, data, sources, table, isthmus)
            tables.append(table)
            if re.search(args.only, "memory"):
                tables.append(measure_memory(args, mounts[-1], data, isthmus))
        finally:
            for m in mounts:
                m.stop()
            far.stop()
    for table in tables:
        table.print()
    benchlib.write_json(args.json, tables, note)


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C.UTF-8"
    main()
