"""Builds the documents of this corpus that no editor can show: encodings, gzip, control characters.

The other documents are written by hand. Run it with `python -m tests.corpus.build`.
"""

from __future__ import annotations

import codecs
import struct
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
SITE = "https://www.example.com"
NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"
UTF_8 = '<?xml version="1.0" encoding="UTF-8"?>\n'
TITLE = (
    "<image:image><image:loc>https://cdn.example.com/a.jpg</image:loc>"
    "<image:title>{}</image:title></image:image>"
)
IMAGES = ' xmlns:image="http://www.google.com/schemas/sitemap-image/1.1"'


def declaration(encoding: str) -> str:
    """An XML declaration that claims an encoding."""
    return f'<?xml version="1.0" encoding="{encoding}"?>\n'


def entry(path: str, rest: str = "") -> str:
    """One page of the site."""
    return f"  <url><loc>{SITE}{path}</loc>{rest}</url>\n"


def urlset(*paths: str, first: str = UTF_8) -> str:
    """A list of pages."""
    return urlset_around("".join(entry(path) for path in paths), first)


def urlset_around(entries: str, first: str = UTF_8) -> str:
    """A list of pages around entries as they are."""
    return f'{first}<urlset xmlns="{NAMESPACE}"{IMAGES}>\n{entries}</urlset>\n'


def index(*paths: str) -> str:
    """A list of sitemaps."""
    children = "".join(f"  <sitemap><loc>{SITE}{path}</loc></sitemap>\n" for path in paths)
    return f'{UTF_8}<sitemapindex xmlns="{NAMESPACE}">\n{children}</sitemapindex>\n'


def gzip_member(data: bytes, *, name: bytes = b"", checksum: int | None = None) -> bytes:
    """A gzip member without a time, stored and not compressed.

    Compressed bytes differ between versions of zlib; stored ones are the same everywhere, and a
    cut in them falls where it can be seen.
    """
    header = b"\x1f\x8b\x08" + (b"\x08" if name else b"\x00") + bytes(4) + b"\x00\xff"
    header += name + b"\x00" if name else b""
    stored = b"\x01" + struct.pack("<HH", len(data), len(data) ^ 0xFFFF) + data
    real = zlib.crc32(data) if checksum is None else checksum
    return header + stored + struct.pack("<II", real, len(data))


def feed(title: str, path: str, first: str = UTF_8) -> str:
    """A feed of one item."""
    item = f"<item><title>{title}</title><link>{SITE}{path}</link></item>"
    return f'{first}<rss version="2.0"><channel><title>News</title>{item}</channel></rss>\n'


def encodings() -> dict[str, bytes]:
    """Encodings, told rightly, wrongly or not at all."""
    two = urlset("/a", "/straße")
    wide = urlset("/a", "/straße", first=declaration("UTF-16"))
    return {
        "utf-8-mark.xml": codecs.BOM_UTF8 + two.encode(),
        "utf-8-two-marks.xml": codecs.BOM_UTF8 * 2 + two.encode(),
        "utf-8-no-declaration.xml": urlset("/a", "/straße", first="").encode(),
        "utf-8-short-name.xml": urlset("/a", "/straße", first=declaration("utf8")).encode(),
        "utf-16-le-mark.xml": codecs.BOM_UTF16_LE + wide.encode("utf-16-le"),
        "utf-16-be-mark.xml": codecs.BOM_UTF16_BE + wide.encode("utf-16-be"),
        "utf-16-le.xml": wide.encode("utf-16-le"),
        "utf-16-be.xml": wide.encode("utf-16-be"),
        "utf-16-mark-says-utf-8.xml": codecs.BOM_UTF16_LE + two.encode("utf-16-le"),
        "utf-16-claimed.xml": wide.encode(),
        "utf-32-mark.xml": codecs.BOM_UTF32_LE
        + urlset("/a", "/straße", first=declaration("UTF-32")).encode("utf-32-le"),
        "latin-1.xml": urlset("/a", "/straße", first=declaration("ISO-8859-1")).encode("latin-1"),
        "latin-1-says-utf-8.xml": two.encode("latin-1"),
        "latin-1-says-nothing.xml": urlset("/a", "/straße", first="").encode("latin-1"),
        "utf-8-says-latin-1.xml": urlset("/a", "/straße", first=declaration("ISO-8859-1")).encode(),
        "utf-8-says-ascii.xml": urlset("/a", "/straße", first=declaration("US-ASCII")).encode(),
        "windows-1252.xml": urlset("/a", "/50€–rose", first=declaration("windows-1252")).encode(
            "cp1252"
        ),
        "windows-1252-says-latin-1.xml": urlset(
            "/a", "/50€–rose", first=declaration("ISO-8859-1")
        ).encode("cp1252"),
        "windows-1251.xml": urlset("/a", "/розы", first=declaration("windows-1251")).encode(
            "cp1251"
        ),
        "shift-jis.xml": urlset("/a", "/薔薇", first=declaration("Shift_JIS")).encode("shift_jis"),
        "gb2312.xml": urlset("/a", "/玫瑰", first=declaration("GB2312")).encode("gb2312"),
        "unknown-name.xml": urlset("/a", "/straße", first=declaration("x-our-own")).encode(),
    }


