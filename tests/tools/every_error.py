"""Each error code of each tool, provoked: the code, and an ai_message that says what to do next."""
import glob
import json
import os
import re
import shutil
import subprocess

from toolslib import PROGRAM, Directory, check, code, equal, finish, private_home, run, wanted

# An ai_message names a next step with one of these words.
STEPS = re.compile(r"\b(use|give|check|look|call|read|copy|correct|choose|set|ask|go on|name|make|add|free|"
                   r"list|join|wait|fix|do it|do not)\b", re.I)

CASES = [  # tool, arguments, code, what the message must have
    ("read", {"path": "nofile"}, "NOT_FOUND", "nofile"),
    ("read", {"path": "hello.tx"}, "NOT_FOUND", "hello.txt"),
    ("read", {"path": "dir"}, "NOT_A_FILE", "directory"),
    ("read", {"path": "fifo"}, "NOT_A_FILE", "fifo"),
    ("read", {"path": "hello.txt/x"}, "NOT_A_DIRECTORY", "not a directory"),
    ("read", {"path": "../x"}, "PATH_OUTSIDE_ROOT", "outside"),
    ("read", {"path": "/etc/passwd"}, "PATH_OUTSIDE_ROOT", "outside"),
    ("read", {"path": "out"}, "PATH_OUTSIDE_ROOT", "out of the root"),
    ("read", {"path": "outdir/passwd"}, "NOT_FOUND", ""),
    ("read", {"path": "loop"}, "INVALID_ARGUMENT", "symbolic links"),
    ("read", {"path": "x" * 300}, "INVALID_ARGUMENT", "too long"),
    ("read", {"path": "bin"}, "BINARY_FILE", "not text"),
    ("read", {"path": "hello.txt", "offset": 9}, "INVALID_ARGUMENT", "2 lines"),
    ("read", {"path": "hello.txt", "offset": 0}, "INVALID_ARGUMENT", "at least 1"),
    ("read", {"path": "hello.txt", "nope": 1}, "INVALID_ARGUMENT", "offset"),
    ("read", {}, "INVALID_ARGUMENT", "missing"),
    ("write", {"path": "dir", "content": "x"}, "NOT_A_FILE", "directory"),
    ("write", {"path": "hello.txt/x", "content": "x"}, "NOT_A_DIRECTORY", ""),
    ("write", {"path": "../x", "content": "x"}, "PATH_OUTSIDE_ROOT", ""),
    ("write", {"path": "out", "content": "x"}, "PATH_OUTSIDE_ROOT", ""),
    ("write", {"path": "fifo", "content": "x"}, "NOT_A_FILE", "pipe"),
    ("create_file", {"path": "hello.txt", "content": "x"}, "ALREADY_EXISTS", "exists"),
    ("create_file", {"path": "a.json", "content": "[01]"}, "SYNTAX_ERROR", "line 1, column 2"),
    ("create_file", {"path": "a.json", "content": "{\"a\": 1, \"a\": 2}"}, "SYNTAX_ERROR", "twice"),
    ("create_file", {"path": "a.json", "content": "\ufeff{}"}, "SYNTAX_ERROR", "byte order mark"),
    ("create_file", {"path": "a.json", "content": "[1,]"}, "SYNTAX_ERROR", "comma"),
    ("create_file", {"path": "a.json", "content": ""}, "SYNTAX_ERROR", "value"),
    ("create_file", {"path": "a.jsonc", "content": "[1, /* x"}, "SYNTAX_ERROR", "comment"),
    ("create_file", {"path": "a.jsonc", "content": "// x\n[1,]"}, "OK", ""),
    ("create_file", {"path": "tsconfig.app.json", "content": "{/**/}"}, "OK", ""),
    ("create_file", {"path": ".vscode/settings.json", "content": "{\"a\": 1,}"}, "OK", ""),
    ("create_file", {"path": "a.yaml", "content": "a: [1\nb: 2\n"}, "SYNTAX_ERROR", "line 2"),
    ("create_file", {"path": "a.py", "content": "def f(:\n"}, "SYNTAX_ERROR", "line 1, column 7"),
    ("create_file", {"path": "a.toml", "content": "a = \n"}, "SYNTAX_ERROR", "line 1"),
    ("create_file", {"path": "a.sh", "content": "if x\n"}, "SYNTAX_ERROR", "line 2"),
    ("create_file", {"path": "b.json", "content": "[1", "validate_syntax": False}, "OK", ""),
    ("edit", {"path": "nofile", "edits": [{"old_text": "a", "new_text": "b"}]}, "NOT_FOUND", ""),
    ("edit", {"path": "dir", "edits": [{"old_text": "a", "new_text": "b"}]}, "NOT_A_FILE", ""),
    ("edit", {"path": "hello.txt", "edits": [{"old_text": "helo", "new_text": "b"}]}, "NO_MATCH", "1  hello"),
    ("edit", {"path": "hello.txt", "edits": [{"old_text": "l", "new_text": "b"}]}, "AMBIGUOUS_MATCH", "line"),
    ("edit", {"path": "hello.txt", "edits": [{"old_text": "a", "new_text": "a"}]}, "NO_CHANGE", ""),
    ("edit", {"path": "hello.txt", "edits": []}, "INVALID_ARGUMENT", "items"),
    ("edit", {"path": "hello.txt", "edits": [{"old_text": "hello"}]}, "INVALID_ARGUMENT", "edits[0].new_text"),
    ("edit", {"path": "hello.txt", "expected_hash": "0", "edits": [{"old_text": "hello", "new_text": "x"}]},
     "CONFLICT", "1  hello"),
    ("edit_file", {"path": "nofile", "content": ""}, "NOT_FOUND", ""),
    ("edit_file", {"path": "dir", "content": ""}, "NOT_A_FILE", ""),
    ("edit_file", {"path": "good.json", "content": "{"}, "SYNTAX_ERROR", ""),
    ("apply_patch", {"patch": "x"}, "INVALID_ARGUMENT", "Begin Patch"),
    ("apply_patch", {"patch": "*** Begin Patch\n*** Update File: hello.txt\n-helo\n+x\n*** End Patch"}, "NO_MATCH",
     "1  hello"),
    ("delete", {"path": "nofile"}, "NOT_FOUND", ""),
    ("delete", {"path": "."}, "INVALID_ARGUMENT", "root"),
    ("delete", {"path": "dir", "recursive": True, "x": 1}, "INVALID_ARGUMENT", ""),
    ("delete", {"path": "full"}, "INVALID_ARGUMENT", "2 entries"),
    ("delete", {"path": "../x"}, "PATH_OUTSIDE_ROOT", ""),
    ("ls", {"path": "nodir"}, "NOT_FOUND", ""),
    ("ls", {"path": "hello.txt"}, "NOT_A_DIRECTORY", "not a directory"),
    ("ls", {"limit": 0}, "INVALID_ARGUMENT", ""),
    ("find", {"pattern": "[a"}, "INVALID_ARGUMENT", "glob"),
    ("find", {"pattern": "x", "path": "nodir"}, "NOT_FOUND", ""),
    ("find", {"pattern": "x", "path": "hello.txt"}, "NOT_A_DIRECTORY", ""),
    ("glob", {"pattern": "{1,2,3,4,5,6,7,8,9,0}" * 4}, "INVALID_ARGUMENT", "alternatives"),
    ("glob", {"pattern": "x", "path": "../.."}, "PATH_OUTSIDE_ROOT", ""),
    ("grep", {"pattern": "("}, "INVALID_ARGUMENT", "character"),
    ("grep", {"pattern": "x", "include": "[a"}, "INVALID_ARGUMENT", "include"),
    ("grep", {"pattern": "x", "path": "nofile"}, "NOT_FOUND", ""),
    ("grep", {"pattern": "x", "path": "fifo"}, "NOT_A_FILE", ""),
    ("grep", {"pattern": "x", "path": "bin"}, "BINARY_FILE", ""),
    ("bash", {"command": "exit 3"}, "EXIT_STATUS", "3"),
    ("bash", {"command": "kill -9 $$"}, "EXIT_STATUS", "signal 9"),
    ("bash", {"command": "sleep 9", "timeout_s": 0.2}, "TIMEOUT", "0.2 s"),
    ("bash", {"command": "ls", "workdir": "nodir"}, "NOT_FOUND", ""),
    ("bash", {"command": "ls", "workdir": "../.."}, "PATH_OUTSIDE_ROOT", ""),
    ("bash", {"command": ""}, "INVALID_ARGUMENT", ""),
    ("bash", {"command": "ls", "env": {"A": 1}}, "INVALID_ARGUMENT", "string"),
    ("bash", {"command": "ls", "env": {"A=B": "1"}}, "INVALID_ARGUMENT", "variable"),
    ("launch_app", {"app_name": "nosuchapp"}, "NOT_FOUND", "nosuchapp"),
    ("launch_app", {"app_name": "sh", "args": ["-c", "echo out; exit 3"]}, "EXIT_STATUS", "return code 3"),
    ("launch_app", {"app_name": "./dir"}, "PERMISSION_DENIED", ""),
    ("launch_app", {"app_name": "sleep", "args": ["9"], "timeout_s": 0.2}, "TIMEOUT", ""),
    ("launch_app", {"app_name": "ls", "args": "x"}, "INVALID_ARGUMENT", "array"),
    ("webfetch", {"url": "file:///etc/passwd"}, "INVALID_ARGUMENT", "http"),
    ("webfetch", {"url": "http://127.0.0.1/"}, "PERMISSION_DENIED", "private network"),
    ("websearch", {"query": "x", "num_results": 0}, "INVALID_ARGUMENT", "at least 1"),
    ("bash_output", {"id": 7}, "NOT_FOUND", "7"),
    ("bash_input", {"id": 7, "text": "x"}, "NOT_FOUND", "7"),
    ("bash_kill", {"id": 7}, "NOT_FOUND", "7"),
]


