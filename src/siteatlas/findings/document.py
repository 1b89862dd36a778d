"""Judges one document by what the reading yields: entries, children and problems, column by column.

Runs beside every scan, so a column of ordinary values costs a few calls into C. What concerns
several documents is judged in `site`, what only the markup shows in `markup`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import compress
from typing import Any

from siteatlas.findings.judging import NO_ADDRESS, Finding, Notes, Sample, age_in_days, share
from siteatlas.findings.rules import rule_of
from siteatlas.findings.vocabulary import is_hreflang, is_news_language, words
from siteatlas.net.address import bare_host
from siteatlas.net.egress import is_private_host
from siteatlas.scanner.events import (
    ChildLink,
    DocumentClosed,
    DocumentOutcome,
    EntryColumns,
    SitemapType,
)
from siteatlas.scanner.problem_codes import ProblemCode
from siteatlas.scanner.reading.entries import read_date

MAX_ENTRIES = 50_000
MAX_BYTES = 50 * 1024 * 1024
MAX_ORIGINS = 50
# Fewer dates may be equal, or missing, by chance.
MIN_SAMPLE = 20

# Judged here by the clock of the caller, and from the length that the protocol states.
_JUDGED_HERE = frozenset({ProblemCode.LASTMOD_FUTURE, ProblemCode.URL_LONG})
_USUAL = (
    bytes(ord(c) for c in map(chr, range(33, 127)) if c.isalnum() or c in "-._~:/?[]@!$&'+*(),;=%")
    + b"\n"
)
_find_fragment = re.compile("#").search
_find_unescaped = re.compile(r'[ "<>\\^`{|}]|[^\x00-\x7f]|%(?![0-9A-Fa-f]{2})').search
_find_odd_escape = re.compile(r"%(?![2-689A-Fa-f][0-9A-Fa-f]|7[0-9A-Ea-e])").search
_find_control_escape = re.compile(r"%(?:[01][0-9A-Fa-f]|7[Ff])").search
# An address inside of another one is escaped twice for a reason.
_find_double_escape = re.compile(
    r"\w+://(?!.*(?:://|%3A%2F%2F)).*%25[0-9A-F]{2}", re.IGNORECASE
).match
# In UTF-8, what begins a letter is followed by what continues it. Who encodes wrong, always does.
_find_legacy_escape = re.compile(r"%[C-Fc-f][0-9A-Fa-f](?!%[89ABab])").search
ESCAPES_SAMPLE = 64 * 1024
_find_tracking = re.compile(
    r"[?&](?:utm_[a-z]+|gclid|gbraid|wbraid|dclid|fbclid|msclkid|yclid|igshid|mc_[ce]id|_ga)=",
    re.IGNORECASE,
).search
_match_origin = re.compile(r"(https?)://([^/?#\\]*)", re.IGNORECASE).match
_match_page = re.compile(r"[^?#]*/[^?#]+\.x?html?(?:[?#]|\Z)", re.IGNORECASE).match
_match_scheme = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):").match


class Origins:
    """The schemes and hosts of the URLs of one document, with the first URLs of each."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.first: dict[tuple[str, str], list[str]] = {}
        self._usual = ""
        self._usual_key = ("", "")

    def add(self, urls: Sequence[str], joined: str) -> None:
        """Count them; those that begin like the last one before cost one search."""
        if self._usual and f"\n{joined}".count(self._usual) == len(urls):
            self.counts[self._usual_key] += len(urls)
            return
        for url in urls:
            match = _match_origin(url)
            if match is None or url.startswith(NO_ADDRESS):
                continue
            key = match[1].lower(), match[2].lower().rpartition("@")[2]
            # A hostile document names another host in every entry.
            if len(self.counts) >= MAX_ORIGINS and key not in self.counts:
                key = "http", "many.invalid"
            self.counts[key] += 1
            if len(examples := self.first.setdefault(key, [])) < 5:
                examples.append(url)
            self._usual, self._usual_key = f"\n{match[0]}/", key

    @property
    def hosts(self) -> set[str]:
        return {host for _, host in self.counts}

    def note(self, notes: Notes, *, foreign: str | None) -> None:
        """Judge them; those on a foreign host by the rule `foreign`, unless others did."""
        if not self.counts:
            return
        (own_scheme, own), _ = self.counts.most_common(1)[0]
        own_bare = bare_host(own)
        for (scheme, host), count in self.counts.items():
            same_site = bare_host(host) == own_bare
            code = None
            if same_site and host != own:
                code = "url-www-mismatch"
            elif same_site and scheme != own_scheme:
                code = "url-http-beside-https"
            elif foreign and is_private_host(host.partition(":")[0]):
                code = "url-private-host"
            elif foreign and not (same_site or _is_below(host, own_bare)):
                code = foreign
            if code:
                samples = [Sample(url) for url in self.first.get((scheme, host), ())]
                notes.add(code, samples, count=count)


