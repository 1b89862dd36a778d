"""HTTP: validate, enqueue, read. Answers are JSON, errors are problem details."""
