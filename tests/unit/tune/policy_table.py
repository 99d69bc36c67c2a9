"""Situations of tuning, and what is decided in each. Sizes are GiB; None is what libtpu takes by itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.unit.tune.histories import GIB, HOST, MIB, V4, failed, gib, killed, lacked, launch
from tpuwatch.model.causes import Cause
from tpuwatch.model.launches import Launch, Outcome
from tpuwatch.model.tune import SIZE, THRESHOLD, SizeStep, TuneHost

SCARCE = TuneHost("v5e", 32 * GIB)  # at most 8 GiB
UNKNOWN = TuneHost("v5e")
NO_CHIP = TuneHost("", 160 * GIB)
START, KEEP, GROW, SHRINK, BACK, OVERRIDDEN, UNSATISFIABLE = SizeStep
LINE = (launch(2, 3.3), launch(4, 3.5), launch(8, 4.2), launch(16, 5.5))


@dataclass(frozen=True)
class Row:
    """What the launches were, and what follows."""

    id: str
    launches: tuple[Launch, ...]
    step: SizeStep
    size: float | None
    says: str = ""  # part of the reasons
    host: TuneHost = HOST
    bounds: dict[str, Any] = field(default_factory=dict)
    threshold: float | None = None
    conflict: str = ""  # part of it; empty: there is none


FIRST = (
    Row("nothing", (), START, None, "starts from 4 GiB, which libtpu takes by itself"),
    Row("nothing-on-v4", (), START, None, "starts from no buffer", V4),
    Row("nothing-and-little-memory", (), START, 2, "25 % of the host's 8 GiB", TuneHost("v5e", 8 * GIB)),
    Row("nothing-and-a-least-size", (), START, 8, bounds={"min_bytes": 8 * GIB}),
    Row("nothing-and-memory-unknown", (), START, None, host=UNKNOWN),
    Row("one-under-way", (launch(8, None, outcome=Outcome.STARTING),), START, None),
    Row("one-that-says-nothing", (failed(Cause.BAD_FLAG, 8),), KEEP, 8, "shows anything about the buffer yet"),
    Row("the-operators-that-worked", (launch(8, own=True),), KEEP, 8),
    Row("the-operators-smaller-one", (launch(1, own=True),), START, None, "operator's own 1 GiB"),
    Row("the-operators-slow-one", (launch(40, 60.0, own=True),), START, None, "took 1 min to initialise"),
    Row("the-operators-that-failed", (lacked(8, 10, 1, own=True),), GROW, 12.5),
    Row("the-operators-that-the-default-lets-pass", (lacked(22, 23, 5, own=True),), START, None),
    Row("the-operators-on-v4", (lacked(2, 3, 1, own=True),), GROW, 3.75, host=V4),
)

TOO_SMALL = (
    Row("reported", (lacked(None, 6, 3),), GROW, 7.5, "6 GiB are needed; with 25 % headroom and rounded that is 7.5"),
    Row("nothing-reported", (lacked(),), GROW, 8, "how much was needed is not known"),
    Row("asked-alone-reported", (lacked(None, None, 1),), GROW, 6.25, "found no room in its buffer of 4 GiB: 5 GiB"),
    Row("need-below-the-size-is-no-need", (lacked(4, 3, 1),), GROW, 6.25),
    Row("no-headroom-wanted", (lacked(None, 6, 3),), GROW, 6, bounds={"headroom": 0.0}),
    Row("power-of-two", (lacked(None, 5, 1),), GROW, 8, bounds={"power_of_two": True}),
    Row("largest-need-of-the-window", (lacked(4, 9, 3), lacked(4, 5, 3)), GROW, 11.25),
    Row("beyond-the-window", (lacked(4, 9, 3), *(launch() for _ in range(5))), KEEP, None, bounds={"window": 5}),
    Row("same-size-again", (lacked(4, 5, 1), lacked(4, 5, 1)), GROW, 6.25),
    Row("second-in-a-row", (lacked(4, 4.1, 1), lacked(5.25, 5.3, 1)), GROW, 14.75, "2 sizes in a row"),
    Row("third-in-a-row", (lacked(1, 1.1), lacked(1.5, 1.6), lacked(3, 3.1)), GROW, 11.25),
    Row(
        "fourth-in-a-row",
        (lacked(1, 1.1), lacked(1.5, 1.6), lacked(3, 3.1), lacked(11.25, 11.5)),
        GROW,
        40,
        "40 GiB are the most that is allowed",
    ),
    Row(
        "not-beyond-what-is-fast",
        (lacked(4, 4.1, 1, seconds=6), lacked(5.25, 5.3, 1, seconds=7.5)),
        GROW,
        9,
        bounds={"init_seconds": 15.0},
    ),
    Row(
        "third-in-a-row-with-less-headroom-than-wanted-where-that-is-slow",
        (lacked(4, 4.5, 1, seconds=6), lacked(6, 6.5, 1, seconds=8), lacked(8, 8.5, 1, seconds=10)),
        GROW,
        9.25,
        bounds={"init_seconds": 12.0},
    ),
    Row("no-leap-towards-what-was-too-much", (killed(20), lacked(4, 4.1, 1), lacked(5.25, 5.3, 1)), GROW, 6.75),
    Row("half-way-to-what-was-too-much", (killed(16), lacked(11.25, 12, 1)), GROW, 14, "15.75 GiB are the most"),
    Row("just-what-is-allowed", (lacked(30, 32, 1),), GROW, 40, "with 25 % headroom and rounded that is 40 GiB."),
    Row("as-far-as-is-allowed", (lacked(30, 35, 1),), GROW, 40, "40 GiB are the most that is allowed"),
    Row("as-far-as-the-configuration-allows", (lacked(4, 6, 1),), GROW, 7, bounds={"max_bytes": 7 * GIB}),
    Row("a-failure-under-way-counts", (lacked(None, 6, 3, outcome=Outcome.STARTING),), GROW, 7.5),
    Row("what-was-there-before-counts", (lacked(None, 6, 3, history=True),), GROW, 7.5),
    Row("the-operators-showed-more", (launch(), lacked(8, 10, 1, own=True)), GROW, 12.5, "10 GiB are needed"),
    Row("the-operators-showed-less", (launch(), lacked(1, 2, 1, own=True)), KEEP, None, "operator's own 1 GiB"),
    Row("below-the-least", (launch(1),), GROW, 2, "2 GiB to 40 GiB are allowed", bounds={"min_bytes": 2 * GIB}),
    Row("a-bug-shows-nothing", (lacked(4, 6, 3), failed(Cause.BAD_FLAG, 7.5)), KEEP, 7.5, "bad_flag) shows"),
    Row("worked-before-with-less", (launch(4), lacked(4, 6, 3)), GROW, 7.5),
)

UNSATISFIED = (
    Row(
        "threshold",
        (lacked(20, 50, 12),),
        UNSATISFIABLE,
        40,
        "Buffers of more than 8 GiB",
        threshold=8,
        conflict="50 Gi",
    ),
    Row(
        "nothing-asked-reported",
        (lacked(20, 50),),
        UNSATISFIABLE,
        40,
        "smaller or fewer transfers",
        conflict="40 GiB are",
    ),
    Row(
        "too-near-to-what-is-allowed-to-be-tried",
        (lacked(38.5, 39, 1),),
        UNSATISFIABLE,
        40,
        threshold=0.5,
        conflict="39 GiB are needed, and 40 GiB are the most",
    ),
    Row("lower", (lacked(40, 45, 6, threshold=8),), UNSATISFIABLE, 40, threshold=4, conflict="45 GiB"),
    Row("the-operators-threshold", (lacked(8, 10, 6, own=True, threshold=7),), START, None),
    Row("threshold-that-does", (lacked(40, 50, 12), launch(40, threshold=8)), KEEP, 40, threshold=8),
    Row(
        "less-memory-than-before",
        (lacked(8, 12, 2), launch(16)),
        UNSATISFIABLE,
        8,
        "12 GiB are needed, and 8 GiB are the most",
        SCARCE,
        threshold=1,
        conflict="12 GiB are",
    ),
    Row(
        "less-memory-than-before-and-an-overridden-threshold",
        (lacked(8, 12, 2), launch(16)),
        SHRINK,
        8,
        host=SCARCE,
        threshold=1,
        bounds={"overrides": {THRESHOLD: str(gib(1))}},
        conflict="12 GiB are needed, and 8 GiB are the most",
    ),
    Row("on-v4", (lacked(70, 90, 12),), UNSATISFIABLE, None, "Without a buffer", V4, conflict="90 GiB"),
    Row("memory-unknown", (lacked(4, 6, 3),), UNSATISFIABLE, None, "not known", UNKNOWN, threshold=2, conflict="6 GiB"),
    Row("memory-unknown-and-more-worked", (launch(8, own=True), lacked(4, 6, 3)), BACK, 8, host=UNKNOWN),
)

TRIED = (
    Row("had-no-room", (launch(16, 17.0), lacked(8, 9, 1)), BACK, 16, "worked with 16 GiB: back to that"),
    Row(
        "to-one-that-is-slow-the-default-comes-first",
        (launch(16, 30.0), lacked(8, 9, 1)),
        SHRINK,
        None,
        "what libtpu takes by itself",
        conflict="took 30 s to initialise with 16 GiB",
    ),
    Row(
        "to-one-that-is-slow-something-between-comes-first",
        (lacked(None, 4.5, 1), launch(23, 30.0), lacked(5.75, 6, 1)),
        GROW,
        7.5,
        "6 GiB are needed",
    ),
    Row(
        "to-one-that-is-slow-the-largest-that-is-fast-comes-first",
        (lacked(None, 4.5, 1), launch(23, 30.0), lacked(5.75, 9, 1)),
        GROW,
        11,
        "Between them, 11 GiB should be in time",
    ),
    Row(
        "to-one-that-is-slow-after-one-try-between",
        (lacked(None, 4.5, 1), launch(23, 30.0), lacked(5.75, 9, 1), lacked(9.5, 9.75, 1, seconds=12.0)),
        BACK,
        23,
    ),
    Row(
        "to-one-that-is-slow-where-nothing-is-between",
        (lacked(None, 4.5, 1), launch(16, 30.0), lacked(12, 14, 1)),
        BACK,
        16,
    ),
    Row("was-slower", (launch(16, 30.0), launch(8, 34.0)), BACK, 16, "no slower with 16 GiB"),
    Row("was-no-faster", (launch(16, 30.0), launch(8, 29.5)), BACK, 16, "no slower with 16 GiB"),
    Row("was-no-help", (launch(16, 30.0), launch(8, 25.0)), BACK, 16, "the size does not explain it"),
    Row(
        "slower-for-another-cause",
        (launch(16, 30.0), launch(8, 34.0, faults={Cause.METADATA_UNREACHABLE: 1})),
        KEEP,
        8,
        "metadata_unreachable",
    ),
    Row("did-not-come-up", (launch(16, 30.0), failed(Cause.INIT_FAILED, 8)), BACK, 16, "did not come up (init_f"),
    Row("remembered", (launch(16, 30.0), launch(8, 34.0), launch(16, 30.0)), KEEP, 16, "8 GiB were no better"),
    Row("no-help-remembered", (launch(16, 30.0), launch(8, 25.0), launch(16, 30.0)), KEEP, 16, "no better"),
    Row("no-start-remembered", (launch(16, 30.0), failed(Cause.INIT_FAILED, 8), launch(16, 30.0)), KEEP, 16),
    Row("host-ran-out", (launch(), killed(8)), BACK, None, "ran out of memory"),
    Row("larger-did-not-come-up", (lacked(4, 6, 3), failed(Cause.INIT_FAILED, 8)), SHRINK, 6.75, "init_failed"),
    Row("silent", (lacked(4, 6, 3), launch(8, None, outcome=Outcome.SILENT)), SHRINK, 6.75, "(silent)"),
    Row(
        "silent-for-others",
        (lacked(4, 6, 3), launch(8, None, outcome=Outcome.SILENT, faults={"barrier_timeout": 9})),
        SHRINK,
        7.5,
    ),
    Row("failed-at-a-size-that-came-up-before", (launch(8), failed(Cause.INIT_FAILED, 8)), KEEP, 8, "shows noth"),
    Row("another-fault-after-a-trial", (lacked(4, 6, 3), launch(7.5, faults={Cause.HBM_OOM_RUNTIME: 80})), KEEP, 7.5),
    Row("stopped-too-early-to-be-good", (launch(16, faults={Cause.INTERRUPTED: 20}), lacked(8, 9, 1)), GROW, 11.25),
)

TOO_LARGE = (
    Row("fit", (launch(8, 10.0), launch(16, 18.0)), SHRINK, 12.25, "2 s and 1.00 s for each GiB"),
    Row("larger-than-the-default-and-slow", (launch(16, 30.0),), SHRINK, 8, "as did all with this size"),
    Row("default-slow-once", (launch(None, 30.0),), KEEP, None, "one launch alone"),
    Row("default-slow-twice", (launch(None, 30.0), launch(None, 28.0)), SHRINK, 2),
    Row("metadata", (launch(16, 30.0, faults={Cause.METADATA_UNREACHABLE: 1.0}),), KEEP, 16, "metadata_unreach"),
    Row("barrier-before-it-is-up", (launch(16, 30.0, faults={"barrier_timeout": 20.0}),), KEEP, 16),
    Row("barrier-long-after", (launch(16, 30.0, faults={"barrier_timeout": 9000.0}),), SHRINK, 8),
    Row("first-of-a-boot", (launch(16, boot_id="a"), launch(16, 30.0, boot_id="b")), KEEP, 16, "since the machine"),
    Row("second-of-a-boot", (launch(16, 30.0, boot_id="b"), launch(16, 30.0, boot_id="b")), SHRINK, 8),
    Row("one-of-many", (*(launch(16, 9.0) for _ in range(4)), launch(16, 30.0)), KEEP, 16, "others with no smaller"),
    Row("one-of-two-sizes", (launch(8, 6.0), launch(16, 9.0), launch(16, 16.0)), KEEP, 16, "no smaller buffer"),
    Row("out-of-proportion", (launch(8, 6.0), launch(16, 30.0)), KEEP, 16, "out of all proportion"),
    Row("out-of-proportion-twice", (launch(8, 6.0), launch(16, 30.0), launch(16, 30.0)), SHRINK, 10.75),
    Row("a-little-slow-where-less-may-not-do", (lacked(None, 12, 1), launch(15, 15.5)), SHRINK, 13.5),
    Row("slow-and-half-of-the-headroom", (lacked(None, 12, 1), launch(15, 17.0)), SHRINK, 13),
    Row(
        "default-in-time-now-and-then",
        (launch(None, 14.8), launch(None, 15.5), launch(None, 15.6)),
        KEEP,
        None,
        "others with this size did not",
    ),
    Row(
        "a-little-slow-now-and-then",
        (lacked(None, 6, 1), launch(15, 14.8), launch(15, 15.9), launch(15, 15.9)),
        KEEP,
        15,
        "no rule",
    ),
    Row(
        "in-time-once-and-mostly-not",
        (lacked(None, 6, 1), launch(15, 14.8), launch(15, 17.0), launch(15, 17.2)),
        SHRINK,
        12.25,
    ),
    Row(
        "in-time-now-and-then-where-nothing-ever-lacked-room",
        (*(launch(22, seconds, own=True) for seconds in (16.6, 15.4, 14.3)), launch(22, 16.4)),
        SHRINK,
        11,
        "22 GiB",
    ),
    Row(
        "in-time-now-and-then-where-less-may-not-do",
        (lacked(None, 6, 1, seconds=None), *(launch(22, seconds) for seconds in (16.6, 15.4, 14.3, 16.4))),
        KEEP,
        22,
        "others with this size did not",
    ),
    Row(
        "out-of-line-once",
        (launch(1, 2.35), launch(2, 2.7), launch(4, 3.4), launch(8, 4.85), launch(16, 7.7), launch(32, 15.7)),
        KEEP,
        32,
        "it takes 13.4 s",
    ),
    Row("out-of-line-each-time", (*LINE, launch(32, 15.7), launch(32, 15.9)), SHRINK, 30),
    Row("a-little-slow-where-less-will-do", (lacked(None, 6, 1), launch(15, 15.5)), SHRINK, 13.5),
    Row(
        "outlier-by-the-fit",
        (launch(8, 6.0), launch(16, 9.0), launch(16, 9.1), launch(16, 30.0)),
        KEEP,
        16,
        "no smaller buffer were faster",
    ),
    Row("larger-was-faster", (launch(16, 9.0), launch(8, 30.0)), KEEP, 8, "no smaller buffer were faster"),
    Row("base-is-slow", (launch(4, 18.0), launch(16, 19.0)), KEEP, 16, "the size does not explain it"),
    Row("not-below-the-need", (lacked(8, 10, 2, seconds=10.0), launch(16, 18.0)), SHRINK, 12.5),
    Row(
        "both-cannot-be-had-and-libtpus-own-is-larger",
        (lacked(1.5, 2, 1, seconds=14.0), launch(2.5, 20.0)),
        KEEP,
        2.5,
        conflict="2 GiB are needed, and no more than 1.5 GiB",
    ),
    Row(
        "both-cannot-be-had",
        (lacked(None, 5, 1), lacked(12, 14, 2, seconds=14.0), launch(20, 22.0)),
        KEEP,
        20,
        conflict="14 GiB are needed, and no more than",
    ),
    Row(
        "both-cannot-be-had-by-one-size",
        (lacked(None, 9, 2, seconds=24.0, faults={Cause.METADATA_UNREACHABLE: 1}), launch(11.25, 24.0)),
        KEEP,
        11.25,
        conflict="9 GiB are needed, and no more than 7 GiB come up within 15 s",
    ),
    Row(
        "both-may-be-had-by-one-size",
        (lacked(None, 6, 2, seconds=24.0, faults={Cause.METADATA_UNREACHABLE: 1}), launch(11.25, 24.0)),
        SHRINK,
        6,
    ),
    Row(
        "less-than-the-headroom-after-the-default",
        (lacked(11, 13, 1, own=True, seconds=30.0), launch(16.25, 18.0)),
        SHRINK,
        None,
        "by itself",
        conflict="13 GiB are needed, with headroom 16.25 GiB, and no more than 13.5 GiB",
    ),
    Row(
        "the-default-may-do",
        (lacked(12, 30, 8, seconds=20.0), launch(40, 60.0)),
        SHRINK,
        None,
        "stay out of the region",
        conflict="30 GiB are needed",
    ),
    Row(
        "none-on-v4",
        (lacked(12, 30, 2, seconds=20.0), launch(40, 60.0)),
        SHRINK,
        None,
        "all buffers",
        V4,
        conflict="30 GiB are needed",
    ),
    Row("little-memory", (launch(16),), SHRINK, 8, "25 % of the host's 32 GiB", SCARCE),
    Row(
        "others-take-memory",
        (launch(16),),
        SHRINK,
        8,
        "of other launches' buffers",
        TuneHost("v5e", 192 * GIB, 40 * GIB),
    ),
    Row("host-ran-out", (killed(),), SHRINK, 2, "ran out of memory"),
    Row("host-ran-out-again", (killed(4), killed(2)), SHRINK, 1),
    Row("host-ran-out-of-the-default-long-ago", (killed(4), launch(2)), KEEP, 2),
    Row("host-ran-out-above-a-need", (lacked(4, 6, 3), killed(16)), SHRINK, 9.75),
    Row(
        "host-ran-out-twice-above-a-need",
        (lacked(4, 6, 3), killed(16), killed(9.75)),
        SHRINK,
        None,
        "all buffers stay out",
        V4,
        conflict="6 GiB are needed, and 9.75 GiB are too much for the host",
    ),
    Row("host-ran-out-once-above-a-need", (lacked(4, 6, 3), killed(16)), SHRINK, 9.75, host=V4),
    Row("host-ran-out-near-a-need", (lacked(4, 6, 3), killed(7.5)), SHRINK, 6.5),
    Row(
        "host-ran-out-at-the-need", (lacked(4, 6, 3), killed(6.25)), UNSATISFIABLE, 3, threshold=1, conflict="6 GiB are"
    ),
    Row("host-ran-out-at-the-least", (killed(0.25),), KEEP, 0.25, "no smaller buffer is allowed"),
    Row("host-ran-out-without-a-buffer", (killed(),), KEEP, None, host=V4),
)

OVERRIDES = (
    Row("size", (lacked(4, 6, 3),), OVERRIDDEN, 2, f"sets {SIZE} to 2 GiB", bounds={"overrides": {SIZE: str(gib(2))}}),
    Row("size-outside", (), OVERRIDDEN, 100, bounds={"overrides": {SIZE: str(gib(100))}}),
    Row(
        "threshold",
        (launch(8),),
        KEEP,
        8,
        "The configuration sets",
        bounds={"overrides": {THRESHOLD: str(gib(1))}},
        threshold=1,
    ),
    Row(
        "threshold-and-growth",
        (lacked(8, 10, 1, threshold=2),),
        GROW,
        12.5,
        threshold=2,
        bounds={"overrides": {THRESHOLD: str(gib(2))}},
    ),
    Row("something-else", (launch(),), KEEP, None, bounds={"overrides": {"TPU_MIN_LOG_LEVEL": "0"}}),
)

FINE = (
    Row("default", (launch(),), KEEP, None, "worked with 4 GiB, and took 6 s to initialise"),
    Row(
        "that-ran-out-of-hbm-later",
        (launch(faults={Cause.HBM_OOM_COMPILE: 9.0}, exit_status=1),),
        KEEP,
        None,
        "with 4 GiB, took 6 s to initialise, and failed later by hbm_oom_compile: nothing shows that another size "
        "would help.",
    ),
    Row(
        "that-ran-out-of-hbm-after-a-smaller-one-had-no-room",
        (launch(16, faults={Cause.HBM_OOM_RUNTIME: 900.0}, exit_status=1), lacked(8, 9, 1)),
        BACK,
        16,
        "which failed later by hbm_oom_runtime, had room in 16 GiB: back to that.",
    ),
    Row("that-a-person-ended", (launch(faults={Cause.INTERRUPTED: 900.0}, exit_status=130),), KEEP, None, "worked"),
    Row(
        "that-logged-a-fault-and-did",
        (launch(faults={Cause.BARRIER_TIMEOUT: 9.0}, exit_status=0),),
        KEEP,
        None,
        "worked",
    ),
    Row("default-set", (launch(4),), KEEP, None),
    Row("size", (launch(8),), KEEP, 8),
    Row("v4", (launch(),), KEEP, None, "worked with 0 bytes", V4),
    Row("none-reported-by-an-unknown-chip", (launch(),), KEEP, None, "worked with 0 bytes", NO_CHIP),
    Row("none-reported-and-then-a-size", (launch(), launch(1, premapped_bytes=gib(1))), KEEP, 1, host=NO_CHIP),
    Row("one-reported-by-an-unknown-chip", (launch(premapped_bytes=gib(4)), launch()), KEEP, None, "4 GiB", NO_CHIP),
    Row("none-reported-that-failed", (lacked(),), GROW, 8, "buffer of 4 GiB", NO_CHIP),
    Row("size-not-reported", (launch(8), launch(None, environment={})), KEEP, 8),
    Row("size-by-the-log", (launch(None, premapped_bytes=gib(8), environment={}),), KEEP, 8),
    Row("tpu-in-use", (launch(8), failed(Cause.TPU_IN_USE, 8)), KEEP, 8, "(tpu_in_use) shows nothing"),
    Row("interrupted-in-time", (launch(8, faults={Cause.INTERRUPTED: 9000}),), KEEP, 8),
    Row("whole-pages", (launch(None, premapped_bytes=GIB + 1, environment={}),), GROW, 1 + 4096 / GIB),
    Row("power-of-two", (launch(6),), GROW, 8, bounds={"power_of_two": True}),
    Row("nothing-fits", (launch(),), SHRINK, 64 * MIB / GIB, host=TuneHost("v5e", GIB // 4)),
)

ROWS = {
    f"{name}-{row.id}": row
    for name, rows in {
        "first": FIRST,
        "too-small": TOO_SMALL,
        "unsatisfied": UNSATISFIED,
        "tried": TRIED,
        "too-large": TOO_LARGE,
        "overrides": OVERRIDES,
        "fine": FINE,
    }.items()
    for row in rows
}
