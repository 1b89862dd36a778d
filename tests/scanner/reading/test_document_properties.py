"""Laws that hold for every document, wherever it is split and whatever is broken in it."""

from __future__ import annotations

import gzip
import html
import itertools
import re
import time
from xml.sax.saxutils import escape

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from siteatlas.errors import ScanError
from siteatlas.scanner.discovery.robots import Rule, RuleSet, parse_robots
from siteatlas.scanner.reading.decoding import Body
from siteatlas.scanner.reading.entries import Tally
from tests.fixtures.documents import ReadDocument, index_of, read, urlset
from tests.fixtures.reading_paths import ANNOUNCING
from tests.fixtures.timings import measured

SLOW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
CUTS = st.lists(st.integers(0, 4000), max_size=8)
PATH = st.text(
    st.characters(
        min_codepoint=33,
        max_codepoint=0x2FF,
        exclude_characters="<>&\x7f\\",
        exclude_categories=["Cc", "Zs", "Cf"],
    ),
    max_size=12,
)
URL = st.builds("https://a.example/{}".format, PATH)
IMAGE = "<image:image><image:loc>https://i.example/1</image:loc></image:image>"
DATES = st.sampled_from(["", "<lastmod>2026-11-02</lastmod>", "<lastmod>junk</lastmod>"])


