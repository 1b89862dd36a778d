"""Every row of the safety table, in every place where an address can occur."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from xml.sax.saxutils import escape

import pytest
from typer.testing import CliRunner

from siteatlas.cli.main import app
from siteatlas.errors import AddressError, DnsNameUnknown, EgressDenied
from siteatlas.net.address import parse_site
from siteatlas.net.client import Politeness
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.response import FetchLimits
from siteatlas.scanner.analyzer import SitemapAnalyzer
from siteatlas.scanner.events import CandidateJudged, DocumentClosed
from tests.fixtures.documents import index_of, urlset_of
from tests.fixtures.raw_server import PathServer, whole_answer
from tests.fixtures.scans import ScanRecord, record_scan
from tests.net.verdicts import DENIED, REFUSED

FORBIDDEN = REFUSED | DENIED
# A line end cannot stand inside a header or a line of robots.txt.
NEEDS_A_LINE_END = frozenset({89})
LIMITS = FetchLimits(dns=0.5, connect=1, first_byte=1, idle=1, document=3, tries=1)
ROBOTS = b"Sitemap: /start.xml\nSitemap: /good.xml\n"
GOOD = whole_answer(urlset_of(["https://a.example/good"]))


class NoNames:
    async def addresses(self, host: str) -> list[str]:
        raise DnsNameUnknown


def rows(place: str, *, without: frozenset[int] = frozenset()) -> list[object]:
    return [
        pytest.param(number, text, id=f"row-{number}-{place}")
        for number, text in FORBIDDEN.items()
        if number not in without
    ]


def analyzer_for(*entries: str) -> SitemapAnalyzer:
    policy = EgressPolicy.from_text(",".join(entries))
    return SitemapAnalyzer(
        policy, Politeness(0, 2), user_agent="test", limits=LIMITS, resolver=NoNames()
    )


async def scan_site(answers: dict[str, bytes | list[bytes]]) -> tuple[ScanRecord, PathServer]:
    async with PathServer({"/good.xml": GOOD, **answers}) as server:
        record = await record_scan(analyzer_for(server.entry), server.url())
        return record, server


def codes_of(record: ScanRecord) -> set[str | None]:
    judged = {event.reason for event in record.all(CandidateJudged)}
    closed = {event.error_code for event in record.all(DocumentClosed)}
    counted = {code for event in record.all(DocumentClosed) for code in event.problems}
    return judged | closed | counted


def assert_refused(record: ScanRecord, number: int, expected: set[str]) -> None:
    assert record.urls == ["https://a.example/good"]
    assert codes_of(record) & ({"egress_denied"} if number in DENIED else expected)


@pytest.mark.parametrize(("number", "text"), rows("base"))
async def test_as_the_address_of_a_site(number: int, text: str):
    if number in REFUSED:
        with pytest.raises(AddressError) as caught:
            parse_site(text)
        assert not isinstance(caught.value, EgressDenied)
        return
    record = await record_scan(analyzer_for(), text)
    assert record.error_code == "egress_denied"


@pytest.mark.slow
@pytest.mark.parametrize(("number", "text"), rows("redirect", without=NEEDS_A_LINE_END))
async def test_as_the_target_of_a_redirect(number: int, text: str):
    moved = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + text.encode() + b"\r\n\r\n"
    record, server = await scan_site({"/robots.txt": whole_answer(ROBOTS), "/start.xml": moved})
    assert_refused(record, number, {"redirect_invalid", "redirect_scheme"})
    assert sorted(server.paths) == ["/good.xml", "/robots.txt", "/start.xml"]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "text"), rows("robots", without=NEEDS_A_LINE_END))
async def test_as_a_line_of_robots_txt(number: int, text: str):
    robots = f"Sitemap: {text}\nSitemap: /good.xml\n".encode()
    record, server = await scan_site({"/robots.txt": whole_answer(robots)})
    assert_refused(
        record,
        number,
        {"address_invalid", "address_scheme", "address_credentials", "address_too_long"},
    )
    assert sorted(server.paths) == ["/good.xml", "/robots.txt"]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "text"), rows("index"))
async def test_as_an_entry_of_an_index(number: int, text: str):
    entry = escape(text, {"\r": "&#13;", "\n": "&#10;", "\t": "&#9;"})
    answers = {
        "/robots.txt": whole_answer(ROBOTS),
        "/start.xml": whole_answer(index_of([entry])),
    }
    record, server = await scan_site(dict(answers))
    refusals = {"address_invalid", "address_scheme", "address_credentials", "address_too_long"}
    refusals |= {"bad_url", "relative_url", "credentials", "control_char"}
    assert_refused(record, number, refusals)
    assert sorted(server.paths) == ["/good.xml", "/robots.txt", "/start.xml"]


@pytest.fixture
def quiet_process(monkeypatch, tmp_path) -> Iterator[None]:
    """The command leaves no trace in the logging of the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SITEATLAS_EGRESS_ALLOW", raising=False)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize(("number", "text"), rows("command-line"))
def test_as_an_argument_of_the_command_line(number: int, text: str, quiet_process):
    result = CliRunner().invoke(app, ["scan", "--", text])
    assert result.exit_code == 2
    code = result.stderr.split(": ")[1]
    assert code == "egress_denied" if number in DENIED else code.startswith("address_")
    assert "pw@" not in result.stderr
