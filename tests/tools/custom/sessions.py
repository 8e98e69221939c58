"""Tools that live for the session: shared state, where the session is, events, messages, and their end."""
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from toolslib import MARK, PATIENCE, PROGRAM, Directory, Mcp, check, code, equal, finish, private_home, run, running, wait_for, wanted  # noqa: E402

TOOL = r'''#!/usr/bin/env python3
import json, os, subprocess, sys, threading
NAME = os.path.basename(sys.argv[0])
FORM = {"type": "object", "properties": {"do": {"type": "string"}, "text": {"type": "string"}}}
if os.environ["TOOLBOX_ACTION"] == "describe":
    print(json.dumps({"protocol": "isthmus-tool/1", "lifetime": "session", "subscribe": [NAME + ":ping"], "tools": [
        {"name": NAME + "_add", "description": "Adds", "parameters": FORM}, {"name": NAME + "_list", "description": "Lists", "parameters": FORM}]}))
    sys.exit()
items, heard, cancelled = [], [], {}
write_lock = threading.Lock()
def say(**message):
    with write_lock:
        print(json.dumps(message), flush=True)
def note(words):
    with open(os.path.join(os.environ["ISTHMUS_ROOT"], NAME + ".log"), "a") as log:
        log.write(words + "\n")
def execute(call):
    params = call["params"]
    does = params.get("do")
    if does == "emit":
        say(type="emit", channel=params["text"], data={"from": NAME})
    elif does == "message":
        say(type="message", ask="m1", custom_type="note", content=params["text"], display=params["text"] != "hidden", trigger_turn=True)
    elif does == "crash":
        print("it broke", file=sys.stderr, flush=True)
        os._exit(3)
    elif does == "wait":
        cancelled[call["id"]].wait()
        return say(type="error", id=call["id"], message="stopped")
    elif does == "stuck":
        subprocess.run(["sleep", params["text"]])
    elif does == "heard":
        return say(type="result", id=call["id"], content=[{"type": "text", "text": json.dumps(heard)}])
    elif does == "late":
        threading.Timer(0.1, say, [], {"type": "exec", "ask": "x", "argv": ["true"]}).start()
    with write_lock:
        add = does is None and call["tool"].endswith("_add")
        items.extend([params["text"]] if add else [])
        print(json.dumps({"type": "result", "id": call["id"], "details": {"items": items}, "content": [
            {"type": "text", "text": "%s %d %d" % (",".join(items), os.getpid(), call["queued"])}]}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    kind = message["type"]
    if kind == "session":
        entries = message.get("entries", [])
        if message["reason"] != "shutdown":
            items = list(next((e["details"]["items"] for e in reversed(entries) if "details" in e), []))
        note("%s %d %s" % (message["reason"], len(entries), os.path.basename(message.get("previous") or "-")))
    elif kind == "execute":
        cancelled[message["id"]] = threading.Event()
        threading.Thread(target=execute, args=[message], daemon=True).start()
    elif kind == "cancel":
        cancelled[message["id"]].set()
    elif kind == "event":
        heard.append(message["data"])
    elif kind == "message_result":
        note("%s %s" % (message["ask"], message["delivered"]))
    elif kind == "exec_result":
        note("refused %s" % message["stderr"])
note("end")
'''


