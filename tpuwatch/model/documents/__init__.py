"""The JSON documents: a dataclass each, from which come what is served, what clients read, and the schema.

In: the model's plain data.
Out: the same as documents.
Never: decides anything; a fact is made where it is known.

Sizes are bytes, durations seconds, times as `tpuwatch.core.Time`. A field that was not in the first version has a
default, so that documents of an older tpuwatch can be read. No annotation is text: `tpuwatch.core.codec` reads them.
"""
