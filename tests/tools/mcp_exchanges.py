"""Raw JSON-RPC to the MCP server: both eras, bad input of every kind, what is never answered."""
import json
import os
import signal
import subprocess
import time

from toolslib import MARK, PATIENCE, Directory, Mcp, check, equal, finish, private_home, running, wait_for, wanted

META = "io.modelcontextprotocol/"
MODERN = {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": {"elicitation": {}}}


def request(method, params=None, identity="7"):
    """One line, with the id as raw text."""
    text = '{"jsonrpc":"2.0","id":%s,"method":"%s"' % (identity, method)
    return (text + (',"params":' + json.dumps(params) if params is not None else "") + "}").encode()


# What is sent, and the error code of the answer with its id as raw text.
BAD = [
    (b"{bad", -32700, "null"),
    (b"\xff\xfe", -32700, "null"),
    (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32700, "null"),
    (b'{"jsonrpc":"2.0","id":01,"method":"ping"}', -32700, "null"),
    (b'"text"', -32600, "null"),
    (b"5", -32600, "null"),
    (b"null", -32600, "null"),
    (b"[]", -32600, "null"),
    (b"[1]", -32600, "null"),
    (b"{}", -32600, "null"),
    (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600, "1"),
    (b'{"jsonrpc":"2.0","id":1}', -32600, "1"),
    (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600, "1"),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, "null"),
    (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600, "null"),
    (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, "null"),
    (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[]}', -32602, "7"),
    (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":5}', -32602, "7"),
    (request("nope"), -32601, "7"),
    (request("resources/list"), -32601, "7"),
    (request("tools/call", {}), -32602, "7"),
    (request("tools/call", {"name": 5}), -32602, "7"),
    (request("tools/call", {"name": "nope"}), -32602, "7"),
    (request("tools/list", {"cursor": "x"}), -32602, "7"),
    (request("initialize", {}), -32602, "7"),
    (request("server/discover"), -32602, "7"),
    (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"read","arguments":'
     b'{"path":"a\\u0000b"}}}', -32602, "7"),
    (request("tools/list", {"_meta": {META + "protocolVersion": "2099-01-01"}}), -32022, "7"),
    (request("tools/list", {"_meta": {META + "protocolVersion": "2026-07-28"}}), -32602, "7"),
    (request("tools/list", {"_meta": {META + "protocolVersion": 5}}), -32602, "7"),
    (request("tools/call", {"_meta": MODERN, "name": "ls", "requestState": "made up"}), -32602, "7"),
    (b'{"jsonrpc":"2.0","id":7,"method":"' + b"x" * 100000 + b'"}', -32601, "7"),
    (b"[" * 5000, -32700, "null"),
    # Not JSON, but the id can be told: before the fault, or behind one that hides nothing.
    (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"na', -32700, "7"),
    (b'{"jsonrpc":"2.0","id":"a b","method":', -32700, '"a b"'),
    (b'{"method":"tools/call","params":{"name":"read","arguments":{"path":"\xff\xc0"}},"id":7,"jsonrpc":"2.0"}', -32700, "7"),
    (b'{"method":"tools/call","params":{"name":"read","arguments":{"path":"a\tb\0"}},"id":7,"jsonrpc":"2.0"}', -32700, "7"),
    (b'{"method":"tools/call","params":{"path":"a\\d\\"\\u12"},"id":7,"jsonrpc":"2.0"}', -32700, "7"),
    (b'{"method":"tools/call","params":{"path":"\\ud83d"},"id":7,"jsonrpc":"2.0"}', -32700, "7"),
    (b'{"method":"tools/call","params":{"limit":NaN},"id":7,"jsonrpc":"2.0"}', -32700, "7"),
    (b'{"method":"tools/call","params":{"name":"x"},"id":7,"jsonrpc":"2.0"} x', -32700, "7"),
    (b'{"jsonrpc":"2.0","id":7,"method":"x","params":"' + b"x" * (11 << 20) + b'"}', -32600, "7"),
    # It cannot: an id that may go on, one of the arguments, two, one of an answer.
    (b'{"jsonrpc":"2.0","method":"x","id":12', -32700, "null"),
    (b'{"jsonrpc":"2.0","method":"x","id":"12', -32700, "null"),
    (b'{"method":"tools/call","params":{"arguments":{"id":7}', -32700, "null"),
    (b'{"jsonrpc":"2.0","id":7,"method":"x","id":8,"params":{"a', -32700, "null"),
    (b'{"jsonrpc":"2.0","id":7,"result":{"a', -32700, "null"),
    (b'{"jsonrpc":"2.0","method":"ping","id":"a\xff"}', -32700, "null"),
    (b'{"method":"tools/call","params":{"a":{"command":"echo "}},"id":7,"x":" hi"}},"id":3}', -32700, "null"),
]

IDS = ["0", "-1", "12345678901234567890123", "1.5", "1e3", '"a"', '""', '"\\u00e9\\n"', '"\u00e9"',
       '"' + "x" * 1000 + '"']


def test_bad_input(root):
    server = Mcp(root)
    for line, want, identity in BAD:
        server.send(line)
        raw = server.receive()
        answer = json.loads(raw)
        equal(want, answer.get("error", {}).get("code"), line[:80])
        check(raw.startswith(b'{"jsonrpc":"2.0","id":' + identity.encode() + b","), raw[:80])
    # Never answered: notifications, answers to nothing, empty lines.
    for line in [b"", b"  \r", b'{"jsonrpc":"2.0","method":"notifications/nope"}',
                 b'{"jsonrpc":"2.0","id":99,"result":{}}', b'{"jsonrpc":"2.0","id":"x","error":{}}',
                 b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12}}',
                 b'{"jsonrpc":"2.0","method":"notifications/cancelled"}']:
        server.send(line)
    equal({}, server.ask("ping")["result"], "still alive")
    rest, status = server.close()
    equal((b"", 0), (rest, status), "end of input")


