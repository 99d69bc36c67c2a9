"""The marks that this package itself knows: of the parts of a printed exception, and of lines that only quote one."""

from __future__ import annotations

from typing import Final

TRACEBACK, CHAIN, PROCESS_ENDED = "traceback", "exception_chain", "process_ended"
CHAIN_MARKS: Final = frozenset({TRACEBACK, CHAIN, PROCESS_ENDED})
HARMLESS: Final = "harmless"  # what was tried failed, and the program goes on: no general rule matches there
