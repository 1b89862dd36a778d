"""The measured site is the same on every run, whole, and served as it was made."""

from __future__ import annotations

import gzip
import socket
from email.utils import formatdate
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from bench.figure import Figure, as_data, over_rounds, table
from bench.make_site import change_site, file_sizes, make_site
from bench.site_server import served

BASE = "http://127.0.0.1:9000"


def lines_with(tag: str, site: Path) -> list[str]:
    texts = [gzip.decompress(file.read_bytes()).decode() for file in sorted(site.glob("*.gz"))]
    return [line.strip() for text in texts for line in text.splitlines() if f"<{tag}>" in line]


def listed(site: Path) -> list[str]:
    return lines_with("loc", site)


def dates(site: Path) -> list[str]:
    return lines_with("lastmod", site)


@pytest.mark.parametrize("urls", [7, 100_000, 500_000, 5_000_000])
def test_all_urls_are_shared_out_over_files_that_a_sitemap_may_have(urls):
    sizes = file_sizes(urls)
    assert sum(sizes) == urls
    assert len(sizes) >= 10
    assert max(sizes) <= 50_000


def test_the_site_lists_as_many_different_urls_as_asked(tmp_path):
    addresses = listed(make_site(tmp_path, BASE, 1234))
    assert len(addresses) == len(set(addresses)) == 1234


def test_two_makings_are_equal_byte_for_byte(tmp_path):
    one = make_site(tmp_path / "one", BASE, 300)
    two = make_site(tmp_path / "two", BASE, 300)
    assert {f.name: f.read_bytes() for f in one.iterdir()} == {
        f.name: f.read_bytes() for f in two.iterdir()
    }


def test_a_site_that_was_made_is_used_again(tmp_path):
    site = make_site(tmp_path, BASE, 50)
    (site / "robots.txt").write_text("kept")
    assert (make_site(tmp_path, BASE, 50) / "robots.txt").read_text() == "kept"


def test_the_site_is_served_as_it_was_made(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    site = make_site(tmp_path, f"http://127.0.0.1:{port}", 50)
    with served(site, port) as shown, urlopen(f"{shown.base_url}/part-000.xml.gz") as answer:
        assert answer.headers["Content-Encoding"] is None
        assert answer.read() == (site / "part-000.xml.gz").read_bytes()


def test_the_site_can_be_changed_while_it_is_served(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    site = make_site(tmp_path, f"http://127.0.0.1:{port}", 500)
    changed = change_site(site)
    address = f"http://127.0.0.1:{port}/part-000.xml.gz"
    with served(site, port) as shown:
        with urlopen(address) as answer:
            assert answer.headers["Last-Modified"]
        shown.show(changed, validators=False)
        with urlopen(Request(address, headers={"If-Modified-Since": formatdate()})) as answer:
            assert answer.headers["Last-Modified"] is None
            assert answer.read() == (changed / "part-000.xml.gz").read_bytes()


def test_one_entry_of_a_hundred_is_changed(tmp_path):
    site = make_site(tmp_path, BASE, 2_000)
    before, after = dates(site), dates(change_site(site))
    assert len(before) == len(after) == 2_000
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 20


def test_figures_of_rounds_are_medians_with_their_spread():
    figures = [Figure("scan", 10, seconds, peak) for seconds, peak in ((2, 70), (5, 80), (4, 60))]
    (figure,) = over_rounds(figures)
    assert (figure.seconds, figure.peak_mb, figure.rounds) == (4, 80, (2, 5, 4))
    assert "-50% +25%" in table([figure])


def test_a_program_that_fails_in_one_round_has_no_figure():
    (figure,) = over_rounds([Figure("usp", 10, 2), Figure("usp", problem="found 3 pages")])
    assert figure.problem == "found 3 pages"


def test_the_table_gives_ratios_against_the_peer():
    figures = [Figure("usp", 1000, 10.0), Figure("scan", 1000, 2.0), Figure("serve", problem="no")]
    assert "5.00 x" in table(figures)
    assert [row["against_usp"] for row in as_data(figures)] == [None, 5.0, None]
