"""Places: a total, a share of it per holder, and places that are given back."""

from __future__ import annotations

from contextlib import ExitStack
from uuid import uuid4

import pytest

from siteatlas.aio.places import Places


def test_a_holder_gets_a_share_and_all_together_the_total() -> None:
    places, ann, bob = Places(3, share=2), uuid4(), uuid4()
    with ExitStack() as taken:
        taken.enter_context(places.taken_by(ann))
        assert places.has_room(ann)
        taken.enter_context(places.taken_by(ann))
        assert (places.has_room(ann), places.has_room(bob)) == (False, True)
        taken.enter_context(places.taken_by(bob))
        assert (places.taken, places.has_room(bob), places.has_room(None)) == (3, False, False)
    assert (places.taken, places.has_room(ann)) == (0, True)


def test_a_holder_without_a_share_can_have_all_places() -> None:
    places = Places(2, share=1)
    with places.taken_by(None):
        assert places.has_room(None)


def test_a_place_is_given_back_when_its_block_fails() -> None:
    places, ann = Places(1, share=1), uuid4()
    with pytest.raises(RuntimeError), places.taken_by(ann):
        raise RuntimeError
    assert places.has_room(ann)
