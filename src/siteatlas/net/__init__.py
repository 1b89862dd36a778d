"""Addresses and the way out: what may be contacted, how politely, and the client that asks."""
