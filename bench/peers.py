"""Runs the peers in an environment of their own, with the versions of requirements.txt."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from bench.figure import Figure
from bench.measured import last_words, run_measured

HERE = Path(__file__).resolve().parent
USP = "ultimate-sitemap-parser"


def pinned(peer: str) -> str:
    """The requirement of one peer, such as `name==1.0`."""
    lines = (HERE / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(f"{peer}=="))


def peer_python(folder: Path, peer: str) -> Path:
    """The Python of an environment that has `peer`; made on first use."""
    requirement = pinned(peer)
    key = hashlib.sha256(f"{requirement} {sys.version}".encode()).hexdigest()[:8]
    environment = folder / f"{peer}-{key}"
    python, ready = environment / "bin" / "python", environment / "ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "install", requirement], check=True)
        ready.touch()
    return python


def measure_usp(folder: Path, base_url: str, urls: int) -> Figure:
    """Let ultimate-sitemap-parser read the whole site; it stores nothing."""
    python = peer_python(folder, USP)
    result = run_measured(
        [python, HERE / "usp_pages.py", base_url, str(urls)],
        {**os.environ, "PYTHONPATH": ""},
    )
    if result.exit_code:
        return Figure("usp", problem=last_words(result.words))
    return Figure("usp", urls, result.seconds, result.peak_mb, f"{pinned(USP)}, stores nothing")
