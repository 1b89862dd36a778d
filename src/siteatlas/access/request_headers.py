"""What the headers of a request say about the page that sent it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import Scope

from siteatlas.errors import OriginRefused

SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
OWN_FETCH_SITES = {b"same-origin", b"none"}
# A link that was followed: the whole tab, not a frame, an image or a script.
NAVIGATION = ([b"navigate"], [b"document"])


def header_values(scope: Scope, name: bytes) -> list[bytes]:
    """All values of one header of the request."""
    return [value for key, value in scope["headers"] if key == name]


def is_navigation(scope: Scope) -> bool:
    """Whether a browser loads a whole page, after a link was followed or an address entered."""
    fetch = header_values(scope, b"sec-fetch-mode"), header_values(scope, b"sec-fetch-dest")
    return scope["method"] in SAFE_METHODS and fetch == NAVIGATION


def _no_page(_path: str) -> bool:
    """The answer of a service without pages."""
    return False


@dataclass(frozen=True, slots=True)
class BrowserPages:
    """To which paths links of other sites may lead."""

    is_page: Callable[[str], bool] = _no_page

    def check_fetch_site(self, scope: Scope) -> None:
        """Refuse what a page of another site asks for, unless it is a link to one of our pages."""
        sites = header_values(scope, b"sec-fetch-site")
        is_own = OWN_FETCH_SITES.issuperset(site.lower() for site in sites)
        if not is_own and not (self.is_page(scope["path"]) and is_navigation(scope)):
            raise OriginRefused
