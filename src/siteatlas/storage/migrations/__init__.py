"""Alembic migrations of the schema; `versions` has one file per change."""
