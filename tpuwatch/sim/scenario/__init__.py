"""What happens when.

In: a TOML file, and actions as they are asked for.
Out: changes of the cloud and launches on the host.
Never: changes either but by their own functions.
"""
