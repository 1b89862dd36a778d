"""The one error tree. Each class carries a stable `code`, an HTTP status and an exit code.

`transient` says whether a job that met it may succeed later.

SiteatlasError
├── ConfigurationError        a setting, an option or the environment is invalid
├── OutputFailed              the output cannot be written
├── BackupInvalid             the file is not a complete backup
├── InputError                the input is invalid
│   ├── AddressError          … as the address of a site
│   ├── CursorInvalid         … as the cursor of a list
│   ├── CursorExpired         … as a position that the change feed no longer has
│   ├── PastStateUnavailable  … as a past time whose URLs are not known
│   └── ParquetUnavailable    … as a format that is not installed
├── AccessError               the request is not allowed: its sender, origin or rate
│   ├── KeyRequired           … without a valid access key
│   └── TooManyRequests       … at this rate
├── TooManyConnections        all connections of the service are in use
├── NotFoundError             the resource does not exist
├── ConflictError             the resource is in a state that does not allow this
├── DatabaseError             PostgreSQL is unavailable, too old, or cannot be started
├── SchedulerEnded            the process no longer runs jobs
├── JobError                  the job cannot continue
└── ScanError                 the site, or one of its documents, cannot be read

The docstring of a class is its default message; it never reveals internals.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar


class SiteatlasError(Exception):
    """Something went wrong inside Siteatlas."""

    code: ClassVar[str] = "internal_error"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    transient: ClassVar[bool] = False

    def __init__(self, message: str | None = None) -> None:
        self.message = message or inspect.cleandoc(type(self).__doc__ or "").split("\n\n")[0]
        super().__init__(self.message)

    @property
    def details(self) -> dict[str, Any]:
        """What a program needs to react to this error, beyond its code."""
        return {}


def error_classes() -> list[type[SiteatlasError]]:
    """Every class of the tree, parents before children."""

    def error_subtree(cls: type[SiteatlasError]) -> list[type[SiteatlasError]]:
        """An error class and all its subclasses."""
        subclasses = cls.__subclasses__()
        return [cls, *(below for child in subclasses for below in error_subtree(child))]

    return error_subtree(SiteatlasError)


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
    """Too many exports and expensive reads are running. Wait until one has ended."""

    code = "too_many_exports"


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


class TooManyToSort(InputError):
    """A site with more than 100,000 listings cannot be sorted. Leave out the parameter "sort"."""

    code = "too_many_to_sort"


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


class SessionAmbiguous(RequestMalformed):
    """The request has two session cookies. Delete the cookies of this host and log in again."""

    code = "session_ambiguous"


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
    """Connections to this address are not allowed.

    `at` is the host, port and IP address that was refused: for the operator, not for responses.
    """

    code = "egress_denied"

    def __init__(self, message: str | None = None, at: tuple[str, int, str] | None = None) -> None:
        super().__init__(message)
        self.at = at


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


class FindingNotFound(NotFoundError):
    """This site has no such finding that is not resolved."""

    code = "finding_not_found"


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


class SchedulerEnded(SiteatlasError):
    """This process no longer runs jobs; its log says why. Restart it."""

    code = "scheduler_ended"
    http_status = 503


class JobError(SiteatlasError):
    """The job cannot continue."""

    code = "job_failed"


class JobDataInvalid(JobError):
    """The job does not specify a site to scan."""

    code = "job_data_invalid"


class LeaseLost(JobError):
    """Another worker has taken over the job."""

    code = "lease_lost"


class JobCancelled(JobError):
    """The job was cancelled."""

    code = "cancelled"


class JobPoison(JobError):
    """Workers repeatedly died while running this job, and it never finished a document."""

    code = "poison"


class ConfigurationError(SiteatlasError):
    """A setting has an invalid value."""

    code = "configuration_invalid"
    exit_code = 2


class BindRefused(ConfigurationError):
    """Without an access key, the service listens on loopback addresses only."""

    code = "bind_refused"


class LastAdminKey(ConflictError):
    """This is the last active key with the scope admin. Create another one before revoking it."""

    code = "last_admin_key"


class PortTaken(ConfigurationError):
    """The port is already in use by another program.

    `option` is the option of the command that chooses the port.
    """

    code = "port_taken"

    def __init__(self, message: str | None = None, *, option: str = "--port") -> None:
        super().__init__(message)
        self.option = option


class OutputFailed(SiteatlasError):
    """The output cannot be written."""

    code = "output_failed"


class OutputClosed(OutputFailed):
    """The program reading the output closed the pipe."""

    code = "output_closed"
    exit_code = 0


class ParquetFailed(OutputFailed):
    """The process that encodes Parquet ended before the export did. Run the export again."""

    code = "parquet_failed"


class BackupInvalid(SiteatlasError):
    """The file is not a backup of Siteatlas, or it is incomplete or damaged."""

    code = "backup_invalid"


class DatabaseError(SiteatlasError):
    """The database cannot be used."""

    code = "database_error"
    http_status = 503
    exit_code = 4
    transient = True


class DatabaseUnavailable(DatabaseError):
    """The database cannot be reached."""

    code = "database_unavailable"


class DatabasePoolExhausted(DatabaseUnavailable):
    """All database connections of this process are in use. Try again."""

    code = "database_pool_exhausted"


class DatabaseConnectionsExhausted(DatabaseUnavailable):
    """The database server does not accept any more connections."""

    code = "database_connections_exhausted"


class DatabaseFull(DatabaseUnavailable):
    """The disk of the database server is full."""

    code = "database_full"


class DatabaseReadOnly(DatabaseUnavailable):
    """The database is currently read-only."""

    code = "database_read_only"


class DatabaseRefused(DatabaseUnavailable):
    """Database access was denied: check the user, password and database name in DATABASE_URL."""

    code = "database_refused"


class DatabaseTlsFailed(DatabaseUnavailable):
    """The TLS connection to the database failed: check the TLS options in DATABASE_URL."""

    code = "database_tls_failed"


class DatabaseRightsMissing(DatabaseUnavailable):
    """The user in DATABASE_URL lacks privileges: make it the owner of the database or schema."""

    code = "database_rights_missing"


class DatabaseBusy(DatabaseError):
    """The database was busy (deadlock or lock timeout). Try again."""

    code = "database_busy"


class DatabaseTimeout(DatabaseError):
    """The database took too long to respond."""

    code = "database_timeout"


class SchemaOutdated(DatabaseError):
    """The database schema is older than this version requires. Run: siteatlas db upgrade"""

    code = "schema_outdated"


class SchemaNewer(DatabaseError):
    """The database schema belongs to a newer version of Siteatlas. Use that version."""

    code = "schema_newer"


class DatabaseNotEmpty(DatabaseError):
    """The database contains data. Add --replace to delete it and restore the backup instead."""

    code = "database_not_empty"
    transient = False


class DatabaseInUse(DatabaseError):
    """Workers are using this database. Stop all processes of Siteatlas, then try again."""

    code = "database_in_use"


class EmbeddedServerUnavailable(DatabaseUnavailable):
    """The embedded PostgreSQL does not respond."""

    code = "embedded_server_unavailable"


class EmbeddedServerError(DatabaseError):
    """The embedded PostgreSQL cannot be started. Set DATABASE_URL to use another server."""

    code = "embedded_server_failed"


class EmbeddedBinaryMissing(EmbeddedServerError):
    """There is no embedded PostgreSQL for this platform. Set DATABASE_URL to use another server."""

    code = "embedded_binary_missing"


class EmbeddedVersionMismatch(EmbeddedServerError):
    """The data directory was created by a different major version of PostgreSQL."""

    code = "embedded_version_mismatch"


class EmbeddedDirectoryUnusable(EmbeddedServerError):
    """The data directory cannot be used."""

    code = "embedded_directory_unusable"


class EmbeddedUserUnknown(EmbeddedServerError):
    """The user id of this process has no user name, which PostgreSQL requires."""

    code = "embedded_user_unknown"


if TYPE_CHECKING:
    from siteatlas.scanner.report import ScanReport


class ScanError(SiteatlasError):
    """The site could not be scanned."""

    code = "scan_failed"
    exit_code = 3


class PartialScan(ScanError):
    """Some sitemaps of the site could not be read completely.

    `report` says which, unless the error was raised without one.
    """

    code = "partial_scan"
    exit_code = 1

    def __init__(self, message: str | None = None, *, report: ScanReport | None = None) -> None:
        super().__init__(message)
        self.report = report


class NoSitemap(ScanError):
    """No sitemap was found in robots.txt or at the common paths."""

    code = "no_sitemap"


class NotASitemap(ScanError):
    """The document is not a sitemap."""

    code = "not_a_sitemap"


class HtmlInstead(NotASitemap):
    """The site returned a web page where a sitemap was expected."""

    code = "html_instead"


class EmptyDocument(ScanError):
    """The document has no content."""

    code = "empty"


class Blocked(ScanError):
    """The site is blocking requests from Siteatlas."""

    code = "blocked"


class PaymentRequired(ScanError):
    """The site demands payment for the document."""

    code = "payment_required"


class HttpNotFound(ScanError):
    """The site has no document at this address."""

    code = "http_not_found"


class HttpStatusUnexpected(ScanError):
    """The site returned an unexpected HTTP status."""

    code = "http_status_unexpected"


class RateLimited(ScanError):
    """The site asked Siteatlas to try again later."""

    code = "rate_limited"
    transient = True

    def __init__(self, message: str | None = None, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class DnsError(ScanError):
    """The site's host name cannot be resolved."""

    code = "dns_error"
    transient = True


