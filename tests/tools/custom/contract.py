"""One contract for the tool "exam" in every language: what isthmus promises to a custom tool."""
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from toolslib import (MARK, MODERN, PATIENCE, PROGRAM, Directory, Mcp, check, code, descendants, equal, finish, private_home, run,  # noqa: E402
                      running, wait_for)


def none_left():
    return not running()


def one_running():
    return bool(running())


def exam(tool, root, does, **arguments):
    return run("exam", {"do": does, **arguments}, root, "--tool", tool)


def test_results(tool, root):
    result = exam(tool, root, "echo", text="hello there")
    equal("hello there", result.get("data", {}).get("text"), "text")
    equal({"secret": "kept apart"}, result.get("data", {}).get("details"), "details")
    equal(os.path.realpath(root), exam(tool, root, "cwd").get("data", {}).get("text"), "where it runs")
    equal("$HOME and *", exam(tool, root, "exec").get("data", {}).get("text"), "no shell reads exec")
    equal("heard", exam(tool, root, "noise").get("data", {}).get("text"), "noise and stderr are no failure")
    equal("first", exam(tool, root, "twice").get("data", {}).get("text"), "the first result counts")
    done = subprocess.run([PROGRAM, "tool", "exam", "--tool", tool, "--root", root, "--yes", "--do", "echo", "--text",
                           "plain"], capture_output=True, check=False)
    equal((0, b"plain\n"), (done.returncode, done.stdout), "on the command line, without details")


def test_failures(tool, root):
    result = exam(tool, root, "throw", text="it")
    equal(("EXIT_STATUS", "no luck with it"), (code(result), result["error"]["message"]), "error line")
    result = exam(tool, root, "crash")
    check("exit 3" in result["error"]["message"] and "it broke" in result["error"]["message"], "crash: %r" % result)
    result = exam(tool, root, "silent")
    check("without a result" in result["error"]["message"], "silent: %r" % result)
    result = exam(tool, root, "nonsense")
    check(code(result) == "INVALID_ARGUMENT" and "do must be one of" in result["error"]["message"], "schema: %r" % result)
    result = exam(tool, root, "echo", count="many")
    check("count must be an integer" in result["error"]["message"], "the field is named: %r" % result)
    equal("chose  in", exam(tool, root, "ask")["data"]["text"][:9], "nobody to ask")


def test_long_result(tool, root):
    data = exam(tool, root, "big")["data"]
    check(len(data["text"]) < 52000 and data["output_file"] in data["text"], "cut, and says where the rest is")
    equal(3000000, os.path.getsize(data["output_file"]), "all of it is kept")
    shown = run("read", {"path": data["output_file"], "limit": 1}, root)
    equal("x" * 99, shown["data"]["content"][:99] if "content" in shown["data"] else shown["data"], "read opens it")


def test_mcp(tool, root):
    server = Mcp(root, "--tool", tool, "--yes")
    listed = {t["name"]: t for t in server.ask("tools/list")["result"]["tools"]}
    equal(("Exam", "What a contract asks"), (listed["exam"]["title"], listed["exam"]["description"]), "title and description")
    schema = listed["exam"]["inputSchema"]
    equal(("object", ["do"], False, {"type": "string"}, {"type": "integer"}),
          (schema["type"], schema["required"], schema["additionalProperties"], schema["properties"]["text"], schema["properties"]["count"]), "schema")
    check("before" in schema["properties"]["do"]["enum"], "the schema's words")
    result = server.call("exam", {"do": "throw", "text": "it"})
    equal((True, "EXIT_STATUS: no luck with it"), (result["isError"], result["content"][0]["text"]), "a thrown error")
    result = server.call("exam", {"do": "echo", "text": "hi"})
    equal([{"type": "text", "text": "hi"}], result["content"], "details are not for the model")
    equal({"secret": "kept apart"}, result["_meta"]["isthmus/result"]["data"]["details"], "details are for programs")
    equal("all steps", server.call("exam", {"do": "update"})["content"][0]["text"], "no progress where nobody asked for it")
    server.send({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {
        "name": "exam", "arguments": {"do": "update"}, "_meta": {"progressToken": "t"}}})
    progress = [json.loads(server.receive()) for _ in range(3)]
    equal(["step 1", "step 2", "step 3"], [p.get("params", {}).get("message") for p in progress], "progress in order")
    numbers = [p.get("params", {}).get("progress", 0) for p in progress]
    check(numbers == sorted(set(numbers)), "progress increases: %r" % numbers)
    answer = json.loads(server.receive())
    equal((5, "all steps"), (answer.get("id"), answer.get("result", {}).get("content", [{}])[0].get("text")), "then the result")
    server.send({"jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": {
        "name": "exam", "arguments": {"do": "hang", "text": MARK}}})
    wait_for(one_running)
    start = time.monotonic()
    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 6}})
    wait_for(none_left, 30)
    check(time.monotonic() - start < 8 * PATIENCE, "what ignores TERM is gone 5.5 s later: %.1f s" % (time.monotonic() - start))
    equal({}, server.ask("ping")["result"], "a cancelled call is never answered")
    equal((b"", 0), server.close(), "end")


