"""What models do that tools should take, refuse with the way, or keep short."""
import base64
import json
import os
import subprocess

from toolslib import PROGRAM, Mcp, check, code, each_in_new_directory, equal, finish, private_home, run


def put(root, path, text):
    os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
    with open(os.path.join(root, path), "w", encoding="utf-8") as file:
        file.write(text)


def test_absolute_patterns(root):
    put(root, "src/deep/b.c", "wanted\n")
    put(root, "top.c", "wanted\n")
    for tool in "find", "glob":
        equal(["src/deep/b.c"], run(tool, {"pattern": root + "/src/**/*.c"}, root)["data"]["paths"], tool)
        equal(["top.c"], run(tool, {"pattern": root + "/*.c"}, root)["data"]["paths"], tool + " at the top")
        equal(["src/deep/b.c"], run(tool, {"pattern": root + "/src/*/*.c", "path": "src"}, root)["data"]["paths"],
              tool + " with a path")
        equal([], run(tool, {"pattern": root + "2/*.c"}, root)["data"]["paths"], tool + " of another tree")
    found = run("grep", {"pattern": "wanted", "include": root + "/src/**"}, root)
    equal(["src/deep/b.c"], [entry["path"] for entry in found["data"]["files"]], "grep")


def test_a_directory_is_not_written(root):
    for tool in "write", "create_file":
        result = run(tool, {"path": "newdir/", "content": "x"}, root)
        equal("INVALID_ARGUMENT", code(result), tool)
        check("Add the name of the file" in result["error"]["ai_message"], result)
    check(not os.path.exists(root + "/newdir"), "nothing was made")


def test_a_link_that_leads_nowhere_is_written_through(root):
    os.mkdir(root + "/sub")
    for target, path in [("new.txt", "new.txt"), ("no/such/file", "no/such/file"), ("sub/../deep/x", "deep/x"),
                         (root + "/absolute/x", "absolute/x")]:
        os.symlink(target, root + "/link")
        equal("ALREADY_EXISTS", code(run("create_file", {"path": "link", "content": "x"}, root)), "create_file " + target)
        equal("OK", code(run("write", {"path": "link", "content": "x"}, root)), "write " + target)
        check(os.path.islink(root + "/link") and os.path.isfile(root + "/" + path), path)
        os.unlink(root + "/link")
    os.symlink("loop2", root + "/loop")
    os.symlink("loop", root + "/loop2")
    os.symlink("/nowhere/outside", root + "/out")
    for path, want in ("loop", "INVALID_ARGUMENT"), ("out", "PATH_OUTSIDE_ROOT"):
        result = run("write", {"path": path, "content": "x"}, root)
        equal(want, code(result), path)
        check("overwrite" not in result["error"]["ai_message"], result)


def test_suffixes_count_in_any_case(root):
    equal("SYNTAX_ERROR", code(run("create_file", {"path": "a.JSON", "content": "[01]"}, root)), "JSON")
    equal("SYNTAX_ERROR", code(run("create_file", {"path": "a.Py", "content": "def ("}, root)), "Python")
    equal("SYNTAX_ERROR", code(run("create_file", {"path": "b.PY", "content": "def ("}, root)), "PY")
    equal("OK", code(run("create_file", {"path": "TSConfig.JSON", "content": "{} // x"}, root)), "with comments")


def test_yaml_is_what_safe_load_takes(root):
    for content, words in [("a: *none\n", 'no anchor before the alias "none"'), ("a: &x 1\n---\nb: *x\n", "line 3, column 4"),
                           ("a: !Ref b\n", 'the tag "!Ref"'), ("a: !!python/object:os.x {}\n", "no safe loader"),
                           ("- ok\n- !!foo [1]\n", "line 2, column 3")]:
        result = run("create_file", {"path": "a.yaml", "content": content, "overwrite": True}, root)
        equal("SYNTAX_ERROR", code(result), content)
        check(words in result["error"]["message"], result["error"]["message"])
    for content in ["a: &x {b: 1}\nc: *x\nd: {<<: *x}\n", "a: !!str 1\nb: !!set {c}\n", "! a\n", "%TAG ! tag:yaml.org,2002:\n---\na: !int 1\n",
                    "a: 1\n---\nb: 2\n", "a: &x [*x]\n", ""]:
        equal("OK", code(run("create_file", {"path": "a.YML", "content": content, "overwrite": True}, root)), content)
    anchors = "".join("- &a%d 1\n" % number for number in range(200000))
    for alias, want in [("a199999", "OK"), ("a200000", "SYNTAX_ERROR")]:  # within the time of run(), not of its square
        equal(want, code(run("create_file", {"path": "b.yaml", "content": anchors + "- *%s\n" % alias, "overwrite": True}, root)),
              "an alias of one of 200,000 anchors")
    for content, want in [("[" * 300000, "SYNTAX_ERROR"), ("".join("%%TAG !a%d! x\n" % number for number in range(300000)) + "---\na\n", "OK")]:
        equal(want, code(run("create_file", {"path": "b.yaml", "content": content, "overwrite": True}, root)), content[:20])


