"""The errors that tpuwatch raises on purpose.

Each message says what happened, to what, and what to do next, so that a command can print it as it is.
"""

from __future__ import annotations


class TpuwatchError(Exception):
    """The root of all errors that tpuwatch raises on purpose."""


class DeniedError(TpuwatchError):
    """This user may not do it; the command line adds who may."""


class ConfigError(TpuwatchError):
    """The configuration cannot be used: a file, a key or a value is wrong."""


class ConfigDeniedError(ConfigError, DeniedError):
    """The configuration of the machine is there, and this user may not read it."""


class RuleError(TpuwatchError):
    """A rule of the catalogue is refused; the message names its file and its id."""


class StoreError(TpuwatchError):
    """The store cannot be read or written."""


class StoreDeniedError(StoreError, DeniedError):
    """The store is there, and this user may not read it."""


class StoreBusyError(StoreError):
    """Another daemon holds the state directory."""


class TuneError(TpuwatchError):
    """A plan, an environment file or libtpu's log files cannot be read, written or removed."""


class InstallError(TpuwatchError):
    """tpuwatch cannot be installed as a service here."""


class LedgerError(TpuwatchError):
    """The ledger cannot be read or written, so nothing is restarted."""


class LedgerDeniedError(LedgerError, DeniedError):
    """The ledger is there, and this user may not read or write it."""


class ConflictError(LedgerError):
    """The record has been changed by another process since it was read."""