def test_questions(tool, root):
    server = Mcp(root, "--tool", tool, "--yes")
    call = {"name": "exam", "arguments": {"do": "ask"}, "_meta": MODERN}
    first = server.ask("tools/call", call)["result"]
    before = descendants(server.process.pid)
    yes = {"question": {"action": "accept", "content": {"value": "red"}}}
    words = server.ask("tools/call", dict(call, requestState=first["requestState"], inputResponses=yes))["result"]["content"][0]["text"].split()
    equal(["chose", "red", "in"], words[:3], "parked and resumed")
    check(int(words[3]) in before, "in the same process")
    server.close()
    server = Mcp(root, "--tool", tool, "--yes")
    server.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}})
    for answer, want in [({"action": "accept", "content": {"value": "blue"}}, "chose blue in "), ({"action": "decline"}, "chose  in ")]:
        server.send({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "exam", "arguments": {"do": "ask"}}})
        asked = json.loads(server.receive())
        equal(["red", "blue"], asked["params"]["requestedSchema"]["properties"]["value"]["enum"], "the form")
        server.send({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
        text = json.loads(server.receive())["result"]["content"][0]["text"]
        check(text.startswith(want), "%r: %s" % (answer, text))
    server.close()


LISTENS = '''#!/usr/bin/env python3
import json, os, sys
if os.environ["TOOLBOX_ACTION"] == "describe":
    print(json.dumps({"protocol": "isthmus-tool/1", "lifetime": "session", "subscribe": ["exam:done"], "tools": [
        {"name": "heard", "description": "What it heard"}]}))
    sys.exit()
heard = []
for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "event":
        heard.append(message["data"])
    elif message["type"] == "execute":
        print(json.dumps({"type": "result", "id": message["id"], "content": [{"type": "text", "text": json.dumps(heard)}]}), flush=True)
'''


def test_sessions(tool, root):
    listens = root + "/listens"
    with open(listens, "w", encoding="ascii") as file:
        file.write(LISTENS)
    os.chmod(listens, 0o755)
    server = Mcp(root, "--tool", tool, "--tool", listens, "--yes")

    def ask(does, name="exam", **meta):
        params = {"name": name, "arguments": {"do": does} if does else {}, "_meta": {"isthmus/" + key: value for key, value in meta.items()}}
        result = server.ask("tools/call", params)["result"]
        return [block["text"] for block in result["content"]], result["_meta"]["isthmus/result"]["call_id"]

    text, first = ask("before")
    equal(["0"], text, "a fresh session")
    ask("throw")
    equal(["2"], ask("before")[0], "earlier results, failed ones, too")
    equal(["1"], ask("before", parent=first)[0], "those of the branch")
    equal(["0"], ask("before", session="other")[0], "those of the session")
    equal(["2"], ask("before")[0], "and back on the branch")
    sender = os.path.basename(tool).split(".")[0]
    equal(["[message from %s] by the way" % sender, "told"], ask("tell")[0], "a message, once")
    equal(["emitted"], ask("emit")[0], "and not again")

    def was_heard():
        return ask(None, "heard")[0] == ['[{"n": 1}]']

    wait_for(was_heard)
    server.close()


def test_interrupt(tool, root):
    process = subprocess.Popen([PROGRAM, "tool", "exam", "--tool", tool, "--root", root, "--yes", "--do", "hang", "--text",
                                MARK], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(one_running)
    process.send_signal(signal.SIGTERM)
    equal(130, process.wait(30), "interrupted")
    check(none_left(), "the whole tree is gone, whatever it ignores")


def main():
    private_home()
    for tool in sys.argv[1:]:
        print("--", tool)
        with Directory() as root:
            for test in [test_results, test_failures, test_long_result, test_mcp, test_questions, test_sessions]:
                test(tool, root)
    with Directory() as root:
        test_interrupt(sys.argv[1], root)
    finish()


main()
