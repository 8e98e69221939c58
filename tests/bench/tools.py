"""bench tools: grep against rg, here and over a simulated link, and the MCP server against
server-filesystem of npm."""

import argparse
import json
import os
import pathlib
import shlex
import shutil
import statistics
import subprocess
import sys
import time

import benchlib
from benchlib import Mount, Table
from remote import FarEnd

RUNS = 5
READS = 2000
STARTS = 10
PEER = "@modelcontextprotocol/server-filesystem@2026.8.31"


# ---- grep -----------------------------------------------------------------------

SEARCHES = [
    ("literal, none found", ["zz_not_there"]),
    ("literal, one file", ["needle_77"]),
    ("word, many lines", [r"\bmutex\b"]),
    ("expression", [r"struct\s+\w+ (inode|dentry)"]),
    ("ignore case", ["--ignore-case", "NEEDLE_7[0-9]"]),
    ("alternatives", ["--ignore-case", "mutex_lock|needle_4711"]),
    ("literal inside", [r"[a-z]+_(77|t)\w*;?$"]),
]


def our_grep(tools, words):
    options = [w for w in words if w.startswith("--")]
    return [tools, "tool", "grep", *options, "--limit", "100", "--output", "json", words[-1]]


def their_grep(words):
    options = ["-i" if w == "--ignore-case" else w for w in words[:-1]]
    return ["rg", "--hidden", "-g", "!.git", "-n", "--no-heading", *options, words[-1]]


def search(argv, directory):
    def action():
        subprocess.run(argv, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    action()
    return benchlib.median_of(RUNS, action)


def measure_grep(isthmus, tools, tmp, data, note):
    table = Table(f"grep, warm; medians of {RUNS}; {note}", ["rg", "isthmus tool"],
                  [("isthmus tool", "rg")])
    mount = Mount("isthmus", tmp / "mnt", [isthmus, "mount", "-f", f"local:{data}", tmp / "mnt"])
    include = pathlib.Path("/usr/include")
    for mount, directory in [(Mount("native", data, None), data / "tree"),
                             (mount, mount.point / "tree"),
                             (Mount("/usr/include", include, None), include)]:
        mount.start()
        try:
            for name, words in SEARCHES:
                table.add(f"{mount.name}: {name}", {
                    "rg": search(their_grep(words), directory),
                    "isthmus tool": search(our_grep(tools, words), directory)})
        finally:
            mount.stop()
    return table


# ---- Over a link ----------------------------------------------------------------

FAR_RUNS = 3
FAR_SEARCHES = [
    ("grep, one file", ["grep", "needle_77$"], ["rg", "-n", "needle_77$"]),
    ("grep, none found", ["grep", "zz_not_there"], ["rg", "-n", "zz_not_there"]),
    ("find", ["find", "file77.*"], ["rg", "--files", "-g", "file77.*"]),
    ("glob", ["glob", "**/file7?.c"], ["rg", "--files", "-g", "file7?.c"]),
]


def far_traffic(isthmus, point):
    """Round trips that somebody waited for, and bytes from there, so far."""
    status = json.loads(subprocess.run([isthmus, "status", "--json", point], check=True,
                                       stdout=subprocess.PIPE).stdout)
    log = subprocess.run([isthmus, "log", point, "--json", "-n", "1000000"], check=True, stdout=subprocess.PIPE).stdout
    waited = sum(json.loads(line).get("round_trips", 0) for line in log.splitlines() if b"round_trips" in line)
    return waited, status["workspace"]["bytes_received"]


def measure_far_search(isthmus, tools, mount, fresh, words):
    """Median seconds of a search on a new mount, and of the same once more; what the first took."""
    cold, warm, traffic = [], [], []
    for _ in range(FAR_RUNS):
        fresh()
        mount.start()
        try:
            before = far_traffic(isthmus, mount.point)
            for samples in (cold, warm):
                samples.append(benchlib.timed(lambda: subprocess.run(
                    [tools, "tool", *words], cwd=mount.point / "tree", check=False,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)))
                if samples is cold:
                    after = far_traffic(isthmus, mount.point)
                    traffic.append((after[0] - before[0], after[1] - before[1]))
        finally:
            mount.stop()
    return statistics.median(cold), statistics.median(warm), max(traffic)


def measure_far(isthmus, tools, tmp, data, build, args, note):
    table = Table(f"searches over {args.rtt:g} ms and {args.mbit:g} Mbit/s; medians of {FAR_RUNS}; {note}",
                  ["ssh rg", "cold", "warm"], [("cold", "ssh rg")], ["round trips", "KiB"])
    far = FarEnd(tmp, str(build / "tests/bench/linksim"), args.rtt, args.mbit)
    mount = Mount("isthmus", tmp / "far-mnt", [isthmus, "mount", "-f", "-o", f"ssh_command=ssh -F {far.config}",
                                               f"ssh://box{data}", tmp / "far-mnt"])

    def fresh():
        benchlib.fresh_cache(tmp)

    try:
        far.open_master()
        for name, words, there in FAR_SEARCHES:
            command = far.ssh() + ["box", f"cd {data}/tree && rg --hidden -g '!.git' {shlex.join(there[1:])} ."]
            theirs = benchlib.median_of(FAR_RUNS, lambda c=command: subprocess.run(
                c, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
            cold, warm, (trips, received) = measure_far_search(isthmus, tools, mount, fresh, words)
            table.add(name, {"ssh rg": theirs, "cold": cold, "warm": warm}, **{"round trips": trips, "KiB": received >> 10})
    finally:
        far.stop()
    return table


# ---- MCP ------------------------------------------------------------------------


class Server:
    def __init__(self, argv):
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)

    def ask(self, method, params):
        self.process.stdin.write(json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if b'"result"' not in answer:
            sys.exit(f"bench: {method}: {answer[:500]}")
        return answer

    def start(self):
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {},
                                "clientInfo": {"name": "bench", "version": "1"}})
        self.process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        self.process.stdin.flush()

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))

    def stop(self):
        self.process.stdin.close()
        self.process.wait(10)


