"""Backup and restore of the whole database, as one file that any PostgreSQL can take back."""
