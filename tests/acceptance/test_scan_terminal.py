"""`siteatlas scan` on a terminal: something moves, nothing is left behind, nothing is obeyed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.commands import COMMAND, Machine
from tests.fixtures.pipeline import index
from tests.fixtures.site_server import Pages, SiteServer
from tests.fixtures.thread_server import running_site

TIMEOUT_SECONDS = 30.0
SIZE = struct.pack("HHHH", 24, 100, 0, 0)
PARTS = 4


@pytest.fixture(scope="module")
def site() -> Iterator[SiteServer]:
    """Four sitemaps without a namespace, a problem to report; their URLs steer a terminal."""
    pages: Pages = {
        "/robots.txt": "Sitemap: {base}/index.xml\n",
        "/index.xml": index(f"{{base}}/{n}.xml" for n in range(PARTS)),
        **{
            f"/{n}.xml": f"<urlset><url><loc>{{base}}/page/{n}\u202e</loc></url></urlset>"
            for n in range(PARTS)
        },
    }
    with running_site(pages) as running:
        yield running


@pytest.fixture
def here(site: SiteServer, tmp_path: Path) -> Machine:
    return Machine(tmp_path, {"SITEATLAS_EGRESS_ALLOW": site.host_port, "TERM": "xterm-256color"})


class Screen:
    """A command on a terminal of 100 columns and 24 lines."""

    def __init__(self, here: Machine, *arguments: str) -> None:
        self.text = ""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, SIZE)
        self.process = subprocess.Popen(
            [COMMAND, "scan", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=here.environment,
            cwd=here.data_dir,
        )
        os.close(slave)

    def read_until(self, words: str | None) -> None:
        """Read until the words are on the screen; None: to the end."""
        give_up = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < give_up and not (words and words in self.text):
            if not select.select([self._master], [], [], 0.1)[0]:
                continue
            try:
                self.text += os.read(self._master, 65536).decode(errors="replace")
            except OSError:
                return

    def close(self) -> int:
        """The exit code."""
        self.read_until(None)
        os.close(self._master)
        return self.process.wait(TIMEOUT_SECONDS)

    def left_behind(self) -> str:
        """What stands on the screen at the end, after the last picture was wiped out."""
        rest = self.text.rpartition("\x1b[?25h")[2]
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", rest)


def test_a_scan_shows_its_progress_and_ends_with_a_summary(here: Machine, site: SiteServer):
    screen = Screen(here, site.base, "--rate", "4", "--format", "tree")
    assert screen.close() == 0
    assert re.search(r"robots\.txt \w+ 1 sitemap", screen.text)
    counts = re.findall(r"(\d) of 5 documents", screen.text)
    assert len(set(counts)) >= 3
    left = screen.left_behind()
    assert "of 5 documents" not in left
    assert left.count("/3.xml") == 1
    words = [line.split()[0] for line in left.splitlines() if line.startswith("  ")][-6:]
    assert words == ["sitemaps", "URLs", "lastmod", "problems", "time", "-v"]
    assert left.rstrip().endswith(f": siteatlas domains add {site.host_port}")


@pytest.mark.full
def test_an_interrupt_on_a_terminal_shows_what_was_found(here: Machine, site: SiteServer):
    screen = Screen(here, site.base, "--rate", "2", "--format", "tree")
    screen.read_until("2 of 5 documents")
    screen.process.send_signal(signal.SIGINT)
    assert screen.close() == 130
    assert "index.xml  index" in screen.left_behind()
    assert "incomplete" in screen.left_behind()


def test_urls_on_a_terminal_come_without_a_picture_and_cannot_steer_it(
    here: Machine, site: SiteServer
):
    screen = Screen(here, site.base, "--format", "urls")
    assert screen.close() == 0
    assert screen.text.count("/page/") == PARTS
    assert "\\u202e" in screen.text
    assert "\x1b[" not in screen.text
