"""The ledger and the audit that an operator's commands read and write, and the operator's name in them."""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tpuwatch.core import LedgerError
from tpuwatch.model import ledger_down
from tpuwatch.restart.audit import FILE_NAME, Audit
from tpuwatch.restart.ledger.opening import open_ledger
from tpuwatch.restart.ledger.reading import read_ledger, require_writable
from tpuwatch.restart.wording import own_command

if TYPE_CHECKING:
    from tpuwatch.config import Config
    from tpuwatch.core import Clock
    from tpuwatch.restart.ledger.base import Ledger


@dataclass(frozen=True, slots=True)
class LedgerAccess:
    """An operator's access to the ledger and to the audit."""

    ledger: Ledger
    audit: Audit
    location: str  # of the ledger: a directory, or gs://…; "" where it is read through the daemon
    config: str = ""  # the configuration that was named on the command line

    @property
    def is_shared(self) -> bool:
        """Whether tpuwatch on other machines may use the ledger too."""
        return self.location.startswith("gs://")

    @property
    def actor(self) -> str:
        """The operator: "user@host"."""
        return self.audit.actor

    def command(self, *words: str) -> str:
        """A command of tpuwatch that uses the same ledger, to be copied."""
        return own_command(*words, config=self.config)


def open_access(config: Config, clock: Clock, named: Path | None = None) -> LedgerAccess:
    """The ledger and the audit of this machine. No file is created before something is written.

    `named` is the configuration's file, if it was named on the command line.

    On a machine where tpuwatch is not set up, such as a workstation, they are in the user's own state directory.
    """
    state = config.state.dir
    if config.source is None and not state.exists() and not os.access(state.parent, os.W_OK):
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "tpuwatch"
        directory = state
    else:
        directory = config.ledger_dir
    ledger = open_ledger(config, clock, directory=directory)
    in_bucket = config.ledger.kind == "gcs"
    location = f"gs://{config.ledger.bucket}/{config.ledger.prefix}" if in_bucket else str(directory)
    audit = Audit(state / FILE_NAME, _actor(), clock)
    return LedgerAccess(ledger, audit, location, str(named.absolute()) if named is not None else "")


def ledger_problem(config: Config, clock: Clock, directory: Path) -> str:
    """Why the ledger cannot be used from here, a sentence; "" if it can. What it holds is written again, as it is.

    `directory` is where one that is a file is.
    """
    ledger = open_ledger(config, clock, directory=directory)
    try:
        require_writable(ledger, read_ledger(ledger))
    except LedgerError as error:
        return ledger_down(str(error))
    finally:
        ledger.close()
    return ""


def _actor() -> str:
    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename}"
