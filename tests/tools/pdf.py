"""PDFs give text and, a page at a time, pictures; broken ones and bombs end soon."""
import os
import re
import shutil
import zlib

from toolslib import Directory, Mcp, check, code, equal, finish, private_home, run, wanted


def pdf(streams, box="0 0 300 200", compressed=False):
    """A page for each stream of drawing commands."""
    bodies = ["<< /Type /Catalog /Pages 2 0 R >>",
              "<< /Type /Pages /Kids [%s] /Count %d >>" % (" ".join("%d 0 R" % (3 + 2 * n) for n in range(len(streams))), len(streams))]
    out, places = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\0\n", []
    for number, stream in enumerate(streams):
        stream = zlib.compress(stream) if compressed else stream
        bodies.append("<< /Type /Page /Parent 2 0 R /MediaBox [%s] /Contents %d 0 R /Resources << /Font << /F1 "
                      "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>" % (box, 4 + 2 * number))
        bodies.append(b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(stream), b"/Filter /FlateDecode" * compressed, stream))
    for number, body in enumerate(bodies):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number + 1, body if isinstance(body, bytes) else body.encode())
    return out + b"xref\n0 %d\n0000000000 65535 f \n%strailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (
        len(places) + 1, b"".join(b"%010d 00000 n \n" % place for place in places), len(places) + 1, len(out))


def words(text):
    return b"BT /F1 12 Tf 20 150 Td (%s) Tj ET" % text.encode()


def put(root, name, data):
    with open(os.path.join(root, name), "wb") as file:
        file.write(data)


def test_text_of_all_pages(root):
    put(root, "two.pdf", pdf([words("Hello first"), words("The second"), b"0 0 9 9 re f"]))
    data = run("read", {"path": "two.pdf"}, root)["data"]
    equal(["[Page 1 of 3]", "Hello first", "[Page 2 of 3]", "The second", "[Page 3 of 3, without text: see it with page]"],
          [line for line in data["content"].splitlines() if line], "text")
    equal((3, False), (data["pages"], "hash" in data), "pages, and no hash of what the file does not have")
    data = run("read", {"path": "two.pdf", "offset": 2, "limit": 1}, root)["data"]
    equal(("Hello first\n", 3), (data["content"], data["next_offset"]), "a range of lines")


def test_a_page_as_a_picture(root):
    put(root, "big.pdf", pdf([words("one"), words("two")], box="0 0 3000 2000"))
    server = Mcp(root)
    server.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
    content = server.call("read", {"path": "big.pdf", "page": 2})["content"]
    server.close()
    equal(["text", "image"], [block["type"] for block in content], "blocks")
    check("two" in content[0]["text"] and "one" not in content[0]["text"], content[0]["text"])
    check(re.search(r"page 2, image/png, .* 1568 x 10", content[0]["text"]), content[0]["text"])
    equal("image/png", content[1]["mimeType"], "type")


def test_what_is_refused(root):
    put(root, "two.pdf", pdf([words("one"), words("two")]))
    put(root, "hello.txt", b"hello\n")
    result = run("read", {"path": "two.pdf", "page": 3}, root)
    equal("INVALID_ARGUMENT", code(result), "a page that it lacks")
    check("has 2 pages" in result["error"]["message"], result["error"])
    result = run("read", {"path": "hello.txt", "page": 1}, root)
    equal("INVALID_ARGUMENT", code(result), "a page of a text")
    whole = pdf([words("one")])
    for name, data in [("cut", whole[:200]), ("head", b"%PDF-1.4\n\0"), ("junk", b"%PDF-1.4\n" + os.urandom(5000)),
                       ("text", b"%PDF-1.4 only words\n")]:
        put(root, name, data)
        result = run("read", {"path": name}, root)
        equal("BINARY_FILE", code(result), name)
        check("broken or encrypted" in result["error"]["message"], result["error"])


def test_bombs(root):
    put(root, "bomb.pdf", pdf([b"BT /F1 1 Tf (xxxxxxxx) Tj ET\n" * 3000000], compressed=True))
    check(os.path.getsize(root + "/bomb.pdf") < 1 << 20, "small")
    result = run("read", {"path": "bomb.pdf"}, root, timeout=200)
    check(code(result) in ("OK", "TOO_LARGE"), result)
    put(root, "vast.pdf", pdf([words("one")], box="0 0 9000000 9000000"))
    result = run("read", {"path": "vast.pdf", "page": 1}, root)
    check(code(result) in ("OK", "TOO_LARGE", "BINARY_FILE"), result)


def test_nothing_is_left_in_the_directory(root):
    before = sorted(os.listdir(root))
    run("read", {"path": "two.pdf", "page": 1}, root)
    equal(before, sorted(os.listdir(root)), "names")


if not shutil.which("pdftotext") or not shutil.which("pdftoppm"):
    print("skipped: pdftotext and pdftoppm are not installed")
    raise SystemExit(77)
private_home()
with Directory() as directory:
    for name, test in list(globals().items()):
        if wanted(name):
            test(os.path.realpath(directory))
finish()
