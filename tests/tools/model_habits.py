"""What models do that tools should take, refuse with the way, or keep short."""
import json
import os
import subprocess

from toolslib import Directory, check, code, equal, finish, private_home, run


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


def test_suffixes_count_in_any_case(root):
    equal("SYNTAX_ERROR", code(run("create_file", {"path": "a.JSON", "content": "[01]"}, root)), "JSON")
    equal("SYNTAX_ERROR", code(run("create_file", {"path": "a.Py", "content": "def ("}, root)), "Python")
    equal("OK", code(run("create_file", {"path": "TSConfig.JSON", "content": "{} // x"}, root)), "with comments")


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
for name, test in sorted(globals().items()):
    if name.startswith("test_"):
        with Directory() as directory:
            test(os.path.realpath(directory))
finish()
