"""The jobs table as a queue: a fixed set of operations, each guarded by status and fence."""