def peer_argv(work, directory):
    """The peer's command line; None where npm cannot install it."""
    if not shutil.which("npm"):
        return None
    done = subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts",
                           "--prefix", work, PEER], capture_output=True, check=False)
    main = work / "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
    return ["node", main, directory] if done.returncode == 0 and main.exists() else None


def measure_server(argv, reader, directory):
    starts = []
    for _ in range(STARTS):
        begin = time.perf_counter()
        server = Server(argv)
        server.start()
        starts.append(time.perf_counter() - begin)
        server.stop()
    server = Server(argv)
    server.start()
    server.ask("tools/list", {})
    reads = []
    call = {"name": reader, "arguments": {"path": str(directory / "hundred.txt")}}
    for _ in range(READS):
        begin = time.perf_counter()
        server.ask("tools/call", call)
        reads.append(time.perf_counter() - begin)
    resident = server.resident_bytes()
    server.stop()
    return statistics.median(starts), statistics.median(reads), resident


def measure_mcp(tools, tmp, note):
    directory = tmp / "mcp"
    directory.mkdir()
    (directory / "hundred.txt").write_text("".join(f"line {n} of a hundred lines\n" for n in range(100)))
    table = Table(f"MCP on stdio; {STARTS} starts, {READS} reads; {note}",
                  ["isthmus mcp", "server-filesystem"], [("server-filesystem", "isthmus mcp")])
    names = ["start to first answer", "read of 100 lines, p50", "resident after that"]
    figures = {"isthmus mcp": measure_server([tools, "mcp", directory], "read", directory)}
    peer = peer_argv(tmp / "npm", directory)
    if peer:
        figures["server-filesystem"] = measure_server(peer, "read_text_file", directory)
    else:
        print("  server-filesystem: skipped, npm cannot install it", file=sys.stderr)
    for number, name in enumerate(names):
        show = (lambda v: "-" if v is None else f"{v / (1 << 20):.1f} MiB") if number == 2 else (
            lambda v: "-" if v is None else f"{v * 1000:.3f} ms")
        table.add(name, {column: values[number] for column, values in figures.items()}, show=show)
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--json")
    parser.add_argument("--user", help="(local only)")
    parser.add_argument("--awake", action="store_true", help="(local only)")
    parser.add_argument("--io-uring", action="store_true", help="(remote only)")
    parser.add_argument("--rtt", type=float, default=40, metavar="MS", help="of the searches over a link")
    parser.add_argument("--mbit", type=float, default=20, metavar="RATE", help="of that link")
    parser.add_argument("--only", choices=["grep", "far", "mcp"])
    parser.add_argument("--small", action="store_true", help="a tenth of the tree")
    args = parser.parse_args()

    build = args.build.resolve()
    tools = build / "tools/isthmus-tools"
    data = build / ("bench-small" if args.small else "bench-data")
    data.mkdir(exist_ok=True)
    scale = 10 if args.small else 1
    benchlib.make_tree(data / "tree", 11000 // scale, 160_000_000 // scale)
    note = benchlib.note_load()
    npm_cache = os.environ.get("npm_config_cache", os.path.expanduser("~/.npm"))
    with benchlib.private_directory() as tmp:
        os.environ["npm_config_cache"] = npm_cache
        isthmus = build / "fs/isthmus"
        benches = {"grep": lambda: measure_grep(isthmus, tools, tmp, data, note),
                   "far": lambda: measure_far(isthmus, tools, tmp, data, build, args, note),
                   "mcp": lambda: measure_mcp(tools, tmp, note)}
        tables = [bench() for name, bench in benches.items() if args.only in (None, name)]
    for table in tables:
        table.print()
    benchlib.write_json(args.json, tables, note)


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C.UTF-8"
    main()
