"""The marks of rules that recognise the parts of a printed exception."""

from __future__ import annotations

from typing import Final

TRACEBACK, CHAIN, PROCESS_ENDED = "traceback", "exception_chain", "process_ended"
CHAIN_MARKS: Final = frozenset({TRACEBACK, CHAIN, PROCESS_ENDED})
