"""From the bytes of one stream to its matches.

In: chunks, cut anywhere.
Out: the matches of the rules, copies and repeats recognised.
Never: opens a file, or holds more than a bounded part of the stream.
"""
