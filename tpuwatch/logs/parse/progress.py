"""The steps of a training loop in a job's output, as the usual frameworks print them.

Only the end of what was read is looked at, and of that the last line that shows a step: output may come at 100 MB/s.
A line counts where it names a step and something measured beside it, or is a bar of steps: a number alone is none.
"""

from __future__ import annotations

import math
from typing import Final

import re2

from tpuwatch.model import StepReport

TAIL_BYTES: Final = 4096  # of the output that are looked at
_MAX_LINE: Final = 1000
_MAX_LINES: Final = 24
_MAX_STEP: Final = 10**12
_MAX_SECONDS: Final = 86_400.0
_COLOURS: Final = re2.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
_DIGIT: Final = frozenset(b"0123456789")
_NUMBER: Final = rb"([0-9][0-9,]*\.?[0-9]*(?:e[+-]?[0-9]+)?)"
_EVAL: Final = rb"(?:eval|valid|val|test|predict|inference|warm-?up|generat|sampl|download|load|sav|checkpoint)"

_IS: Final = rb"[\"']? ?[:=]? {0,3}"  # between a name and its number

# A bar: "30/1000 [00:30<12:10, 9.1it/s, loss=…]", and Keras': "12/600 [===>…] - ETA: 5s", "12/600 ━━━━ 1s 20ms/step".
_TQDM: Final = re2.compile(
    rb"(?i)([0-9]+)/([0-9]+) \[[0-9:]+<[0-9:?]+, *([0-9.]+|\?) ?"
    rb"(?:it|steps?|batch(?:es)?|ba|iter|s)/(?:s|it|step|batch|iter)\b"
)
_KERAS: Final = re2.compile(rb"^[ \x08]*([0-9]+)/([0-9]+) (?:\[[=>. ]+\]|[^\x00-\x7f]+)[^\n]*(?:/step|ETA|loss: )")
_BAR_OF_STEPS: Final = re2.compile(rb"(?i)train|epoch|step|iter|fit|loss")
_BAR_NAME: Final = re2.compile(rb"^[^0-9|]*[A-Za-z][^|]*")
_OF_OTHERS: Final = re2.compile(
    rb"(?i)^[^|]{0,40}\b(?:" + _EVAL + rb"|tokeniz|map\b|filter|preprocess|pack|fetch|convert|cach)"
)

# A step by its name, or "epoch 1: 100 / 1234", or as CLU's writer has it: "[120] loss=1.2, steps_per_sec=3.4".
_STEP: Final = re2.compile(
    rb"(?i)(?:^|[^a-z0-9])(?:global[_ ]?|train(?:ing)?[_ /]|completed |num_)?"
    rb"(?:steps?|iters?|iterations?|update|num_updates)"
    rb"[\"']?[\])]? ?(?:[:=#\[]|of)? {0,9}\[?([0-9][0-9,]*)(?: ?(?:/|of) {0,9}([0-9][0-9,]*))?\]?"
    rb"(?:[^0-9a-z.%]|\.[^0-9]|\.?$)"
)
_CLU: Final = re2.compile(rb"\] \[([0-9]+)\] [a-z_/]+=")
# Steps within an epoch: "Epoch: [0][  10/5005]", "Train: 0 [  50/1251", "Iter(train) [ 50/80000]", "Batch 100/500", a
# bar "Epoch 2/9 ━━━ 45/100", and of examples without a name for it "loss: 2.30  [ 6400/60000]".
_EPOCH_STEP: Final = re2.compile(
    rb"(?i)(?:(?:epoch[^\n|0-9]{0,20}|\btrain: )[0-9/]+\]? {0,3}[\[:|]|\bepoch [0-9/]+ [^\x00-\x7f]+ "
    rb"|iter\(train\) {1,3}\[|\bbatch[ :]{1,2}\[?|\bloss: [0-9.]+ {1,3}\[) {0,9}([0-9]+) {0,2}/ {0,9}([0-9]+)"
)
_GLOBAL_STEP: Final = re2.compile(rb"global_step[s\"']*[=:] {0,3}([0-9]+)")
_PAIR: Final = re2.compile(rb"^\[[0-9]+, {1,6}([0-9]+)\] loss: ")  # epoch and batch
_OF_EVALUATION: Final = re2.compile(
    rb"(?i)\b" + _EVAL + rb"[a-z]*[ _/:\]{\"'-]{0,5}(?:global[_ ]?|data |set )?(?:step|iter|batch|epoch|loss)"
    rb"|epoch\((?:val|test)\)|\bvalid on |\bresum[a-z]+ from "
)
_MEASURED: Final = re2.compile(
    rb"(?i)(?:loss|\blr\b|learning_rate|grad_?norm|gnorm|perplexity|samplespersec|\bppl\b|\bmfu\b|tflop|accuracy|\bacc\b|\btps\b"
    rb"|(?:tokens|samples|examples|steps|sequences|images|step)(?:/|_per_)s|/step|s/it|it/s|_time|time per iteration)"
    rb"[^0-9\n]{0,24}[0-9n]"
    rb"|[0-9] ?(?:m?s|sec|seconds)?/(?:step|it|s)\b|\([0-9.]+ sec\)"
)

