"""Gzip layers and their limits."""

from __future__ import annotations

import gzip
import os
import zlib

import pytest

from siteatlas.errors import (
    DecompressionBomb,
    EncodingChain,
    EncodingUnsupported,
    GzipCorrupt,
    GzipMembers,
    TooLarge,
    Truncated,
)
from siteatlas.scanner.reading.decoding import CHUNK_BYTES, Body, BodyLimits
from siteatlas.scanner.reading.entries import Tally

CONTENT = b"<urlset>" + b"0123456789" * 500 + b"</urlset>"


def decoded(wire: bytes, *, chunk: int = 65536, coding: str | None = None, **limits: int) -> bytes:
    body = Body(coding, Tally(), BodyLimits(**limits))
    pieces = [
        piece
        for start in range(0, len(wire), chunk)
        for piece in body.feed(wire[start : start + chunk])
    ]
    return b"".join([*pieces, *body.close()])


@pytest.mark.parametrize("chunk", [1, 7, 65536])
@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(CONTENT, id="plain"),
        pytest.param(gzip.compress(CONTENT), id="one layer"),
        pytest.param(gzip.compress(gzip.compress(CONTENT)), id="two layers"),
        pytest.param(gzip.compress(CONTENT[:99]) + gzip.compress(CONTENT[99:]), id="two members"),
        pytest.param(gzip.compress(CONTENT) + b"\0\0\0\0", id="padding"),
        pytest.param(gzip.compress(CONTENT) + b"<!-- served in 3 ms -->", id="garbage"),
        pytest.param(gzip.compress(CONTENT) + b"\x1f\x8bnot gzip", id="garbage that looks right"),
    ],
)
def test_gives_the_bytes_of_the_document(wire, chunk):
    assert decoded(wire, chunk=chunk) == CONTENT


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "identity", "GZIP", ""])
def test_believes_the_bytes_and_not_the_content_coding(coding):
    assert decoded(CONTENT, coding=coding) == CONTENT
    assert decoded(gzip.compress(CONTENT), coding=coding) == CONTENT


def test_gives_a_single_byte_when_the_document_has_no_more():
    assert decoded(b"x") == b"x"


def test_never_gives_more_than_64_kib_at_once():
    body = Body(None, Tally())
    wire = gzip.compress(os.urandom(100) * 5000)
    assert max(len(piece) for piece in body.feed(wire)) <= CHUNK_BYTES


def test_counts_wire_and_document_bytes():
    body = Body(None, Tally())
    wire = gzip.compress(CONTENT)
    list(body.feed(wire))
    assert (body.wire_bytes, body.decoded_bytes) == (len(wire), len(CONTENT))


@pytest.mark.parametrize("coding", ["br", "zstd", "deflate", "gzip, br"])
def test_refuses_codings_that_were_not_asked_for(coding):
    with pytest.raises(EncodingUnsupported):
        decoded(CONTENT, coding=coding)


def test_refuses_a_third_layer():
    with pytest.raises(EncodingChain):
        decoded(gzip.compress(gzip.compress(gzip.compress(CONTENT))))
    with pytest.raises(EncodingChain):
        decoded(CONTENT, coding="gzip, gzip, gzip")


def test_refuses_a_document_above_the_byte_limit():
    with pytest.raises(TooLarge):
        decoded(gzip.compress(os.urandom(1000) * 200), decoded_bytes=100_000)


def test_calls_a_document_that_inflates_beyond_reason_a_bomb():
    bomb = zlib.compress(b"\0" * 20_000_000, wbits=31)
    with pytest.raises(DecompressionBomb):
        decoded(bomb)


def test_finds_the_bomb_behind_two_layers():
    with pytest.raises(DecompressionBomb):
        decoded(gzip.compress(gzip.compress(b"\0" * 20_000_000)))


def test_refuses_too_many_members():
    with pytest.raises(GzipMembers):
        decoded(gzip.compress(b"") * 1100)


def test_a_gzip_stream_that_breaks_off_is_truncated():
    with pytest.raises(Truncated):
        decoded(gzip.compress(CONTENT)[:-9])


def test_a_wrong_checksum_is_reported_after_all_bytes():
    wire = bytearray(gzip.compress(CONTENT))
    wire[-6] ^= 0xFF
    pieces = Body(None, Tally()).feed(bytes(wire))
    assert next(pieces) == CONTENT
    with pytest.raises(GzipCorrupt):
        next(pieces)


# A gzip header whose file name does not end, so that the layer gives no output.
NAME_WITHOUT_END = b"\x1f\x8b\x08\x08\0\0\0\0\0\x03"


def test_limits_apply_to_an_outer_layer_whose_inner_one_gives_nothing():
    with pytest.raises(DecompressionBomb):
        decoded(gzip.compress(NAME_WITHOUT_END + b"a" * 20_000_000))
    with pytest.raises(TooLarge):
        decoded(gzip.compress(NAME_WITHOUT_END + b"a" * 200_000), decoded_bytes=100_000)


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(gzip.compress(NAME_WITHOUT_END + b"a" * 20 * CHUNK_BYTES), id="inner layer"),
        pytest.param(gzip.compress(b"") * 20, id="empty members"),
    ],
)
def test_each_step_gives_a_chunk_even_if_it_is_empty(wire: bytes):
    assert list(Body(None, Tally()).feed(wire)).count(b"") >= 20


def test_garbage_behind_the_inner_layer_is_not_decompressed():
    wire = bytearray(gzip.compress(gzip.compress(CONTENT) + b"garbage" + os.urandom(200_000)))
    wire[-6] ^= 0xFF
    assert decoded(bytes(wire)) == CONTENT
