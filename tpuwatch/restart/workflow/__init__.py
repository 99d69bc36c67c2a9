"""The state machine of a restart. Pure.

In: a record, and what the API shows.
Out: the record to write, and the call to make next.
Never: makes a call itself.
"""
