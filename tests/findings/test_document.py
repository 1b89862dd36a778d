"""What one document is judged by: enough samples, windows, the clock, and its divided problems."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from siteatlas.cli.lint.reading import Network, lint_all
from siteatlas.findings import site
from siteatlas.findings.document import DocumentJudge, rule_of_bad_url
from siteatlas.findings.judging import Finding
from siteatlas.scanner.events import (
    DiscoveryMethod,
    DocumentClosed,
    DocumentOutcome,
    EntryColumns,
    ProblemSample,
)
from siteatlas.settings import Settings
from tests.findings.cases import GOOGLE, SITE, alternates, around, article, dated, page, pages_of
from tests.fixtures.documents import FORMATS

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)


async def lint(text: str, folder: Path, now: datetime = NOW) -> dict[str, Finding]:
    file = folder / "sitemap.xml"
    file.write_text(text, encoding="utf-8")
    linted = await lint_all([str(file)], now, Network(Settings))
    return {finding.code: finding for finding in linted.findings}


@pytest.mark.parametrize(("count", "found"), [(19, False), (20, True)])
async def test_dates_are_judged_from_twenty_on(count: int, found: bool, tmp_path: Path):
    same = await lint(around(dated(["2026-06-01"] * count)), tmp_path)
    assert ("lastmod-uniform" in same) is found
    none = await lint(around(pages_of(count)), tmp_path)
    assert ("lastmod-missing" in none) is found


async def test_a_list_of_news_is_exempt_by_its_namespace_and_not_by_its_name(tmp_path: Path):
    date = "<lastmod>2026-07-01</lastmod>"
    news = "".join(
        page(f"{SITE}/{number}", date + article(date="2026-07-01")) for number in range(30)
    )
    assert await lint(around(news), tmp_path) == {}
    plain = around("".join(page(f"{SITE}/news/{number}", date) for number in range(30)))
    (tmp_path / "news-sitemap.xml").write_text(plain, encoding="utf-8")
    linted = await lint_all([str(tmp_path / "news-sitemap.xml")], NOW, Network(Settings))
    assert [finding.code for finding in linted.findings] == ["lastmod-uniform"]


async def test_a_feed_is_exempt_too(tmp_path: Path):
    form = FORMATS["rss"]
    items = "".join(f"<item><link>{SITE}/{number}</link></item>" for number in range(30))
    assert await lint(form.start + items + form.end, tmp_path) == {}


async def test_the_clock_is_that_of_the_caller(tmp_path: Path):
    text = around(page(more="<lastmod>2030-01-01</lastmod>"))
    assert "lastmod-future" in await lint(text, tmp_path)
    assert await lint(text, tmp_path, datetime(2030, 1, 1, tzinfo=UTC)) == {}
    assert await lint(text, tmp_path, datetime(2029, 12, 31, tzinfo=UTC)) == {}


async def test_an_entry_that_is_left_out_shows_its_other_faults_too(tmp_path: Path):
    entries = page("/a", "<lastmod>yesterday</lastmod>") + page(
        "mailto:a@b.example", "<priority>9</priority>"
    )
    found = await lint(around(entries), tmp_path)
    assert set(found) == {"url-relative", "lastmod-invalid", "url-scheme", "priority-invalid"}
    assert found["lastmod-invalid"].samples[0].url == "/a"


async def test_an_undeclared_prefix_and_foreign_namespaces_are_no_unknown_elements(tmp_path: Path):
    text = around(page(more='<x:rating xmlns:x="https://x.example/">5</x:rating>'))
    assert await lint(text, tmp_path) == {}


async def test_the_prefix_of_a_document_does_not_matter(tmp_path: Path):
    text = (
        f'<s:urlset xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:i="{GOOGLE}-image/1.1">'
        f"<s:url><s:loc>{SITE}/a</s:loc><s:lastmod>2026-01-01</s:lastmod><s:lastmod>2026-01-01</s:lastmod>"
        f"<i:image><i:loc>{SITE}/a.jpg</i:loc><i:caption>c</i:caption></i:image></s:url></s:urlset>"
    )
    assert set(await lint(text, tmp_path)) == {
        "element-twice",
        "image-tag-dropped",
    }


async def test_a_finding_is_one_for_all_places_in_a_document(tmp_path: Path):
    found = await lint(around("".join(page(f"{SITE}/{n}#top") for n in range(100))), tmp_path)
    fragment = found["url-fragment"]
    assert (fragment.count, len(fragment.samples)) == (100, 20)


async def test_the_same_document_has_the_same_fingerprints_each_time(tmp_path: Path):
    text = around(page(f"{SITE}/a#b", "<priority>9</priority>"))
    first = {one.fingerprint for one in (await lint(text, tmp_path)).values()}
    moved = {
        one.fingerprint
        for one in (await lint(text.replace("<url>", "\n\n<url>"), tmp_path)).values()
    }
    assert len(first) == 2
    assert first == moved


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{{ page.url }}", "url-placeholder"),
        ("#", "url-placeholder"),
        ("mailto:a@b.example", "url-scheme"),
        ("https://", "url-invalid"),
        ("https://https://a.example/", "url-invalid"),
    ],
)
def test_a_bad_url_breaks_one_of_three_rules(text: str, code: str):
    assert rule_of_bad_url(text) == code


def test_bad_urls_without_a_sample_count_like_the_most_frequent_ones():
    judge = DocumentJudge("x", NOW)
    samples = (ProblemSample("ftp://a"), ProblemSample("ftp://b"), ProblemSample("#"))
    found = judge.close(
        DocumentClosed(
            "x",
            "x",
            DocumentOutcome.COMPLETE,
            DiscoveryMethod.MANUAL,
            skipped_count=41,
            problems={"bad_url": 41},
            samples={"bad_url": samples},
        )
    )
    assert {one.code: one.count for one in found} == {"url-scheme": 40, "url-placeholder": 1}


def test_columns_without_dates_and_extras_are_judged():
    judge = DocumentJudge("x", NOW)
    judge.add_entries(EntryColumns([f"{SITE}/a"], [None], [None], [None], [None]))
    judge.add_entries(EntryColumns())
    closed = DocumentClosed("x", "x", DocumentOutcome.COMPLETE, DiscoveryMethod.MANUAL)
    assert judge.close(closed) == []


async def test_beyond_a_million_urls_those_of_several_documents_are_not_compared(
    tmp_path: Path, monkeypatch
):
    monkeypatch.setattr(site, "MAX_COMPARED_URLS", 10)
    (tmp_path / "sitemap-1.xml").write_text(around(pages_of(8)))
    (tmp_path / "sitemap-2.xml").write_text(around(pages_of(9)))
    linted = await lint_all([str(tmp_path)], NOW, Network(Settings))
    assert linted.findings == []
    assert linted.is_sampled


async def test_of_a_sample_of_alternates_only_links_that_are_known_are_judged(
    tmp_path: Path, monkeypatch
):
    names = ("en", "de", "fr")
    links = alternates(*((name, f"{SITE}/{name}") for name in names))
    # The first does not link to the second.
    wrong = alternates(("en", f"{SITE}/en"), ("fr", f"{SITE}/fr"))
    pages = [page(f"{SITE}/{name}", links) for name in names]
    text = around(page(f"{SITE}/en", wrong) + pages[1] + pages[2])
    assert (await lint(text, tmp_path))["hreflang-no-return"].count == 1
    monkeypatch.setattr(site, "MAX_ALTERNATES", 3)
    (tmp_path / "sitemap-2.xml").write_text(around(pages[2]))
    (tmp_path / "sitemap.xml").write_text(around(page(f"{SITE}/en", wrong) + pages[1]))
    linted = await lint_all([str(tmp_path)], NOW, Network(Settings))
    assert {one.code: one.count for one in linted.findings} == {"hreflang-no-return": 1}
    assert linted.is_sampled


async def test_news_become_stale_by_the_clock(tmp_path: Path):
    text = around(page(more=article(date="2026-06-30T08:00:00Z")))
    assert await lint(text, tmp_path) == {}
    assert set(await lint(text, tmp_path, NOW + timedelta(days=2))) == {"news-stale"}


async def test_samples_and_detail_are_those_of_the_first_places(tmp_path: Path):
    robots = tmp_path / "robots.txt"
    robots.write_text("User-agent: *\nDisallow: /b\nDisallow: /a")
    (tmp_path / "sitemap.xml").write_text(around((page() + page(f"{SITE}/b")) * 3))
    linted = await lint_all([str(tmp_path)], NOW, Network(Settings))
    found = {finding.code: finding for finding in linted.findings}
    assert found["url-disallowed"].detail == "Googlebot: line 3 of robots.txt, Disallow: /a"
    assert [(one.url, one.line) for one in found["url-twice"].samples] == [
        (f"{SITE}/a", 5),
        (f"{SITE}/b", 6),
    ]
    assert found["url-twice"].count == 4


async def test_a_robots_txt_is_for_the_files_in_its_folder_and_below(tmp_path: Path):
    for folder, rule in (("one", "/a"), ("one/shop", "/b"), ("two", "")):
        (tmp_path / folder / "maps").mkdir(parents=True)
        (tmp_path / folder / "maps" / "sitemap.xml").write_text(around(page() + page(f"{SITE}/b")))
        if rule:
            (tmp_path / folder / "robots.txt").write_text(f"User-agent: *\nDisallow: {rule}")
    linted = await lint_all([str(tmp_path)], NOW, Network(Settings))
    disallowed = {
        Path(one.document).relative_to(tmp_path).as_posix(): [sample.url for sample in one.samples]
        for one in linted.findings
        if one.code == "url-disallowed"
    }
    assert disallowed == {
        "one/maps/sitemap.xml": [f"{SITE}/a"],
        "one/shop/maps/sitemap.xml": [f"{SITE}/b"],
    }
