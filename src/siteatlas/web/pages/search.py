"""The search field of every page: leads to a site, a job, or the URLs of a site."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from siteatlas.access.marks import READ
from siteatlas.errors import AddressError
from siteatlas.net.address import parse_site
from siteatlas.storage.statements.domains import find_domain
from siteatlas.web.context import ReadSession
from siteatlas.web.templating import redirect

router = APIRouter(include_in_schema=False)


@router.get("/search", dependencies=[READ])
async def search(
    _request: Request, session: ReadSession, q: Annotated[str, Query(max_length=2048)] = ""
) -> Response:
    """A number is a job; an address whose site is known leads there; anything else is a filter."""
    text = q.strip()
    if text.isdecimal():
        return redirect(f"/jobs/{text}")
    try:
        address = parse_site(text)
    except AddressError:
        return redirect(f"/domains?{urlencode({'q': text})}")
    if await find_domain(session, address.domain) is None:
        return redirect(f"/domains?{urlencode({'q': text})}")
    if address.is_site_root:
        return redirect(f"/domains/{address.domain}")
    return redirect(
        f"/domains/{address.domain}?{urlencode({'tab': 'urls', 'contains': address.path})}"
    )
