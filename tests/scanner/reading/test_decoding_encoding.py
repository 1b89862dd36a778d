"""Bytes to text: marks, declarations, headers, and documents that lie about themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siteatlas.scanner.reading.decoding import TextDecoder
from siteatlas.scanner.reading.entries import Tally


def text_of(
    content: bytes, *, charset: str | None = None, chunk: int = 5
) -> tuple[str, dict[str, int]]:
    tally = Tally()
    decoder = TextDecoder(charset, tally)
    parts = [
        decoder.decode(content[start : start + chunk]) for start in range(0, len(content), chunk)
    ]
    return "".join([*parts, decoder.decode(b"", final=True)]), tally.counts()


NOT_UTF_8 = {"encoding_not_utf8": 1}
LABELS = [
    None,
    "utf-8",
    "latin-1",
    "gbk",
    "utf-16",
    "iso-2022-jp",
    "big5",
    "euc-kr",
    "x-mac-cyrillic",
]
LONG = "<urlset>" + "ü€語" * 200


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig"])
def test_utf_8_is_no_problem(codec):
    assert text_of(LONG.encode(codec)) == (LONG, {})


@pytest.mark.parametrize("codec", ["utf-16", "utf-32"])
def test_reads_unicode_by_its_byte_order_mark(codec):
    assert text_of(LONG.encode(codec)) == (LONG, NOT_UTF_8)


def test_ascii_declared_as_latin_1_is_utf_8_as_well():
    text = '<?xml version="1.0" encoding="iso-8859-1"?>' + "plain" * 80
    assert text_of(text.encode()) == (text, {})


def test_the_sample_of_another_encoding_is_its_name():
    tally = Tally()
    TextDecoder(None, tally).decode(LONG.encode("utf-16"), final=True)
    assert [sample.value for sample in tally.kept_samples()["encoding_not_utf8"]] == ["utf-16-le"]


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_reads_utf_16_without_a_mark(codec):
    assert text_of(LONG.encode(codec)) == (LONG, NOT_UTF_8)


@pytest.mark.parametrize(
    ("codec", "words"),
    [("windows-1251", "привет"), ("iso-8859-2", "zażółć"), ("shift_jis", "日本"), ("gbk", "中文")],
)
def test_reads_the_declared_encoding(codec, words):
    text = f'<?xml version="1.0" encoding="{codec}"?>{words * 80}'
    assert text_of(text.encode(codec)) == (text, NOT_UTF_8)


@pytest.mark.parametrize(
    ("label", "codec", "words"),
    [
        ("x-sjis", "shift_jis", "日本"),
        ("ks_c_5601-1989", "euc-kr", "한국"),
        ("x-cp1251", "cp1251", "привет"),
        ("ISO-2022-JP", "iso2022_jp", "日本"),
        ("EUC_KR", "euc-kr", "한국"),
        ("koi8", "koi8-r", "привет"),
    ],
)
def test_reads_an_encoding_by_any_label_that_browsers_know(label, codec, words):
    text = f'<?xml version="1.0" encoding="{label}"?>{words * 80}'
    assert text_of(text.encode(codec)) == (text, NOT_UTF_8)


@pytest.mark.parametrize("label", ["latin-1", "L1", "iso8859-1", "us-ascii", "windows-1252"])
def test_every_label_of_latin_1_means_windows_1252(label):
    text = f'<?xml version="1.0" encoding="{label}"?>' + "„grün“" * 80
    assert text_of(text.encode("cp1252")) == (text, NOT_UTF_8)


@pytest.mark.parametrize("label", ["replacement", "iso-2022-kr", "x-user-defined"])
def test_a_label_that_browsers_refuse_is_unknown(label):
    text = f'<?xml version="1.0" encoding="{label}"?>' + "ü" * 200
    assert text_of(text.encode()) == (text, {"encoding_unknown": 1})


def test_reads_the_encoding_of_the_http_header():
    text = "<urlset>" + "привет" * 80
    assert text_of(text.encode("cp1251"), charset="windows-1251") == (
        text,
        NOT_UTF_8,
    )


def test_the_declaration_counts_more_than_the_header():
    text = '<?xml version="1.0" encoding="utf-8"?>' + "ü" * 300
    assert text_of(text.encode(), charset="windows-1251") == (text, {"encoding_conflict": 1})


def test_latin_1_bytes_declared_as_utf_8_are_read_and_counted():
    text = '<?xml version="1.0" encoding="utf-8"?>' + "grün–" * 80
    assert text_of(text.encode("cp1252")) == (text, {"encoding_lie": 1})


def test_utf_8_bytes_declared_as_latin_1_are_read_and_counted():
    text = '<?xml version="1.0" encoding="iso-8859-1"?>' + "grün" * 80
    assert text_of(text.encode()) == (text, {"encoding_lie": 1})


def test_declared_latin_1_is_read_as_such():
    text = '<?xml version="1.0" encoding="iso-8859-1"?>' + "grün" * 80
    assert text_of(text.encode("latin-1")) == (text, NOT_UTF_8)


@pytest.mark.parametrize("chunk", [1, 3, 1000])
@pytest.mark.parametrize(
    ("wrong", "text"),
    [(b'AAA \x1b$B$"\x1b(B BBB \xff', "AAA あ BBB ÿ"), (b'AAA \x1b$B$"\xff$"\x1b(B', "AAA あÿあ")],
)
def test_a_wrong_byte_does_not_change_what_is_before_it(wrong: bytes, text: str, chunk: int):
    head = "<?xml version='1.0' encoding='iso-2022-jp'?>" + " " * 300
    tally = Tally()
    decoder = TextDecoder(None, tally)
    parts = [decoder.decode(head.encode())]
    parts += [decoder.decode(wrong[at : at + chunk]) for at in range(0, len(wrong), chunk)]
    assert "".join([*parts, decoder.decode(b"", final=True)]) == head + text
    assert tally.counts()["encoding_lie"] == 1


def test_an_unknown_encoding_is_read_as_utf_8_and_counted():
    text = '<?xml version="1.0" encoding="klingon"?>' + "ü" * 200
    assert text_of(text.encode()) == (text, {"encoding_unknown": 1})


@pytest.mark.parametrize("name", ["zlib", "base64", "rot13", "unicode_escape", "punycode"])
def test_a_codec_that_is_no_character_set_is_never_used(name):
    text = f'<?xml version="1.0" encoding="{name}"?>' + "a" * 300
    assert text_of(text.encode()) == (text, {"encoding_unknown": 1})


@pytest.mark.parametrize("wrong", [b"\xed\xa0\x80", b"\xc0\xaf"])
def test_disguised_surrogates_and_overlong_forms_become_the_replacement_character(wrong):
    text, problems = text_of(b"<urlset>" + b"a" * 300 + wrong + b"b")
    assert text.endswith("a\ufffdb")
    assert problems == {"encoding_lie": 1}


@given(st.binary(max_size=600), st.sampled_from(LABELS))
def test_never_fails_and_never_gives_lone_surrogates(content, charset):
    text, _ = text_of(content, charset=charset)
    text.encode()
