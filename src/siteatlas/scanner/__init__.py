"""The engine: the address of a site in, a stream of events out. Does not use a database."""
