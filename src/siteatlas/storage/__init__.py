"""PostgreSQL: models, sessions, migrations, backup and the embedded server."""
