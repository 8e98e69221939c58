"""grep, find and glob against rg, and the ignore rules against `git check-ignore`: the same answers
on real trees (the project, /usr/include), with generated patterns and ignore files."""
import os
import random
import re
import shutil
import subprocess
import sys

from toolslib import Directory, check, equal, finish, private_home, run, wanted

PIECES = ["include", "static", "struct", "int", "return", "define", "[A-Z]+", "[0-9a-f]+", r"\w+", r"\s+",
          r"\(", r"\)", ".", ".*", "a?", r"\bif\b", "_", "x{2,3}", "(a|e)", "[^ ]", ";$", "^#", r"\t", "e+",
          "// ", r"\d", "(?i)linux", "for|while", "size_t", "errno", "s{2}", "f{1,2}", "x{0,1}", r"\w+_init\(",
          "(un)?signed", "[]a]", r"[^])\r]", "[[:upper:]]{3}", "_(in|out)", r"\*/", "mask|k", "(a(b|c)d|e)t", r"[\]=]",
          r"\.h>", "l{1}"]
PARTS = ["fs", "kernel", "include/linux", "tools", "scripts", "arch/x86", "Documentation", "drivers/net"]
GLOBS = ["*.c", "*.h", "*.{c,h}", "test_*", "[a-m]*.h", "linux/*.h", "**/sys/*.h", "*/*.c", "ops/**",
         "tools/*", "*.[ch]", "?*.build", "!", "std*", "x86_64*/**/*.h", "{a,b,c}*.h", "*.txt"]


def rg(*arguments):
    done = subprocess.run(["rg", "--hidden", "--no-require-git", "--no-ignore-dot", "--crlf", "-g", "!.git",
                           "--no-config", *arguments], capture_output=True, check=False)
    text = done.stdout.decode("utf-8", "replace")
    return text.split("\n")[:-1] if text else [], done.returncode


def our_lines(result, cut):
    lines = []
    for file in result["data"]["files"]:
        for line in file["lines"]:
            lines.append("%s:%d:%s" % (file["path"], line["line"], line["text"][:cut]))
    return sorted(lines)


def their_lines(lines, cut):
    out = []
    for line in lines:
        path, number, text = line.split(":", 2)
        text = text.rstrip("\r").replace("\0", "\ufffd")
        out.append("%s:%s:%s" % (re.sub("^\\./", "", path), number, text[:cut]))
    return sorted(out)


def compare_grep(root, pattern, rng, **more):
    """How many lines; None where there are too many to show all of them."""
    arguments = dict(pattern=pattern, limit=10000, **more)
    options = ["-n", "--no-heading", "--with-filename"]
    options += ["-i"] if more.get("ignore_case") else []
    options += ["-F"] if more.get("literal") else []
    options += ["-g", more["include"]] if more.get("include") else []
    os.chdir(root)
    theirs, status = rg(*options, "-e", pattern, "./" + more.get("path", ""))
    if status == 2:
        return None
    ours = run("grep", arguments, root)
    if not check(ours["success"], "%s: %s" % (arguments, ours)):
        return None
    equal(len(theirs), ours["data"]["matches"], "lines that match %r in %s" % (arguments, root))
    equal(0 if theirs else 1, ours["exit"], "exit code")
    if ours["data"]["truncated"]:
        return None
    cut = 100
    want, got = their_lines(theirs, cut), our_lines(ours, cut)
    if not check(want == got, "grep %r in %s differs" % (arguments, root)):
        print("  theirs only: %s\n  ours only: %s" % (
            sorted(set(want) - set(got))[:3], sorted(set(got) - set(want))[:3]), file=sys.stderr)
    return len(theirs)


