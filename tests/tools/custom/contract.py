"""One contract for the tool "exam" in every language: what isthmus promises to a custom tool."""
import json
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from toolslib import MARK, PROGRAM, Directory, Mcp, check, code, equal, finish, private_home, run, running, wait_for  # noqa: E402


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
    equal("Exam", listed["exam"]["title"], "title")
    equal("integer", listed["exam"]["inputSchema"]["properties"]["count"]["type"], "schema")
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
    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 6}})
    wait_for(none_left, 30)
    equal({}, server.ask("ping")["result"], "a cancelled call is never answered")
    equal((b"", 0), server.close(), "end")


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
            for test in [test_results, test_failures, test_long_result, test_mcp]:
                test(tool, root)
    with Directory() as root:
        test_interrupt(sys.argv[1], root)
    finish()


main()