def control_characters() -> dict[str, bytes]:
    """Characters that XML forbids, where they do harm and where they do not."""

    def titled(title: str) -> str:
        return urlset_around(entry("/a", TITLE.format(title)) + entry("/b"))

    return {
        "in-title.xml": titled("Rose\x0bof\x1f the\x08 year").encode(),
        "numbered-in-title.xml": titled("Rose&#11;of&#x1F;the year").encode(),
        "noncharacter-in-title.xml": titled("Rose\ufffe\uffff").encode(),
        "delete-and-c1-in-title.xml": titled("Rose\x7f\x85\x9f").encode(),
        "between-entries.xml": urlset_around(entry("/a") + "\x00\x0c\x1a" + entry("/b")).encode(),
        "in-comment.xml": urlset_around(entry("/a") + "<!-- \x03 \x00 -->" + entry("/b")).encode(),
        "in-address.xml": urlset_around(
            entry("/a") + entry("/b\x07ell") + entry("/c&#8;d") + entry("/e\x00f") + entry("/g")
        ).encode(),
        "nul-behind-end.xml": urlset("/a", "/b").encode() + bytes(512),
        "nul-before-start.xml": bytes(4) + urlset("/a", "/b").encode(),
        "end-of-file-mark.xml": urlset("/a", "/b").encode() + b"\x1a",
        "broken-utf-8-in-title.xml": titled("Rose ÿ")
        .encode()
        .replace("ÿ".encode(), b"\xff\xed\xa0\x80\xc0\xaf"),
        "disguised-surrogate-in-address.xml": urlset("/a", "/b?X", "/c")
        .encode()
        .replace(b"?X", b"?\xed\xa0\x80"),
        "in-text.txt": f"{SITE}/a\n{SITE}/b\x00\n{SITE}/c\n".encode(),
    }


def gzip_files() -> dict[str, bytes]:
    """Compressed documents, whole and broken, under true and false names."""
    pages = urlset("/a", "/b").encode()
    member = gzip_member(pages)
    middle = pages.index(b"/b</loc>")
    cut = len(gzip_member(b"")) - len(struct.pack("<II", 0, 0)) + middle
    long = urlset("/a", "/b", "/c").encode()
    split = long.index(b"/b</loc>")
    return {
        "plain.xml.gz": member,
        "named-xml.xml": member,
        "not-compressed.xml.gz": pages,
        "with-file-name.xml.gz": gzip_member(pages, name=b"sitemap.xml"),
        "two-members.xml.gz": gzip_member(long[:split]) + gzip_member(long[split:]),
        "empty-member-first.xml.gz": gzip_member(b"") + member,
        "zeros-behind.xml.gz": member + bytes(300),
        "words-behind.xml.gz": member + b"\r\n<!-- served by a cache -->\r\n",
        "half-member-behind.xml.gz": member + member[:7],
        "twice.xml.gz": gzip_member(member),
        "three-times.xml.gz": gzip_member(gzip_member(member)),
        "broken-off.xml.gz": member[:cut],
        "no-checksum.xml.gz": member[:-8],
        "wrong-checksum.xml.gz": gzip_member(pages, checksum=0),
        "index.xml.gz": gzip_member(index("/s1.xml.gz", "/s2.xml.gz").encode()),
        "utf-16.xml.gz": gzip_member(
            urlset("/a", "/b", first=declaration("UTF-16")).encode("utf-16-le")
        ),
        "page.xml.gz": gzip_member(b"<!DOCTYPE html><html><body>Not found</body></html>\n"),
        "empty.xml.gz": gzip_member(b""),
    }


