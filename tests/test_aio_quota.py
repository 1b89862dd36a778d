"""Quota: a total, and a share of it per holder."""

from __future__ import annotations

from contextlib import ExitStack
from uuid import uuid4

import pytest

from siteatlas.aio import Quota


def test_a_holder_gets_a_share_and_all_together_the_total() -> None:
    quota, ann, bob = Quota(3, per_user=2), uuid4(), uuid4()
    with ExitStack() as taken:
        taken.enter_context(quota.taken_by(ann))
        assert quota.has_room(ann)
        taken.enter_context(quota.taken_by(ann))
        assert (quota.has_room(ann), quota.has_room(bob)) == (False, True)
        taken.enter_context(quota.taken_by(bob))
        assert (quota.taken, quota.has_room(bob), quota.has_room(None)) == (3, False, False)
    assert (quota.taken, quota.has_room(ann)) == (0, True)


def test_a_holder_without_a_share_can_have_all() -> None:
    quota = Quota(2, per_user=1)
    with quota.taken_by(None):
        assert quota.has_room(None)


def test_what_was_taken_is_given_back_when_its_block_fails() -> None:
    quota, ann = Quota(1, per_user=1), uuid4()
    with pytest.raises(RuntimeError), quota.taken_by(ann):
        raise RuntimeError
    assert quota.has_room(ann)
