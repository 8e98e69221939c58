"""many.py: what `remote.py --files N` measures of a very large tree, instead of its other rows.

N files in directories of 100, and as many in one directory: a mount, `find` cold and warm by names and
by attributes, what it costs others who work on the mount meanwhile, the memory of the daemon, and
umount; beside native, sshfs and `find` at the far end over a kept ssh connection.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

import benchlib
from benchlib import Table, run, timed

PER_DIRECTORY = 100
OTHERS = 20000  # files that others look at meanwhile, each once


def make_files(path, count, per_directory):
    """Empty files, in directories of so many, a hundred of which are in one.  Kept."""
    stamp = path.with_suffix(".complete")
    if stamp.exists():
        return
    shutil.rmtree(path, ignore_errors=True)
    for start in range(0, count, per_directory):
        number = start // per_directory
        directory = path / f"dir{number // 100}" / f"sub{number % 100}"
        directory.mkdir(parents=True)
        at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        for file in range(start, min(start + per_directory, count)):
            os.mknod(f"source{file}.c", dir_fd=at)
        os.close(at)
    stamp.touch()


def anonymous_mb(pid):
    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    fields = dict(re.findall(r"^(\w+): +(\d+) kB", rollup, re.M))
    return (int(fields["Anonymous"]) + int(fields["Swap"])) / 1024


class Others:
    """Looks at files that nobody has looked at, one after the other, and takes the time."""

    def __init__(self, directory):
        self.directory, self.waits, self.ends = directory, [], False
        self.thread = threading.Thread(target=self.work)

    def work(self):
        for number in range(OTHERS):
            if self.ends:
                return
            self.waits.append(timed(lambda: os.stat(f"{self.directory}/other{number}")))
            time.sleep(0.01)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *ignored):
        self.ends = True
        self.thread.join()


class Progress:
    """What `status` says meanwhile: names that are known, twice a second."""

    def __init__(self, isthmus, point):
        self.isthmus, self.point, self.names, self.ends = isthmus, point, [], threading.Event()
        self.thread = threading.Thread(target=self.work)

    def work(self):
        while not self.ends.wait(0.5):
            status = json.loads(run([self.isthmus, "status", str(self.point), "--json"]))
            self.names.append(status["workspace"]["cache"]["names"])

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *ignored):
        self.ends.set()
        self.thread.join()


FINDS = (("find", ["find"]), ("find -size", ["find", "-size", "+1k"]))


class Rows:
    def __init__(self, table_rows, isthmus, data):
        self.rows, self.isthmus, self.data = table_rows, isthmus, data

    def put(self, work, mount, value, **notes):
        row = self.rows.setdefault(work, {"values": {}, "notes": {}})
        row["values"][mount] = value
        row["notes"] |= notes
        print(f"  {mount}: {work}: {benchlib.show_time(value)} {notes or ''}", file=sys.stderr)

    def find(self, mount, tree, words):
        seconds = timed(lambda: run([words[0], tree, *words[1:]], cwd=mount.point))
        return seconds

    def measure(self, mount, tree, fresh):
        is_ours = mount.name == "isthmus"
        for name, words in FINDS:
            mount.stop()
            fresh()
            self.put(f"{tree}: mount", mount.name, timed(mount.start))
            os.listdir(mount.point)
            progress = Progress(self.isthmus, mount.point) if is_ours else contextlib.nullcontext()
            with Others(mount.point / "others") as others, progress:
                seconds = self.find(mount, tree, words)
            notes = {}
            if is_ours:
                notes["names in status"] = f"{len(set(progress.names))} steps"
            self.put(f"{tree}: cold {name}", mount.name, seconds, **notes)
            waits = sorted(others.waits)
            self.put(f"{tree}: stat meanwhile, median", mount.name, waits[len(waits) // 2])
            self.put(f"{tree}: stat meanwhile, longest", mount.name, waits[-1])
            self.put(f"{tree}: warm {name}", mount.name, self.find(mount, tree, words))
            if is_ours and name == FINDS[-1][0]:
                self.memory(mount, tree)
            self.put(f"{tree}: umount", mount.name, timed(mount.stop))

    def memory(self, mount, tree):
        """Once the daemon has been idle for a while."""
        time.sleep(8)
        pid = mount.process.pid
        status = json.loads(run([self.isthmus, "status", str(mount.point), "--json"]))
        names = status["workspace"]["cache"]["names"]
        megabytes = anonymous_mb(pid)
        each = (megabytes - 20) * 2**20 / names
        print(f"  {tree}: {megabytes:.0f} MB, {names} names: 20 MB and {each:.0f} bytes each", file=sys.stderr)
        self.rows[f"{tree}: cold {FINDS[-1][0]}"]["notes"]["memory"] = f"20 MB + {each:.0f} B a name"


def measure(args, far, mounts, data, fresh, isthmus):
    """The table of all rows."""
    (data / "others").mkdir(exist_ok=True)
    for number in range(OTHERS):
        (data / f"others/other{number}").touch()
    make_files(data / "many", args.files, PER_DIRECTORY)
    make_files(data / "flat", args.files, args.files)
    rows = {}
    work = Rows(rows, isthmus, data)
    far.open_master()
    for tree in ("many", "flat"):
        for mount in mounts:
            work.measure(mount, tree, fresh)
        for name, words in FINDS:
            command = f"cd {data} && {words[0]} {tree} {' '.join(words[1:])}"
            for heat in ("cold", "warm"):  # the far end has it in memory, as for the mounts
                seconds = timed(lambda command=command: run(far.ssh() + ["box", command]))
                work.put(f"{tree}: {heat} {name}", "ssh find", seconds)
    far.close_master()
    table = Table(
        f"many files: {args.files} in directories of {PER_DIRECTORY} (many) and in one (flat); {args.rtt:g} ms",
        [m.name for m in mounts] + ["ssh find"],
        [("isthmus", "sshfs"), ("isthmus", "ssh find")],
        ["names in status", "memory"],
    )
    for name, row in rows.items():
        table.add(name, row["values"], **row["notes"])
    return table
