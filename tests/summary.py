#!/usr/bin/env python3
"""summary.py DIR: adds up the results in DIR and prints "N passed, N failed[, N skipped]".
summary.py --failed FILE: prints the names of the tests that failed, a line each.

DIR holds NAME.json (as written by `meson test`), NAME.again (the same, of what failed and was
run once more) and NAME.pass, NAME.fail (one test each).
A program that ends with a line "N passed, N failed[, N skipped]" counts as that many
tests, any other as one.  Failures are printed with the functions that failed and the end of
their output; one that passed when it was run again is printed as FLAKY and counts as passed.  What was
ended because the time was over counts as skipped.  Exits 1 when a test failed or none ran.
"""

import json
import pathlib
import re
import sys

COUNTS = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.MULTILINE)
OUTPUT_LINES = 60
# As tests/mounted/lib.sh, tests/remote/functions.py and CUnit name a function that failed.
FUNCTIONS = [re.compile(pattern, re.MULTILINE) for pattern in (
    r"^FAILED (\w+) on ", r"^broken: (\w+)", r"^FAILED: (\w+)$", r"^ *Test: (\w+) \.\.\.(?:(?!passed|\n *Test: ).|\n)*?FAILED$")]


def counts_of(record):
    """(passed, failed, skipped) of one program."""
    ok = record["result"] in ("OK", "EXPECTEDFAIL")
    if record["result"] in ("SKIP", "INTERRUPT"):
        return 0, 0, 1
    found = COUNTS.findall(record.get("stdout") or "")
    if not found:
        return (1, 0, 0) if ok else (0, 1, 0)
    passed, failed, skipped = (int(n or 0) for n in found[-1])
    # A program that counted no failure and failed all the same: crashed, leaked, timed out.
    return passed, failed if ok or failed else 1, skipped


def output_of(record):
    text = (record.get("stdout") or "") + (record.get("stderr") or "")
    return text.strip().splitlines()


def records_of(path):
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(errors="replace").splitlines()]


def has_failed(record):
    return counts_of(record)[1] > 0


def functions_of(record):
    """The names of the functions that failed, as far as the output says them."""
    text = (record.get("stdout") or "") + "\n" + (record.get("stderr") or "")
    return sorted({name for pattern in FUNCTIONS for name in pattern.findall(text)})


def report(build, record, failed, title="FAILED"):
    lines = output_of(record)
    if record["result"] == "SKIP":
        reasons = [line for line in lines if line.startswith("skip")] or ["no reason given"]
        print(f"skipped: {build}: {record['name']}: {reasons[-1]}")
    elif record["result"] == "INTERRUPT":
        print(f"skipped: {build}: {record['name']}: ended after {record['duration']:.1f} s, the time was over")
    elif failed:
        functions = ", ".join(functions_of(record))
        print(f"{title}: {build}: {record['name']} ({record['result']}, {record['duration']:.1f} s)"
              + (f": {functions}" if functions else ""))
        print("\n".join("    " + line for line in lines[-OUTPUT_LINES:]))
    else:
        for line in lines:
            if line.startswith("skip:"):
                print(f"skipped: {build}: {record['name']}: {line[5:].strip()}")


def settle(path):
    """The records of a build that count, those that were run again in place of the first."""
    again = {record["name"]: record for record in records_of(path.with_suffix(".again"))}
    for record in records_of(path):
        second = again.get(record["name"])
        if has_failed(record) and second and not has_failed(second):
            report(path.stem, record, counts_of(record)[1], "FLAKY")
            record = second
        yield record


def main():
    if sys.argv[1] == "--failed":
        for record in records_of(pathlib.Path(sys.argv[2])):
            if has_failed(record):
                print(record["name"].rpartition(" / ")[2])
        return 0
    directory = pathlib.Path(sys.argv[1])
    total = [0, 0, 0]
    for path in sorted(directory.glob("*.json")):
        for record in settle(path):
            counts = counts_of(record)
            report(path.stem, record, counts[1])
            total = [a + b for a, b in zip(total, counts)]
    total[0] += len(list(directory.glob("*.pass")))
    for path in sorted(directory.glob("*.fail")):
        print(f"FAILED: {path.stem}")
        total[1] += 1
    passed, failed, skipped = total
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
