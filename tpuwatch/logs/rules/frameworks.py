"""Words in remedies that depend on the framework and the launcher: what to install, names of functions, where logs are.

A step of a remedy has `{packages}`, or `[[ ({install})]]` for what has no general form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# By the marks by which a text shows them: the first of these that it shows, but none where it shows both libraries.
FRAMEWORKS: Final[Mapping[str, Mapping[str, str]]] = {
    "vllm": {
        "packages": "vllm, tpu-inference and libtpu",
        "install": "`pip install -U vllm-tpu`",
        "save_hbm": "lower --max-num-seqs, --max-model-len or --max-num-batched-tokens, raise --tensor-parallel-size",
    },
    "jax": {
        "packages": "jax, jaxlib and libtpu",
        "install": "`pip install -U 'jax[tpu]'`",
        "find_nan": "jax_debug_nans",
        "own_data": "jax.make_array_from_process_local_data",
        "devices": "jax.device_count()",
        "compile": "jax.jit",
        "save_hbm": "jax.checkpoint for the largest layers, donate_argnums of jax.jit for the state",
    },
    "torch_xla": {
        "packages": "torch, torch_xla and libtpu",
        "install": "`pip install -U torch 'torch_xla[tpu]'`",
        "find_nan": "torch.autograd.set_detect_anomaly",
        "own_data": "torch.utils.data.DistributedSampler",
        "devices": "torch_xla.runtime.global_runtime_device_count()",
        "compile": "torch_xla.compile",
        "save_hbm": "torch_xla.utils.checkpoint for the largest layers, torch_xla.sync() after each step",
    },
    "keras": {
        "packages": "keras, its backend and libtpu",
        "find_nan": "keras.callbacks.TerminateOnNaN, and a backend's check off the TPU",
        "compile": "jit_compile of Model.compile",
        "save_hbm": "keras.config.set_dtype_policy('mixed_bfloat16'), keras.RematScope for the largest layers",
    },
    "tensorflow": {
        "packages": "tensorflow-tpu and libtpu",
        "install": "`pip install -U tensorflow-tpu`",
        "find_nan": "tf.debugging.enable_check_numerics off the TPU",
        "own_data": "distribute_datasets_from_function, per-replica batch",
        "devices": "len(tf.config.list_logical_devices('TPU'))",
        "compile": "tf.function",
        "save_hbm": "tf.recompute_grad for the largest layers, mixed_bfloat16",
    },
}
_LIBRARIES: Final = frozenset({"jax", "torch_xla"})  # a text of both is of neither
_GENERAL: Final[Mapping[str, str]] = {"packages": "the framework and libtpu"}
# What started the program, and where; Ray may run in Kubernetes, and either on TPU VMs.
LAUNCHERS: Final[Mapping[str, Mapping[str, str]]] = {
    "ray": {
        "other_logs": "`ray list nodes`, then `ray logs cluster --node-id=ID`",
        "holders": "`ray list actors --detail`; end one with `ray job stop JOB`",
    },
    "kubernetes": {
        "other_logs": "`kubectl logs --prefix --tail=-1 --all-containers -l jobset.sigs.k8s.io/jobset-name=JOBSET`",
        "holders": "`kubectl get pods --all-namespaces --output=wide`; end one with `kubectl delete pod POD`",
    },
    "tpu_vm": {
        "other_logs": "`gcloud compute tpus tpu-vm ssh NODE --worker=all --command='grep -m5 ^[EF] /tmp/tpu_logs/*'`",
    },
}


def context_of(marks: Collection[str]) -> dict[str, str]:
    """Return the `framework` and the `launcher` that a text with these marks shows; neither where it shows none.

    JAX, PyTorch/XLA and Keras programs often read their data by TensorFlow, and vLLM computes by JAX or PyTorch/XLA.
    Of a text that shows both libraries the framework is not known.
    """
    framework = next((name for name in FRAMEWORKS if name in marks), None)
    launcher = next((name for name in LAUNCHERS if name in marks), None)
    if framework in _LIBRARIES and _LIBRARIES.issubset(marks):
        framework = None
    return {name: value for name, value in (("framework", framework), ("launcher", launcher)) if value is not None}


def words(details: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the words for a finding whose details have a context: general ones without a framework."""
    return {
        **FRAMEWORKS.get(str(details.get("framework")), _GENERAL),
        **LAUNCHERS.get(str(details.get("launcher")), {}),
    }
