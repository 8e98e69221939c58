"""bash with commands that misbehave: bounded memory, bounded time, nothing left running."""
import json
import os
import signal
import subprocess
import time

from toolslib import MARK, PATIENCE, PROGRAM, Directory, check, code, equal, finish, private_home, run, running, wait_for, wanted


def left_running():
    """What still runs although it was killed; a busy machine needs a while for that."""
    end = time.time() + 10 * PATIENCE
    while running() and time.time() < end:
        time.sleep(0.1)
    return running()


def timed(command, limit_s, **arguments):
    start = time.time()
    result = run("bash", dict(arguments, command=command), directory)
    check(time.time() - start < limit_s * PATIENCE, "%s took %.1f s" % (command, time.time() - start))
    equal([], left_running(), "left by " + command)
    return result


def test_background_and_daemons():
    equal("OK", code(timed("sleep %s & echo hi" % MARK, 10)), "background child")
    equal("OK", code(timed("setsid sleep %s > /dev/null 2>&1 < /dev/null &" % MARK, 10)), "own session")
    equal("OK", code(timed("(setsid sh -c 'sleep %s & sleep %s' &) ; sleep 0.1" % (MARK, MARK), 10)), "daemon")
    equal("OK", code(timed("(while :; do echo x; sleep 0.05; done) & echo started", 10)),
          "a writer in the background that keeps the pipe open")
    result = timed("(trap '' TERM; sleep %s) & sleep 0.1" % MARK, 15)
    equal("OK", code(result), "a background child that ignores TERM")


def test_timeout():
    result = timed("sleep " + MARK, 10, timeout_s=0.5)
    equal(("TIMEOUT", 124), (code(result), result["exit"]), "timeout")
    check("timeout_s" in result["error"]["ai_message"], "what to do")
    result = timed("trap '' TERM; echo before; while :; do sleep 0.1; done", 15, timeout_s=0.5)
    equal(("TIMEOUT", "before\n"), (code(result), result["data"]["output"]), "ignores TERM: KILL after 3 s")
    timed("exec > /dev/null 2>&1; sleep " + MARK, 10, timeout_s=0.5)


def test_fork_bomb():
    if os.geteuid() == 0:
        # root has no limit on processes: the bomb limits itself, by depth.
        bomb = "b() { [ $1 -gt 7 ] || { b $(($1 + 1)) & b $(($1 + 1)) & }; exec sleep %s; }; b 0" % MARK
    else:
        bomb = "ulimit -u 300; b() { b | b & sleep %s; }; b" % MARK
    equal("TIMEOUT", code(timed(bomb, 10, timeout_s=1)), "fork bomb")


def test_much_output():
    done = subprocess.run(["/usr/bin/env", "python3", "-c", """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, flush=True)
sys.stdout.buffer.write(done.stdout)
""", PROGRAM, "tool", "bash", "--yes", "--root", directory, "--output", "json",
                           "head -c 1000000000 /dev/zero | tr '\\0' x; echo; echo end"],
                          capture_output=True, timeout=100 * PATIENCE, check=True)
    peak_kb, text = done.stdout.split(b"\n", 1)
    check(int(peak_kb) < 40000, "1 GB of output needs %s KB of memory" % peak_kb)
    check(len(text) < 200000 and b'end\\n' in text, "its end is there")
    result = timed("seq 1 100000", 10)["data"]
    check(result["output"].endswith("\n99999\n100000\n") and result["truncated"], "the tail is kept")
    check(len(result["output"]) <= 51200 and result["output"].count("\n") <= 2000, "within the limits")
    equal("98001", result["output"].split("\n")[0], "whole lines")
    whole = run("read", {"path": result["output_file"], "offset": 100000}, directory)
    equal("100000\n", whole["data"]["content"], "read shows the file")
    check(result["output_file"] in result["notice"], "the notice names it")
    result = timed("head -c 300000 /dev/zero | tr '\\0' y", 10)["data"]
    check(51000 <= len(result["output"]) <= 51200, "one long line is cut")
    equal("no end", timed("printf 'no end'", 10)["data"]["output"], "no line end")
    equal("\ufffd\ufffda\n", timed("printf '\\377\\0a\\n'", 10)["data"]["output"], "bytes that are no text")
    equal("", timed("cat", 10)["data"]["output"], "stdin is closed")


def test_exit_codes():
    for command, want in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("nosuchcommand", 127)]:
        equal(want, timed(command, 10)["exit"], command)
    equal("EXIT_STATUS", code(timed("echo out; exit 1", 10)), "a code")
    equal("out\n", timed("echo out; exit 1", 10)["data"]["output"], "the output is still there")
    equal("NOT_FOUND", code(timed("ls", 5, workdir="nodir")), "no such directory")
    equal("1 root\n", timed("echo $A $(basename $PWD | sed s/.*/root/); [ -z \"$SECRET\" ]", 5,
                            env={"A": "1"})["data"]["output"], "environment")


def test_umask():
    if os.environ.get("AT_WORKSPACE"):
        return  # its own user's counts there
    before = os.umask(0o027)
    equal("0027\n", timed("umask", 10)["data"]["output"], "the user's own umask")
    os.umask(before)


