"""webfetch against real servers on the loopback, which rules of the user allow."""
import json
import os
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from server import Server, gzipped, page, policy, redirect  # noqa: E402
from toolslib import PROGRAM, Directory, Mcp, check, code, equal, finish, private_home  # noqa: E402

STEPS = re.compile(r"\b(use|give|check|look|call|ask|wait|download|do not)\b", re.I)
PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63f8cfc0f0"
                    "1f00050001ff89993d1d0000000049454e44ae426082")


def run(url, root, *options, names=None, timeout=60, env=None, **arguments):
    environment = dict(os.environ, **(env or {}))
    if names is not None:
        with open(root + "/names", "w", encoding="utf-8") as file:
            file.write(names)
        environment.update(LD_PRELOAD=os.environ["TEST_RESOLVER"], TEST_NAMES=root + "/names")
    done = subprocess.run([PROGRAM, "tool", "webfetch", "--root", root, "--output", "json", "--json", "-", *options],
                          input=json.dumps({"url": url, **arguments}).encode(), capture_output=True, timeout=timeout,
                          env=environment, check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"success": False, "error": {"code": "NONE", "ai_message": done.stderr.decode(), "message": ""}}


def fails(result, want, words, what):
    equal(want, code(result), what)
    if not result["success"]:
        message = result["error"]["ai_message"]
        check(words in message and STEPS.search(message), "%s: %s" % (what, message))


def slow(seconds, released):
    def route(_):
        released.wait(seconds)
    return route


def trickle(handler):
    handler.send_response(200)
    handler.send_header("Content-Type", "text/html")
    handler.end_headers()
    try:
        for _ in range(400):
            handler.wfile.write(b"x")
            handler.wfile.flush()
            time.sleep(0.1)
    except OSError:
        pass


def endless(handler):
    handler.send_response(200)
    handler.send_header("Content-Type", "text/plain")
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b"0123456789abcde\n" * 4096)
    except OSError:
        pass


