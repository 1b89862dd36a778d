"""The text of an access key: `sa_`, an id, 32 random bytes and a checksum, all letters and digits.

The checksum finds keys that were cut or mistyped without asking the database, and lets secret
scanners recognize a key. Only the SHA-256 of the text is ever stored.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from hashlib import sha256
from zlib import crc32

from siteatlas.errors import KeyInvalid
from siteatlas.setting_types import Secret

PREFIX = "sa"
ID_CHARS = 8
SECRET_BYTES = 32
# As many base-62 digits as 32 bytes and a CRC-32 need.
SECRET_CHARS = 43
CHECKSUM_CHARS = 6
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ID_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
MAX_KEY_CHARS = 100
KEY = re.compile(
    rf"{PREFIX}_(?P<id>[a-z0-9]{{{ID_CHARS}}})_"
    rf"(?P<secret>[0-9A-Za-z]{{{SECRET_CHARS}}})(?P<checksum>[0-9A-Za-z]{{{CHECKSUM_CHARS}}})"
)


@dataclass(frozen=True, slots=True)
class KeyText:
    """A well-formed key: its public id, and the secret text that is shown once."""

    id: str
    text: Secret

    @property
    def hash(self) -> bytes:
        """What is stored in place of the key."""
        return hash_secret(self.text.get_secret_value())


def generate_key() -> KeyText:
    """A new random key."""
    ident = "".join(secrets.choice(ID_ALPHABET) for _ in range(ID_CHARS))
    number = int.from_bytes(secrets.token_bytes(SECRET_BYTES))
    body = f"{PREFIX}_{ident}_{_base62(number, SECRET_CHARS)}"
    return KeyText(ident, Secret(body + key_checksum(body)))


def parse_key(text: str) -> KeyText:
    """Parse the key of a request; KeyInvalid if it cannot be one of ours."""
    match = KEY.fullmatch(text) if len(text) <= MAX_KEY_CHARS else None
    if match is None or match["checksum"] != key_checksum(text[:-CHECKSUM_CHARS]):
        raise KeyInvalid
    return KeyText(match["id"], Secret(text))


def hash_secret(text: str) -> bytes:
    """The SHA-256 of a key or session token; 256 random bits need no slow hash."""
    return sha256(text.encode()).digest()


def key_checksum(body: str) -> str:
    """The CRC-32 of everything before it."""
    return _base62(crc32(body.encode()), CHECKSUM_CHARS)


def _base62(number: int, width: int) -> str:
    """A number in base 62, padded to `width` digits."""
    digits = []
    for _ in range(width):
        number, digit = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))
