"""Runs each peer in a separate virtual environment, with the version of requirements.txt."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from bench.figure import Figure
from bench.measured import last_lines, run_measured

HERE = Path(__file__).resolve().parent
# The name in the table and of the script, and the requirement.
PEERS = {
    "usp": "ultimate-sitemap-parser",
    "scrapy": "scrapy",
    "advertools": "advertools",
}
# An old pip does not find these by the name in the requirements of the peer.
COMPANIONS = {"trafilatura": ("lxml-html-clean",)}


def pinned(peer: str) -> str:
    """The requirement of one peer, such as `name==1.0`."""
    lines = (HERE / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(f"{peer}=="))


def peer_python(folder: Path, peer: str) -> Path:
    """The Python of a virtual environment with `peer`; created on first use."""
    requirements = [pinned(name) for name in (peer, *COMPANIONS.get(peer, ()))]
    key = hashlib.sha256(f"{' '.join(requirements)} {sys.version}".encode()).hexdigest()[:8]
    environment = folder / f"{peer}-{key}"
    python, ready = environment / "bin" / "python", environment / "ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "install", *requirements], check=True)
        ready.touch()
    return python


def run_reader(
    python: Path, module: str, *arguments: str | Path, given: str | None = None, limit: float
) -> str:
    """The output of a module of this folder, run in the environment of a reader."""
    done = subprocess.run(
        [python, "-m", f"bench.{module}", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=limit,
        env={**os.environ, "PYTHONPATH": str(HERE.parent)},
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"bench.{module} failed: {last_lines(done.stderr)}")
    return done.stdout


def measure_peer(part: str, folder: Path, base_url: str, urls: int) -> Figure:
    """Let one peer read the whole site; none of them stores anything."""
    peer = PEERS[part]
    result = run_measured(
        [peer_python(folder, peer), HERE / f"{part}_pages.py", base_url, str(urls)],
        {**os.environ, "PYTHONPATH": ""},
    )
    if result.exit_code:
        return Figure(part, problem=last_lines(result.stderr))
    return Figure(part, urls, result.seconds, result.peak_mb, f"{pinned(peer)}, stores nothing")
