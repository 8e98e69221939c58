"""Writes the table of compatibility decompositions (Unicode NFKD) for tools/text/normalise.c.

Punctuation that only looks different (quotes, dashes) is folded to ASCII in the same table.
Hangul syllables are left out: they decompose by arithmetic.
"""
import sys
import unicodedata

FOLDED = {
    "'": "\u2018\u2019\u201a\u201b\u2032\u02bc",
    '"': "\u201c\u201d\u201e\u201f\u2033",
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212",
    " ": "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000",
}


def decompositions():
    folded = {ord(c): to for to, chars in FOLDED.items() for c in chars}
    for code in range(0x80, 0x110000):
        if 0xAC00 <= code <= 0xD7A3 or 0xD800 <= code <= 0xDFFF:
            continue
        text = "".join(folded.get(ord(c), c) for c in unicodedata.normalize("NFKD", chr(code)))
        text = folded.get(code, text)
        if text != chr(code):
            yield code, text.encode()


def main(path):
    pool, offsets, rows = bytearray(), {}, []
    for code, text in decompositions():
        if text not in offsets:
            offsets[text] = len(pool)
            pool += text
        rows.append((code, offsets[text], len(text)))
    with open(path, "w") as out:
        out.write("static const struct decomposition decompositions[] = {\n")
        for row in rows:
            out.write("{0x%x, %d, %d},\n" % row)
        out.write("};\nstatic const unsigned char decomposition_pool[] = {\n")
        for i in range(0, len(pool), 24):
            out.write(",".join(str(b) for b in pool[i:i + 24]) + ",\n")
        out.write("};\n")


main(sys.argv[1])
