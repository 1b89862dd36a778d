"""Secrets and signatures as Standard Webhooks 1.0 defines them: HMAC-SHA256, scheme `v1`."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterable

SECRET_PREFIX = "whsec_"  # noqa: S105 it says what follows
SECRET_BYTES = 32
SCHEME = "v1"


def generate_secret() -> str:
    """A new random secret in the form that libraries for receivers take."""
    return SECRET_PREFIX + b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signed_headers(
    message_id: str, timestamp: int, body: bytes, keys: Iterable[str]
) -> dict[str, str]:
    """The headers of one attempt; with two secrets there are two signatures, the newest first."""
    signed = b".".join((message_id.encode(), str(timestamp).encode(), body))
    return {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(_signature(signed, key) for key in keys),
    }


def _signature(signed: bytes, secret: str) -> str:
    """The signature of one secret, with its scheme."""
    key = b64decode(secret.removeprefix(SECRET_PREFIX))
    return f"{SCHEME},{b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"
