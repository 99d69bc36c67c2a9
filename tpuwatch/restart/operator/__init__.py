"""What `tpuwatch restart` and `restarts` do.

In: what an operator asks for.
Out: a restart that is begun or followed, reports and plans.
Never: exceeds a budget unseen: what it costs is shown and counted.
"""
