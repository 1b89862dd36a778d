"""Reads `<urlset>` and `<sitemapindex>` documents, whichever of the two their entries belong to.

Plain pages take the fast path, others the strict parser; after an XML error the rest is salvaged
entry by entry, and the document counts as cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial

from lxml import etree

from siteatlas.errors import Truncated, XmlMalformed
from siteatlas.scanner.events import ChildLink
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.entries import (
    WHITE_SPACE,
    Extras,
    RawEntries,
    ReadResult,
    Tally,
    build_columns,
    fault_of_url,
    lastmod_column,
    with_scheme,
)
from siteatlas.scanner.reading.formats.elements import (
    MAX_CACHED_TAG_CHARS,
    MAX_ELEMENTS,
    ElementStream,
    local_name,
    name_of_root,
    prefixes_of_root,
    text_of,
)
from siteatlas.scanner.reading.formats.extensions import (
    MAX_EXTRAS_CHARS,
    in_order,
    read_extension,
    says_deleted,
)
from siteatlas.scanner.reading.formats.fast_path import FastPath
from siteatlas.scanner.reading.formats.salvage import (
    MAX_BROKEN_CHARS,
    Salvage,
    Salvaged,
    start_of_next_entry,
)
from siteatlas.scanner.reading.repair import XmlRepair, split_between_tags, split_if_dense

ENTRIES = ("url", "sitemap")
FIELDS = ("loc", "lastmod", "changefreq", "priority")


class _FieldNumbers(dict[str, int]):
    """The column of a tag inside entries of one namespace, -1 for an extension."""

    def __init__(self, entry_space: str) -> None:
        super().__init__()
        self._entry_space = entry_space

    def __missing__(self, tag: str) -> int:
        name, space = local_name(tag), _space(tag)
        # A misplaced `image:loc` is not a page.
        extensions = ("image", "video", "news", "mobile", "xhtml")
        foreign = space != self._entry_space and any(word in space for word in extensions)
        number = FIELDS.index(name) if name in FIELDS and not foreign else -1
        if len(self) < 256 and len(tag) <= MAX_CACHED_TAG_CHARS:
            self[tag] = number
        return number


def _space(tag: str) -> str:
    """The part before the name: a namespace, or an undeclared prefix."""
    return tag[: -len(local_name(tag))].lower()


def _field_numbers(entry_tag: str) -> _FieldNumbers:
    if len(entry_tag) <= MAX_CACHED_TAG_CHARS:
        return _usual_field_numbers(entry_tag)
    return _FieldNumbers(_space(entry_tag))


@lru_cache(maxsize=64)
def _usual_field_numbers(entry_tag: str) -> _FieldNumbers:
    return _FieldNumbers(_space(entry_tag))


class Urlset:
    """One document: text in, columns and children out. `fast=False` disables the fast path.

    `lists_documents`: its `<url>` elements are children too.
    """

    def __init__(
        self,
        root_tag: str,
        tally: Tally,
        base: str | None = None,
        *,
        fast: bool = True,
        lists_documents: bool = False,
    ) -> None:
        self._lists_documents = lists_documents
        self._tally = tally
        self._base = base
        self._repair = XmlRepair(tally)
        mended = self._repair.mend(root_tag)
        prefixes = prefixes_of_root(mended) if fast else None
        samples = partial(read_samples, mended)
        self._fast_path = None if prefixes is None else FastPath(prefixes, samples)
        self._root_tag = mended
        self._elements = ElementStream(mended, ENTRIES, tally)
        # The text from a broken entry on, and how many more of them do not end parsing.
        self._broken = ""
        self._is_malformed = False
        self._restarts = 100
        self._prefixes = frozenset({name_of_root(root_tag).rpartition(":")[0]})
        self._salvage: Salvage | None = None

    def feed(self, text: str, *, final: bool = False) -> Iterator[ReadResult]:
        """The entries completed by this text; `final` also checks that the document is complete."""
        for part, is_last in split_if_dense(text, "&"):
            is_end = final and is_last
            yield from self._read(self._repair.feed(part, final=is_end), final=is_end)

    def _read(self, text: str, *, final: bool) -> Iterator[ReadResult]:
        if self._fast_path is not None:
            raw = None if final else self._fast_path.feed(text)
            if raw is not None:
                yield ReadResult(build_columns(raw, self._tally, self._base))
                return
            text = self._fast_path.rest + text if final else self._fast_path.rest
            self._fast_path = None
        if self._broken:
            self._broken += text
        elif self._salvage is None or self._elements.root_closed:
            yield from self._parse_text(text, final=final)
            text = ""
        while self._broken and self._salvage is None:
            start = start_of_next_entry(self._broken, self._prefixes) if self._restarts else None
            if start is not None:
                broken, rest, self._broken = self._broken[:start], self._broken[start:], ""
                yield from self._salvage_text(
                    Salvage(self._tally, self._prefixes), broken, final=True
                )
                self._restarts -= 1
                self._elements = ElementStream(self._root_tag, ENTRIES, self._tally)
                yield from self._parse_text(rest, final=final)
                text = ""
            elif final or not self._restarts or len(self._broken) > MAX_BROKEN_CHARS:
                self._salvage = Salvage(self._tally, self._prefixes)
                text, self._broken = self._broken, ""
            else:
                yield ReadResult()
                return
        if self._salvage is not None:
            text = self._elements.take_rest() + text
            yield from self._salvage_text(self._salvage, text, final=final)
        if final and (self._is_malformed or (self._salvage and self._salvage.has_found)):
            yield ReadResult(error=XmlMalformed())

    def flush(self) -> ReadResult:
        """Nothing: only incomplete entries are buffered."""
        return ReadResult()

    def _parse_text(self, text: str, *, final: bool) -> Iterator[ReadResult]:
        result: ReadResult | None = None
        for elements in self._elements.read_parts(text, final=final):
            if result is not None:
                yield result
            if elements:
                self._prefixes = frozenset({elements[-1].prefix or ""})
            result = self._build_result(elements)
            del elements
            self._elements.forget()
        assert result is not None
        # Not `recover=True` of lxml, which silently changes URLs (decision 0007). Some generators
        # append to a finished file: the parser stops at the end of the root, but the entries after
        # it are read too.
        error = self._elements.error
        if isinstance(error, XmlMalformed) or (self._is_malformed and isinstance(error, Truncated)):
            self._is_malformed, self._broken = True, self._elements.take_rest()
        elif self._elements.root_closed and error is None:
            self._salvage = self._salvage or Salvage(self._tally, self._prefixes)
        else:
            result.error = error
        yield result

    def _build_result(self, elements: Sequence[etree._Element]) -> ReadResult:
        children: Sequence[etree._Element] = ()
        if self._lists_documents:
            children, elements = elements, ()
        elif {local_name(tag) for tag in {element.tag for element in elements}} != {"url"}:
            children = [element for element in elements if local_name(element.tag) == "sitemap"]
            elements = [element for element in elements if local_name(element.tag) != "sitemap"]
        raw = _read_elements(elements, self._tally)
        columns = build_columns(raw, self._tally, self._base)
        return ReadResult(columns, _read_children(children, self._tally, self._base))

    def _salvage_text(self, salvage: Salvage, text: str, *, final: bool) -> Iterator[ReadResult]:
        for part, is_last in split_between_tags(text):
            yield self._salvage_part(salvage, part, final=final and is_last)

    def _salvage_part(self, salvage: Salvage, text: str, *, final: bool) -> ReadResult:
        found = salvage.feed(text, final=final)
        if self._lists_documents:
            found = Salvaged(children=[*found.pages, *found.children])
        locs, lastmods, changefreqs, priorities = (
            zip(*found.pages, strict=True) if found.pages else ((),) * 4
        )
        raw = RawEntries(locs, lastmods, changefreqs, priorities)
        columns = build_columns(raw, self._tally, self._base)
        return ReadResult(columns, _build_children(found.children, self._tally, self._base))


def _read_elements(elements: Sequence[etree._Element], tally: Tally) -> RawEntries:
    rows = [_read_entry(element, tally) for element in elements]
    rows = [row for row in rows if row[1] is None or not _is_deleted(*row, tally)]
    if not rows:
        return RawEntries()
    locs, lastmods, changefreqs, priorities = zip(*(values for values, _ in rows), strict=True)
    extras = [extra for _, extra in rows]
    return RawEntries(locs, lastmods, changefreqs, priorities, extras)


def _read_entry(element: etree._Element, tally: Tally) -> tuple[list[str], Extras | None]:
    values = ["", "", "", ""]
    extras: Extras | None = None
    numbers = _field_numbers(element.tag)
    for child in element:
        tag = child.tag
        field = numbers[tag]
        if field < 0:
            if extras is None:
                extras, tally.extras_left = {}, MAX_EXTRAS_CHARS
            read_extension(tag, child, extras, tally)
        elif not values[field]:
            values[field] = (text_of(child) if not field and len(child) else child.text) or ""
        elif not field and (more := text_of(child).strip(WHITE_SPACE)):
            tally.note(ProblemCode.SEVERAL_LOCS, url=values[0], value=more)
    if not values[0]:
        values[0] = _bare_address(element)
    return values, in_order(extras) if extras else None


def _bare_address(element: etree._Element) -> str:
    text = (element.text or "").strip(WHITE_SPACE)
    return text if text and fault_of_url(text) is None else ""


def _is_deleted(values: Sequence[str], extras: Extras | None, tally: Tally) -> bool:
    """Whether an entry of a change list is about a deleted page; it is counted as left out."""
    if not says_deleted(extras):
        return False
    tally.skip(ProblemCode.RESOURCE_DELETED, url=values[0])
    return True


def read_samples(root_tag: str, text: str) -> list[tuple[list[str], Extras | None]] | None:
    """What `_read_entry` returns for each entry in a text; None if anything in it is odd."""
    if text.count("<") > MAX_ELEMENTS:
        return None
    tally = Tally()
    stream = ElementStream(root_tag, ENTRIES, tally)
    # To the end of the document: only there does the parser report undeclared prefixes.
    elements = stream.read(f"{text}</{name_of_root(root_tag)}>", final=True)
    usual = stream.root_closed and stream.error is None and all(map(_is_usual_entry, elements))
    samples = [_read_entry(element, tally) for element in elements] if usual else None
    del elements
    stream.forget()
    return None if tally.problems else samples


def _is_usual_entry(element: etree._Element) -> bool:
    parent = element.getparent()
    return local_name(element.tag) == "url" and parent is not None and parent.getparent() is None


def _read_children(
    elements: Iterable[etree._Element], tally: Tally, base: str | None
) -> list[ChildLink]:
    rows = []
    for element in elements:
        fields = [(local_name(child.tag), text_of(child)) for child in element]
        locs = [text for name, text in fields if name == "loc" and text.strip(WHITE_SPACE)]
        lastmod = next((text for name, text in fields if name == "lastmod"), "")
        if len(locs) > 1:
            tally.note(ProblemCode.SEVERAL_LOCS, len(locs) - 1, url=locs[0], value=locs[1])
        rows += [(loc, lastmod) for loc in locs or [_bare_address(element)]]
    return _build_children(rows, tally, base)


def _build_children(
    rows: Sequence[Sequence[str]], tally: Tally, base: str | None
) -> list[ChildLink]:
    urls = [row[0].strip(WHITE_SPACE) for row in rows]
    places = [place for place, url in enumerate(urls) if _is_child(url, place, tally)]
    kept = [with_scheme(urls[place], base) for place in places]
    lastmods = [rows[place][1] for place in places]
    moments = lastmod_column.column(lastmods, tally.noting(kept, places)) if places else []
    tally.entries += len(rows)
    return [ChildLink(url, moment) for url, moment in zip(kept, moments, strict=True)]


def _is_child(url: str, place: int, tally: Tally) -> bool:
    fault = fault_of_url(url)
    if fault is ProblemCode.RELATIVE_URL:
        tally.note(fault, url=url, place=place)
    elif fault is not None:
        tally.skip(fault, url=url or None, place=place)
        return False
    return True
