"""Real HTTP servers on the loopback for the tests of webfetch and websearch, and a policy that allows them."""
import gzip
import http.server
import json
import os
import threading


class Server:
    """Answers by path: a function of (request) that gives (status, headers, body), or serves itself (None)."""

    def __init__(self, routes, address="127.0.0.1", port=0):
        self.requests = []  # (path, headers in lower case, body)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                size = int(self.headers.get("Content-Length") or 0)
                self.body = self.rfile.read(size)
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.requests.append((self.path, headers, self.body))
                route = routes.get(self.path.split("?")[0])
                got = route(self) if route else (404, {}, b"nothing here")
                if got is None:
                    self.close_connection = True
                    return
                status, headers, body = got
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = answer

            def log_message(self, *_):
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # the client went away, as it may

        self.http = Quiet((address, port), Handler)
        self.port = self.http.server_address[1]
        self.url = "http://%s:%d" % (address, self.port)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def paths(self):
        return [path for path, _, _ in self.requests]


def page(body, kind="text/html; charset=utf-8", status=200, **headers):
    body = body if isinstance(body, bytes) else body.encode()
    return lambda _: (status, {"Content-Type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}},
                      body)


def redirect(url, status=302):
    return lambda _: (status, {"Location": url}, b"moved")


def gzipped(size):
    """A body of that many zero bytes, as few."""
    return gzip.compress(b"\0" * size)


def policy(directory, rules, name="policy.json"):
    path = os.path.join(directory, name)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"permissions": [{"tool": tool, "pattern": pattern, "action": action}
                                   for tool, pattern, action in rules]}, file)
    return path
