#!/usr/bin/python3
"""Stands in for an agent in run.sh: runs shells as agents do, and prints what came of it.

    run_agent.py CASE [ARGUMENT...]
"""
import os
import pty
import signal
import subprocess
import sys
import tempfile
import time


def shell(*words, **options):
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **options)


def show(done):
    print(f"{done.returncode} {done.stdout!r} {done.stderr!r}")


def routes():
    """Each way to a shell."""
    for program in ("/bin/bash", "/bin/sh", "bash", "sh", os.environ["SHELL"]):
        show(shell(program, "-c", 'echo "${ISTHMUS_RUN:+there}"'))


def semantics():
    show(shell("bash", "-c", "echo out; echo err >&2; exit 7"))
    show(shell("bash", "-c", "kill -9 $$"))
    show(shell("bash", "-c", 'echo "$0 $1"', "name", "one two"))
    done = subprocess.run(["bash", "-c", "cat; exit 3"], input="given\n", capture_output=True, text=True, check=False)
    show(done)
    show(shell("bash", "-c", "readlink /proc/self/fd/0"))
    show(shell("bash", "-c", "pwd; cat here", cwd="sub"))
    show(shell("bash", "-c", 'echo "outside${ISTHMUS_RUN}"', cwd="/"))


def environment():
    os.environ.update(ANTHROPIC_API_KEY="secret", MY_TOKEN="secret", LC_TEST="kept", GIT_TERMINAL_PROMPT="0", OTHER="x")
    show(shell("bash", "-c", 'echo "$ANTHROPIC_API_KEY$MY_TOKEN$OTHER,$LC_TEST,$GIT_TERMINAL_PROMPT"'))


def streaming():
    with subprocess.Popen(["bash", "-c", "echo first; read line; echo $line"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as process:
        print(process.stdout.readline().strip())
        process.stdin.write("second\n")
        process.stdin.close()
        print(process.stdout.read().strip())


def one_stream():
    """How many of 20 keep their order."""
    words = ["bash", "-c", "for i in 1 2 3; do echo o$i; echo e$i >&2; done"]
    print([subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False).stdout.split() for _ in range(20)].count(["o1", "e1", "o2", "e2", "o3", "e3"]))


def leash():
    """As pi ends a command: nobody asks the shell."""
    mark = sys.argv[2]
    process = subprocess.Popen(["bash", "-c", f"sleep {mark} & sleep {mark}; true"], start_new_session=True)
    while shell("pgrep", "-fx", f"sleep {mark}").stdout.count("\n") < 2:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def leave():
    """Two commands in the background, one of which ignores the end of a terminal."""
    first, second = sys.argv[2:]
    show(shell("bash", "-c", f"sleep {first} >/dev/null 2>&1 & nohup sleep {second} >/dev/null 2>&1 & echo left"))


def wait():
    print(f"started {os.getpid()}", flush=True)
    while True:
        time.sleep(1)


def terminal():
    pid, fd = pty.fork()
    if pid == 0:
        subprocess.run(["stty", "rows", "33", "cols", "99"], check=False)
        os.execvp("bash", ["bash", "-c", "stty size; tty | cut -c-8; exit 4"])
    output = b""
    while True:
        try:
            data = os.read(fd, 4096)
        except OSError:
            break
        if not data:
            break
        output += data
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), output.decode().replace("\r\n", " ").strip())


def claude():
    """What version 2.1.197 executes."""
    directory = tempfile.mkdtemp()
    file = directory + "/claude-fd00-cwd"
    wrapper = ("source /nowhere/.claude/shell-snapshots/snapshot-bash-1-a.sh 2>/dev/null || true && "
               "shopt -u extglob 2>/dev/null || true && eval '%s' < /dev/null && pwd -P >| " + file)

    def call(command):
        show(shell(os.environ["CLAUDE_CODE_SHELL"], "-c", wrapper % command.replace("'", "'\"'\"'")))
        print(open(file, encoding="utf-8").read().strip() if os.path.exists(file) else "no file")

    call("exit 5")
    call("cd sub; echo 'a  b'")
    os.unlink(file)
    show(shell(os.environ["CLAUDE_CODE_SHELL"], "-c", f"source /x/.claude/shell-snapshots/s; new form {file}"))
    show(shell(os.environ["CLAUDE_CODE_SHELL"], "-c", 'SNAPSHOT_FILE=x; echo "here${ISTHMUS_RUN}"'))
    os.rmdir(directory)


def gemini():
    """What version 0.61.0 executes."""
    directory = tempfile.mkdtemp()
    file = directory + "/bgpids.tmp"
    show(shell("bash", "-c", f"shopt -u promptvars nullglob extglob nocaseglob dotglob; _bgpids_file={file}\n(\n"
               "  trap 'jobs -p > \"$_bgpids_file\"' EXIT\nsleep 0.1 >/dev/null 2>&1 &\necho out; exec >/dev/null\n"
               "exit 6\n)\n__code=$?\nexit $__code"))
    print(open(file, encoding="utf-8").read().strip().isdigit())
    os.unlink(file)
    os.rmdir(directory)


def codex():
    """What version 0.169.0 executes: the wrapper here, which ends as the command there."""
    shell_path = sys.argv[2]
    show(shell(shell_path, "-c", "__CODEX_SNAPSHOT_OVERRIDE_0=x\n"
               f'echo "wrapper${{ISTHMUS_RUN}}"\nexec \'{shell_path}\' -c \'echo "${{ISTHMUS_RUN:+there}}"; exit 2\''))
    show(shell(shell_path, "-lc", 'echo "${ISTHMUS_RUN:+there}"'))


def same_path():
    path = shell("bash", "-c", "pwd").stdout.strip()
    print(path == os.getcwd(), open(path + "/sub/here", encoding="utf-8").read().strip())


def commit():
    show(shell("bash", "-c", "git init -q repo && cd repo && git commit -q --allow-empty -m x && git log --format='%an %ae'"))


def wait_for_file():
    print("started", flush=True)
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.05)
    print(os.listdir("sub"))


globals()[sys.argv[1]]()
