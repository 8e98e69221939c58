"""apply_patch: Codex' format, several files, all or nothing."""
import json
import os
import subprocess

from toolslib import PATIENCE, PROGRAM, check, code, each_in_new_directory, equal, finish, private_home, run


def put(root, path, text):
    os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
    with open(os.path.join(root, path), "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def get(root, path):
    with open(os.path.join(root, path), "rb") as file:
        return file.read()


def tree(root):
    """Every path below the root, with what is in it."""
    found = {}
    for above, directories, names in os.walk(root):
        for name in directories + names:
            path = os.path.join(above, name)
            if os.path.islink(path):
                found[os.path.relpath(path, root)] = os.readlink(path)
            else:
                found[os.path.relpath(path, root)] = None if os.path.isdir(path) else get(root, path)
    return found


def patch(*lines):
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"]) + "\n"


def update(*lines, path="f"):
    return patch("*** Update File: " + path, *lines)


def apply(root, text, **more):
    return run("apply_patch", {"patch": text, **more}, root)


def test_one_of_each(root):
    put(root, "a.txt", "one\ntwo\nthree\n")
    put(root, "gone", "x")
    put(root, "bin/old.sh", "echo one\n")
    os.chmod(root + "/bin/old.sh", 0o755)
    os.symlink("a.txt", root + "/link")
    result = apply(root, patch("*** Add File: new/deep/n.txt", "+first", "+", "+third",
                               "*** Update File: a.txt", "@@", " one", "-two", "+TWO", " three",
                               "*** Delete File: gone", "*** Delete File: link",
                               "*** Update File: bin/old.sh", "*** Move to: lib/new.sh", "-echo one", "+echo two"))
    equal("OK", code(result), result)
    equal({"new": None, "new/deep": None, "new/deep/n.txt": b"first\n\nthird\n", "a.txt": b"one\nTWO\nthree\n",
           "bin": None, "lib": None, "lib/new.sh": b"echo two\n"}, tree(root), "the tree")
    equal(0o755, os.stat(root + "/lib/new.sh").st_mode & 0o777, "a move keeps the mode")
    equal(["add", "update", "delete", "delete", "move"], [file["action"] for file in result["data"]["files"]], "actions")
    equal(2, result["data"]["files"][1]["first_changed_line"], "the first changed line")


HUNKS = [  # before, hunk lines, after
    (b"a\nb\nc\n", ["-b", "+B"], b"a\nB\nc\n"),
    (b"a\nb\nc\n", [" a", "+x", " b"], b"a\nx\nb\nc\n"),
    (b"a\nb\nc\n", ["@@", " a", "-b", "@@", "-c", "+C", "+D"], b"a\nC\nD\n"),
    # What only adds: at the end, or below the line of @@.
    (b"a\nb\n", ["+c"], b"a\nb\nc\n"),
    (b"a\nb\n", ["@@ a", "+x"], b"a\nx\nb\n"),
    (b"", ["+c"], b"c\n"),
    # @@ says which; several narrow it down; it may be repeated as context, or be without its indent.
    (b"f:\n x\ng:\n x\n", ["@@ g:", "- x", "+ y"], b"f:\n x\ng:\n y\n"),
    (b"c:\n f:\n  x\nd:\n f:\n  x\n", ["@@ d:", "@@ f:", "-  x", "+  y"], b"c:\n f:\n  x\nd:\n f:\n  y\n"),
    (b"f:\n x\ng:\n x\n", ["@@ g:", " g:", "- x", "+ y"], b"f:\n x\ng:\n y\n"),
    (b"f:\n x\ng:\n x\n", ["@@ -3,2 +3,2 @@ g:", "- x", "+ y"], b"f:\n x\ng:\n y\n"),
    (b"x\ny\nx\n", ["-x", "+z", "*** End of File"], b"x\ny\nz\n"),
    # Line ends, a byte order mark and a last line without one stay.
    (b"a\r\nb\r\nc\r\n", ["-b", "+B", "+B2"], b"a\r\nB\r\nB2\r\nc\r\n"),
    (b"a\nb", ["-b", "+B"], b"a\nB"),
    (b"a\nb", ["+c"], b"a\nb\nc"),
    (b"a\r\nb", ["-b", "+B", "+c"], b"a\r\nB\r\nc"),
    (b"a\nb", ["-b"], b"a\n"),
    (b"a\nb", ["-a"], b"b"),
    (b"\xef\xbb\xbfa\nb\n", ["-a", "+A"], b"\xef\xbb\xbfA\nb\n"),
    (b"\xff\na\n\xfe\n", ["-a", "+A"], b"\xff\nA\n\xfe\n"),
    # What only looks the same matches, and is kept where it is context.
    (b"say \xe2\x80\x9chi\xe2\x80\x9d  \nb\n", [' say "hi"', "-b", "+B"], b"say \xe2\x80\x9chi\xe2\x80\x9d  \nB\n"),
    # Empty lines stand for empty context, or set apart.
    (b"a\n\nb\n", ["-a", "+A", "", " b"], b"A\n\nb\n"),
    (b"a\nb\n", ["-a", "+A", ""], b"A\nb\n"),
    (b"a\nb\nc\n", ["@@", "-a", "+A", "", "@@", "-c", "+C"], b"A\nb\nC\n"),
]


def test_hunks(root):
    for before, lines, after in HUNKS:
        put(root, "f", before)
        result = apply(root, update(*lines))
        equal(("OK", after), (code(result), get(root, "f")), "%r %r" % (before, lines))


def test_wrapped_as_for_a_shell(root):
    for before, after in ("<<'EOF'\n", "EOF\n"), ("apply_patch <<EOF\n", "EOF"), ("\n \n", "\n\n"):
        put(root, "f", "a\n")
        equal("OK", code(apply(root, before + update("-a", "+b") + after)), before)
        equal(b"b\n", get(root, "f"), before)
    put(root, "f", "a\n")
    equal("OK", code(apply(root, update("-a", "+b").replace("\n", "\r\n"))), "a patch with CRLF")
    equal(b"b\n", get(root, "f"), "that is not in the file")


FAILURES = [  # what comes after a change that would be right, the code, words
    (["*** Update File: nofile", "-a", "+b"], "NOT_FOUND", "nofile"),
    (["*** Update File: f", "-nope", "+b"], "NO_MATCH", "hunk 1"),
    (["*** Update File: f", "@@", "-two", "+2", "@@", "-one", "+1"], "NO_MATCH", "hunk 2"),
    (["*** Update File: f", "@@ nowhere", "-two", "+2"], "NO_MATCH", "nowhere"),
    (["*** Update File: f", "-two", "+2", "*** End of File"], "NO_MATCH", "two"),
    (["*** Update File: twice", "-same", "+b"], "AMBIGUOUS_MATCH", "at lines 1, 3."),
    (["*** Update File: f", " one", " two"], "NO_CHANGE", "as it is"),
    (["*** Update File: dir", "-a", "+b"], "NOT_A_FILE", "directory"),
    (["*** Update File: f", "*** Move to: twice", "-two", "+2"], "ALREADY_EXISTS", "twice"),
    (["*** Update File: link", "*** Move to: link2", "-two", "+2"], "NOT_A_FILE", "symbolic link"),
    (["*** Update File: f", "*** Move to: f"], "INVALID_ARGUMENT", "itself"),
    (["*** Update File: f", "-two", "+2", "*** Update File: link", "-one", "+1"], "INVALID_ARGUMENT", "more than once"),
    (["*** Update File: f", "-two", "+2", "*** Delete File: ./f"], "INVALID_ARGUMENT", "more than once"),
    (["*** Add File: f", "+b"], "ALREADY_EXISTS", "f"),
    (["*** Add File: dir/", "+b"], "NOT_A_FILE", "directory"),
    (["*** Add File: f/x", "+b"], "NOT_A_DIRECTORY", ""),
    (["*** Add File: bad.json", "+[01]"], "SYNTAX_ERROR", "line 1, column 2"),
    (["*** Update File: f", "*** Move to: f.json", "-two", "+2"], "SYNTAX_ERROR", "f.json"),
    (["*** Add File: ../out", "+b"], "PATH_OUTSIDE_ROOT", "outside"),
    (["*** Update File: f", "*** Move to: /etc/x", "-two", "+2"], "PATH_OUTSIDE_ROOT", "outside"),
    (["*** Delete File: nofile"], "NOT_FOUND", "nofile"),
    (["*** Delete File: dir"], "NOT_A_FILE", "directory"),
    (["*** Update File: f"], "INVALID_ARGUMENT", "says nothing"),
    (["*** Update File: f", "two"], "INVALID_ARGUMENT", "line 5"),
    (["*** Add File: x", "b"], "INVALID_ARGUMENT", "begins with +"),
    (["*** Delete File: f", "+x"], "INVALID_ARGUMENT", "no lines"),
    (["*** Add File:  ", "+b"], "INVALID_ARGUMENT", "names no file"),
    (["*** End Patch", "more"], "INVALID_ARGUMENT", "after *** End Patch"),
]


def test_all_or_nothing(root):
    put(root, "f", "one\ntwo\nthree\n")
    put(root, "twice", "same\nb\nsame\n")
    put(root, "dir/x", "")
    os.symlink("f", root + "/link")
    before = tree(root)
    for lines, want, words in FAILURES:
        result = apply(root, patch("*** Add File: made/before", "+x", *lines))
        equal(want, code(result), "%s %s" % (lines, result))
        check(words in result["error"]["message"], "%s: %s" % (lines, result["error"]))
        equal(before, tree(root), "nothing is changed: %s" % lines)
    for text in "", "x", "*** Begin Patch\n*** End Patch", update("-two", "+2").replace("*** End Patch\n", ""):
        equal("INVALID_ARGUMENT", code(apply(root, text)), text)
    equal(before, tree(root), "nor by what is no patch")
    equal("OK", code(apply(root, patch("*** Add File: bad.json", "+[01]"), validate_syntax=False)), "unchecked")


def test_a_failing_write_takes_back_those_before(root):
    """A file system without room for the last one: what came before is as it was, to the link and the mode."""
    small = root + "/small"
    os.mkdir(small)
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", small],
                                           capture_output=True, check=False).returncode != 0:
        print("skip: no tmpfs can be mounted")
        return
    try:
        put(root, "f", "one\ntwo\n")
        put(root, "m", "move\n")
        put(root, "d", "x")
        os.symlink("f", root + "/link")
        inode, before = os.lstat(root + "/d").st_ino, tree(root)
        result = apply(root, patch("*** Add File: made/here/x", "+x", "*** Update File: f", "-two", "+2",
                                   "*** Update File: m", "*** Move to: moved/m", "-move", "+MOVE",
                                   "*** Delete File: d", "*** Delete File: link",
                                   "*** Add File: small/large", *["+" + "y" * 1000] * 200))
        equal("NO_SPACE", code(result), result)
        check("nothing was changed" in result["error"]["message"], result["error"]["message"])
        equal(before, tree(root), "the tree is as before")
        equal(inode, os.lstat(root + "/d").st_ino, "what was deleted is itself again")
    finally:
        subprocess.run(["umount", small], check=True)


