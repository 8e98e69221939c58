"""Servers of MCP as custom tools: isthmus' own server within isthmus, and one that asks, reports progress and misbehaves."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from toolslib import MARK, PROGRAM, Directory, Mcp, check, code, equal, finish, private_home, run, running, wait_for  # noqa: E402

SERVER = r'''
import json, os, subprocess, sys
def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def tool(name, **properties):
    return {"name": name, "title": "T " + name, "description": "Does " + name, "inputSchema": {"type": "object", "properties": properties}}
can_ask = False
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    answer = lambda result: say(id=message["id"], result=result)
    if method == "initialize":
        can_ask = "elicitation" in params["capabilities"]
        say(method="notifications/message", params={"level": "info", "data": "starting"})
        answer({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}})
    elif method == "tools/list" and "cursor" not in params:
        say(id=77, method="roots/list")
        say(id="p", method="ping")
        answer({"tools": [tool("echo", text={"type": "string"})], "nextCursor": "2"})
    elif method == "tools/list":
        answer({"tools": [tool(name) for name in ["steps", "ask", "fail", "hang", "crash"]]})
    elif method == "tools/call":
        name, words = params["name"], ""
        if name == "hang":
            subprocess.run(["sleep", os.environ["MARK"]])
        if name == "crash":
            print("it broke", file=sys.stderr); sys.exit(5)
        if name == "steps":
            for n in [1, 2]:
                say(method="notifications/progress", params={"progressToken": params["_meta"]["progressToken"], "progress": n, "message": "step %d" % n})
        if name == "ask":
            say(id="q", method="elicitation/create", params={"message": "Sure?", "requestedSchema": {"type": "object", "properties": {
                "color": {"type": "string", "enum": ["red", "blue"]}, "n": {"type": "integer"}, "ok": {"type": "boolean"}}}})
            words = json.dumps(json.loads(sys.stdin.readline())["result"])
        answer({"content": [{"type": "text", "text": words or name + " " + params["arguments"].get("text", "")}], "structuredContent": {"can": can_ask},
                "isError": name == "fail"})
'''


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def test_our_own(home, root):
    base = home + "/servers"
    os.makedirs(root + "/below")
    write(root + "/below/file", "inside\n")
    write(base + "/tool.json", json.dumps({"mcpServers": {
        "inner": {"command": PROGRAM, "args": ["mcp", "--yes", root + "/below"]}, "far": {"url": "https://example.org/mcp"},
        "gone": {"command": "/no/such/server"}}}))
    result = run("inner_read", {"path": "file"}, root, "--tool", base)
    check(code(result) == "OK" and "inside" in result["data"]["text"], "a server within: %r" % result)
    result = run("inner_read", {"path": "nofile"}, root, "--tool", base)
    check(code(result) == "EXIT_STATUS" and "NOT_FOUND" in result["data"]["text"], "its error: %r" % result)
    equal("INVALID_ARGUMENT", code(run("inner_read", {"path": 5, "offset": "x"}, root, "--tool", base)), "its schema counts")
    server = Mcp(root, "--tool", base)
    names = [t["name"] for t in server.ask("tools/list")["result"]["tools"]]
    check("inner_grep" in names and "grep" in names, "an agent has both")
    server.close()


def test_another(home, root):
    base = home + "/other"
    write(base + "/server.py", SERVER)
    write(base + "/tool.json", json.dumps({"command": ["python3", "server.py"], "protocol": "mcp", "env": {"MARK": MARK}, "timeout_s": 60}))
    result = run("echo", {"text": "hello"}, root, "--tool", base)
    equal(("echo hello", {"can": False}), (result["data"]["text"], result["data"]["details"]), "text and structure")
    equal("EXIT_STATUS", code(run("fail", {}, root, "--tool", base)), "isError")
    result = run("crash", {}, root, "--tool", base)
    check("exit 5: it broke" in result["error"]["message"], "a crash: %r" % result)
    server = Mcp(root, "--tool", base, "--yes")
    server.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}})
    server.send({"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": "steps", "arguments": {}, "_meta": {"progressToken": 1}}})
    equal(["step 1", "step 2"], [json.loads(server.receive())["params"]["message"] for _ in range(2)], "progress")
    equal(4, json.loads(server.receive())["id"], "then the result")
    server.send({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "ask", "arguments": {}}})
    for value in ["blue", "42", True]:
        asked = json.loads(server.receive())
        check("Sure?" in asked["params"]["message"], "asks: %r" % asked)
        server.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"value": value}}})
    text = json.loads(server.receive())["result"]["content"][0]["text"]
    equal({"action": "accept", "content": {"color": "blue", "n": 42, "ok": True}}, json.loads(text), "its form, question by question")
    server.send({"jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": {"name": "hang", "arguments": {}}})

    def one_running():
        return bool(running())

    def none_left():
        return not running()

    wait_for(one_running)
    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 6}})
    wait_for(none_left, 30)
    server.close()
    write(base + "/server.py", "print('hello', flush=True)\n")
    result = run("echo", {"text": "x"}, root, "--tool", base)
    check("NONE" == code(result), "what is no server has no tools: %r" % result)


def main():
    home = private_home()
    with Directory() as root:
        test_our_own(home, root)
        test_another(home, root)
    finish()


main()
