"""Whether something is done about a node, and what. Pure.

In: evidence, the ledger and the settings.
Out: a decision with its reason.
Never: does I/O, or decides from a clock of its own.
"""
