"""Access keys: their text, the scopes that they grant, and whether an installation has any.

The text of a key is `sa_`, an id, 32 random bytes and a checksum, all letters and digits. The
checksum finds keys that were cut or mistyped without asking the database, and lets secret scanners
recognize a key. Only the SHA-256 of the text is ever stored.

An installation is closed once an access key was made. Every process asks the database; while that
is unavailable, the last answer holds. The caller owns the transaction in which keys change.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import stat
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

from siteatlas.aio import SharedCall
from siteatlas.catalog.access import (
    StoredKey,
    any_active_key_with,
    any_key_made,
    find_key,
    find_or_create_user,
    insert_key,
    revoke_key,
)
from siteatlas.errors import (
    ConfigurationError,
    DatabaseError,
    DatabaseTimeout,
    InputError,
    KeyExpired,
    KeyInvalid,
    KeyNotFound,
    KeyRevoked,
    LastAdminKey,
)
from siteatlas.logs import get_logger
from siteatlas.settings import Secret
from siteatlas.storage.models import SYSTEM_USER_ID
from siteatlas.storage.session import AsyncSession, Reader, get_autocommit_session

MAX_NAME_CHARS = 100
MAX_EXPIRY_DAYS = 3650
SECONDS_A_DAY = 86400.0
ADMIN_KEY_NAME = "SITEATLAS_ADMIN_KEY_FILE"
# How long an answer of the database about the installation holds, from what age on it is refreshed
# in the background, and how long it may take.
MAX_AGE_SECONDS = 1.0
REFRESH_SECONDS = 0.5
ANSWER_SECONDS = 1.0
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# 32 bytes need 43 base-62 digits, a CRC-32 needs 6.
KEY = re.compile(r"sa_(?P<id>[a-z0-9]{8})_(?P<secret>[0-9A-Za-z]{43})(?P<checksum>[0-9A-Za-z]{6})")

log = get_logger("access")


class Scope(StrEnum):
    """What the holder of a key may do."""

    READ = "read"
    SCAN = "scan"
    ADMIN = "admin"


ALL_SCOPES = frozenset(Scope)


def requested_scopes(names: Iterable[str]) -> frozenset[Scope]:
    """The scopes that are asked for by name."""
    return frozenset(map(Scope, names))


def granted_scopes(stored: Iterable[str]) -> frozenset[Scope]:
    """The scopes that a stored key grants; a text of another version grants nothing."""
    scopes = frozenset(Scope(text) for text in stored if text in Scope.__members__.values())
    return ALL_SCOPES if Scope.ADMIN in scopes else scopes


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
    ident = "".join(secrets.choice("abcdefghijkmnpqrstuvwxyz23456789") for _ in range(8))
    body = f"sa_{ident}_{_base62(int.from_bytes(secrets.token_bytes(32)), 43)}"
    return KeyText(ident, Secret(body + key_checksum(body)))


def parse_key(text: str) -> KeyText:
    """Parse the key of a request; KeyInvalid if it cannot be one of ours."""
    match = KEY.fullmatch(text)
    if match is None or match["checksum"] != key_checksum(text[: match.start("checksum")]):
        raise KeyInvalid
    return KeyText(match["id"], Secret(text))


def key_checksum(body: str) -> str:
    """The CRC-32 of everything before it."""
    return _base62(crc32(body.encode()), 6)


def _base62(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))


def hash_secret(text: str) -> bytes:
    """The SHA-256 of a key or session token; 256 random bits need no slow hash."""
    return sha256(text.encode()).digest()


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """The request for a new key; without a user, the key belongs to the user of the same name."""

    name: str
    scopes: frozenset[Scope]
    user: str | None = None
    expires_in_seconds: float | None = None


async def create_key(session: AsyncSession, request: KeyRequest) -> KeyText:
    """Make and store a key; its text exists only in the result."""
    while True:
        key = generate_key()
        if await _store_key(session, key, request):
            return key


async def _store_key(session: AsyncSession, key: KeyText, request: KeyRequest) -> bool:
    user_id = await find_or_create_user(session, _checked_name(request.user or request.name))
    if user_id == SYSTEM_USER_ID:
        raise InputError("The system user cannot have access keys. Choose another name.")
    return await insert_key(
        session,
        ident=key.id,
        key_hash=key.hash,
        name=_checked_name(request.name),
        user_id=user_id,
        scopes=sorted(request.scopes),
        expires_in_seconds=request.expires_in_seconds,
    )


def _checked_name(name: str) -> str:
    stripped = name.strip()
    if not stripped or len(stripped) > MAX_NAME_CHARS or not stripped.isprintable():
        raise InputError(f"A name has 1 to {MAX_NAME_CHARS} printable characters.")
    return stripped


# Compared with when there is no such key, so that an unknown id takes as long as a wrong secret.
NO_HASH = hash_secret("")


def check_key(stored: StoredKey | None, sent: KeyText) -> StoredKey:
    """The stored key if what was sent is its text and it is still valid.

    Only the holder of the secret learns that a key has expired or was revoked.
    """
    matches = hmac.compare_digest(NO_HASH if stored is None else stored.key_hash, sent.hash)
    if stored is None or not matches:
        raise KeyInvalid
    if stored.is_revoked:
        raise KeyRevoked
    if stored.is_expired:
        raise KeyExpired
    return stored


async def revoke(session: AsyncSession, ident: str, *, by_key: str | None = None) -> None:
    """Revoke a key; LastAdminKey if it revokes itself and leaves none that can make others."""
    if not await revoke_key(session, ident):
        raise KeyNotFound
    if by_key == ident and not await any_active_key_with(session, Scope.ADMIN):
        raise LastAdminKey


async def adopt_admin_key(session: AsyncSession, file: Path) -> None:
    """Store the key in the operator's file with the scope admin, unless that was done before."""
    key = _read_key_file(file)
    stored = await find_key(session, key.id)
    if stored is not None:
        _require_same_key(stored, key, file)
        return
    request = KeyRequest(ADMIN_KEY_NAME, frozenset({Scope.ADMIN}), user="admin")
    await _store_key(session, key, request)


