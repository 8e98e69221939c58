#!/usr/bin/env python3
"""Runs random commands of which tools/shell/shell_programs_*.c say that they only read, and has
strace watch that they write nothing, run nothing, and open no file but those that were named.

For developers, after a change of the table or a new version of a program; not part of ./dev test:
    tests/tools/programs_trace.py build/tests/tools/test_programs [--count 2000] [--seed 1] [PROGRAM...]
Exits 1 when a row is wrong, 77 without strace.
"""
import argparse
import os
import random
import re
import shutil
import string
import subprocess
import sys
import tempfile

PROGRAMS = """
cat tac rev head tail cut paste nl fold fmt expand unexpand comm join cmp od tr base64 base32 stat df
readlink realpath ls dir vdir md5sum sha256sum cksum sum b2sum wc sort uniq grep egrep fgrep rg fd find
file du tree diff xxd hexdump strings nm objdump size readelf column shuf jq sed awk mawk gawk zcat tee
basename dirname seq factor nproc arch whoami id groups uname tty logname expr getconf which hostname
date env nice timeout stdbuf
""".split()
GIT = """
status log show diff diff-tree diff-index diff-files rev-list shortlog blame branch tag rev-parse
ls-files ls-tree cat-file grep describe merge-base name-rev show-ref for-each-ref check-ignore
count-objects reflog stash worktree remote config range-diff whatchanged
""".split()
OPERANDS = ["a", "b", "src", ".env", "../outside/secret", "../outside", "new1", "new2", "-", "x=1", "@list",
            "link", "1", "2", "a:b", "+%s", "+1", "list", ".", "..", "script", "patterns", "obj.o", "a.gz"]
GIT_OPERANDS = ["HEAD", "HEAD:a", "HEAD~1", "main", "HEAD~1..HEAD", "list", "show", "a", "user.name", "--", "x"]
FIND = """-name -type -newer -exec -delete -print -print0 -fprint -fls -ls -printf -fprintf -ok -maxdepth
-prune -o -not ! -regex -size -path -samefile -execdir -quit -follow -fprint0 -H -L -P -D ( ) , {} + ;""".split()
SCRIPTS = {
    "sed": ["p", "w new1", "s/a/b/w new1", "s/a/b/e", "e", "r .env", "1,2p;$d", "/a/{p;w new2\n}", "a text",
            "s/[/]/x/", "s/x/y/;w new1", "R list", "W new1", ":a;ba;w new1", "y/a/b/", "1!G;h;$!d", "i\\\nx\nw new1",
            "s|a|b|w new1", "\\,a,w new1", "}w new1", "n;e id", "s/a/b/gew new1", "5q", "#n\nw new1", "c\\\nw new1"],
    "awk": ["1", "{print}", "{print > \"new1\"}", "BEGIN{system(\"id\")}", "/a/", "{print | \"cat\"}", "$1 > 5",
            "BEGIN{getline x < \".env\"; print x}", "{print $1 / $2}", "BEGIN{ARGV[1]=\".env\";ARGC=2}{print}",
            "{print (1) (2) > \"new1\"}", "{ x = 1 / 2; print > \"new2\" / 3}", "/[/]/", "{print -1 > \"new1\"}"],
    "jq": [".", ".a", "input", "inputs", "import \"x\" as y; .", "include \"x\"; .", "$ENV", "input_filename", "env"],
    "fd": [".", "a"], "rg": ["a", "."], "grep": ["a", "."], "tr": ["a-z"], "expr": ["1"],
}
WRITES = "unlink,unlinkat,rename,renameat,renameat2,mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat," \
    "chmod,fchmodat,chown,lchown,fchownat,truncate,mknod,mknodat,setxattr,lsetxattr,removexattr," \
    "utimensat,utime,utimes,sethostname,clock_settime,settimeofday,bind"
SYSTEM = ("/usr/", "/lib", "/etc/", "/proc/", "/dev/", "/sys/", "/bin/", "/var/lib/", "/run/")
HELPERS = {"egrep": {"grep"}, "fgrep": {"grep"}, "zcat": {"gzip"}, "git": {"git"}, "which": set()}
INNER = {"env": None, "nice": None, "timeout": None, "stdbuf": None}


