"""The command line: a module for each command, imported when it is used.

In: arguments, and the environment.
Out: text or JSON, and an exit code.
Never: decides anything: each fact comes from the package that knows it.
"""
