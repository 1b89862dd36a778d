"""The one error tree. Each class carries a stable `code`, an HTTP status and an exit code.

`transient` says whether a job that met it may succeed later.

SiteatlasError
├── ConfigurationError        a setting, an option or the environment is invalid
├── OutputFailed              the output cannot be written
├── BackupInvalid             the file is not a complete backup
├── InputError                the input is invalid
│   ├── AddressError          … as the address of a site
│   ├── CursorInvalid         … as the cursor of a list
│   ├── CursorExpired         … as a position that the change feed no longer has
│   ├── PastStateUnavailable  … as a past time whose URLs are not known
│   └── ParquetUnavailable    … as a format that is not installed
├── AccessError               the request is not allowed: its sender, origin or rate
│   ├── KeyRequired           … without a valid access key
│   └── TooManyRequests       … at this rate
├── TooManyConnections        all connections of the service are in use
├── NotFoundError             the resource does not exist
├── ConflictError             the resource is in a state that does not allow this
├── DatabaseError             PostgreSQL is unavailable, too old, or cannot be started
├── SchedulerEnded            the process no longer runs jobs
├── JobError                  the job cannot continue
└── ScanError                 the site, or one of its documents, cannot be read

The docstring of a class is its default message; it never reveals internals.
"""

from __future__ import annotations

# In the order of the tree, which is also that of the reference page. `*` because every class is
# public, and a list of them all would only repeat the modules.
# ruff: isort: off
from siteatlas.errors.base import *  # noqa: F403
from siteatlas.errors.configuration import *  # noqa: F403
from siteatlas.errors.requests import *  # noqa: F403
from siteatlas.errors.access import *  # noqa: F403
from siteatlas.errors.database import *  # noqa: F403
from siteatlas.errors.jobs import *  # noqa: F403
from siteatlas.errors.scans import *  # noqa: F403
