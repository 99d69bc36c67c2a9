"""Where restarts are recorded: one small interface, a file, a bucket, and who holds a record.

In: records and the fleet's state, with the version that each replaces.
Out: what is stored, with its version.
Never: overwrites what another process has written since.
"""
