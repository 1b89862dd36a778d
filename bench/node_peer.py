"""Runs sitemapper, the usual reader of sitemaps for Node.js, where Node.js is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from bench.figure import Figure
from bench.measured import last_lines, run_measured

NAME = "sitemapper"
VERSION = "4.1.6"
SCRIPT = Path(__file__).resolve().parent / "sitemapper_pages.mjs"


def is_installed() -> bool:
    """Whether Node.js and its package manager are there."""
    return all(shutil.which(program) for program in ("node", "npm"))


def measure_node_peer(folder: Path, base_url: str, urls: int) -> Figure:
    """Let sitemapper read the whole site; it stores nothing."""
    if not is_installed():
        return Figure(NAME, problem="Node.js is not installed")
    home = _package_folder(folder)
    script = shutil.copy(SCRIPT, home)
    result = run_measured(["node", script, base_url, str(urls)], dict(os.environ), folder=home)
    if result.exit_code:
        return Figure(NAME, problem=last_lines(result.stderr))
    return Figure(NAME, urls, result.seconds, result.peak_mb, f"{NAME}@{VERSION}, stores nothing")


def _package_folder(folder: Path) -> Path:
    """A folder in which the package is installed; made on first use."""
    home = folder / f"{NAME}-{VERSION}"
    if not (home / "node_modules" / NAME).is_dir():
        home.mkdir(exist_ok=True)
        install = ["npm", "install", "--no-audit", "--no-fund", "--silent", f"{NAME}@{VERSION}"]
        subprocess.run([*install, "--prefix", str(home)], check=True)
    return home
