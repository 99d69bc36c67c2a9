"""A TPU VM: processes that write what libtpu and jobs write.

In: the name of a launch, or TPU_* variables.
Out: real processes with real files.
Never: loads libtpu.
"""
