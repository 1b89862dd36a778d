"""Who may do what: for now the local mode, in which only this machine's own user is served."""
