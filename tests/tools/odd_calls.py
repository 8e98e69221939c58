"""Odd arguments and odd files: nothing is cut off in silence, and the answer says what is the matter."""
import json
import os
import socket
import subprocess

from toolslib import PROGRAM, Mcp, check, code, each_in_new_directory, equal, finish, private_home, run


def put(root, path, content):
    with open(os.path.join(root.encode(), path), "wb") as file:
        file.write(content)


def says(result, want, words):
    if equal(want, code(result), str(result)[:300]):
        check(words in result["error"]["ai_message"], "%r: %s" % (words, result["error"]["ai_message"]))


def test_a_nul_in_arguments_is_refused(root):
    for arguments in ['{"path": "a\\u0000b", "content": "x"}', '{"path": "a", "content": "x\\u0000y"}', '{"path": "a", "content": "\\ud800"}',
                      '{"path": "a", "path": "b", "content": ""}', '{"path": "a", ', ""]:
        for given in arguments, "-":
            done = subprocess.run([PROGRAM, "tool", "write", "--root", root, "--json", given], input=arguments.encode(),
                                  capture_output=True, check=False)
            equal(2, done.returncode, arguments)
            check(b"JSON" in done.stderr or b"\\u0000 cannot be part" in done.stderr, done.stderr)
    equal([], os.listdir(root), "what was written")


def test_no_arguments_in_any_form(root):
    server = Mcp(root)
    for nothing in None, [], {}:
        equal(False, server.call("ls", nothing)["isError"], "ls of %r" % nothing)
    check(server.call("ls", ["."])["isError"], "a list that is not empty")
    server.close()


def test_bounds_of_text_count_characters(root):
    tool = root + "/short"
    put(root, b"short", b"""#!/bin/sh
if [ $TOOLBOX_ACTION = describe ]; then
    echo '{"name": "short", "inputSchema": {"type": "object", "properties": {"word": {"type": "string", "minLength": 2, "maxLength": 3}}}}'
fi
""")
    os.chmod(tool, 0o755)
    for word, want in ("\u00e9", "INVALID_ARGUMENT"), ("\u00e9\u20ac\U0001f600", "OK"), ("\u00e9\u00e9\u00e9\u00e9", "INVALID_ARGUMENT"):
        equal(want, code(run("short", {"word": word}, root, "--tool", tool)), word)
    says(run("bash", {"command": "true", "env": {"A": 5}}, root), "INVALID_ARGUMENT", "env.A must be a string")


def test_files_that_are_none(root):
    os.mkfifo(root + "/fifo")
    for tool, arguments in [("write", {"content": "x"}), ("edit_file", {"content": "x"}), ("edit", {"edits": [{"old_text": "a", "new_text": "b"}]})]:
        says(run(tool, dict(arguments, path="fifo"), root), "NOT_A_FILE", "a device, pipe or socket")
    os.symlink("nowhere", root + "/link")
    says(run("read", {"path": "link"}, root), "NOT_FOUND", "link (a symbolic link that leads nowhere)")
    put(root, b"caf\xe9.txt", b"x\n")
    says(run("read", {"path": "caf\ufffd.txt"}, root), "NOT_FOUND", "bytes are not UTF-8: bash reaches it with a pattern")


def test_a_failure_that_is_no_link(_):
    error = run("edit", {"path": "version", "edits": [{"old_text": "Linux", "new_text": "x"}]}, "/proc")["error"]
    check("symbolic link" not in error["message"], error)


def test_a_file_that_cannot_be_read_ends_no_search(root):
    equal("OK", code(run("grep", {"pattern": "MemTotal", "timeout_s": 3}, "/proc")), "what root may open in /proc cannot all be read")
    says(run("grep", {"pattern": "x", "path": "self/mem"}, "/proc"), "IO_ERROR", 'Cannot search "self/mem"')


def test_a_backup_needs_no_memory(root):
    with open(root + "/sparse", "wb") as file:
        file.truncate(150 << 20)
    done = subprocess.run(["sh", "-c", 'ulimit -v 150000; exec "$@"', "sh", PROGRAM, "tool", "edit_file", "sparse", "small", "--root", root],
                          capture_output=True, stdin=subprocess.DEVNULL, check=False)
    equal((0, {"sparse": 5, "sparse.bak": 150 << 20}), (done.returncode, {name: os.path.getsize(root + "/" + name) for name in os.listdir(root)}), done.stderr)


def test_a_root_that_is_gone(root):
    os.mkdir(root + "/r")
    server = Mcp(root + "/r")
    check("moved, removed" not in server.call("read", {"path": "x"})["content"][0]["text"], "it is there")
    os.rename(root + "/r", root + "/s")
    for again in False, True:
        text = server.call("read", {"path": "x"})["content"][0]["text"]
        check("was moved, removed or replaced. Ask the user" in text, text)
        if not again:
            os.mkdir(root + "/r")
    server.close()


