"""The witnesses: who says something of the node, and how to ask them."""

import os

# gRPC reads it when it is loaded. Its own lines on stderr say no more than its errors, which are all explained.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
