"""Images are scaled to what models take; broken ones and bombs end soon, with the next step."""
import base64
import os
import random
import struct
import subprocess
import zlib

from toolslib import PROGRAM, Directory, Mcp, check, code, equal, finish, private_home, run, wanted

SIDE, BASE64_BYTES = 1568, 4608 * 1024


def png(width, height, row, color=2, depth=8):
    """row(y): the bytes of a row."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    squeeze = zlib.compressobj(1)
    data = b"".join(squeeze.compress(b"\0" + row(y)) for y in range(height)) + squeeze.flush()
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))
            + chunk(b"IDAT", data) + chunk(b"IEND", b""))


def red_and_blue(width, height):
    half = b"\xff\0\0" * (width // 2) + b"\0\0\xff" * (width - width // 2)
    return png(width, height, lambda y: half)


def noise(width, height):
    return png(width, height, lambda y: random.randbytes(width * 3))


def jpeg(width, height, exif=b""):
    """Grey: each block is two codes of one bit, both 0."""
    def segment(mark, data):
        return struct.pack(">BBH", 0xff, mark, len(data) + 2) + data
    table = bytes([1] + [0] * 15 + [0])
    return (b"\xff\xd8" + (segment(0xe1, exif) if exif else b"") + segment(0xdb, b"\0" + b"\x10" * 64)
            + segment(0xc0, struct.pack(">BHHBBBB", 8, height, width, 1, 1, 0x11, 0))
            + segment(0xc4, b"\0" + table) + segment(0xc4, b"\x10" + table)
            + segment(0xda, b"\x01\x01\0\0\x3f\0") + bytes((width + 7) // 8 * ((height + 7) // 8) // 4 + 1) + b"\xff\xd9")


def webp(width, height):
    """Of one colour: its five codes have one symbol each, so that pixels take no bits."""
    bits = "".join(format(number, "0%db" % size)[::-1] for number, size in [(width - 1, 14), (height - 1, 14), (0, 1), (0, 3)])
    bits += "0" + "0" + "0" + ("1" + "0" + "1" + "00000000"[:8]) * 4 + "1" + "0" + "0" + "0"
    bits += "0" * (-len(bits) % 8 + 64)
    data = b"\x2f" + bytes(int(bits[at:at + 8][::-1], 2) for at in range(0, len(bits), 8))
    data += b"\0" * (len(data) % 2)
    body = b"WEBPVP8L" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def gif(width, height):
    """Of one colour, without compression: a clear code before the table grows."""
    codes, bits = [], ""
    for at in range(0, width * height, 100):
        codes += [256] + [1] * min(100, width * height - at)
    for value in codes + [257]:
        bits += format(value, "09b")[::-1]
    bits += "0" * (-len(bits) % 8)
    data = bytes(int(bits[at:at + 8][::-1], 2) for at in range(0, len(bits), 8))
    blocks = b"".join(bytes([len(data[at:at + 255])]) + data[at:at + 255] for at in range(0, len(data), 255))
    return (b"GIF89a" + struct.pack("<HHBBB", width, height, 0xf7, 0, 0) + b"\0\xff\0" * 256
            + b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x08" + blocks + b"\0;")


def put(root, name, data):
    with open(os.path.join(root, name), "wb") as file:
        file.write(data)
    return data


def shown(root, name):
    """The image block of an answer: its type and bytes."""
    server = Mcp(root)
    server.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
    result = server.call("read", {"path": name})
    server.close()
    blocks = [block for block in result["content"] if block["type"] == "image"]
    if not check(blocks, "an image of %s: %s" % (name, result["content"])):
        return "", b""
    check(len(blocks[0]["data"]) <= BASE64_BYTES, "%s: %d bytes of base64" % (name, len(blocks[0]["data"])))
    return blocks[0]["mimeType"], base64.b64decode(blocks[0]["data"])


def size_of(root, data):
    """By the tool itself, which says it of any."""
    put(root, "again", data)
    data = run("read", {"path": "again"}, root)["data"]
    check("shown_width" not in data, "it is scaled once")
    return data["width"], data["height"]


def rows_of(data):
    """The pixels of a PNG with 8 bits a channel and no filter but those of the standard."""
    width, height, _, color = struct.unpack(">IIBB", data[16:26])
    at, packed, channels = 8, b"", {2: 3, 6: 4}[color]
    while at < len(data):
        length = struct.unpack(">I", data[at:at + 4])[0]
        packed += data[at + 8:at + 8 + length] if data[at + 4:at + 8] == b"IDAT" else b""
        at += 12 + length
    raw, previous, rows, stride = zlib.decompress(packed), bytes(width * channels), [], width * channels
    for y in range(min(height, 3)):
        kind, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for x in range(stride):
            a, b = line[x - channels] if x >= channels else 0, previous[x]
            c = previous[x - channels] if x >= channels else 0
            near = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]
            line[x] = (line[x] + (0, a, b, (a + b) // 2, near)[kind]) & 255
        previous = bytes(line)
        rows.append([previous[x:x + channels] for x in range(0, stride, channels)])
    return rows


def test_small_ones_stay_as_they_are(root):
    for name, data, kind in [("a.png", red_and_blue(SIDE, 40), "png"), ("a.jpg", jpeg(SIDE, 40), "jpeg"), ("a.gif", gif(100, 40), "gif"),
                             ("a.webp", webp(SIDE, 40), "webp")]:
        put(root, name, data)
        equal(("image/" + kind, data), shown(root, name), name)


def test_large_ones_are_scaled(root):
    for name, data, kind in [("b.png", red_and_blue(3000, 2000), "png"), ("b.jpg", jpeg(3000, 2000), "jpeg"),
                             ("b.webp", webp(3000, 2000), "webp"), ("b.gif", gif(1600, 16), "png")]:
        put(root, name, data)
        mime_type, scaled = shown(root, name)
        equal("image/" + kind, mime_type, name)
        equal((SIDE, 16 if kind == "png" and "gif" in name else 1045), size_of(root, scaled), name)
    row = rows_of(shown(root, "b.png")[1])[1]
    equal((b"\xff\0\0", b"\0\0\xff"), (row[10][:3], row[-10][:3]), "colours and places")
    put(root, "tall.png", png(2, 5000, lambda y: b"\0" * 6))
    equal((1, SIDE), size_of(root, shown(root, "tall.png")[1]), "a tall one")
    text = run("read", {"path": "b.png"}, root)
    equal((3000, 2000, SIDE, 1045), tuple(text["data"][name] for name in ("width", "height", "shown_width", "shown_height")), "data")


def test_transparency_stays(root):
    put(root, "t.png", png(2000, 8, lambda y: b"\0\xff\0\x80" * 2000, color=6))
    equal(b"\0\xff\0\x80", bytes(rows_of(shown(root, "t.png")[1])[0][700]), "a pixel")


def test_many_bytes_become_few(root):
    data = put(root, "noise.png", noise(1500, 1500))
    check(len(data) > 6 << 20, "%d bytes" % len(data))
    kind, less = shown(root, "noise.png")
    equal("image/webp", kind, "its type")
    equal((1500, 1500), size_of(root, less), "its size")


def test_the_way_up_of_a_photo_stays(root):
    exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
    put(root, "up.jpg", jpeg(2000, 100, exif))
    kind, scaled = shown(root, "up.jpg")
    equal(("image/jpeg", True), (kind, exif in scaled[:100]), "EXIF")
    equal((SIDE, 78), size_of(root, scaled), "and it can be decoded")


def test_broken_ones(root):
    whole = red_and_blue(3000, 300)
    for name, data in [("cut.png", whole[:len(whole) // 2]), ("head.png", whole[:40]), ("rest.png", whole[:60] + os.urandom(900)),
                       ("small.png", red_and_blue(300, 30)[:-20]), ("small.gif", gif(160, 4)[:90]),
                       ("none.png", whole[:16] + b"\0" * 8 + whole[24:]), ("huge.png", whole[:16] + b"\xff" * 8 + whole[24:]),
                       ("cut.jpg", jpeg(3000, 300)[:40]), ("cut.gif", gif(1600, 4)[:900]), ("cut.webp", webp(3000, 300)[:24]),
                       ("rest.webp", webp(3000, 300)[:25] + os.urandom(300))]:
        put(root, name, data)
        result = run("read", {"path": name}, root)
        if check(not result["success"], name):
            check(code(result) == "BINARY_FILE", "%s: %s" % (name, result["error"]))


def test_bombs(root):
    put(root, "bomb.png", png(20000, 20000, lambda y: b"\0" * 2500, color=0, depth=1))
    result = run("read", {"path": "bomb.png"}, root)
    equal("TOO_LARGE", code(result), "20,000 x 20,000")
    check("20000 x 20000" in result["error"]["message"] and "smaller copy" in result["error"]["ai_message"], result["error"])
    data = png(9999, 10000, lambda y: b"\0" * 1250, color=0, depth=1)
    put(root, "large.png", data)
    equal("OK", code(run("read", {"path": "large.png"}, root)), "what is just small enough")
    put(root, "bomb.jpg", jpeg(65500, 65500)[:100000])
    equal("TOO_LARGE", code(run("read", {"path": "bomb.jpg"}, root)), "a JPEG")
    with open(root + "/long.png", "wb") as file:
        file.write(data[:100])
        file.truncate(65 << 20)
    result = run("read", {"path": "long.png"}, root)
    check(code(result) == "TOO_LARGE" and "64 MB" in result["error"]["message"], result["error"])


def test_the_child_has_no_powers(root):
    with open(PROGRAM, "rb") as file:
        if b"__asan_init" in file.read():
            return  # which needs more calls
    put(root, "a.png", red_and_blue(2000, 20))
    with open(root + "/a.png", "rb") as file:
        done = subprocess.run(["strace", "-f", "-e", "trace=seccomp,prctl,openat,socket,execve", PROGRAM, "image"], stdin=file,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    shown_calls = done.stderr.decode(errors="replace").split("SECCOMP_MODE_FILTER", 1)
    if check(len(shown_calls) == 2 and done.returncode == 0, "a filter: %s" % shown_calls[0][-300:]):
        check("openat" not in shown_calls[1], "nothing is opened any more")


def can_scale(root):
    put(root, "probe.png", red_and_blue(2000, 2))
    return "shown_width" in run("read", {"path": "probe.png"}, root).get("data", {})


private_home()
random.seed(1)
with Directory() as directory:
    directory = os.path.realpath(directory)
    if can_scale(directory):
        for name, test in list(globals().items()):
            if wanted(name):
                test(directory)
    else:
        print("skipped: this build does not scale images")
        raise SystemExit(77)
finish()
