"""The embedded PostgreSQL server; the rest of the package uses `server` only."""
