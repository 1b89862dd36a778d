"""Sites: their documents, the links between these, the URLs that they list, what else was found.

Candidates are addresses where a scan looked for a sitemap; problems and versions of robots.txt are
kept with the time when they were first and last seen.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import (
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, REAL
from sqlalchemy.orm import Mapped, mapped_column, synonym

from siteatlas.storage.models.base import Base, CreatedAt, TextEnum, one_of


class LastScanStatus(StrEnum):
    """How the last scan of a site ended; `partial` when something of the site is missing."""

    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"


class Domain(Base):
    """A site: host without a leading `www.`, with its port when that is not the default.

    The counters are of all that is stored, as of the last published scan; `missing_count` is how
    many of the listed URLs are missing from their sitemaps without proof that they were removed.
    `baseline_scan_id` is the first complete scan: URL events exist only after it. `rules_version`
    is that of the rules by which it was judged, 0 before there were any; `judge_urls_at` is when
    all of its URLs are to be judged, see `processor.judgement`. `next_scan_at`
    is set while the site is watched; a paused site keeps it but is not scanned. A deleted site has
    given its name away, see `catalog.domains.tombstone`. `address` is the IP address at which it
    answered last, for IPv6 the /64 network.
    """

    __tablename__ = "domains"
    __table_args__ = (
        Index(
            "ix_domains_due",
            "next_scan_at",
            postgresql_where=text("watched AND NOT paused AND deleted_at IS NULL"),
        ),
        Index(
            "ix_domains_deleted_at", "deleted_at", postgresql_where=text("deleted_at IS NOT NULL")
        ),
        Index("ix_domains_tags", "tags", postgresql_using="gin"),
        Index(
            "ix_domains_judge_urls_at",
            "judge_urls_at",
            postgresql_where=text("judge_urls_at IS NOT NULL"),
        ),
        Index(
            "ix_domains_removals_held",
            "removals_held_since",
            postgresql_where=text("removals_held_since IS NOT NULL"),
        ),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=func.gen_random_uuid())
    domain: Mapped[str] = mapped_column(unique=True)
    origin: Mapped[str | None]
    base_url: Mapped[str]
    address: Mapped[str | None]
    watched: Mapped[bool] = mapped_column(server_default=text("false"))
    paused: Mapped[bool] = mapped_column(server_default=text("false"))
    scan_interval_hours: Mapped[float | None] = mapped_column(Double)
    next_scan_at: Mapped[datetime | None]
    max_pages: Mapped[int | None]
    max_urls = synonym("max_pages")
    last_scan_at: Mapped[datetime | None]
    last_scan_status: Mapped[LastScanStatus | None] = mapped_column(TextEnum(LastScanStatus))
    last_error_code: Mapped[str | None]
    failures_in_a_row: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    url_count: Mapped[int] = mapped_column(server_default=text("0"))
    distinct_url_count: Mapped[int] = mapped_column(server_default=text("0"))
    sitemap_count: Mapped[int] = mapped_column(server_default=text("0"))
    missing_count: Mapped[int] = mapped_column(server_default=text("0"))
    baseline_scan_id: Mapped[int | None]
    removals_held_since: Mapped[datetime | None]
    last_published_seq: Mapped[int | None]
    rules_version: Mapped[int | None] = mapped_column(Integer)
    judge_urls_at: Mapped[datetime | None]
    tags: Mapped[list[str]] = mapped_column(ARRAY(Text()), server_default=text("'{}'"))
    created_by: Mapped[UUID] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[CreatedAt]
    deleted_at: Mapped[datetime | None]


class SiteHeaders(Base):
    """Request headers that scans of a site send to one origin; they may hold a secret."""

    __tablename__ = "site_headers"

    domain_id: Mapped[UUID] = mapped_column(
        ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True
    )
    origin: Mapped[str]
    headers: Mapped[dict[str, str]] = mapped_column(JSONB())
    created_by: Mapped[UUID] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[CreatedAt]


class SitemapStatus(StrEnum):
    """How the last reading of a document ended."""

    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"


class Sitemap(Base):
    """One document, by its address after redirects. Job ids are kept when the job is pruned.

    `last_complete_at` is the last read that was complete or unchanged. `read_version` is the
    version of the reader that read it: null if it was never read completely, 0 before the change
    feed existed; a read by another version is silent. `rules_version` is that of the rules by which
    its last complete read was judged, 0 before there were any. `baseline_scan_id` is the scan of
    the last silent read, or the one that reported a new document. `lastmod_streak` and
    `lastmod_sample` (dates by hash) decide whether the dates of entries are trusted, see
    `processor.entries`.
    `vanished_at` is when a scan first found that nothing names the document any more or that it
    answers 404 or 410; once that is confirmed, `gone_at` is set. `url_breakdown` counts the URLs
    of the last complete read by section and month, or those of the last read if none was complete,
    see `processor.entries`.
    """

    __tablename__ = "sitemaps"
    __table_args__ = (
        one_of("status", SitemapStatus),
        UniqueConstraint("domain_id", "url_hash"),
        Index("ix_sitemaps_domain_id_id", "domain_id", "id"),
        Index(
            "ix_sitemaps_never_asked",
            "domain_id",
            "created_at",
            postgresql_where=text("status = 'pending' AND type IS NULL"),
        ),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=func.gen_random_uuid())
    domain_id: Mapped[UUID] = mapped_column(ForeignKey("domains.id", ondelete="CASCADE"))
    url: Mapped[str]
    url_hash: Mapped[int]
    requested_url: Mapped[str | None]
    type: Mapped[str | None]
    discovery_method: Mapped[str]
    status: Mapped[SitemapStatus] = mapped_column(
        TextEnum(SitemapStatus), server_default=text("'pending'")
    )
    first_job_id: Mapped[UUID]
    last_job_id: Mapped[UUID]
    created_by: Mapped[UUID] = mapped_column(ForeignKey("users.id"))
    http_status: Mapped[int | None] = mapped_column(Integer)
    wire_bytes: Mapped[int] = mapped_column(server_default=text("0"))
    decoded_bytes: Mapped[int] = mapped_column(server_default=text("0"))
    fetch_seconds: Mapped[float] = mapped_column(Double, server_default=text("0"))
    lastmod: Mapped[datetime | None]
    etag: Mapped[str | None]
    last_modified: Mapped[str | None]
    content_hash: Mapped[str | None]
    url_count: Mapped[int] = mapped_column(server_default=text("0"))
    has_images: Mapped[bool] = mapped_column(server_default=text("false"))
    has_videos: Mapped[bool] = mapped_column(server_default=text("false"))
    has_news: Mapped[bool] = mapped_column(server_default=text("false"))
    error_code: Mapped[str | None]
    error: Mapped[str | None]
    created_at: Mapped[CreatedAt]
    last_read_at: Mapped[datetime | None]
    last_complete_at: Mapped[datetime | None]
    read_version: Mapped[int | None] = mapped_column(Integer)
    rules_version: Mapped[int | None] = mapped_column(Integer)
    baseline_scan_id: Mapped[int | None]
    missing_count: Mapped[int] = mapped_column(server_default=text("0"))
    is_window: Mapped[bool] = mapped_column(server_default=text("false"))
    not_modified_count: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    validator_lies: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    lastmod_trusted: Mapped[bool] = mapped_column(server_default=text("true"))
    lastmod_streak: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    lastmod_sample: Mapped[dict[str, Any] | None]
    vanished_scan_id: Mapped[int | None]
    vanished_at: Mapped[datetime | None]
    gone_at: Mapped[datetime | None]
    url_breakdown: Mapped[dict[str, Any] | None]


class SitemapLink(Base):
    """An index and one of its children; a child may have several parents."""

    __tablename__ = "sitemap_links"
    __table_args__ = (Index("ix_sitemap_links_child_id", "child_id"),)

    parent_id: Mapped[UUID] = mapped_column(
        ForeignKey("sitemaps.id", ondelete="CASCADE"), primary_key=True
    )
    child_id: Mapped[UUID] = mapped_column(
        ForeignKey("sitemaps.id", ondelete="CASCADE"), primary_key=True
    )


class SitemapUrl(Base):
    """A URL in a document, as listed.

    No foreign keys: they would halve the rate of writing. Domain, job and owner are those of the
    sitemap. `fingerprint` covers all values listed for the URL. `missing_scan_id` is the first scan
    whose complete read of the document no longer showed the URL; `removed_at` is set once that is
    proved. `lastmod_text` is null where `lastmod` was listed in its usual form; see
    `restored_text`.
    """

    __tablename__ = "sitemap_urls"
    __table_args__ = (
        Index(
            "ix_sitemap_urls_removed_at",
            "removed_at",
            postgresql_where=text("removed_at IS NOT NULL"),
        ),
        Index(
            "ix_sitemap_urls_missing",
            "sitemap_id",
            "missing_scan_id",
            postgresql_where=text("missing_scan_id IS NOT NULL"),
        ),
        {
            "postgresql_with": {
                "autovacuum_vacuum_insert_scale_factor": 0.2,
                "autovacuum_analyze_scale_factor": 0.05,
            }
        },
    )

    sitemap_id: Mapped[UUID] = mapped_column(primary_key=True)
    url_hash: Mapped[int] = mapped_column(primary_key=True)
    url: Mapped[str]
    lastmod: Mapped[datetime | None]
    changefreq: Mapped[str | None]
    priority: Mapped[float | None] = mapped_column(REAL)
    extras: Mapped[dict[str, Any] | None]
    fingerprint: Mapped[int]
    first_seen_at: Mapped[CreatedAt]
    missing_scan_id: Mapped[int | None]
    removed_at: Mapped[datetime | None]
    lastmod_text: Mapped[str | None]


class Candidate(Base):
    """What the last scan that requested this address found there."""

    __tablename__ = "candidates"

    domain_id: Mapped[UUID] = mapped_column(
        ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True
    )
    url_hash: Mapped[int] = mapped_column(primary_key=True)
    url: Mapped[str]
    method: Mapped[str]
    verdict: Mapped[str]
    reason: Mapped[str | None]
    type: Mapped[str | None]
    http_status: Mapped[int | None] = mapped_column(Integer)
    scan_id: Mapped[int]
    checked_at: Mapped[CreatedAt]


class DomainProblem(Base):
    """One kind of problem in one document, as the last read that showed it found it.

    `resolved_at` is when a complete read no longer showed it; the row is kept. Scan numbers are
    kept when the scan is pruned.
    """

    __tablename__ = "domain_problems"
    __table_args__ = (
        Index("ix_domain_problems_domain_id_code_sitemap_id", "domain_id", "code", "sitemap_id"),
    )

    sitemap_id: Mapped[UUID] = mapped_column(
        ForeignKey("sitemaps.id", ondelete="CASCADE"), primary_key=True
    )
    code: Mapped[str] = mapped_column(primary_key=True)
    domain_id: Mapped[UUID] = mapped_column(ForeignKey("domains.id", ondelete="CASCADE"))
    count: Mapped[int]
    samples: Mapped[list[dict[str, Any]]] = mapped_column(JSONB(), server_default=text("'[]'"))
    first_scan_id: Mapped[int]
    last_scan_id: Mapped[int]
    first_seen_at: Mapped[CreatedAt]
    last_seen_at: Mapped[datetime] = mapped_column(server_default=func.now())
    resolved_at: Mapped[datetime | None]


class StoredFinding(Base):
    """A rule that a document breaks, or the site as a whole if `sitemap_id` is null.

    What the last reading found, and what the feed has said of it: `announced` is whether it says
    that the finding is there. The two differ from the reading to the publication that follows. An
    accepted finding is not shown among those to mend, until it was resolved or has grown tenfold.
    """

    __tablename__ = "findings"
    __table_args__ = (
        UniqueConstraint("sitemap_id", "domain_id", "code", postgresql_nulls_not_distinct=True),
        Index("ix_findings_domain_id_code_id", "domain_id", "code", "id"),
        Index(
            "ix_findings_unannounced",
            "domain_id",
            postgresql_where=text("announced <> (resolved_at IS NULL)"),
        ),
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    domain_id: Mapped[UUID] = mapped_column(ForeignKey("domains.id", ondelete="CASCADE"))
    sitemap_id: Mapped[UUID | None] = mapped_column(ForeignKey("sitemaps.id", ondelete="CASCADE"))
    code: Mapped[str]
    count: Mapped[int]
    samples: Mapped[list[dict[str, Any]]] = mapped_column(JSONB(), server_default=text("'[]'"))
    detail: Mapped[str] = mapped_column(server_default=text("''"))
    announced: Mapped[bool] = mapped_column(server_default=text("false"))
    first_scan_id: Mapped[int]
    last_scan_id: Mapped[int]
    first_seen_at: Mapped[CreatedAt]
    last_seen_at: Mapped[datetime] = mapped_column(server_default=func.now())
    resolved_at: Mapped[datetime | None]
    accepted_at: Mapped[datetime | None]
    accepted_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id"))
    accepted_reason: Mapped[str | None]
    accepted_count: Mapped[int | None]


class RobotsFile(Base):
    """One version of the robots.txt of an origin; a version that differs is a new row."""

    __tablename__ = "robots_files"
    __table_args__ = (
        Index("ix_robots_files_domain_id_origin_id", "domain_id", "origin", text("id DESC")),
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    domain_id: Mapped[UUID] = mapped_column(ForeignKey("domains.id", ondelete="CASCADE"))
    origin: Mapped[str]
    content_hash: Mapped[str]
    content: Mapped[str]
    http_status: Mapped[int | None] = mapped_column(Integer)
    truncated: Mapped[bool] = mapped_column(server_default=text("false"))
    first_seen_at: Mapped[CreatedAt]
    last_seen_at: Mapped[datetime] = mapped_column(server_default=func.now())
