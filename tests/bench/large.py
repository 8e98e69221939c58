#!/usr/bin/env python3
"""large.py BUILD_DIR [--rtt MS] [--rate MBIT] [--json FILE]

A tree that is larger than the memory that the cache may take: 160 MB in 11,000 files over ssh, read
again and again, with memory= at a third and a tenth of it and by default.  Beside it bindfs with
caches on the tree itself, and tar over a kept ssh connection.  "cold" means just mounted with empty
caches.  In brackets: round trips that callers waited for, and files read from the disk store.

Fails if a warm pass asks the workspace or reads the store, takes more than 1.5 times as long as
bindfs, or if a cold rg takes more than 1.2 times as long as tar.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys

import benchlib
from benchlib import Mount, Table, run, timed
from local import BINDFS_TUNED
from remote import FarEnd, RoundTrips, find, git_status, numbers_named, rg

FILES, BYTES = 11_000, 160_000_000
WARM_PASSES = 5
WARM_MOST, COLD_MOST = 1.5, 1.2  # times bindfs, times tar


class Counters:
    """Round trips waited for, and files read from the store, since the last call."""

    def __init__(self, isthmus):
        self.isthmus, self.round_trips, self.last = isthmus, RoundTrips(isthmus), (0, 0)

    def since(self, mount):
        if not mount.name.startswith("isthmus"):
            return None
        status = json.loads(run([self.isthmus, "status", str(mount.point), "--json"]))
        # RoundTrips knows its mounts by their names.
        named = Mount("isthmus", mount.point, None)
        named.process = mount.process
        now = (self.round_trips(named)[0], max(numbers_named(status, "disk_hits")))
        last, self.last = self.last, now
        return now[0] - last[0], now[1] - last[1]


def measure(mounts, counters, fresh):
    """By work and mount: seconds, and the counters."""
    rows = {}
    for name, action in (("find", find), ("rg", rg), ("git status", git_status)):
        for mount in mounts:
            mount.stop()
            fresh()
            mount.start()
            counters.last = (0, 0)
            counters.since(mount)
            seconds = timed(lambda: action(mount.point))
            rows.setdefault(f"cold {name}", {})[mount.name] = seconds, counters.since(mount)
            action(mount.point)  # what git read ahead is stored, racy entries are old
            counters.since(mount)
            passes = [timed(lambda: action(mount.point)) for _ in range(WARM_PASSES)]
            rows.setdefault(f"warm {name}", {})[mount.name] = (
                statistics.median(passes),
                counters.since(mount),
            )
            mount.stop()
    return rows


def misses_of(rows, tar_seconds):
    """What misses its bar, as sentences."""
    for work, row in rows.items():
        for name, (seconds, counted) in row.items():
            if not counted:
                continue
            if work.startswith("warm"):
                bound = row["bindfs"][0] * WARM_MOST
                if any(counted):
                    yield f"{work}, {name}: {counted[0]} round trips, {counted[1]} from disk, want 0"
                if seconds > bound:
                    yield f"{work}, {name}: {seconds:.3f} s, want {bound:.3f} at most"
            elif work == "cold rg" and seconds > tar_seconds * COLD_MOST:
                yield f"{work}, {name}: {seconds:.2f} s, want {tar_seconds * COLD_MOST:.2f} at most"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rtt", type=float, default=20, metavar="MS")
    parser.add_argument("--rate", "--mbit", type=float, default=0, metavar="MBIT")
    parser.add_argument("--isthmus", help="another build of it, to compare")
    parser.add_argument("--json")
    args = parser.parse_args()

    build = args.build.resolve()
    isthmus = args.isthmus or str(build / "fs/isthmus")
    data = build / "bench-large"
    data.mkdir(exist_ok=True)
    benchlib.make_tree(data / "tree", FILES, BYTES)
    note = benchlib.note_load()
    with benchlib.private_directory() as tmp:
        far = FarEnd(tmp, str(build / "tests/bench/linksim"), args.rtt, args.rate)

        def isthmus_mount(name, *options):
            command = [isthmus, "mount", "-f", "-o", f"ssh_command=ssh -F {far.config}"]
            command += [word for option in options for word in ("-o", option)]
            return Mount(name, tmp / name, [*command, f"ssh://box{data}", str(tmp / name)])

        mounts = [
            Mount("native", data, None),
            Mount(
                "bindfs",
                tmp / "bindfs",
                ["bindfs", "-f", "-o", BINDFS_TUNED, str(data), str(tmp / "bindfs")],
            ),
            isthmus_mount("isthmus"),
            isthmus_mount("isthmus-3rd", f"memory={BYTES // 3}"),
            isthmus_mount("isthmus-10th", f"memory={BYTES // 10}"),
        ]
        try:
            rg(data)
            far.open_master()
            run(far.ssh() + ["box", "true"])
            tar_seconds = timed(lambda: run(far.ssh() + ["box", f"tar -C {data} -cf - tree"]))
            far.close_master()
            rows = measure(mounts, Counters(isthmus), lambda: benchlib.fresh_cache(tmp))
        finally:
            for mount in mounts:
                mount.stop()
            far.stop()
    table = Table(
        f"large: {args.rtt:g} ms round trip, {FILES} files, {BYTES // 1_000_000} MB; {note}",
        [m.name for m in mounts] + ["tar"],
        [("isthmus", "bindfs"), ("isthmus-10th", "bindfs"), ("isthmus", "tar")],
        ["trips, from disk (default; 3rd; 10th)"],
    )
    for work, row in rows.items():
        values = {name: seconds for name, (seconds, _) in row.items()}
        if work == "cold rg":
            values["tar"] = tar_seconds
        counted = "; ".join("{} {}".format(*count) for _, count in row.values() if count)
        table.add(work, values, **{table.note_columns[0]: counted})
    table.print()
    benchlib.write_json(args.json, [table], note)
    misses = list(misses_of(rows, tar_seconds))
    print("\n".join(f"MISSED: {line}" for line in misses))
    sys.exit(1 if misses else 0)


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C.UTF-8"
    main()