def make(root):
    def put(name, data):
        with open(os.path.join(root, name), "wb") as file:
            file.write(data)

    put("hello.txt", b"hello\nl\n")
    put("good.json", b"{}")
    put("bin", bytes(range(256)))
    os.mkdir(root + "/dir")
    os.mkdir(root + "/full")
    put("full/a", b"")
    put("full/b", b"")
    os.mkfifo(root + "/fifo")
    os.symlink("/etc/passwd", root + "/out")
    os.symlink("../../../../../etc", root + "/outdir")
    os.symlink("loop", root + "/loop")


def say(result, what):
    error = result["error"]
    equal({"code", "message", "ai_message", "recoverable"}, set(error), "members of " + what)
    check(error["ai_message"].startswith(error["message"]), "ai_message has the message: " + what)
    check(STEPS.search(error["ai_message"][len(error["message"]):]), "a next step: %s" % error)
    check(error["message"].rstrip()[-1] in ".:]" or "\n" in error["message"], "a sentence: %s" % error)


def test_cases(root):
    for name, arguments, want, words in CASES:
        result = run(name, arguments, root)
        what = "%s %s" % (name, json.dumps(arguments)[:80])
        if not equal(want, code(result), what + " " + str(result.get("error"))[:200]):
            continue
        equal(name, result["tool_name"], "tool name")
        check(result["call_id"] and result["latency_ms"] >= 0, "call id and time of " + what)
        if want != "OK":
            say(result, what)
            check(words in result["error"]["message"], "%s: %s" % (words, result["error"]["message"]))
            check(result["exit"] != 0, "exit code of " + what)


