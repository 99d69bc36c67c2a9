"""`tpuwatch support`: one file with what is needed to help.

In: the configuration, the daemon's answers, the store, the logs.
Out: an archive without secrets.
Never: sends it anywhere.
"""

from tpuwatch.core.lazy import LazyFace

with LazyFace(__name__):
    from tpuwatch.support.archive import MAX_BYTES, Archive, write_archive
    from tpuwatch.support.parts import Sources, ask_documents, collect, people, projects
    from tpuwatch.support.redactor import Redactor
