"""Webhooks: whom to tell, what the messages look like, and when they are delivered."""
