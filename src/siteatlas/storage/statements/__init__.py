"""The write statements, one module per noun; the caller owns the transaction."""
