"""Where custom tools come from: toolboxes in both forms, order, names, trust, bad tools, tool new."""
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from toolslib import MARK, PROGRAM, Directory, Mcp, check, code, equal, finish, private_home, run, running, until  # noqa: E402

TEXT_TOOL = """#!/bin/sh
[ "$TOOLBOX_ACTION" = describe ] && { printf 'name: %s\\ndescription: %s\\ndir: string a place\\nnote: string? more\\n' %s %s; exit; }
cat; echo "%s AGENT=$AGENT SECRET=$SECRET" $(basename "$PWD")
"""
JSON_TOOL = """#!/usr/bin/env python3
import json, os, sys
if os.environ["TOOLBOX_ACTION"] == "describe":
    print(json.dumps({"name": "run-tests", "description": "Runs", "args": {"dir": ["string", "where"], "n": ["number", "(optional) how many"]}}))
else:
    call = json.load(sys.stdin)
    print("ran in", call["dir"], file=sys.stderr)
    print("got", sorted(call))
    sys.exit(call.get("n", 0))
"""


def write(path, text, mode=0o755):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)


def text_tool(name, words="said"):
    return TEXT_TOOL % ("%s", "%s", name, "Tells", words)


def listed(root, *options):
    done = subprocess.run([PROGRAM, "tool", "list", "--json", "--root", root, *options], capture_output=True, check=True)
    return [item for item in json.loads(done.stdout) if item["state"] != "built-in"], done.stderr.decode()


def states(root, *options):
    return [(item["name"], item["state"]) for item in listed(root, *options)[0]]


def reason(root, name, *options):
    return " ".join(item.get("reason", "") for item in listed(root, *options)[0] if item["name"] == name)


LIMITS_TOOL = """#!/bin/sh
[ "$TOOLBOX_ACTION" = describe ] && { printf 'name: limits\\ndescription: Tells\\n'; exit; }
truncate -s 2000M big 2>/dev/null && echo wrote; truncate -s 1000M small && echo kept; rm -f big small
python3 -c 'bytearray(5 << 30)' 2>/dev/null && echo took; python3 -c 'bytearray(100 << 20)' && echo fine
"""


def test_limits(home, root):
    write(home + "/.config/isthmus/tools/limits/limits", LIMITS_TOOL)
    equal("kept\nfine\n", run("limits", {}, root)["data"]["text"], "no file of 2 GB, no 5 GB of memory")
    manifest = {"command": ["limits"], "limits": {"file_mb": 3000, "memory_mb": 6000}}
    write(home + "/.config/isthmus/tools/limits/tool.json", json.dumps(manifest))
    equal("wrote\nkept\ntook\nfine\n", run("limits", {}, root)["data"]["text"], "unless its tool.json says so")
    shutil.rmtree(home + "/.config/isthmus/tools")


def test_missing_programs_are_named(home, root):
    tools = home + "/.config/isthmus/tools/"
    for name, first, words in [("direct", "/usr/bin/nothere", 'it needs "/usr/bin/nothere", which is not there: install nothere, or correct the path'),
                               ("env", "/usr/bin/env nothere", 'it needs "nothere", which is in no directory of PATH: install nothere'),
                               ("split", "/usr/bin/env -S A=b uv run --script", "install uv: https://docs.astral.sh/uv/")]:
        write(tools + name, "#!%s\n" % first)
        check(reason(root, name).endswith(words), reason(root, name))
    write(tools + "given/tool.json", json.dumps({"command": ["nothere", "--now"]}))
    check('it needs "nothere", which is in no' in reason(root, "given"), reason(root, "given"))
    write(tools + "server/tool.json", json.dumps({"mcpServers": {"s": {"command": "nothere", "args": []}}}))
    check('it needs "nothere", which is in no' in reason(root, "server#s"), listed(root))
    shutil.rmtree(tools)
    # One that was there when it was asked what it is.
    bin = home + "/bin"
    write(bin + "/sometimes", "#!/bin/sh\nexec /bin/sh \"$@\"\n")
    write(tools + "tell", text_tool("tell").replace("#!/bin/sh", "#!/usr/bin/env sometimes"))
    path = os.environ["PATH"]
    os.environ["PATH"] = bin + ":" + path
    equal([("tell", "ready")], states(root), "it is found")
    os.remove(bin + "/sometimes")
    result = run("tell", {"dir": "here"}, root)
    equal("UNSUPPORTED", code(result), "a call without its interpreter")
    check('it needs "sometimes"' in result["error"]["message"], result)
    os.environ["PATH"] = path
    shutil.rmtree(tools)