def test_bytes_by_range(root):
    data = bytes(range(256)) * 400
    with open(root + "/bytes", "wb") as file:
        file.write(data)
    got, offset = b"", 1
    while offset:
        part = run("read", {"path": "bytes", "encoding": "base64", "offset": offset}, root)["data"]
        got += base64.b64decode(part["content"], validate=True)
        offset = part.get("next_offset")
    check(got == data, "all bytes, %d" % len(got))
    part = run("read", {"path": "bytes", "encoding": "base64", "offset": 258, "limit": 3}, root)["data"]
    equal((b"\x01\x02\x03", True, 261), (base64.b64decode(part["content"]), part["truncated"], part["next_offset"]), "a range")
    equal("INVALID_ARGUMENT", code(run("read", {"path": "bytes", "encoding": "base64", "offset": len(data) + 1}, root)), "beyond")
    put(root, "empty", "")
    equal("", run("read", {"path": "empty", "encoding": "base64"}, root)["data"]["content"], "empty")


def test_a_backup_is_beside_the_target_of_a_link(root):
    put(root, "far/target", "old\n")
    os.symlink("far/target", root + "/link")
    equal("far/target.bak", run("edit_file", {"path": "link", "content": "new\n"}, root)["data"]["backup"], "edit_file")
    result = run("edit", {"path": "link", "create_backup": True, "edits": [{"old_text": "new", "new_text": "newer"}]}, root)
    equal("far/target.bak.1", result["data"]["backup"], "edit")
    put(root, ".isthmus.json", json.dumps({"permissions": [{"tool": "write", "pattern": "far/*.bak*", "action": "deny"}]}))
    equal("PERMISSION_DENIED", code(run("edit_file", {"path": "link", "content": "x\n"}, root)), "rules count there")


def test_a_missing_directory_is_found_before_the_question(root):
    for workdir, want in ("none", "NOT_FOUND"), ("file", "NOT_A_DIRECTORY"):
        put(root, "file", "x")
        done = subprocess.run([PROGRAM, "tool", "bash", "--root", root, "--output", "json", "--json",
                               json.dumps({"command": "make", "workdir": workdir})],
                              capture_output=True, stdin=subprocess.DEVNULL, check=False)
        equal(want, code(json.loads(done.stdout)), workdir)


def test_bash_takes_the_argument_names_of_other_agents(root):
    os.mkdir(root + "/sub")
    equal("sub\n", run("bash", {"command": "basename $PWD", "cwd": "sub"}, root)["data"]["output"], "cwd")
    for limit in {"timeout": 0.3}, {"timeout": 1000}, {"timeout": "1000"}, {"timeout_ms": 300}:
        result = run("bash", {"command": "sleep 20", **limit}, root)
        equal("TIMEOUT", code(result), limit)
        check("1 s" in result["error"]["message"] or "0.3 s" in result["error"]["message"], result)
    for both in {"timeout": 5, "timeout_s": 5}, {"cwd": ".", "workdir": "."}:
        equal("INVALID_ARGUMENT", code(run("bash", {"command": "true", **both}, root)), both)


