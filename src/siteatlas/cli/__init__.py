"""The command line: one module per command, data on stdout, messages on stderr."""