def test_ids_come_back_exactly(root):
    server = Mcp(root)
    for identity in IDS:
        server.send(request("ping", identity=identity))
        check(server.receive().startswith(b'{"jsonrpc":"2.0","id":' + identity.encode() + b","),
              "id " + identity)
        server.send(request("tools/call", {"name": "ls", "arguments": {}}, identity))
        check(server.receive().startswith(b'{"jsonrpc":"2.0","id":' + identity.encode() + b","),
              "id of a call " + identity)
    server.close()


def test_too_long(root):
    server = Mcp(root)
    server.send(b'{"x":"' + b"y" * (11 << 20) + b'"}')
    equal(-32600, json.loads(server.receive())["error"]["code"], "too long")
    equal({}, server.ask("ping")["result"], "still alive")
    server.close()


def test_versions(root):
    for version in ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]:
        server = Mcp(root)
        answer = server.ask("initialize", {"protocolVersion": version, "capabilities": {},
                                           "clientInfo": {"name": "t", "version": "1"}})["result"]
        equal(version, answer["protocolVersion"], "version")
        check("resultType" not in answer and answer["serverInfo"]["name"] == "isthmus", "handshake")
        server.send(b'[%s,%s]' % (request("ping", identity="1"), request("ping", identity='"2"')))
        answer = json.loads(server.receive())
        if version == "2025-03-26":
            equal([1, "2"], sorted((a["id"] for a in answer), key=str), "batch")
        else:
            equal(-32600, answer["error"]["code"], "no batch")
        server.close()
    server = Mcp(root)
    equal("2025-11-25", server.ask("initialize", {"protocolVersion": "1999-01-01"})
          ["result"]["protocolVersion"], "unknown version")
    server.close()


