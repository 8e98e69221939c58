"""Rules and guards of the file tools: what they deny is neither shown nor named nor changed, by any way."""
import json
import os
import shutil
import subprocess

from toolslib import PATIENCE, PROGRAM, Directory, check, code, equal, finish, private_home, run, wanted

CONTENT = "c0nt3nt"  # in every secret file
NAME = "n4m3"        # in the name of every secret file


def put(root, path, text):
    os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
    with open(os.path.join(root, path), "w", encoding="utf-8") as file:
        file.write(text)


def text_of(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def make(root):
    put(root, "secret/n4m3-key.txt", "alpha\nc0nt3nt one\nomega\n")
    put(root, "secret/sub/n4m3-deep.json", '{"c0nt3nt": 2}\n')
    put(root, "pub/readme.txt", "alpha\nplain\nomega\n")
    put(root, "pub/main.c", "int main;\n")
    os.symlink("secret", root + "/alias")
    os.symlink("../secret/n4m3-key.txt", root + "/pub/link")


def rules(root, *rows):
    put(root, ".isthmus.json", json.dumps({"permissions": [
        {"tool": tool, "pattern": pattern, "action": action} for tool, pattern, action in rows]}))


def ask_nobody(name, arguments, root):
    """As run(), but nothing is allowed beforehand and there is nobody to ask."""
    done = subprocess.run([PROGRAM, "tool", name, "--root", root, "--output", "json", "--json", "-"],
                          input=json.dumps(arguments).encode(), capture_output=True, timeout=60 * PATIENCE, check=False)
    return json.loads(done.stdout)


def test_hard_links(_):
    with Directory() as root:
        judge_hard_links(root)


def judge_hard_links(root):
    put(root, "single", "A=c0nt3nt\n")
    put(root, "vault/n4m3", "c0nt3nt\n")
    put(root, "pub/other", "plain c0nt\n")
    os.link(root + "/single", root + "/pub/second")
    os.symlink("second", root + "/pub/to-second")
    os.link(root + "/pub/other", root + "/pub/third")
    rules(root, ("read", "single", "deny"), ("read", "vault/*", "deny"))
    for path in "single", "pub/second", "pub/to-second":
        equal("PERMISSION_DENIED", code(run("read", {"path": path}, root)), path)
        equal("PERMISSION_DENIED", code(run("bash", {"command": "cat " + path}, root)), "cat " + path)
        equal("PERMISSION_DENIED", code(run("edit", {"path": path, "edits": [{"old_text": "A", "new_text": "B"}]}, root)), "edit " + path)
    check(CONTENT not in json.dumps(run("grep", {"pattern": "A="}, root)["data"]), "grep")
    check("pub/second" not in run("find", {"pattern": "*"}, root)["data"]["paths"], "find")
    equal("OK", code(run("read", {"path": "pub/third"}, root)), "a hard link that no rule is about")
    rules(root, ("write", "single", "deny"))
    equal("PERMISSION_DENIED", code(run("write", {"path": "pub/second", "content": "x"}, root)), "write")
    equal("OK", code(run("read", {"path": "pub/second"}, root)), "read, which no rule is about")


def shown_by(name, arguments, root):
    """Everything that comes out of a call: as JSON, and as text with its errors."""
    whole = b""
    for form in ["json", "text"]:
        done = subprocess.run([PROGRAM, "tool", name, "--root", root, "--output", form, "--yes", "--json", "-"],
                              input=json.dumps(arguments).encode(), capture_output=True, timeout=60 * PATIENCE, check=False)
        whole += done.stdout + done.stderr
    return whole.decode()


EDITS = [{"old_text": "alpha\nc0nt", "new_text": "x"}], [{"old_text": "alph", "new_text": "x"}], \
        [{"old_text": "alphx\n", "new_text": "x"}], [{"old_text": "nothing", "new_text": "x"}]

# None of these names a secret file, but for the directory that they are in.
UNNAMED = [
    *[(tool, {"pattern": pattern, **where}) for tool in ["find", "glob"]
      for pattern in ["*", "**", "**/*", "n*", "*.{txt,json}"]
      for where in [{}, {"path": "secret"}, {"path": "alias"}, {"path": "secret/sub"}]],
    *[("grep", {"pattern": pattern, **more}) for pattern in ["0nt3", "alpha", "."]
      for more in [{}, {"path": "secret"}, {"path": "alias"}, {"context": 2}, {"include": "n*"}, {"multiline": True}]],
    *[("ls", {"path": path}) for path in [".", "secret", "alias", "alias/sub", "pub"]],
    # Names that are near.
    *[(tool, {"path": path, **more}) for path in ["secret/n4m", "alias/n4", "secret/sub/n4"]
      for tool, more in [("read", {}), ("edit_file", {"content": ""}), ("ls", {}), ("delete", {}),
                         ("edit", {"edits": EDITS[0]})]],
    ("read", {"path": "pub/link"}),
    ("delete", {"path": "secret", "recursive": True}),
    ("delete", {"path": "secret"}),
    ("edit_file", {"path": "pub/link", "content": "x"}),
    ("bash", {"command": "pwd", "workdir": "secret/n4"}),
]

# These do: it is the content that must not come out.
NAMED = [
    *[("edit", {"path": path, "edits": edits, **more}) for edits in EDITS
      for path in ["secret/n4m3-key.txt", "alias/n4m3-key.txt", "pub/link"]
      for more in [{}, {"expected_hash": "0"}, {"create_backup": True}]],
    ("read", {"path": "secret/n4m3-key.txt"}),
    ("read", {"path": "alias/../alias/sub/n4m3-deep.json"}),
    ("grep", {"pattern": ".", "path": "secret/n4m3-key.txt"}),
    ("grep", {"pattern": "a", "path": "pub/link"}),
    ("create_file", {"path": "secret/n4m3-key.txt", "content": "x"}),
    ("edit_file", {"path": "secret/n4m3-key.txt", "content": "x"}),
]

SPELLINGS = ["secret/**", "secret/*", "secret", "secret/", "./secret/", "**/secret/**", "sec*", "/secret/**",
             "ROOT/secret", "~/ROOT/secret/**"]


def test_nothing_that_is_denied_comes_out(root):
    home = os.environ["HOME"]
    os.environ["HOME"] = os.path.dirname(root)
    for tool, pattern in [("*", pattern) for pattern in SPELLINGS] + [("read", "secret/**")]:
        rules(root, (tool, pattern.replace("~/ROOT", "~/" + os.path.basename(root)).replace("ROOT", root), "deny"))
        # One spelling by every call, the others by some.
        step = 1 if pattern == "secret/**" else 9
        for name, arguments in UNNAMED[::step]:
            if name == "delete" and tool == "read":
                continue  # that shows nothing
            shown = shown_by(name, arguments, root)
            check(CONTENT not in shown and NAME not in shown.replace(arguments.get("pattern", "\0"), ""),
                  "%s denied to %s: %s %s shows %s" % (pattern, tool, name, arguments, shown))
        for name, arguments in NAMED[::step]:
            shown = shown_by(name, arguments, root)
            check(CONTENT not in shown.replace("c0nt\\nx", ""),
                  "%s denied to %s: %s %s shows %s" % (pattern, tool, name, arguments, shown))
        equal("alpha\nc0nt3nt one\nomega\n", text_of(root, "secret/n4m3-key.txt"), "nothing is changed")
        equal(["n4m3-key.txt", "sub"], sorted(os.listdir(root + "/secret")), "nor made, as a backup")
    os.unlink(root + "/.isthmus.json")
    os.environ["HOME"] = home


def test_what_is_left_out_is_counted(root):
    rules(root, ("read", "secret/**", "deny"), ("read", "pub/*.c", "deny"))
    for name, arguments, want in [
            ("ls", {"path": "secret"}, 2), ("ls", {"path": "pub"}, 1), ("ls", {"path": "alias"}, 2),
            ("find", {"pattern": "*"}, 3), ("glob", {"pattern": "*"}, 3), ("grep", {"pattern": "alpha"}, 3),
            # The count says nothing about which names or lines would match.
            ("find", {"pattern": "n4m3*"}, 3), ("find", {"pattern": "zzz"}, 3), ("grep", {"pattern": "zzz"}, 3),
            ("grep", {"pattern": "c0nt3nt", "include": "*.txt"}, 3)]:
        result = run(name, arguments, root)
        what = "%s %s" % (name, arguments)
        equal(want, result["data"].get("left_out"), what)
        check("left out by rules" in result["data"]["notice"], "it is said: " + what)
    equal(None, run("ls", {"path": "."}, root)["data"].get("left_out"), "nothing is left out")
    os.unlink(root + "/.isthmus.json")


def test_rules_about_read_and_write_hold_for_every_tool(root):
    rules(root, ("read", "pub/readme.txt", "deny"), ("write", "pub/main.c", "deny"))
    for name, arguments in [("edit", {"path": "pub/readme.txt", "edits": EDITS[1]}),
                            ("grep", {"path": "pub/readme.txt", "pattern": "a"}),
                            ("edit_file", {"path": "pub/readme.txt", "content": ""}),
                            ("edit", {"path": "pub/main.c", "edits": [{"old_text": "int", "new_text": "x"}]}),
                            ("edit_file", {"path": "pub/main.c", "content": "", "create_backup": False}),
                            ("create_file", {"path": "pub/main.c", "content": "", "overwrite": True}),
                            ("delete", {"path": "pub/main.c"}),
                            ("delete", {"path": "pub", "recursive": True})]:
        equal("PERMISSION_DENIED", code(run(name, arguments, root)), "%s %s" % (name, arguments))
    equal("OK", code(run("write", {"path": "pub/readme.txt", "content": "blind"}, root)), "writing shows nothing")
    equal("OK", code(run("read", {"path": "pub/main.c"}, root)), "reading changes nothing")
    put(root, "pub/readme.txt", "alpha\nplain\nomega\n")
    # The last rule that matches still wins.
    rules(root, ("*", "pub", "deny"), ("*", "pub/main.c", "allow"))
    equal("OK", code(run("read", {"path": "pub/main.c"}, root)), "a later rule lets one file pass")
    equal("PERMISSION_DENIED", code(run("read", {"path": "pub/readme.txt"}, root)), "beside it")
    os.unlink(root + "/.isthmus.json")


def test_where_rules_ask_nothing_is_shown_before_the_answer(root):
    rules(root, ("read", "secret/**", "ask"))
    for edits in EDITS:
        result = ask_nobody("edit", {"path": "secret/n4m3-key.txt", "edits": edits, "expected_hash": "0"}, root)
        equal("PERMISSION_DENIED", code(result), "edit")
        check("one" not in json.dumps(result), "it shows nothing: %s" % result)
    for name, arguments, want in [("ls", {"path": "secret"}, 2), ("find", {"pattern": "*"}, 2),
                                  ("grep", {"pattern": "alpha"}, 2)]:
        result = ask_nobody(name, arguments, root)
        equal(("OK", want), (code(result), result["data"].get("left_out")), "%s asks about no entry" % name)
        check(NAME not in json.dumps(result), "nor names it: %s" % result)
    os.unlink(root + "/.isthmus.json")


def test_a_recursive_delete_is_refused_as_a_whole(root):
    def tree():
        put(root, "old/a", "")
        put(root, "old/b/keep.txt", "")
        put(root, "old/b/c", "")
        os.symlink("../pub", root + "/old/link")

    tree()
    for rule in [("delete", "old/b/keep*", "deny"), ("*", "old/b", "deny"), ("write", "**/keep.txt", "deny")]:
        rules(root, rule)
        result = run("delete", {"path": "old", "recursive": True}, root)
        equal("PERMISSION_DENIED", code(result), "with %s in it" % (rule,))
        check("keep" not in json.dumps(result), "no name: %s" % result)
        equal(["a", "b", "link"], sorted(os.listdir(root + "/old")), "nothing is gone")
    # Through the link that it holds nothing is meant.
    rules(root, ("delete", "pub/**", "deny"))
    equal("OK", code(run("delete", {"path": "old", "recursive": True}, root)), "a link is deleted itself")
    check(os.path.exists(root + "/pub/main.c"), "what it names stays")
    os.unlink(root + "/.isthmus.json")
    for path in ["old/x/.git/config", "old/.envrc", "old/y/.husky/pre-commit", "old/z.git/HEAD"]:
        put(root, path, "")
        put(root, "old/z.git/objects/o", "")
        put(root, "old/z.git/refs/r", "")
        put(root, ".config.json", json.dumps([{"tool": "delete", "pattern": "old", "action": "allow"}]))
        done = subprocess.run([PROGRAM, "tool", "delete", "old", "--recursive", "--root", root, "--policy",
                               root + "/.config.json"], capture_output=True, stdin=subprocess.DEVNULL, check=False)
        check(done.returncode == 1 and b"guarded" in done.stderr, "%s in it: %s" % (path, done.stderr))
        check(os.path.exists(root + "/" + path), "it stays: " + path)
        shutil.rmtree(root + "/old")
    os.unlink(root + "/.config.json")


def test_what_makes_something_run_is_guarded_by_any_way_to_it(root):
    put(root, ".git/config", "[core]\n\thooksPath = tools/hooks\n")
    put(root, ".git/hooks/sample", "")
    put(root, ".vscode/tasks.json", "{}")
    put(root, "bare/HEAD", "ref: refs/heads/x\n")
    put(root, "bare/objects/x", "")
    put(root, "bare/refs/x", "")
    os.symlink(".git/hooks", root + "/h")
    os.symlink("h/not-yet", root + "/dangling")
    os.symlink(root + "/.vscode", root + "/absolute")
    os.symlink(".envrc", root + "/env")
    os.link(root + "/.git/config", root + "/pub/other-name")
    guarded = ["h/pre-commit", "dangling", "absolute/tasks.json", "env", "pub/other-name", ".GIT/hooks/x", ".envrc",
               ".husky/pre-push", ".mcp.json", ".bashrc", "sub/.vscode/settings.json", ".isthmus/x", "bare/config",
               "tools/hooks/pre-commit", ".git", "pub/../.git/config"]
    for path in guarded:
        for name, arguments in [("write", {"content": "x"}), ("create_file", {"content": "{}", "overwrite": True})]:
            result = ask_nobody(name, {"path": path, **arguments}, root)
            equal("PERMISSION_DENIED", code(result), "%s %s" % (name, path))
            check("nobody to ask" in result["error"]["message"], "it asks: %s" % result)
    for path in ["pub/other-name", ".vscode/tasks.json", "bare/HEAD"]:
        old = text_of(root, path)
        result = ask_nobody("edit", {"path": path, "validate_syntax": False,
                                     "edits": [{"old_text": old, "new_text": "x"}]}, root)
        equal("PERMISSION_DENIED", code(result), "edit " + path)
        equal(old, text_of(root, path), "unchanged: " + path)
        equal("PERMISSION_DENIED", code(ask_nobody("delete", {"path": path}, root)), "delete " + path)
    check(not os.path.exists(root + "/.git/hooks/not-yet"), "nothing is made")
    for path in [".config/isthmus/tools.json", ".Config/Isthmus/trusted", ".pi/extensions/x.ts", ".codex/config.toml"]:
        result = ask_nobody("bash", {"command": "echo x > " + path}, root)
        equal("PERMISSION_DENIED", code(result), "a redirection to " + path)
    put(root, "fine/tool", "")
    put(root, "given.json", "[]")
    put(os.environ["HOME"], ".config/isthmus/tools.json", json.dumps({"tools": [root + "/fine/tool"]}))
    equal("PERMISSION_DENIED", code(ask_nobody("write", {"path": "fine/tool", "content": "x"}, root)),
          "a tool that the user's settings name")
    os.unlink(os.environ["HOME"] + "/.config/isthmus/tools.json")
    equal("OK", code(ask_nobody("write", {"path": "fine/tool", "content": "x"}, root)), "which they no longer name")
    done = subprocess.run([PROGRAM, "tool", "write", "given.json", "x", "--root", root, "--policy", root + "/given.json"],
                          capture_output=True, stdin=subprocess.DEVNULL, check=False)
    equal(1, done.returncode, "the rules of --policy: %s" % done.stderr)
    for path in ["pub/new", ".gitignore", ".github/workflows/x.yml", "tools/x", ".gitattributes"]:
        equal("OK", code(ask_nobody("write", {"path": path, "content": "x"}, root)), "not guarded: " + path)
    equal("OK", code(ask_nobody("read", {"path": ".git/config"}, root)), "reading changes nothing")


private_home()
with Directory() as directory:
    make(directory)
    for key, test in list(globals().items()):
        if wanted(key):
            test(directory)
finish()