def make_scratch(base):
    work = os.path.join(base, "work")
    os.makedirs(os.path.join(work, "src", "deep"))
    os.makedirs(os.path.join(base, "outside"))
    os.makedirs(os.path.join(base, "home"))
    text = "a 1 2\nb 3 4\nmain user 5\n"
    for name in ("a", "b", ".env", "src/c", "src/deep/d", "list", "script", "patterns", "../outside/secret"):
        with open(os.path.join(work, name), "w") as file:
            file.write({"list": "../outside/secret\n", "script": "w new1\n"}.get(name, text))
    os.symlink("../outside/secret", os.path.join(work, "link"))
    os.symlink("../../outside", os.path.join(work, "src", "away"))
    subprocess.run(["gzip", "-k", "a"], cwd=work, check=True)
    shutil.copy(shutil.which("true"), os.path.join(work, "obj.o"))
    environment = {"PATH": os.environ["PATH"], "HOME": os.path.join(base, "home"), "LC_ALL": "C.UTF-8"}
    if "LD_LIBRARY_PATH" in os.environ:
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    for arguments in (["init", "-q", "-b", "main"], ["add", "a", "b", "src"], ["commit", "-qm", "one"],
                      ["commit", "-q", "--allow-empty", "-m", "two"]):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@x"] + arguments, cwd=work,
                       env=environment, check=True)
    with open(os.path.join(work, "a"), "a") as file:
        file.write("changed\n")
    return work, environment


def long_options(command, environment, work):
    argument = "-h" if command[0] == "git" else "--help"
    try:
        done = subprocess.run(command + [argument], capture_output=True, timeout=10, env=environment,
                              stdin=subprocess.DEVNULL, cwd=work)
    except subprocess.TimeoutExpired:
        return []
    text = (done.stdout + done.stderr).decode(errors="replace")
    return sorted(set(re.findall(r"--[a-z0-9][-a-z0-9]+", text)) - {"--help", "--version"})


def table_options(program):
    """Long options that the table has, whatever --help says."""
    directory = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/shell")
    found = set()
    for name in "git", "packages", "table":
        with open(f"{directory}/shell_programs_{name}.c") as file:
            found.update(re.findall(r"--[a-z0-9][-a-z0-9]+", file.read()))
    return sorted(found)


def random_option(rng, longs, every, values):
    kind = rng.random()
    if kind < 0.45:
        return ["-" + "".join(rng.choice(string.ascii_letters + "0123456789") for _ in range(rng.randint(1, 2)))]
    if kind < 0.6:
        return ["-" + rng.choice(string.ascii_letters) + rng.choice(values)]
    pool = longs if longs and rng.random() < 0.93 else every
    option = rng.choice(pool)
    if rng.random() < 0.2:
        option = option[:rng.randint(4, max(4, len(option)))]
    return [option + "=" + rng.choice(values)] if rng.random() < 0.5 else [option]


def random_words(rng, command, longs, every):
    name = command[0]
    values = OPERANDS + (GIT_OPERANDS if name == "git" else [])
    words = list(command)
    rest = []
    if name == "find":
        rest = [rng.choice(OPERANDS) for _ in range(rng.randint(0, 2))]
        rest += [rng.choice(FIND + OPERANDS) for _ in range(rng.randint(0, 4))]
        return words + rest
    for _ in range(rng.randint(0, 3)):
        option = random_option(rng, longs, every, values)
        if rng.random() < 0.4:
            option.append(rng.choice(values))
        rest.append(option)
    scripts = SCRIPTS.get("awk" if name in ("mawk", "gawk") else "grep" if name in ("egrep", "fgrep") else name)
    if scripts and rng.random() < 0.9:
        rest.append([rng.choice(scripts)])
        if rng.random() < 0.2:
            rest.append(["-e", rng.choice(scripts)])
    for _ in range(rng.randint(0, 3)):
        rest.append([rng.choice(values)])
    if rng.random() < 0.3:
        rng.shuffle(rest)
    words += [word for part in rest for word in part]
    if name in INNER:
        words += [rng.choice(["cat", "ls", "true"]), rng.choice(OPERANDS)]
    return words


def judge(judge_program, commands):
    def quote(word):
        return "'" + word.replace("\n", "\x01") + "'"
    text = "".join(" ".join(quote(word) for word in words) + "\n" for words in commands)
    done = subprocess.run([judge_program, "--print"], input=text.encode(), capture_output=True, check=True)
    return [line.split(" => ")[-1] for line in done.stdout.decode().split("\n")[:-1]]


def named_paths(answer, work):
    """(path, with what is below) for each use of an answer."""
    inner = re.search(r" inner: (?:cat|ls) (\S*)$", answer)
    answer += " r:" + inner.group(1) if inner else ""
    paths = []
    for kind, path in re.findall(r" ([rwbRWBF]):(\S*)", answer):
        full = os.path.join(work, path)
        for name in (os.path.normpath(full), os.path.realpath(full)):
            paths.append((name, kind.isupper()))
        if kind == "F" and os.path.isdir(full):
            paths.append(("/", True))
    return paths