def test_names_that_only_look_the_same_are_found(root):
    shot, decomposed = "shots/Screenshot 1.01.11\u202fAM.txt", "shots/cafe\u0301.txt"
    put(root, shot, "one\n")
    put(root, decomposed, "two\n")
    put(root, "no\u00a0break/a.txt", "three\n")
    for given, want in [("shots/Screenshot 1.01.11 AM.txt", "one\n"), ("shots/caf\u00e9.txt", "two\n"), ("no break/a.txt", "three\n"),
                        ("shots/Screenshot 1.01.11\\u202fAM.txt", "one\n"), (shot, "one\n")]:
        equal(want, run("read", {"path": given}, root).get("data", {}).get("content"), given)
    equal(shot, run("read", {"path": "shots/Screenshot 1.01.11 AM.txt"}, root)["data"]["path"], "the name that it has")
    equal("OK", code(run("edit", {"path": "shots/caf\u00e9.txt", "edits": [{"old_text": "two", "new_text": "2"}]}, root)), "edit")
    server = Mcp(root)
    text = json.dumps(server.call("read", {"path": "shots/Screenshot 1.01.11 AM.txt"})["content"])
    check("one name that looks like it, which was used" in text and "11\\\\u202fAM" in text, "it is said: " + text)
    server.close()
    for tool in "find", "glob":
        for pattern, want in [("Screenshot * AM.txt", [shot]), ("caf\u00e9*", [decomposed]), ("no break/*", ["no\u00a0break/a.txt"]),
                              ("cafe\u0301.txt", [decomposed]), ("*.txt", [shot, decomposed, "no\u00a0break/a.txt"])]:
            result = run(tool, {"pattern": pattern}, root)["data"]
            equal(sorted(want), sorted(result["paths"]), "%s %s" % (tool, pattern))
        done = subprocess.run([PROGRAM, "tool", tool, "Screenshot 1.01.11 AM.txt", "--root", root], capture_output=True, check=False)
        check(b"shots/Screenshot 1.01.11\\u202fAM.txt\n" in done.stdout and b"read takes them" in done.stdout, done.stdout)
    # Several: none is taken, and the difference is shown.
    put(root, "shots/Screenshot 1.01.11\u00a0AM.txt", "other\n")
    result = run("read", {"path": "shots/Screenshot 1.01.11 AM.txt"}, root)
    equal("NOT_FOUND", code(result), "several")
    check("11\\u202fAM.txt" in result["error"]["message"] and "11\\u00a0AM.txt" in result["error"]["message"], result)
    # What rules hide is neither taken nor named.
    put(root, ".isthmus.json", json.dumps({"permissions": [{"tool": "*", "pattern": "shots/*\u00a0*", "action": "deny"}]}))
    equal("one\n", run("read", {"path": "shots/Screenshot 1.01.11 AM.txt"}, root)["data"]["content"], "the one that is not hidden")
    os.unlink(root + "/" + shot)
    result = run("read", {"path": "shots/Screenshot 1.01.11 AM.txt"}, root)
    check(code(result) == "NOT_FOUND" and "u00a0" not in json.dumps(result), result)


def test_a_notebook_is_read_as_its_cells(root):
    notebook = {"nbformat": 4, "metadata": {"kernelspec": {"language": "python"}}, "cells": [
        {"cell_type": "markdown", "source": ["# Title\n", "words"]},
        {"cell_type": "code", "execution_count": 5, "source": "1 + 1\nplot()", "outputs": [
            {"output_type": "stream", "name": "stdout", "text": ["printed\n"]},
            {"output_type": "execute_result", "data": {"text/plain": ["2"], "text/html": "<b>2</b>"}},
            {"output_type": "display_data", "data": {"image/png": "AAAA" * 100, "text/plain": "<Figure>"}}]},
        {"cell_type": "code", "execution_count": None, "source": [], "outputs": [
            {"output_type": "error", "ename": "E", "evalue": "bad", "traceback": ["\x1b[0;31mE\x1b[0m", "bad"]}]}]}
    put(root, "a.ipynb", json.dumps(notebook))
    text = run("read", {"path": "a.ipynb"}, root)["data"]
    equal("[Cell 1, markdown]\n# Title\nwords\n\n[Cell 2, python, In 5]\n1 + 1\nplot()\n[Output of cell 2]\nprinted\n2\n<Figure>\n"
          "[image/png, 400 bytes of base64]\n\n[Cell 3, python]\n[Output of cell 3]\nE\nbad\n", text["content"], "the cells")
    check("hash" not in text, "that would be of another text")
    equal("words\n", run("read", {"path": "a.ipynb", "offset": 3, "limit": 1}, root)["data"]["content"], "a line")
    equal(json.dumps(notebook), run("read", {"path": "a.ipynb", "encoding": "raw"}, root)["data"]["content"].rstrip("\n"), "raw")
    server = Mcp(root)
    check("encoding raw" in json.dumps(server.call("read", {"path": "a.ipynb"})["content"]), "how it is edited")
    server.close()
    for content in "{}", "not JSON\n", '{"cells": 1}', "":
        put(root, "b.ipynb", content)
        equal(content, run("read", {"path": "b.ipynb"}, root)["data"]["content"], "no notebook")


