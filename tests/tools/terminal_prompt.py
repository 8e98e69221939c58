"""The question on a terminal (a pty): once, no, nonsense, Ctrl-C, the end of the input, and nobody there."""
import json
import os
import pty
import select
import signal
import subprocess
import time

from toolslib import PATIENCE, PROGRAM, Directory, check, equal, finish, private_home, wanted

QUESTION = b"Allow it?"


def until(terminal, want, limit_s=10):
    """What the terminal shows up to `want` (None: until it closes)."""
    shown, end = b"", time.time() + limit_s * PATIENCE
    while want is None or want not in shown:
        if not select.select([terminal], [], [], max(0, end - time.time()))[0]:
            return shown
        try:
            got = os.read(terminal, 4096)
        except OSError:  # the last process that had it open is gone
            return shown
        if not got:
            return shown
        shown += got
    return shown


def on_terminal(root, arguments, typed, ahead=b""):
    """Runs a tool on a terminal of its own and types an answer to each question: what it shows, its exit code."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(PROGRAM, [PROGRAM, "tool", *arguments, "--root", root])
    if ahead:
        os.write(terminal, ahead)
    shown = b""
    for answer in typed:
        shown += until(terminal, QUESTION)
        time.sleep(0.05)
        if isinstance(answer, bytes):
            os.write(terminal, answer)
        else:
            os.kill(child, answer)
    shown += until(terminal, None)
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    return shown.decode("utf-8", "replace"), os.waitstatus_to_exitcode(status)


def ask(root, *typed, command="touch made; echo done", ahead=b""):
    path = root + "/made"
    if os.path.exists(path):
        os.unlink(path)
    shown, status = on_terminal(root, ["bash", command], typed, ahead)
    return shown, status, os.path.exists(path)


def test_once(root):
    for answer in [b"y\n", b"yes\n", b"Y\n"]:
        shown, status, made = ask(root, answer)
        equal((0, True), (status, made), "%r allows it" % answer)
        check("Run command: touch made" in shown and "done" in shown, "the question, then the output: %r" % shown)
    # The next call asks again.
    equal((1, False), ask(root, b"n\n")[1:], "once is for one call")


def test_no(root):
    for answer in [b"n\n", b"NO\n"]:
        shown, status, made = ask(root, answer)
        equal((1, False), (status, made), "%r" % answer)
        check("did not allow" in shown, "it says so: %r" % shown)


def test_nonsense_is_not_yes(root):
    for answer in [b"\n", b"yikes\n", b"hmmmmmmmmmmmmmmmmmmmyes\n", b"y n\n", b"\0\n"]:
        shown, status, made = ask(root, answer, answer, answer)
        equal((1, False), (status, made), "%r three times" % answer)
        equal(3, shown.count(QUESTION.decode()), "it asks three times for %r" % answer)
    equal((0, True), ask(root, b"what\n", b"y\n")[1:], "then an answer")


def test_ctrl_c(root):
    for end in [b"\x03", signal.SIGINT, signal.SIGTERM]:
        start = time.time()
        _, status, made = ask(root, end)
        equal((130, False), (status, made), "%r" % end)
        check(time.time() - start < 5, "at once")


def test_end_of_input(root):
    equal((1, False), ask(root, b"\x04")[1:], "Ctrl-D")


def test_typed_ahead_is_no_answer(root):
    equal((1, False), ask(root, b"n\n", ahead=b"y\ny\ny\n")[1:], "typed before it was asked")


def test_nothing_hides_in_the_question(root):
    shown, _, made = ask(root, b"n\n", command="echo \x1b[2K\x1b[1A \u202e harmless\nrm -rf x\rls")
    question = shown[:shown.index("Allow it?")]
    check("\x1b" not in question and "\u202e" not in question and "\rls" not in question, "%r" % question)
    check("\n    rm -rf x" in question, "further lines are indented: %r" % question)
    check(not made, "nothing ran")
    hidden = ["\u200b", "\u2060", "\ufeff", "\u00ad", "\U000e0041", "\ufe0f", "\u3164", "\x9b"]
    for character in hidden:
        shown, _, _ = ask(root, b"n\n", command="echo a%sb" % character)
        check(character not in shown and "\\x" in shown, "U+%04X in %r" % (ord(character), shown))
    for command, want in [("echo a" + " " * 200 + "; rm -rf x", "a[200 blanks]; rm -rf x"),
                          ("echo a" + "\u3000" * 60 + "\n" * 60 + "rm -rf x", "a[120 blanks]\n    rm -rf x")]:
        shown, _, _ = ask(root, b"n\n", command=command)
        check(want in shown.replace("\r\n", "\n"), "blanks are counted: %r" % shown)


def test_output_shows_what_cannot_be_seen(root):
    name, text = "n\x1b[2J\u202en", "c\x1b[31m\u200b\ttab\r\nnext\n"
    os.mkdir(root + "/shown")
    with open(root + "/shown/" + name, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    for arguments in [["read", "shown/" + name], ["ls", "shown"], ["find", "n*", "shown"], ["grep", "tab", "shown"],
                      ["bash", "cat shown/*", "--yes"], ["ls", "shown", "--output", "json"]]:
        shown, status = on_terminal(root, arguments, [])
        check(status == 0 and "\x1b" not in shown and "\u202e" not in shown and "\u200b" not in shown,
              "%s on a terminal: %r" % (arguments, shown))
        done = subprocess.run([PROGRAM, "tool", *arguments, "--root", root], capture_output=True, check=False)
        if arguments[0] in ("read", "bash"):
            equal(text, done.stdout.decode(), "%s into a pipe" % arguments)
        if "json" in arguments:
            equal(name, json.loads(done.stdout)["data"]["entries"][0]["name"], "JSON says the same")
    check("\\x1b[31m\\xe2\\x80\\x8b\ttab\r\nnext" in on_terminal(root, ["read", "shown/" + name], [])[0], "lines stay")


def test_a_yes_to_the_directory_shows_what_is_in_it(root):
    os.makedirs(root + "/asked/sub")
    rules = {"permissions": [{"tool": "read", "pattern": "asked", "action": "ask"},
                             {"tool": "read", "pattern": "asked/sub", "action": "deny"}]}
    with open(root + "/asked/file", "w", encoding="utf-8") as file, \
            open(root + "/.isthmus.json", "w", encoding="utf-8") as policy:
        file.write("text")
        json.dump(rules, policy)
    shown, _ = on_terminal(root, ["find", "*", "asked"], [b"y\n"])
    check("asked/file" in shown and "asked/sub" not in shown and "1 entry left out" in shown, "%r" % shown)
    shown, _ = on_terminal(root, ["find", "*", "asked"], [b"n\n"])
    check("asked/file" not in shown, "%r" % shown)
    shown, _ = on_terminal(root, ["ls"], [])
    check("asked" not in shown, "nothing is asked about an entry: %r" % shown)
    os.unlink(root + "/.isthmus.json")


def test_the_question_says_where_a_link_leads(root):
    os.makedirs(root + "/.git/hooks")
    os.symlink(".git/hooks", root + "/docs")
    shown, _ = on_terminal(root, ["write", "docs/pre-commit", "text"], [b"n\n"])
    check("(docs/pre-commit leads to .git/hooks/pre-commit: it changes what git runs)" in shown, "%r" % shown)
    shown, status = on_terminal(root, ["write", "docs/pre-commit", "text"], [b"y\n"])
    check(status == 0 and os.path.isfile(root + "/.git/hooks/pre-commit"), "a yes allows it: %r" % shown)


def test_an_edit_about_which_rules_ask_goes_on_after_the_answer(root):
    with open(root + "/asked.txt", "w", encoding="utf-8") as file, \
            open(root + "/.isthmus.json", "w", encoding="utf-8") as policy:
        file.write("first\nsecond\n")
        json.dump([{"tool": "read", "pattern": "asked.txt", "action": "ask"}], policy)
    edit = '{"path": "asked.txt", "edits": [{"old_text": "%s", "new_text": "new"}]}'
    shown, _ = on_terminal(root, ["edit", "--json", edit % "secomd"], [b"n\n"])
    check("second" not in shown, "no: %r" % shown)
    shown, _ = on_terminal(root, ["edit", "--json", edit % "secomd"], [b"y\n"])
    check("2  second" in shown, "yes, and nothing matches: %r" % shown)
    shown, status = on_terminal(root, ["edit", "--json", edit % "second"], [b"y\n"])
    check(status == 0 and "+new" in shown, "yes: %r" % shown)
    os.unlink(root + "/.isthmus.json")


def test_other_tools_ask_too(root):
    os.makedirs(root + "/dir/sub")
    shown, status = on_terminal(root, ["delete", "dir", "--recursive"], [b"n\n"])
    check(status == 1 and os.path.isdir(root + "/dir/sub") and "dir" in shown, "a recursive delete: %r" % shown)
    shown, status = on_terminal(root, ["launch_app", "echo", "--args", "app"], [b"y\n"])
    check(status == 0 and "app" in shown, "an application: %r" % shown)
    shown, status = on_terminal(root, ["write", "plain.txt", "text"], [])
    check(status == 0 and QUESTION.decode() not in shown, "a write does not: %r" % shown)


def test_nobody_there(root):
    """Standard error is a terminal, standard input is not: a question would wait for ever."""
    main, side = pty.openpty()
    done = subprocess.run([PROGRAM, "tool", "bash", "touch made", "--root", root], stdin=subprocess.DEVNULL,
                          stderr=side, stdout=side, timeout=20 * PATIENCE, check=False)
    os.close(side)
    shown = until(main, None, 1)
    os.close(main)
    check(done.returncode == 1 and b"nobody to ask" in shown, "%r" % shown)


private_home()
with Directory() as directory:
    for name, test in sorted(globals().items()):
        if wanted(name):
            test(directory)
finish()
