"""What the fuzzer changes in its requests, so that it can go on: long waits, and its own access key."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import schemathesis

WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30
KEY_ID_VARIABLE = "SITEATLAS_FUZZ_KEY_ID"
UNKNOWN_KEY_ID = "0" * 16


@schemathesis.hook
def before_call(_context: Any, case: Any, _arguments: dict[str, Any]) -> None:
    """Shorten waits, and keep the fuzzer from revoking its own key."""
    _shorten_wait(case)
    parameters = case.path_parameters or {}
    if case.method.upper() == "DELETE" and parameters.get("key_id") == os.environ[KEY_ID_VARIABLE]:
        parameters["key_id"] = UNKNOWN_KEY_ID


def _shorten_wait(case: Any) -> None:
    """Only of waits that the service accepts; others are sent as they are, to be refused."""
    wait: Any = (case.query or {}).get("wait")
    with suppress(TypeError, ValueError):
        if WAIT_SECONDS < float(wait) <= LONGEST_WAIT_SECONDS:
            case.query["wait"] = WAIT_SECONDS