def test_grep(project, rounds=200):
    rng, shown = random.Random(1), 0
    for i in range(rounds):
        pattern = "".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 4)))
        more = {}
        if rng.random() < 0.3:
            more["ignore_case"] = True
        if rng.random() < 0.2:
            more["literal"] = True
        if rng.random() < 0.4:
            more["include"] = rng.choice(["*.c", "*.h", "*.{c,h}", "s*"])
        if LARGE_TREE:
            root, more["path"] = LARGE_TREE, rng.choice(PARTS) if i % 20 else ""
        elif i % 3:
            root, more["path"] = "/usr/include", rng.choice(["linux", "sys", "x86_64-linux-gnu", "net"])
        else:
            root = project
        shown += (compare_grep(root, pattern, rng, **more) or 0) > 0
    check(shown > 20 or LARGE_TREE, "only %d comparisons showed lines" % shown)


def test_find_and_glob(project):
    roots = [project, "/usr/include/linux"]
    if LARGE_TREE:
        roots = [os.path.join(LARGE_TREE, part) for part in PARTS]
    for root in roots:
        os.chdir(root)
        for pattern in GLOBS:
            theirs, _ = rg("--files", "-g", pattern.replace("!", "[!]"), "./")
            # What -g names, rg shows although it is ignored: the kernel ignores hidden files.
            want = sorted(re.sub("^\\./", "", p) for p in theirs if not (LARGE_TREE and "/." in p))
            for name in ["glob", "find"]:
                ours = run(name, {"pattern": pattern, "limit": 100000}, root)["data"]
                # rg leaves symbolic links out.
                got = sorted(p for p in ours["paths"] if p[-1] != "/" and not os.path.islink(p)
                             and not (LARGE_TREE and "/." in "/" + p))
                check(want == got or (ours["truncated"] and set(got) <= set(want)),
                      "%s %s in %s" % (name, pattern, root))


NAMES = ["a", "b", "c.o", "d.txt", "build", "src", "e f", "x[1]", "#h", "!n", "deep", "Doc", ".hid", "z\\y"]
RULES = ["a", "*.o", "build/", "/src", "src/*.txt", "**/deep", "deep/**", "!d.txt", "!*.o", "a/**/b", "x\\[1\\]",
         "x[[]1]", "\\#h", "\\!n", "[a-c]", "[!a-c]*", "?", "*/", "/*", "!/src", "!src/", "d.*", "e\\ f", "e f",
         "# comment", "", "src/a", "**", "*.txt  ", "d.txt\\ ", ".hid", "*h*", "/**/a", "a/", "[[:upper:]]*",
         "deep/*/", "b/**", "!build/a", "z\\\\y", "*[", "a\\"]


def make_tree(rng, directory, depth=0):
    for name in rng.sample(NAMES, rng.randrange(2, 7)):
        path = os.path.join(directory, name)
        if rng.random() < 0.45 and depth < 3:
            os.mkdir(path)
            make_tree(rng, path, depth + 1)
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write("x\n")
    if rng.random() < (1 if depth == 0 else 0.3):
        with open(directory + "/.gitignore", "w", encoding="utf-8", newline="") as file:
            file.write(rng.choice(["\n", "\r\n"]).join(rng.sample(RULES, rng.randrange(1, 6))) + "\n")


def git_sees(root):
    """Files that git does not ignore."""
    every = []
    for where, directories, files in os.walk(root):
        if ".git" in directories:
            directories.remove(".git")
        files = [name for name in files if name != ".git"]
        files += [name for name in directories if os.path.islink(os.path.join(where, name))]
        every += [os.path.relpath(os.path.join(where, name), root) for name in files]
    done = subprocess.run(["git", "check-ignore", "--no-index", "-z", "--stdin"], cwd=root, check=False,
                          input="\0".join(every).encode(), capture_output=True)
    ignored = set(done.stdout.decode().split("\0"))
    return sorted(path for path in every if path not in ignored)


def test_ignore_files_of_the_tree(project):
    """The .gitignore files that the tree came with, each directory that has one by itself."""
    root = LARGE_TREE or project
    if not os.path.exists(root + "/.git"):
        print("skipped: the ignore files of %s, which is no git repository" % root)
        return
    want = git_sees(root)
    for where in [os.path.relpath(at, root) for at, _, files in os.walk(root) if ".gitignore" in files]:
        where = "" if where == "." else where
        below = [path for path in want if path.startswith(where + "/" if where else "")]
        if not below:
            continue  # it is ignored itself, and named all the same
        ours = run("glob", {"pattern": "**", "path": where or ".", "limit": 100000}, root)["data"]
        equal(len(below), ours["total"], "files of %s/%s that are not ignored" % (root, where))
        got = set(ours["paths"])
        check(got <= set(below), "none that is: %s" % sorted(got - set(below))[:5])


