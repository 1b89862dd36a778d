"""How the entries of other documents are looked up: by what is less work."""

from __future__ import annotations

import pytest

from siteatlas.catalog.classification import Lookup, SiteSize


@pytest.mark.parametrize(
    ("size", "changes", "expected"),
    [
        pytest.param(SiteSize(100, 5_000_000), 10, Lookup.PROBE_KEYS, id="few changes"),
        pytest.param(SiteSize(100, 5_000_000), 50_000, Lookup.READ_KEYS, id="many changes"),
        pytest.param(SiteSize(1, 50_000), 10_000, Lookup.PROBE_KEYS, id="one document"),
        pytest.param(SiteSize(10_000, 20_000), 5, Lookup.READ_KEYS, id="many tiny documents"),
        pytest.param(SiteSize(0, 0), 0, Lookup.PROBE_KEYS, id="nothing"),
    ],
)
def test_the_lookup_that_takes_fewer_steps_is_chosen(
    size: SiteSize, changes: int, expected: Lookup
):
    assert size.lookup(changes) is expected
