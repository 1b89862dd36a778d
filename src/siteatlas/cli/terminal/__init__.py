"""What all commands share: output, tables, errors, signals, settings."""
