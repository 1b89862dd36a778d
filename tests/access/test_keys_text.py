"""The text of an access key: random, recognizable, and checked without a database."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest

from siteatlas.access.keys import ALPHABET, generate_key, parse_key
from siteatlas.errors import KeyInvalid


def text_of_new_key() -> str:
    return generate_key().text.get_secret_value()


def test_a_key_names_its_product_and_its_id():
    key = generate_key()
    assert re.fullmatch(rf"sa_{key.id}_[0-9A-Za-z]{{49}}", key.text.get_secret_value())


def test_two_keys_share_nothing():
    first, second = generate_key(), generate_key()
    assert first.id != second.id
    assert first.text != second.text


def test_a_key_is_read_back_with_the_sha_256_of_its_text():
    text = text_of_new_key()
    key = parse_key(text)
    assert (key.id, key.hash) == (text.split("_")[1], sha256(text.encode()).digest())


def test_a_key_is_not_shown_by_accident():
    key = generate_key()
    assert key.text.get_secret_value() not in f"{key!r} {key}"


def test_every_single_wrong_character_is_found():
    text = text_of_new_key()
    for position in range(len("sa_"), len(text)):
        if text[position] == "_":
            continue
        other = ALPHABET[(ALPHABET.index(text[position]) + 1) % len(ALPHABET)]
        with pytest.raises(KeyInvalid):
            parse_key(text[:position] + other + text[position + 1 :])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: "",
        lambda text: text[:-1],
        lambda text: text + "x",
        lambda text: text + "\n",
        lambda text: text.upper(),
        lambda text: text.replace("sa_", "sb_"),
        lambda text: " " + text,
        lambda text: text * 1000,
        lambda text: text.replace("_", "-"),
        lambda text: "sa_\u0000" + text,
    ],
)
def test_what_cannot_be_a_key_is_refused(spoil):
    with pytest.raises(KeyInvalid):
        parse_key(spoil(text_of_new_key()))
