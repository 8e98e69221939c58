"""Questions of custom tools: parked and resumed in the stateless era, a request of ours in the other, and on a terminal."""
import json
import os
import pty
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from toolslib import MODERN, PROGRAM, Directory, Mcp, check, descendants, equal, finish, private_home, run, until, wait_for  # noqa: E402

TOOL = r'''#!/usr/bin/env python3
import json, os, sys
if os.environ["TOOLBOX_ACTION"] == "describe":
    print(json.dumps({"protocol": "isthmus-tool/1", "tools": [{"name": "forms", "description": "Asks", "parameters": {
        "type": "object", "properties": {"method": {"type": "string"}, "timeout": {"type": "integer"}}, "required": ["method"]}}]}))
    sys.exit()
call = json.loads(sys.stdin.readline())
with open("runs", "a") as runs:
    runs.write("x")
def say(**message):
    print(json.dumps({"id": call["id"], **message}), flush=True)
say(type="ui_request", method="notify", message="for your eyes")
say(type="ui_request", ask="a", method=call["params"]["method"], title="Well?", message="Think.", options=["red", "blue"],
    placeholder="a word", prefill="an apple", timeout=call["params"].get("timeout", 0))
answer = json.loads(sys.stdin.readline())
say(type="result", content=[{"type": "text", "text": json.dumps([answer.get("value"), answer.get("cancelled", False), call["has_ui"], os.getpid()])}])
'''


def answer_of(result):
    return json.loads(result["content"][0]["text"])


def test_parked(root, tool):
    server = Mcp(root, "--tool", tool, "--yes")
    call = {"name": "forms", "arguments": {"method": "select"}, "_meta": MODERN}
    first = server.ask("tools/call", call)["result"]
    equal("input_required", first["resultType"], "asks")
    question = first["inputRequests"]["question"]["params"]
    equal({"type": "string", "enum": ["red", "blue"]}, question["requestedSchema"]["properties"]["value"], "the form")
    check(question["message"].startswith("forms asks: Well?"), question["message"])
    before = descendants(server.process.pid)
    # Some clients cancel every call that was answered.
    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    yes = {"question": {"action": "accept", "content": {"value": "blue"}}}
    state = first["requestState"]
    flipped = ("1" if state[0] == "0" else "0") + state[1:]
    for what, bad in [("flipped", dict(call, requestState=flipped, inputResponses=yes)),
                      ("other arguments", dict(call, arguments={"method": "input"}, requestState=state, inputResponses=yes))]:
        equal(-32602, server.ask("tools/call", bad)["error"]["code"], what)
    again = dict(call, requestState=state, inputResponses=yes)
    result = server.ask("tools/call", again, 2)["result"]
    value, cancelled, has_ui, pid = answer_of(result)
    equal(("blue", False, True), (value, cancelled, has_ui), "the answer")
    check(pid in before, "the same process before and after")
    equal({"type": "text", "text": "for your eyes", "annotations": {"audience": ["user"]}}, result["content"][1], "notify, once")
    equal(-32602, server.ask("tools/call", again)["error"]["code"], "a state serves once")
    with open(root + "/runs", encoding="ascii") as file:
        equal("x", file.read(), "it ran once")
    first = server.ask("tools/call", call)["result"]
    declined = dict(call, requestState=first["requestState"], inputResponses={"question": {"action": "decline"}})
    equal([None, True], answer_of(server.ask("tools/call", declined)["result"])[:2], "declined")
    first = server.ask("tools/call", dict(call, arguments={"method": "confirm", "timeout": 200}))["result"]

    def nothing_parked():
        return not descendants(server.process.pid)

    wait_for(nothing_parked, 30)
    late = dict(call, arguments={"method": "confirm", "timeout": 200}, requestState=first["requestState"], inputResponses=yes)
    equal(-32602, server.ask("tools/call", late)["error"]["code"], "too late")
    server.ask("tools/call", call)
    check(descendants(server.process.pid), "one is parked")
    equal((b"", 0), server.close(), "the end of the input ends it")