def _is_below(host: str, other: str) -> bool:
    return host.endswith("." + other) or other.endswith("." + bare_host(host))


class DocumentJudge:
    """One document. `is_local`: it has no address, so that nobody else judges the hosts in it."""

    def __init__(self, document: str, now: datetime, *, is_local: bool = False) -> None:
        self.notes = Notes(document)
        self.origins = Origins()
        self._now = now
        self._is_local = is_local
        self._latest = now + timedelta(days=1)
        self._entries = 0
        self._dated = 0
        self._oldest: datetime | None = None
        self._newest: datetime | None = None
        self._given = {"changefreq-ignored": 0, "priority-ignored": 0}
        self._news = 0
        self._full_images: list[str] = []
        self._children: Counter[int] = Counter()
        self._undated_children = 0

    def add_entries(self, columns: EntryColumns) -> None:
        """Judge the next entries."""
        if not columns.urls:
            return
        self._entries += len(columns)
        self._judge_urls(columns.urls)
        self._judge_dates(columns)
        for code, column in (
            ("changefreq-ignored", columns.changefreqs),
            ("priority-ignored", columns.priorities),
        ):
            self._given[code] += len(columns) - column.count(None)
        if any(columns.extras):
            for url, extras in zip(columns.urls, columns.extras, strict=True):
                if extras:
                    self._judge_extras(url, extras)

    def add_children(self, children: Sequence[ChildLink]) -> None:
        """Judge the next sitemaps of an index."""
        urls = [child.url for child in children]
        self.origins.add(urls, "\n".join(urls))
        for child in children:
            # Not the address itself: there may be 50,000 long ones.
            self._children[hash(child.url)] += 1
            if (again := self._children[hash(child.url)] - 1) > 0:
                self.notes.add("index-child-twice", [Sample(child.url, again=again)])
            if child.lastmod is None:
                self._undated_children += 1
            elif child.lastmod > self._latest:
                self.notes.add("lastmod-future", [Sample(child.url, _day(child.lastmod))])

    def judge_moved_dates(self, streak: int, *, trusted: bool) -> None:
        """Judge by earlier reads: in `streak` of them nearly all dates moved, and nothing else.

        If that was so twice, the dates are no longer trusted until most of them stand still.
        """
        if not streak and trusted:
            return
        if trusted or not streak:
            self.notes.add("lastmod-without-change", detail=f"{self._dated:,} dates moved")
        if not trusted:
            self.notes.add("lastmod-untrusted", detail=f"{self._dated:,} dates")
            if self._oldest and self._now - self._oldest < timedelta(hours=1):
                self.notes.add("lastmod-always-now", detail=f"{self._oldest}")

    def close(self, closed: DocumentClosed) -> list[Finding]:
        """All findings of the document, from what it had and how its reading ended."""
        self._judge_problems(closed)
        if (code := rule_of(closed.error_code)) is not None:
            self.notes.add(code, detail=closed.error or "")
        self._judge_size(closed)
        self._judge_whole_dates(closed)
        if self._children:
            self.origins.note(self.notes, foreign="index-cross-host" if self._is_local else None)
        else:
            self.origins.note(self.notes, foreign="url-other-host" if self._is_local else None)
        for code, count in self._given.items():
            if count:
                self.notes.add(code, detail=share(count, self._entries))
        if self._news > 1000:
            self.notes.add("news-too-many", detail=f"{self._news:,} articles")
        if self._full_images and closed.problems.get(ProblemCode.EXTRAS_CUT):
            self.notes.add("image-too-many", map(Sample, self._full_images))
        return self.notes.findings()

    def _judge_urls(self, urls: Sequence[str]) -> None:
        joined = "\n".join(urls)
        self.origins.add(urls, joined)
        unusual = joined.encode("utf-8", "surrogatepass").translate(None, _USUAL)
        if unusual:
            self._note_where(_find_fragment, "url-fragment", urls)
        is_odd = "%" in joined and _find_odd_escape(joined)
        if unusual or is_odd:
            self._note_where(_find_unescaped, "url-not-escaped", urls)
        if is_odd:
            self._note_where(_find_control_escape, "url-control-escaped", urls)
        if "%25" in joined:
            self._note_where(_find_double_escape, "url-double-escaped", urls)
        if _find_legacy_escape(joined, 0, ESCAPES_SAMPLE):
            self._note_where(_find_legacy_escape, "url-escapes-not-utf8", urls)
        if "?" in joined and _find_tracking(joined):
            self._note_where(_find_tracking, "url-tracking-parameters", urls)
        if max(map(len, urls)) > 1024:
            for code, least, most in (("url-over-1024", 1025, 2047), ("url-too-long", 2048, 10**6)):
                long = [place for place, url in enumerate(urls) if least <= len(url) <= most]
                self.notes.add_places(code, long, urls)

    def _note_where(self, find: Callable[[str], object], code: str, urls: Sequence[str]) -> None:
        places = [place for place, url in enumerate(urls) if find(url)]
        self.notes.add_places(code, places, urls)

    def _judge_dates(self, columns: EntryColumns) -> None:
        dates = list(filter(None, columns.lastmods))
        if not dates:
            return
        self._dated += len(dates)
        newest, oldest = max(dates), min(dates)
        self._newest = max(self._newest or newest, newest)
        self._oldest = min(self._oldest or oldest, oldest)
        if newest > self._latest:
            texts = columns.listed_lastmods()
            late = [date is not None and date > self._latest for date in columns.lastmods]
            for url, date, text in compress(
                zip(columns.urls, columns.lastmods, texts, strict=True), late
            ):
                assert date is not None
                self.notes.add("lastmod-future", [Sample(url, text.strip() or _day(date))])

    def _judge_whole_dates(self, closed: DocumentClosed) -> None:
        if self._children and self._undated_children:
            detail = share(self._undated_children, self._children.total())
            self.notes.add("index-lastmod-missing", detail=detail)
        # A feed or a list of news is written at once, and says what is new by what it lists.
        if closed.is_window or self._entries < MIN_SAMPLE:
            return
        if (missing := self._entries - self._dated) * 2 > self._entries:
            self.notes.add("lastmod-missing", detail=share(missing, self._entries))
        span = self._newest - self._oldest if self._newest and self._oldest else None
        if self._dated >= MIN_SAMPLE and span is not None and span < timedelta(minutes=1):
            detail = f"{self._dated:,} entries, {self._newest}"
            self.notes.add("lastmod-uniform", detail=detail)

    def _judge_problems(self, closed: DocumentClosed) -> None:
        for name, count in closed.problems.items():
            code = rule_of(name)
            # The markup shows where they are, if it was judged.
            is_known = code in {"bare-ampersand", "html-entity"} and code in self.notes
            if code is None or name in _JUDGED_HERE or is_known:
                continue
            samples = [Sample(one.url, one.value) for one in closed.samples.get(name, ())]
            if name == ProblemCode.RELATIVE_URL:
                samples = [Sample(one.text) for one in samples]
            if name == ProblemCode.BAD_URL:
                self._divide_bad_urls(samples, count)
            elif name == ProblemCode.OVER_50000_ENTRIES:
                is_index = closed.type is SitemapType.INDEX
                found = closed.entry_count or self._children.total()
                self.notes.add("index-too-many" if is_index else code, detail=f"{found:,} entries")
            else:
                self.notes.add(code, samples, count=count)

    def _divide_bad_urls(self, samples: Sequence[Sample], count: int) -> None:
        by_rule: dict[str, list[Sample]] = {}
        for sample in samples:
            by_rule.setdefault(rule_of_bad_url(sample.text or ""), []).append(sample)
        # Those without a sample are most likely like the most frequent ones.
        usual = max(by_rule, key=lambda code: len(by_rule[code]), default="url-invalid")
        for code, some in by_rule.items() or (("url-invalid", []),):
            rest = count - len(samples) if code == usual else 0
            self.notes.add(code, some, count=len(some) + rest)

    def _judge_size(self, closed: DocumentClosed) -> None:
        found = max(self._entries, self._children.total())
        is_read = closed.outcome is DocumentOutcome.COMPLETE and not closed.skipped_count
        # A feed has nothing to tell now and then.
        if is_read and not found and not closed.is_window:
            self.notes.add("sitemap-empty")
        if 0.9 * MAX_ENTRIES <= found <= MAX_ENTRIES:
            self.notes.add("near-the-limit", detail=f"{found:,} entries")
        elif 0.9 * MAX_BYTES <= closed.decoded_bytes <= MAX_BYTES:
            self.notes.add("near-the-limit", detail=f"{closed.decoded_bytes:,} bytes")

    def _judge_extras(self, url: str, extras: dict[str, Any]) -> None:
        if news := extras.get("news"):
            self._judge_news(url, news)
        if len(extras.get("images", ())) >= 1000:
            self._full_images.append(url)
        for video in extras.get("videos", ()):
            self._judge_video(url, video)
        languages = [one for one in extras.get("alternates", ()) if "hreflang" in one]
        for link in languages:
            if not is_hreflang(link["hreflang"]):
                self.notes.add("hreflang-code-invalid", [Sample(url, link["hreflang"])])
        if languages and all(link["href"] != url for link in languages):
            self.notes.add("hreflang-no-self", [Sample(url)])
        pairs = {(link["hreflang"].lower(), link["href"]) for link in languages}
        for code, count in Counter(language for language, _ in pairs).items():
            if count > 1:
                self.notes.add("hreflang-twice", [Sample(url, code)])

    def _judge_news(self, url: str, news: dict[str, Any]) -> None:
        self._news += 1
        publication = news.get("publication")
        names = publication if isinstance(publication, dict) else {}
        fields = {
            "publication name": names.get("name"),
            "language": names.get("language"),
            "publication_date": news.get("publication_date"),
            "title": news.get("title"),
        }
        for name, value in fields.items():
            if not value:
                self.notes.add("news-field-missing", [Sample(url)], detail=f"without {name}")
        language, listed = fields["language"], fields["publication_date"]
        if language and not is_news_language(language):
            self.notes.add("news-language-invalid", [Sample(url, language)])
        if listed and (moment := read_date(listed)) is None:
            self.notes.add("news-date-invalid", [Sample(url, listed)])
        # A day without time lasts until its end.
        elif listed and moment and age_in_days(moment, self._now) > 2 + (len(listed) <= 10):
            self.notes.add("news-stale", [Sample(url, listed)])

    def _judge_video(self, url: str, video: dict[str, Any]) -> None:
        for name in ("thumbnail_loc", "title", "description"):
            if not video.get(name):
                self.notes.add("video-field-missing", [Sample(url)], detail=f"without {name}")
        places = [video[name] for name in ("content_loc", "player_loc") if video.get(name)]
        if not places:
            self.notes.add(
                "video-field-missing", [Sample(url)], detail="without content_loc and player_loc"
            )
        if url in places or _match_page(video.get("content_loc", "")):
            self.notes.add("video-location-is-page", [Sample(url)])
        for name, value in _bad_video_values(url, video):
            self.notes.add("video-value-invalid", [Sample(url, value)], detail=name)


