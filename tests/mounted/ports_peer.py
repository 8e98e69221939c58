"""The two ends of the connections that ports.sh forwards."""

import hashlib
import os
import socket
import socketserver
import struct
import sys
import threading
import time

PIECE = 1 << 16
BULK = 100 << 20
PATIENCE_S = 60 * int(os.environ.get("TEST_PATIENCE", "1"))


def receive_all(connection):
    parts = []
    while data := connection.recv(PIECE):
        parts.append(data)
    return b"".join(parts)


def receive_exactly(connection, size):
    parts = []
    while size > 0:
        data = connection.recv(min(size, PIECE))
        if not data:
            raise EOFError
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def pattern(size):
    block = bytes((i * 7 + i // 251) & 255 for i in range(PIECE))
    for at in range(0, size, PIECE):
        yield block[: min(PIECE, size - at)]


class Handler(socketserver.BaseRequestHandler):
    """Does what the first line of a connection says."""

    def line(self):
        line = b""
        while not line.endswith(b"\n"):
            data = self.request.recv(1)
            if not data:
                return ""
            line += data
        return line.decode().strip()

    def handle(self):
        word = self.line()
        if word:
            getattr(self, "do_" + word)()

    def do_echo(self):
        while data := self.request.recv(PIECE):
            self.request.sendall(data)

    def do_count(self):
        self.request.sendall(b"%d" % len(receive_all(self.request)))

    def do_end_first(self):
        self.request.sendall(b"bye")
        self.request.shutdown(socket.SHUT_WR)
        with open(sys.argv[4], "wb") as file:
            file.write(receive_all(self.request))

    def do_bulk(self):
        for data in pattern(BULK):
            self.request.sendall(data)

    def do_reset(self):
        self.request.sendall(b"some")
        time.sleep(0.3)
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.request.close()


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128

    def shutdown_request(self, request):
        request.close()  # by itself: no half of it before


class Server6(Server):
    address_family = socket.AF_INET6


class UnixServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


def serve(kind, port_file, *_):
    server = {"4": lambda: Server(("127.0.0.1", 0), Handler), "6": lambda: Server6(("::1", 0), Handler),
              "unix": lambda: UnixServer(port_file + ".sock", Handler)}[kind]()
    address = server.server_address
    with open(port_file + ".new", "w") as file:
        file.write(address if isinstance(address, str) else str(address[1]))
    os.rename(port_file + ".new", port_file)
    server.serve_forever()


def connect(where, word):
    if where.startswith("/"):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE_S)
        connection.connect(where)
    else:
        host, port = where.rsplit(":", 1)
        connection = socket.create_connection((host.strip("[]"), int(port)), PATIENCE_S)
    connection.sendall(word.encode() + b"\n")
    return connection


def echo(where, text="hello"):
    with connect(where, "echo") as connection:
        connection.sendall(text.encode())
        connection.shutdown(socket.SHUT_WR)
        print(receive_all(connection).decode())


def crowd(where, count):
    """All are open before the first byte comes back to any.  Each that has ended makes way for one
    that waits to be served."""
    connections = [connect(where, "echo") for _ in range(int(count))]
    for i, connection in enumerate(connections):
        connection.sendall(b"%05d" % i * 4000)
    good = ended = 0
    for i, connection in enumerate(connections):
        good += receive_exactly(connection, 20000) == b"%05d" % i * 4000
        connection.shutdown(socket.SHUT_WR)
        ended += receive_all(connection) == b""
        connection.close()
    print(good, ended)


def halves(where):
    with connect(where, "count") as connection:
        for data in pattern(3 << 20):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        print(receive_all(connection).decode())


def end_first(where):
    with connect(where, "end_first") as connection:
        print(receive_all(connection).decode())
        connection.sendall(b"still here")


def slow(where, path):
    """While nobody reads, the mount answers; then all of it comes."""
    digest, want = hashlib.sha256(), hashlib.sha256()
    with connect(where, "bulk") as connection:
        digest.update(receive_exactly(connection, PIECE))
        time.sleep(1)
        started = time.monotonic()
        for i in range(20):
            try:
                os.stat(f"{path}/no-such-file-{i}")
            except FileNotFoundError:
                pass
        took = time.monotonic() - started
        while data := connection.recv(PIECE):
            digest.update(data)
    for data in pattern(BULK):
        want.update(data)
    print("same" if digest.digest() == want.digest() else "different", "quick" if took < 5 else f"{took} s")


def expect_reset(where, word="echo"):
    try:
        with connect(where, word) as connection:
            data = receive_all(connection)
        print("ended after", data.decode())
    except (ConnectionResetError, BrokenPipeError):
        print("reset")


def talk(where, go_file, out_file):
    """Two messages, the second once `go_file` is there."""
    with connect(where, "echo") as connection, open(out_file, "w") as out:
        for message in (b"before", b"after!"):
            connection.sendall(message)
            print(receive_exactly(connection, 6).decode(), file=out, flush=True)
            while message == b"before" and not os.path.exists(go_file):
                time.sleep(0.05)


if __name__ == "__main__":
    threading.stack_size(256 << 10)
    globals()[sys.argv[1]](*sys.argv[2:])
