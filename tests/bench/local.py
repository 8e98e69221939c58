#!/usr/bin/env python3
"""local.py BUILD_DIR [--json FILE] [--small] [--user NAME] [--awake]: local: against the
directory itself and bindfs.

Medians of 5.  "io_uring" is isthmus with -o io_uring, which is switched on in the kernel for it
where this is root.  The page cache of the directory is warm; "first" and "cold mount" mean that
the file system above it has just been mounted.
"""

import argparse
import contextlib
import os
import pathlib
import pwd
import shutil
import statistics
import struct
import sys
import tempfile

import benchlib
from benchlib import Mount, Table, median_of, run, timed

BINDFS_TUNED = "kernel_cache,auto_cache,attr_timeout=3600,entry_timeout=3600"
RUNS = 5


def quiet(argv, cwd):
    return lambda: run(argv, cwd=cwd)


def rg(point):
    # The last byte of every file has to be read, and looking at it costs next to nothing.
    return quiet(["rg", "-c", "--no-ignore", "needle_77$", "tree"], point)


def measure_reading(table, mounts):
    first, warm_rg, warm_find, warm_git = {}, {}, {}, {}
    for m in mounts:
        m.start()
        first[m.name] = median_of(RUNS, rg(m.point), m.restart)
        warm_rg[m.name] = median_of(RUNS, rg(m.point))
        run(["find", "tree", "-size", "+1k"], cwd=m.point)
        warm_find[m.name] = median_of(RUNS, quiet(["find", "tree", "-size", "+1k"], m.point))
        status = quiet(["git", "--no-optional-locks", "status", "--porcelain"], m.point / "tree")
        status()
        warm_git[m.name] = median_of(RUNS, status)
        m.stop()
    table.add("warm rg", warm_rg)
    table.add("warm find", warm_find)
    table.add("warm git status", warm_git)
    table.add("first rg", first)


def measure_streams(table, mounts):
    reads, writes = {}, {}
    for m in mounts:
        m.start()
        read = quiet(["dd", "if=big", "of=/dev/null", "bs=1M", "status=none"], m.point)
        write = ["dd", "if=/dev/zero", "of=out", "bs=1M", "count=256", "conv=fsync", "status=none"]
        reads[m.name] = median_of(RUNS, read, m.restart)
        writes[m.name] = median_of(
            RUNS, quiet(write, m.point), lambda m=m: (m.point / "out").unlink(missing_ok=True)
        )
        (m.point / "out").unlink()
        m.stop()
    table.add("read 256 MB, cold mount", reads)
    table.add("write 256 MB + fsync", writes)


def measure_small_files(table, mounts, archive):
    """Every untar has a directory of its own and comes before every rm: ext4 does not use
    inodes again that were deleted minutes ago, and looking for others makes creating slow."""
    untar, remove = ({m.name: [] for m in mounts} for _ in range(2))
    for m in mounts:
        m.start()
    places = [(m, m.point / f"small-{m.name.replace(' ', '-')}-{n}") for n in range(RUNS) for m in mounts]
    for m, place in places:
        place.mkdir()
        untar[m.name].append(timed(quiet(["tar", "-xf", str(archive)], place)))
    for m, place in places:
        remove[m.name].append(timed(quiet(["rm", "-rf", "small"], place)))
        place.rmdir()
    for m in mounts:
        m.stop()
    table.add("untar 1000 files", {name: statistics.median(v) for name, v in untar.items()})
    table.add("rm -rf of them", {name: statistics.median(v) for name, v in remove.items()})


def measure_make(table, mounts):
    make = {}
    for m in mounts:
        m.start()
        project = m.point / "project"
        make[m.name] = median_of(
            3, quiet(["make", "-s", "-j2", "CC=gcc"], project), quiet(["make", "-s", "clean"], project)
        )
        run(["make", "-s", "clean"], cwd=project)
        m.stop()
    table.add("make -j2, 100 files", make)


def fio_iops(point, threads):
    argv = ["fio", "--name=r", "--filename=big", "--rw=randread", "--bs=4k", "--thread"]
    argv += [f"--numjobs={threads}", f"--io_size={64 // threads}M", "--size=256M"]
    argv += ["--group_reporting", "--output-format=terse", "--minimal"]
    return float(run(argv, cwd=point).decode().strip().splitlines()[-1].split(";")[7])


def measure_random_reads(table, mounts):
    for threads in (1, 8):
        iops = {}
        for m in mounts:
            m.restart()
            iops[m.name] = fio_iops(m.point, threads)
            m.stop()
        show = lambda v: "-" if v is None else f"{v / 1000:.1f} k/s"
        table.add(f"random 4 KiB reads, {threads} thr.", iops, show=show)


def measure_feed(table, mounts, data):
    seen = {}
    for m in mounts:
        if m.name in ("isthmus", "io_uring"):
            m.start()
            seen[m.name] = benchlib.seconds_until_seen(m.point, data)
            m.stop()
    table.add("changed there, seen here", seen, show=show_short)


