"""Files that grow: which there are, and what is new in each.

In: directories, globs, and hints of the file system.
Out: chunks of each file in order, with the offset up to which it was read.
Never: opens what is no regular file, or blocks.
"""
