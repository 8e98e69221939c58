#!/usr/bin/env python3
"""searches.py tree DIR SEED: makes a tree.
searches.py compare MOUNT DIR SEED COUNT: the tools say the same on a mount and in the directory itself:
COUNT patterns of grep, and of find and glob, while files in churn/ change."""
import json
import os
import random
import re
import subprocess
import sys
import threading

TOOLS = os.environ["ISTHMUS_TOOLS"]
WORDS = ["alpha", "Beta", "gamma_ray", "delta", "epsilon42", "zeta", "eta.c", "theta()", "iota", "kappa", "\u03bb\u03ac\u03bc\u03b4\u03b1", "MU"]
PIECES = WORDS + [r"\w+", r"\d", ".", ".*", "[a-e]", "(alpha|Beta)", "gamma_?", r"\bzeta\b", "$", "^", " ", "x{2}", "k",
                  "(?i)mu", "nowhere", "rare_%d"]


def text(rng, lines):
    return "".join(" ".join(rng.choices(WORDS, k=rng.randrange(1, 9))) + rng.choice(["\n", "\n", "\r\n"]) for _ in range(lines))


def make_tree(root, seed):
    rng = random.Random(seed)
    places = [root]
    for number in range(40):
        places.append(os.path.join(rng.choice(places[-8:]), rng.choice(["d%d", ".h%d", "build", "src%d", "node_modules"]).replace(
            "%d", str(number))))
        os.makedirs(places[-1], exist_ok=True)
    for number in range(400):
        content = text(rng, rng.randrange(0, 60)) + "rare_%d" % number
        content = content.encode()
        if number % 40 == 7:
            content += b"\0 alpha zeta\n"
        if number % 100 == 11:
            content = b"x" * (rng.randrange(100, 300) * 1024) + content
        with open(os.path.join(rng.choice(places), "f%d.%s" % (number, rng.choice(["c", "h", "o", "txt"]))), "wb") as file:
            file.write(content)
    for place, patterns in [(root, "build/\n*.o\n"), (places[3], "*.txt\n!f1*.txt\n"), (places[9], "/node_modules\n")]:
        with open(os.path.join(place, ".gitignore"), "w", encoding="utf-8") as file:
            file.write(patterns)
    subprocess.run(["git", "init", "-q", places[5]], check=True)
    os.symlink("f1.c", os.path.join(root, "link.c"))
    os.mkdir(os.path.join(root, "churn"))
    # Old enough for their times to tell one state from another.
    for directory, _, files in os.walk(root):
        for name in files:
            path = os.path.join(directory, name)
            if not os.path.islink(path):
                os.utime(path, ns=(10**18, 10**18 + rng.randrange(10**12)))


def tool(root, name, arguments):
    words = [TOOLS, "tool", name, "--root", root, "--output", "json"]
    for key, value in arguments.items():
        words += ["--" + key] if value is True else ["--" + key, str(value)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    return json.loads(done.stdout)


def outside_churn(data):
    """What does not depend on what changes meanwhile."""
    files = [file for file in data.get("files", []) if not file["path"].startswith("churn/")]
    paths = [path for path in data.get("paths", []) if not path.startswith("churn/")]
    return files, paths, re.sub(r"Showing .*? limit\.\s*", "", data.get("notice", ""))


def churn(directory, seed, stop):
    """Files come, are replaced and go; they are the oldest, and so the last in every answer."""
    rng = random.Random(seed)
    while not stop.wait(0.002):
        path = os.path.join(directory, "churn", "c%d" % rng.randrange(20))
        if rng.random() < 0.2 and os.path.exists(path):
            os.unlink(path)
            continue
        with open(directory + ".new", "w", encoding="utf-8") as file:
            file.write(text(rng, 10))
        os.utime(file.name, ns=(10**17, 10**17 + rng.randrange(10**12)))
        os.rename(file.name, path)


def random_grep(rng):
    pattern = "".join(rng.choices(PIECES, k=rng.randrange(1, 4))).replace("%d", str(rng.randrange(400)))
    arguments = {"pattern": pattern, "limit": 10000}
    for key in "ignore-case", "literal", "multiline":
        if rng.random() < (0.1 if key == "multiline" else 0.25):
            arguments[key] = True
    if rng.random() < 0.3:
        arguments["include"] = rng.choice(["*.c", "*.{c,h}", "f1*", "**/d*/*.h", "*.o"])
    if rng.random() < 0.2:
        arguments["context"] = 2
    return arguments


def compare(mount, directory, seed, count):
    rng = random.Random(seed)
    differ, stop = 0, threading.Event()
    changing = threading.Thread(target=churn, args=(directory, seed, stop))
    changing.start()
    try:
        for number in range(count):
            asked = [("grep", random_grep(rng))]
            if number % 5 == 0:
                asked += [(name, {"pattern": rng.choice(["*.c", "f1*", "**/d*/*.h", "*"]), "limit": 100000})
                          for name in ("find", "glob")]
            for name, arguments in asked:
                there, here = tool(mount, name, arguments), tool(directory, name, arguments)
                same = there["success"] == here["success"] and (
                    outside_churn(there["data"]) == outside_churn(here["data"]) if here["success"]
                    else there["error"]["code"] == here["error"]["code"])
                if not same:
                    differ += 1
                    print(f"seed {seed}: {name} {arguments}\n  here: {json.dumps(here)[:1500]}\n  mount: {json.dumps(there)[:1500]}")
    finally:
        stop.set()
        changing.join()
    sys.exit(1 if differ else 0)


if sys.argv[1] == "tree":
    make_tree(sys.argv[2], int(sys.argv[3]))
else:
    compare(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
