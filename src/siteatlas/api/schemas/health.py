"""Models of the health responses."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from siteatlas.api.schemas.base import AnswerShape, Seconds, SmallCount, Word, examples

ALIVE = {"status": "ok", "version": "0.1.0", "loop_lag_seconds": 0.0004}
DATABASE = {
    "status": "ok",
    "server_version": "18.1",
    "schema_revision": "0001",
    "needed_revision": "0001",
    "latency_ms": 0.6,
    "pool": {"size": 10, "in_use": 1, "overflow": 0},
}


class HealthAnswer(AnswerShape):
    """The process responds; nothing else was checked."""

    model_config = ConfigDict(json_schema_extra=examples(ALIVE))

    status: Literal["ok"]
    version: Word
    loop_lag_seconds: Seconds


class PoolAnswer(AnswerShape):
    """Database connections of this process."""

    size: SmallCount
    in_use: SmallCount
    overflow: SmallCount


class DatabaseHealthAnswer(AnswerShape):
    """The database responds and has the schema that this version needs."""

    model_config = ConfigDict(json_schema_extra=examples(DATABASE))

    status: Literal["ok"]
    server_version: Word
    schema_revision: Word | None
    needed_revision: Word
    latency_ms: Seconds
    pool: PoolAnswer