def split(content: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    return [content[a:b] for a, b in itertools.pairwise(edges)]


@st.composite
def pages_document(draw, extras=st.booleans()):
    with_images = draw(extras)
    entries = [
        f"<url><loc>{escape(url)}</loc>{draw(DATES)}{IMAGE if with_images else ''}</url>"
        for url in draw(st.lists(URL, max_size=15))
    ]
    return urlset(draw(st.sampled_from(["", "\n", "  \r\n"])).join(entries))


@st.composite
def any_document(draw):
    kind = draw(st.sampled_from(["pages", "index", "text", "rss", "atom"]))
    if kind == "pages":
        return draw(pages_document())
    urls = draw(st.lists(URL, min_size=1, max_size=15))
    if kind == "text":
        return "\n".join(urls).encode()
    if kind == "index":
        return index_of(escape(url) for url in urls)
    item = "<item><link>{}</link></item>" if kind == "rss" else '<entry><link href="{}"/></entry>'
    items = "".join(item.format(escape(url, {'"': "&quot;"})) for url in urls)
    root = "rss" if kind == "rss" else "feed"
    return f"<{root}>{items}</{root}>".encode()


def result_of(document: ReadDocument):
    return (document.columns, document.children, document.error_code, document.problems)


@pytest.mark.slow
@SLOW
@given(any_document(), CUTS)
def test_a_document_gives_the_same_wherever_it_is_split(content, cuts):
    whole = read(content)
    assert whole.error is None
    assert result_of(read(split(content, cuts), block_bytes=0)) == result_of(whole)


@pytest.mark.slow
@SLOW
@given(any_document(), CUTS, st.integers(1, 2))
def test_compression_changes_nothing(content, cuts, layers):
    wire = content
    for _ in range(layers):
        wire = gzip.compress(wire)
    compressed = read(split(wire, cuts), block_bytes=0)
    assert result_of(compressed) == result_of(read(content))
    hashes = compressed.reader.content_hash(), read(content).reader.content_hash()
    assert hashes[0].content == hashes[1].content


@pytest.mark.slow
@SLOW
@given(st.lists(st.binary(max_size=400), min_size=1, max_size=5), CUTS, st.binary(max_size=20))
def test_gzip_members_are_joined_and_garbage_is_left_out(parts, cuts, garbage):
    wire = b"".join(map(gzip.compress, parts)) + b"\x00" + garbage
    body = Body(None, Tally())
    try:
        pieces = [piece for chunk in split(wire, cuts) for piece in body.feed(chunk)]
        pieces += body.close()
    except ScanError:
        assert b"".join(parts)[:2] == b"\x1f\x8b"
        return
    assert b"".join(pieces) == b"".join(parts)


def flipped(content: bytes, changes: list[tuple[int, int, str]]) -> bytes:
    data = bytearray(content)
    for position, value, kind in changes:
        place = position % (len(data) + 1)
        if kind == "insert":
            data.insert(place, value)
        elif kind == "repeat":
            data[place:place] = data[place : place + value % 40]
        elif kind == "delete":
            del data[place : place + value % 40]
        elif place < len(data):
            data[place] = value
    return bytes(data)


CHANGES = st.lists(
    st.tuples(
        st.integers(0, 5000),
        st.integers(0, 255),
        st.sampled_from(["insert", "repeat", "delete", "flip"]),
    ),
    min_size=1,
    max_size=6,
)


def visible_text(content: bytes) -> str:
    """All text of a document in every reading that a lenient reader could give it."""
    readings = [content.decode("utf-8", "ignore"), content.decode("cp1252", "ignore")]
    readings.append(content.decode("latin-1"))
    mixed = content.decode("utf-8", "siteatlas_cp1252")
    texts = [*readings, mixed]
    stripped = [
        re.sub(r"<!\[CDATA\[|\]\]>|<!--.*?-->|<[^>]*>", "", text, flags=re.DOTALL) for text in texts
    ]
    # XML reads a tab or a line break inside an attribute as a blank.
    attributes = [re.sub(r"\s", " ", text) for text in texts]
    seen = [*texts, *stripped, *attributes]
    return "\n".join([*seen, *map(html.unescape, seen)])


@pytest.mark.slow
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(any_document(), CHANGES, CUTS)
@example(b'<feed><entry><link href="https://a.example/0"/></entry></feed>', [(43, 9, "insert")], [])
def test_a_broken_document_never_hangs_never_crashes_and_invents_no_url(content, changes, cuts):
    broken = flipped(content, changes)
    started = time.perf_counter()
    document = read(split(broken, cuts), block_bytes=0)
    measured(time.perf_counter() - started, 2)
    text = visible_text(broken)
    found = document.urls + [child.url for child in document.children]
    assert [url for url in found if url not in text] == []


@pytest.mark.slow
@SLOW
@given(pages_document(), CHANGES)
def test_a_broken_document_gives_the_same_urls_in_drops(content, changes):
    head, tag, body = content.partition(b'/0.9">')
    broken = head + tag + flipped(body, changes)
    whole, drops = read(broken), read(split(broken, list(range(0, 4000, 7))), block_bytes=0)
    assert drops.urls == whole.urls
    assert drops.reader.type == whole.reader.type


MARKUP = [b"<", b">", b"<url>", b"</url>", b"<url/>", b"</loc>", b"</urlset>", b"]]>", b"<!--"]
MARKUP += [b"<![CDATA[", b"<image:image alt='it's'/>", b"<url><loc>https://a.example/n</loc></url>"]


@st.composite
def malformed_document(draw):
    """A document with something wrong in it, of up to some hundred kilobytes."""
    image = IMAGE.replace("<image:loc>", '<image:loc alt="1">')
    link = '<xhtml:link rel="alternate" hreflang="en" href="https://a.example/en"/>'
    mores = draw(st.lists(st.sampled_from(["", image, link, "<!-- </url> -->"]), min_size=1))
    count = draw(st.sampled_from([3, 40, 1500]))
    entries = [
        f"<url><loc>https://a.example/{number}</loc>{mores[number % len(mores)]}</url>"
        for number in range(count)
    ]
    data = f"{ANNOUNCING}{''.join(entries)}</urlset>".encode()
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["quote", "truncate", "insert", "swap", "remove", "flip"]))
        place = draw(st.integers(0, len(data) - 1)) if data else 0
        if kind == "quote":
            place = data.find(b'"', place) + draw(st.integers(0, 1))
            added = draw(st.sampled_from([b"", b'"', b"'"]))
            data = data[:place] + added + data[place + (not added) :]
        elif kind == "truncate":
            data = data[:place]
        elif kind == "insert":
            data = data[:place] + draw(st.sampled_from(MARKUP)) + data[place:]
        elif kind == "swap":
            before, first, after = data[place:].partition(b"</loc>")
            inner, second, rest = after.partition(b"</url>")
            data = data[:place] + before + second + inner + first + rest
        elif kind == "remove":
            data = data[:place] + data[place + draw(st.integers(1, 40)) :]
        else:
            data = bytes(
                byte ^ (1 << place % 8 if at == place else 0) for at, byte in enumerate(data)
            )
    return data


