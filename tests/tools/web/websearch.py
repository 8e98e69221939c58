"""websearch against servers on the loopback that answer as the search engines publish it."""
import json
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from server import Server, page, redirect  # noqa: E402
from toolslib import PROGRAM, Directory, check, code, equal, finish, private_home  # noqa: E402

KEY = "tvly-s3cr3t"
JSON = "application/json"
FOUND = [("One & only", "https://one.test/a", "first text"), ("Two", "https://two.test/", "second")]


def run(root, env, query="some words & more", **arguments):
    environment = {name: value for name, value in os.environ.items() if "PROXY" not in name.upper()}
    environment.update(env)
    done = subprocess.run([PROGRAM, "tool", "websearch", "--root", root, "--output", "json", "--json", "-"],
                          input=json.dumps({"query": query, **arguments}).encode(), capture_output=True, timeout=60,
                          env=environment, check=False)
    check(KEY.encode() not in done.stdout + done.stderr, "the key is not shown")
    return json.loads(done.stdout)


def tavily(results):
    return page(json.dumps({"query": "q", "answer": None, "images": [], "response_time": "1.67", "results": results}), JSON)


def exa(text, event):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": text}]}})
    return page("event: message\ndata: %s\n\n" % body, "text/event-stream") if event else page(body, JSON)


def duck(results):
    rows = "".join('<div class="result results_links web-result"><h2><a class="result__a" href="%s">%s</a></h2>'
                   '<a class="result__snippet" href="x">%s</a></div>' % result for result in results)
    advert = '<div class="result result--ad"><a class="result__a" href="https://ad.test/">Ad</a></div>'
    return page('<html><body><div id="links" class="results">%s%s</div></body></html>' % (advert, rows))


# name, environment, path, key header, a good answer, an empty one
def providers(url):
    listed = [{"title": FOUND[0][0], "url": FOUND[0][1], "content": "first <b>text</b>"},
              {"title": "again", "url": FOUND[0][1] + "#part", "content": "the same page"},
              {"title": FOUND[1][0], "url": FOUND[1][1], "content": FOUND[1][2]},
              {"title": "no", "url": "javascript:x", "content": ""}]
    brave = [{"title": FOUND[0][0].replace("&", "&amp;"), "url": FOUND[0][1], "description": "first <strong>text</strong>"},
             {"title": FOUND[1][0], "url": FOUND[1][1], "description": FOUND[1][2]}]
    blocks = "".join("Title: %s\nURL: %s\nText: %s\n\n" % found for found in FOUND)
    ducks = duck([("//duckduckgo.com/l/?uddg=https%3A%2F%2Fone.test%2Fa&amp;rut=1", "One &amp; only", "first <b>text</b>"),
                  (FOUND[1][1], "Two", "second")])
    return [
        ("Tavily", {"TAVILY_API_KEY": KEY, "ISTHMUS_TAVILY_URL": url}, "/search", ("authorization", "Bearer " + KEY),
         tavily(listed), tavily([])),
        ("Brave", {"BRAVE_API_KEY": KEY, "ISTHMUS_BRAVE_URL": url}, "/res/v1/web/search", ("x-subscription-token", KEY),
         page(json.dumps({"web": {"results": brave}}), JSON), page('{"type": "search"}', JSON)),
        ("SearXNG", {"ISTHMUS_SEARXNG_URL": url + "/"}, "/search", None, page(json.dumps({"results": listed}), JSON),
         page('{"results": []}', JSON)),
        ("Exa", {"ISTHMUS_EXA": "1", "ISTHMUS_EXA_URL": url}, "/mcp", None, exa(blocks, True), exa("", False)),
        ("DuckDuckGo", {"ISTHMUS_DUCKDUCKGO_URL": url}, "/html/", None, ducks,
         page('<div class="results"><div class="no-results">none</div></div>')),
    ]


