"""Errors of a scan: why a site, or one of its documents, cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from siteatlas.errors.base import SiteatlasError

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
    """The site's certificate is not trusted."""

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
