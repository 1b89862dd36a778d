"""Backup and restore of what is stored, as one file that does not depend on the server's version.

What only running processes need is left out.
"""
