#!/usr/bin/env python3
"""remote.py BUILD_DIR [--rtt MS] [--rate MBIT] [--files N] [--json FILE]

The same work over one simulated link (linksim in front of a private sshd): the directory
itself, sshfs, rclone mount and isthmus; and what the link allows (tar and cat over a kept
ssh connection).  "cold" means just mounted with empty caches.  Round trips are isthmus's:
those that a caller waited for (from the mount log), and all of them in brackets.  With
100,000 files or more it measures what many.py says instead.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

import benchlib
import many
from benchlib import Mount, Table, median_of, run, timed

MANY_FILES = 100_000
RCLONE = "dir-cache-time=1h,attr-timeout=1h,vfs-cache-mode=full,poll-interval=0,vfs-write-back=0s"
OURS = ("isthmus", "back")  # isthmus, and with writes=back


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for_port(port):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        time.sleep(0.02)
    sys.exit(f"bench: nothing listens on port {port}")


class FarEnd:
    """A private sshd on loopback, behind linksim where the link is to have a delay or a rate, and
    the ssh configuration to reach it."""

    def __init__(self, tmp, linksim, rtt_ms, rate_mbit):
        self.dir = tmp / "ssh"
        self.home = tmp / "far"
        self.dir.mkdir(mode=0o700)
        self.home.mkdir(mode=0o700)
        self.config = self.dir / "config"
        for name in ("host", "user"):
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.dir / name)])
        self.processes = []
        self.port = self.start_sshd()
        if rtt_ms or rate_mbit:
            self.start_link(linksim, rtt_ms, rate_mbit)
        self.write_config()

    def start_link(self, linksim, rtt_ms, rate_mbit):
        direct, self.port = self.port, free_port()
        relay = [linksim, "--rtt-ms", str(rtt_ms), "--listen", str(self.port)]
        if rate_mbit:
            relay += ["--rate-mbit", str(rate_mbit)]
        self.processes.append(subprocess.Popen(relay + ["127.0.0.1", str(direct)]))
        wait_for_port(self.port)

    def start_sshd(self):
        port = free_port()
        if os.getuid() == 0:
            run(["install", "-d", "-m", "755", "/run/sshd"])
        shutil.copy(self.dir / "user.pub", self.dir / "authorized_keys")
        locked = f" {os.environ.get('USER', 'root')} L " in f" {run(['passwd', '-S']).decode()}"
        (self.dir / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1:{port}\nHostKey {self.dir}/host\nPidFile none\n"
            f"AuthorizedKeysFile {self.dir}/authorized_keys\nStrictModes no\n"
            # Without PAM, sshd refuses an account whose password is locked, keys or not.
            f"UsePAM {'yes' if locked else 'no'}\n"
            f"SetEnv HOME={self.home} XDG_RUNTIME_DIR={self.home}\nPermitRootLogin yes\n"
            "Subsystem sftp internal-sftp\nMaxStartups 100\n"
        )
        argv = ["/usr/sbin/sshd", "-D", "-e", "-f", str(self.dir / "sshd_config")]
        with open(self.dir / "log", "w") as log:
            self.processes.append(subprocess.Popen(argv, stderr=log))
        wait_for_port(port)
        return port

    def write_config(self):
        self.config.write_text(
            f"Host box\n HostName 127.0.0.1\n Port {self.port}\n User {os.environ.get('USER', 'root')}\n"
            f" IdentityFile {self.dir}/user\n IdentitiesOnly yes\n BatchMode yes\n LogLevel ERROR\n"
            " StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n"
        )

    def ssh(self):
        """ssh over one kept connection: the figures are without connecting."""
        return ["ssh", "-F", str(self.config), "-S", str(self.dir / "master")]

    def open_master(self):
        run(self.ssh() + ["-M", "-N", "-f", "box"])

    def close_master(self):
        subprocess.run(self.ssh() + ["-O", "exit", "box"], stderr=subprocess.DEVNULL)

    def stop(self):
        self.close_master()
        for process in reversed(self.processes):
            process.terminate()
            process.wait()


# ---- the work -------------------------------------------------------------------


def find(point):
    run(["find", "tree", "-size", "+1k"], cwd=point)


def rg(point):
    run(["rg", "-c", "--no-ignore", "needle_77$", "tree"], cwd=point)


def git_status(point):
    run(["git", "--no-optional-locks", "status", "--porcelain"], cwd=point / "tree")


def read_big(point):
    run(["dd", "if=big", "of=/dev/null", "bs=1M", "status=none"], cwd=point)


def write_big(point, megabytes):
    argv = ["dd", "if=/dev/zero", "of=out", "bs=1M", f"count={megabytes}", "conv=fsync"]
    run(argv + ["status=none"], cwd=point)


def read_one(point):
    run(["cat", "tree/dir0/sub0/file0.c"], cwd=point)


def checkout(point, branch):
    run(["git", "checkout", "-q", branch], cwd=point / "switch")


def overwrite(point):
    """Files that are there, written anew in place."""
    for number in range(50):
        (point / "agent" / f"file{number % 10}.txt").write_text(f"text {number}\n")


def prepare_checkout(data, files):
    """A repository whose branches "one" and "two" differ in every file; "one" is checked out."""
    top = data / "switch"
    shutil.rmtree(top, ignore_errors=True)
    top.mkdir()
    git_here = ["git", "-C", str(top)]
    run(git_here + ["init", "-q", "-b", "one"])
    for branch in ("one", "two"):
        if branch == "two":
            run(git_here + ["checkout", "-q", "-b", branch])
        for number in range(files):
            directory = top / f"d{number % 20}"
            directory.mkdir(exist_ok=True)
            (directory / f"f{number}").write_text(f"{branch} {number}\n" * 100)
        run(git_here + ["add", "-A"])
        run(git_here + ["commit", "-qm", branch])
    run(git_here + ["checkout", "-q", "one"])


def agent_step(point, number):
    """What an agent does to a file: look, read, replace, read back, list."""
    directory = point / "agent"
    path, temporary = directory / f"file{number % 10}.txt", directory / f".tmp{number}"
    os.stat(path)
    text = path.read_text()
    temporary.write_text(text + f"step {number}\n")
    os.rename(temporary, path)
    assert path.read_text().endswith(f"step {number}\n")
    assert len(os.listdir(directory)) == 10


def prepare_agent(data):
    shutil.rmtree(data / "agent", ignore_errors=True)
    (data / "agent").mkdir()
    for number in range(10):
        (data / "agent" / f"file{number}.txt").write_text("text\n" * 40)


class Steps:
    """Every row of the table on one file system."""

    def __init__(self, table, mount, args, far_data, archive, fresh, round_trips):
        self.values, self.mount, self.args = table, mount, args
        self.far_data, self.archive = far_data, archive
        self.fresh, self.round_trips = fresh, round_trips

    def measure(self, work, action, times=1, pieces=None):
        row = self.values.setdefault(work, {"values": {}, "notes": {}})
        before = self.round_trips(self.mount)
        row["values"][self.mount.name] = seconds = median_of(times, action)
        print(f"  {self.mount.name}: {work}: {benchlib.show_time(seconds)}", file=sys.stderr)
        after = self.round_trips(self.mount)
        if before:
            waited, everything = after[0] - before[0], after[1] - before[1]
            each = f", {waited / pieces:.2f} each" if pieces else ""
            of = "round trips" if self.mount.name == "isthmus" else "of back"
            row["notes"][of] = f"{waited} ({everything}){each}"
        return seconds

    def measure_changes(self, work, action, pieces):
        """Until the caller goes on, and until the far end has it all."""
        seconds = self.measure(work, action, pieces=pieces)
        command = [self.round_trips.isthmus] if self.mount.name in OURS else []
        command += ["sync"] if command else ["sync", "-f"]
        seconds += timed(lambda: run(command + [str(self.mount.point)]))
        self.values.setdefault(f"{work}, and sync", {"values": {}, "notes": {}})["values"][
            self.mount.name
        ] = seconds

    def cold(self):
        self.mount.stop()
        self.fresh()
        self.mount.start()

    def run(self):
        point = self.mount.point
        for name, action in (("find", find), ("rg", rg), ("git status", git_status)):
            self.cold()
            self.measure(f"cold {name}", lambda action=action: action(point))
            # Of peers that ask the far end again, one run says enough.
            times = 5 if self.mount.name in ("native", *OURS) else 1
            self.measure(f"warm {name}", lambda action=action: action(point), times)
        self.cold()
        self.measure("cold cat of one file", lambda: read_one(point))
        rg(point)
        self.mount.stop()
        self.mount.start()
        self.measure("git status, second mount", lambda: git_status(point))
        self.cold()
        self.measure(f"read {self.args.megabytes} MB", lambda: read_big(point))
        self.measure(
            f"write {self.args.megabytes} MB + fsync",
            lambda: write_big(point, self.args.megabytes),
        )
        (self.far_data / "out").unlink(missing_ok=True)
        prepare_agent(self.far_data)
        self.cold()
        untar = ["tar", "-xf", str(self.archive)]
        count = self.args.small_files
        self.measure_changes(f"untar {count} files", lambda: run(untar, cwd=point), count)
        self.measure_changes("rm -rf of them", lambda: run(["rm", "-rf", "small"], cwd=point), count)
        os.listdir(point)
        self.measure_changes(
            "50 agent steps", lambda: [agent_step(point, n) for n in range(50)], 50
        )
        self.measure_changes("50 files overwritten", lambda: overwrite(point), 50)
        prepare_checkout(self.far_data, count)
        self.cold()
        self.measure_changes(f"git checkout of {count} files", lambda: checkout(point, "two"), count)
        self.mount.stop()


def numbers_named(value, name):
    """Every number called `name` anywhere in a JSON value."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key == name and isinstance(item, (int, float)):
                yield item
            yield from numbers_named(item, name)