def test_grep_out_of_time_is_no_answer(root):
    for number in range(60):
        put(root, "hard/%d" % number, ("a" * 4000 + "b\n") * 20)  # each takes as long as a pattern may
    result = run("grep", {"pattern": "(a|aa)+$", "timeout_s": 0.1}, root)
    equal((True, 2), (result["data"]["timed_out"], result["exit"]), "exit code")


def test_what_grep_could_not_search_is_not_without_matches(root):
    # One line is too costly; those before and after it are searched.
    put(root, "hard", "ab\n" + "a" * 40 + "!\nb\naab\n")
    for pattern, more in [("^(a|aa)+[bc]$", {}), ("(a|aa)+[bc]", {}), ("(?=a)(a|aa)+[bc]", {})]:
        result = run("grep", {"pattern": pattern, **more}, root)
        found = [line["text"] for entry in result["data"]["files"] for line in entry["lines"]]
        equal((["ab", "aab"], 2, True), (found, result["exit"], result["data"]["truncated"]), pattern)
        check("too costly for lines of 1 file, which may match" in result["data"].get("notice", ""), result)
    put(root, "hard", "a" * 40 + "!\n")
    for pattern, more in [("^(a|aa)+$", []), ("(a|aa)+\\n", ["--multiline"])]:
        done = subprocess.run([PROGRAM, "tool", "grep", pattern, "--root", root, *more], capture_output=True, check=False)
        equal((2, False, True), (done.returncode, b"[No matches.]" in done.stdout, b"too costly" in done.stdout), done.stdout)


def test_a_match_far_in_a_line_is_shown(root):
    for before in 90, 101, 350, 420, 600, 20000:
        for tail in "", "y" * 30, "y" * 3000:
            put(root, "long", "\u00e9" * before + "NEEDLE" + tail + "\n")
            for pattern, more in [("NEEDLE", {}), ("NEE[D]LE", {}), ("NEEDLE", {"ignore_case": True}), ("NEE[D]LE", {"multiline": True})]:
                result = run("grep", {"pattern": pattern, **more}, root)
                line = result["data"]["files"][0]["lines"][0]["text"]
                check("NEEDLE" in line and "\ufffd" not in line, "%d %d %s: %s" % (before, len(tail), pattern, line))
                check(len(line.encode()) <= 520, "cut: %d" % len(line.encode()))
                shown = line.removeprefix("[cut] ...").removesuffix("... [cut]")
                whole = "\u00e9" * before + "NEEDLE" + tail
                equal((not whole.startswith(shown), not whole.endswith(shown)),
                      (line.startswith("[cut] ..."), line.endswith("... [cut]")), "marks: " + line)


def test_a_diff_of_a_minified_file_is_short(root):
    for before, after in ("a" * 30000 + "\u00e9" * 200, "b" * 30000), ("", "x" * 70000), ("y" * 70000, ""):
        put(root, "min.js", before + "NEEDLE" + after + "\n")
        data = run("edit", {"path": "min.js", "edits": [{"old_text": "NEEDLE", "new_text": "PIN"}]}, root)["data"]
        check(len(data["diff"]) < 2500 and data["diff_truncated"], len(data["diff"]))
        check("NEEDLE" in data["diff"] and "PIN" in data["diff"] and "\ufffd" not in data["diff"], data["diff"])
        put(root, "min.js", before + "NEEDLE" + after + "\n")
        done = subprocess.run(["patch", "-s", "-p1", "-d", root, "-i", data["diff_file"]], capture_output=True, check=False)
        equal(0, done.returncode, "the whole diff applies: %s" % done.stderr)
        with open(root + "/min.js", encoding="utf-8") as file:
            equal(before + "PIN" + after + "\n", file.read(), "patched")


def test_long_lines_beside_short_ones(root):
    put(root, "mixed", "short\n" + "z" * 5000 + "\nold\n")
    data = run("edit", {"path": "mixed", "edits": [{"old_text": "\nold", "new_text": "\nnew"}]}, root)["data"]
    lines = data["diff"].splitlines()
    equal([" short", "-old", "+new"], [line for line in lines[3:] if len(line) < 100], json.dumps(lines[:3]))
    check(600 < len([line for line in lines if line.startswith(" z")][0]) < 700, "context, cut")


private_home()
each_in_new_directory(globals())
finish()