def test_stateless_era(root):
    server = Mcp(root)
    answer = server.ask("server/discover", {"_meta": MODERN})["result"]
    check("2026-07-28" in answer["supportedVersions"], "discover")
    equal(("complete", "private"), (answer["resultType"], answer["cacheScope"]), "discover")
    answer = server.ask("tools/list", {"_meta": MODERN})["result"]
    check(answer["resultType"] == "complete" and answer["ttlMs"] >= 0, "list")
    for tool in answer["tools"]:
        check(len(tool["name"]) <= 40 and set(tool["name"]) <= set("abcdefghijklmnopqrstuvwxyz_"),
              "name " + tool["name"])
        equal({"title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"},
              set(tool["annotations"]), "annotations")
        equal("object", tool["inputSchema"]["type"], "schema")
        equal(tool["name"] == "launch_app", "outputSchema" in tool, "which results are structured")
    passed_on = [{name: tool[name] for name in ("name", "description", "inputSchema")} for tool in answer["tools"]]
    size = len(json.dumps(passed_on, separators=(",", ":")))
    check(size <= 9 << 10, "every model reads all tools before it does anything: %d bytes" % size)
    call = {"_meta": MODERN, "name": "bash", "arguments": {"command": "mkdir hi && echo hi"}}
    first = server.ask("tools/call", call)["result"]
    equal("input_required", first["resultType"], "question")
    check("mkdir hi" in first["inputRequests"]["permission"]["params"]["message"], "its words")
    other = dict(call, arguments={"command": "echo other"}, requestState=first["requestState"],
                 inputResponses={"permission": {"action": "accept", "content": {"decision": "once"}}})
    equal(-32602, server.ask("tools/call", other)["error"]["code"], "another call's state")
    first = server.ask("tools/call", call)["result"]
    again = dict(call, requestState=first["requestState"], inputResponses={
        "permission": {"action": "accept", "content": {"decision": "once"}}})
    equal("hi\n", server.ask("tools/call", again)["result"]["content"][0]["text"], "allowed")
    equal(-32602, server.ask("tools/call", again)["error"]["code"], "a state serves once")
    first = server.ask("tools/call", call)["result"]
    refused = server.ask("tools/call", dict(call, requestState=first["requestState"], inputResponses={
        "permission": {"action": "decline"}}))["result"]
    equal("PERMISSION_DENIED", refused["_meta"]["isthmus/result"]["error"]["code"], "declined")
    without = dict(call, _meta={META + "protocolVersion": "2026-07-28", META + "clientCapabilities": {}})
    answer = server.ask("tools/call", without)["result"]
    check(answer["isError"] and "nobody to ask" in answer["content"][0]["text"], "nobody to ask")
    server.close()


def test_bad_arguments_are_results(root):
    server = Mcp(root)
    for name, arguments in [("read", {}), ("read", {"path": 5}), ("read", {"path": "a", "x": 1}),
                            ("read", {"path": ""}), ("read", []), ("ls", {"limit": 0}),
                            ("ls", {"limit": 1.5}), ("grep", {"pattern": "("}),
                            ("edit", {"path": "a.txt", "edits": []}), ("read", {"path": "../x"})]:
        answer = server.ask("tools/call", {"name": name, "arguments": arguments})
        result = answer.get("result", {})
        check(result.get("isError") and not result["_meta"]["isthmus/result"]["success"],
              "%s %s: %s" % (name, arguments, answer))
        check(result["_meta"]["isthmus/result"]["error"]["ai_message"] in result["content"][0]["text"],
              "the text says it all")
    server.close()


def initialize(server, capabilities):
    return server.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": capabilities})


def test_elicitation(root):
    server = Mcp(root)
    words = initialize(server, {"elicitation": {}})["result"]["instructions"]
    check(" %s;" % root in words and "another place" not in words, "the root is named: " + words)
    for reply, want in [({"result": {"action": "accept", "content": {"decision": "once"}}}, True),
                        ({"result": {"action": "decline"}}, False),
                        ({"result": {"action": "cancel"}}, False),
                        ({"result": {"action": "accept", "content": {"decision": "deny"}}}, False),
                        ({"error": {"code": -32601, "message": "no"}}, False)]:
        server.send(request("tools/call", {"name": "bash", "arguments": {"command": "mkdir -p x"}}))
        question = json.loads(server.receive())
        equal("elicitation/create", question["method"], "question")
        server.send(dict(reply, jsonrpc="2.0", id=question["id"]))
        result = json.loads(server.receive())["result"]
        equal(want, not result["isError"], reply)
        by_user = reply.get("result", {}).get("action") in ("accept", "decline")
        check(want or by_user == ("The user did not allow it" in result["content"][0]["text"]), "who refused: %s" % result)
        # A client may have answered by itself: each refusal has the rule.
        rule = '{"permissions": [{"tool":"bash","pattern":"mkdir *","action":"allow"}]} in ~/.config/isthmus/tools.json'
        check(want or (rule in text_of(result) and rule in result["_meta"]["isthmus/result"]["error"]["ai_message"]),
              "the rule that would allow it: %s" % result)
        decision = question["params"]["requestedSchema"]["properties"]["decision"]
        equal("once", decision["default"], "a form begins with the answer that allows the least")
    # "always" is remembered, for that command only.
    server.send(request("tools/call", {"name": "bash", "arguments": {"command": "mkdir -p x"}}))
    question = json.loads(server.receive())
    server.send({"jsonrpc": "2.0", "id": question["id"],
                 "result": {"action": "accept", "content": {"decision": "always"}}})
    server.receive()
    equal(False, server.call("bash", {"command": "mkdir y"})["isError"], "always")
    server.send(request("tools/call", {"name": "bash", "arguments": {"command": "mkdir v; touch z"}}))
    equal("elicitation/create", json.loads(server.receive())["method"], "another command asks")
    server.close()
    check(not os.path.exists(root + "/z"), "unanswered means no")


