"""The tables as Core objects, for statements that are made once.

An ORM entity in such a statement would be flushed row by row and kept in the session.
"""

from __future__ import annotations

from sqlalchemy import Table

from siteatlas.storage.models import (
    Base,
    Domain,
    DomainProblem,
    Job,
    JobAttempt,
    Scan,
    Sitemap,
    SitemapLink,
    SitemapScan,
    SitemapUrl,
)


def table_of(model: type[Base]) -> Table:
    """The table of a model."""
    return Base.metadata.tables[model.__tablename__]


DOMAINS = table_of(Domain)
DOMAIN_PROBLEMS = table_of(DomainProblem)
JOBS = table_of(Job)
JOB_ATTEMPTS = table_of(JobAttempt)
SCANS = table_of(Scan)
SITEMAPS = table_of(Sitemap)
SITEMAP_LINKS = table_of(SitemapLink)
SITEMAP_SCANS = table_of(SitemapScan)
SITEMAP_URLS = table_of(SitemapUrl)
