"""The examples of the page on the library run as they are written, against a site on loopback."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.commands import Machine
from tests.fixtures.documents import urlset_of
from tests.fixtures.embedded import data_directory
from tests.fixtures.site_server import Pages, SiteServer
from tests.fixtures.thread_server import running_site

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "use-it-as-a-library.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def site() -> Iterator[SiteServer]:
    pages: Pages = {
        "/robots.txt": "Sitemap: {base}/sitemap.xml\nSitemap: {base}/missing.xml\n",
        "/sitemap.xml": urlset_of(["https://a.example/one", "https://a.example/two"]),
        "/news.xml": urlset_of(["https://a.example/news"]),
    }
    with running_site(pages) as running:
        yield running


def on_loopback(example: str, site: SiteServer) -> str:
    """The example with its site replaced by ours, which must be allowed."""
    program = re.sub(r'"(?:https://)?example\.com([^"]*)"', rf'"{site.base}\1"', example)
    allowed = re.sub(r"(\bscan(?:_sync)?\([^()]+)\)", rf'\1, allow="{site.host_port}")', program)
    return allowed.replace("EgressPolicy()", f'EgressPolicy.from_text("{site.host_port}")')


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_page_runs(example: str, site: SiteServer):
    program = on_loopback(example, site)
    with data_directory() as folder:
        result = Machine(folder).execute([sys.executable, "-c", program])
    assert result.returncode == 0, f"{program}\n{result.stderr}"


def test_the_page_has_examples():
    assert len(EXAMPLES) >= 7
    assert all("example.com" in example or "open_storage" in example for example in EXAMPLES)