def test_a_client_that_shows_all_of_a_failure_gets_the_text_alone(root):
    for client, shown in ("gemini-cli-mcp-client", False), ("claude-code", True):
        server = Mcp(root)
        server.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": client, "version": "1"}})
        result = server.call("read", {"path": "nofile"})
        equal((True, shown), (result["isError"], "_meta" in result), client)
        check("NOT_FOUND" in text_of(result), result)
        check("_meta" in server.call("read", {"path": "a.txt"}), "what succeeds has it")
        server.close()


def test_a_refusal_says_what_would_allow_it(root):
    server = Mcp(root)

    def refused(name, arguments):
        result = server.call(name, arguments)
        check(result["isError"], result)
        return text_of(result)

    text = refused("bash", {"command": "echo x > .envrc"})
    check('{"tool":"write","pattern":".envrc","action":"allow"}' in text, "a path in a command: " + text)
    text = refused("bash", {"command": "mkdir a; for i in 1; do mkdir b; done"})
    check('only the rule {"tool": "bash", "pattern": "*"' in text, "a line that is not understood: " + text)
    server.close()
    # A project's rules can only restrict: where that makes a difference, it is said.
    for action, want in ("allow", "can only restrict"), ("ask", ".isthmus.json asks about it"):
        with open(root + "/.isthmus.json", "w", encoding="utf-8") as file:
            json.dump({"permissions": [{"tool": "bash", "pattern": "mkdir *", "action": action}]}, file)
        server = Mcp(root)
        text = refused("bash", {"command": "mkdir a"})
        check(want in text, "%s by the project: %s" % (action, text))
        check(want not in refused("bash", {"command": "touch b"}), "only where it is about the call")
        server.close()
    os.unlink(root + "/.isthmus.json")


def test_questions_without_an_answer_leave_room_for_other_calls(root):
    server = Mcp(root)
    initialize(server, {"elicitation": {}})
    for number in range(100):
        server.send(request("tools/call", {"name": "bash", "arguments": {"command": "mkdir d%d" % number}}, str(number)))
    questions, refused = [], 0
    for _ in range(100):
        message = json.loads(server.receive())
        if message.get("method") == "elicitation/create":
            questions.append(message["id"])
        else:
            refused += "too many other questions wait for the user's answer" in text_of(message["result"])
    equal((32, 68), (len(questions), refused), "questions, and calls that say why they were not asked")
    equal("one\ntwo\n", text_of(server.call("read", {"path": "a.txt"})), "a call without a question")
    server.send({"jsonrpc": "2.0", "id": questions[0], "result": {"action": "decline"}})
    check("did not allow it" in text_of(json.loads(server.receive())["result"]), "the answer to one")
    server.send(request("tools/call", {"name": "bash", "arguments": {"command": "mkdir e"}}))
    equal("elicitation/create", json.loads(server.receive())["method"], "makes room for another")
    server.close()


