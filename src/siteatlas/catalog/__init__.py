"""What is known about sites: one noun per module, its reads and its writes together.

The caller owns the transaction.
"""
