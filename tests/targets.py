#!/usr/bin/env python3
"""targets.py BUILD_DIR TEST...: prints the files that ninja has to make for these tests."""

import fnmatch
import json
import os
import pathlib
import sys


def main():
    directory = pathlib.Path(sys.argv[1])
    info = directory / "meson-info"
    tests = json.loads((info / "intro-tests.json").read_text())
    targets = {target["id"]: target["filename"] for target in json.loads((info / "intro-targets.json").read_text())}
    wanted = {name for test in tests for pattern in sys.argv[2:] if fnmatch.fnmatch(test["name"], pattern)
              for name in test["depends"]}
    for identifier in sorted(wanted):
        for path in targets[identifier]:
            print(os.path.relpath(path, directory.resolve()))


if __name__ == "__main__":
    main()