class RoundTrips:
    """isthmus's own count: what callers waited for (log), everything (status)."""

    def __init__(self, isthmus):
        self.isthmus = str(isthmus)

    def __call__(self, mount):
        if mount.name not in OURS or not mount.process:
            return None
        status = json.loads(run([self.isthmus, "status", str(mount.point), "--json"]))
        log = run([self.isthmus, "log", str(mount.point), "--json"]).decode(errors="replace")
        waited = sum(sum(numbers_named(json.loads(line), "round_trips")) for line in log.splitlines())
        return waited, max(numbers_named(status, "round_trips"), default=0)


def measure_limits(far, rows, data, args, archive):
    """What the link allows, over an ssh connection that is already there."""
    far.open_master()
    ssh = far.ssh() + ["box"]

    def limit(work, command):
        rows.setdefault(work, {"values": {}, "notes": {}})["values"]["limit"] = timed(
            lambda: run(ssh + [command])
        )

    run(ssh + ["true"])
    for work in ("cold find", "cold git status"):
        limit(work, "true")
    limit("cold rg", f"tar -C {data} -cf - tree")
    limit(f"read {args.megabytes} MB", f"cat {data}/big")
    with open(data / "big", "rb") as big:
        seconds = timed(
            lambda: subprocess.run(
                ssh + [f"cat >{data}/out; sync {data}/out"], stdin=big, check=True
            )
        )
    rows[f"write {args.megabytes} MB + fsync"]["values"]["limit"] = seconds
    (data / "out").unlink()
    (data / "unpacked").mkdir(exist_ok=True)
    with open(archive, "rb") as file:
        rows[f"untar {args.small_files} files"]["values"]["limit"] = timed(
            lambda: subprocess.run(ssh + [f"tar -C {data}/unpacked -xf -"], stdin=file, check=True)
        )
    limit("exec true", "true")
    far.close_master()


