"""Long-running processes: the web server, workers and their health probes."""
