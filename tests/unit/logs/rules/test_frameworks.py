"""Remedies name the framework and the launcher that a text shows, or none."""

from __future__ import annotations

import pytest

from tests.unit.whole_text import findings_in
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.logs.rules.frameworks import FRAMEWORKS, LAUNCHERS, context_of

CATALOGUE = load_catalogue()
RULES = CATALOGUE.rules
SCANNER = Scanner(CATALOGUE)
CONTEXTS = {**FRAMEWORKS, **LAUNCHERS}


@pytest.mark.parametrize("name", [*CONTEXTS, ""])
def test_no_remedy_has_the_words_of_another_framework(name: str) -> None:
    others = {word for other, words in CONTEXTS.items() if other != name for word in words.values()}
    steps = [step.do for rule in RULES for step in rule.remedy_for(context_of([name]))]
    assert [step for step in steps if any(word in step for word in others)] == []
    assert [step for step in steps if "{" in step] == []


@pytest.mark.parametrize("name", CONTEXTS)
def test_each_word_is_in_a_remedy(name: str) -> None:
    steps = " ".join(step.do for rule in RULES for step in rule.remedy_for(context_of([name])))
    assert [word for word in CONTEXTS[name].values() if word not in steps] == []


@pytest.mark.parametrize(
    ("marks", "framework"),
    [
        ({"jax", "tensorflow"}, "jax"),
        ({"torch_xla", "tensorflow"}, "torch_xla"),
        ({"jax", "torch_xla"}, None),
        ({"vllm", "jax", "torch_xla"}, "vllm"),
        ({"keras", "jax"}, "jax"),
        ({"keras", "tensorflow"}, "keras"),
        (set(), None),
    ],
)
def test_the_framework_of_a_text_that_shows_several(marks: set[str], framework: str | None) -> None:
    assert context_of(marks).get("framework") == framework


OOM = "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 9G of 8G hbm.\n"
LOST = "UNAVAILABLE: Task /job:jax_worker/replica:0/task:2 heartbeat timeout\n"
IN_USE = "RuntimeError: TPU initialization failed: open(/dev/vfio/0): Device or resource busy\n"


@pytest.mark.parametrize(
    ("beside", "failure", "words"),
    [
        ('File "site-packages/vllm/engine/core.py", line 7\n', OOM, "--max-num-seqs"),
        ("import jax\n", OOM, "jax.checkpoint"),
        ("import torch_xla\n", OOM, "torch_xla.utils.checkpoint"),
        ('File "site-packages/keras/src/trainer.py", line 7\n', OOM, "keras.RematScope"),
        ("import tensorflow as tf\n", OOM, "tf.recompute_grad"),
        ("kubectl logs job/train\n", LOST, "kubectl logs --prefix"),
        ("ray.exceptions.RayActorError: it is gone\n", LOST, "ray logs cluster"),
        ("(base) me@t1v-n-0123abcd-w-0:~$ python3 train.py\n", LOST, "--worker=all"),
        ("kubectl get pods\n", IN_USE, "kubectl delete pod"),
    ],
)
def test_the_steps_are_those_of_the_framework_and_the_launcher(beside: str, failure: str, words: str) -> None:
    (finding,) = findings_in(f"{beside}{failure}".encode(), SCANNER, "job.txt")
    assert any(words in step.do for step in finding.remedy)
    (alone,) = findings_in(failure.encode(), SCANNER, "job.txt")
    assert not any(words in step.do for step in alone.remedy)
