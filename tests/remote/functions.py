"""What the tests of the helper share: running every function test_* of a program."""
import fnmatch
import os
import shutil
import sys
import time
import traceback


def run(functions, directory, prepare):
    """Of globals(): prepares, runs each, removes the directory, and ends the program.
    TEST_ONLY=PATTERN (without "test_") leaves the others out."""
    pattern = "test_" + os.environ.get("TEST_ONLY", "*")
    tests = [(name, test) for name, test in functions.items() if fnmatch.fnmatch(name, pattern)]
    failed = 0
    try:
        prepare()
        for name, test in tests:
            start = time.monotonic()
            try:
                test()
            except Exception:
                failed += 1
                print(f"FAILED: {name}")
                traceback.print_exc()
            if "-v" in sys.argv:
                print(f"{time.monotonic() - start:.2f} s {name}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"{len(tests) - failed} passed, {failed} failed")
    if not tests:
        print(f"no function is named {pattern}")
    sys.exit(failed > 0 or not tests)