def run(words, work, environment, trace, base):
    calls = "openat,open,creat,execve,execveat,connect," + WRITES
    try:
        subprocess.run(["strace", "-f", "-qq", "-y", "-s", "4096", "-e", "signal=none", "-e", "trace=" + calls,
                        "-o", trace] + words, cwd=work, env=environment, stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20)
    except subprocess.TimeoutExpired:
        pass


def problems(words, answer, work, base, trace):
    paths = named_paths(answer, work)
    is_git = words[0] == "git"
    execs = 0
    with open(trace, errors="replace") as file:
        for line in file:
            found = re.match(r"\d+\s+(\w+)\((.*)$", line)
            if not found:
                continue
            call, rest = found.groups()
            failed = "= -1 " in rest
            if call in ("execve", "execveat"):
                program = re.match(r'"([^"]*)"', rest)
                execs += not failed
                name = os.path.basename(program.group(1)) if program else "?"
                inner = words[0] in INNER and name in ("cat", "ls", "true", words[0])
                if not failed and execs > 1 and name not in HELPERS.get(words[0], set()) and not inner:
                    yield "runs " + name
            elif call == "connect":
                if "AF_INET" in rest:
                    yield "connects " + rest.strip()
            elif call in ("openat", "open", "creat"):
                target = re.search(r"= \d+<(.*?)>\s*$", rest)
                writes = call == "creat" or re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC", rest)
                if writes and not re.search(r'"/dev/(null|tty|pts/\d+)"', rest) and not \
                        (is_git and "/.git/" in rest or is_git and '".git/' in rest):
                    yield "opens for writing " + rest.strip()
                if not target or writes:
                    continue
                path = target.group(1)
                if path.startswith(SYSTEM) or not path.startswith(base + "/"):
                    continue
                if path.startswith(base + "/home") or is_git and path.startswith(work + "/.git"):
                    continue
                # What differs from the index, and what is ignored; a listing needs the directory.
                if is_git and (path + "/").startswith(work + "/") or path == work:
                    continue
                if words[0] in ("rg", "fd") and (path.startswith(work + "/.git/") or "ignore" in path):
                    continue
                if os.path.isdir(path) and any(os.path.dirname(named) == path for named, tree in paths):
                    continue
                if not any(path == named or tree and (path + "/").startswith(named.rstrip("/") + "/")
                           for named, tree in paths):
                    yield "reads " + path[len(base):]
            elif not (is_git and ".git" in rest):
                yield "changes " + call + " " + rest.strip()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("judge")
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not shutil.which("strace"):
        print("skipped: there is no strace")
        return 77
    judge_program = os.path.abspath(options.judge)
    rng = random.Random(options.seed)
    names = options.programs or PROGRAMS + ["git"]
    missing = [name for name in names if not shutil.which(name)]
    names = [name for name in names if name not in missing]
    bad = 0
    with tempfile.TemporaryDirectory(prefix="programs-trace-") as base:
        work, environment = make_scratch(base)
        environment["GIT_OPTIONAL_LOCKS"] = "0"
        commands = [[name] for name in names if name != "git"]
        commands += [["git", name] for name in GIT] if "git" in names else []
        every = table_options(names)
        longs = {" ".join(command): long_options(command, environment, work) for command in commands}
        ran = {}
        total = 0
        while total < options.count:
            batch = []
            for _ in range(2000):
                command = rng.choice(commands)
                batch.append(random_words(rng, command, longs[" ".join(command)], every))
            batch = [words for words in batch if not any("\n" in word or "'" in word for word in words)]
            for words, answer in zip(batch, judge(judge_program, batch)):
                if not answer.startswith("reads") or total >= options.count:
                    continue
                if words[0] in INNER and not re.search(r" inner: (cat|ls|true) \S*$", answer):
                    continue
                total += 1
                ran[words[0]] = ran.get(words[0], 0) + 1
                trace = os.path.join(base, "trace")
                run(words, work, environment, trace, base)
                for problem in dict.fromkeys(problems(words, answer, work, base, trace)):
                    print(words, "=>", answer, ":", problem, flush=True)
                    bad += 1
                for name in ("new1", "new2"):
                    if os.path.lexists(os.path.join(work, name)):
                        print(words, "made", name)
                        bad += 1
                        os.unlink(os.path.join(work, name))
    print("%d commands ran, %d problems; of each program: %s" % (total, bad, ran))
    if missing:
        print("not installed: " + " ".join(missing))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
