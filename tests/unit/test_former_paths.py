"""Import paths that an earlier version documented."""

from __future__ import annotations

import pytest

from siteatlas.processor import processing, recorder
from siteatlas.processor import processing as own_session
from siteatlas.storage import startup
from siteatlas.storage import startup as opening


def test_open_storage_is_importable_from_its_former_path():
    assert opening.open_storage is startup.open_storage


def test_the_older_entry_point_is_importable_from_its_former_path():
    assert processing.process_domain_with_own_session is own_session.process_domain_with_own_session


def test_the_recording_of_events_is_importable_by_its_former_name():
    assert recorder.store_domain_data is recorder.record_events


def test_other_missing_names_of_the_module_stay_missing():
    with pytest.raises(AttributeError, match="has no attribute 'bogus'"):
        _ = processing.bogus
