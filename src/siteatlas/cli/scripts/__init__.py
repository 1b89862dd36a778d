"""The functions behind the programs in `scripts/`."""
