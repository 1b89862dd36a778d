"""Translates exceptions of the network libraries and HTTP statuses into our errors.

`client.py` decides when to retry.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import aiohttp
from aiohttp.http_exceptions import (
    ContentLengthError,
    HttpProcessingError,
    TransferEncodingError,
)

from siteatlas.errors import (
    Blocked,
    ConnectionFailed,
    DnsError,
    EmptyDocument,
    HttpNotFound,
    HttpProtocolError,
    HttpStatusUnexpected,
    PaymentRequired,
    ProxyFailed,
    RateLimited,
    ScanError,
    ServerError,
    SiteatlasError,
    Timeout,
    TlsError,
    TlsNotSpoken,
    Truncated,
)
from siteatlas.safe_text import clean_text, truncated

Fault = TypeVar("Fault", bound=BaseException)

MAX_RETRY_AFTER_SECONDS = 3600.0
MAX_PRICE_CHARS = 40
_MAX_CAUSE_DEPTH = 8
_BROKEN_HANDSHAKE = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
# The OpenSSL error for a response that is not TLS.
_NOT_TLS = frozenset(
    ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")
)

# What aiohttp, its dependencies and the standard library raise for a failed request.
LIBRARY_FAULTS = (
    aiohttp.ClientError,
    HttpProcessingError,
    OSError,
    ValueError,
)


def map_exception(error: BaseException) -> SiteatlasError:
    """The ScanError for an exception of aiohttp or the network during a request."""
    ours = _find_cause(error, SiteatlasError)
    if ours is not None:
        return ours
    if isinstance(error, TimeoutError):
        return Timeout()
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return _proxy_fault(error.status)
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return ProxyFailed("The proxy in SITEATLAS_PROXY cannot be reached.")
    if isinstance(error, aiohttp.ClientPayloadError):
        return _payload_fault(error)
    if _find_cause(error, *_BROKEN_HANDSHAKE):
        return ConnectionFailed("The site closed the connection.")
    if _find_cause(error, ssl.SSLError, ssl.CertificateError):
        reasons = {getattr(cause, "reason", None) for cause in _exception_chain(error)}
        return TlsError() if reasons.isdisjoint(_NOT_TLS) else TlsNotSpoken()
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return DnsError()
    if isinstance(error, (aiohttp.ServerConnectionError, OSError)):
        return ConnectionFailed()
    return HttpProtocolError()


def _proxy_fault(status: int) -> ScanError:
    """The error for a proxy that opened no tunnel: it cannot reach the site, or refuses us."""
    if 500 <= status <= 599:  # noqa: PLR2004
        return ConnectionFailed(f"The proxy cannot reach the site (status {status}).")
    return ProxyFailed(f"The proxy refused the connection (status {status}).")


def error_for_status(
    status: int, retry_after: float | None = None, price: str | None = None
) -> ScanError | None:
    """The error that a final status means for a document; None for 200 and 304."""
    if status in {200, 304}:
        return None
    if status == 429 or (status == 503 and retry_after is not None):  # noqa: PLR2004
        return RateLimited(retry_after=retry_after)
    if status == 402:  # noqa: PLR2004
        return _payment_required(price)
    if status in {401, 403, 451}:
        return Blocked(f"The site blocks our requests (status {status}).")
    if status == 407:  # noqa: PLR2004
        return ProxyFailed("The proxy requires a user name and password (status 407).")
    if status in {404, 410}:
        return HttpNotFound()
    if status == 204:  # noqa: PLR2004
        return EmptyDocument()
    if 500 <= status <= 599:  # noqa: PLR2004
        return ServerError(f"The site answered with a server error (status {status}).")
    return HttpStatusUnexpected(f"The site answered with status {status}.")


def _payment_required(price: str | None) -> PaymentRequired:
    """The error for a document that must be paid for, with the price that the response names."""
    shown = clean_text(truncated((price or "").strip(), MAX_PRICE_CHARS))
    detail = f", {shown} per request" if shown else ""
    return PaymentRequired(f"The site demands payment for the document (status 402{detail}).")


def retry_after_seconds(header: str | None, now: datetime | None = None) -> float | None:
    """The wait that a Retry-After header asks for, 0 to 3600 seconds; None if unreadable."""
    text = (header or "").strip()
    if text.isascii() and text.removeprefix("-").isdigit():
        return _bounded(float(text[:12]))
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return _bounded((moment - (now or datetime.now(UTC))).total_seconds())


def _bounded(seconds: float) -> float:
    """The delay of a Retry-After header, limited to the range that is accepted."""
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


def _payload_fault(error: aiohttp.ClientPayloadError) -> ScanError:
    """The error for a broken response body: truncated, or a violation of the protocol."""
    reason = _find_cause(error, HttpProcessingError)
    cut_short = reason is None or isinstance(reason, (ContentLengthError, TransferEncodingError))
    return Truncated() if cut_short else HttpProtocolError()


def _find_cause(error: BaseException, *kinds: type[Fault]) -> Fault | None:
    """The first exception of these types in the chain of a network fault."""
    return next((cause for cause in _exception_chain(error) if isinstance(cause, kinds)), None)


def _exception_chain(error: BaseException | None) -> Iterator[BaseException]:
    """The exception that the HTTP client raised, then the ones that caused it."""
    for _ in range(_MAX_CAUSE_DEPTH):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__
