"""The catalogue: what is recognised, what it means, and what to do.

In: TOML files, the built-in ones and the user's.
Out: rules with patterns, literals, details and remedies.
Never: reads a log, or lets one bad rule keep the others out.
"""