def one_provider(root, server, table, provider):
    name, env, path, key, good, empty = provider

    def answer(route, **arguments):
        table[path] = route
        return run(root, env, **arguments)

    def fails(route, want, words, **arguments):
        got = answer(route, **arguments)
        equal(want, code(got), "%s: %s" % (name, words))
        check(got["success"] or words in got["error"]["ai_message"], "%s: %s" % (name, got.get("error")))

    got = answer(good)
    equal(name, got["data"]["provider"], "the provider")
    equal([dict(zip(("title", "url", "snippet"), found)) for found in FOUND], got["data"]["sources"], name)
    check(all(url in got["data"]["output"] for _, url, _ in FOUND), "the text has them, too")
    asked, headers, body = server.requests[-1]
    check(b"some words" in body or "some%20words%20%26%20more" in asked + body.decode(), "%s was asked: %s" % (name, asked))
    if key:
        equal(key[1], headers.get(key[0]), "its key")
    equal(1, len(answer(good, num_results=1)["data"]["sources"]), "as many as wanted")
    none = answer(empty)["data"]
    equal(([], "No results; try other words."), (none["sources"], none["output"]), name + " without results")
    fails(page('{"detail": {"error": "Bad key"}}', JSON, 401), "PERMISSION_DENIED", "Bad key")
    fails(page('{"message": "slow down"}', JSON, 429), "RATE_LIMITED", "slow down")
    fails(page("<h1>oops</h1>", status=500), "IO_ERROR", "status 500: oops")
    fails(page('{"results": [{"ti' if path != "/html/" else "<p>nothing of that", JSON), "IO_ERROR", "unknown format")
    fails(page(b"x" * (6 << 20), JSON), "TOO_LARGE", "5 MB")
    fails(redirect(server.url + "/elsewhere"), "IO_ERROR", "302")
    released = threading.Event()
    start = time.monotonic()
    fails(lambda _: released.wait(20) and None, "TIMEOUT", "gave no answer", timeout_s=1)
    check(time.monotonic() - start < 15, "ends soon")
    released.set()
    check("/elsewhere" not in server.paths(), "no redirect is followed")


def particular(root, server, table):
    rows = {name: (env, path) for name, env, path, *_ in providers(server.url)}
    env, path = rows["DuckDuckGo"]
    for status in [200, 202]:
        table[path] = page('<div class="anomaly-modal">are you human</div>', status=status)
        before = len(server.requests)
        got = run(root, env)
        check(code(got) == "RATE_LIMITED" and "TAVILY_API_KEY" in got["error"]["ai_message"], "a challenge: %s" % got)
        equal(before + 1, len(server.requests), "it is asked once")
    table["/search"] = page("Forbidden", status=403)
    check("json" in run(root, rows["SearXNG"][0])["error"]["ai_message"], "SearXNG without json")
    table["/mcp"] = exa("only words", True)
    equal("only words\n", run(root, rows["Exa"][0])["data"]["output"], "Exa without a structure")
    table["/search"] = tavily([{"title": "T", "url": "https://t.test/", "content": "\u00e9 " * 900}])
    got = run(root, rows["Tavily"][0])["data"]["sources"][0]["snippet"]
    check(len(got.encode()) <= 400 and got.endswith("\u2026"), "a long snippet is cut")
    bad = run(root, {**rows["Tavily"][0], "TAVILY_API_KEY": "a b"})
    equal("INVALID_ARGUMENT", code(bad), "a key that is none")


def keys(root, server, table):
    table["/search"] = tavily([])
    path = os.environ["XDG_CONFIG_HOME"] + "/isthmus/keys"
    os.makedirs(os.path.dirname(path))
    with open(path, "w", encoding="utf-8") as file:
        file.write("OTHER=x\nTAVILY_API_KEY=%s\n" % KEY)
    duckduckgo = {"ISTHMUS_DUCKDUCKGO_URL": server.url, "ISTHMUS_TAVILY_URL": server.url}
    table["/html/"] = duck([])
    for mode, want in [(0o600, "Tavily"), (0o644, "DuckDuckGo")]:
        os.chmod(path, mode)
        equal(want, run(root, duckduckgo)["data"]["provider"], "keys with mode %o" % mode)
    os.unlink(path)


private_home()
for variable in ["TAVILY_API_KEY", "BRAVE_API_KEY", "ISTHMUS_SEARXNG_URL", "ISTHMUS_EXA"]:
    os.environ.pop(variable, None)
TABLE = {}
SERVER = Server(TABLE)
with Directory() as ROOT:
    for PROVIDER in providers(SERVER.url):
        one_provider(ROOT, SERVER, TABLE, PROVIDER)
    particular(ROOT, SERVER, TABLE)
    keys(ROOT, SERVER, TABLE)
finish()
