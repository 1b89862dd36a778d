"""Strict, streaming XML: text in, finished elements of one name out, each dropped after use.

The parser never sees a prolog or a DTD, never resolves anything, and its memory stays bounded. It
keeps names in a dictionary of the document, see `NameDictionary`.
"""

from __future__ import annotations

import gc
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
from siteatlas.scanner.reading.repair import CDATA_START, split_text

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
USUAL_ELEMENT_CHARS = 64 * 1024
# A tag in which another begins. The parser waits for the end of such a tag, if need be for ever.
_find_sections_and_broken_tags = re.compile(
    r"""<(?:!--.*?(?:-->|\Z)|!\[CDATA\[.*?(?:\]\]>|\Z)|\?.*?(?:\?>|\Z)"""
    r"""|(?![!?])[^<>"']*+(?:"[^"<]*+"[^<>"']*+|'[^'<]*+'[^<>"']*+)*(?:"[^"<]*+|'[^'<]*+|)(<))""",
    re.DOTALL,
).finditer
# What is cached stays, so that long texts of one document would take the memory of all.
MAX_CACHED_ROOT_CHARS, MAX_CACHED_TAG_CHARS = 4096, 200


class ElementStream:
    """The elements of one document. After `read`, `error` says whether it ended early, and why."""

    def __init__(self, root_tag: str, names: Sequence[str], tally: Tally) -> None:
        self._tally = tally
        self._entry_names = frozenset(names)
        self._entry_tags = _tag_patterns(*names)
        self._tags = _tag_patterns(*names, name_of_root(root_tag).rpartition(":")[2])
        self._usual_name = ""
        self._find_starts = re.compile(rf"<(?:[\w.-]+:)?(?:{'|'.join(names)})[\s>]").findall
        self._root_tag = root_tag
        self._has_begun = False
        self._names = NameLimit()
        self._dictionary = NameDictionary()
        self.root_closed = False
        self._parsing_ended = False
        # The text from the end of an element on, and how many elements were returned from it.
        self._recent = ""
        self._returned = 0
        self._checked_chars = USUAL_ELEMENT_CHARS
        self._last: etree._Element | None = None
        self._problem: ProblemCode | None = None
        self.error: ScanError | None = None

    def read(self, text: str, *, final: bool = False) -> list[etree._Element]:
        """The elements that this text completes; valid only until `forget` or the next call."""
        self._check(text)
        return self._read_checked(text, final=final)

    def read_parts(self, text: str, *, final: bool = False) -> Iterator[list[etree._Element]]:
        """The same part by part, each of which takes little time; the text splits no tag.

        Of an entry with very many elements only the first are kept, which counts as a problem. One
        with very many children ends parsing: its address may be any of them.
        """
        self._check(text)
        for part, is_last in split_text(text, "<"):
            # No variable: it would keep the elements from being freed by `forget`.
            yield self._limit_size(self._read_checked(part, final=final and is_last))

    def take_rest(self) -> str:
        """The text behind the last element that was returned, as far as it was not taken before."""
        self._forget_read_text(exactly=True)
        rest, self._recent = self._recent, ""
        return rest

    def _check(self, text: str) -> None:
        """End parsing at an extreme tag.

        The text is checked before it is split, because names are counted only in a sample of texts.
        """
        if not self._has_begun:
            text = self._root_tag + text
        if self._may_go_on and (has_extreme_tag(text) or not self._names.allows(text)):
            self._parsing_ended, self.error = True, None if self.root_closed else XmlLimits()

    @property
    def _may_go_on(self) -> bool:
        return self.error is None and not self._parsing_ended

    def _read_checked(self, text: str, *, final: bool) -> list[etree._Element]:
        self._recent += text
        if not self._may_go_on:
            return []
        data = text.encode()
        if not self._has_begun:
            data, self._has_begun = self._root_tag.encode() + data, True
        with self._dictionary:
            if self.root_closed:
                elements, self._parsing_ended = [], self._feed(data, final=final) is not None
            else:
                elements = self._parse(data, final=final)
            if final or not self._may_go_on:
                self.__dict__.pop("_parser", None)
        if self._problem is not None:
            self._tally.note(self._problem)
            self._problem = None
        return elements

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
        self._returned += len(elements)
        if elements:
            prefix, tag = elements[-1].prefix, elements[-1].tag.rpartition("}")[2]
            self._usual_name = f"{prefix}:{tag}" if prefix else tag
            if not (failure or nested or self.root_closed):
                self._forget_read_text()
        failure = failure or self._error_of_size()
        if nested:
            self._problem, self.root_closed = None, False
        is_broken = isinstance(failure, Truncated | XmlLimits) and _has_broken_tag(self._recent)
        # Elements without ends are nested too deep.
        is_deep = isinstance(failure, XmlLimits) and len(self._find_starts(self._recent)) > 64
        if nested or is_broken or is_deep:
            failure = XmlMalformed()
        self._parsing_ended = failure is not None
        if not self.root_closed:
            self.error = failure
        return elements

    def _forget_read_text(self, *, exactly: bool = False) -> None:
        """Drop the text of the elements that were returned, where it is easily told or long."""
        if not self._returned:
            return
        tag = f"</{self._usual_name}>"
        end = self._recent.rfind(tag) + len(tag)
        starts, ends = self._recent.count(f"<{self._usual_name}", 0, end), self._recent.count(tag)
        if exactly or not starts == ends == self._returned:
            if not exactly and len(self._recent) <= USUAL_ELEMENT_CHARS:
                return
            with NameDictionary():
                end = self._end_of_returned()
        self._recent, self._returned = self._recent[end:], 0
        self._checked_chars = USUAL_ELEMENT_CHARS

    def _end_of_returned(self) -> int:
        """Where the last element ends that was returned from the recent text: it is read again."""
        parser, start = self._new_parser(), 0
        parser.feed(self._root_tag.encode())
        for end in re.finditer(">", self._recent):
            try:
                parser.feed(self._recent[start : end.end()].encode())
            except etree.XMLSyntaxError:  # the end of an element around those of this text
                parser = self._new_parser()
                parser.feed(self._root_tag.encode())
            start = end.end()
            events: Iterable[tuple[str, Any]] = parser.read_events()
            self._returned -= sum(not self._is_part(element) for _, element in events)
            if self._returned <= 0:
                break
        # A parser and its root refer to each other, and only a few bytes of such a tree are Python
        # objects: without this, the trees that were dropped here would stay for long.
        del parser
        gc.collect(1)
        return start

    def _error_of_size(self) -> ScanError | None:
        size = len(self._recent)
        if size > 1024 * 1024:
            return XmlLimits()
        if size > self._checked_chars:
            self._checked_chars *= 2
            return XmlMalformed() if _has_broken_tag(self._recent) else None
        return None

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
        return self._new_parser()

    def _new_parser(self) -> etree.XMLPullParser:
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
            self._problem = ProblemCode.CONTENT_AFTER_END
        elif code == UNDECLARED_PREFIX:
            self._problem = ProblemCode.NAMESPACE
        # A name that is too long, or a resource limit.
        return XmlLimits() if code in (110, 114) else XmlMalformed()

    def _finished(self) -> tuple[list[etree._Element], bool]:
        """The complete entries, and whether one is nested in another, whose end tag is missing."""
        events: Iterable[tuple[str, Any]] = self._parser.read_events()
        elements: list[etree._Element] = [element for _, element in events]
        if elements and elements[-1].getparent() is None:
            self.root_closed = True
            elements.pop()
        # One look for a chunk in which all elements have the same tag and parent, as usual.
        parents = set(map(etree._Element.getparent, elements))  # noqa: SLF001
        is_usual = len({one.tag for one in elements}) == len(parents) == 1
        is_usual = is_usual and CDATA_START not in self._recent
        whole = elements
        if elements and not (is_usual and self._is_entry(elements[-1])):
            elements = [element for element in elements if not self._is_part(element)]
            whole = list(takewhile(self._is_entry, elements))
        nested, elements = len(whole) < len(elements), whole
        self._last = elements[-1] if elements else None
        return elements, nested

    def _is_part(self, element: etree._Element) -> bool:
        """Whether an element is part of an entry, in another namespace, such as `video:url`."""
        if local_name(element.tag) not in self._entry_names:
            return True
        space = _namespace(element.tag)
        around = element.iterancestors(*self._entry_tags)
        return any(_namespace(entry.tag) != space for entry in around)

    def _is_entry(self, element: etree._Element) -> bool:
        """Whether an element is neither part of an entry, inside one, nor several in one."""
        if self._is_part(element) or any(True for _ in element.iterancestors(*self._entry_tags)):
            return False
        # A CDATA section without an end swallows all up to the end of the next one, with end tags.
        locs = (child.text or "" for child in element if local_name(child.tag) == "loc")
        return not any(
            "</" in text.partition(CDATA_START)[0] for text in locs if CDATA_START in text
        )

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


def _has_broken_tag(text: str) -> bool:
    return any(match[1] for match in _find_sections_and_broken_tags(text))


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
