"""What the tests of isthmus-tools share: running a tool, talking MCP, counting what passed."""
import atexit
import fnmatch
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

PATIENCE = int(os.environ.get("TEST_PATIENCE", 1))  # how many times longer than usual to wait
PROGRAM = os.environ["ISTHMUS_TOOLS"]
failures = 0
checks = 0


def check(good, what):
    global failures, checks
    checks += 1
    if not good:
        failures += 1
        print("FAILED:", what, file=sys.stderr)
    return good


def equal(want, got, what):
    return check(want == got, "%s: want %r, got %r" % (what, want, got))


def wanted(name):
    """Of a test function; TEST_ONLY=PATTERN (without "test_") leaves the others out."""
    return name.startswith("test_") and fnmatch.fnmatch(name[5:], os.environ.get("TEST_ONLY", "*"))


def finish():
    print("%d checks passed, %d failed" % (checks - failures, failures))
    if not checks:
        print("no function is named test_" + os.environ.get("TEST_ONLY", "*"))
    sys.exit(1 if failures or not checks else 0)


def private_home():
    """A home without the user's own rules and git settings."""
    home = tempfile.mkdtemp(prefix="tools-home-")
    atexit.register(shutil.rmtree, home, True)
    os.environ.update(HOME=home, XDG_CONFIG_HOME=home + "/.config", XDG_RUNTIME_DIR=home, XDG_CACHE_HOME=home + "/.cache",
                      XDG_STATE_HOME=home + "/.local/state",
                      GIT_CONFIG_NOSYSTEM="1", LC_ALL="C.UTF-8")
    for name in ["ISTHMUS_SESSION", "CLAUDE_CODE_SESSION_ID"]:
        os.environ.pop(name, None)
    return home


MARK = str(10**6 + os.getpid())  # seconds of every long sleep, to find those of this very run


def running():
    """The commands that sleep so."""
    done = subprocess.run(["pgrep", "-fa", "sleep " + MARK], capture_output=True, check=False)
    return [line for line in done.stdout.decode().splitlines() if "pgrep" not in line]


def wait_for(true, seconds=20):
    end = time.monotonic() + seconds * PATIENCE
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return check(true(), "%s within %d s" % (true.__name__, seconds))


def until(terminal, want):
    """What a terminal shows until `want` (None: the end) or 60 s are over."""
    shown, end = b"", time.time() + 60 * PATIENCE
    while want is None or want not in shown:
        if not select.select([terminal], [], [], max(0, end - time.time()))[0]:
            return shown
        try:
            got = os.read(terminal, 4096)
        except OSError:
            return shown
        if not got:
            return shown
        shown += got
    return shown


def descendants(pid):
    """The processes that it and its children started."""
    found, left = set(), [pid]
    while left:
        at = left.pop()
        for task in os.listdir("/proc/%d/task" % at):
            with open("/proc/%d/task/%s/children" % (at, task), encoding="ascii") as file:
                for child in map(int, file.read().split()):
                    found.add(child)
                    left.append(child)
    return found


META = "io.modelcontextprotocol/"
MODERN = {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": {"elicitation": {}}}


class Directory:
    """A private directory that goes away at the end."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="tools-test-")
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


def each_in_new_directory(functions):
    """Calls each test function that is wanted with a directory of its own."""
    for name, test in sorted(functions.items()):
        if wanted(name):
            with Directory() as directory:
                test(os.path.realpath(directory))


def run(name, arguments, root, *options, timeout=60):
    """The result of one call, as JSON, with the exit code as "exit"."""
    done = subprocess.run(
        [PROGRAM, "tool", name, "--root", root, "--output", "json", "--yes", "--json", "-", *options],
        input=json.dumps(arguments).encode(), capture_output=True, timeout=timeout * PATIENCE, check=False)
    try:
        result = json.loads(done.stdout)
    except ValueError:
        result = {"success": False, "error": {"code": "NONE", "ai_message": done.stderr.decode()}}
    result["exit"] = done.returncode
    return result


def code(result):
    return "OK" if result["success"] else result["error"]["code"]


class Mcp:
    """An MCP server on a pair of pipes."""

    def __init__(self, root, *options):
        self.process = subprocess.Popen([PROGRAM, "mcp", *options, root], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def send(self, message):
        text = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.process.stdin.write(text + b"\n")
        self.process.stdin.flush()

    def receive(self):
        return self.process.stdout.readline()

    def ask(self, method, params=None, identity=1):
        message = {"jsonrpc": "2.0", "id": identity, "method": method}
        if params is not None:
            message["params"] = params
        self.send(message)
        return json.loads(self.receive())

    def call(self, name, arguments):
        return self.ask("tools/call", {"name": name, "arguments": arguments})["result"]

    def close(self):
        """Ends the input; everything that still comes, and the exit code."""
        self.process.stdin.close()
        rest = self.process.stdout.read()
        return rest, self.process.wait(10 * PATIENCE)