def test_always_counts_for_the_call_itself(root):
    os.mkdir(root + "/asked")
    for name in "one", "two":
        with open(root + "/asked/" + name, "w", encoding="utf-8"):
            pass
    with open(root + "/.isthmus.json", "w", encoding="utf-8") as file:
        json.dump({"permissions": [{"tool": "ls", "pattern": "asked", "action": "ask"}]}, file)
    server = Mcp(root)
    initialize(server, {"elicitation": {}})
    server.send(request("tools/call", {"name": "ls", "arguments": {"path": "asked"}}))
    question = json.loads(server.receive())
    server.send({"jsonrpc": "2.0", "id": question["id"],
                 "result": {"action": "accept", "content": {"decision": "always"}}})
    first = json.loads(server.receive())["result"]["content"][0]["text"]
    check("one" in first and "two" in first, "the entries that the answer was about: " + first)
    equal(first, server.call("ls", {"path": "asked"})["content"][0]["text"], "and in later calls")
    server.close()
    os.unlink(root + "/.isthmus.json")


def test_always_for_a_path_outside_covers_its_directory(root):
    with Directory() as outside:
        for name in "one", "two":
            with open(outside + "/" + name, "w", encoding="utf-8") as file:
                file.write(name)
        server = Mcp(root)
        initialize(server, {"elicitation": {}})
        server.send(request("tools/call", {"name": "bash", "arguments": {"command": "cat %s/one" % outside}}))
        question = json.loads(server.receive())
        check("outside %s/*" % outside in question["params"]["message"], "it says so: %s" % question)
        server.send({"jsonrpc": "2.0", "id": question["id"],
                     "result": {"action": "accept", "content": {"decision": "always"}}})
        server.receive()
        check("two" in server.call("bash", {"command": "cat %s/two" % outside})["content"][0]["text"], "beside it")
        for command in "cat %s" % outside, "cat %s2/one" % outside, "cat /etc", "cp %s/one x" % outside:
            server.send(request("tools/call", {"name": "bash", "arguments": {"command": command}}))
            question = json.loads(server.receive())
            equal("elicitation/create", question.get("method"), "asks: " + command)
            if command == "cat /etc":
                check("outside /*" not in question["params"]["message"], "not all of /: %s" % question)
            server.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
            server.receive()
        server.close()


def test_cancelled_calls_are_never_answered(root):
    server = Mcp(root, "--yes")
    initialize(server, {})
    for identity in ['"one"', "0", "12345678901234567890"]:
        server.send(request("tools/call", {"name": "bash", "arguments": {"command": "sleep " + MARK}},
                            identity))
        wait_for(running)
        server.send(('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}'
                     % identity).encode())
    equal({}, server.ask("ping", identity=2)["result"], "only the ping is answered")
    rest, status = server.close()
    equal((b"", 0), (rest, status), "nothing more came")
    equal([], running(), "nothing is left running")


def test_ends_with_its_input_and_by_signal(root):
    for end in ["input", "reader", signal.SIGTERM, signal.SIGINT]:
        server = Mcp(root, "--yes")
        server.send(request("tools/call", {"name": "bash", "arguments": {
            "command": "(setsid sleep %s &); trap '' TERM; sleep %s" % (MARK, MARK)}}))
        wait_for(running)
        start = time.time()
        if end in ("input", "reader"):
            server.process.stdin.close()
        if end == "reader":
            server.process.stdout.close()
        elif end != "input":
            server.process.send_signal(end)
        server.process.wait(60)
        check(time.time() - start < (15 if end == "input" else 5) * PATIENCE, "ends soon: %s" % end)
        equal([], running(), "its children are gone: %s" % end)


def test_a_signal_after_the_end_of_input_ends_what_is_waited_for(root):
    server = Mcp(root, "--yes")
    server.send(request("tools/call", {"name": "bash", "arguments": {"command": "sleep " + MARK}}))
    wait_for(running)
    server.process.stdin.close()
    time.sleep(1)
    start = time.time()
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(60)
    check(time.time() - start < 5 * PATIENCE, "ends soon")
    equal([], running(), "its children are gone")


def test_calls_before_the_end_of_input_are_answered(root):
    server = Mcp(root, "--yes")
    server.send(request("tools/call", {"name": "bash", "arguments": {"command": "sleep 3; echo done"}}))
    rest, status = server.close()
    equal(0, status, "exit code")
    check(b"done" in rest, "the answer: %r" % rest)