def test_a_failed_change_leaves_no_backup(root):
    put(root, b"f", b"old\n")
    for tool, arguments in [("edit_file", {"content": "x" * 20000}),
                            ("edit", {"create_backup": True, "edits": [{"old_text": "old", "new_text": "x" * 20000}]})]:
        done = subprocess.run(["sh", "-c", 'trap "" XFSZ; ulimit -f 8; exec "$@"', "sh", PROGRAM, "tool", tool, "--root", root, "--output", "json",
                               "--json", "-"], input=json.dumps(dict(arguments, path="f")).encode(), capture_output=True, check=False)
        check(done.returncode != 0 and b"backup" not in done.stdout, done.stdout)
        equal(["f"], os.listdir(root), tool)


SAYS = b"""#!/usr/bin/env python3
import json, os, sys
if os.environ["TOOLBOX_ACTION"] == "describe":
    print('{"protocol": "isthmus-tool/1", "tools": [{"name": "says", "parameters": {"type": "object", "properties": {"content": {"type": "string"}}}}]}')
    sys.exit()
call = json.loads(sys.stdin.readline())
print('{"type": "result", "id": "%s", "content": %s}' % (call["id"], call["params"]["content"]), flush=True)
"""


def test_results_that_are_odd(root):
    put(root, b"says", SAYS)
    os.chmod(root + "/says", 0o755)
    for content, want in [(r'"a\u0000b"', "a\ufffdb"), (r'"a\ud800b"', "a\ufffdb"), ("null", ""),
                          ("5", "[The content of the result was left out: it is neither a string nor a list of blocks.]\n"),
                          ('[{"type": "audio", "data": "x"}]', "[A block of type audio was left out.]\n"),
                          ('[{"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}]', "[An image that is not valid was left out.]\n"),
                          ('[{"type": "image", "data": "aGVsbG8=", "mimeType": "text/html"}]', "[An image that is not valid was left out.]\n")]:
        result = run("says", {"content": content}, root, "--tool", root + "/says")
        equal(want, result.get("data", {}).get("text"), content)


def test_text_in_utf16(root):
    for encoding in "utf-16-le", "utf-16-be":
        put(root, b"wide", "\ufeffhello\n".encode(encoding))
        says(run("read", {"path": "wide"}, root), "BINARY_FILE", "is text in UTF-16, not UTF-8, 14 bytes. Convert it: iconv")


def test_a_root_that_was_removed_is_not_empty(root):
    os.mkdir(root + "/r")
    server = Mcp(root + "/r")
    check("The directory is empty" in server.call("ls", {})["content"][0]["text"], "it is there")
    os.rmdir(root + "/r")
    text = server.call("ls", {})["content"][0]["text"]
    check("was moved, removed or replaced. Ask the user" in text, text)
    server.close()


def test_globs_that_are_not_valid(root):
    for tool, arguments in [("grep", {"pattern": "x", "include": "["}), ("find", {"pattern": "a["}), ("glob", {"pattern": "[[:x:]]"}), ("find", {"pattern": "*.{c,h"})]:
        says(run(tool, arguments, root), "INVALID_ARGUMENT", "is not a valid glob: a bracket or brace does not close. Correct it, or write \\[ or \\{ for")


def test_globs_as_other_tools_have_them(root):
    os.mkdir(root + "/d")
    put(root, b"d/a.txt", b"one\n")
    put(root, b"b.txt", b"one\n")
    put(root, b"c", b"one\n")
    equal(["d/"], run("find", {"pattern": "d/"}, root)["data"]["paths"], "a directory")
    equal([], run("find", {"pattern": "c/"}, root)["data"]["paths"], "a file")
    equal(["c"], sorted(file["path"] for file in run("grep", {"pattern": "one", "include": "!*.txt"}, root)["data"]["files"]), "all but these")
    found = run("find", {"pattern": "/b.txt"}, root)["data"]
    equal((["b.txt"], None), (found["paths"], found.get("notice")), "from the root")
    check("leads out" in run("find", {"pattern": "/etc/passw*"}, root)["data"]["notice"], "of another tree")


def test_a_byte_order_mark_is_no_part_of_the_first_line(root):
    put(root, b"bom", b"\xef\xbb\xbfone\ntwo\n")
    for arguments in {}, {"path": "bom"}, {"multiline": True}:
        found = run("grep", dict(arguments, pattern="^one"), root)["data"]["files"]
        equal([{"path": "bom", "lines": [{"line": 1, "text": "one"}]}], found, arguments)


def test_a_read_only_file_system(root):
    result = subprocess.run(["unshare", "-m", "sh", "-c", 'mount -t tmpfs t "$1" && echo one >"$1/f" && mount -o remount,ro "$1" || exit 77; '
                             'exec "$2" tool write f x --root "$1" --yes --output json', "sh", root, PROGRAM], capture_output=True, check=False)
    if result.returncode != 77:
        check(b"the workspace is read-only" in result.stdout, result)