def test_every_tool_has_a_row(_):
    shown = subprocess.run([PROGRAM, "tool", "--list", "--json"], capture_output=True, check=True).stdout
    listed = subprocess.run([PROGRAM, "tool", "list", "--json"], capture_output=True, check=True).stdout
    equal(json.loads(shown), json.loads(listed), "tool list")
    tools = {tool["name"] for tool in json.loads(shown) if tool["state"] == "built-in"}
    check(len(tools) > 15, "tools: %s" % tools)
    equal(set(), tools - {row[0] for row in CASES if row[2] != "OK"}, "tools none of whose errors has a row")


def test_the_rule_that_is_suggested_allows_the_call(root):
    def ask(name, arguments, *options):
        done = subprocess.run([PROGRAM, "tool", name, "--root", root, "--output", "json", *options, "--json",
                               json.dumps(arguments)], capture_output=True, stdin=subprocess.DEVNULL, check=False)
        return json.loads(done.stdout)

    policy = root + "/suggested.json"
    os.mkdir(root + "/odd[1]")
    for name, arguments in [("bash", {"command": "mkdir -p made && touch made/x"}), ("launch_app", {"app_name": "make", "args": ["-v"]}),
                            ("bash", {"command": "touch /tmp/../tmp/isthmus-none/x || true"}),
                            ("create_file", {"path": ".envrc", "content": ""}),
                            ("delete", {"path": "odd[1]", "recursive": True})]:
        words = ask(name, arguments)["error"]["ai_message"]
        with open(policy, "w", encoding="utf-8") as file:
            json.dump(json.JSONDecoder().raw_decode(words[words.index('{"permissions"'):])[0], file)
        equal("OK", code(ask(name, arguments, "--policy", policy)), "%s %s: %s" % (name, arguments, words))
    words = ask("bash", {"command": "rm $(cat list)"})["error"]["ai_message"]
    check('only the rule {"tool": "bash", "pattern": "*"' in words and "permissions" not in words, words)
    words = ask("bash", {"command": "make && cd src"})["error"]["ai_message"]
    check("workdir" in words and "cd changes" in words, words)
    with open(policy, "w", encoding="utf-8") as file:
        json.dump([{"tool": "bash", "pattern": "*", "action": "allow"}], file)
    equal("OK", code(ask("bash", {"command": "true && cd . && echo $(echo *)"}, "--policy", policy)), "the rule that is named")
    with open(policy, "w", encoding="utf-8") as file:
        json.dump([{"tool": "bash", "pattern": "cp *", "action": "allow"}], file)
    os.mkdir(root + "/sub")
    for command in ["cd sub && echo a > x; pwd", "cd %s/sub && cp x y" % root]:
        equal("OK", code(ask("bash", {"command": command}, "--policy", policy)), command)
    equal(["x", "y"], sorted(os.listdir(root + "/sub")), "cd DIR && is the working directory")
    equal("OK", code(ask("bash", {"command": "cd sub && ls ../sub"})), "without a rule")


