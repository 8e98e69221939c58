"""DNS rebinding for real: a DNS server of our own, and a public address that is on the loopback of a network namespace."""
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from server import Server, page, policy, redirect  # noqa: E402
from toolslib import PATIENCE, PROGRAM, Directory, check, code, equal, finish, private_home  # noqa: E402

PUBLIC, PRIVATE = "8.8.4.4", "127.0.0.1"


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def name_server():
    """The first one of /etc/resolv.conf, whose address is ours in the namespace."""
    try:
        with open("/etc/resolv.conf", encoding="utf-8") as file:
            words = [line.split() for line in file]
    except OSError:
        return None
    found = [line[1] for line in words if len(line) > 1 and line[0] == "nameserver"]
    return found[0] if found and "." in found[0] and ":" not in found[0] else None


def add_address(sock, name, address):
    """To the loopback; its own name brings it up."""
    if address:
        inet = struct.pack("16sHH4s8x", name.encode(), socket.AF_INET, 0, socket.inet_aton(address))
        fcntl.ioctl(sock, 0x8916, inet)  # SIOCSIFADDR
    fcntl.ioctl(sock, 0x8914, struct.pack("16sH14x", name.encode(), 1))  # SIOCSIFFLAGS: up


class Names:
    """A DNS server: each query for the A records of a name takes the next answer, and the last one stays."""

    def __init__(self, address):
        self.answers, self.asked = {}, []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, 53))
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            query, client = self.socket.recvfrom(512)
            labels, at = [], 12
            while query[at]:
                labels.append(query[at + 1:at + 1 + query[at]].decode())
                at += 1 + query[at]
            kind, question = query[at + 2], query[12:at + 5]
            self.socket.sendto(self.answer(query[:2], question, ".".join(labels).lower(), kind == 1), client)

    def answer(self, identity, question, name, wants_a):
        answers = self.answers.get(name)
        addresses = []
        if answers and wants_a:
            addresses = answers.pop(0) if len(answers) > 1 else answers[0]
            self.asked.append(name)
        records = b"".join(b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(address) for address in addresses)
        return identity + struct.pack(">HHHHH", 0x8180 if answers else 0x8183, 1, len(addresses), 0, 0) + question + records


def fetch(url, root, *options):
    done = subprocess.run([PROGRAM, "tool", "webfetch", "--root", root, "--output", "json", "--json", "-", *options],
                          input=json.dumps({"url": url}).encode(), capture_output=True, timeout=60 * PATIENCE, check=False)
    return json.loads(done.stdout)


def test_rebinding(root, names):
    routes = {"/page": page("public", "text/plain"),
              "/challenge": lambda _: (403, {"cf-mitigated": "challenge", "Content-Type": "text/html"}, b"wait")}
    public = Server(routes, PUBLIC)
    secret = page("secret", "text/plain")
    private = Server({"/page": secret, "/secret": secret, "/challenge": secret}, PRIVATE, public.port)
    url = "http://%%s.test:%d" % public.port
    names.answers.update({name + ".test": answers for name, answers in {
        "steady": [[PUBLIC]], "turns": [[PUBLIC], [PRIVATE]], "again": [[PUBLIC], [PRIVATE]], "both": [[PRIVATE, PUBLIC]],
        "here": [[PRIVATE]], "allowed": [[PUBLIC], [PRIVATE]]}.items()})
    for name in ["turns", "allowed"]:
        routes["/to-" + name] = redirect(url % name + "/secret")
    equal("public", fetch(url % "steady" + "/page", root, "--yes").get("data", {}).get("output"), "a name that stays public")
    for what, name, path in [("at the next hop", "turns", "/to-turns"), ("when the same is asked again", "again", "/challenge"),
                             ("from the beginning", "here", "/page")]:
        result = fetch(url % name + path, root, "--yes")
        equal("PERMISSION_DENIED", code(result), what)
        check(not result["success"] and "private network" in result["error"]["message"], "%s: %r" % (what, result))
    equal("public", fetch(url % "both" + "/page", root, "--yes").get("data", {}).get("output"), "of two addresses the public one")
    equal([], private.paths(), "what the private server was asked for")
    equal([2, 2], [names.asked.count(name + ".test") for name in ["turns", "again"]], "each hop looked the name up")
    rules = policy(root, [("webfetch", "http://allowed.test:*", "allow")])
    equal("secret", fetch(url % "allowed" + "/to-allowed", root, "--policy", rules).get("data", {}).get("output"), "where a rule names the host")
    equal(["/secret"], private.paths(), "it was reached")


def main():
    server = name_server()
    if not server:
        skip("/etc/resolv.conf names no name server with an IPv4 address")
    if "REBINDING_NAMESPACE" not in os.environ:
        if subprocess.run(["unshare", "-Urn", "true"], capture_output=True, check=False).returncode != 0:
            skip("no network namespaces")
        os.environ["REBINDING_NAMESPACE"] = "own"
        os.execvp("unshare", ["unshare", "-Urn", sys.executable, *sys.argv])
    for name in ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"]:
        os.environ.pop(name, None)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        add_address(sock, "lo", None)
        add_address(sock, "lo:1", PUBLIC)
        if not server.startswith("127."):
            add_address(sock, "lo:2", server)
    names = Names(server)
    names.answers["works.test"] = [[PUBLIC]]
    try:
        found = socket.getaddrinfo("works.test", 80, socket.AF_INET)[0][4][0]
    except OSError:
        found = None
    if found != PUBLIC:
        skip("the resolver of this machine does not ask the name server in /etc/resolv.conf")
    private_home()
    with Directory() as root:
        test_rebinding(root, names)
    finish()


main()
