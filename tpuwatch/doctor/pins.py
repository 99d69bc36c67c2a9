"""Requirements between packages, as Requires-Dist lines state them. What is not understood is unknown, never wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpuwatch.doctor.installed import normal

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?(?P<pins>[^;)]*)\)?\s*(?:;(?P<marker>.*))?"
)
_EXTRA = re.compile(r"""extra\s*==\s*["']([A-Za-z0-9._-]+)["']""")
_PIN = re.compile(r"(===|==|~=|!=|<=|>=|<|>)\s*([^\s,]+)")
_RELEASE = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})*")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement. `pins` is its text; `extra` the extra that it belongs to, "" for everyone."""

    name: str
    pins: str
    extra: str = ""

    @classmethod
    def parse(cls, line: str) -> Requirement | None:
        """A Requires-Dist line; None where it is none, or holds only on some machines, which is not judged here."""
        match = _REQUIREMENT.fullmatch(line.strip())
        if match is None:
            return None
        marker = (match["marker"] or "").strip()
        extra = _EXTRA.fullmatch(marker)
        if marker and extra is None:
            return None
        return cls(normal(match["name"]), match["pins"].strip(), normal(extra[1]) if extra else "")

    def compare(self, version: str) -> int | None:
        """0 where the version fits, -1 where it is too old, 1 where it is too new; None where that cannot be told."""
        release = _release(version)
        pins = _PIN.findall(self.pins)
        if release is None or (self.pins and not pins):
            return None
        sides = [_side(release, operator, wanted) for operator, wanted in pins]
        if None in sides:
            return None
        return next((side for side in sides if side), 0)


def _side(release: tuple[int, ...], operator: str, text: str) -> int | None:
    """0 where one pin holds; else on which side of it the release is."""
    wanted = _release(text[:-2] if text.endswith(".*") else text)
    if wanted is None or operator in ("===", "!=") or (text.endswith(".*") and operator != "=="):
        return None
    if operator == "~=":
        return _side(release, ">=", text) or _side(release, "==", ".".join(map(str, wanted[:-1])) + ".*")
    if text.endswith(".*"):
        release = (*release, *(0,) * len(wanted))[: len(wanted)]
    order = _order(release, wanted)
    fits = {"==": order == 0, ">=": order >= 0, "<=": order <= 0, ">": order > 0, "<": order < 0}[operator]
    return 0 if fits else order or (1 if operator == "<" else -1)


def _order(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    length = max(len(left), len(right))
    padded = [(*version, *(0,) * length)[:length] for version in (left, right)]
    return (padded[0] > padded[1]) - (padded[0] < padded[1])


def _release(version: str) -> tuple[int, ...] | None:
    """The numbers of a final release; None for pre-releases, nightlies and the like. A local part does not count."""
    public = version.partition("+")[0].partition(".post")[0]
    return tuple(map(int, public.split("."))) if _RELEASE.fullmatch(public) else None
