#!/usr/bin/env python3
"""examples.py PAGE...: every {...} of the manual pages is JSON as they are shown (mdoc drops quotes in macros), or a
form: JSON in which a member may lack its value, a word in capitals stands for a value, "..." for more of them, and
"or" is between two values."""

import json
import re
import subprocess
import sys

TOKEN = re.compile(r'\s*("(?:[^"\\\n]|\\.)*"|[{}\[\],:]|-?\d+(?:\.\d+)?|true\b|false\b|null\b|[A-Z]+\b|\.\.\.|or\b)')


def rendered(page):
    text = subprocess.run(["mandoc", "-T", "utf8", "-O", "width=1000", page], check=True, capture_output=True, text=True).stdout
    return re.sub(".\b", "", text)


def braces(text):
    """Each {...} that is in no other; not ${...}."""
    begin = depth = 0
    for i, letter in enumerate(text):
        if letter == "{" and (depth or text[i - 1] != "$"):
            begin = begin if depth else i
            depth += 1
        elif letter == "}" and depth:
            depth -= 1
            if not depth:
                yield text[begin:i + 1]


def tokens(text):
    at = 0
    while at < len(text.rstrip()):
        found = TOKEN.match(text, at)
        if not found:
            raise ValueError(f"at {text[at:at + 20]!r}")
        yield found[1]
        at = found.end()


def as_json(form):
    """The form with all its members as JSON."""
    out, kinds = [], []  # kinds: what is open
    for token in tokens(form):
        last = out[-1] if out else ""
        if token == "or":
            out.append(",")
        elif token == "..." or re.fullmatch("[A-Z]+", token):
            out += [] if last in "{[" and token == "..." else ["null"]
        elif token in "}," and kinds and kinds[-1] == "{" and last.startswith('"') and out[-2] in "{,":
            out += [":", "null", token]
        else:
            out.append(token)
        if token in "{[":
            kinds.append(token)
        elif token in "}]":
            kinds.pop()
    return "".join(out)


def has_alternatives(form):
    return re.search(r'\bor\b', re.sub(r'"[^"]*"', "", form))


def check(text):
    """None, or what is wrong."""
    try:
        form = as_json(text)
        if has_alternatives(text):  # of members or of values: whether they are tokens is all that can be checked
            return None
        json.loads(form)
    except ValueError as error:
        return str(error)
    return None


def main():
    count = failed = 0
    for page in sys.argv[1:]:
        for text in braces(rendered(page)):
            count += 1
            problem = check(text)
            if problem:
                failed += 1
                print(f"{page}: {problem}: {' '.join(text.split())}")
    print(f"{count - failed} passed, {failed} failed")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