def show_short(seconds):
    return "-" if seconds is None else f"{seconds * 1000:.3f} ms"


def keep_awake():
    """Until this process ends no processor halts when it has nothing to do.  In a virtual
    machine waking one takes longer than most requests: this tells the two apart."""
    latency = os.open("/dev/cpu_dma_latency", os.O_RDWR)
    os.write(latency, struct.pack("i", 0))


PRIVATE_DEVICE = """
mount -t tmpfs -o mode=755 none /mnt
mknod -m 666 /mnt/fuse c 10 229
mount --bind /mnt/fuse /dev/fuse
exec "$@"
"""


def open_device():
    """Some machines keep /dev/fuse for root: starts again where it is everybody's."""
    if os.stat("/dev/fuse").st_mode & 0o006 != 0o006:
        again = [sys.executable, *sys.argv]
        os.execvp("unshare", ["unshare", "-m", "bash", "-ec", PRIVATE_DEVICE, "-", *again])


def become(name):
    user = pwd.getpwnam(name)
    os.initgroups(name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    os.environ["PATH"] = "/usr/local/bin:/usr/bin:/bin"


@contextlib.contextmanager
def user_directory(name, isthmus):
    """A directory of that user, whom this process is from here on, with a copy of isthmus:
    the build directory may be where nobody but root gets."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="isthmus-bench-user-"))
    shutil.copy(isthmus, path)
    shutil.chown(path, name)
    become(name)
    tempfile.tempdir = str(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def remark(args):
    return (f"; as {args.user}" if args.user else "") + ("; processors awake" if args.awake else "")


def prepare(args, build):
    data = build / ("bench-small" if args.small else "bench-data")
    data.mkdir(exist_ok=True)
    scale = 10 if args.small else 1
    benchlib.make_tree(data / "tree", 11000 // scale, 160_000_000 // scale)
    benchlib.make_file(data / "big", 256 << 20)
    benchlib.make_project(data / "project", 100)
    archive = build / "bench-small-files.tar"
    benchlib.make_tar(archive, 1000)
    return data, archive


def measure(args, build, isthmus):
    with benchlib.private_directory() as tmp:
        data, archive = prepare(args, build)
        note = benchlib.note_load()
        bindfs = ["bindfs", "-f", *(["--no-allow-other"] if args.user else [])]
        mounts = [
            Mount("native", data, None),
            Mount("bindfs", tmp / "bindfs", [*bindfs, data, tmp / "bindfs"]),
            Mount(
                "bindfs tuned",
                tmp / "tuned",
                [*bindfs, "-o", BINDFS_TUNED, data, tmp / "tuned"],
            ),
            Mount(
                "isthmus",
                tmp / "isthmus",
                [isthmus, "mount", "-f", f"local:{data}", tmp / "isthmus"],
            ),
        ]
        ratios = [("isthmus", "native"), ("isthmus", "bindfs"), ("isthmus", "bindfs tuned")]
        if benchlib.has_io_uring():
            ring = [isthmus, "mount", "-f", "-o", "io_uring", f"local:{data}", tmp / "io_uring"]
            mounts.append(Mount("io_uring", tmp / "io_uring", ring, io_uring=True))
            ratios += [("io_uring", "native"), ("io_uring", "bindfs tuned")]
        table = Table(
            f"local: {1100 if args.small else 11000} files; medians of {RUNS}; {note}{remark(args)}",
            [m.name for m in mounts],
            ratios,
        )
        try:
            run(["rg", "-c", "x", "tree"], cwd=data)
            measure_reading(table, mounts)
            measure_streams(table, mounts)
            measure_small_files(table, mounts, archive)
            measure_make(table, mounts)
            measure_random_reads(table, mounts)
            measure_feed(table, mounts, data)
        finally:
            for m in mounts:
                m.stop()
            for leftover in data.glob("small-*"):
                shutil.rmtree(leftover, ignore_errors=True)
    table.print()
    benchlib.write_json(args.json, [table], note)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--json")
    parser.add_argument("--rtt", help="(not of local)")
    parser.add_argument("--mbit", help="(not of local)")
    parser.add_argument("--small", action="store_true", help="a tenth of the tree")
    parser.add_argument("--user", help="do everything as this user")
    parser.add_argument("--io-uring", action="store_true", help="(remote only)")
    parser.add_argument("--awake", action="store_true", help="keep processors from halting")
    args = parser.parse_args()

    build = args.build.resolve()
    isthmus = build / "fs/isthmus"
    if args.user:
        open_device()
    if args.awake:
        keep_awake()
    if not args.user:
        measure(args, build, isthmus)
        return
    with user_directory(args.user, isthmus) as place:
        measure(args, place, place / "isthmus")


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C.UTF-8"
    main()