def test_toolbox_forms(home, root):
    write(home + "/.config/amp/tools/tell", text_tool("tell"))
    write(home + "/.config/amp/tools/notes.txt", "no program", 0o644)
    write(home + "/.config/isthmus/tools/run-tests", JSON_TOOL)
    equal([("tell", "ready"), ("run_tests", "ready")], states(root), "both are found, what is no program is not")
    os.environ["SECRET"] = "x"
    result = run("tell", {"dir": "here", "note": "two words"}, root)
    equal("dir: here\nnote: two words\nsaid AGENT=isthmus SECRET= %s\n" % os.path.basename(root),
          result["data"]["text"], "text form, at the root, without our secrets")
    equal("INVALID_ARGUMENT", code(run("tell", {}, root)), "what is not optional is required")
    result = run("run_tests", {"dir": "a"}, root)
    equal("got ['dir']\n", result["data"]["text"], "JSON form; stderr is no failure")
    result = run("run_tests", {"dir": "a", "n": 7}, root)
    equal(("EXIT_STATUS", 7), (code(result), result["exit"]), "exit code")
    check("ran in a" in result["error"]["message"] and result["data"]["text"].startswith("got"), "what it said: %r" % result)


def test_order_and_names(home, root):
    write(home + "/.config/amp/tools/same", text_tool("same", "amp"))
    write(home + "/.config/isthmus/tools/same", text_tool("same", "own"))
    write(home + "/elsewhere/configured", text_tool("same", "configured"))
    write(home + "/elsewhere/named", text_tool("same", "named"))
    write(root + "/.isthmus-tools/same", text_tool("same", "project"))
    subprocess.run([PROGRAM, "tool", "trust", "--root", root, "--yes"], capture_output=True, check=True)
    write(home + "/.config/isthmus/tools/mine", text_tool("grep"))
    write(home + "/.config/isthmus/tools.json", json.dumps({"tools": [home + "/elsewhere/configured", "/no/such/tool"],
                                                            "levels": {"same": "READ"}}), 0o644)

    def said(*options):
        return run("same", {"dir": "x"}, root, *options)["data"]["text"].split("\n")[1].split()[0]

    with open(home + "/.config/isthmus/tools.json", encoding="utf-8") as file:
        settings = file.read()
    write(home + "/.config/isthmus/tools.json", "{}", 0o644)
    equal("project", said(), "the project's wins over the user's")
    write(home + "/.config/isthmus/tools.json", settings, 0o644)
    equal("configured", said(), "the configuration wins over places")
    equal("named", said("--tool", home + "/elsewhere/named"), "--tool wins over all")
    found, warnings = listed(root, "--tool", home + "/elsewhere/named")
    equal(["shadowed"] * 4 + ["ready"], [i["state"] for i in found if i["name"] == "same"], "the list says so")
    check('"%s" wins over "%s"' % (home + "/elsewhere/named", home + "/elsewhere/configured") in warnings, "both are named: " + warnings)
    check('Tool name "grep" is reserved' in reason(root, "grep"), "reserved")
    equal("READ", [i["level"] for i in found if i["state"] == "ready" and i["name"] == "same"][0], "the user's level")
    equal(1, sum("No such file" in item.get("reason", "") for item in found), "a missing path is one line, and the rest works")
    shutil.rmtree(root + "/.isthmus-tools")
    for name in ["read", "write", "edit", "bash", "grep", "find", "ls", "list", "new", "trust", "render"]:
        write(home + "/reserved", text_tool(name))
        check('Tool name "%s" is reserved' % name in reason(root, name, "--tool", home + "/reserved"), "a name of ours: " + name)
    done = subprocess.run([PROGRAM, "tool", "same", "--root", root, "--dir", "x"], capture_output=True, stdin=subprocess.DEVNULL, check=False)
    equal(0, done.returncode, "READ needs no question: %r" % done.stderr)
    done = subprocess.run([PROGRAM, "tool", "tell", "--root", root, "--dir", "x"], capture_output=True, stdin=subprocess.DEVNULL, check=False)
    check(done.returncode == 1 and b"nobody to ask: Run the custom tool tell" in done.stderr, "others ask: %r" % done.stderr)
    rules = home + "/rules.json"
    write(rules, '{"permissions": [{"tool": "tell", "pattern": "*\\"safe\\"*", "action": "allow"}]}', 0o644)
    for word, want in [("safe", 0), ("other", 1)]:
        done = subprocess.run([PROGRAM, "tool", "tell", "--root", root, "--policy", rules, "--dir", word], capture_output=True,
                              stdin=subprocess.DEVNULL, check=False)
        equal(want, done.returncode, "a rule about its arguments: " + word)
    write(rules, '{"permissions": [{"tool": "telll", "action": "deny"}]}', 0o644)
    done = subprocess.run([PROGRAM, "tool", "tell", "--root", root, "--policy", rules, "--dir", "x"], capture_output=True,
                          stdin=subprocess.DEVNULL, check=False)
    check(done.returncode == 2 and b'no tool "telll"' in done.stderr, "a mistyped rule is refused")


