"""Runs the migrations on the connection that `storage.schema` passes."""

from __future__ import annotations

from alembic import context

from siteatlas.storage.models import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
with context.begin_transaction():
    context.run_migrations()