def test_invalid_rules_say_where(root):
    policy = root + "/invalid.json"
    rule = '{"tool": "bash", "pattern": "x", "action": "allow"}'
    for text, want in [('[\n%s,\n]\n' % rule, "line 2, column 52"), ('{"permissions": [\n' + rule, "line 2"),
                       ('[%s, {"tool": "bash"}]' % rule, "rule 2"), ('[%s, %s]' % (rule, rule.replace("bash", "bsh")), "rule 2: there is no tool"),
                       ("7", "neither a JSON object nor an array")]:
        with open(policy, "w", encoding="utf-8") as file:
            file.write(text)
        done = subprocess.run([PROGRAM, "tool", "ls", "--root", root, "--policy", policy], capture_output=True, check=False)
        check(done.returncode != 0 and want in done.stderr.decode(), "%s: %s" % (text, done.stderr))
    os.unlink(policy)


def test_denied(root):
    for name, arguments in [("bash", {"command": "touch x"}), ("launch_app", {"app_name": "ls"}),
                            ("webfetch", {"url": "http://127.0.0.1/"}),
                            ("delete", {"path": "full", "recursive": True})]:
        done = subprocess.run([PROGRAM, "tool", name, "--root", root, "--output", "json", "--json",
                               json.dumps(arguments)], capture_output=True, stdin=subprocess.DEVNULL, check=False)
        result = json.loads(done.stdout)
        equal("PERMISSION_DENIED", code(result), name)
        say(result, name)
    check(os.path.exists(root + "/full/a"), "nothing was deleted")
    with open(root + "/.isthmus.json", "w", encoding="utf-8") as file:
        file.write('{"permissions": [{"tool": "write", "pattern": "dir/*", "action": "deny"}]}')
    equal("PERMISSION_DENIED", code(run("write", {"path": "dir/x", "content": ""}, root)), "the project's rule")
    equal("OK", code(run("write", {"path": "y", "content": ""}, root)), "beside it")
    os.symlink("dir", root + "/alias")
    os.symlink("dir/not-yet", root + "/alias-of-new")
    os.symlink("alias-of-new", root + "/alias-of-alias")
    for path in ["alias/x", "alias/new/x", "alias-of-new", "alias-of-alias"]:
        equal("PERMISSION_DENIED", code(run("write", {"path": path, "content": ""}, root)), "through a link: " + path)
    check(not os.path.exists(root + "/dir/not-yet") and not os.path.exists(root + "/dir/new"), "nothing was made")
    for path in ["alias", "alias-of-new", "alias-of-alias"]:
        os.unlink(root + "/" + path)
    os.makedirs(root + "/sub/.git/hooks")
    os.symlink("sub/.git", root + "/alias")
    for path in ["sub/.git/config", "alias/hooks/pre-commit", ".isthmus.json"]:
        done = subprocess.run([PROGRAM, "tool", "write", "--root", root, "--output", "json", "--json",
                               json.dumps({"path": path, "content": ""})], capture_output=True,
                              stdin=subprocess.DEVNULL, check=False)
        equal("PERMISSION_DENIED", code(json.loads(done.stdout)), "what makes git run something: " + path)
    os.unlink(root + "/alias")
    shutil.rmtree(root + "/sub")
    with open(root + "/.isthmus.json", "w", encoding="utf-8") as file:
        file.write("{")
    equal(2, run("ls", {}, root)["exit"], "rules that cannot be read are not passed over")
    os.unlink(root + "/.isthmus.json")