def test_manifest(home, root):
    base = home + "/made/counter"
    write(base + "/run.py", JSON_TOOL, 0o644)
    write(base + "/tool.json", json.dumps({"command": ["python3", "run.py"], "env": {"A": "b", "SECRET": True}, "timeout_s": 5}), 0o644)
    equal("got ['dir']\n", run("run_tests", {"dir": "a"}, root, "--tool", base)["data"]["text"], "a command beside its manifest")
    write(base + "/tool.json", '{"command": "python3"}', 0o644)
    check("a list of words" in reason(root, "counter", "--tool", base), "bad manifest")
    write(base + "/tool.json", '{', 0o644)
    check("not a JSON object" in reason(root, "counter", "--tool", base), "no JSON")


def test_bad_tools(home, root):
    bad = home + "/bad/"
    write(bad + "slow", "#!/bin/sh\nexec sleep %s\n" % MARK)
    write(bad + "loud", "#!/bin/sh\nyes | head -c 200000\n")
    write(bad + "broken", "#!/bin/sh\necho why >&2; exit 4\n")
    write(bad + "binary", "#!/bin/sh\nprintf 'a\\000\\377b'\n")
    write(bad + "nameless", "#!/bin/sh\necho hello\n")
    write(bad + "lies", """#!/bin/sh\necho '{"name":"lies","inputSchema":{"type":"string"}}'\n""")
    for name, schema in [("enums", {"properties": {"a": {"enum": 5}}}), ("requires", {"required": "a"}), ("nests", None),
                         ("typed", {"properties": {"a": {"properties": {"b": {"type": "text"}}}}}), ("items", {"properties": {"a": {"items": []}}}),
                         ("pattern", {"properties": {"a": {"type": "string", "pattern": "^(v[0-9]+"}}}),
                         ("patterns", {"properties": {"a": {"patternProperties": {"[z-a]": {}}}}}),
                         ("matches", {"properties": {"a": {"pattern": r"^[^]\u00e9\u{1F600}\/[\w-.]\p{L}(?<y>x)|(?<y>z)(?<=a+)\ud83d$"}}})]:
        inner = {"type": "object"}
        for _ in range(40):
            inner = {"type": "object", "properties": {"a": inner}}
        described = {"name": name, "description": "d", "inputSchema": {"type": "object", **schema} if schema else inner}
        write(bad + name, "#!/bin/sh\ncat <<'END'\n%s\nEND\n" % json.dumps(described))
    write(bad + "halved", """#!/bin/sh\necho '{"name": "halved",'\n""")
    write(bad + "gone", "#!/no/such/interpreter\n")
    write(bad + "plain", "#!/bin/sh\n", 0o644)
    options = [word for name in sorted(os.listdir(bad)) for word in ("--tool", bad + name)]
    start = time.monotonic()
    found = {item["name"]: item.get("reason", "") for item in listed(root, *options)[0]}
    check(time.monotonic() - start < 40, "all of them in bounded time")
    for name, words in [("slow", "within 5 s"), ("loud", "more than 64 KiB"), ("broken", "exit code 4: why"), ("binary", "no text"),
                        ("nameless", "says no name"), ("lies", "not valid: it is not about an object"), ("gone", 'needs "/no/such/interpreter"'),
                        ("plain", "chmod +x"), ("enums", '"enum" of a must be a list that is not empty'), ("halved", "JSON with a mistake"),
                        ("requires", '"required" of the parameters must be a list of names'), ("nests", "more than 32 schemas within each other"),
                        ("typed", '"type" of b must be a type'), ("items", '"items" of a must be a schema'),
                        ("pattern", 'the pattern "^(v[0-9]+" of a is no regular expression: missing closing parenthesis, at character 10'),
                        ("patterns", 'the pattern "[z-a]" of a is no regular expression')]:
        check(words in found.get(name, ""), "%s: %r" % (name, found.get(name)))
    equal("", found["matches"], "a pattern as ECMAScript has them")
    check(not running(), "nothing is left running")
    write(bad + "flood", text_tool("flood").replace("cat;", "yes | head -c 3000000; cat;"))
    data = run("flood", {"dir": "x"}, root, "--tool", bad + "flood")["data"]
    check(len(data["text"]) < 52000 and os.path.getsize(data["output_file"]) > 3000000, "a flood is cut and kept")
    for version, want in [("2025-03-26", []), ("2025-06-18", ["resource_link"])]:
        server = Mcp(root, "--tool", bad + "flood", "--yes")
        server.ask("initialize", {"protocolVersion": version, "capabilities": {}})
        result = server.call("flood", {"dir": "x"})
        equal(want, [block["type"] for block in result["content"][1:]], "a link to all of it, since " + version)
        for block in result["content"][1:]:
            check(os.path.getsize(urllib.parse.unquote(block["uri"][len("file://"):])) > 3000000, "where it leads")
        server.close()
    write(bad + "forks", text_tool("forks").replace("cat;", "setsid sleep %s >/dev/null 2>&1 & cat;" % MARK))
    equal("OK", code(run("forks", {"dir": "x"}, root, "--tool", bad + "forks")), "one that leaves a process behind")
    check(not running(), "that process is gone")
    write(bad + "tool.json", json.dumps({"command": ["sh", "-c", '[ $TOOLBOX_ACTION = describe ] && echo name: never || sleep ' + MARK],
                                         "timeout_s": 0.5}), 0o644)
    equal("TIMEOUT", code(run("never", {}, root, "--tool", bad)), "one that never answers")
    check(not running(), "that is gone, too")