class DnsNameUnknown(DnsError):
    """This host name does not exist."""

    code = "dns_name_unknown"
    transient = False


class ConnectionFailed(ScanError):
    """The site does not accept connections."""

    code = "connection_failed"
    transient = True


class ProxyFailed(ScanError):
    """The proxy in SITEATLAS_PROXY cannot be reached or refused the request."""

    code = "proxy_failed"
    transient = True


class TlsError(ScanError):
    """The site's certificate is not trusted. SSL_CERT_FILE names a file of the CAs to trust."""

    code = "tls_error"


class TlsNotSpoken(TlsError):
    """The site does not use TLS on this port."""

    code = "tls_not_spoken"


class Timeout(ScanError):
    """The site did not respond in time."""

    code = "timeout"
    transient = True


class TooSlow(Timeout):
    """The site sent its response too slowly."""

    code = "too_slow"


class ServerError(ScanError):
    """The site returned a server error."""

    code = "server_error"
    transient = True


class RobotsUnreachable(ScanError):
    """robots.txt could not be read, so scanning the site is not allowed yet."""

    code = "robots_unreachable"
    transient = True


class RedirectInvalid(ScanError):
    """The site redirects to an invalid address."""

    code = "redirect_invalid"


class RedirectScheme(RedirectInvalid):
    """The site redirects to an address that is neither http nor https."""

    code = "redirect_scheme"