@pytest.mark.slow
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(malformed_document(), st.one_of(st.integers(1, 200), st.integers(200, 100_000)))
def test_a_malformed_document_gives_the_same_in_chunks_of_any_size(content, size):
    size = max(size, len(content) // 2000)
    chunks = [content[at : at + size] for at in range(0, len(content), size)]
    whole = read(content)
    assert result_of(read(chunks)) == result_of(whole)
    # Without blocks too, but for the problems behind the place where a document is refused.
    assert result_of(read(chunks, block_bytes=0))[:3] == result_of(whole)[:3]


ROBOTS_LINE = st.one_of(
    st.text(max_size=30),
    st.builds("Sitemap: {}".format, st.text(max_size=20)),
    st.builds("User-agent: {}".format, st.sampled_from(["*", "siteatlas", "other", ""])),
    st.builds(
        "{}: {}".format, st.sampled_from(["Disallow", "Allow"]), st.text("/a*$", max_size=12)
    ),
    st.builds("Crawl-delay: {}".format, st.text("0123456789.e-", max_size=6)),
)


@pytest.mark.slow
@SLOW
@given(
    st.lists(ROBOTS_LINE, max_size=20),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.text("/ax$", max_size=12),
)
def test_any_robots_txt_is_read(lines, end, path):
    robots = parse_robots(end.join(lines).encode())
    delay = robots.rules_for("Siteatlas/1.0").crawl_delay
    assert all(robots.sitemaps)
    assert delay is None or delay >= 0
    assert robots.allows("Siteatlas/1.0", "/" + path) in {True, False}


@given(st.binary(max_size=3000))
def test_any_bytes_are_a_robots_txt(content):
    robots = parse_robots(content)
    delay = robots.rules_for("Siteatlas/1.0").crawl_delay
    assert all(url.encode() for url in robots.sitemaps)
    assert delay is None or delay >= 0


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.text("/ab*", max_size=10), st.booleans(), st.text("/ab", max_size=12))
def test_a_rule_matches_as_its_regular_expression_does(body, anchored, path):
    pattern = body + ("$" if anchored else "")
    expression = re.sub(r"\*+", ".*", body) + ("$" if anchored else "")
    rule = Rule(pattern, allow=False)
    assert (RuleSet([rule]).match(path) is rule) == bool(re.match(expression, path))


PATTERN = st.builds(str.__add__, st.text("/ab*", max_size=6), st.sampled_from(["", "$"]))


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(PATTERN, st.booleans()), max_size=12), st.text("/ab", max_size=12))
def test_of_many_rules_the_longest_that_matches_decides(patterns, path):
    rules = [Rule(text, allow, line) for line, (text, allow) in enumerate(patterns, start=1)]
    covering = [rule for rule in rules if RuleSet([rule]).match(path)]
    ranked = sorted(covering, key=lambda rule: (-len(rule.pattern), not rule.allow, rule.line))
    assert RuleSet(rules).match(path) == next(iter(ranked), None)


def test_no_rule_takes_long():
    started = time.perf_counter()
    rule = Rule("/" + "*a" * 8000 + "b$", allow=False)
    assert RuleSet([rule]).match("/" + "a" * 2000) is None
    measured(time.perf_counter() - started, 0.5)