def measure_exec(isthmus, mount, rows):
    mount.start()
    run([isthmus, "exec", str(mount.point), "--", "true"])
    samples = sorted(
        timed(lambda: run([isthmus, "exec", str(mount.point), "--", "true"])) for _ in range(5)
    )
    rows.setdefault("exec true", {"values": {}, "notes": {}})["values"]["isthmus"] = samples[2]
    mount.stop()


def measure_feed(mount, data, rows):
    mount.start()
    seconds = benchlib.seconds_until_seen(mount.point, data)
    mount.stop()
    rows["changed there, seen here"] = {"values": {"isthmus": seconds}, "notes": {}}


def mounts_of(tmp, far, data, isthmus, io_uring):
    sftp = f":sftp,host=127.0.0.1,port={far.port},user={os.environ.get('USER', 'root')}"
    sftp += f",key_file={far.dir}/user,shell_type=unix:{data}"
    rclone = ["rclone", "mount", sftp, str(tmp / "rclone")]
    rclone += [f"--{option}" for option in RCLONE.split(",")]


    def isthmus_mount(name, options):
        point = tmp / name
        command = [isthmus, "mount", "-f", "-o", f"ssh_command=ssh -F {far.config}"]
        command += [option for text in options for option in ("-o", text)]
        command += [f"ssh://box{data}", str(point)]
        return Mount(name, point, command, io_uring=io_uring)

    options = ["io_uring"] if io_uring else []
    return [
        Mount("native", data, None),
        Mount(
            "sshfs",
            tmp / "sshfs",
            ["sshfs", "-f", "-F", str(far.config), f"box:{data}", str(tmp / "sshfs")],
        ),
        Mount("rclone", tmp / "rclone", rclone),
        isthmus_mount("isthmus", options),
        isthmus_mount("back", options + ["writes=back"]),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rtt", type=float, default=20, metavar="MS")
    parser.add_argument("--rate", "--mbit", type=float, default=0, metavar="MBIT")
    parser.add_argument("--files", type=int, default=738)
    parser.add_argument("--bytes", type=int, default=18_000_000)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--small-files", type=int, default=200)
    parser.add_argument("--only", default="native,sshfs,rclone,isthmus,back")
    parser.add_argument("--json")
    parser.add_argument("--user", help="(local only)")
    parser.add_argument(
        "--io-uring", action="store_true", help="requests of isthmus come that way (root)"
    )
    parser.add_argument("--awake", action="store_true", help="(local only)")
    args = parser.parse_args()
    if args.io_uring and not benchlib.has_io_uring():
        parser.error("--io-uring: not root, or this kernel has no io_uring for FUSE")

    build = args.build.resolve()
    isthmus = str(build / "fs/isthmus")
    data = build / f"bench-remote-{args.files}"
    data.mkdir(exist_ok=True)
    is_large = args.files >= MANY_FILES
    archive = build / f"bench-small-{args.small_files}.tar"
    if not is_large:
        benchlib.make_tree(data / "tree", args.files, args.bytes)
        benchlib.make_file(data / "big", args.megabytes << 20)
        benchlib.make_tar(archive, args.small_files)
    note = benchlib.note_load()
    rows = {}
    with benchlib.private_directory() as tmp:
        far = FarEnd(tmp, str(build / "tests/bench/linksim"), args.rtt, args.rate)
        mounts = mounts_of(tmp, far, data, isthmus, args.io_uring)
        mounts = [m for m in mounts if m.name in args.only.split(",")]

        def fresh():
            benchlib.fresh_cache(tmp)

        if is_large:
            try:
                tables = [many.measure(args, far, mounts, data, fresh, isthmus)]
            finally:
                for m in mounts:
                    m.stop()
                far.stop()
            tables[0].print()
            benchlib.write_json(args.json, tables, note)
            return

        try:
            for m in mounts:
                Steps(rows, m, args, data, archive, fresh, RoundTrips(isthmus)).run()
            measure_limits(far, rows, data, args, archive)
            for m in mounts:
                if m.name == "isthmus":
                    measure_exec(isthmus, m, rows)
                    measure_feed(m, data, rows)
        finally:
            for m in mounts:
                m.stop()
            far.stop()
            for leftover in ("small", "agent", "switch", "unpacked"):
                shutil.rmtree(data / leftover, ignore_errors=True)
    table = Table(
        f"remote: {args.rtt:g} ms round trip, {args.files} files, cold: one run, warm: medians; {note}",
        [m.name for m in mounts] + ["limit"],
        [("isthmus", "native"), ("isthmus", "sshfs"), ("isthmus", "limit"), ("back", "native")],
        ["round trips", "of back"],
    )
    for work, row in rows.items():
        table.add(work, row["values"], **row["notes"])
    table.print()
    benchlib.write_json(args.json, [table], note)


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C.UTF-8"
    main()