def test_ignore_rules(_, rounds=90):
    rng = random.Random(3)
    for i in range(rounds):
        with Directory() as root:
            subprocess.run(["git", "init", "-q", root], check=True)
            make_tree(rng, root)
            if rng.random() < 0.4:
                with open(root + "/.git/info/exclude", "w", encoding="utf-8") as file:
                    file.write("\n".join(rng.sample(RULES, 3)))
            if rng.random() < 0.3:
                with open(root + "/.git/excludes", "w", encoding="utf-8") as file:
                    file.write("\n".join(rng.sample(RULES, 2)) + "\n")
                subprocess.run(["git", "-C", root, "config", "core.excludesFile", root + "/.git/excludes"],
                               check=True)
            want = git_sees(root)
            got = run("find", {"pattern": "**", "limit": 100000}, root)["data"]["paths"]
            got = sorted(path for path in got if path[-1] != "/")
            if not check(want == got, "tree %d" % i):
                print("  git only: %s\n  ours only: %s" % (sorted(set(want) - set(got))[:5],
                                                         sorted(set(got) - set(want))[:5]), file=sys.stderr)
                for where, _, files in os.walk(root):
                    if ".gitignore" in files:
                        with open(where + "/.gitignore", encoding="utf-8") as file:
                            print("   ", where[len(root):], repr(file.read()), file=sys.stderr)
            # The same from a sub-directory as the root, and as the path.
            for sub in [d for d in os.listdir(root) if os.path.isdir(os.path.join(root, d)) and d != ".git"]:
                below = sorted(p[len(sub) + 1:] for p in want if p.startswith(sub + "/"))
                if not below:
                    continue
                got = run("find", {"pattern": "**", "limit": 100000}, os.path.join(root, sub))["data"]["paths"]
                equal(below, sorted(p for p in got if p[-1] != "/"), "below %s of tree %d" % (sub, i))


def test_what_grep_says(project):
    result = run("grep", {"pattern": "(a"}, project)
    check("character 3" in result["error"]["message"] and result["exit"] == 2, "a bad pattern: %s" % result)
    with Directory() as root:
        with open(root + "/bin", "wb") as file:
            file.write(b"match\0here\n")
        with open(root + "/long", "w", encoding="utf-8") as file:
            file.write("match " + "x" * 2000 + "\r\nno\nmatch\nafter\nend\n")
        result = run("grep", {"pattern": "match"}, root)["data"]
        equal((2, 1), (result["matches"], result["matching_files"]), "binary files are skipped")
        equal(500 + len("... [cut]"), len(result["files"][0]["lines"][0]["text"]), "a line is cut")
        result = run("grep", {"pattern": "match$", "context": 1}, root)["data"]
        equal([2, 3, 4], [line["line"] for line in result["files"][0]["lines"]], "context")
        result = run("grep", {"pattern": "no.match", "multiline": True}, root)["data"]
        equal([2, 3], [line["line"] for line in result["files"][0]["lines"]], "across lines")
        result = run("grep", {"pattern": "(x+x+)+[yz]", "timeout_s": 5}, root)
        check(result["exit"] == 2 and "costly" in result["data"].get("notice", ""), "a costly pattern")
        equal("BINARY_FILE", run("grep", {"pattern": "x", "path": "bin"}, root)["error"]["code"], "one file")


private_home()
LARGE_TREE = os.environ.get("SEARCH_TREE")  # instead of the usual ones: ./dev soak
PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
if not shutil.which("rg"):
    print("skipped: rg is not installed")
    sys.exit(77)
for name, test in sorted(globals().items()):
    if wanted(name):
        test(PROJECT)
finish()
