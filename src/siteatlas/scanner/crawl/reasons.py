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
from siteatlas.scanner.crawl.frontier import CrawlCandidate

# Said of most guesses, these are true of the site.
SITE_FAULTS = (
    *(Blocked, ConnectionFailed, DnsError, ServerError, Timeout, TlsError),
    *(RedirectInvalid, RedirectLoop, TooManyRedirects),
)
# Said of one guess, these mean that a document is there and cannot be read.
DOCUMENT_FAULTS = (
    *(DecompressionBomb, EmptyDocument, EncodingChain, EncodingUnsupported, GzipCorrupt),
    *(GzipMembers, NotASitemap, TooLarge, Truncated, XmlEntities, XmlLimits, XmlMalformed),
)

NAMED_REFUSED = "The sitemaps that the site names are at addresses that may not be contacted."

Failure = tuple[CrawlCandidate, SiteatlasError]


def reason_of(failures: Sequence[Failure], home_error: SiteatlasError | None) -> SiteatlasError:
    """A named document's reason, else the site's, else a guessed document's, else absence."""
    named = [_of_named(error) for candidate, error in failures if _is_named(candidate, error)]
    guessed = [error for candidate, error in failures if candidate.is_guess]
    return (
        next((error for error in named if not isinstance(error, HttpNotFound)), None)
        or _fault_of_site(guessed)
        or _fault_of_guess(guessed)
        or (home_error if not guessed and isinstance(home_error, SITE_FAULTS) else None)
        or NoSitemap()
    )


def _is_named(candidate: CrawlCandidate, error: SiteatlasError) -> bool:
    """Whether a sitemap was named there; of a page only the faults of its site matter."""
    if candidate.may_be_page:
        return isinstance(error, SITE_FAULTS)
    return not candidate.is_guess


def _of_named(error: SiteatlasError) -> SiteatlasError:
    """The site itself was allowed: say that what it names is not."""
    return EgressDenied(NAMED_REFUSED) if isinstance(error, EgressDenied) else error


def _fault_of_site(guessed: Sequence[SiteatlasError]) -> SiteatlasError | None:
    faults = [error for error in guessed if isinstance(error, SITE_FAULTS)]
    if 2 * len(faults) < len(guessed) or not faults:
        return None
    kind, _ = Counter(map(type, faults)).most_common(1)[0]
    return next(error for error in faults if type(error) is kind)


def _fault_of_guess(guessed: Sequence[SiteatlasError]) -> SiteatlasError | None:
    """A page of HTML is not one: many sites show people a list of their pages at /sitemap."""
    there = [error for error in guessed if isinstance(error, DOCUMENT_FAULTS)]
    pages = sum(isinstance(error, HtmlInstead) for error in there)
    alike = 2 * len(there) > len(guessed)
    if len(there) == pages or alike:
        return None
    return next(error for error in there if not isinstance(error, HtmlInstead))
