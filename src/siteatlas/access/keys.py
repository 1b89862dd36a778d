"""Makes access keys and checks those that are sent: expiry, revocation, and comparison.

The text of a key is `key_text`'s business. The caller owns the transaction.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from pathlib import Path

from siteatlas.access.key_text import KeyText, generate_key, hash_secret, parse_key
from siteatlas.access.scopes import Scope
from siteatlas.errors import (
    ConfigurationError,
    InputError,
    KeyExpired,
    KeyInvalid,
    KeyNotFound,
    KeyRevoked,
)
from siteatlas.storage.autocommit import Reader
from siteatlas.storage.models import SYSTEM_USER_ID
from siteatlas.storage.session import AsyncSession
from siteatlas.storage.statements.api_keys import (
    StoredKey,
    any_active_key_with,
    any_key_made,
    find_key,
    find_or_create_user,
    insert_key,
    revoke_key,
)

MAX_NAME_CHARS = 100
MAX_EXPIRY_DAYS = 3650
SECONDS_A_DAY = 86400.0
ADMIN_KEY_NAME = "SITEATLAS_ADMIN_KEY_FILE"
ADMIN_USER = "admin"
# Compared with when there is no such key, so that an unknown id takes as long as a wrong secret.
NO_HASH = hash_secret("")


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
    """Store a key with its user; False if its id is taken."""
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
    """The name of a key or user, stripped; InputError if it is empty, long or unprintable."""
    stripped = name.strip()
    if not stripped or len(stripped) > MAX_NAME_CHARS or not stripped.isprintable():
        raise InputError(f"A name has 1 to {MAX_NAME_CHARS} printable characters.")
    return stripped


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


async def revoke(session: AsyncSession, ident: str) -> None:
    """Revoke a key; KeyNotFound if there is none with this id."""
    if not await revoke_key(session, ident):
        raise KeyNotFound


async def adopt_admin_key(session: AsyncSession, file: Path) -> None:
    """Store the key in the operator's file with the scope admin, unless that was done before."""
    key = _read_key_file(file)
    stored = await find_key(session, key.id)
    if stored is not None:
        _require_same_key(stored, key, file)
        return
    request = KeyRequest(ADMIN_KEY_NAME, frozenset({Scope.ADMIN}), user=ADMIN_USER)
    await _store_key(session, key, request)


async def lacks_admin_key(session: Reader, file: Path | None) -> bool:
    """Whether there are keys but none can manage the others, nor will the operator's file add one.

    Only commands on this machine can then create and revoke keys.
    """
    if file is not None or not await any_key_made(session):
        return False
    return not await any_active_key_with(session, Scope.ADMIN)


def _require_same_key(stored: StoredKey, key: KeyText, file: Path) -> None:
    """Raise ConfigurationError if the key of the file cannot be used."""
    try:
        check_key(stored, key)
    except KeyInvalid as error:
        raise ConfigurationError(f"{ADMIN_KEY_NAME}: {file}: {error.message}") from error


def _read_key_file(file: Path) -> KeyText:
    """The key in a file; ConfigurationError says how to make one."""
    advice = f"Generate a key with: siteatlas keys generate > {file}"
    try:
        return parse_key(file.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{ADMIN_KEY_NAME}: {file} cannot be read. {advice}") from error
    except KeyInvalid as error:
        raise ConfigurationError(f"{ADMIN_KEY_NAME}: {file} holds no key. {advice}") from error
