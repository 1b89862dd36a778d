"""Exports of stored URLs and of changes, as CSV, JSON Lines and Parquet."""
