"""What to try while the demo runs: commands with the real addresses, ready to be copied."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from siteatlas.demo.server import DemoSite

MODULE_FILE = "__main__.py"


def invitation(address: str, sites: Sequence[DemoSite], data_dir: Path, program: str) -> list[str]:
    """Lines that fit 80 columns, unless the data directory has a long name."""
    first, second = sites[0], sites[1]
    return [
        "",
        "Try it in another terminal:",
        "",
        f"  {program} scan {first.base_url} --allow {first.host_port}",
        "",
        f"  curl -X POST {address}/api/v3/sitemap/scan \\",
        "    -H 'Content-Type: application/json' \\",
        f'    -d \'{{"base_url": "{second.base_url}"}}\'',
        "",
        f"  SITEATLAS_DATA_DIR={quote(str(data_dir))} \\",
        f"    {program} urls {first.host_port} --limit 10",
        "",
        f"In a browser: {address}/api/v3/domains/{first.host_port}/sitemaps",
        f"All routes:   {address}/docs",
        "Ctrl-C stops the demo.",
    ]


def program_name(called_as: str | None = None) -> str:
    """How the person who started this process calls it."""
    called_as = called_as or sys.argv[0]
    path = Path(called_as)
    if path.name == MODULE_FILE:
        return f"{quote(sys.executable)} -m siteatlas.cli"
    found = shutil.which(path.name)
    known = found is not None and path.exists() and Path(found).samefile(path)
    return path.name if known else quote(called_as)