_LOSS: Final = re2.compile(
    rb"(?i)(?:^|[^a-z])(?:(?:train|total|lm|model|step|training|avg|ce|nll)[_ /]?)?loss(?:[/ ]train(?:/total)?|_step)?"
    + _IS
    + rb"([0-9][0-9.]*(?:e[+-]?[0-9]+)?|nan)"
)
_TOKENS: Final = (
    re2.compile(rb"(?i)(?:tok(?:ens?)?(?:/|_per_)s(?:ec(?:ond)?)?(?:/device|_per_gpu)?|\btps)" + _IS + _NUMBER),
    re2.compile(rb"(?i)" + _NUMBER + rb" ?(?:tokens?|tok)/s"),
)
_TIME: Final = rb"(?:step[_ ]?time|iter(?:ation)?[_ ]?time|time per iteration|time[_/]step|time_per_step)"
# Step times: the pattern, seconds for one of its unit, and whether it is a rate.
_TIMES: Final = tuple(
    (re2.compile(rb"(?i)" + pattern), unit, rate)
    for pattern, unit, rate in (
        (_NUMBER + rb" ?(?:s|sec|seconds)/(?:step|it|iter|batch)\b", 1.0, False),
        (_NUMBER + rb" ?ms/(?:step|it|iter|batch)\b", 1e-3, False),
        (_NUMBER + rb" ?us/step\b", 1e-6, False),
        (_NUMBER + rb" ?(?:it|steps?|iters?|batch(?:es)?|ba)/s(?:ec)?\b", 1.0, True),
        (rb"(?:global_)?steps?(?:/|_per_)s(?:ec(?:ond)?)?" + _IS + _NUMBER, 1.0, True),
        (_TIME + rb"(?:_ms| ?\(ms\))" + _IS + _NUMBER, 1e-3, False),
        (rb"(?:" + _TIME + rb"|\btime|\bdt|\bstep_avg)" + _IS + _NUMBER + rb" ?ms\b", 1e-3, False),
        (rb"\(([0-9.]+) ms \|", 1e-3, False),
        (rb"\bups=([0-9.]+)", 1.0, True),
        (rb"\btime[ \t]{1,3}([0-9]+\.[0-9]+) \(", 1.0, False),
        (_TIME + rb"(?:_s|_sec|_seconds| ?\(s\))?" + _IS + _NUMBER + rb"(?:[^0-9m]|$)", 1.0, False),
        (rb"(?:sec|seconds)_per_step" + _IS + _NUMBER, 1.0, False),
        (rb"\b(?:seconds|time)[\"']?[:=] {0,3}([0-9]+\.[0-9]+)(?:[^0-9:m]|$)", 1.0, False),
    )
)


def last_progress(tail: bytes) -> StepReport | None:
    """The progress that the last line with some shows, of the whole lines in `tail`; carriage returns end lines too.

    Text after the last line's end is left out: it may be the beginning of a line, "step 12" of "step 123".
    """
    lines = tail.replace(b"\r", b"\n").split(b"\n")
    if len(tail) >= TAIL_BYTES:
        del lines[0]  # its beginning may be cut off
    for line in lines[-2 : -_MAX_LINES - 2 : -1]:
        if _DIGIT.isdisjoint(line) or len(line) > _MAX_LINE:
            continue
        if (found := read_line(line)) is not None:
            return found
    return None


def read_line(line: bytes) -> StepReport | None:
    """The progress that a line shows; None if it shows none."""
    if b"\x1b" in line:
        line = _COLOURS.sub(b"", line)
    place = _bar(line) or _named_step(line)
    if place is None or place[0] > _MAX_STEP:
        return None
    step, total = place
    found = _LOSS.search(line)
    loss = None if found is None else _value(found.group(1))
    is_nan = found is not None and found.group(1).lower() == b"nan"
    return StepReport(
        step,
        total,
        loss,
        _step_seconds(line),
        _first(line, _TOKENS[0]) or _first(line, _TOKENS[1]),
        nan=("loss",) if is_nan else (),
    )


def _bar(line: bytes) -> tuple[int, int | None] | None:
    """Step and total of a progress bar of steps."""
    keras = _KERAS.search(line)
    if keras is not None:
        return int(keras.group(1)[:15]), int(keras.group(2)[:15])
    bar = _TQDM.search(line) if b"<" in line else None
    if bar is None or int(bar.group(2)[:15]) < 2:
        return None
    name = _BAR_NAME.search(line)
    if name is not None and not _BAR_OF_STEPS.search(line):
        return None  # a download, files that are loaded
    if _OF_EVALUATION.search(line) or (name is not None and _OF_OTHERS.search(line)):
        return None
    return int(bar.group(1)[:15]), int(bar.group(2)[:15])


def _named_step(line: bytes) -> tuple[int, int | None] | None:
    """Step and total where the line names a step, and something that was measured."""
    found = _GLOBAL_STEP.search(line) if b"global_step" in line else None
    found = found or _STEP.search(line) or _EPOCH_STEP.search(line) or _CLU.search(line) or _PAIR.search(line)
    if found is None or not _MEASURED.search(line):
        return None
    other = _OF_EVALUATION.search(line)
    if other is not None and other.start() < found.start(1):
        return None
    total = found.group(2) if len(found.groups()) > 1 else None
    return _whole(found.group(1)), None if total is None else _whole(total)


def _step_seconds(line: bytes) -> float | None:
    for pattern, unit, rate in _TIMES:
        value = _first(line, pattern)
        if value:
            seconds = unit / value if rate else value * unit
            return seconds if 0 < seconds <= _MAX_SECONDS else None
    return None


def _first(line: bytes, pattern: re2._Regexp) -> float | None:
    found = pattern.search(line)
    return None if found is None else _value(found.group(1))


def _value(text: bytes) -> float | None:
    try:
        value = float(text.replace(b",", b""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _whole(digits: bytes) -> int:
    return int(digits.replace(b",", b"")[:15])
