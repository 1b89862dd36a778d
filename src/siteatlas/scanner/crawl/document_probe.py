"""Asks for documents without reading them: whether they still exist, and where.

For a caller that knows documents which the site no longer names. `visit.py` reads documents.
"""

from __future__ import annotations

from siteatlas.errors import AddressError, ScanError
from siteatlas.net.address import parse_url
from siteatlas.net.client import HttpClient
from siteatlas.scanner.events import DocumentProbe


async def probe_document(client: HttpClient, url: str) -> DocumentProbe:
    """Request a document once, and close the response before its body arrives."""
    try:
        async with client.get(parse_url(url)) as response:
            error = response.error()
            return DocumentProbe(
                url, response.address.url, response.status, error.code if error else None
            )
    except (ScanError, AddressError) as fault:
        return DocumentProbe(url, url, error_code=fault.code)
