"""One scan of one site: which documents are read, in which order, with which limits."""
