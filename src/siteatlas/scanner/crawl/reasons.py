"""Why a scan found nothing: the most specific of all errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from siteatlas.errors import (
    Blocked,
    ConnectionFailed,
    DecompressionBomb,
    DnsError,
    EgressDenied,
    EmptyDocument,
    EncodingChain,
    EncodingUnsupported,
    GzipCorrupt,
    GzipMembers,
    HtmlInstead,
    HttpNotFound,
    NoSitemap,
    NotASitemap,
    PaymentRequired,
    RedirectInvalid,
    RedirectLoop,
    ServerError,
    SiteatlasError,
    Timeout,
    TlsError,
    TooLarge,
    TooManyRedirects,
    Truncated,
    XmlEntities,
    XmlLimits,
    XmlMalformed,
)
from siteatlas.scanner.crawl.candidates import CrawlCandidate

# If most guesses fail with one of these, it is an error of the site.
SITE_FAULTS = (
    *(Blocked, ConnectionFailed, DnsError, PaymentRequired, ServerError, Timeout, TlsError),
    *(RedirectInvalid, RedirectLoop, TooManyRedirects),
)
# If a guess fails with one of these, a document exists there and cannot be read.
DOCUMENT_FAULTS = (
    *(DecompressionBomb, EmptyDocument, EncodingChain, EncodingUnsupported, GzipCorrupt),
    *(GzipMembers, NotASitemap, TooLarge, Truncated, XmlEntities, XmlLimits, XmlMalformed),
)

NAMED_REFUSED = "Connections to the sitemaps that the site names are not allowed."

Failure = tuple[CrawlCandidate, SiteatlasError]


def most_specific_error(
    failures: Sequence[Failure], home_error: SiteatlasError | None
) -> SiteatlasError:
    """The error of a named document, else of the site, else of a guessed one, else NoSitemap."""
    named = [_of_named(error) for candidate, error in failures if _is_named(candidate, error)]
    guessed = [error for candidate, error in failures if candidate.is_guess]
    return (
        next((error for error in named if not isinstance(error, HttpNotFound)), None)
        or _site_error(guessed)
        or _guess_error(guessed)
        or (home_error if not guessed and isinstance(home_error, SITE_FAULTS) else None)
        or NoSitemap()
    )


def _is_named(candidate: CrawlCandidate, error: SiteatlasError) -> bool:
    """Whether the candidate was named as a sitemap; for a page only errors of its site count."""
    if candidate.may_be_page:
        return isinstance(error, SITE_FAULTS)
    return not candidate.is_guess


def _of_named(error: SiteatlasError) -> SiteatlasError:
    """The error, with a message that it is the named sitemap that is denied, not the site."""
    return EgressDenied(NAMED_REFUSED) if isinstance(error, EgressDenied) else error


def _site_error(guessed: Sequence[SiteatlasError]) -> SiteatlasError | None:
    """The most common fault of the site, if at least half of the guessed paths failed with one."""
    faults = [error for error in guessed if isinstance(error, SITE_FAULTS)]
    if 2 * len(faults) < len(guessed) or not faults:
        return None
    kind, _ = Counter(map(type, faults)).most_common(1)[0]
    return next(error for error in faults if type(error) is kind)


def _guess_error(guessed: Sequence[SiteatlasError]) -> SiteatlasError | None:
    """The error of a guessed document; HTML does not count, as many sites have a page there."""
    there = [error for error in guessed if isinstance(error, DOCUMENT_FAULTS)]
    pages = sum(isinstance(error, HtmlInstead) for error in there)
    alike = 2 * len(there) > len(guessed)
    if len(there) == pages or alike:
        return None
    return next(error for error in there if not isinstance(error, HtmlInstead))