def test_progress(root):
    server = Mcp(root, "--yes")
    for token in ['"t"', "0", "12345678901234567890"]:
        server.send(('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":%s}'
                     ',"name":"bash","arguments":{"command":"for i in 1 2 3 4; do echo $i; sleep 0.15;'
                     ' done"}}}' % token).encode())
        seen = []
        while True:
            raw = server.receive()
            message = json.loads(raw)
            if "id" in message:
                break
            check(b'"progressToken":' + token.encode() in raw, "token")
            seen.append(message["params"]["progress"])
        check(len(seen) >= 3 and seen == sorted(set(seen)), "increasing: %s" % seen)
    check(b"progress" not in json.dumps(server.call("bash", {"command": "echo x; sleep 0.3; echo y"}))
          .encode(), "none without a token")
    server.close()


def test_a_silent_call_shows_that_it_runs(root):
    server = Mcp(root, "--yes")
    server.send(request("tools/call", {"_meta": {"progressToken": 1}, "name": "bash",
                                       "arguments": {"command": "sleep 7"}}))
    message = json.loads(server.receive())
    equal("notifications/progress", message["method"], "progress")
    check("running 5 s, no output for 5 s" in message["params"]["message"]
          or "running 6 s" in message["params"]["message"], message)
    check("id" in json.loads(server.receive()), "the answer")
    server.close()


def test_each_call_of_a_flood_is_in_the_log(root):
    server = Mcp(root, "--yes")
    for number in range(600):
        server.send(request("tools/call", {"name": "bash", "arguments": {"command": "true"}}, str(number)))
    server.process.stdin.close()
    results = [json.loads(line)["result"]["_meta"]["isthmus/result"] for line in server.process.stdout]
    equal((600, 0), (len(results), len([result for result in results if not result.get("log")])), "calls, those without a record")
    equal(0, server.process.wait(10 * PATIENCE), "end")


def test_half_a_surrogate_pair_is_answered(root):
    server = Mcp(root, "--yes")
    for text in [b"\\ud83d", b"x\\uDC00y", b"\\ud83d\\ud83d\\ude00"]:
        server.send(b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"write","arguments":'
                    b'{"path":"s","content":"' + text + b'"}}}')
        answer = json.loads(server.receive())
        equal(("a", -32700), (answer["id"], answer["error"]["code"]), text)
    check(not os.path.exists(root + "/s"), "nothing was written")
    server.send(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","arguments":'
                b'{"path":"s","content":"\\ud83d\\ude00 \\\\ud83d"}}}')
    check(not json.loads(server.receive())["result"]["isError"], "a whole pair")
    with open(root + "/s", encoding="utf-8") as written:
        equal("\U0001f600 \\ud83d", written.read(), "as it was sent")
    os.unlink(root + "/s")
    server.close()


def test_what_models_send_in_another_form(root):
    server = Mcp(root, "--yes")
    edit = {"old_text": "one", "new_text": "1"}
    for edits in [json.dumps([edit]), edit, json.dumps(edit), [edit]]:
        with open(root + "/e", "w", encoding="utf-8") as made:
            made.write("one\n")
        result = server.call("edit", {"path": "e", "edits": edits, "create_backup": "false"})
        check(not result["isError"], (edits, result["content"]))
    equal("1", server.call("read", {"path": "e", "limit": "1"})["content"][0]["text"].strip(), "a number as text")
    check(server.call("read", {"path": "e", "limit": "x"})["isError"], "no number")
    check(server.call("edit", {"path": "e", "edits": "[1"})["isError"], "no JSON")
    os.unlink(root + "/e")
    server.close()


def test_results_are_as_short_as_their_text(root):
    server = Mcp(root, "--yes")
    result = server.call("bash", {"command": "echo hi"})
    equal([{"type": "text", "text": "hi\n"}], result["content"], "what models see")
    check("structuredContent" not in result, "hosts that prefer it would show it instead")
    equal(0, result["_meta"]["isthmus/result"]["data"]["exit_code"], "for programs")
    result = server.call("launch_app", {"app_name": "sh", "args": ["-c", "echo out; echo err >&2"]})
    equal(("out\n", "err\n"), (result["structuredContent"]["data"]["stdout"],
                               result["structuredContent"]["data"]["stderr"]), "parts apart")
    result = server.call("read", {"path": "a.txt"})
    equal("one\ntwo\n", result["content"][0]["text"], "raw text")
    check(result["_meta"]["isthmus/result"]["data"]["hash"] in result["content"][1]["text"], "the hash, apart")
    server.close()


