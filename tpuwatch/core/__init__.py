"""What every package needs: time, errors, text, JSON, HTTP, files, loops, back-off.

In: plain values, and addresses.
Out: plain values.
Never: knows of TPUs, or of another package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.core.audit_file import AuditFile
    from tpuwatch.core.backoff import Pacing, doubled, parse_retry_after
    from tpuwatch.core.clock import Clock, SystemClock
    from tpuwatch.core.codec import Digits, DocumentError, Time, Words, decode, encode, like, schema_name, schemas
    from tpuwatch.core.errors import (
        ConfigDeniedError,
        ConfigError,
        ConflictError,
        DeniedError,
        InstallError,
        LedgerDeniedError,
        LedgerError,
        RuleError,
        StoreBusyError,
        StoreDeniedError,
        StoreError,
        TpuwatchError,
        TuneError,
    )
    from tpuwatch.core.files import create_private, open_private, read_trusted, write_atomic
    from tpuwatch.core.grpc_codes import GRPC_CODES, code_number
    from tpuwatch.core.http import HttpClient, HttpError, HttpFault, HttpReply, host_port
    from tpuwatch.core.json_text import dumps, iso, parse_time, times
    from tpuwatch.core.log_setup import set_up_logging
    from tpuwatch.core.loop import Loop, LoopGroup, LoopStatus, Waker
    from tpuwatch.core.medians import median, median_low
    from tpuwatch.core.redaction import REDACTED, redact
    from tpuwatch.core.reloaded import Reloaded
    from tpuwatch.core.share import installed
    from tpuwatch.core.text import capital, clean, counted, cut, ended, length, listed, printable, printable_lines
    from tpuwatch.core.tls import Tls
    from tpuwatch.core.token_file import read_tokens, require_private
    from tpuwatch.core.trust import has_members, other_author, places, who_may_change
    from tpuwatch.core.units import (
        format_age,
        format_seconds,
        format_size,
        format_time,
        is_possible,
        parse_seconds,
        parse_size,
    )
else:
    __getattr__, __all__ = public_face(__name__, __file__)
