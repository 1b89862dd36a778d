"""Judges the markup of a document, which its entries no longer show: elements and attributes.

Reads the decoded text beside the reader, whole entries at a time. Names are looked up in a set, so
that a document of the usual elements costs one pass. Feeds and text lists have no such markup.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html.entities import html5

from siteatlas.findings.judging import Notes, Sample
from siteatlas.findings.positions import TextPlace
from siteatlas.findings.vocabulary import allows_attribute, missing_attribute, words

MAX_HELD_CHARS = 1024 * 1024
# By a part of the namespace, and by the usual prefix where the root does not declare it.
_EXTENSIONS = ("image", "video", "news", "mobile", "xhtml")
_PAGEMAP = frozenset({"pagemap", "dataobject", "attribute"})
# An element, whether it closes itself, and whether its end follows at once.
_ELEMENTS = re.compile(r"<(/?[^\s>/!?]+)[^>]*?(/?)>\s*(?=(</)?)")
_find_version = re.compile(r"""<\?xml\s+version\s*=\s*["'](?!1\.0["'])([^"']+)""").search
_find_root = re.compile(r"<(?:([\w.-]+):)?(urlset|sitemapindex)\b[^>]*>").search
_find_tags = re.compile(r"<([^/!?>\s][^>]*)>").findall
_split_tag = re.compile(r"(?:([^\s:/]+):)?([^\s:/]+)\s*(.*?)\s*/?", re.DOTALL).fullmatch
_find_attributes = re.compile(r"""([^\s=]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""").findall
_find_namespaces = re.compile(r"""xmlns:([\w.-]+)\s*=\s*["']([^"']*)["']""").findall
# Those of numbers are left to the reader.
_find_references = re.compile(
    r"&(?!#(?:[0-9]{1,8}|[xX][0-9a-fA-F]{1,7});)(?:([A-Za-z][A-Za-z0-9]{1,31});|[^\s<>\"'&;]{0,40})"
).finditer
_sections = re.compile(r"<!--.*?-->|<!\[CDATA\[.*?\]\]>", re.DOTALL)
_not_line_ends = re.compile(r"[^\r\n]")
# Most entries of a document are of few shapes.
MAX_SHAPES = 1000
_Shape = tuple[tuple[str, str, str], ...]


class MarkupJudge:
    """The text of one document in, findings into its notes."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._place = TextPlace()
        self._held = ""
        self._root = ""
        self._is_off = False
        self._known: set[str] = set()
        self._find_unknown = re.compile("<").search
        self._extensions: dict[str, str] = {}
        self._shapes: dict[_Shape, list[tuple[str, int]]] = {}

    def feed(self, text: str, *, final: bool = False) -> None:
        """Judge the entries that this text completes."""
        if self._is_off:
            return
        self._held += text
        if not self._root and not self._begin():
            self._is_off = final or len(self._held) > MAX_HELD_CHARS
            self._held = "" if self._is_off else self._held
            return
        cut = len(self._held) if final else self._end_of_entries()
        if not cut:
            self._is_off = len(self._held) > MAX_HELD_CHARS
            return
        chunk, self._held = self._held[:cut], self._held[cut:]
        plain = _sections.sub(_blank, chunk) if "<!" in chunk else chunk
        self._judge(plain)
        self._place.advance(chunk)

    def _begin(self) -> bool:
        root = _find_root(_sections.sub(_blank, self._held) if "<!" in self._held else self._held)
        if root is None:
            return False
        prefix = f"{root[1]}:" if root[1] else ""
        self._root = root[2]
        self._entry = entry = "url" if self._root == "urlset" else "sitemap"
        self._entry_end = f"</{prefix}{entry}>"
        # Without an alternative for the start, so that the search is one for the end tag.
        behind = rf"\s*<(?!/?{re.escape(prefix)}{entry}[\s>/])([^/!?>\s]+)"
        self._match_outside = re.compile(behind).match
        self._find_outside = re.compile(re.escape(self._entry_end) + behind).finditer
        self._extensions = {name: name for name in _EXTENSIONS} | {root[1] or "": ""}
        for name, space in _find_namespaces(root[0]):
            kinds = [kind for kind in _EXTENSIONS if kind in space.lower()]
            self._extensions[name] = kinds[0] if kinds else self._extensions.get(name, "?")
            if not kinds and name != (root[1] or ""):
                self._extensions[name] = "?"
        head = self._held[: root.end()]
        if version := _find_version(head):
            self._note("xml-version", version[1], head, version.start(1))
        self._place.advance(head)
        self._held = self._held[root.end() :]
        return True

    def _end_of_entries(self) -> int:
        cut = self._held.rfind(self._entry_end) + 1
        if not cut:
            return 0
        cut += len(self._entry_end) - 1
        for start, end in (("<!--", "-->"), ("<![CDATA[", "]]>")):
            opened = self._held.rfind(start, 0, cut)
            if opened > self._held.rfind(end, 0, cut):
                cut = self._held.rfind(self._entry_end, 0, opened) + 1
                cut = cut and cut + len(self._entry_end) - 1
        return cut

    def _judge(self, chunk: str) -> None:
        if self._find_unknown(chunk):
            for tag, count in Counter(_find_tags(chunk)).items():
                if tag not in self._known:
                    self._judge_tag(tag, count, chunk)
            names = "|".join(map(re.escape, sorted(self._known)))
            self._find_unknown = re.compile(rf"<(?![/!?]|(?:{names})>)").search
        self._judge_shapes(chunk)
        for match in (self._match_outside(chunk), *self._find_outside(chunk)):
            if match is None:
                continue
            prefix = match[1].rpartition(":")[0]
            if self._extensions.get(prefix, "?") in _EXTENSIONS:
                self._note("extension-outside-url", f"<{match[1]}>", chunk, match.start(1) - 1)
        if chunk.count("&") > chunk.count("&amp;"):
            self._judge_references(chunk)

    def _judge_references(self, chunk: str) -> None:
        for match in _find_references(chunk):
            name = match[1]
            if name is None or f"{name};" not in html5:
                self._note("bare-ampersand", match[0], chunk, match.start())
            elif name not in {"amp", "lt", "gt", "quot", "apos"}:
                self._note("html-entity", match[0], chunk, match.start())

    def _judge_tag(self, tag: str, count: int, chunk: str) -> None:
        match = _split_tag(tag)
        if match is None:
            return
        prefix, name, attributes = match[1] or "", match[2], match[3]
        kind = self._extensions.get(prefix, "?")
        if kind == "?" or name.lower() in _PAGEMAP:
            return
        fault, value = "", f"<{prefix}:{name}>" if prefix else f"<{name}>"
        listed = words("elements")
        if name in listed.get(f"dropped_{kind}", ()):
            fault = f"{kind}-tag-dropped"
        elif name not in listed[kind or self._root]:
            fault = "element-unknown"
        elif attributes and (bad := next(_bad_attributes(f"{kind}:{name}", attributes), "")):
            fault, value = "attribute-invalid", bad
        elif missing := missing_attribute(f"{kind}:{name}", attributes):
            fault, value = "attribute-missing", f"{value} without {missing}"
        elif name == "player_loc" and (old := re.search("(?:allow_embed|autoplay)=", attributes)):
            fault, value = "video-tag-dropped", f"{value} with {old[0][:-1]}"
        if fault:
            is_shown = not self._notes.is_full(fault)
            self._note(fault, value, chunk, chunk.find(f"<{tag}>") if is_shown else 0, count)
        elif not attributes and len(self._known) < 100:
            self._known.add(tag)

    def _judge_shapes(self, chunk: str) -> None:
        start = 0
        for entry in chunk.split(self._entry_end):
            shape = tuple(_ELEMENTS.findall(entry))
            faults = self._shapes.get(shape)
            if faults is None:
                faults = self._faults_of(shape)
                if len(self._shapes) < MAX_SHAPES:
                    self._shapes[shape] = faults
            if faults:
                places = [match.start() for match in _ELEMENTS.finditer(entry)]
                for code, place in faults:
                    self._note(code, f"<{shape[place][0]}>", chunk, start + places[place])
            start += len(entry) + len(self._entry_end)

    def _faults_of(self, shape: _Shape) -> list[tuple[str, int]]:
        """What is wrong with the elements of an entry, and at which of them."""
        outer: list[tuple[str, str, int]] = []
        faults: list[tuple[str, int]] = []
        seen: set[tuple[int, str]] = set()
        for place, (tag, closed, ended) in enumerate(shape):
            if tag.startswith("/"):
                _, opened, start = outer.pop() if outer else ("", tag[1:], 0)
                if opened != tag[1:]:
                    return []
                continue
            prefix, _, name = tag.rpartition(":")
            kind = self._extensions.get(prefix, "?")
            is_known = kind != "?" and name in words("elements")[kind or self._root]
            full = "" if not is_known else f"{kind}:{name}" if kind else name
            inside, _, start = outer[-1] if outer else ("", "", 0)
            if inside and full:
                if inside != self._place_of(kind, name):
                    faults.append(("element-misplaced", place))
                elif (start, full) in seen and full not in words("elements")["repeated"]:
                    faults.append(("element-twice", place))
                elif (closed or ended) and full in {"lastmod", "changefreq", "priority"}:
                    faults.append(("element-empty", place))
            if full == "image:image":
                faults.append(("image-loc-missing", place))
            elif full == "image:loc" and not (closed or ended) and inside == "image:image":
                faults = [one for one in faults if one != ("image-loc-missing", start)]
            seen.add((start, full))
            if not closed:
                outer.append((full, tag, place))
        return faults if len(outer) <= 1 else []

    def _place_of(self, kind: str, name: str) -> str:
        """In which element this one belongs."""
        if kind in {"", name, "xhtml"}:
            return self._entry
        inner = f"{kind}:{name}"
        found = (outer for outer, names in words("inside").items() if inner in names)
        return next(found, f"{kind}:{kind}")

    def _note(self, code: str, value: str, chunk: str, offset: int, count: int = 1) -> None:
        if self._notes.is_full(code):
            self._notes.add(code, count=count)
            return
        line, column = self._place.of(chunk, max(offset, 0))
        self._notes.add(code, [Sample(value=value, line=line, column=column)], count=count)


def _bad_attributes(element: str, text: str) -> Iterator[str]:
    for key, double, single in _find_attributes(text):
        is_general = key.startswith(("xmlns", "xml:", "xsi:"))
        if not is_general and not allows_attribute(element, key, double or single):
            yield f'{key}="{double or single}"'


def _blank(match: re.Match[str]) -> str:
    """As long as before: nothing for a comment, something for text."""
    return _not_line_ends.sub(" " if match[0].startswith("<!--") else "x", match[0])
