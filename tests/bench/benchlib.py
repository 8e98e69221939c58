"""benchlib.py: what the benches share: trees, mounts, timing, tables."""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ENVIRONMENT_DIRS = {
    "HOME": "home",
    "XDG_RUNTIME_DIR": "run",
    "XDG_STATE_HOME": "state",
    "XDG_CACHE_HOME": "cache",
}


def run(argv, **options):
    """Runs a command to its end; its output is returned, its failure ends the bench."""
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )
    if done.returncode != 0:
        sys.exit(f"bench: {argv} exited with {done.returncode}: {done.stderr.decode()[-2000:]}")
    return done.stdout


def timed(action):
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def median_of(count, action, prepare=None):
    """Median seconds of `count` runs; prepare() comes before each and is not timed."""
    samples = []
    for _ in range(count):
        if prepare:
            prepare()
        samples.append(timed(action))
    return statistics.median(samples)


@contextlib.contextmanager
def private_directory():
    """A private directory whose sub-directories stand in for HOME and the XDG ones."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="isthmus-bench-"))
    for name, sub in ENVIRONMENT_DIRS.items():
        (path / sub).mkdir(mode=0o700)
        os.environ[name] = str(path / sub)
    os.environ["GIT_CONFIG_NOSYSTEM"] = "1"
    (path / "home/.gitconfig").write_text(
        "[safe]\n\tdirectory = *\n[user]\n\tname = B\n\temail = b@example.org\n"
        # What git does behind the bench's back would race with what the bench does next.
        "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n"
    )
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def fresh_cache(tmp):
    """An empty cache directory.  The one before stays until the end: where ext4 has no journal, making a file looks past
    every inode that was freed within the last minutes, and with 11,000 of them the cache would take three times as long.
    (What other programs removed counts as well: there TMPDIR=/dev/shm helps.)"""
    cache = tmp / "cache"
    if cache.exists():
        cache.rename(tmp / f"cache-{time.time_ns()}")
    cache.mkdir(mode=0o700)


# ---- trees --------------------------------------------------------------------

WORDS = (
    "static const struct int char return if else for while size_t buffer offset length inode "
    "dentry handle lookup count round trip channel mutex queue error result value index next"
).split()


def source_text(rng, size):
    lines, total = [], 0
    while total < size:
        line = "\t" * rng.randrange(3) + " ".join(rng.choices(WORDS, k=rng.randrange(3, 11)))
        lines.append(line)
        total += len(line) + 1
    return "\n".join(lines) + "\n"


def make_tree(path, files, total_bytes, git=True):
    """A tree that looks like sources; the same every time.  Kept when it is there."""
    stamp = path / ".complete"
    if stamp.exists():
        return
    shutil.rmtree(path, ignore_errors=True)
    rng = random.Random(files)
    mean = total_bytes / files
    blocks = [source_text(rng, 2000) for _ in range(200)]
    for number in range(files):
        place = number // 15
        directory = path / f"dir{place % 40}" / f"sub{place // 40}"
        directory.mkdir(parents=True, exist_ok=True)
        count = max(1, int(rng.expovariate(1 / mean) / 2030))
        text = "".join(rng.choices(blocks, k=count)) + f"needle_{number}\n"
        (directory / f"file{number}.c").write_text(text)
    if git:
        git_here = ["git", "-C", str(path)]
        (path / ".gitignore").write_text(".complete\n")
        run(git_here + ["init", "-q"])
        run(git_here + ["add", "-A"])
        run(git_here + ["commit", "-qm", "tree"])
        # Entries as young as the index are read again by every git status.
        time.sleep(1.1)
        run(git_here + ["update-index", "-q", "--really-refresh"])
    stamp.touch()


def make_tar(path, files):
    """A tar of `files` small files below small/."""
    if path.exists():
        return
    rng = random.Random(files)
    with tempfile.TemporaryDirectory() as tmp:
        for number in range(files):
            directory = pathlib.Path(tmp) / "small" / f"d{number % 20}"
            directory.mkdir(parents=True, exist_ok=True)
            (directory / f"f{number}").write_text(source_text(rng, rng.randrange(200, 4000)))
        run(["tar", "-C", tmp, "-cf", str(path), "small"])


def make_file(path, size):
    if path.exists() and path.stat().st_size == size:
        return
    with open(path, "wb") as f:
        for _ in range(size >> 20):
            f.write(os.urandom(1 << 20))


def make_project(path, files):
    """A C project of `files` files and a Makefile."""
    if (path / "Makefile").exists():
        return
    path.mkdir(parents=True)
    for number in range(files):
        (path / f"part{number}.c").write_text(
            "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
            f"int part{number}(int x) {{ return printf(\"%d\\n\", x + {number}); }}\n"
        )
    (path / "main.c").write_text("int main(void) { return 0; }\n")
    (path / "Makefile").write_text(
        "SRC = $(wildcard *.c)\nOBJ = $(SRC:.c=.o)\nprogram: $(OBJ)\n\t$(CC) -o $@ $(OBJ)\n"
        "clean:\n\trm -f *.o program\n"
    )


# ---- mounts -------------------------------------------------------------------


def is_mounted(path):
    with open("/proc/self/mounts", errors="replace") as mounts:
        return any(line.split()[1] == str(path) for line in mounts)


IO_URING = pathlib.Path("/sys/module/fuse/parameters/enable_uring")


def has_io_uring():
    """Requests can come by io_uring, for mounts that are made while it is switched on."""
    return os.geteuid() == 0 and os.access(IO_URING, os.W_OK)


@contextlib.contextmanager
def io_uring_on():
    before = IO_URING.read_text()
    IO_URING.write_text("Y")
    try:
        yield
    finally:
        IO_URING.write_text(before)


class Mount:
    """A file system daemon in the foreground, on a mount point of its own."""

    def __init__(self, name, point, argv, umount=None, io_uring=False):
        self.name, self.point, self.argv = name, pathlib.Path(point), argv
        self.io_uring = io_uring
        self.process = None
        by_user = [] if os.geteuid() == 0 else ["-u"]
        self.umount = umount or ["fusermount3" if by_user else "umount", *by_user, str(point)]

    def start(self):
        if self.argv is None:
            return
        with io_uring_on() if self.io_uring else contextlib.nullcontext():
            self.mount()

    def mount(self):
        self.point.mkdir(exist_ok=True)
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            self.argv, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )
        deadline = time.monotonic() + 30
        while not is_mounted(self.point):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.log.seek(0)
                sys.exit(f"bench: {self.argv}: no mount: {self.log.read().decode()[-2000:]}")
            time.sleep(0.002)
        os.stat(self.point)

    def stop(self):
        if not self.process:
            return
        subprocess.run(self.umount, stderr=subprocess.DEVNULL)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            subprocess.run(["umount", "-l", str(self.point)], stderr=subprocess.DEVNULL)
        self.process = None

    def restart(self):
        self.stop()
        self.start()


# ---- the change feed ----------------------------------------------------------


def seconds_until_seen(point, workspace, changes=200):
    """Median seconds from a file made in the workspace to its being there on the mount, where
    the kernel caches that it is missing."""
    samples = []
    (point / "seen").mkdir()
    os.listdir(point / "seen")
    for number in range(changes):
        name = f"seen/file{number}"
        for _ in range(3):
            assert not os.path.exists(point / name)
        time.sleep(0.01)
        os.mknod(workspace / name)
        start = time.perf_counter()
        while not os.path.exists(point / name):
            time.sleep(0.00002)
        samples.append(time.perf_counter() - start)
    shutil.rmtree(workspace / "seen")
    return statistics.median(samples)


# ---- tables -------------------------------------------------------------------


def show_time(seconds):
    if seconds is None:
        return "-"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1000:.1f} ms"


class Table:
    """Rows of work, columns of file systems, ratios against two of them."""

    def __init__(self, title, columns, ratios, note_columns=()):
        self.title, self.columns, self.ratios = title, columns, ratios
        self.note_columns = list(note_columns)
        self.rows = []

    def add(self, work, values, show=show_time, **notes):
        """`values`: by column, seconds (or what `show` prints)."""
        self.rows.append({"work": work, "values": values, "show": show, "notes": notes})
        cells = ", ".join(f"{c} {show(values.get(c))}" for c in self.columns if c in values)
        print(f"  {work}: {cells}", file=sys.stderr, flush=True)

    def ratio_text(self, row, of, against):
        a, b = row["values"].get(of), row["values"].get(against)
        return f"{a / b:.2f}" if a is not None and b else "-"

    def print(self):
        head = ["work", *self.columns, *[f"{a}/{b}" for a, b in self.ratios], *self.note_columns]
        lines = [head]
        for row in self.rows:
            line = [row["work"]]
            line += [row["show"](row["values"].get(c)) for c in self.columns]
            line += [self.ratio_text(row, a, b) for a, b in self.ratios]
            line += [str(row["notes"].get(c, "")) for c in self.note_columns]
            lines.append(line)
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        print(f"\n{self.title}")
        for number, line in enumerate(lines):
            cells = [line[0].ljust(widths[0])]
            cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:])]
            print("  ".join(cells).rstrip())
            if number == 0:
                print("  ".join("-" * width for width in widths))

    def as_json(self):
        return {
            "title": self.title,
            "rows": [{k: row[k] for k in ("work", "values", "notes")} for row in self.rows],
        }


def note_load():
    """The figures of a busy machine are noise: say so."""
    load = os.getloadavg()[0]
    text = f"{os.cpu_count()} CPUs, load {load:.1f} at the start, kernel {os.uname().release}"
    if load > 0.7:
        text += "; the machine is busy: figures are noisy"
    return text


def write_json(path, tables, note):
    if path:
        with open(path, "w") as f:
            json.dump({"note": note, "tables": [t.as_json() for t in tables]}, f, indent=1)