def test_no_right(root):
    if os.geteuid() != 0:
        os.chmod(root + "/hello.txt", 0)
        equal("PERMISSION_DENIED", code(run("read", {"path": "hello.txt"}, root)), "a mode")


def test_links_stay_inside(root):
    os.symlink(root + "/hello.txt", root + "/absolute")
    equal("OK", code(run("read", {"path": "absolute"}, root)), "an absolute link into the root")
    equal("OK", code(run("read", {"path": "@hello.txt"}, root)), "@")
    equal("OK", code(run("read", {"path": root + "/./dir/../hello.txt"}, root)), "an absolute path")
    os.symlink("newfile", root + "/dangling")
    equal("OK", code(run("write", {"path": "dangling", "content": "x"}, root)), "through a dangling link")
    check(os.path.islink(root + "/dangling") and os.path.isfile(root + "/newfile"), "the link stays")
    equal("OK", code(run("delete", {"path": "out"}, root)), "a link is deleted itself")
    check(os.path.exists("/etc/passwd"), "its target stays")


def test_every_errno_has_words(_):
    project = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    promised = set()
    for header in glob.glob(project + "/ops/*.h"):  # the contract, whatever its headers are called
        with open(header, encoding="utf-8") as file:
            promised |= set(re.findall(r"-(E[A-Z0-9]+)\b", file.read()))
    with open(project + "/tools/base/error.c", encoding="utf-8") as file:
        rows = set(re.findall(r"\{(E[A-Z0-9]+), TOOL_", file.read()))
    check(len(promised) > 20, "errnos of the contract: %s" % promised)
    equal(set(), promised - rows, "errnos without a row in tools/base/error.c")


def test_linked_libraries(_):
    done = subprocess.run(["ldd", PROGRAM], capture_output=True, check=False)
    check(b"fuse" not in done.stdout, "tools work through POSIX calls")
    names = subprocess.run(["nm", "-a", PROGRAM], capture_output=True, check=False).stdout
    check(b"workspace_open" not in names and b"fuse_" not in names, "no backend is linked")


private_home()
with Directory() as directory:
    make(directory)
    for name, test in list(globals().items()):
        if wanted(name):
            test(directory)
finish()
