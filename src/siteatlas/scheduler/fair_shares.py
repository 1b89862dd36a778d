"""Whose share of the slots a job uses; the operator's own hosts and our own users have none."""

from __future__ import annotations

from uuid import UUID

from siteatlas.errors import AddressError
from siteatlas.net.address import parse_site
from siteatlas.net.egress import EgressPolicy
from siteatlas.net.registrable_domain import registrable_domain
from siteatlas.queue.claims import Claim
from siteatlas.storage.models import LOCAL_USER_ID, SYSTEM_USER_ID

WITHOUT_LIMIT = {LOCAL_USER_ID, SYSTEM_USER_ID}


def shares_of(claim: Claim, policy: EgressPolicy) -> tuple[str | None, UUID | None]:
    """The family of sites and the user that a job counts for; None where there is no limit."""
    user = None if claim.created_by in WITHOUT_LIMIT else claim.created_by
    return _site_of(claim, policy), user


def _site_of(claim: Claim, policy: EgressPolicy) -> str | None:
    try:
        address = parse_site(claim.base_url or "")
    except AddressError:
        return None
    return None if policy.is_own(address) else registrable_domain(address.host)
