"""A cloud that Google's own clients talk to.

In: requests as Google's services take them, and faults.
Out: answers as they give them.
Never: knows of the machine or of the scenario.
"""