def test_what_is_there_but_no_file(root):
    made = socket.socket(socket.AF_UNIX)
    made.bind(root + "/sock")
    os.mkdir(root + "/d")
    os.symlink("l2", root + "/l1")
    os.symlink("l1", root + "/l2")
    put(root, b"f", b"")
    put(root, b"inv\xff\xfe", b"x")
    for tool, arguments in [("read", {}), ("write", {"content": "x"}), ("edit_file", {"content": "x"}),
                            ("edit", {"edits": [{"old_text": "a", "new_text": "b"}]})]:
        says(run(tool, dict(arguments, path="sock"), root), "NOT_A_FILE", "it is a device, pipe or socket, not a regular file.")
        says(run(tool, dict(arguments, path="l1"), root), "INVALID_ARGUMENT", "its symbolic links lead in a circle")
    says(run("create_file", {"path": "d", "content": "x"}, root), "NOT_A_FILE", '"d" is a directory. Give the path of a file in it.')
    says(run("write", {"path": "f/g", "content": "x"}, root), "NOT_A_DIRECTORY", "Check the path with ls")
    says(run("read", {"path": "inv\ufffd\ufffd"}, root), "NOT_FOUND", "use bash with a pattern, in which ? stands for such a byte")


def test_edits_of_what_is_not_utf8(root):
    edit = {"path": "wide", "edits": [{"old_text": "hello", "new_text": "bye"}]}
    for content, want in [("\ufeffhello you\r\n".encode("utf-16-le"), "is text in utf-16le; only UTF-8 can be edited. With bash convert it (iconv -f utf-16le"),
                          ("\ufeffhello you\r\n".encode("utf-16-be"), "is text in utf-16be"),
                          (b"\x7fELF\0\1\2" + bytes(range(256)), "is not text, and edits[0]: old_text does not occur in it")]:
        put(root, b"wide", content)
        says(run("edit", edit, root), "BINARY_FILE", want)
    put(root, b"wide", "caf\u00e9\n".encode("latin-1"))
    says(run("edit", {"path": "wide", "edits": [{"old_text": "caf\u00e9", "new_text": "tea"}]}, root), "NO_MATCH", "The file is not UTF-8: only ASCII can match in it.")
    put(root, b"wide", b"\x7fELF\0\1hello\2")
    equal("OK", code(run("edit", edit, root)), "bytes that are there")


def test_grep_finds_text_in_utf16_as_rg_does(root):
    for encoding in "utf-16-le", "utf-16-be":
        put(root, b"wide", "\ufeffone\r\n".encode(encoding) * 1 + ("x" * 50 + "\n").encode(encoding) * 5000
            + "hell\u00f6 \U0001f600 you\nlast".encode(encoding))
        for path in {}, {"path": "wide"}:
            for pattern, line, text in [("^one$", 1, "one"), ("l\u00f6 . you", 5002, "hell\u00f6 \U0001f600 you"), ("last", 5003, "last")]:
                found = run("grep", dict(path, pattern=pattern), root)["data"]["files"]
                equal([{"path": "wide", "lines": [{"line": line, "text": text}]}], found, (encoding, pattern))
            equal(2, run("grep", dict(path, pattern="you\nlast", multiline=True), root)["data"]["matches"], encoding)
        put(root, b"wide", "\ufeffab\ud800needle\n".encode(encoding, "surrogatepass"))
        equal(1, run("grep", {"pattern": "needle"}, root)["data"]["matches"], encoding)
    os.unlink(root + "/wide")


def notice(tool, arguments, root):
    return run(tool, arguments, root)["data"].get("notice", "")


def test_a_pattern_with_a_line_end(root):
    put(root, b"t", b"one\ntwo\n")
    for arguments in {"pattern": "one\ntwo"}, {"pattern": "one\\ntwo"}, {"pattern": "one\ntwo", "literal": True}:
        check("Set multiline" in notice("grep", arguments, root), arguments)
        equal(2, run("grep", dict(arguments, multiline=True), root)["data"]["matches"], arguments)
    for arguments in {"pattern": "one\\\\n"}, {"pattern": "one\\n", "literal": True}, {"pattern": "none"}:
        equal("", notice("grep", arguments, root), arguments)


def test_patterns_of_another_tree(root):
    for pattern in "../*", "/etc/*", "a/../../b":
        for tool in "find", "glob":
            check("leads out of the root directory" in notice(tool, {"pattern": pattern}, root), tool + " " + pattern)
    equal("", notice("find", {"pattern": "..*/x"}, root), "dots of a name")


def test_directories_too_deep_to_read_are_counted(root):
    at = os.open(root, os.O_RDONLY)
    for _ in range(100):
        os.mkdir("d" * 50, dir_fd=at)
        inner = os.open("d" * 50, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    for tool in "find", "glob":
        check("1 directory could not be read" in notice(tool, {"pattern": "x"}, root), tool)
    equal("OK", code(run("delete", {"path": "d" * 50, "recursive": True}, root)), "delete")


private_home()
each_in_new_directory(globals())
finish()
