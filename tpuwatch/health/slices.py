"""How it stands with the workers of a slice: who answers, who failed first, and which one is to blame.

Each worker says what it says of itself alone, so a lie can accuse the liar and nobody else. What one says of the others
is not asked. A pure function, as the verdict is; no restart follows from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import format_time, length, listed
from tpuwatch.model import Failure, PeerState, Signal, Slice, Whose, Worker, peer_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpuwatch.model import Answer, Cause, Peer

_TOGETHER_SECONDS: Final = 2.0  # between times of two machines that do not show which was first
_ALIKE_SECONDS: Final = 60.0  # within which workers fail alike if the program or its setup is why
_PROGRAM: Final = (Whose.PROGRAM, Whose.SETUP)
_MAX_NAMED: Final = 5


def judge_slice(
    asked: Mapping[int, Answer[Peer]] | None,
    here: Worker | None,
    *,
    own: bool,
    hosts: int,
    now: float,
    worker_seconds: float,
) -> Slice | None:
    """The slice of a node with several workers; None of one with a single worker.

    `asked` has the answers of the others by number; None: none is to be asked. `here` is this machine, where it is a
    worker of the node (`own`) and its number is known. An answer counts for `worker_seconds`.
    """
    others = _others(asked or {}, now, worker_seconds)
    workers = sorted((*([here] if here else []), *others), key=lambda one: one.number)
    hosts = max(hosts, max((one.number for one in workers), default=0) + 1)
    if hosts == 1:
        return None
    if asked is None:
        seen = "no other than this machine is asked" if own else "none of them is asked"
        return Slice(hosts, (), f"It has {hosts} workers, and {seen}: `enabled` under [peers] is false.")
    first, alike = _first(_order(workers)), _alike(workers)
    sentences = [
        *_silence([one for one in workers if one.state is PeerState.SILENT], hosts, now),
        *_refusal([one for one in workers if one.state is PeerState.REFUSED]),
        *_failures(workers, first, alike),
        _heard(workers, hosts),
    ]
    return Slice(hosts, tuple(workers), " ".join(sentences), first, None if alike else first)


def _others(asked: Mapping[int, Answer[Peer]], now: float, worker_seconds: float) -> Iterator[Worker]:
    for number, answer in asked.items():
        peer, state = answer.value, peer_state(answer)
        if answer.tried is not None and answer.tried > 0 and now - answer.tried >= worker_seconds:
            state = PeerState.UNCLEAR  # nobody has asked it since
        if peer is None:
            yield Worker(number, state)
            continue
        word = peer.verdict
        failure = Failure(word.failed, peer.answered - word.failed_age) if word and word.failed else None
        if word is None or state is not PeerState.ANSWERING or Signal.PEER in word.signals:
            yield Worker(number, state, peer.answered, peer.silent_since, failure=failure)
        else:  # what rests on other workers' word is no word of its own
            yield Worker(number, state, peer.answered, None, word.verdict, word.summary, failure)


def _order(workers: Sequence[Worker]) -> list[tuple[float, float, Worker]]:
    """The workers that failed, with the earliest and the latest time when that can have been, the first at first.

    One that is silent failed after its last answer. What one reports of another worker is no failure of its own, and
    what may be a consequence of a silence is none while there is one.
    """
    silent = any(one.state is PeerState.SILENT for one in workers)
    failed = []
    for one in workers:
        cause = one.failure.cause if one.failure else None
        if one.failure is not None and _is_own(cause, silent=silent):
            failed.append((one.failure.at, one.failure.at, one))
        elif one.state is PeerState.SILENT and one.answered is not None:
            failed.append((one.answered, one.silent_since or one.answered, one))
    return sorted(failed, key=lambda found: found[:2])


def _is_own(cause: Cause | None, *, silent: bool) -> bool:
    if cause is None or cause.row.whose is Whose.OTHER_WORKER:
        return False
    return not (silent and cause.row.whose is Whose.UNCLEAR)


def _first(order: Sequence[tuple[float, float, Worker]]) -> int | None:
    """The one that failed before all others; None where the times do not show it."""
    if not order:
        return None
    (_, latest, worker), *others = order
    if any(earliest - latest < _TOGETHER_SECONDS for earliest, _, _ in others):
        return None
    return worker.number


def _alike(workers: Sequence[Worker]) -> tuple[Cause, int] | None:
    """The cause with which more than half of those that are heard failed together, and of how many, if a program or
    its setup can be why."""
    heard = [one for one in workers if one.state is PeerState.ANSWERING]
    failures = [one.failure for one in heard if one.failure is not None and one.failure.cause.row.whose in _PROGRAM]
    if not failures:
        return None
    earliest = min(failures, key=lambda one: one.at)
    same = [one for one in failures if one.cause is earliest.cause and one.at - earliest.at <= _ALIKE_SECONDS]
    return (earliest.cause, len(same)) if len(same) > 1 and 2 * len(same) > len(heard) else None


def _silence(silent: Sequence[Worker], hosts: int, now: float) -> Iterator[str]:
    if silent:
        longest = max(now - (one.silent_since or now) for one in silent)
        has = "has" if len(silent) == 1 else "have"
        since = f"for {length(longest)}" if len(silent) == 1 else f"the first for {length(longest)}"
        yield f"{named(silent)} of {hosts} {has} been silent {since}."


def _refusal(refusing: Sequence[Worker]) -> Iterator[str]:
    if refusing:
        are = "is" if len(refusing) == 1 else "are"
        yield f"{named(refusing)} {are} up, and tpuwatch does not listen there any more."


def _failures(workers: Sequence[Worker], first: int | None, alike: tuple[Cause, int] | None) -> Iterator[str]:
    if alike is not None:
        cause, number = alike
        yield f"{number} workers failed alike ({cause.value}): the program or its setup is why, and no single worker."
        return
    failed = [one for one in workers if one.failure is not None]
    others = [one for one in failed if one.number != first]
    worker = next((one for one in workers if one.number == first), None)
    if worker is not None:
        what = f"{worker.failure.cause.value}, {format_time(worker.failure.at)}" if worker.failure else "it fell silent"
        then = f"; then {named(others).lower()}" if others else ""
        yield f"Worker {worker.number} failed first ({what}){then}."
    elif failed:
        causes = listed(dict.fromkeys(one.failure.cause.value for one in failed if one.failure))
        yield f"{named(failed)} failed ({causes}); which worker was first is not known."


def _heard(workers: Sequence[Worker], hosts: int) -> str:
    asked = [one for one in workers if not one.own]
    unheard = [one for one in asked if one.state is PeerState.UNHEARD]
    unclear = [one for one in asked if one.state is PeerState.UNCLEAR]
    heard = sum(one.state is PeerState.ANSWERING for one in workers)
    parts = [
        f"{heard} of {len(workers)} workers answer" if heard < len(workers) else f"All {len(workers)} workers answer"
    ]
    if len(workers) < hosts:
        parts[0] += f", of {hosts} in the slice"
    parts += [f"{named(unheard).lower()} has not answered yet" if len(unheard) == 1 else ""]
    parts += [f"{named(unheard).lower()} have not answered yet" if len(unheard) > 1 else ""]
    parts += [f"of {named(unclear).lower()} it is not clear" if unclear else ""]
    return f"{'; '.join(filter(None, parts))}."


def named(workers: Sequence[Worker]) -> str:
    """ "Worker 2", "Workers 2 and 3", "Workers 1, 2, 3, 4, 5 and 40 more"."""
    numbers = [str(one.number) for one in workers]
    if len(numbers) > _MAX_NAMED:
        numbers = [*numbers[:_MAX_NAMED], f"{len(numbers) - _MAX_NAMED} more"]
    return f"Worker{'s' * (len(workers) > 1)} {listed(numbers)}"
