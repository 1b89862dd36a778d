"""Access control: keys, browser sessions, local mode, ownership, limits and the audit trail."""