def test_nobody_waits_for_longer_than_ten_minutes(root, tool):
    """With a clock that runs 200 times as fast: 600 s are 3."""
    subprocess.run([PROGRAM, "tool", "list", "--tool", tool, "--root", root], capture_output=True, check=True)
    os.environ["LD_PRELOAD"] = os.environ["TEST_HURRY"]
    server = Mcp(root, "--tool", tool, "--yes")
    del os.environ["LD_PRELOAD"]
    call = {"name": "forms", "arguments": {"method": "input", "timeout": 10**9}, "_meta": MODERN}
    start = time.monotonic()
    first = server.ask("tools/call", call)["result"]
    check(descendants(server.process.pid), "it is parked")

    def is_ended():
        return not descendants(server.process.pid)

    wait_for(is_ended, 60)
    check(time.monotonic() - start > 2.9, "ended after %.1f s" % (time.monotonic() - start))
    yes = {"question": {"action": "accept", "content": {"value": "x"}}}
    error = server.ask("tools/call", dict(call, requestState=first["requestState"], inputResponses=yes))["error"]
    equal(-32602, error["code"], "an answer after that")
    check("no longer open" in error["message"] and "call the tool again" in error["message"], error)
    server.close()


def test_few_are_parked(root, tool):
    server = Mcp(root, "--tool", tool, "--yes")
    call = {"name": "forms", "arguments": {"method": "confirm"}, "_meta": MODERN}
    for number in range(16):
        equal("input_required", server.ask("tools/call", call, number)["result"].get("resultType"), "number %d" % number)
    equal([None, True], answer_of(server.ask("tools/call", call)["result"])[:2], "the question of one more is cancelled")
    server.close()


def test_handshake(root, tool):
    server = Mcp(root, "--tool", tool, "--yes")
    server.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}})
    for method, schema, content, want in [
            ("select", {"type": "string", "enum": ["red", "blue"]}, "red", ["red", False]),
            ("select", None, "green", [None, True]), ("confirm", {"type": "boolean"}, True, [True, False]),
            ("confirm", None, "yes", [None, True]),
            ("input", {"type": "string", "description": "a word"}, "hello", ["hello", False]),
            ("editor", {"type": "string", "default": "an apple"}, "two\nlines", ["two\nlines", False])]:
        server.send({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "forms", "arguments": {"method": method}}})
        asked = json.loads(server.receive())
        equal("elicitation/create", asked.get("method"), method)
        if schema:
            equal(schema, asked["params"]["requestedSchema"]["properties"]["value"], "form of " + method)
        server.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"value": content}}})
        equal(want, answer_of(json.loads(server.receive())["result"])[:2], "%s %r" % (method, content))
    server.close()
    server = Mcp(root, "--tool", tool, "--yes")
    equal([None, True, False], answer_of(server.call("forms", {"method": "confirm"}))[:3], "a client that cannot ask")
    server.close()
    equal([None, True, False], json.loads(run("forms", {"method": "input"}, root, "--tool", tool)["data"]["text"])[:3], "nor without a terminal")


def on_terminal(root, tool, method, prompt, typed):
    child, terminal = pty.fork()
    if child == 0:
        os.environ["EDITOR"] = "sed -i s/apple/orange/"
        os.execv(PROGRAM, [PROGRAM, "tool", "forms", "--tool", tool, "--root", root, "--yes", "--method", method])
    shown = until(terminal, prompt)
    if typed:
        os.write(terminal, typed)
    shown += until(terminal, None)
    os.waitpid(child, 0)
    os.close(terminal)
    return shown.decode()


def test_terminal(root, tool):
    for method, prompt, typed, want in [("select", b"Number", b"2\n", '["blue", false, true'), ("select", b"Number", b"\n", "[null, true"),
                                        ("confirm", b"[n]o", b"y\n", "[true, false"), ("confirm", b"[n]o", b"n\n", "[false, false"),
                                        ("input", b"> ", b"some words\n", '["some words", false'),
                                        ("editor", b"Think.", b"", '["an orange", false')]:
        shown = on_terminal(root, tool, method, prompt, typed)
        check(want in shown, "%s: %r" % (method, shown))
        check("forms asks: Well?" in shown and "forms: for your eyes" in shown, "says who asks: %r" % shown)
    done = subprocess.run([PROGRAM, "tool", "forms", "--tool", tool, "--root", root, "--yes", "--method", "input"],
                          stdin=subprocess.DEVNULL, capture_output=True, check=False)
    check(b"eyes" in done.stderr and b"eyes" not in done.stdout, "notes are not part of the output")


def main():
    home = private_home()
    tool = home + "/forms"
    with open(tool, "w", encoding="utf-8") as file:
        file.write(TOOL)
    os.chmod(tool, 0o755)
    with Directory() as root:
        for test in [test_parked, test_nobody_waits_for_longer_than_ten_minutes, test_few_are_parked, test_handshake, test_terminal]:
            test(root, tool)
    finish()


main()
