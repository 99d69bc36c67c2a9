"""Advice on a program: what the guides for TPUs say, computed for it.

In: the program's source, its shapes and its compilation.
Out: pieces of advice, each with its place, its reason and its source.
Never: gives advice on what it has not read in the program or its compilation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.advise.advice import GUIDES, in_order
    from tpuwatch.advise.advisor import Advised, advice_document, advise
    from tpuwatch.advise.code import CodeAdvice, code_advice
    from tpuwatch.advise.memory import changes
    from tpuwatch.advise.page import advice_page
    from tpuwatch.advise.source import module_file, sources, unreadable
    from tpuwatch.advise.subject import Placed, Subject, of_program, of_report, of_shapes
else:
    __getattr__, __all__ = public_face(__name__, __file__)
