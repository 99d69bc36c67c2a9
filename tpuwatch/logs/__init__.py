"""From the bytes of logs to matches.

In: directories and files that anybody can write.
Out: matches, each with its rule, place and matched lines.
Never: follows a link out of a watched directory, or takes time that is not linear in the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.logs.line_breaks import over_lines
    from tpuwatch.logs.parse.exception_chains import agree
    from tpuwatch.logs.parse.job_output import any_near
    from tpuwatch.logs.parse.line_kind import LineKind, kind_of
    from tpuwatch.logs.parse.match import Match, Repeats
    from tpuwatch.logs.parse.parser import LogParser, StreamKind
    from tpuwatch.logs.parse.scan import Scanner
    from tpuwatch.logs.parse.text_kind import WholeText
    from tpuwatch.logs.pruning import OldLog, PruneResult, prune
    from tpuwatch.logs.rules.catalogue import (
        Catalogue,
        Rule,
        for_outputs,
        for_programs,
        for_streams,
        load_catalogue,
        with_threshold,
    )
    from tpuwatch.logs.rules.frameworks import context_of
    from tpuwatch.logs.tail.files import LogFile, Refusal, RefusedError, libtpu_file
    from tpuwatch.logs.tail.follow import Follower
    from tpuwatch.logs.tail.followed_file import FileMatch, FileProgress
    from tpuwatch.logs.tail.job_glob import JobGlob
    from tpuwatch.logs.tail.sources import Discovery
    from tpuwatch.logs.text_input import STDIN, NoSuchFileError, UnreadableError, size_of, text_chunks
else:
    __getattr__, __all__ = public_face(__name__, __file__)
