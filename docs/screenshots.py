"""Takes the screenshots of the dashboard from a temporary demo.

`python -m docs.screenshots` writes those of the documentation; with `--all FOLDER` it writes every
page in light and dark, narrow and wide, to be looked at after a change of the style sheet. With
`--address`, they are those of a service that is running.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import httpx
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from playwright.sync_api import Browser, Page, sync_playwright

from siteatlas.web.routes import ROUTERS

IMAGES = Path(__file__).resolve().parent / "images"
COMMAND = str(Path(sys.executable).with_name("siteatlas"))
ENV = "/usr/bin/env"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTHS = (1280, 390, 320)
HEIGHT = 800
STOP_SECONDS = 30
# After this time, the slow site is being scanned again.
DEMO_SECONDS = 30
CHANGING_SITE = "market.localhost:8765"


@dataclass(frozen=True, slots=True)
class Picture:
    """A page of the demo, and how it is shown."""

    name: str
    path: str
    scheme: str = "light"
    width: int = WIDTHS[0]
    height: int = HEIGHT
    whole: bool = False


DOCUMENTED = (
    Picture("dashboard-overview", "/", height=860),
    Picture("dashboard-site", f"/domains/{CHANGING_SITE}", scheme="dark", height=980),
    Picture("dashboard-job", "/jobs?status=processing", height=700),
)
# First, so that the tabs are those of a site with changes.
MOST_CHANGES = "/domains?sort=-changes"


def main() -> None:
    """Take the screenshots of the documentation, or of all pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", dest="folder")
    parser.add_argument("--address", help="a service that is already running")
    options = parser.parse_args()
    folder = options.folder or IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    with running_demo(options.address) as address, chromium() as browser:
        for picture in DOCUMENTED if options.folder is None else _every_picture(address):
            take(browser, address, picture, folder / f"{picture.name}.png")


def _every_picture(address: str) -> Iterator[Picture]:
    """Every page in both colour schemes and all widths."""
    for name, path in every_page(address).items():
        for scheme in ("light", "dark"):
            for width in WIDTHS:
                yield Picture(f"{name}-{scheme}-{width}", path, scheme, width, whole=True)


def every_page(address: str) -> dict[str, str]:
    """The first page of each route, and of each tab, that the links of other pages lead to."""
    routes = [one for router in ROUTERS for one in router.routes if isinstance(one, APIRoute)]
    routes = [one for one in routes if "GET" in (one.methods or ())]
    found = {"error": "/no-such-page"}
    waiting = [MOST_CHANGES, *(one.path for one in routes if "{" not in one.path)]
    while waiting:
        link = urlsplit(waiting.pop(0))
        route = next((one for one in routes if one.path_regex.fullmatch(link.path)), None)
        tab = dict(parse_qsl(link.query)).get("tab", "")
        name = re.sub(r"\W+", "-", f"{route.path if route else ''} {tab}").strip("-") or "overview"
        if route is None or name in found or route.response_class is not HTMLResponse:
            continue
        page = httpx.get(address + link.geturl(), timeout=60)
        if page.is_success and "<html" in page.text:
            found[name] = link.geturl()
            waiting += map(unescape, re.findall(r'href="(/[^"]*)"', page.text))
    return found


@contextmanager
def running_demo(address: str | None) -> Iterator[str]:
    """The address of a demo with something to show."""
    if address is not None:
        yield address
        return
    folder = Path(tempfile.mkdtemp(prefix="siteatlas-screenshots-"))
    folder.chmod(0o755)
    process = subprocess.Popen(
        [ENV, f"SITEATLAS_DATA_DIR={folder}", COMMAND, "demo"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = _announced_address(process)
        time.sleep(DEMO_SECONDS)
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=STOP_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)


def _announced_address(process: subprocess.Popen[str]) -> str:
    """The address that the demo prints once it is complete."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if line.startswith("Ctrl-C"):
            return str(re.findall(r"^Dashboard: +(\S+)/$", said, re.MULTILINE)[0])
    raise SystemExit(f"The demo did not start:\n{said}")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium of the system; it refuses its sandbox to root."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        raise SystemExit("Chromium is not installed.")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


def take(browser: Browser, address: str, picture: Picture, file: Path) -> None:
    """Open a page and write what it looks like."""
    context = browser.new_context(
        color_scheme="dark" if picture.scheme == "dark" else "light",
        viewport={"width": picture.width, "height": picture.height},
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(address + picture.path)
    if picture.path.startswith("/jobs?"):
        _open_first_job(page)
    _wait_for_scripts(page)
    page.screenshot(path=file, full_page=picture.whole)
    context.close()
    print(f"{file.name}: {file.stat().st_size / 1000:.0f} kB")


def _wait_for_scripts(page: Page) -> None:
    """Wait until the stream is open, where there is one."""
    if page.locator("[data-live]").count():
        page.locator("[data-live][data-state=live]").first.wait_for()


def _open_first_job(page: Page) -> None:
    """Go on from a list of jobs to the first of them, once there is one."""
    link = page.locator("#job-rows tbody a").first
    link.wait_for()
    link.click()
    page.wait_for_url(re.compile(r"/jobs/\d+$"))


if __name__ == "__main__":
    main()