def cut(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100\r\n\r\nshort")


def challenge(handler):
    if "isthmus/" in handler.headers["User-Agent"]:
        return 200, {"Content-Type": "text/plain"}, b"let in"
    return 403, {"cf-mitigated": "challenge", "Content-Type": "text/html"}, b"<h1>Just a moment</h1>"


def routes(released):
    long_text = "".join("line %d\n" % i for i in range(5000))
    return {
        "/page": page("<title>T &amp; t</title><p>Hello <b>you</b>, <a href='x'>link</a>."),
        "/empty": page(""),
        "/md": page("# as it is\n", "text/markdown"),
        "/json": page('{"a":[1,2.50]}', "application/json"),
        "/long": page(long_text, "text/plain"),
        "/pdf": page(b"%PDF-1.7\0", "application/pdf"),
        "/png": page(PNG, "image/png"),
        "/latin": page("caf\xe9".encode("latin-1"), "text/html; charset=iso-8859-1"),
        "/gb": page("<meta charset=gb2312>\u4f60\u597d".encode("gb18030"), "text/html"),
        "/big": page(b"x" * (6 << 20), "text/plain"),
        "/endless": endless,
        "/bomb": page(gzipped(64 << 20), "text/html", Content_Encoding="gzip"),
        "/headers": lambda _: (200, {"X-%d" % i: "y" * 1000 for i in range(80)}, b"x"),
        "/garbage": lambda handler: handler.wfile.write(b"\0\1\2 not http\r\n\r\n") and None,
        "/cut": cut,
        "/slow": slow(30, released),
        "/trickle": trickle,
        "/challenge": challenge,
        "/private": redirect("/login?to=/private"),
        "/login": page("<form>Name <input name=u> Word <input TYPE='Password' name=p><button>Sign in</button></form>"),
        "/strange": page(bytes(range(256)), "application/x-nobody-knows"),
        "/untyped": lambda _: (200, {}, b"<html><p>no <b>type</b>"),
        "/401": page("no", status=401),
        "/404": page("no", status=404),
        "/429": page("no", status=429),
        "/500": page("no", status=500),
        "/loop": redirect("/loop"),
        "/to-page": redirect("page", 301),
        "/to-file": redirect("file:///etc/passwd"),
        "/to-user": redirect("http://a:b@127.0.0.1/"),
        **{"/hop%d" % i: redirect("/hop%d" % (i + 1)) for i in range(5)},
        "/hop5": page("arrived", "text/plain"),
        "/nested": page("<div>" * 100000 + "deepest" + "</div>" * 100000),
    }


def content(root, url, allow):
    got = run(url + "/page", root, "--policy", allow)
    equal("Hello **you**, [link](%s/x).\n" % url, got["data"]["output"], "a page")
    equal("T & t", got["data"]["title"], "its title")
    metadata = got["data"]["metadata"]
    equal([200, url + "/page", False, False, "UTF-8", "text/html; charset=utf-8", False],
          [metadata[key] for key in
           ["status", "final_url", "cached", "truncated", "charset", "content_type", "host_changed"]], "metadata")
    equal("[The page has no text.]", run(url + "/empty", root, "--policy", allow)["data"]["output"], "an empty page")
    equal("# as it is\n", run(url + "/md", root, "--policy", allow)["data"]["output"], "Markdown")
    equal('{\n  "a": [\n    1,\n    2.50\n  ]\n}\n', run(url + "/json", root, "--policy", allow)["data"]["output"], "JSON")
    equal("caf\xe9\n", run(url + "/latin", root, "--policy", allow)["data"]["output"], "latin-1")
    equal("\u4f60\u597d\n", run(url + "/gb", root, "--policy", allow)["data"]["output"], "GB 2312")
    equal("deepest\n", run(url + "/nested", root, "--policy", allow)["data"]["output"], "100,000 elements in each other")
    equal("<title>", run(url + "/page", root, "--policy", allow, format="html")["data"]["output"][:7], "html")
    equal("Hello you, link.\n", run(url + "/page", root, "--policy", allow, format="text")["data"]["output"], "text")
    got = run(url + "/long", root, "--policy", allow)["data"]
    check(got["metadata"]["truncated"] and got["output"].count("\nline ") == 1999, "the beginning of a long page")
    with open(got["metadata"]["output_file"], encoding="utf-8") as file:
        equal("line 4999", file.read().splitlines()[-1], "all of it")
    equal("no **type**\n", run(url + "/untyped", root, "--policy", allow)["data"]["output"], "a page that says no type")
    check("Sign in" in run(url + "/login?to=/private", root, "--policy", allow)["data"]["output"], "a login that was asked for")
    fails(run(url + "/pdf", root, "--policy", allow), "UNSUPPORTED", "curl -L -o FILE", "a PDF")


def image(root, url, allow):
    mcp = Mcp(root, "--policy", allow)
    mcp.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
    blocks = mcp.call("webfetch", {"url": url + "/png"})["content"]
    check([block for block in blocks if block["type"] == "image" and block["mimeType"] == "image/png"], "an image block")
    asked = []
    for more in [{}, {}, {"refresh": True}]:
        mcp.call("webfetch", {"url": url + "/page", **more})
        asked.append(SERVER.paths().count("/page"))
    equal([0, 1], [count - asked[0] for count in asked[1:]], "the cache: what was fetched again")
    for _ in range(7):
        mcp.call("webfetch", {"url": url + "/hop5", "refresh": True})
    limited = mcp.call("webfetch", {"url": url + "/hop5", "refresh": True})
    check(limited["isError"] and "RATE_LIMITED" in json.dumps(limited), "the eleventh request of a minute")
    mcp.close()


def failures(root, url, allow):
    for path, want, words in [
            ("/big", "TOO_LARGE", "5 MB"), ("/endless", "TOO_LARGE", "5 MB"), ("/bomb", "TOO_LARGE", "5 MB"),
            ("/headers", "TOO_LARGE", "64 KB"), ("/garbage", "IO_ERROR", "cannot be fetched"), ("/cut", "IO_ERROR", ""),
            ("/private", "PERMISSION_DENIED", "asks for a password"), ("/strange", "UNSUPPORTED", "not text but application/x-nobody-knows"),
            ("/401", "PERMISSION_DENIED", "401"), ("/404", "NOT_FOUND", "404"), ("/429", "RATE_LIMITED", "429"),
            ("/500", "IO_ERROR", "500"), ("/loop", "IO_ERROR", "redirects"), ("/to-file", "IO_ERROR", "only http"),
            ("/to-user", "IO_ERROR", "user name")]:
        fails(run(url + path, root, "--policy", allow), want, words, path)
    for path in ["/slow", "/trickle"]:
        start = time.monotonic()
        fails(run(url + path, root, "--policy", allow, timeout_s=1), "TIMEOUT", "", path)
        check(time.monotonic() - start < 20, path + " ends soon")
    for bad, words in [("nowhere", "absolute URL"), ("ftp://x/", "http"), ("http://u@x/", "user name"), ("http://", "URL")]:
        fails(run(bad, root, "--yes"), "INVALID_ARGUMENT", words, bad)
    fails(run("http://127.0.0.1:1/", root, "--policy", policy(root, [("webfetch", "http://127.0.0.1:1/*", "allow")], "one")),
          "IO_ERROR", "", "nobody listens")
    fails(run("http://nowhere.test/", root, "--yes", names=""), "IO_ERROR", "resolve", "no such name")


def redirects(root, server, other, allow):
    got = run(server.url + "/to-page", root, "--policy", allow)["data"]["metadata"]
    equal(server.url + "/page", got["final_url"], "a redirect")
    equal("arrived", run(server.url + "/hop0", root, "--policy", allow)["data"]["output"], "five redirects")
    equal("let in", run(server.url + "/challenge", root, "--policy", allow)["data"]["output"], "a challenge")
    agents = [headers["user-agent"] for path, headers, _ in server.requests if path == "/challenge"]
    check(len(agents) == 2 and "Mozilla" in agents[0] and agents[1].startswith("isthmus/"), "one retry: %s" % agents)
    # To another place it is asked again, and what the rules deny is not fetched.
    fails(run(server.url + "/to-name", root, "--policy", allow, names="name.test 8.8.8.8\n"), "PERMISSION_DENIED", "nobody to ask",
          "to another place")
    fails(run(server.url + "/to-other", root, "--policy", allow, "--yes"), "PERMISSION_DENIED", "private network",
          "to a private place")
    equal([], other.paths(), "was asked for nothing")
    both = policy(root, [("webfetch", server.url + "/*", "allow"), ("webfetch", other.url + "/*", "allow")], "both")
    equal("other", run(server.url + "/to-other", root, "--policy", both)["data"]["output"], "with a rule")
    deny = policy(root, [("webfetch", server.url + "/*", "allow"), ("webfetch", "*/page", "deny")], "deny")
    fails(run(server.url + "/to-page", root, "--policy", deny), "PERMISSION_DENIED", "denies", "to what is denied")


def places(root, server, allow):
    port, before = server.port, len(server.requests)
    for host in ["127.0.0.1", "localhost", "0x7f.1", "2130706433", "127.1", "[::ffff:7f00:1]", "[::1]", "0.0.0.0", "0",
                 "[::ffff:127.0.0.1]"]:
        names = "localhost 127.0.0.1\n"
        fails(run("http://%s:%d/page" % (host, port), root, "--yes", names=names), "PERMISSION_DENIED", "private network",
              host)
    for address in ["10.0.0.1", "169.254.169.254", "192.168.1.1", "100.64.0.1", "172.16.0.1", "fd00::1", "fe80::1", "::1",
                    "64:ff9b::7f00:1", "2002:7f00:1::", "127.0.0.1,::1"]:
        fails(run("http://name.test:%d/page" % port, root, "--yes", names="name.test %s\n" % address), "PERMISSION_DENIED",
              "private network", "a name at " + address)
    for rules in [[("webfetch", "*", "allow")], [("*", "*", "allow")], [("webfetch", "http://127.*", "allow")],
                  [("webfetch", server.url + "/*", "allow"), ("webfetch", server.url + "/page", "deny")]]:
        fails(run(server.url + "/page", root, "--policy", policy(root, rules, "wide")), "PERMISSION_DENIED", "", str(rules))
    with open(root + "/.isthmus.json", "w", encoding="utf-8") as file:
        json.dump({"permissions": [{"tool": "webfetch", "pattern": server.url + "/*", "action": "allow"}]}, file)
    fails(run(server.url + "/page", root, "--yes"), "PERMISSION_DENIED", "private network", "a rule of the project")
    os.unlink(root + "/.isthmus.json")
    fails(run("http://name.test:22/", root, "--yes", names="name.test 8.8.8.8\n"), "PERMISSION_DENIED", "ports below",
          "the port of another service")
    equal(before, len(server.requests), "none of them reached the server")
    # Nobody is asked about what will be refused.
    mcp = Mcp(root)
    mcp.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}},
                           "clientInfo": {"name": "t", "version": "1"}})
    for url in [server.url + "/page", "http://localhost/", "http://x.localhost./", "http://[::1]/", "http://10.1:8080/",
                "http://name.test:22/"]:
        answer = mcp.ask("tools/call", {"name": "webfetch", "arguments": {"url": url}})
        check("not fetched" in answer.get("result", {}).get("content", [{}])[0].get("text", ""), "%s: %s" % (url, answer))
    mcp.close()
    # With the rule that names it, each is fetched.
    named = policy(root, [("webfetch", "http://name.test:*", "allow")], "named")
    equal("OK", code(run("http://name.test:%d/page" % port, root, "--policy", named, names="name.test 127.0.0.1\n")),
          "a name that a rule allows")
    equal("OK", code(run("http://0x7f.1:%d/page" % port, root, "--policy", allow)), "another spelling of what is allowed")
    # A name that is public when it is looked up first, and here at the next hop.
    rebind = policy(root, [("webfetch", server.url + "/*", "allow")], "rebind")
    fails(run(server.url + "/to-name", root, "--policy", rebind, "--yes", names="name.test 127.0.0.1\n"),
          "PERMISSION_DENIED", "private network", "a redirect to a name of this machine")
    first = policy(root, [("webfetch", "http://first.test:*", "allow")], "first")
    fails(run("http://first.test:%d/to-name" % port, root, "--policy", first, "--yes",
              names="first.test 127.0.0.1\nname.test 8.8.8.8,127.0.0.1 127.0.0.1\n", timeout_s=3),
          "PERMISSION_DENIED", "private network", "a name with a public and a private address")


