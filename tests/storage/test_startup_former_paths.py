"""Import paths that an earlier version documented."""

from __future__ import annotations

from siteatlas.processor import recorder


def test_the_recording_of_events_is_importable_by_its_former_name():
    assert recorder.store_domain_data is recorder.record_events