def text_files() -> dict[str, bytes]:
    """Plain lists with the marks and line ends of different systems."""
    lines = [f"{SITE}/a", f"{SITE}/straße", f"{SITE}/c"]
    return {
        "mark.txt": codecs.BOM_UTF8 + "\n".join(lines).encode(),
        "two-characters.txt": "\r\n".join([*lines, ""]).encode(),
        "carriage-returns.txt": "\r".join([*lines, ""]).encode(),
        "mixed-line-ends.txt": "{}\r\n{}\n{}\r".format(*lines).encode(),
        "utf-16.txt": codecs.BOM_UTF16_LE + "\r\n".join(lines).encode("utf-16-le"),
        "latin-1.txt": "\n".join(lines).encode("latin-1"),
        "long-line.txt": f"{SITE}/a\n{SITE}/{'x' * 9000}\n{SITE}/c\n".encode(),
    }


def single_files() -> dict[str, bytes]:
    """Odd documents of topics that are written by hand otherwise."""
    umlaut = urlset("/a", "/b", "/ö").encode()
    return {
        "feeds/rss-gzip.rss.gz": gzip_member(feed("One", "/a").encode()),
        "feeds/rss-latin-1.rss": feed("Größe", "/größe", declaration("ISO-8859-1")).encode(
            "latin-1"
        ),
        "text/gzip.txt.gz": gzip_member(f"{SITE}/a\n{SITE}/b\n".encode()),
        "addresses/two-thousand.xml": urlset("/" + "a" * 1900, "/b").encode(),
        "addresses/four-thousand.xml": urlset("/" + "a" * 4000, "/b").encode(),
        "addresses/ten-thousand.xml": urlset("/" + "a" * 10_000, "/b").encode(),
        "truncated/inside-character.xml": umlaut[: umlaut.index("ö".encode()) + 1],
        "prolog/mark-then-lines.xml": codecs.BOM_UTF8 + b"\r\n\r\n" + urlset("/a", "/b").encode(),
        "prolog/lines-then-mark.xml": b"\r\n" + codecs.BOM_UTF8 + urlset("/a", "/b").encode(),
        "plain/carriage-returns.xml": urlset("/a", "/b").replace("\n", "\r").encode(),
        "plain/two-characters.xml": urlset("/a", "/b").replace("\n", "\r\n").encode(),
        "not-sitemaps/mark-only.xml": codecs.BOM_UTF8,
        "not-sitemaps/pdf.xml": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<< /Type /Catalog >>\n",
        "not-sitemaps/zip.xml.gz": b"PK\x03\x04\x14\x00\x00\x00\x08\x00" + bytes(20),
        "not-sitemaps/png.xml": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(13),
    }


def robots_files() -> dict[str, bytes]:
    """robots.txt with marks, line ends and bytes that do not belong there."""
    lines = ["User-agent: *", "Disallow: /x", f"Sitemap: {SITE}/s1.xml", f"Sitemap: {SITE}/s2.xml"]
    first = [*lines[2:], *lines[:2]]
    return {
        "mark": codecs.BOM_UTF8 + "\n".join(first).encode(),
        "two-characters": "\r\n".join([*lines, ""]).encode(),
        "carriage-returns": "\r".join([*lines, ""]).encode(),
        "latin-1-comment": "# größe\n".encode("latin-1") + "\n".join(lines).encode(),
        "nul-bytes": "\n".join(lines).encode() + bytes(64),
        "long-line": b"Disallow: /" + b"x" * 30_000 + b"\n" + "\n".join(lines).encode(),
    }


def documents() -> dict[str, bytes]:
    """Every built document by its path in the corpus."""
    topics = {
        "encodings": encodings(),
        "control": control_characters(),
        "gzip": gzip_files(),
        "text": text_files(),
    }
    built = {
        f"{topic}/{name}": data for topic, files in topics.items() for name, data in files.items()
    }
    built |= {f"robots/{name}.robots.txt": data for name, data in robots_files().items()}
    return built | single_files()


def main() -> None:
    """Write the documents beside their expectations."""
    for path, data in documents().items():
        file = HERE / path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)


if __name__ == "__main__":
    main()
