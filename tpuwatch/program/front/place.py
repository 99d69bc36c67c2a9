"""Whose a line of code is: the user's, or one of this package."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep  # begins the path of each file of this package


def users_line() -> dict[str, Any] | None:
    """The innermost line of the traceback of the exception, or of its cause, that is the user's: below the directory in
    which it runs."""
    here = os.getcwd() + os.sep
    error = sys.exc_info()[1]
    while error is not None:
        frames = traceback.extract_tb(error.__traceback__)
        files = [(f, os.path.abspath(f.filename)) for f in frames if "site-packages" not in f.filename]
        own = [f for f, path in files if path.startswith(here) and not path.startswith(HERE)]
        if own:
            return {"file": own[-1].filename, "line": own[-1].lineno}
        error = error.__cause__
    return None