def log(root, name="todo"):
    try:
        with open("%s/%s.log" % (root, name), encoding="utf-8") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def session(name, *words):
    """The exit code of `isthmus session` and what it says."""
    done = subprocess.run([PROGRAM, "session", "--conversation", name, *words], capture_output=True, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


class Client(Mcp):
    """One that may say where its session is."""

    def __init__(self, root, *options):
        super().__init__(root, "--yes", *options)
        self.last = None  # the id of the last call

    def tool(self, name, arguments=None, **meta):
        params = {"name": name, "arguments": arguments or {}, "_meta": {"isthmus/" + key: value for key, value in meta.items()}}
        result = self.ask("tools/call", params)["result"]
        self.last = result["_meta"]["isthmus/result"]["call_id"]
        return [block["text"] for block in result["content"]]

    def add(self, text, **meta):
        return self.tool("todo_add", {"text": text}, **meta)[-1].split()[0]

    def list(self, **meta):
        return self.tool("todo_list", **meta)[-1].split(" ")[0]


def test_tools_of_a_file_share_their_state(root):
    server = Client(root)
    server.add("A")
    items, pid, queued = server.tool("todo_list", queued=2)[0].split()
    equal(("A", "2"), (items, queued), "what the other tool of the file did")
    equal(pid, server.tool("todo_add", {"text": "B"})[0].split()[1], "it is one process")
    equal(["start 0 -"], log(root), "a fresh session, told once")
    server.tool("todo_add", {"do": "late"})

    def refused():
        return "refused no call of the tool is running" in log(root)

    wait_for(refused)
    server.close()
    equal(["shutdown 0 -", "end"], log(root)[-2:], "told of the end")


def test_a_session_is_a_tree(root):
    server = Client(root, "--conversation", "tree")
    server.add("A")
    at_a = server.last
    equal("A,B", server.add("B"), "A, then B")
    at_b = server.last
    equal("A", server.list(parent=at_a), "back at A")
    equal("A,C", server.add("C"), "and on from there")
    equal("A,B", server.list(parent=at_b), "the other branch")
    equal("A,B", server.list(parent="a call of another tool"), "what is not known is no place")
    equal("", server.list(session="other"), "another session")
    equal("X", server.add("X", session="other"), "of its own")
    equal("A,B", server.list(), "and back")
    equal(["start 0 -", "tree 1 tree.jsonl", "tree 2 tree.jsonl", "switch 0 tree.jsonl", "switch 4 other.jsonl"], log(root), "what it was told")
    shown = session("tree")[1]
    check("* %s todo_add\n" % at_a in shown and "* %s todo_add\n" % at_b in shown, "the session: " + shown)
    equal(2, sum(line.startswith(" ") for line in shown.splitlines()), "results that do not count: " + shown)
    for how in ["branch", "tree"]:
        equal(0, session("tree", how, at_a)[0], how)
        equal("A", server.list(), "moved by somebody else")
        equal(how + " 1 tree.jsonl", log(root)[-1], "with that reason")
    for words in [["branch", "nosuch"], ["branch"], ["jump", at_a], ["start", "x"], ["switch"], ["switch", "a/b"], ["shutdown", "x"]]:
        equal(2, session("tree", *words)[0], words)
    equal("A,D", run("todo_add", {"text": "D"}, root, "--conversation", "tree")["data"]["text"].split()[0], "another process goes on")
    equal("A,D", server.list(), "and this one hears of it")
    server.close()


def told(root, *want):
    def was_told():
        return log(root)[-len(want):] == list(want)

    wait_for(was_told)
    equal(list(want), log(root)[-len(want):], "what it was told")


def test_what_happens_is_told_at_once(root):
    server = Client(root, "--conversation", "own")
    server.add("A")
    at_a, pid = server.last, server.tool("todo_list")[0].split()[1]
    server.add("B")
    for how, count in [("start", 3), ("branch", 1), ("tree", 1)]:
        equal(0, session("own", how, *([] if how == "start" else [at_a]))[0], how)
        told(root, "%s %d own.jsonl" % (how, count))
    session("own", "switch", "next")
    told(root, "switch 0 own.jsonl")
    equal("N", server.add("N"), "calls that name no session are in the other one")
    equal("A", server.list(session="own"), "those that name one are in that")
    check("todo_add" in session("next")[1], "the other one has that result")
    equal("N", run("todo_list", {}, root, "--conversation", "own")["data"]["text"].split(" ")[0], "as those of who starts later are")
    equal("N", server.list(), "calls that name none are still there")
    check(server.last in session("own")[1], "and so is the command")
    session("own", "start")
    told(root, "switch 2 next.jsonl")
    equal("A", server.list(), "and back")
    check(server.last in session("own")[1], "so is the command")
    start = time.monotonic()
    session("own", "shutdown")
    told(root, "shutdown 0 own.jsonl", "end")

    def is_gone():
        return not os.path.exists("/proc/" + pid)

    wait_for(is_gone)
    check(time.monotonic() - start < 2 * PATIENCE, "it ends soon")
    items, now = server.tool("todo_list")[0].split()[:2]
    equal(("A", True), (items, now != pid), "the next call has a process of its own, with the state")
    server.close()


def test_the_end_of_a_session_ends_calls(root):
    server = Client(root, "--conversation", "ends")
    server.send({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "todo_list", "arguments": {"do": "stuck", "text": MARK}}})
    wait_for(running)
    session("ends", "shutdown")
    answer = json.loads(server.receive())["result"]
    check(answer["isError"] and "without a result" in answer["content"][0]["text"], "a call under way: %r" % answer)
    check(not running(), "and what it runs")
    equal("A", server.add("A"), "the next call")
    server.close()


def test_the_environment_names_the_session(root):
    for name in ["CLAUDE_CODE_SESSION_ID", "ISTHMUS_SESSION"]:
        os.environ[name] = name.lower()
        server = Client(root)
        equal(name, server.add(name), "a session of its own")
        equal(name, run("todo_list", {}, root)["data"]["text"].split(" ")[0], "on the command line, too")
        done = subprocess.run([PROGRAM, "session"], capture_output=True, check=True)
        check(b"todo_add" in done.stdout, "and for the command: %r" % done)
        equal("X", server.add("X", session="named" + name), "one that the call names")
        server.close()
    for name in ["CLAUDE_CODE_SESSION_ID", "ISTHMUS_SESSION"]:
        os.environ.pop(name)
    equal(2, subprocess.run([PROGRAM, "session"], capture_output=True, check=False).returncode, "without a name")
    equal(2, session("a/b")[0], "one that cannot be a file's")


