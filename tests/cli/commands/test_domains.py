"""Which sites `siteatlas domains add` takes, without a database."""

from __future__ import annotations

import io
import sys

import pytest

from siteatlas.cli.commands.domains import _typed, _usable
from siteatlas.errors import AddressError, InputError
from siteatlas.net.egress import EgressPolicy

POLICY = EgressPolicy.from_text("")


def give_on_stdin(monkeypatch: pytest.MonkeyPatch, lines: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines), encoding="utf-8"))


def test_a_list_on_stdin_may_have_comments_and_blank_lines(monkeypatch):
    give_on_stdin(monkeypatch, b"# ours\na.example\n\n  b.example   # the shop\n")
    assert list(_typed(["first.example", "-"])) == ["first.example", "a.example", "b.example"]


def test_a_list_on_stdin_may_begin_with_a_byte_order_mark_and_have_broken_lines(monkeypatch):
    give_on_stdin(monkeypatch, b"\xef\xbb\xbfa.example\r\nb\xff.example\r\nc.example")
    assert list(_typed(["-"])) == ["a.example", "b\ufffd.example", "c.example"]


def test_the_password_in_a_refused_address_is_not_repeated(capsys):
    assert len(_usable(["a.example", "https://me:secret@b.example/"], POLICY)) == 1
    words = capsys.readouterr().err
    assert "b.example" in words
    assert "secret" not in words


def test_bad_sites_among_others_are_named_and_the_good_ones_stay(capsys):
    usable = _usable(["a.example", "ftp://b.example", "10.0.0.1"], POLICY)
    assert [address.domain for address in usable] == ["a.example"]
    words = capsys.readouterr().err
    assert "ftp://b.example" in words
    assert "10.0.0.1" in words


def test_a_single_bad_site_is_an_error_of_its_own():
    with pytest.raises(AddressError):
        _usable(["ftp://b.example"], POLICY)


def test_an_empty_list_is_refused():
    with pytest.raises(InputError) as refused:
        _usable([], POLICY)
    assert type(refused.value) is InputError
