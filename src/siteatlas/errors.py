"""The one error tree. Each class carries a stable `code`, an HTTP status and an exit code.

`transient` says whether a job that met it may succeed later.

SiteatlasError
├── ConfigurationError        a setting, an option or the environment is invalid
├── OutputFailed              the output cannot be written
├── InputError                the input is invalid
│   ├── AddressError          … as the address of a site
│   └── CursorInvalid         … as the cursor of a list
├── AccessError               the request is not allowed from where it was sent
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
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from siteatlas.scanner.report import ScanReport


class SiteatlasError(Exception):
    """Something went wrong inside Siteatlas."""

    code: ClassVar[str] = "internal_error"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    transient: ClassVar[bool] = False

    def __init__(self, message: str | None = None) -> None:
        self.message = message or inspect.cleandoc(type(self).__doc__ or "").split("\n\n")[0]
        super().__init__(self.message)


class ConfigurationError(SiteatlasError):
    """A setting has an invalid value."""

    code = "configuration_invalid"
    exit_code = 2


class BindRefused(ConfigurationError):
    """The service can listen on loopback addresses only, until access keys exist."""

    code = "bind_refused"


class PortTaken(ConfigurationError):
    """The port is already in use by another program."""

    code = "port_taken"


class OutputFailed(SiteatlasError):
    """The output cannot be written."""

    code = "output_failed"


class OutputClosed(OutputFailed):
    """The reader of the output closed it."""

    code = "output_closed"
    exit_code = 0


class InputError(SiteatlasError):
    """The request holds a value that cannot be used."""

    code = "input_invalid"
    http_status = 422
    exit_code = 2


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
    """The request has both Content-Length and Transfer-Encoding. Send one of them."""

    code = "length_ambiguous"


class TargetTooLong(InputError):
    """The path and query of the request are longer than 8 KiB."""

    code = "target_too_long"
    http_status = 414


class TooManyParameters(InputError):
    """The request has more than 64 query parameters."""

    code = "too_many_parameters"
    http_status = 400


class HeadersTooLarge(InputError):
    """The request has more than 100 headers, or more than 32 KiB of them."""

    code = "headers_too_large"
    http_status = 431


class HeadersTooSlow(InputError):
    """The headers of the request did not arrive within ten seconds."""

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


class AddressError(InputError):
    """This is not the address of a web site."""

    code = "address_invalid"


class AddressEmpty(AddressError):
    """The address is empty. Enter a host such as example.com."""

    code = "address_empty"


class AddressTooLong(AddressError):
    """The address is longer than 2,048 characters."""

    code = "address_too_long"


class AddressCredentials(AddressError):
    """The address contains a user name or password. Remove it."""

    code = "address_credentials"


class AddressScheme(AddressError):
    """Only http and https addresses can be scanned."""

    code = "address_scheme"


class EgressDenied(AddressError):
    """This address may not be contacted."""

    code = "egress_denied"


class AccessError(SiteatlasError):
    """This request is not allowed."""

    code = "access_denied"
    http_status = 403


class HostRefused(AccessError):
    """The Host header must be the address of this service, such as 127.0.0.1:8000."""

    code = "host_refused"


class OriginRefused(AccessError):
    """The request was sent by a page of another origin."""

    code = "origin_refused"


class TooManyConnections(SiteatlasError):
    """All connections of the service are in use. Try again."""

    code = "too_many_connections"
    http_status = 503
    exit_code = 4
    transient = True


class NotFoundError(SiteatlasError):
    """There is nothing at this address."""

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


class ConflictError(SiteatlasError):
    """The current state does not allow this."""

    code = "conflict"
    http_status = 409


class JobActive(ConflictError):
    """Another job for this site is pending or running."""

    code = "job_active"


class JobStateConflict(ConflictError):
    """The current status of the job does not allow this."""

    code = "job_state_conflict"


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
    """Access to the database was denied: check the user, password and name in DATABASE_URL."""

    code = "database_refused"


class DatabaseTlsFailed(DatabaseUnavailable):
    """The TLS connection to the database failed: check the TLS options in DATABASE_URL."""

    code = "database_tls_failed"


class DatabaseRightsMissing(DatabaseUnavailable):
    """The role in DATABASE_URL lacks privileges: make it the owner of the database or schema."""

    code = "database_rights_missing"


class DatabaseBusy(DatabaseError):
    """The database was busy (deadlock or lock timeout). Try again."""

    code = "database_busy"


class DatabaseTimeout(DatabaseError):
    """The database took too long to respond."""

    code = "database_timeout"


class SchemaOutdated(DatabaseError):
    """The database schema is older than this version needs. Run: siteatlas db upgrade"""

    code = "schema_outdated"


class SchemaNewer(DatabaseError):
    """The database schema belongs to a newer version of Siteatlas. Use that version."""

    code = "schema_newer"


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
    """The data directory was created by another major version of PostgreSQL."""

    code = "embedded_version_mismatch"


class EmbeddedDirectoryUnusable(EmbeddedServerError):
    """The data directory cannot be used."""

    code = "embedded_directory_unusable"


class EmbeddedUserUnknown(EmbeddedServerError):
    """The user id of this process has no user name, which PostgreSQL requires."""

    code = "embedded_user_unknown"


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
    """The job crashed three workers in a row without finishing a document."""

    code = "poison"


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
    """No sitemap was found, either in robots.txt or at the common paths."""

    code = "no_sitemap"


class NotASitemap(ScanError):
    """The document is not a sitemap."""

    code = "not_a_sitemap"


class HtmlInstead(NotASitemap):
    """The site answered with a web page where a sitemap was expected."""

    code = "html_instead"


class EmptyDocument(ScanError):
    """The document has no content."""

    code = "empty"


class Blocked(ScanError):
    """The site blocks our requests."""

    code = "blocked"


class HttpNotFound(ScanError):
    """The site has no document at this address."""

    code = "http_not_found"


class HttpStatusUnexpected(ScanError):
    """The site answered with an unexpected status."""

    code = "http_status_unexpected"


class RateLimited(ScanError):
    """The site asked us to come back later."""

    code = "rate_limited"
    transient = True

    def __init__(self, message: str | None = None, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class DnsError(ScanError):
    """The host name of the site cannot be resolved."""

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
    """The certificate of the site is not trusted."""

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
    """The site answered with a server error."""

    code = "server_error"
    transient = True


class RobotsUnreachable(ScanError):
    """robots.txt cannot be read, so the site must not be scanned now."""

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


class ForeignHostLimit(ScanError):
    """The site redirected more than 20 documents to the same foreign host."""

    code = "foreign_host_limit"


class HttpProtocolError(ScanError):
    """The response of the site violates the HTTP protocol."""

    code = "http_protocol"


class EncodingUnsupported(ScanError):
    """The document uses a compression that was not requested."""

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
    """The XML of the document exceeds a parser limit."""

    code = "xml_limits"


class XmlTokenTooLong(XmlLimits):
    """The XML of the document contains a tag or text larger than one megabyte."""

    code = "xml_token_too_long"


class ScanStalled(ScanError):
    """The scan made no progress for five minutes."""

    code = "scan_stalled"
    transient = True


class ScanTimeout(ScanError):
    """The scan reached its time limit."""

    code = "scan_timeout"


def error_classes() -> list[type[SiteatlasError]]:
    """Every class of the tree, parents before children."""

    def walk(cls: type[SiteatlasError]) -> list[type[SiteatlasError]]:
        return [cls, *(below for child in cls.__subclasses__() for below in walk(child))]

    return walk(SiteatlasError)
