"""A host and a workload to tune on: what each size of the premapped buffer would bring, and what a launch shows of it.

Pure: it reckons, and starts nothing. Sizes are bytes, durations seconds. The rules are the documented ones:

- A transfer goes through the premapped region unless it is larger than the threshold, which is the region's size where
  nothing is set. A region that has no room for it ends the job, and the log has that transfer and what was free.
- Pinning takes time that grows with the size, a little more than in proportion as free memory gets scattered.
- A region that the host has no room for fails the start; one that leaves too little for the job has the job killed.

What nobody wrote down is drawn at random and wide: how fast memory is pinned (the one documented start, 4 GiB in 5.6 s,
lies in the middle), what a job transfers, what else is on the host. A job repeats its steps by the thousand, so each
launch that lives so long meets the most that can be under way at once; in which order differs.

Sources: memory of the machine types, https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus (of v3, which
is not listed there, what users report); the rules of the buffer and that start,
https://docs.cloud.google.com/tpu/docs/performance-guide; the threshold's default, libtpu 0.0.51 as it was tried.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.model.tune import PAGE_BYTES, TuneHost

if TYPE_CHECKING:
    import random

LIMIT_SECONDS: Final = 15.0  # a launch that takes longer to initialise is slow
GIB: Final = 1 << 30
MIB: Final = 1 << 20
_LARGEST: Final = 8 * GIB  # of one transfer: half of what there is on most chips that it could go to
_NEAR: Final = 0.01  # shares of bytes that differ by less are the same


@dataclass(frozen=True, slots=True)
class Shape:
    """A type of TPU VM."""

    generation: str
    chips: int
    chip_kind: str  # as libtpu's log calls it
    memory_bytes: int


SHAPES: Final = tuple(
    Shape(generation, chips, kind, gigabytes * 10**9)
    for generation, chips, kind, gigabytes in (
        ("v5e", 1, "TPU v5 lite", 48),
        ("v5e", 4, "TPU v5 lite", 192),
        ("v5e", 8, "TPU v5 lite", 384),
        ("v5p", 4, "TPU v5p", 448),
        ("v6e", 1, "TPU v6 lite", 176),
        ("v6e", 4, "TPU v6 lite", 720),
        ("v6e", 8, "TPU v6 lite", 1440),
        ("v4", 4, "TPU v4", 407),
        ("v3", 4, "TPU v3", 334),
    )
)


@dataclass(frozen=True, slots=True)
class Workload:
    """What a job asks of the region and of the host's memory."""

    bursts: tuple[tuple[int, ...], ...]  # the transfers that are under way at once, in the order of the job's life
    scatter: float  # of what is in use, the share that is lost between buffers
    job_bytes: int  # of the host's memory, beside the buffer

    def room(self, transfers: int) -> int:
        """What the region must have for so many bytes of transfers at once."""
        return math.ceil(transfers * (1 + self.scatter))


@dataclass(frozen=True, slots=True)
class Machine:
    """A host, as far as launches feel it."""

    shape: Shape
    base_seconds: float  # of an initialisation without a buffer
    per_gib_seconds: float
    bend: float  # what pinning takes more per byte, as a share, at 32 GiB
    noise: float  # relative spread of an initialisation
    cold_seconds: float  # more for the first one after a boot
    system_bytes: int  # what the system and other programs hold
    neighbours: tuple[int, ...] = ()  # premapped buffers of other launches that run all the time
    neighbour_bytes: int = 0  # what each of those holds beside its buffer

    @property
    def default_bytes(self) -> int:
        """The buffer that libtpu makes when nothing is set."""
        return self.host.default_bytes

    @property
    def host(self) -> TuneHost:
        """What tuning sees of it."""
        return TuneHost(self.shape.generation, self.shape.memory_bytes, sum(self.neighbours))

    @property
    def free_bytes(self) -> int:
        """What there is for a launch."""
        others = sum(self.neighbours) + len(self.neighbours) * self.neighbour_bytes
        return self.shape.memory_bytes - self.system_bytes - others

    def seconds(self, size: int) -> float:
        """How long an initialisation takes, when nothing disturbs it."""
        gib = size / GIB
        return self.base_seconds + self.per_gib_seconds * gib * (1 + self.bend * gib / 32)


