"""Headers of the operator go to his own hosts and cannot break a request."""

from __future__ import annotations

import pytest

from siteatlas.errors import InputError
from siteatlas.net.client import Politeness
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.gate import checked_headers, read_header_lines
from siteatlas.scanner.analyzer import SitemapAnalyzer
from tests.fixtures.documents import urlset_of
from tests.fixtures.raw_server import PathServer, redirect, whole_answer
from tests.fixtures.scans import record_scan
from tests.net.conftest import QUICK


def test_lines_become_a_table():
    assert read_header_lines(["X-Key: a:b ", "Cookie:c=1"]) == {"X-Key": "a:b", "Cookie": "c=1"}


@pytest.mark.parametrize(
    "line",
    [
        "no colon",
        ": no name",
        "X Key: blank in the name",
        "X-Key: line\r\nX-Other: end",
        "X-Key: über",
        "Host: other.example",
        "transfer-encoding: chunked",
        "Accept-Encoding: br",
        f"X-Key: {'x' * 9000}",
    ],
)
def test_what_cannot_or_must_not_be_sent_is_refused(line: str):
    with pytest.raises(InputError) as caught:
        read_header_lines([line])
    assert "end" not in str(caught.value)


def test_the_analyzer_refuses_bad_headers_at_once():
    with pytest.raises(InputError):
        SitemapAnalyzer(EgressPolicy(), Politeness(0, 2), user_agent="x", headers={"Host": "y"})
    assert checked_headers({}) == {}


async def test_a_scan_sends_them_to_the_own_host_and_nowhere_else():
    async with (
        PathServer({"/x.xml": whole_answer(urlset_of(["https://a.example/"]))}) as range_only,
        PathServer(
            {
                "/robots.txt": whole_answer(b"Sitemap: /s.xml"),
                "/s.xml": redirect(range_only.url("/x.xml")),
            }
        ) as own,
    ):
        policy = EgressPolicy.from_text(f"{own.entry},127.0.0.0/8:{range_only.port}")
        analyzer = SitemapAnalyzer(
            policy,
            Politeness(0, 2),
            user_agent="test",
            limits=QUICK,
            headers={"Authorization": "Basic bWU6c2VjcmV0"},
        )
        record = await record_scan(analyzer, own.url())
    assert all("Authorization: Basic" in request for request in own.requests)
    assert record.urls == []
    assert range_only.requests == []
