"""One document: from the bytes of a response to entries, without the network."""
