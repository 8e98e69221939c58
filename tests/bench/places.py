#!/usr/bin/env python3
"""places.py BUILD_DIR [--files N] [--megabytes N] [--json FILE]

What a mount of a running container costs beside the engine's own `exec`, for each engine that can
run here, and for comparison over a private sshd on loopback: how long a mount takes, a command
over the open stream, warm work on the mount, and a large file against `exec cat`.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import statistics
import struct
import subprocess
import sys

import benchlib
import remote
from benchlib import Mount, Table, median_of, run, timed

STARTS = 5
EXECS = 300


class Engine:
    """A container "bench" of an engine of our own, with the data at /data."""

    def __init__(self, name, script, data, isthmus):
        self.name, self.uri = name, f"{name}://bench/data"
        self.shell = [name, "exec", "-i", "bench", "sh", "-c"]
        self.options = []
        self.process = subprocess.Popen(
            [script, name, data], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"ISTHMUS": isthmus}
        )
        self.environment = {}
        self.reason = None
        for line in self.process.stdout:
            key, separator, value = line.strip().partition("=")
            if line == "ready\n":
                return
            if separator:
                self.environment[key] = value
            else:
                self.reason = line.strip()

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


class SshHost:
    """A private sshd on loopback."""

    def __init__(self, tmp, linksim, data):
        self.name, self.uri = "ssh", f"ssh://box{data}"
        self.far = remote.FarEnd(tmp, linksim, 0, 0)
        self.shell = ["ssh", "-F", str(self.far.config), "box"]
        self.options = ["-o", f"ssh_command=ssh -F {self.far.config}"]
        self.environment, self.reason = {}, None
        self.data = data

    def stop(self):
        self.far.stop()


def receive(connection, size):
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            sys.exit("bench: the daemon closed the connection")
        data += part
    return data


def exec_true(control):
    """As a tool does it: the daemon's control socket, no process of ours."""
    request = json.dumps({"request": "exec", "argv": ["true"], "cwd": "", "stdin_closed": True}).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(control)
        connection.sendall(struct.pack("<IB", len(request), ord("J")) + request)
        while True:
            size, kind = struct.unpack("<IB", receive(connection, 5))
            payload = receive(connection, size)
            if kind == ord("X"):
                assert json.loads(payload)["exit_code"] == 0
                return
            if kind == ord("F"):
                sys.exit(f"bench: exec: {payload}")


def measure(place, mount, args, put):
    """Every row of one place; `mount` is in the foreground, so its time is until it answers."""
    megabytes = args.megabytes
    directory = "/data" if place.name != "ssh" else place.data
    run([*place.shell, "true"])
    put("exec true", median_of(STARTS, lambda: run([*place.shell, "true"])))
    mount.start()  # once before: the helper is there
    mount.stop()
    put("mount", median_of(STARTS, mount.start, mount.stop))
    control = os.getxattr(mount.point, "user.isthmus.control").rstrip(b"\0").decode()
    put("exec true over the open stream", statistics.median(timed(lambda: exec_true(control)) for _ in range(EXECS)))
    for name, action in (("rg", remote.rg), ("git status", remote.git_status)):
        action(mount.point)
        put(f"warm {name}", median_of(STARTS, lambda action=action: action(mount.point)))
    mount.stop()
    command = [*place.shell, f"cat {directory}/big"]

    def cat():
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)

    put(f"{megabytes} MB by exec cat", median_of(3, cat))

    def cold():
        mount.stop()
        shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)
        os.mkdir(os.environ["XDG_CACHE_HOME"], 0o700)
        mount.start()

    put(f"{megabytes} MB by the mount, cold", median_of(3, lambda: remote.read_big(mount.point), cold))
    mount.stop()


# What a row should be, of the row that it is compared with.
AIMS = {"mount": "exec true + 100 ms", "exec true over the open stream": "1 ms"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--files", type=int, default=738)
    parser.add_argument("--bytes", type=int, default=18_000_000)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--only", default="podman,docker,ssh")
    parser.add_argument("--json")
    for name in ("--rtt", "--rate", "--mbit", "--user"):
        parser.add_argument(name, help="(of other benches)")
    for name in ("--awake", "--io-uring"):
        parser.add_argument(name, action="store_true", help="(of other benches)")
    args = parser.parse_args()

    build = args.build.resolve()
    isthmus = str(build / "fs/isthmus")
    data = build / f"bench-places-{args.files}"
    data.mkdir(exist_ok=True)
    benchlib.make_tree(data / "tree", args.files, args.bytes)
    benchlib.make_file(data / "big", args.megabytes << 20)
    note = benchlib.note_load()
    rows, names = {}, []
    here = pathlib.Path(__file__).resolve().parent
    with benchlib.private_directory() as tmp:
        for name in args.only.split(","):
            if name == "ssh":
                place = SshHost(tmp, str(build / "tests/bench/linksim"), data)
            else:
                place = Engine(name, str(here / "engine.sh"), str(data), isthmus)
            if place.reason:
                print(f"{name}: {place.reason}", file=sys.stderr)
                continue
            os.environ.update(place.environment)
            argv = [isthmus, "mount", "-f", *place.options, place.uri, str(tmp / "mnt")]
            mount = Mount(name, tmp / "mnt", argv)
            names.append(name)

            def put(work, seconds, name=name):
                rows.setdefault(work, {})[name] = seconds
                print(f"  {name}: {work}: {benchlib.show_time(seconds)}", file=sys.stderr)

            try:
                measure(place, mount, args, put)
            finally:
                mount.stop()
                place.stop()
    table = Table(f"places: {args.files} files; medians; {note}", names, [], ["aim"])
    aims = AIMS | {f"{args.megabytes} MB by the mount, cold": "exec cat / 0.8"}
    for work, values in rows.items():
        table.add(work, values, aim=aims.get(work, ""))
    table.print()
    benchlib.write_json(args.json, [table], note)


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C.UTF-8"
    main()
