"""Makes the site that is measured: robots.txt, one index, gzip sitemaps; the same on every run."""

from __future__ import annotations

import gzip
import math
import random
import shutil
from pathlib import Path

SEED = 1015
MIN_FILES = 10
MAX_URLS_PER_FILE = 50_000
NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
CHANGED_EVERY = 100
# In the past, as nearly all dates of real sites are: ones in the future are reported as problems.
YEAR, CHANGED_YEAR = "2024", "2025"
SYLLABLES = ("ba", "der", "fin", "gol", "ka", "lum", "mer", "no", "pra", "ros", "ti", "vel", "zu")


def make_site(folder: Path, base_url: str, urls: int) -> Path:
    """Write the site below `folder` unless it is there already, and return its directory."""
    site = folder / f"site-{YEAR}-{urls}-{base_url.rpartition(':')[2]}"
    if site.is_dir():
        return site
    unfinished = site.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    _write_site(unfinished, base_url, urls)
    return unfinished.rename(site)


def change_site(site: Path) -> Path:
    """A copy of a site in which one entry of a hundred has another date; made once."""
    changed = site.with_name(f"{site.name}-changed")
    if changed.is_dir():
        return changed
    unfinished = changed.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(site, unfinished)
    for file in unfinished.glob("*.gz"):
        text = gzip.decompress(file.read_bytes()).decode()
        file.write_bytes(gzip.compress(_with_new_dates(text).encode(), compresslevel=6, mtime=0))
    return unfinished.rename(changed)


def _with_new_dates(text: str) -> str:
    entries = text.split("<lastmod>")
    for number in range(1, len(entries), CHANGED_EVERY):
        entries[number] = CHANGED_YEAR + entries[number].removeprefix(YEAR)
    return "<lastmod>".join(entries)


def file_sizes(urls: int) -> list[int]:
    """How many URLs each sitemap gets."""
    files = max(MIN_FILES, math.ceil(urls / MAX_URLS_PER_FILE))
    return [urls // files + (number < urls % files) for number in range(files)]


def _write_site(site: Path, base_url: str, urls: int) -> None:
    dice = random.Random(SEED)
    words = ["".join(dice.choices(SYLLABLES, k=dice.randint(1, 4))) for _ in range(4000)]
    names = []
    for number, size in enumerate(file_sizes(urls)):
        names.append(f"part-{number:03d}.xml.gz")
        entries = (_entry(base_url, f"{number}-{entry}", words, dice) for entry in range(size))
        text = f'{HEAD}<urlset xmlns="{NAMESPACE}">\n{"".join(entries)}</urlset>\n'
        (site / names[-1]).write_bytes(gzip.compress(text.encode(), compresslevel=6, mtime=0))
    children = "".join(
        f"<sitemap><loc>{base_url}/{name}</loc><lastmod>{YEAR}-11-30</lastmod></sitemap>\n"
        for name in names
    )
    index = f'{HEAD}<sitemapindex xmlns="{NAMESPACE}">\n{children}</sitemapindex>\n'
    (site / "all.xml").write_text(index, encoding="utf-8")
    (site / "robots.txt").write_text(
        f"User-agent: *\nDisallow: /basket/\nSitemap: {base_url}/all.xml\n", encoding="utf-8"
    )


def _entry(base_url: str, name: str, words: list[str], dice: random.Random) -> str:
    section, *title = dice.choices(words, k=4)
    return (
        f"  <url>\n    <loc>{base_url}/{section}/{'-'.join(title)}/{name}</loc>\n"
        f"    <lastmod>{YEAR}-{dice.randint(1, 11):02d}-{dice.randint(1, 28):02d}"
        f"T{dice.randint(0, 23):02d}:{dice.randint(0, 59):02d}:00+00:00</lastmod>\n"
        f"    <changefreq>weekly</changefreq>\n    <priority>0.7</priority>\n  </url>\n"
    )
