"""Which kind of workload a process is."""

from __future__ import annotations

import pytest

from tests.standins.machine import Machine
from tpuwatch.host.holders import Holders
from tpuwatch.host.kinds import kind_of_command, kind_of_process
from tpuwatch.host.procfs import ProcFs
from tpuwatch.model.workload import WorkloadKind

SERVING, INTERACTIVE = WorkloadKind.SERVING, WorkloadKind.INTERACTIVE
VLLM = "/opt/venv/bin/python3\0/opt/venv/bin/vllm\0serve\0Qwen/Qwen3-8B\0--max-model-len\0002048\0"
SPAWNED = "/opt/venv/bin/python3\0-c\0from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)\0"
KERNEL = "/usr/bin/python3\0-m\0ipykernel_launcher\0-f\0/root/.local/share/jupyter/runtime/kernel-1.json\0"


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("vllm serve meta-llama/Llama-3.1-8B --tensor-parallel-size 4", SERVING),
        ("/opt/venv/bin/python3 /opt/venv/bin/vllm serve Qwen/Qwen3-8B", SERVING),
        ("python3 -u -m vllm.entrypoints.openai.api_server --model x", SERVING),
        ("VLLM::EngineCore", SERVING),
        ("VLLM::EngineCore_DP0", SERVING),
        ("python -m sglang.launch_server --model-path x --enable-metrics", SERVING),
        ("python3 -u -m sgl_jax.launch_server --model-path x", SERVING),
        ("sglang::scheduler_TP0", SERVING),
        ("python -X faulthandler -m MaxText.maxengine_server MaxText/configs/base.yml", SERVING),
        ("python MaxText/maxengine_server.py MaxText/configs/base.yml", SERVING),
        ("python -m jetstream.core.implementations.mock.server", SERVING),
        ("jpt serve --model_id x", SERVING),
        ("ray::ServeReplica:default:LLM", SERVING),
        ("tensorflow_model_server --port=8500", SERVING),
        ("python -m ipykernel_launcher -f kernel.json", INTERACTIVE),
        ("/usr/bin/python3 -m colab_kernel_launcher -f kernel.json", INTERACTIVE),
        ("python3 -Wd /usr/lib/python3/dist-packages/ipykernel_launcher.py -f kernel.json", INTERACTIVE),
        ("/usr/bin/python3 /usr/local/bin/ipython", INTERACTIVE),
        ("python3.12", INTERACTIVE),
        ("python3 -i -q", INTERACTIVE),
        ("python3 train.py --serve --vllm", None),
        ("python3 -m maxtext.train configs/base.yml", None),
        ("python3 /home/alice/jupyter/train.py", None),
        ("python3 -m vllm_client", None),
        ("vllm bench throughput --model x", None),
        ("python3 -c import\x20jax", None),
        ("python3 -", None),
        ("sglang_train", None),
        ("tpu-info --streaming", None),
        ("", None),
    ],
)
def test_what_a_command_line_shows(command: str, kind: WorkloadKind | None) -> None:
    assert kind_of_command(command.split()) is kind


def test_the_engine_of_a_server_is_known_by_the_process_that_was_started(machine: Machine) -> None:
    machine.process(40, command=VLLM)
    machine.process(41, command=SPAWNED, parent=40)
    machine.process(42, command=SPAWNED, parent=41)
    assert kind_of_process(ProcFs(machine.root / "proc"), 42) is SERVING


@pytest.mark.parametrize("child", ["python3\0train.py\0", SPAWNED])
def test_what_a_notebook_starts_is_a_program_of_its_own(machine: Machine, child: str) -> None:
    machine.process(40, command=KERNEL)
    machine.process(41, command="/bin/bash\0", parent=40)
    machine.process(42, command=child, parent=41)
    processes = ProcFs(machine.root / "proc")
    assert (kind_of_process(processes, 40), kind_of_process(processes, 42)) == (INTERACTIVE, None)


@pytest.mark.parametrize(
    ("value", "kind"),
    [("training", WorkloadKind.TRAINING), ("interactive", INTERACTIVE), ("batch", SERVING), ("", SERVING)],
)
def test_what_the_environment_names_comes_first_and_what_is_no_kind_does_not_count(
    machine: Machine, value: str, kind: WorkloadKind
) -> None:
    machine.process(40, command=VLLM)
    machine.write("proc/40/environ", f"PATH=/bin\0TPUWATCH_KIND={value}\0")
    assert kind_of_process(ProcFs(machine.root / "proc"), 40) is kind


def test_an_environment_that_its_process_has_overwritten_is_taken_from_the_one_above(machine: Machine) -> None:
    machine.process(40, command="python3\0my_server.py\0")
    machine.write("proc/40/environ", "TPUWATCH_KIND=serving\0")
    machine.process(41, command="worker\0\0\0\0", parent=40)
    assert kind_of_process(ProcFs(machine.root / "proc"), 41) is SERVING


def test_a_cycle_of_parents_ends(machine: Machine) -> None:
    machine.process(40, parent=41)
    machine.process(41, parent=40)
    assert kind_of_process(ProcFs(machine.root / "proc"), 40) is None


def test_holders_have_their_kind_and_it_follows_a_process_that_becomes_another(machine: Machine) -> None:
    machine.process(40, command="python3\0train.py\0", files=("/dev/vfio/0",))
    machine.process(41, command=KERNEL, files=("/dev/vfio/1",))
    watch = Holders(ProcFs(machine.root / "proc"), machine.root)
    assert [one.kind for one in watch.look(0.0, 0.0).holders] == [None, INTERACTIVE]
    machine.process(40, command="VLLM::EngineCore\0\0\0", files=("/dev/vfio/0",))
    assert [one.kind for one in watch.look(0.0, 10.0).holders] == [SERVING, INTERACTIVE]
