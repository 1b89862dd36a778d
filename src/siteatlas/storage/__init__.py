"""PostgreSQL: models, sessions, write statements, migrations and the embedded server."""