class RedirectLoop(ScanError):
    """The site redirects in a loop."""

    code = "redirect_loop"


class TooManyRedirects(ScanError):
    """The site redirects more than five times in a row."""

    code = "too_many_redirects"


class HeaderNotSent(ScanError):
    """The site leads to another origin than the one that its request headers are for."""

    code = "header_not_sent"


class ForeignHostLimit(ScanError):
    """The redirect exceeds the limit on documents on foreign hosts: 20 per domain, 200 per scan."""

    code = "foreign_host_limit"


class HttpProtocolError(ScanError):
    """The site's response violates the HTTP protocol."""

    code = "http_protocol"


class EncodingUnsupported(ScanError):
    """The document uses a compression format that was not requested."""

    code = "encoding_unsupported"


class EncodingChain(ScanError):
    """The document is compressed more than twice."""

    code = "encoding_chain"


class GzipMembers(ScanError):
    """The document consists of too many gzip members."""

    code = "gzip_members"


class GzipCorrupt(ScanError):
    """The compressed document is corrupt."""

    code = "corrupt"


class TooLarge(ScanError):
    """The document is larger than the maximum size of a sitemap."""

    code = "too_large"


class DecompressionBomb(TooLarge):
    """The document is a decompression bomb: it expands to an excessive size."""

    code = "bomb"


class Truncated(ScanError):
    """The document is truncated."""

    code = "truncated"


class TooManyEntries(ScanError):
    """The document lists more entries than a sitemap may contain."""

    code = "too_many_entries"


class UrlLimitReached(ScanError):
    """The scan reached its maximum number of URLs."""

    code = "url_limit"


class XmlMalformed(ScanError):
    """The document is not well-formed XML."""

    code = "xml_malformed"


class XmlEntities(ScanError):
    """The document declares its own XML entities."""

    code = "xml_entities"


class XmlLimits(ScanError):
    """The document exceeds a limit of the XML parser."""

    code = "xml_limits"


class XmlTokenTooLong(XmlLimits):
    """The document contains an XML tag or text larger than one megabyte."""

    code = "xml_token_too_long"


class ScanStalled(ScanError):
    """The scan made no progress for five minutes."""

    code = "scan_stalled"
    transient = True


class ScanTimeout(ScanError):
    """The scan reached its time limit."""

    code = "scan_timeout"