def by_rule(root, text, *rows):
    """The result with these rules and nobody to ask."""
    put(root, ".rules.json", json.dumps([{"tool": tool, "pattern": pattern, "action": action}
                                         for tool, pattern, action in rows]))
    done = subprocess.run([PROGRAM, "tool", "apply_patch", "--root", root, "--output", "json", "--policy",
                           root + "/.rules.json", "--json", "-"], input=json.dumps({"patch": text}).encode(),
                          capture_output=True, timeout=60 * PATIENCE, check=False)
    os.unlink(root + "/.rules.json")
    return json.loads(done.stdout)


def test_rules_and_guards_count_for_each_path(root):
    put(root, "src/a", "one\n")
    put(root, "secret/s", "c0nt3nt\n")
    os.symlink("secret", root + "/alias")
    before = tree(root)
    harmless = ["*** Update File: src/a", "-one", "+two"]
    for lines in (["*** Add File: secret/n", "+x"], ["*** Update File: alias/s", "-nope", "+x"],
                  ["*** Delete File: alias/s"], ["*** Update File: secret/s", "*** Move to: src/b"]):
        for rule in [("*", "secret/**", "deny")], [("write", "secret", "deny")], [("apply_patch", "secret", "deny")], \
                [("write", "secret", "ask")], [("write", "*", "deny"), ("write", "src/*", "allow")]:
            result = by_rule(root, patch(*harmless, *lines), *rule)
            equal("PERMISSION_DENIED", code(result), "%s %s: %s" % (rule, lines, result))
            check("c0nt3nt" not in json.dumps(result), "shows nothing: %s" % result)
            equal(before, tree(root), "%s %s changes nothing" % (rule, lines))
    equal("PERMISSION_DENIED", code(by_rule(root, patch("*** Update File: src/a", "*** Move to: secret/m"),
                                            ("write", "secret", "deny"))), "the target of a move")
    for path in ".git/hooks/pre-commit", ".envrc", ".vscode/tasks.json":
        equal("PERMISSION_DENIED", code(by_rule(root, patch(*harmless, "*** Add File: " + path, "+{}"))), path)
        equal(before, tree(root), "guarded: " + path)
    equal("PERMISSION_DENIED", code(by_rule(root, patch("*** Update File: src/a", "*** Move to: .envrc"))), "by a move")
    equal("OK", code(by_rule(root, patch(*harmless), ("write", "*", "deny"), ("write", "src/*", "allow"))), "allowed")


private_home()
each_in_new_directory(globals())
finish()