def test_sessions_take_turns(root):
    server = Client(root)
    for number in range(8):
        server.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {
            "name": "todo_add", "arguments": {"text": str(number)}, "_meta": {"isthmus/session": "turn%d" % (number % 2)}}})
    for _ in range(8):
        check("result" in json.loads(server.receive()), "answered")
    for number in range(2):
        want = {str(n) for n in range(8) if n % 2 == number}
        equal(want, set(server.list(session="turn%d" % number).split(",")), "each has its own")
    server.close()


def test_calls_that_end_badly(root):
    server = Client(root)
    server.add("A")
    pid = server.tool("todo_list")[0].split()[1]
    for does, same in [("wait", True), ("stuck", False)]:
        server.send({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "todo_list", "arguments": {"do": does, "text": MARK}}})
        if not same:
            wait_for(running)
        server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}})

        def idle():
            return not running()

        wait_for(idle, 40)
        items, now = server.tool("todo_list")[0].split()[:2]
        equal("A", items, "the state is there after " + does)
        equal(same, now == pid, "the process of " + does)
    text = server.tool("todo_add", {"do": "crash"})[-1]
    check("exit 3: it broke" in text, "a crash: " + text)
    equal("A,B", server.add("B"), "another process, with the state of the session")
    server.close()
    server = Client(root)
    server.add("A")
    start = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(30)
    check(time.monotonic() - start < 10, "a signal ends it soon")
    equal(["shutdown 0 -", "end"], log(root)[-2:], "and it was told")
    server.process.stdin.close()
    server.process.stdout.close()


def test_events_and_messages(home, root):
    os.symlink(home + "/.config/isthmus/tools/todo", home + "/.config/isthmus/tools/other")
    with open(root + "/file", "w", encoding="ascii") as file:
        file.write("x")
    server = Client(root)
    server.tool("todo_add", {"do": "emit", "text": "other:ping"})

    def arrived():
        return server.tool("other_list", {"do": "heard"})[-1] == '[{"from": "todo"}]'

    wait_for(arrived)
    server.tool("todo_add", {"do": "emit", "text": "nobody:listens"})
    for text, annotations in [("one", None), ("hidden", {"audience": ["assistant"]})]:
        server.send({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "todo_add", "arguments": {"do": "message", "text": text}}})
        blocks = json.loads(server.receive())["result"]["content"]
        equal(2, len(blocks), "a message and the result")
        equal(("[message from todo] " + text, annotations), (blocks[0]["text"], blocks[0].get("annotations")), "the message")
    check("[message" not in "".join(server.tool("read", {"path": "file"})), "each once")
    told(root, "m1 queued")
    done = subprocess.run([PROGRAM, "tool", "todo_add", "--root", root, "--yes", "--do", "message", "--text", "hi"], capture_output=True, check=True)
    check(b"[message from todo] hi\n" in done.stderr and b"message" not in done.stdout, "on the command line: %r" % done.stderr)
    server.close()
    os.unlink(home + "/.config/isthmus/tools/other")


def test_messages_go_to_a_channel(root):
    for options, experimental in [(["--channel"], {}), ([], {"claude/channel": {}})]:
        server = Client(root, *options)
        answer = server.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {"experimental": experimental},
                                           "clientInfo": {"name": "claude-code", "version": "2"}})
        equal({"claude/channel": {}}, answer["result"]["capabilities"].get("experimental"), "what the server has")
        for number, text in enumerate(["one", "two"], 3):
            server.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "todo_add", "arguments": {"do": "message", "text": text}}})
            equal({"jsonrpc": "2.0", "method": "notifications/claude/channel",
                   "params": {"content": "[message from todo] " + text, "meta": {"type": "note"}}}, json.loads(server.receive()), "a message")
            equal(1, len(json.loads(server.receive())["result"]["content"]), "is not in the result, too")
            told(root, "m1 sent")
        server.close()
    server = Client(root)
    answer = server.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "2"}})
    check("experimental" not in answer["result"]["capabilities"], "without a channel")
    equal(2, len(server.tool("todo_add", {"do": "message", "text": "one"})), "a message waits for a result")
    server.close()


def test_old_sessions_go(home, root):
    base = home + "/.local/state/isthmus/sessions/"
    for name, days in [("old", 31), ("young", 29)]:
        with open(base + name + ".jsonl", "w", encoding="ascii") as file:
            file.write("{}\n")
        then = time.time() - days * 86400
        os.utime(file.name, (then, then))
    equal("OK", code(run("todo_add", {"text": "x"}, root, "--conversation", "new")), "a new session")
    equal((False, True), tuple(os.path.exists(base + name + ".jsonl") for name in ["old", "young"]), "what nobody used for 30 days")


def main():
    home = os.path.realpath(private_home())
    os.environ.pop("XDG_STATE_HOME", None)
    path = home + "/.config/isthmus/tools/todo"
    os.makedirs(os.path.dirname(path))
    with open(path, "w", encoding="utf-8") as file:
        file.write(TOOL)
    os.chmod(path, 0o755)
    for name, test in sorted(globals().items()):
        if wanted(name):
            with Directory() as root:
                test(*([home] if "home" in test.__code__.co_varnames[:1] else []), root)
    finish()


main()
