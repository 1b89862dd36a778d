"""Errors of a request, over HTTP or on the command line: its form and its subject."""

from __future__ import annotations

from typing import Any

from siteatlas.errors.base import SiteatlasError


class InputError(SiteatlasError):
    """The request contains an invalid value."""

    code = "input_invalid"
    http_status = 422
    exit_code = 2


class TagInvalid(InputError):
    """A tag has 1 to 50 characters (letters, digits, . _ : / -); the first is a letter or digit."""

    code = "tag_invalid"


class TooManyTags(InputError):
    """A site has at most 20 tags, counting those that it keeps."""

    code = "too_many_tags"


class PayloadTooLarge(InputError):
    """The request body is larger than this route accepts."""

    code = "payload_too_large"
    http_status = 413


class MediaTypeUnsupported(InputError):
    """The request body must be JSON, with the content type application/json."""

    code = "media_type_unsupported"
    http_status = 415


class RequestMalformed(InputError):
    """This is not a valid HTTP/1.1 request."""

    code = "request_malformed"
    http_status = 400


class LengthAmbiguous(RequestMalformed):
    """The request has both Content-Length and Transfer-Encoding. Send only one of them."""

    code = "length_ambiguous"


class TargetTooLong(InputError):
    """The path and query of the request are longer than 8 KiB in total."""

    code = "target_too_long"
    http_status = 414


class TooManyParameters(InputError):
    """The request has more than 64 query parameters."""

    code = "too_many_parameters"
    http_status = 400


class HeadersTooLarge(InputError):
    """The request has more than 100 headers, or headers larger than 32 KiB in total."""

    code = "headers_too_large"
    http_status = 431


class HeadersTooSlow(InputError):
    """The request headers did not arrive within ten seconds."""

    code = "headers_too_slow"
    http_status = 408


class BodyTooSlow(InputError):
    """The request body did not arrive within ten seconds."""

    code = "body_too_slow"
    http_status = 408


class CursorInvalid(InputError):
    """The cursor does not belong to this list. Start again without one."""

    code = "cursor_invalid"
    http_status = 400


class CursorExpired(InputError):
    """The feed no longer has the events after this position. Read the current state again.

    `earliest_cursor` is the oldest position from which the feed can still be read.
    """

    code = "cursor_expired"
    http_status = 410

    def __init__(self, message: str | None = None, *, earliest_cursor: str = "") -> None:
        super().__init__(message)
        self.earliest_cursor = earliest_cursor

    @property
    def details(self) -> dict[str, str]:
        """The oldest position, as a member of the problem details."""
        return {"earliest_cursor": self.earliest_cursor} if self.earliest_cursor else {}


class PastStateUnavailable(InputError):
    """The URLs at this time or sequence number are not known. Choose a later one.

    `earliest_seq` is the first number of the change feed at which they are: after the last
    baseline of the site, and as long as the feed is retained.
    """

    code = "past_state_unavailable"
    http_status = 410

    def __init__(self, message: str | None = None, *, earliest_seq: int = 0) -> None:
        super().__init__(message)
        self.earliest_seq = earliest_seq

    @property
    def details(self) -> dict[str, Any]:
        """The first number, as a member of the problem details."""
        return {"earliest_seq": self.earliest_seq} if self.earliest_seq else {}


class ParquetUnavailable(InputError):
    """Parquet needs pyarrow. Install it in the same environment, or export CSV or JSON Lines."""

    code = "parquet_unavailable"


class AddressError(InputError):
    """This is not a valid site address."""

    code = "address_invalid"


class AddressEmpty(AddressError):
    """The address is empty. Enter a host such as example.com."""

    code = "address_empty"


class AddressTooLong(AddressError):
    """The address is longer than 2,048 characters."""

    code = "address_too_long"


class AddressCredentials(AddressError):
    """The address contains a user name or password. Remove the credentials."""

    code = "address_credentials"


class AddressScheme(AddressError):
    """Only http and https addresses can be scanned."""

    code = "address_scheme"


class EgressDenied(AddressError):
    """Connections to this address are not allowed."""

    code = "egress_denied"


class TooManyConnections(SiteatlasError):
    """All connections to the service are in use. Try again."""

    code = "too_many_connections"
    http_status = 503
    exit_code = 4
    transient = True


class NotFoundError(SiteatlasError):
    """This path does not exist."""

    code = "not_found"
    http_status = 404


class JobNotFound(NotFoundError):
    """There is no job with this id."""

    code = "job_not_found"


class BatchNotFound(NotFoundError):
    """There is no batch with this id."""

    code = "batch_not_found"


class DomainNotFound(NotFoundError):
    """This site is unknown. Add it or submit a scan first."""

    code = "domain_not_found"


class SitemapNotFound(NotFoundError):
    """There is no sitemap with this id."""

    code = "sitemap_not_found"


class ScanNotFound(NotFoundError):
    """This site has no published scan with this number."""

    code = "scan_not_found"


class KeyNotFound(NotFoundError):
    """There is no access key with this id."""

    code = "key_not_found"


class WebhookNotFound(NotFoundError):
    """There is no webhook with this id."""

    code = "webhook_not_found"


class ConflictError(SiteatlasError):
    """The request conflicts with the current state of the resource."""

    code = "conflict"
    http_status = 409


class JobActive(ConflictError):
    """Another job for this site is pending or running."""

    code = "job_active"


class NothingHeld(ConflictError):
    """No removals of this site are held, so there is nothing to release."""

    code = "nothing_held"


class TooManyWebhooks(ConflictError):
    """There are 1,000 webhooks already. Delete one first."""

    code = "too_many_webhooks"


class JobStateConflict(ConflictError):
    """The current status of the job does not allow this action."""

    code = "job_state_conflict"
