"""What is done on the machine itself: a checkpoint, the end of who holds the TPU, a restart of the runtime.

In: a record, and the holders that the verdict names.
Out: signals and commands, each written before it is sent.
Never: signals a process before it has looked again whether it is the same one.
"""