@dataclass(frozen=True, slots=True)
class World:
    """A workload on a host. It knows the truth that tuning has to find out."""

    machine: Machine
    workload: Workload
    guesses: tuple[int, ...] = ()  # sizes that the operator had set in the launches before tpuwatch came

    def size(self, given: int | None) -> int:
        """The buffer that a launch gets; 0 is none."""
        return self.machine.default_bytes if given is None else given

    def through(self, size: int | None, threshold: int | None = None) -> list[list[int]]:
        """The transfers of each burst that go through the region."""
        region = self.size(size)
        most = region if threshold is None else threshold
        return [[one for one in burst if region and one <= most] for burst in self.workload.bursts]

    def works(self, size: int | None, threshold: int | None = None) -> bool:
        """Whether no transfer fails and the host has the memory."""
        region = self.size(size)
        fits = all(self.workload.room(sum(burst)) <= region for burst in self.through(size, threshold) if burst)
        return fits and region + self.workload.job_bytes <= self.machine.free_bytes

    def fast(self, size: int | None, *, surely: bool = False) -> bool:
        """Whether the TPU comes up within the limit when nothing disturbs it, as far as its noise lets anybody know.

        `surely`: with the noise to spare.
        """
        spread = 1 + self.machine.noise
        return self.machine.seconds(self.size(size)) <= LIMIT_SECONDS * (1 / spread if surely else spread)

    def share(self, size: int | None, threshold: int | None = None) -> float:
        """What part of the bytes goes through the region, which is the fast way."""
        return sum(map(sum, self.through(size, threshold))) / sum(map(sum, self.workload.bursts))

    def rank(self, size: int | None, threshold: int | None = None) -> tuple[bool, bool]:
        """What is better comes later: to work before to be fast."""
        return self.works(size, threshold), self.fast(size)

    def is_good(self, size: int | None, threshold: int | None = None, *, surely: bool = False) -> bool:
        """It works, is fast, and does not buy that with slower transfers than there are when nothing is set."""
        does = self.works(size, threshold) and self.fast(size, surely=surely)
        return does and self.share(size, threshold) >= self.share(None) - _NEAR

    def is_worse(self, size: int | None, threshold: int | None = None) -> bool:
        """Whether to set nothing would be better."""
        mine, default = self.rank(size, threshold), self.rank(None)
        return mine < default or (mine == default and self.share(size, threshold) < self.share(None) - _NEAR)

    def sizes(self, most: int) -> list[int | None]:
        """All that is worth a try, up to `most` bytes (256 MiB or more): libtpu's default, and steps of 256 MiB."""
        first: list[int | None] = [None] if self.machine.default_bytes <= most else []
        return [*first, *range(256 * MIB, most + 1, 256 * MIB)]

    def _merit(self, size: int | None) -> tuple[object, ...]:
        return self.is_good(size, surely=True), *self.rank(size), self.share(size), size is None, -self.size(size)

    def best(self, most: int) -> tuple[int | None, int | None]:
        """The best size up to `most` bytes, the smallest of equals; and a threshold, where no size works without."""
        sizes = self.sizes(most)
        size = max(sizes, key=self._merit)
        if self.works(size):
            return size, None
        transfers = {one for burst in self.workload.bursts for one in burst}
        below = ((size, one - PAGE_BYTES) for size in sizes for one in transfers)
        return max(below, key=lambda choice: (self.rank(*choice), self.share(*choice)))


def random_world(rng: random.Random) -> World:
    """A host and a workload as they may be met."""
    machine = _machine(rng)
    room = machine.free_bytes - GIB  # a job that needs all there is can have no buffer at all
    tight = rng.random() < 0.1
    share = rng.uniform(0.85, 1.0) if tight else rng.uniform(0.05, 0.7)
    bursts = tuple(_burst(rng) for _ in range(rng.choice((1, 2, 2, 3))))
    workload = Workload(bursts, rng.choice((0.0, 0.0, rng.uniform(0.0, 0.12))), int(room * share))
    guesses: tuple[int, ...] = ()
    if rng.random() < 0.25:  # people guess, and keep to it for a while
        guesses = (round(math.exp(rng.uniform(0.0, math.log(64)))) * GIB,) * rng.randint(1, 4)
    return World(machine, workload, guesses)


def _machine(rng: random.Random) -> Machine:
    shape = rng.choice(SHAPES)
    neighbours: tuple[int, ...] = ()
    if shape.chips > 1 and rng.random() < 0.2:
        neighbours = tuple(rng.choice((1, 2, 4, 4, 8)) * GIB for _ in range(rng.randint(1, shape.chips - 1)))
    return Machine(
        shape=shape,
        base_seconds=rng.uniform(16.0, 25.0) if rng.random() < 0.04 else rng.uniform(1.0, 7.0),
        per_gib_seconds=math.exp(rng.uniform(math.log(0.08), math.log(2.0))),
        bend=rng.uniform(0.0, 0.5),
        noise=rng.uniform(0.01, 0.06),
        cold_seconds=rng.uniform(2.0, 40.0),
        system_bytes=int(shape.memory_bytes * rng.uniform(0.03, 0.15)),
        neighbours=neighbours,
        neighbour_bytes=int(shape.memory_bytes * rng.uniform(0.02, 0.6 / shape.chips)),
    )


def _burst(rng: random.Random) -> tuple[int, ...]:
    """Buffers of parameters, batches or checkpoints: few large ones, many small ones, alike or not."""
    total = math.exp(rng.uniform(math.log(256 * MIB), math.log(40 * GIB)))
    count = min(round(math.exp(rng.uniform(0.0, math.log(64)))), max(1, int(total / MIB)))
    spread = rng.choice((0.0, 0.3, 1.2))
    parts = [rng.lognormvariate(0.0, spread) for _ in range(count)]
    sizes = (min(total * part / sum(parts), _LARGEST) for part in parts)
    return tuple(max(1, round(size / PAGE_BYTES)) * PAGE_BYTES for size in sizes)
