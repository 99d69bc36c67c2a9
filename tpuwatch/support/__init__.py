"""`tpuwatch support`: one file with what is needed to help.

In: the configuration, the daemon's answers, the store, the logs.
Out: an archive without secrets.
Never: sends it anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.support.archive import MAX_BYTES, Archive, write_archive
    from tpuwatch.support.parts import Sources, ask_documents, collect, people, projects
    from tpuwatch.support.redactor import Redactor
else:
    __getattr__, __all__ = public_face(__name__, __file__)
