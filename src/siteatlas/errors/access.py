"""Errors of access: who sends a request, from where, how often, and what they may do."""

from __future__ import annotations

from siteatlas.errors.base import SiteatlasError


class AccessError(SiteatlasError):
    """This request is not allowed."""

    code = "access_denied"
    http_status = 403


class HostRefused(AccessError):
    """The Host header must be the address of this service, such as 127.0.0.1:8000."""

    code = "host_refused"


class OriginRefused(AccessError):
    """The request was sent by a page from another origin."""

    code = "origin_refused"


class ScopeMissing(AccessError):
    """The access key does not have the scope that this request needs."""

    code = "scope_missing"

    def __init__(self, message: str | None = None, *, scope: str | None = None) -> None:
        super().__init__(message)
        self.scope = scope


class NotOwner(AccessError):
    """This belongs to another user. Changing it requires the scope admin."""

    code = "not_owner"


class KeyRequired(AccessError):
    """This request needs an access key: send it as Authorization: Bearer KEY."""

    code = "key_required"
    http_status = 401


class KeyInvalid(KeyRequired):
    """The access key is unknown or incomplete."""

    code = "key_invalid"


class KeyExpired(KeyInvalid):
    """The access key has expired. Ask for a new one."""

    code = "key_expired"


class KeyRevoked(KeyInvalid):
    """The access key was revoked. Ask for a new one."""

    code = "key_revoked"


class TooManyRequests(AccessError):
    """Too many requests with this access key. Wait and try again."""

    code = "too_many_requests"
    http_status = 429
    transient = True

    def __init__(self, message: str | None = None, *, retry_after: float = 60.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TooManyFailedLogins(TooManyRequests):
    """Too many requests with wrong access keys came from this address. Wait and try again."""

    code = "too_many_failed_logins"


class TooManyQueuedScans(TooManyRequests):
    """Too many scans of this user are queued. Wait until some have ended."""

    code = "too_many_queued_scans"


class TooManyStreams(TooManyRequests):
    """Too many event streams are open. Close one, or try again later."""

    code = "too_many_streams"


class TooManyExports(TooManyRequests):
    """Too many Parquet exports are running. Wait until one has ended, or use another format."""

    code = "too_many_exports"
