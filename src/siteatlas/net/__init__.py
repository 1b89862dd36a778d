"""Outgoing requests: addresses, the egress policy, politeness and the HTTP client."""
