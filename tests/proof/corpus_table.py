"""How often the first finding is right, by class, on texts with known labels: `python -m tests.proof.corpus_table`.

The texts are beside the repository, in ../shared; where they are not, there is nothing to measure.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.paths import SHARED
from tests.unit.whole_text import findings_in
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model import Cause

NONE = "-"  # the label of a text in which no cause may be named
UNKNOWN = Cause.UNKNOWN_FAILURE.value  # right where something else than a TPU has failed
UNSCORED = "?"


@dataclass(frozen=True)
class Labelled:
    """A text, the causes that are right as its first finding, and what was found in it, in order."""

    name: str
    accept: tuple[str, ...]
    found: tuple[str, ...]

    @property
    def right(self) -> bool:
        if self.accept == (NONE,):
            return self.found in ((), (UNKNOWN,))
        return self.found[:1] != () and self.found[0] in self.accept

    @property
    def unknown(self) -> bool:
        """True if the finding is that something failed, and not what."""
        return self.found == (UNKNOWN,)


def corpus() -> list[Labelled]:
    """Excerpts of what people posted."""
    return list(_judged(SHARED / "corpus" / "labels.tsv", SHARED / "corpus" / "texts"))


def second_corpus() -> list[Labelled]:
    """More of them, labelled before any rule was tried on them."""
    return list(_judged(SHARED / "corpus-2" / "labels.tsv", SHARED / "corpus-2" / "texts"))


def third_corpus() -> list[Labelled]:
    """Less usual ones: prose, tables, launchers."""
    return list(_judged(SHARED / "corpus-3" / "labels.tsv", SHARED / "corpus-3" / "texts"))


def libtpu_runs() -> list[Labelled]:
    """What programs with a real libtpu wrote to their stderr."""
    return list(_judged(SHARED / "libtpu-logs" / "expected.tsv", SHARED / "libtpu-logs"))


def _judged(labels: Path, texts: Path) -> Iterator[Labelled]:
    scanner = Scanner(load_catalogue())
    for row in labels.read_text(encoding="utf-8").splitlines()[1:]:
        name, accept = row.split("\t")[:2]
        if accept == UNSCORED:
            continue
        findings = findings_in((texts / name).read_bytes(), scanner, name)
        yield Labelled(name, tuple(accept.split(",")), tuple(finding.cause.value for finding in findings))


def table(texts: list[Labelled]) -> Iterator[str]:
    """Lines of the table: each class with how many of its texts are right, then what is wrong."""
    classes: dict[str, list[Labelled]] = defaultdict(list)
    for text in texts:
        classes[text.accept[0]].append(text)
    for name, members in sorted(classes.items()):
        yield f"  {name:<22}{sum(text.right for text in members):>4} of {len(members):>3}"
    right = sum(text.right for text in texts)
    unknown = sum(text.unknown for text in texts if not text.right)
    share = right / max(1, len(texts))
    yield f"  {'all':<22}{right:>4} of {len(texts):>3}  {share:.1%}, and {unknown} honestly unknown"
    for text in texts:
        if not text.right:
            expected, found = " or ".join(text.accept), ", ".join(text.found) or "nothing"
            yield f"  wrong: {text.name}: expected {expected}, found {found}"


def main() -> int:
    if not SHARED.is_dir():
        sys.stderr.write(f"{SHARED} is not there: nothing to measure\n")
        return 3
    sets = {
        "corpus": corpus,
        "second corpus": second_corpus,
        "third corpus": third_corpus,
        "libtpu runs": libtpu_runs,
    }
    for title, read in sets.items():
        texts = read()
        sys.stdout.write("\n".join([title, *table(texts), ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
