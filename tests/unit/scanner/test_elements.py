"""The elements of an open document."""

from __future__ import annotations

from siteatlas.scanner.reading.formats.elements import ElementStream
from siteatlas.scanner.reading.tally import Tally


def test_elements_that_were_read_are_not_held_until_the_next_piece_comes():
    stream = ElementStream("<urlset>", ["url"], Tally())
    elements = stream.read("<url><loc>x</loc></url>" * 1_000)
    root = elements[0].getparent()
    assert root is not None
    assert len(root) == len(elements) == 1_000
    del elements
    stream.forget()
    assert [len(child) for child in root] == [0]
    assert len(stream.read("<url><loc>y</loc></url>" * 10)) == 10
