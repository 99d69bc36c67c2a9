"""`tpuwatch exec`: a command in the foreground, with its output read beside it."""
