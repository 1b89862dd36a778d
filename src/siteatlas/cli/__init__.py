"""The command line: one file per noun, data on stdout, words on stderr."""
