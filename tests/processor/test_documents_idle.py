"""The ids of documents that are not in work."""

from __future__ import annotations

from uuid import uuid4

from siteatlas.catalog.urls import url_hash
from siteatlas.processor.documents import IdleDocuments


def test_each_document_is_found_by_its_hash_until_it_is_taken():
    idle = IdleDocuments()
    ids = {url_hash(f"https://a.example/{number}.xml"): uuid4() for number in range(500)}
    for place, (key, document_id) in enumerate(ids.items()):
        idle.add(key, document_id, fresh=place % 2 == 0)
    assert len(idle) == len(ids)
    assert {key: idle.id_of(key) for key in ids} == ids
    taken = [idle.take(key) for key in ids]
    assert taken == [(one, place % 2 == 0) for place, one in enumerate(ids.values())]
    assert len(idle) == 0
    assert idle.take(next(iter(ids))) is None
    assert idle.id_of(next(iter(ids))) is None


def test_a_hash_has_one_document():
    idle = IdleDocuments()
    first, second = uuid4(), uuid4()
    idle.add(1, first, fresh=True)
    idle.add(1, second, fresh=False)
    assert (len(idle), idle.take(1)) == (1, (second, False))
