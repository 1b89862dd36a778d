"""All read statements, for the API, the dashboard and the command line. Nothing here writes."""
