"""Judges the markup of a document, which its entries no longer show: elements and attributes.

Reads the decoded text beside the reader, whole entries at a time. Names are looked up in a set, so
that a document of the usual elements costs one pass. Feeds and text lists have no such markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html.entities import html5

from siteatlas.findings.judging import Notes, Sample
from siteatlas.findings.positions import TextPlace
from siteatlas.findings.vocabulary import allows_attribute, words

MAX_HELD_CHARS = 1024 * 1024
# By a part of the namespace, and by the usual prefix where the root does not declare it.
_EXTENSIONS = ("image", "video", "news", "mobile", "xhtml")
_PAGEMAP = frozenset({"pagemap", "dataobject", "attribute"})
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
        entry = "url" if self._root == "urlset" else "sitemap"
        self._entry_end = f"</{prefix}{entry}>"
        self._fields = [f"<{prefix}{name}" for name in ("lastmod", "changefreq", "priority")]
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
        self._image = next((p for p, kind in self._extensions.items() if kind == "image"), "image")
        head = self._held[: root.end()]
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
            tags = _find_tags(chunk)
            for tag in dict.fromkeys(tags):
                if tag not in self._known:
                    self._judge_tag(tag, tags, chunk)
            names = "|".join(map(re.escape, sorted(self._known)))
            self._find_unknown = re.compile(rf"<(?![/!?]|(?:{names})>)").search
        self._judge_repeats(chunk)
        for match in (self._match_outside(chunk), *self._find_outside(chunk)):
            if match is None:
                continue
            prefix = match[1].rpartition(":")[0]
            if self._extensions.get(prefix, "?") in _EXTENSIONS:
                self._note("extension-outside-url", f"<{match[1]}>", chunk, match.start(1) - 1)
        self._judge_images(chunk)
        if chunk.count("&") > chunk.count("&amp;"):
            self._judge_references(chunk)

    def _judge_references(self, chunk: str) -> None:
        for match in _find_references(chunk):
            name = match[1]
            if name is None or f"{name};" not in html5:
                self._note("bare-ampersand", match[0], chunk, match.start())
            elif name not in {"amp", "lt", "gt", "quot", "apos"}:
                self._note("html-entity", match[0], chunk, match.start())

    def _judge_tag(self, tag: str, tags: Sequence[str], chunk: str) -> None:
        match = _split_tag(tag)
        if match is None:
            return
        prefix, name, attributes = match[1] or "", match[2], match[3]
        kind = self._extensions.get(prefix, "?")
        if kind == "?" or name.lower() in _PAGEMAP:
            return
        fault, value = "", f"<{prefix}:{name}>" if prefix else f"<{name}>"
        if kind == "image" and name in words("elements")["dropped_image"]:
            fault = "image-tag-dropped"
        elif name not in words("elements")[kind or self._root]:
            fault = "element-unknown"
        elif attributes and (bad := next(_bad_attributes(f"{kind}:{name}", attributes), "")):
            fault, value = "attribute-invalid", bad
        if fault:
            self._note(fault, value, chunk, chunk.find(f"<{tag}>"), tags.count(tag))
        elif not attributes and len(self._known) < 100:
            self._known.add(tag)

    def _judge_repeats(self, chunk: str) -> None:
        entries = chunk.split(self._entry_end)
        for field in self._fields:
            for place, entry in enumerate(entries):
                if entry.count(field) > 1 and len(re.findall(f"{field}[\\s>/]", entry)) > 1:
                    start = sum(map(len, entries[:place])) + place * len(self._entry_end)
                    second = entry.find(field, entry.find(field) + 1)
                    self._note("element-twice", f"{field}>", chunk, start + second)

    def _judge_images(self, chunk: str) -> None:
        image, loc = f"<{self._image}:image>", f"<{self._image}:loc>"
        if image not in chunk:
            return
        is_even = chunk.count(image) == chunk.count(loc)
        if is_even and not re.search(rf"{loc}\s*</", chunk):
            return
        pattern = rf"{image}(?:(?!</{self._image}:image>|{loc}\s*[^<\s]).)*</{self._image}:image>"
        for match in re.finditer(pattern, chunk, re.DOTALL):
            self._note("image-loc-missing", image, chunk, match.start())

    def _note(self, code: str, value: str, chunk: str, offset: int, count: int = 1) -> None:
        line, column = self._place.of(chunk, max(offset, 0))
        sample = Sample(value=value, line=line, column=column)
        self._notes.add(code, [sample], count=count)


def _bad_attributes(element: str, text: str) -> Iterator[str]:
    for key, double, single in _find_attributes(text):
        is_general = key.startswith(("xmlns", "xml:", "xsi:"))
        if not is_general and not allows_attribute(element, key, double or single):
            yield f'{key}="{double or single}"'


def _blank(match: re.Match[str]) -> str:
    """As long as before: nothing for a comment, something for text."""
    return _not_line_ends.sub(" " if match[0].startswith("<!--") else "x", match[0])