def test_a_tool_that_is_missing_says_why(home, root):
    def said(name, *options):
        done = subprocess.run([PROGRAM, "tool", name, "--root", root, *options], capture_output=True, stdin=subprocess.DEVNULL, check=False)
        equal(2, done.returncode, name)
        return done.stderr.decode()

    broken = home + "/broken/question"
    write(broken, "#!/bin/sh\necho 'no database' >&2\nexit 3\n")
    for words in said("question", "--tool", broken), said("other", "--tool", broken):
        check('"%s" cannot be used: ' % broken in words and words.endswith("ended with exit code 3: no database\n"), words)
        check("TOOLBOX_ACTION" not in words, words)
    write(home + "/broken/plain", "", 0o644)
    check("it is not executable" in said("plain", "--tool", home + "/broken/plain"), "not executable")
    write(home + "/.config/isthmus/tools/asks", "#!/bin/sh\nexit 4\n")
    check("exit code 4" in said("asks"), "one in the user's directory")
    check(said("else").endswith('isthmus tool: there is no tool "else"; isthmus tool list shows them\n'), "others are not named")
    os.unlink(home + "/.config/isthmus/tools/asks")


SPEAKS = """#!/usr/bin/env python3
import json, os, sys, time
if os.environ["TOOLBOX_ACTION"] == "describe":
    print(json.dumps({"protocol": "isthmus-tool/1", "lifetime": sys.argv[0].endswith("live") and "session" or "call",
                      "tools": [{"name": "speaks", "description": "d", "timeout_s": 20}]}))
    sys.exit()
for line in sys.stdin:
    call = json.loads(line)
    if call["type"] == "execute":
        break
def say(kind="result", **more):
    print(json.dumps({"type": kind, "id": call["id"], **more}), flush=True)
def done():
    say(content="done")
%s
"""


