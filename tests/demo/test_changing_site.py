"""The changing demo site: every step changes what it serves, and the cycle never runs dry."""

from __future__ import annotations

import re
from itertools import pairwise

from siteatlas.demo.changing import JOURNAL, MARKET, ChangingSite
from siteatlas.demo.sites import SiteContent

BASE = "http://journal.localhost:8765"


def served(content: SiteContent) -> dict[str, bytes]:
    return {path: document.body for path, document in content.documents.items()}


def urls(content: SiteContent, section: str) -> set[str]:
    return set(re.findall(r"<loc>(.*?)</loc>", content.documents[f"/{section}.xml"].body.decode()))


def test_every_step_changes_something():
    site = ChangingSite()
    content = site.plan.build(BASE)
    seen = [served(content)]
    for _ in range(50):
        site.step()
        seen.append(served(content))
    assert all(before != after for before, after in pairwise(seen))


def test_two_changing_sites_have_no_section_in_common():
    content = [ChangingSite(plan).plan.build(BASE) for plan in (JOURNAL, MARKET)]
    paths = [{path for path in served(each) if path.endswith(".xml")} for each in content]
    assert paths == [{"/guides.xml", "/reviews.xml"}, {"/offers.xml", "/stalls.xml"}]


def test_it_adds_drops_moves_and_breaks_pages():
    site = ChangingSite()
    content = site.plan.build(BASE)
    assert content.expected_urls == len(urls(content, "guides") | urls(content, "reviews"))
    done, moved = set(), set[str]()
    for _ in range(10):
        before = urls(content, "guides")
        done.add(site.step())
        moved |= before & urls(content, "reviews")
        if "broke the reviews" in done and "mended the reviews" not in done:
            assert content.documents["/reviews.xml"].status == 500
    assert len(done) == 8
    assert len(moved) == 1


def test_it_keeps_its_size_over_a_long_demo():
    site = ChangingSite()
    content = site.plan.build(BASE)
    for _ in range(400):
        site.step()
    assert 20 <= len(urls(content, "guides")) <= 45
    assert 20 <= len(urls(content, "reviews")) <= 45
