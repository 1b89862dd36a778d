"""How many processes read a site, and what they write."""

from __future__ import annotations

import os
import pickle
from datetime import UTC, datetime

import pytest

from siteatlas.cli.scan.output import EntryFilter, SiteEncoder, encode_objects_of_site, encode_urls
from siteatlas.cli.scan.runner import reader_count
from siteatlas.scanner.events import EntriesRead, EntryColumns

DATE = datetime(2026, 1, 31, tzinfo=UTC)
EVENT = EntriesRead(
    "https://a.example/sitemap.xml",
    EntryColumns(
        ["https://a.example/1", "https://a.example/2", "https://a.example/3"],
        [DATE, None, DATE],
        [None] * 3,
        [None] * 3,
        [None] * 3,
    ),
)


@pytest.mark.parametrize(
    ("cores", "processes", "max_urls", "expected"),
    [
        (1, None, None, 0),
        (2, None, None, 1),
        (64, None, None, 1),
        (1, 2, None, 1),
        (2, 1, None, 0),
        (2, 4, None, 3),
        (2, None, 10, 0),
        (2, 4, 10, 0),
    ],
)
def test_the_number_of_processes_follows_cores_and_options(
    monkeypatch, cores, processes, max_urls, expected
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)), raising=False)
    assert reader_count(processes, max_urls) == expected


def test_where_the_system_does_not_tell_its_usable_cores_all_of_them_count(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert reader_count(None, None) == 0


def test_entries_are_filtered_counted_and_encoded_in_the_other_process():
    wanted = EntryFilter.of(DATE, [], ["*/3"])
    encode = pickle.loads(pickle.dumps(SiteEncoder("a.example", encode_urls, wanted)))
    first, second = encode(EVENT), encode(EVENT)
    assert first == second
    assert first == (b"https://a.example/1\n", 3, 1, 1, 1)
    wanted.count_encoded(first)
    assert (wanted.kept, wanted.left_out, wanted.undated) == (1, 2, 1)


def test_lines_of_several_sites_name_the_site():
    encode = SiteEncoder("a.example", encode_objects_of_site, EntryFilter())
    assert encode(EVENT).data == encode_objects_of_site("a.example", EVENT)