def rule_of_bad_url(text: str) -> str:
    """Which rule an address breaks that the reader refused as `bad_url`."""
    if re.match(r"[#{\[<]|\$\{|%7B%7B", text, re.IGNORECASE):
        return "url-placeholder"
    scheme = _match_scheme(text)
    return "url-scheme" if scheme and scheme[1].lower() not in {"http", "https"} else "url-invalid"


def _bad_video_values(url: str, video: dict[str, Any]) -> Iterator[tuple[str, str]]:
    texts = {name: value for name, value in video.items() if isinstance(value, str) and value}
    for name, is_right in _VIDEO_VALUES.items():
        if name in texts and not is_right(texts[name]):
            yield name, texts[name]
    for name, longest in (("title", 100), ("description", 2048), ("uploader", 255)):
        if len(text := texts.get(name, "")) > longest:
            yield f"{name} of {len(text):,} characters", text[:80]
    info = _match_origin(texts.get("uploader_info", ""))
    if info and bare_host(info[2].lower()) != bare_host(url.split("/")[2].lower()):
        yield "uploader info on another host", info[0]
    if len(tags := video.get("tag", ())) > 32:
        yield f"{len(tags)} tags", str(tags[32])


def _is_date(text: str) -> bool:
    return read_date(text) is not None


def _is_choice(text: str) -> bool:
    return text.lower() in {"yes", "no"}


# How it is known that the value of an element of a video is allowed.
_VIDEO_VALUES: dict[str, Callable[[str], object]] = {
    "duration": lambda text: text.isdecimal() and 1 <= int(text[:9]) <= 28_800,
    "rating": re.compile(r"[0-4](\.\d*)?|5(\.0*)?|\.\d+").fullmatch,
    "view_count": str.isdecimal,
    "publication_date": _is_date,
    "expiration_date": _is_date,
    "family_friendly": _is_choice,
    "live": _is_choice,
    "requires_subscription": _is_choice,
    "restriction": lambda text: set(text.lower().split()) <= {*words("codes")["regions"]},
    "platform": lambda text: set(text.lower().split()) <= {"web", "mobile", "tv"},
    "content_loc": lambda text: not text.lower().partition("?")[0].endswith(".swf"),
}


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}"
