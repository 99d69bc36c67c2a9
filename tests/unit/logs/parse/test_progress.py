"""Steps in a job's output: lines in the forms of frameworks, with made-up numbers, and lines that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.paths import ROOT
from tpuwatch.logs.parse.progress import TAIL_BYTES, last_progress, read_line

# The line, and step, total, loss, seconds of a step, tokens a second.
FORMS: dict[str, tuple[str, tuple[int, int | None, float | None, float | None, float | None]]] = {
    "absl": (
        "I0901 12:00:00.123456 140213 train.py:233] step 17 loss 7.25 grad_norm 0.3",
        (17, None, 7.25, None, None),
    ),
    "CLU": (
        "I1123 12:00:00.123456 139 logging_writer.py:48] [120] accuracy=0.5, loss=1.5, steps_per_sec=4",
        (120, None, 1.5, 0.25, None),
    ),
    "key=value": ("step=40 loss=4.25 grad_norm=0.1 tokens_per_s=1700", (40, None, 4.25, None, 1700.0)),
    "JSON": ('{"step": 17, "loss": 8.5, "time": "2026-09-01T00:00:17Z"}', (17, None, 8.5, None, None)),
    "JSON of wandb": ('{"_step": 40, "train/loss": 1.5, "_timestamp": 1.7e9}', (40, None, 1.5, None, None)),
    "MaxText": (
        "completed step: 17, seconds: 3.5, TFLOP/s/device: 120.7, Tokens/s/device: 1000.5, weights: 65, loss: 4.5",
        (17, None, 4.5, 3.5, 1000.5),
    ),
    "tqdm": ("train:   3%|▎         | 30/1000 [00:30<12:10,  2.00s/it, loss=2.5]", (30, 1000, 2.5, 2.0, None)),
    "tqdm without a name": ("  3%|▎         | 30/1000 [00:30<12:10,  4.00it/s]", (30, 1000, None, 0.25, None)),
    "Lightning": (
        "Epoch 3:  45%|████▌     | 45/100 [00:10<00:12,  4.00it/s, v_num=0, train_loss=0.300]",
        (45, 100, 0.3, 0.25, None),
    ),
    "Keras 3": (" 45/100 ━━━━━━━━━━━━━━━━━━━━ 1s 20ms/step - accuracy: 0.1123 - loss: 2.5", (45, 100, 2.5, 0.02, None)),
    "Keras 2": (" 12/600 [>.............................] - ETA: 5s - loss: 0.5", (12, 600, 0.5, None, None)),
    "Megatron": (
        " iteration      100/  5000 | elapsed time per iteration (ms): 1250.0 | lm loss: 6.100000E+00 |",
        (100, 5000, 6.1, 1.25, None),
    ),
    "milliseconds": ("iter 100: loss 2.5, time 125.00ms, mfu 12.30%", (100, None, 2.5, 0.125, None)),
    "an estimator": ("INFO:tensorflow:loss = 0.5, step = 100 (12.3 sec)", (100, None, 0.5, None, None)),
    "thousands": ("Step 12,500/100,000 - loss: 0.5 - 7,123 tokens/s", (12500, 100000, 0.5, None, 7123.0)),
    "the simulator": ("step 1200: loss: 0.7143, 0.004 s/step", (1200, None, 0.7143, 0.004, None)),
    "a loss of another set behind it": ("train: step=100 loss=1.0 val_loss=2.0", (100, None, 1.0, None, None)),
    "nanochat": (
        "step 00120/21400 (0.56%) | loss: 5.125 | lrm: 1.00 | dt: 512.50ms | tok/sec: 1,023,000 | mfu: 41.20",
        (120, 21400, 5.125, 0.5125, 1023000.0),
    ),
    "llm.c": (
        "step   12/1000 | train loss 7.125 | lr 1.00e-04 | (250.00 ms | 33212 tok/s)",
        (12, 1000, 7.125, 0.25, 33212.0),
    ),
    "a mean step time": ("step:25/1750 train_time:3100ms step_avg:124.00ms", (25, 1750, None, 0.124, None)),
    "torchtitan": (
        "[rank0]:[titan] 2026-01-02 10:20:30,123 - root - INFO - step: 20  loss:  6.5000  tps: 5,120",
        (20, None, 6.5, None, 5120.0),
    ),
    "torchtune": ("Step 45 | loss:1.25 lr:2e-05 tokens_per_second_per_gpu:1234.5", (45, None, 1.25, None, 1234.5)),
    "diffusers": (
        "Steps:  10%|█         | 50/500 [00:10<01:40,  4.00it/s, lr=1e-5, step_loss=0.125]",
        (50, 500, 0.125, 0.25, None),
    ),
    "composer": (
        "train          Epoch   0:   10%|██▌       | 10/100 [00:05<00:45,  2.00ba/s, loss/train/total=2.5]",
        (10, 100, 2.5, 0.5, None),
    ),
    "Lightning's loss of a step": (
        "Epoch 2:  45%|████▌     | 45/100 [00:10<00:12,  4.00it/s, v_num=3, train_loss_step=0.300]",
        (45, 100, 0.3, 0.25, None),
    ),
    "Lightning in colours": (
        "Epoch 2/9 ━━━━━━━━━ 45/100 0:00:10 • 0:00:12 4.00it/s v_num: 3.000 train_loss: 0.300",
        (45, 100, 0.3, 0.25, None),
    ),
    "PyTorch/XLA": (
        "| Training Device=xla:0/0 Epoch=1 Step=20 Loss=2.12500 Rate=100.25 GlobalRate=99.10 Time=03:11:22",
        (20, None, 2.125, None, None),
    ),
    "PyTorch on ImageNet": (
        "Epoch: [0][  10/5005]\tTime  0.412 ( 0.512)\tData  0.001 ( 0.100)\tLoss 6.5e+00 (7.0e+00)",
        (10, 5005, 6.5, 0.412, None),
    ),
    "a pair": ("[1,  2000] loss: 2.203", (2000, None, 2.203, None, None)),
    "samples": ("loss: 2.301923  [ 6400/60000]", (6400, 60000, 2.301923, None, None)),
    "a batch of an epoch": ("Epoch 3, Batch 100/500, Loss: 0.25", (100, 500, 0.25, None, None)),
    "timm": (
        "Train: 0 [  50/1251 (  4%)]  Loss: 6.95 (6.95)  Time: 0.400s, 2560.00/s  (0.512s, 2000.10/s)",
        (50, 1251, 6.95, 0.4, None),
    ),
    "mmengine": (
        "01/02 10:20:30 - mmengine - INFO - Iter(train) [   50/80000]  lr: 1.0e-02  time: 0.4120  loss: 2.3000",
        (50, 80000, 2.3, 0.412, None),
    ),
    "fairseq": (
        "2026-01-02 10:20:30 | INFO | train_inner | epoch 001:    100 / 1234 loss=12.5, ups=2.5, num_updates=100",
        (100, None, 12.5, 0.4, None),
    ),
    "DeepSpeed": (
        "[INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=12.3",
        (10, None, None, None, None),
    ),
    "colours": ("\x1b[36mstep: 10\x1b[0m  \x1b[32mloss: 5.5\x1b[0m", (10, None, 5.5, None, None)),
}
OTHERS = (
    "Loading checkpoint shards:  50%|█████     | 1/2 [00:01<00:01,  1.00s/it]",
    "Downloading data files: 100%|██████████| 3/3 [00:00<00:00, 8943.08it/s]",
    "Map:  30%|███       | 3000/10000 [00:01<00:02, 2534.12 examples/s]",
    "Evaluating: 100%|████| 50/50 [00:10<00:00,  4.40it/s]",
    "Eval step 20/50 loss: 1.2",
    "eval: step 100 loss: 2.0",
    "Step 3 of 5: loading weights",
    "step 2: install version 0.4.3",
    "Tokenizing train dataset:  30%|███       | 3000/10000 [00:01<00:02, 2534.12it/s]",
    "Validation DataLoader 0:  45%|████▌     | 45/100 [00:10<00:12,  4.00it/s]",
    "01/02 10:20:30 - mmengine - INFO - Epoch(val) [1][ 50/250]    eta: 0:00:20  time: 0.1000",
    "Test: [ 10/196]\tTime  0.123 ( 0.200)\tLoss 1.2000e+00 (1.3000e+00)",
    "Test set: Average loss: 0.0412, Accuracy: 9866/10000 (99%)",
    "val: {'loss': 2.3, 'step': 100}",
    "epoch 001 | valid on 'valid' subset | loss 9.5 | num_updates 1234 | best_loss 9.5",
    "Resumed from step 1200, loss scale 65536",
    "[rank1]:[E102 10:20:30.1 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1234, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",
    "The loss was 3.5 after a few steps.",
    "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED at step 12",
    "{'loss': 2.3, 'learning_rate': 5e-05, 'epoch': 0.02}",
    "E0901 12:00:00.000001 4711 tpu.cc:33] 17/23 chips",
)


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_understood(form: str) -> None:
    line, wanted = FORMS[form]
    found = read_line(line.encode())
    assert found is not None
    assert (found.step, found.total, found.loss, found.tokens_per_second) == (*wanted[:3], wanted[4])
    assert found.step_seconds == (None if wanted[3] is None else pytest.approx(wanted[3]))


@pytest.mark.parametrize("line", OTHERS)
def test_other_lines_show_no_step(line: str) -> None:
    assert read_line(line.encode()) is None


def test_a_loss_that_is_no_number() -> None:
    found = read_line(b"step 40 loss nan")
    assert found is not None
    assert (found.loss, found.nan) == (None, ("loss",))


def test_the_last_whole_line_with_a_step_counts() -> None:
    tail = b"step 1 loss 2.5\nstep 2 loss 2.25\nsaved a checkpoint\nstep 3 lo"
    found = last_progress(tail)
    assert found is not None
    assert found.step == 2


def test_a_carriage_return_ends_a_bar_and_one_that_is_cut_is_left_out() -> None:
    bar = "\r  3%|#| 30/1000 [00:30<12:10,  4.00it/s]\r  3%|#| 31/1000 [00:30<12:10,  4.00it/s]\r  3%|#| 32/10"
    found = last_progress(bar.encode())
    assert found is not None
    assert found.step == 31


def test_a_first_line_whose_beginning_is_cut_off_is_left_out() -> None:
    tail = b"30/1000 [00:30<12:10,  4.00it/s]\n".rjust(TAIL_BYTES - 1, b"x") + b"\n"
    assert len(tail) == TAIL_BYTES
    assert last_progress(tail) is None


def test_numbers_beyond_all_bounds_show_nothing_and_long_lines_are_not_looked_at() -> None:
    assert read_line(b"step " + b"9" * 900 + b" loss 1.0") is None
    assert last_progress(b"step 1 loss " + b"1" * 2000 + b"\n") is None
    found = read_line(b"step 5 loss 1e999 0 s/step")
    assert found is not None
    assert (found.loss, found.step_seconds) == (None, None)


CORPUS = [ROOT.parent / "shared" / name / "texts" for name in ("corpus", "corpus-2")]
STEPPING = {"003", "158", "160", "307"}  # the texts of failures that do hold steps


@pytest.mark.skipif(not CORPUS[0].is_dir(), reason="the corpus is not beside the repository")
def test_texts_of_failures_show_no_steps_but_those_that_hold_some() -> None:
    found = set[str]()
    for path in (path for directory in CORPUS for path in directory.glob("*.txt")):
        lines = Path(path).read_bytes().replace(b"\r", b"\n").split(b"\n")
        if any(len(line) <= 1000 and read_line(line) is not None for line in lines):
            found.add(path.stem)
    assert found == STEPPING
