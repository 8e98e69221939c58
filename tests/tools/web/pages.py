"""Saved pages with the structure of reference, documentation of crates, encyclopedia, mail archive, readme, issue, questions and
answers, a table as a layout, and what nobody closed: Turndown, which other agents use, is the oracle (pages/oracle.mjs)."""
import difflib
import os
import re
import sys
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from server import Server, page, policy  # noqa: E402
from toolslib import Directory, Mcp, check, equal, finish, private_home  # noqa: E402

TARGET = re.compile(r'\]\(((?:[^()\s]|\([^()\s]*\))+)(?: "[^"]*")?\)')
NAMES = ["answers", "crate", "encyclopedia", "issue", "mail", "news", "readme", "reference", "unclosed"]


def read(name):
    with open(os.path.join(HERE, "pages", name), encoding="utf-8") as file:
        return file.read()


def words(markdown):
    return re.findall(r"[^\W_]+", TARGET.sub("]", markdown))


def links(markdown, base):
    return {urllib.parse.urljoin(base, target.replace("\\", "")) for target in TARGET.findall(markdown)}


def judge(name, ours, oracle, base):
    # A heading's link to itself says nothing, nor does a picture without words.
    oracle = re.sub(r"\[§\]\([^)]*\)|!\[\]\([^)]*\)", "", oracle)
    want, got = words(oracle), words(ours)
    same = sum(block.size for block in difflib.SequenceMatcher(None, want, got, autojunk=False).get_matching_blocks())
    print("%s: %.1f %% of %d words in order, %d links" % (name, 100 * same / len(want), len(want), len(links(oracle, base))))
    missing = [word for word in want if word not in got]
    check(same >= 0.99 * len(want), "%s: %d of %d words in order; without %s" % (name, same, len(want), missing))
    equal(set(), links(oracle, base) - links(ours, base), "%s: missing links" % name)


def main():
    private_home()
    for name in ["http_proxy", "all_proxy", "ALL_PROXY"]:
        os.environ.pop(name, None)
    server = Server({"/%s.html" % name: page(read(name + ".html")) for name in NAMES})
    with Directory() as root:
        mcp = Mcp(root, "--policy", policy(root, [("webfetch", server.url + "/*", "allow")]))
        for name in NAMES:
            base = "%s/%s.html" % (server.url, name)
            result = mcp.call("webfetch", {"url": base})
            check(not result["isError"], "%s: %r" % (name, result))
            data = (result.get("structuredContent") or result["_meta"]["isthmus/result"])["data"]
            judge(name, data["output"], read(name + ".md"), base)
        mcp.close()
    finish()


main()