def test_bad_speakers(home, root):
    """Tools of isthmus-tool/1: what a model, and a user, is told."""
    tool = home + "/speaks"
    for code_of_tool, want in [
            ("say(content='x' * (9 << 20))", "The tool ended (exit 0; it wrote a line of more than 8 MiB) without a result. Change the arguments"),
            ("call['id'] = 'other'; done()", "(exit 0; it wrote a line that is about no call that runs) without a result."),
            ("for i in range(200): sys.stdout.buffer.write(os.urandom(4096) + bytes([10]))", "it wrote a line that is no JSON object"),
            ("os.kill(os.getpid(), 9)", "The tool ended (signal 9) without a result."),
            ("print('why', file=sys.stderr); sys.exit(4)", "The tool ended (exit 4: why) without a result."),
            ("os.close(1); os.close(2); time.sleep(0.5)", "The tool ended (exit 0) without a result."),
            ("while True: sys.stdout.write('x' * 65536)", "speaks was ended after 2 s. Give it more time"),
            ("[say('ask', n=i) for i in range(3000)]; done()", None),
            ("[say('exec', ask='e%d' % i, argv=['true']) for i in range(600)]; done()", None),
            ("[say('update', content=[{'type': 'text', 'text': 'u'}]) for i in range(20000)]; done()", None),
            ("[say('message', content='m%d' % i) for i in range(3000)]; done()", None),
            ("[sys.stderr.write('e' * 65536) for i in range(500)]; done()", None),
            ("done(); say(content='again'); say('error', message='and again')", None),
            ("say(content=None)", None), ("say()", None),
            ("say(content=[5, {'type': 'text', 'text': 7}, {'type': 'video'}])", "")]:
        for path in [tool, tool + "_live"]:
            write(path, (SPEAKS % code_of_tool).replace('"timeout_s": 20', '"timeout_s": %d' % (2 if "65536)" in code_of_tool and want else 60)))
            done = subprocess.run([PROGRAM, "tool", "speaks", "--tool", path, "--root", root, "--yes", "--output", "json"], stdin=subprocess.DEVNULL,
                                  capture_output=True, check=False)
            result = json.loads(done.stdout)
            if want == "":
                equal(["none", "text", "video"], re.findall(r"\[A block of type (\w+) was left out.\]", result["data"]["text"]), code_of_tool)
            elif want:
                check(not result["success"] and want in result["error"]["ai_message"], "%s: %r" % (code_of_tool, result))
            else:
                check(result["success"] and result["data"]["text"] in ["done", ""], "%s: %r" % (code_of_tool, result))
            check(done.stderr.count(b" and further ones") <= 1, "%s: one warning at most: %r" % (code_of_tool, done.stderr[:2000]))
    shutil.rmtree(home + "/.cache/isthmus/tools")


def test_trust(root):
    tool = root + "/.isthmus-tools/project"
    write(tool, text_tool("project"))
    equal([("project", "unavailable")], [s for s in states(root) if s[0] == "project"], "not before it is trusted")
    check("isthmus tool trust" in reason(root, "project"), "the list says how")
    equal("NONE", code(run("project", {"dir": "x"}, root)), "nor by name")
    refused = subprocess.run([PROGRAM, "tool", "trust", "--root", root], capture_output=True, stdin=subprocess.DEVNULL, check=False)
    check(refused.returncode == 1 and tool.encode() in refused.stdout, "shows them, and needs a yes: %r" % refused)
    subprocess.run([PROGRAM, "tool", "trust", "--root", root, "--yes"], capture_output=True, check=True)
    equal("OK", code(run("project", {"dir": "x"}, root)), "trusted")
    server = Mcp(root, "--yes")
    check("project" in [t["name"] for t in server.ask("tools/list")["result"]["tools"]], "an agent has it")
    write(root + "/.isthmus-tools/helper.sh", "changed", 0o644)
    check("changed since" in reason(root, "project"), "a file beside it changed")
    answer = server.call("project", {"dir": "x"})
    check(answer["isError"] and "changed since they were trusted" in answer["content"][0]["text"], "nor does a server run it: %r" % answer)
    server.close()
    os.unlink(root + "/.isthmus-tools/helper.sh")
    equal("OK", code(run("project", {"dir": "x"}, root)), "as it was trusted")
    os.chmod(tool, 0o700)
    check("changed since" in reason(root, "project"), "its mode counts")
    subprocess.run([PROGRAM, "tool", "trust", "--root", root, "--yes"], capture_output=True, check=True)
    equal("OK", code(run("project", {"dir": "x"}, root)), "trusted again")