def text_of(result):
    return result["content"][0]["text"]


def start_job(server, command):
    result = server.call("bash", {"command": command, "background": True})
    check(not result["isError"], result)
    return result["_meta"]["isthmus/result"]["data"]["background_id"]


def test_background_commands(root):
    server = Mcp(root, "--yes")
    job = start_job(server, "echo one; read line; echo got:$line; sleep " + MARK)
    seen = text_of(server.call("bash_output", {"id": job, "wait_s": 20}))
    check(seen.startswith("one\n[Running "), seen)
    check(not server.call("bash_input", {"id": job, "text": "word\n"})["isError"], "input")
    check(text_of(server.call("bash_output", {"id": job, "wait_s": 20})).startswith("got:word\n[Running "), "since then")
    check(("%d  running" % job) in text_of(server.call("bash_output", {})), "listed")
    wait_for(running)
    check(not server.call("bash_kill", {"id": job})["isError"], "killed")
    equal([], running(), "its children are gone")
    check("it was killed" in text_of(server.call("bash_output", {"id": job})), "told")
    equal("NOT_FOUND", text_of(server.call("bash_output", {"id": job})).split(":")[0], "forgotten")
    server.close()


def test_background_commands_are_bounded(root):
    server = Mcp(root, "--yes")
    job = start_job(server, "seq 1 400000; exit 4")
    text = ""
    while "Ended" not in text:
        text += text_of(server.call("bash_output", {"id": job, "wait_s": 20, "filter": "^39999[0-9]$|^400000$"}))
    check("400000" in text and "[Ended with exit code 4.]" in text and len(text) < 60000, text[-200:])
    jobs = [start_job(server, "sleep " + MARK) for _ in range(16)]
    refused = server.call("bash", {"command": "true", "background": True})
    check(refused["isError"] and "bash_kill" in text_of(refused), "one too many")
    equal("NOT_FOUND", text_of(server.call("bash_kill", {"id": 999})).split(":")[0], "unknown")
    check(server.call("bash_output", {"id": jobs[0], "filter": "("})["isError"], "a bad filter")
    server.close()
    equal([], running(), "they end with the session")


def test_many_at_once(root):
    server = Mcp(root, "--yes")
    for i in range(40):
        server.send(request("tools/call", {"name": "bash", "arguments": {"command": "sleep 0.2; echo %d" % i}},
                            str(i)))
    start, got = time.time(), set()
    for _ in range(40):
        answer = json.loads(server.receive())
        equal("%d\n" % answer["id"], answer["result"]["content"][0]["text"], "its own answer")
        got.add(answer["id"])
    check(got == set(range(40)) and time.time() - start < 4, "side by side")
    server.close()


def test_more_than_run_at_once_wait(root):
    server = Mcp(root, "--yes")
    for i in range(300):
        command = "until [ -e go ]; do sleep 0.05; done; echo %d" % i if i < 64 else "echo %d" % i
        server.send(request("tools/call", {"name": "bash", "arguments": {"command": command}}, str(i)))
    # What waits can be cancelled, and what is not a call does not wait.
    server.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":299}}')
    equal({}, server.ask("ping")["result"], "none of them has an answer yet")
    open(root + "/go", "w", encoding="utf-8").close()
    answers = [json.loads(server.receive()) for _ in range(299)]
    os.unlink(root + "/go")
    equal(list(range(299)), sorted(answer["id"] for answer in answers), "each call has its answer")
    for answer in answers:
        equal("%d\n" % answer["id"], text_of(answer["result"]), "its own answer")
    server.close()


def test_start_has_no_side_effects(root):
    before = sorted(os.listdir(root))
    equal((b"", 0), Mcp(root).close(), "nothing is written unasked")
    equal(before, sorted(os.listdir(root)), "the directory is as before")


private_home()
with Directory() as directory:
    with open(directory + "/a.txt", "w", encoding="utf-8") as file:
        file.write("one\ntwo\n")
    for name, test in sorted(globals().items()):
        if wanted(name):
            test(directory)
finish()
