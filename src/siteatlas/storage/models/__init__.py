"""The tables, one module per noun."""

from siteatlas.storage.models.access import ApiKey, AuditEvent, BrowserSession, RateLimit
from siteatlas.storage.models.base import Base
from siteatlas.storage.models.batch import Batch, BatchItem
from siteatlas.storage.models.candidate import Candidate
from siteatlas.storage.models.change import (
    ChangeKind,
    FeedEvent,
    FeedEventKind,
    FeedHead,
    RemovalEvidence,
    UrlChange,
)
from siteatlas.storage.models.domain import Domain, LastScanStatus
from siteatlas.storage.models.job import SITEMAP_JOB, AttemptOutcome, Job, JobAttempt, JobStatus
from siteatlas.storage.models.problem import DomainProblem
from siteatlas.storage.models.robots_file import RobotsFile
from siteatlas.storage.models.scan import Scan, ScanScope, ScanState, SitemapScan, SitemapScanState
from siteatlas.storage.models.sitemap import Sitemap, SitemapLink, SitemapStatus, SitemapUrl
from siteatlas.storage.models.user import LOCAL_USER_ID, SYSTEM_USER_ID, User
from siteatlas.storage.models.webhook import (
    DisabledReason,
    MessageType,
    WebhookDelivery,
    WebhookEndpoint,
)
from siteatlas.storage.models.worker import Worker

__all__ = [
    "LOCAL_USER_ID",
    "SITEMAP_JOB",
    "SYSTEM_USER_ID",
    "ApiKey",
    "AttemptOutcome",
    "AuditEvent",
    "Base",
    "Batch",
    "BatchItem",
    "BrowserSession",
    "Candidate",
    "ChangeKind",
    "DisabledReason",
    "Domain",
    "DomainProblem",
    "FeedEvent",
    "FeedEventKind",
    "FeedHead",
    "Job",
    "JobAttempt",
    "JobStatus",
    "LastScanStatus",
    "MessageType",
    "RateLimit",
    "RemovalEvidence",
    "RobotsFile",
    "Scan",
    "ScanScope",
    "ScanState",
    "Sitemap",
    "SitemapLink",
    "SitemapScan",
    "SitemapScanState",
    "SitemapStatus",
    "SitemapUrl",
    "UrlChange",
    "User",
    "WebhookDelivery",
    "WebhookEndpoint",
    "Worker",
]