def proxies(root, server):
    proxy = Server({"http://far.test/": page("through the proxy", "text/plain")})
    environment = {"http_proxy": proxy.url}
    got = run("http://far.test/", root, "--yes", names="far.test 8.8.8.8\n", env=environment)
    equal("through the proxy", got.get("data", {}).get("output"), "through a proxy")
    before = len(proxy.requests)
    for names in ["far.test 127.0.0.1\n", "far.test 8.8.8.8,10.0.0.1\n"]:
        fails(run("http://far.test/", root, "--yes", names=names, env=environment), "PERMISSION_DENIED", "private network",
              "a private target through a proxy")
    fails(run(server.url + "/page", root, "--yes", env=environment), "PERMISSION_DENIED", "private network",
          "a private address through a proxy")
    equal(before, len(proxy.requests), "the proxy was not asked")


def cancel(root, url, allow):
    process = subprocess.Popen([PROGRAM, "tool", "webfetch", url + "/slow", "--root", root, "--policy", allow],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    end = time.monotonic() + 20
    while "/slow" not in SERVER.paths()[COUNT:] and time.monotonic() < end:
        time.sleep(0.02)
    start = time.monotonic()
    process.terminate()
    process.communicate(timeout=20)
    check(time.monotonic() - start < 5, "ends at once when it is cancelled")


private_home()
for name in ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"]:
    os.environ.pop(name, None)
RELEASED = threading.Event()
OTHER = Server({"/": page("other", "text/plain")})
TABLE = routes(RELEASED)
SERVER = Server(TABLE)
TABLE["/to-other"] = redirect(OTHER.url + "/")
TABLE["/to-name"] = redirect("http://name.test:%d/page" % SERVER.port)
with Directory() as ROOT:
    ALLOW = policy(ROOT, [("webfetch", SERVER.url + "/*", "allow")])
    content(ROOT, SERVER.url, ALLOW)
    image(ROOT, SERVER.url, ALLOW)
    failures(ROOT, SERVER.url, ALLOW)
    redirects(ROOT, SERVER, OTHER, ALLOW)
    places(ROOT, SERVER, ALLOW)
    proxies(ROOT, SERVER)
    COUNT = len(SERVER.requests)
    cancel(ROOT, SERVER.url, ALLOW)
    RELEASED.set()
finish()
