"""The jobs table as a queue: a closed set of verbs, each guarded by status and fence."""
