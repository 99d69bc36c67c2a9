"""Where restarts are recorded: one small interface, a file, a bucket, and who holds a record."""
