"""Strict, streaming XML: text in, finished elements of one name out, each dropped after use.

The parser never sees a prolog or a DTD, never resolves anything, and its memory stays bounded. It
keeps names in a dictionary of the document, see `NameDictionary`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import islice, takewhile
from typing import Any

from lxml import etree

from siteatlas.errors import ScanError, Truncated, XmlLimits, XmlMalformed
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.entries import Tally
from siteatlas.scanner.reading.head import NameDictionary
from siteatlas.scanner.reading.repair import split_text

# Checking all of the text would take a quarter more CPU than reading it does. On average half of
# this is skipped between two checks, at most all of it; which part is not predictable.
MAX_SKIPPED_CHARS = 2 * 1024 * 1024

BLANK = r" \t\r\n"
_find_tag_names = re.compile(rf"<([^{BLANK}<>/!][^{BLANK}<>/]*+)").findall
_find_attribute_names = re.compile(
    rf"""[{BLANK}]([^{BLANK}=<>/"']++)[{BLANK}]*+=[{BLANK}]*+["']"""
).findall
# The blank in front keeps a long word of `xmlns` from being searched to its end by each of them.
NAMESPACE = re.compile(
    rf"""xmlns(?<=[{BLANK}]xmlns)[^{BLANK}=<>"']*+[{BLANK}]*+=[{BLANK}]*+("[^"]*+"|'[^']*+')"""
)
_find_blanks = re.compile(rf">([{BLANK}]{{16,59}}+)<").findall


class NameLimit:
    """The names in those parts of one document that were checked."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._skip_chars = secrets.randbelow(MAX_SKIPPED_CHARS) + 1
        self._check_chars = 0

    def allows(self, text: str) -> bool:
        """Whether the document may continue with this text, which splits no tag."""
        if not self._is_due(len(text)):
            return True
        known = len(self._names)
        self._names.update(*_names_in(text))
        return len(self._names) == known or self._is_within_limits()

    def _is_due(self, chars: int) -> bool:
        if self._skip_chars > 0:
            self._skip_chars -= chars
            if self._skip_chars > 0:
                return False
            # What one check looks at, in however small pieces it arrives; usual ones are larger.
            self._check_chars = 48 * 1024
        self._check_chars -= chars
        if self._check_chars <= 0:
            self._skip_chars = secrets.randbelow(MAX_SKIPPED_CHARS) + 1
        return True

    def _is_within_limits(self) -> bool:
        return len(self._names) <= 2000 and sum(map(len, self._names)) <= 128 * 1024


def _names_in(text: str) -> Iterator[list[str]]:
    """All texts in this XML that libxml2 stores in its dictionary of names."""
    yield _find_tag_names(text)
    yield _find_attribute_names(text)
    yield _find_blanks(text)
    if "xmlns" in text:
        yield NAMESPACE.findall(text)


# Of an entry, which is interpreted in one step. Google allows 1,000 images, which have five fields.
MAX_ELEMENTS = 8000
_find_long_name = re.compile(r"<[^ \t\r\n<>/!?][^ \t\r\n<>/]{200}").search
# The parser repeats the namespace in the tag of each element. The blank in front, looked for last
# because it is frequent, keeps a long word of `xmlns` from being searched to its end by each.
_find_long_namespace = re.compile(
    r"""xmlns(?<=\sxmlns)[^\s=<>"']*+\s*+=\s*+(?:"[^"<]{1024}|'[^'<]{1024})"""
).search
MAX_ATTRIBUTES = 256
_find_too_many_attributes = re.compile(
    r"""<[^\s<>/]++(?:\s++[^\s=<>/]++\s*+=\s*+(?:"[^"<]*+"|'[^'<]*+'))"""
    rf"{{{MAX_ATTRIBUTES + 1}}}"
).search
# Two cheap looks before that one: so many attributes need as many `=` and a long tag.
_find_long_tag = re.compile(rf"<[^<]{{{5 * MAX_ATTRIBUTES}}}").search
# The error of libxml2 for a tag whose prefix has no namespace.
UNDECLARED_PREFIX = 201
# What is cached stays, so that long texts of one document would take the memory of all.
MAX_CACHED_ROOT_CHARS, MAX_CACHED_TAG_CHARS = 4096, 200


class ElementStream:
    """The elements of one document. After `read`, `error` says whether it ended early, and why."""

    def __init__(self, root_tag: str, names: Sequence[str], tally: Tally) -> None:
        self._tally = tally
        self._entry_names = frozenset(names)
        self._entry_tags = _tag_patterns(*names)
        self._tags = _tag_patterns(*names, name_of_root(root_tag).rpartition(":")[2])
        self._root_tag: str | None = root_tag
        self._names = NameLimit()
        self._dictionary = NameDictionary()
        self.root_closed = False
        self._parsing_ended = False
        self._bytes_since_element = 0
        self._last: etree._Element | None = None
        self.error: ScanError | None = None

    def read(self, text: str, *, final: bool = False) -> list[etree._Element]:
        """The elements that this text completes; valid only until `forget` or the next call."""
        text = self._checked(text)
        return self._read_checked(text, final=final)

    def read_parts(self, text: str, *, final: bool = False) -> Iterator[list[etree._Element]]:
        """The same part by part, each of which takes little time; the text splits no tag.

        Of an entry with very many elements only the first are kept, which counts as a problem. One
        with very many children ends parsing: its address may be any of them.
        """
        text = self._checked(text)
        for part, is_last in split_text(text, "<"):
            # No variable: it would keep the elements from being freed by `forget`.
            yield self._limit_size(self._read_checked(part, final=final and is_last))
            if self.error is not None:
                return

    def _checked(self, text: str) -> str:
        """The text to parse, after the root tag if it is the first; ends parsing at an extreme tag.

        The text is checked before it is split, because names are counted only in a sample of texts.
        """
        if self._root_tag is not None:
            text, self._root_tag = self._root_tag + text, None
        if self._may_go_on and (has_extreme_tag(text) or not self._names.allows(text)):
            self._parsing_ended, self.error = True, None if self.root_closed else XmlLimits()
        return text

    @property
    def _may_go_on(self) -> bool:
        return self.error is None and not self._parsing_ended

    def _read_checked(self, text: str, *, final: bool) -> list[etree._Element]:
        if not self._may_go_on:
            return []
        with self._dictionary:
            if not self.root_closed:
                return self._parse(text.encode(), final=final)
            self._parsing_ended = self._feed(text.encode(), final=final) is not None
            return []

    def forget(self) -> None:
        """Free the elements that were read; no reference to one may be kept.

        A chunk of 64 KiB becomes a tree of half a mebibyte, and the next chunk may arrive late.
        """
        with self._dictionary:
            self._forget_last()

    def _parse(self, data: bytes, *, final: bool) -> list[etree._Element]:
        self._forget_last()
        failure = self._feed(data, final=final)
        elements, nested = self._finished()
        failure = XmlMalformed() if nested else failure
        self._parsing_ended = failure is not None
        self._bytes_since_element = 0 if elements else self._bytes_since_element + len(data)
        if not self.root_closed:
            too_much = self._bytes_since_element > 1024 * 1024
            self.error = failure or (XmlLimits() if too_much else None)
        return elements

    def _limit_size(self, entries: list[etree._Element]) -> list[etree._Element]:
        """Drop what the children of the first entry of a part contain behind its first elements.

        The others began in the same part, which has not so many elements.
        """
        if not entries:
            return entries
        if len(entries[0]) > MAX_ELEMENTS:
            self._parsing_ended, self.error = True, XmlLimits()
            return []
        first_beyond = next(islice(entries[0].iter(), MAX_ELEMENTS, None), None)
        if first_beyond is not None:
            self._tally.note(ProblemCode.EXTRAS_CUT)
            with self._dictionary:
                _drop_after(first_beyond, entries[0])
        return entries

    @cached_property
    def _parser(self) -> etree.XMLPullParser:
        return etree.XMLPullParser(
            events=("end",),
            tag=self._tags,
            encoding="utf-8",
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
            huge_tree=False,
            remove_comments=True,
            remove_pis=True,
        )

    def _feed(self, data: bytes, *, final: bool) -> ScanError | None:
        try:
            self._parser.feed(data)
        except etree.XMLSyntaxError as syntax_error:
            return self._error_for(syntax_error)
        if not final:
            return None
        self._close()
        return Truncated()

    def _close(self) -> None:
        """Close the parser; it reports undeclared prefixes only now."""
        try:
            self._parser.close()
        except etree.XMLSyntaxError as syntax_error:
            self._error_for(syntax_error)

    def _error_for(self, syntax_error: etree.XMLSyntaxError) -> ScanError:
        code = getattr(syntax_error, "code", None)
        if code == 2:  # out of memory, also for a dictionary that is full
            raise MemoryError
        if code == 5:  # content after the end
            self._tally.note(ProblemCode.CONTENT_AFTER_END)
        elif code == UNDECLARED_PREFIX:
            self._tally.note(ProblemCode.NAMESPACE)
        # A name that is too long, or a resource limit.
        return XmlLimits() if code in (110, 114) else XmlMalformed()

    def _finished(self) -> tuple[list[etree._Element], bool]:
        """The complete entries, and whether one is nested in another, whose end tag is missing."""
        events: Iterable[tuple[str, Any]] = self._parser.read_events()
        elements: list[etree._Element] = [element for _, element in events]
        if elements and elements[-1].getparent() is None:
            self.root_closed = True
            elements.pop()
        # One look for a chunk in which all elements have the same tag, as usual.
        if elements and (len({one.tag for one in elements}) > 1 or self._is_part(elements[-1])):
            elements = [element for element in elements if not self._is_part(element)]
        nested = bool(elements) and _is_nested(elements[-1])
        if nested:
            elements = list(takewhile(lambda element: not _is_nested(element), elements))
        self._last = elements[-1] if elements else None
        return elements, nested

    def _is_part(self, element: etree._Element) -> bool:
        """Whether an element is part of an entry, in another namespace, such as `video:url`."""
        if local_name(element.tag) not in self._entry_names:
            return True
        space = _namespace(element.tag)
        around = element.iterancestors(*self._entry_tags)
        return any(_namespace(entry.tag) != space for entry in around)

    def _forget_last(self) -> None:
        """Free all before the last finished element, on every level; the parser still holds it."""
        if self._last is None:
            return
        self._last.clear()
        node = self._last
        while (parent := node.getparent()) is not None:
            del parent[: parent.index(node)]
            node = parent


def name_of_root(root_tag: str) -> str:
    """The name of the root element of an XML format, with its prefix, as written."""
    return root_tag[1:].split(None, 1)[0].rstrip("/>")


def prefixes_of_root(root_tag: str) -> frozenset[str] | None:
    """The prefixes that a start tag declares; None if it is malformed, self-closing or extreme."""
    if len(root_tag) <= MAX_CACHED_ROOT_CHARS:
        return _prefixes_of_usual_root(root_tag)
    return _prefixes_of_root(root_tag)


def _prefixes_of_root(root_tag: str) -> frozenset[str] | None:
    if root_tag.endswith("/>") or has_extreme_tag(root_tag):
        return None
    with NameDictionary():
        return _parsed_prefixes(f"{root_tag[:-1]}/>")


_prefixes_of_usual_root = lru_cache(maxsize=256)(_prefixes_of_root)


def _parsed_prefixes(document: str) -> frozenset[str] | None:
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    try:
        root = etree.fromstring(document.encode(), parser)
    except etree.XMLSyntaxError as failure:
        return frozenset() if getattr(failure, "code", None) == UNDECLARED_PREFIX else None
    return frozenset(prefix for prefix in root.nsmap if prefix)


def has_extreme_tag(text: str) -> bool:
    """Whether a tag has a name or namespace too long, or too many attributes, for the parser."""
    return (
        _find_long_name(text) is not None
        or ("xmlns" in text and _find_long_namespace(text) is not None)
        or _has_too_many_attributes(text)
    )


def _has_too_many_attributes(text: str) -> bool:
    return (
        text.count("=") > MAX_ATTRIBUTES
        and _find_long_tag(text) is not None
        and _find_too_many_attributes(text) is not None
    )


def _is_nested(element: etree._Element) -> bool:
    return any(True for _ in element.iterancestors(element.tag))


def _drop_after(node: etree._Element, entry: etree._Element) -> None:
    """Remove all that an entry contains behind the start of a descendant, but not its children.

    Its address can be the last of them.
    """
    del node[:]
    while (parent := node.getparent()) is not None and parent is not entry:
        del parent[parent.index(node) + 1 :]
        node = parent
    for child in node.itersiblings():
        del child[:]


def _tag_patterns(*names: str) -> list[str]:
    variants = {variant for name in names for variant in (name, name.upper(), name.capitalize())}
    return [f"{{*}}{variant}" for variant in sorted(variants)]


def _namespace(tag: str) -> str:
    return tag.rpartition("}")[0]


def local_name(tag: str) -> str:
    """The name of a tag in lower case, without namespace and prefix."""
    return _usual_local_name(tag) if len(tag) <= MAX_CACHED_TAG_CHARS else _local_name(tag)


def _local_name(tag: str) -> str:
    return tag.rpartition("}")[2].rpartition(":")[2].lower()


_usual_local_name = lru_cache(maxsize=1024)(_local_name)


def text_of(element: etree._Element) -> str:
    """All text inside an element; empty if there is none."""
    if len(element):
        return "".join(str(part) for part in element.itertext())
    return element.text or ""
