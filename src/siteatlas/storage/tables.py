"""The tables as Core objects, for statements that are made once.

An ORM entity in such a statement would be flushed row by row and kept in the session.
"""

from __future__ import annotations

from sqlalchemy import Table

from siteatlas.storage.models import (
    Base,
    Domain,
    DomainProblem,
    FeedEvent,
    FeedHead,
    Job,
    JobAttempt,
    RobotsFile,
    Scan,
    Sitemap,
    SitemapLink,
    SitemapScan,
    SitemapUrl,
    UrlChange,
    WebhookDelivery,
    WebhookEndpoint,
)


def table_of(model: type[Base]) -> Table:
    """The table of a model."""
    return Base.metadata.tables[model.__tablename__]


DOMAINS = table_of(Domain)
DOMAIN_PROBLEMS = table_of(DomainProblem)
FEED_EVENTS = table_of(FeedEvent)
FEED_HEAD = table_of(FeedHead)
JOBS = table_of(Job)
JOB_ATTEMPTS = table_of(JobAttempt)
ROBOTS_FILES = table_of(RobotsFile)
SCANS = table_of(Scan)
SITEMAPS = table_of(Sitemap)
SITEMAP_LINKS = table_of(SitemapLink)
SITEMAP_SCANS = table_of(SitemapScan)
SITEMAP_URLS = table_of(SitemapUrl)
URL_CHANGES = table_of(UrlChange)
WEBHOOK_DELIVERIES = table_of(WebhookDelivery)
WEBHOOK_ENDPOINTS = table_of(WebhookEndpoint)
