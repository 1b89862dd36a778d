"""Prints the public contract of the installed Siteatlas as JSON: compare two versions with diff.

The OpenAPI document, the help of every command, the settings, the error codes, and the names of
metrics and log events.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import siteatlas
from siteatlas.cli.main import COMMANDS, load_command
from siteatlas.errors import error_classes
from siteatlas.main import app

PACKAGE = Path(siteatlas.__file__).parent
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}


def help_texts() -> dict[str, str]:
    lines: list[tuple[str, ...]] = [()]
    for name in COMMANDS:
        lines.append((name,))
        lines += [(name, inner) for inner in getattr(load_command(name), "commands", {})]
    return {" ".join(line): run(*line, "--help") for line in lines}


def run(*arguments: str) -> str:
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-m", "siteatlas.cli", *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**environment, "COLUMNS": "100", "HOME": "/nonexistent"},
    ).stdout


def log_events() -> list[str]:
    """The constant first argument of every call of a log method."""
    found = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in LOG_METHODS
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and isinstance(node.args[0].value, str)
            ):
                found.add(node.args[0].value)
    return sorted(found)


def metric_names() -> list[str]:
    texts = (file.read_text(encoding="utf-8") for file in PACKAGE.rglob("*.py"))
    return sorted({name for text in texts for name in re.findall(r'"(siteatlas_[a-z_]+)"', text)})


async def contract() -> dict[str, Any]:
    return {
        "openapi": app.openapi(),
        "help": help_texts(),
        "settings": run("config", "show"),
        "errors": [
            [kind.__name__, kind.code, kind.http_status, kind.exit_code, kind.__doc__]
            for kind in sorted(error_classes(), key=lambda kind: kind.__name__)
        ],
        "metrics": metric_names(),
        "log_events": log_events(),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(contract()), indent=1, sort_keys=True))
