#!/usr/bin/env python3
"""lint_passed.py --new CHECK TOOL: of the files on stdin, prints those that have not passed CHECK as they are now.
lint_passed.py --note CHECK TOOL: notes that the files on stdin have passed.
lint_passed.py --forget: forgets everything.

What counts is the content of the file and of all that it includes, and TOOL: the version and the settings of what
checks it.  The notes are in the git directory, a digest a line, and those of former contents go after 30 days.
"""

import functools
import hashlib
import pathlib
import re
import subprocess
import sys
import time

INCLUDES = re.compile(rb'^#include "([^"]+)"|^\s*# shellcheck source=(\S+)', re.MULTILINE)
KEPT_SECONDS = 30 * 86400


@functools.cache
def content_and_includes(path):
    try:
        content = pathlib.Path(path).read_bytes()
    except OSError:
        return b"", ()
    return content, tuple((c or shell).decode() for c, shell in INCLUDES.findall(content))


def digest(check, tool, path):
    """Of the file and, by name, of everything that it includes."""
    files, todo = {}, [path]
    while todo:
        name = todo.pop()
        if name not in files:
            files[name], includes = content_and_includes(name)
            todo += includes
    whole = hashlib.sha256(f"{check}\0{tool}".encode())
    for name in sorted(files):
        whole.update(b"%s\0%d\0%s" % (name.encode(), len(files[name]), files[name]))
    return whole.hexdigest()


def main():
    git = subprocess.run(["git", "rev-parse", "--git-dir"], check=True, capture_output=True, text=True).stdout.strip()
    notes = pathlib.Path(git, "lint-passed")
    if sys.argv[1] == "--forget":
        notes.unlink(missing_ok=True)
        return
    mode, check, tool = sys.argv[1:]
    passed = dict(line.split() for line in notes.read_text().splitlines()) if notes.exists() else {}
    now = int(time.time())
    for path in sys.stdin.read().splitlines():
        key = digest(check, tool, path)
        if mode == "--new" and key not in passed:
            print(path)
        elif mode == "--note":
            passed[key] = now
    if mode == "--note":
        kept = {key: when for key, when in passed.items() if now - int(when) < KEPT_SECONDS}
        notes.write_text("".join(f"{key} {when}\n" for key, when in kept.items()))


if __name__ == "__main__":
    main()