def by_rules(arguments):
    """By the rules in the policy, with nobody to ask."""
    done = subprocess.run([PROGRAM, "tool", "bash", "--root", directory, "--policy", policy,
                           "--output", "json", "--json", "-"],
                          input=json.dumps(arguments).encode(), capture_output=True, check=False)
    return json.loads(done.stdout)


def allowed(arguments):
    return code(by_rules(arguments))


def output(arguments):
    result = by_rules(arguments)
    return result["data"]["output"] if result["success"] else result["error"]["message"]


def test_the_environment_needs_permission_too():
    with open(os.path.join(directory, "evil.sh"), "w", encoding="utf-8") as file:
        file.write("echo > pwned\n")
    with open(policy, "w", encoding="utf-8") as file:
        json.dump({"permissions": [{"tool": "bash", "pattern": "ls *", "action": "allow"},
                                   {"tool": "bash", "pattern": "B=2 ls *", "action": "allow"}]}, file)
    equal("OK", allowed({"command": "ls"}), "what a rule allows")
    equal("OK", allowed({"command": "ls", "env": {"B": "2"}}), "with a variable that it allows")
    for arguments in [{"command": "ls", "env": {"BASH_ENV": "evil.sh"}},
                      {"command": "X=1", "env": {"BASH_ENV": "evil.sh"}},
                      {"command": "ls", "env": {"PATH": "."}},
                      {"command": "ls", "env": {"BASH_FUNC_ls%%": "() { echo > pwned; }"}},
                      {"command": "ls", "env": {"A": "1"}}]:
        equal("PERMISSION_DENIED", allowed(arguments), str(arguments))
    check(not os.path.exists(os.path.join(directory, "pwned")), "nothing else ran")


PLAIN = ["echo a  b", "echo 'a  b' \"c  d\" e\\ f", "echo 'it'\\''s' \"a;b\" c\\&d", "echo \"\\$(pwn)\" '`pwn`'",
         "echo \"$#\" $NOSUCH \"$NOSUCH\" b", "echo a && cat f | cat; echo c || echo d", "(echo a; echo b) | cat",
         "cat < f", "echo a > out; cat out", "echo b > out; echo c >> out; cat < out", "cat *.sh | cat", "cat [e]vil.s?",
         "echo a 2>&1 | cat", "ls nosuch 2> /dev/null || echo none", "! ls nosuch > /dev/null 2>&1 && echo none",
         "echo a # b", "echo a#b", "echo a \\\n  b", "echo '#' \\# '*' \\* '~' \"~\"", "echo \u00e9 '\u65e5'", "echo a\necho b"]
HOSTILE = ["a=${x:-`echo > pwned`}", "a=$((HOME=1))", "a[$(echo > pwned)]=1", "${x:->(echo > pwned)}", "> pwned", "echo a > .git/x",
           "cat <<E\n$(echo > pwned)\nE", "cat <<'E '\nE \ntouch pwned", "echo a\u00a0# ; touch pwned", "echo a\r\ntouch pwned",
           "echo $'a' $\"$(touch pwned)\"", "echo `echo \\`touch pwned\\``", "'ls ' f", "./ls", "PATH=. ls", "git -c alias.status='!touch pwned' status",
           "ls() { touch pwned; }; ls", "cat ../f", "cat leave/f", "echo a > leave/pwned", "cd .. && ls", "\ufeffls; touch pwned"]


def test_what_rules_allow_runs_as_it_was_read():
    with open(policy, "w", encoding="utf-8") as file:
        json.dump([{"tool": "bash", "pattern": pattern, "action": "allow"}
                   for pattern in ["echo *", "ls *", "cat *", "git status *"]], file)
    for name, content in [("f", "content of f\n"), ("evil.sh", "touch pwned\n"), ("ls", "#!/bin/sh\ntouch pwned\n")]:
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            file.write(content)
    os.chmod(os.path.join(directory, "ls"), 0o755)
    os.mkdir(os.path.join(directory, ".git"))
    os.symlink(outside, os.path.join(directory, "leave"))
    for command in PLAIN:
        want = subprocess.run(["bash", "-c", command], cwd=directory, capture_output=True, text=True, check=False)
        equal(want.stdout, output({"command": command}), command)
    for command in HOSTILE:
        equal("PERMISSION_DENIED", allowed({"command": command}), command)
    for place in [directory, outside]:
        check(not os.path.exists(os.path.join(place, "pwned")), "something ran that was not allowed")


def test_cancel_and_death():
    for end in [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]:
        process = subprocess.Popen([PROGRAM, "tool", "bash", "--yes", "--root", directory,
                                    "(setsid sleep %s &); trap '' TERM INT; sleep %s" % (MARK, MARK)],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(running)
        start = time.time()
        process.send_signal(end)
        process.wait(10)
        check(time.time() - start < 10, "ends at once by signal %d" % end)
        equal([], left_running(), "after signal %d" % end)


os.environ["SECRET"] = "must not leak"
private_home()
with Directory() as directory, Directory() as outside:
    policy = os.path.join(outside, "policy.json")
    for name, test in sorted(globals().items()):
        if wanted(name):
            test()
finish()