class Hears(Mcp):
    """A client of the era with a handshake, which may be asked."""

    def __init__(self, root):
        super().__init__(root, "--yes")
        self.told = self.heard = 0  # since the last list, and in all
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}})

    def next(self):
        """What is no news of the list."""
        while True:
            message = json.loads(self.receive())
            if message.get("method") != "notifications/tools/list_changed":
                return message
            self.told += 1
            self.heard += 1

    def names(self):
        self.told = 0
        self.send({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        return {tool["name"] for tool in self.next()["result"]["tools"]}

    def expect(self, name, there):
        """Asks for the list again each time that it has changed."""
        while (name in self.names()) != there:
            if not self.told:
                equal("notifications/tools/list_changed", json.loads(self.receive()).get("method"), "told of %s" % name)
                self.heard += 1


def test_changes_are_noticed(home, root):
    server = Hears(root)
    check("late" not in server.names(), "not there yet")
    late, made = home + "/.config/isthmus/tools/late", home + "/late"
    write(made, text_tool("late"))
    os.rename(made, late)
    server.expect("late", True)
    os.unlink(late)
    server.expect("late", False)
    tool = root + "/.isthmus-tools/project"
    write(tool, text_tool("project", "before"))
    subprocess.run([PROGRAM, "tool", "trust", "--root", root, "--yes"], capture_output=True, check=True)
    server.expect("project", True)
    check(server.heard >= 3, "heard of each: %d" % server.heard)
    write(tool, text_tool("project", "after"))
    for agrees, words in [(False, "changed since"), (True, "after")]:
        server.send({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "project", "arguments": {"dir": "x"}}})
        asked = server.next()
        check("Trust them as they are now?" in asked["params"]["message"], "asks: %r" % asked)
        server.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"value": agrees}}})
        answer = server.next()
        check(words in answer["result"]["content"][0]["text"], "trusted: %r" % answer)
        check("project" in server.names(), "it stays in the list")
    server.close()


def test_a_terminal_is_asked(root):
    tool = root + "/.isthmus-tools/project"
    write(tool, text_tool("project", "on the terminal"))
    for typed, want in [(b"n\n", "there is no tool"), (b"y\n", "on the terminal")]:
        child, terminal = pty.fork()
        if child == 0:
            os.execv(PROGRAM, [PROGRAM, "tool", "project", "--root", root, "--yes", "--dir", "x"])
        shown = until(terminal, b"[n]o: ")
        os.write(terminal, typed)
        shown += until(terminal, None)
        os.waitpid(child, 0)
        os.close(terminal)
        check(want in shown.decode() and tool in shown.decode(), "%r: %r" % (typed, shown))


def test_nothing_runs_before_it_is_asked_for(home, root):
    ran = home + "/ran"
    write(home + "/.config/isthmus/tools/marks", "#!/bin/sh\ntouch %s\necho name: marks\n" % ran)
    write(root + "/file", "x", 0o644)
    equal("OK", code(run("read", {"path": "file"}, root)), "a built-in tool")
    server = Mcp(root)
    server.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}})
    check(not os.path.exists(ran), "nothing ran")
    server.ask("tools/list")
    check(os.path.exists(ran), "the list asks it")
    server.close()
    os.unlink(ran)
    server = Mcp(root)
    server.ask("tools/list")
    check(not os.path.exists(ran), "its answer is kept")
    server.close()


def test_new(root):
    program = os.path.dirname(root) + "/isthmus-" + os.path.basename(root)
    os.symlink(PROGRAM, program)
    environment = dict(os.environ, ISTHMUS=program)
    for lang in ["sh", "python", "c"]:
        done = subprocess.run([PROGRAM, "tool", "new", "my_" + lang, "--lang", lang, "--root", root], capture_output=True, check=False)
        equal(0, done.returncode, done.stderr)
        base = root + "/.isthmus-tools/my_" + lang
        if lang == "c":
            subprocess.run(["make", "-s", "-C", base], check=True)
        done = subprocess.run([base + "/test.sh"], env=environment, capture_output=True, check=False)
        equal((0, b"good\n"), (done.returncode, done.stdout), "the test of my_%s: %r" % (lang, done.stderr))
    os.unlink(program)
    for words in [["new", "grep"], ["new", "Bad-Name"], ["new", "x", "--lang", "cobol"], ["new"]]:
        equal(2, subprocess.run([PROGRAM, "tool", *words, "--root", root], capture_output=True, check=False).returncode, words)
    equal(1, subprocess.run([PROGRAM, "tool", "new", "my_sh", "--root", root], capture_output=True, check=False).returncode,
          "never over one that is there")


def main():
    home = os.path.realpath(private_home())
    with Directory() as root:
        test_missing_programs_are_named(home, root)
        test_toolbox_forms(home, root)
        test_order_and_names(home, root)
        test_manifest(home, root)
        test_bad_tools(home, root)
        test_bad_speakers(home, root)
        test_a_tool_that_is_missing_says_why(home, root)
        test_trust(root)
        shutil.rmtree(root + "/.isthmus-tools")
        test_changes_are_noticed(home, root)
        shutil.rmtree(root + "/.isthmus-tools")
        test_a_terminal_is_asked(root)
        shutil.rmtree(root + "/.isthmus-tools")
        test_new(root)
        test_nothing_runs_before_it_is_asked_for(home, root)
    finish()


main()
