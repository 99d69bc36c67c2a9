"""TLS to servers of others: whose certificates count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core import ConfigError

if TYPE_CHECKING:
    import ssl


def trusting(ca_file: str) -> ssl.SSLContext:
    """A context for TLS 1.2 or newer that trusts the authorities in a file (PEM); "": those of this machine.

    Raises ConfigError if the file cannot be used.
    """
    import ssl  # seldom needed

    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except ssl.SSLError as error:
        raise ConfigError(f"{ca_file} holds no certificate in PEM that can be read") from error
    except OSError as error:
        raise ConfigError(f"{ca_file} cannot be read: {error.strerror}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
