"""Documents that were written to hurt: each cost time, memory or a whole scan before."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.fixtures.documents import read, urlset

# Linux hands `ru_maxrss` of the process that starts it down to a program.
PEAK_MEMORY = """
import pathlib, re, resource, sys
from siteatlas.scanner.reading.document import DocumentReader
head = b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
group = b"<a><url/>" + b"<b/>" * 200_000 + b"</a>"
reader = DocumentReader()
list(reader.feed(head))
for _ in range(int(sys.argv[1])):
    for start in range(0, len(group), 65536):
        list(reader.feed(group[start:start + 65536]))
status = pathlib.Path("/proc/self/status")
if status.exists():
    print(re.search(r"VmHWM:\\s*(\\d+)", status.read_text())[1])
else:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.timeout(20)
def test_comments_that_never_end_are_passed_over_in_linear_time():
    broken = "</bad><url ><!" + "<!--" * 60_000 + " >" + "<url><loc>http://a.b/</loc></url>"
    assert read(urlset(broken)).urls == []


def test_a_comment_in_the_broken_part_may_end_in_a_later_piece():
    entry = "<url><loc>https://a.example/{}</loc></url>"
    hidden = f"<!-- {'x' * 90_000} {entry.format('hidden')} -->"
    text = "<url></bad>" + entry.format(1) + hidden + entry.format(2) + entry.format(3)
    assert "https://a.example/hidden" not in read(urlset(text)).urls


def peak_memory(groups: int) -> int:
    result = subprocess.run(
        [sys.executable, "-c", PEAK_MEMORY, str(groups)],
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
    )
    return int(result.stdout)


@pytest.mark.slow
def test_elements_around_entries_are_forgotten_too():
    """Twenty groups of 200,000 elements took 20 times the memory of one."""
    assert peak_memory(12) < peak_memory(2) + 60_000


@pytest.mark.parametrize("priority", ["1e-46", "-0.0", "0.00000001"])
def test_a_tiny_priority_is_one_that_a_real_number_can_hold(priority: str):
    document = read(
        urlset(f"<url><loc>https://a.example/</loc><priority>{priority}</priority></url>")
    )
    assert document.columns.priorities == [0.0]
    assert str(document.columns.priorities[0]) == "0.0"


def test_extras_are_cut_at_a_depth_that_can_be_written_down():
    nested = "<a>" * 200 + "x" + "</a>" * 200
    text = f"<url><loc>https://a.example/</loc><video>{nested}</video></url>"
    document = read(urlset(text))
    assert document.urls == ["https://a.example/"]
    assert document.problems["extras_cut"] >= 1


def test_extras_of_one_entry_are_cut_at_a_quarter_of_a_megabyte():
    videos = f"<video><title>{'q' * 4000}</title></video>" * 150
    document = read(urlset(f"<url><loc>https://a.example/</loc>{videos}</url>"))
    (extras,) = document.columns.extras
    assert extras is not None
    assert sum(len(video["title"]) for video in extras["videos"]) <= 256 * 1024
    assert document.problems["extras_cut"] >= 1


@pytest.mark.parametrize("number", ["99999999", "9" * 5000, "x110000", "0"])
def test_a_reference_to_no_character_in_the_broken_part_loses_that_entry_only(number: str):
    good = "<url><loc>https://a.example/</loc></url>"
    bad = f'<url x="1"><loc>http://a.b/&#{number};</loc></url>'
    document = read(urlset(f"<!-- <![CDATA[ -->{bad}{good}"))
    assert "https://a.example/" in document.urls or document.error is not None
    assert all("a.b" not in url for url in document.urls)


def test_a_name_of_hundreds_of_characters_is_over_the_limit():
    document = read(urlset(f"<{'n' * 400}/><url x='1'><loc>https://a.example/</loc></url>"))
    assert document.error_code == "xml_limits"