def _require_same_key(stored: StoredKey, key: KeyText, file: Path) -> None:
    try:
        check_key(stored, key)
    except KeyInvalid as error:
        raise ConfigurationError(f"{ADMIN_KEY_NAME}: {file}: {error.message}") from error


def _read_key_file(file: Path) -> KeyText:
    advice = f"Generate a key with: siteatlas keys generate --output {file}"
    try:
        if file.stat().st_mode & stat.S_IROTH:
            log.warning("key_file_readable", file=str(file), advice=f"chmod o-r {file}")
        return parse_key(file.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{ADMIN_KEY_NAME}: {file} cannot be read. {advice}") from error
    except KeyInvalid as error:
        raise ConfigurationError(f"{ADMIN_KEY_NAME}: {file} holds no key. {advice}") from error


async def lacks_admin_key(session: Reader, file: Path | None) -> bool:
    """Whether there are keys but none can manage the others, nor will the operator's file add one.

    Only commands on this machine can then create and revoke keys.
    """
    if file is not None or not await any_key_made(session):
        return False
    return not await any_active_key_with(session, Scope.ADMIN)


async def _any_key_made() -> bool:
    async with get_autocommit_session() as session:
        return await any_key_made(session)


class Installation:
    """The state of an installation as this process knows it; `known` is None before it asked."""

    def __init__(
        self,
        *,
        is_closed: bool | None = None,
        query: Callable[[], Coroutine[Any, Any, bool]] = _any_key_made,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.known = is_closed
        self._clock = clock
        self._checked_at = float("-inf")
        self._closed_at = float("-inf")
        self._run_query = query
        self._query = SharedCall(self._dated_answer)
        self._refresh: asyncio.Task[None] | None = None

    async def is_closed(self) -> bool:
        """Whether every request needs a key; DatabaseError if that was never known."""
        age = self._clock() - self._checked_at
        if self.known is None or age >= MAX_AGE_SECONDS:
            await self._check()
        elif age >= REFRESH_SECONDS and (self._refresh is None or self._refresh.done()):
            # Ahead of time, so that under load no request has to wait for the answer.
            self._refresh = asyncio.create_task(self._check())
        return bool(self.known)

    def close(self) -> None:
        """Take note that this process has just made a key."""
        self.known = True
        self._closed_at = self._clock()

    async def finish(self) -> None:
        """End a refresh that is still running, before the database is closed."""
        if self._refresh is not None:
            self._refresh.cancel()
            await asyncio.wait({self._refresh})
        await self._query.cancel(ANSWER_SECONDS)

    async def _check(self) -> None:
        try:
            asked_at, made = await self._query.run(ANSWER_SECONDS)
        except (DatabaseError, TimeoutError) as error:
            if self.known is None:
                raise error if isinstance(error, DatabaseError) else DatabaseTimeout from error
        else:
            # A query that began earlier may have missed the key that this process made.
            if made or asked_at > self._closed_at:
                self.known = made
        self._checked_at = self._clock()

    async def _dated_answer(self) -> tuple[float, bool]:
        """Whether a key was made, and when the query began."""
        began = self._clock()
        return began, await self._run_query()
