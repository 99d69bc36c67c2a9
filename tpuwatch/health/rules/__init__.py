"""The rules of the judge, a module for each subject.

In: the facts about one node.
Out: a proposal of a verdict, or none.
Never: asks a signal, or reads a clock.
"""
