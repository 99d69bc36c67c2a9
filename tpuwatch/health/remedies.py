"""What an operator does about a verdict: steps as data, with the public page that each comes from.

Fields in braces are filled in with what is known of the node, quoted for a shell; what is not known stays in capitals.
"""

from __future__ import annotations

import shlex
from enum import Enum, unique
from typing import TYPE_CHECKING, Final

from tpuwatch.core import clean
from tpuwatch.model import Remedy

if TYPE_CHECKING:
    from tpuwatch.health.facts import Facts

_GCLOUD = "https://cloud.google.com/sdk/gcloud/reference/compute/tpus"
_DOCS = "https://cloud.google.com/tpu/docs"
_WHERE = "--zone={zone} --project={project}"
_RESTART = "`tpuwatch restart {zone}/{node} --project={project}`"
_MAX_PIDS = 8
_CREATE = (
    "`gcloud compute tpus tpu-vm create {node} " + _WHERE + " --accelerator-type={type} --version={version}{spot}`"
)
_CREATE_QUEUED = (
    "`gcloud compute tpus queued-resources create {queued} --node-id={node} "
    + _WHERE
    + " --accelerator-type={type} --runtime-version={version}{spot}`"
)


@unique
class RemedyStep(Enum):
    """Something to do, as a template of its remedy. The order has no meaning."""

    DESCRIBE = Remedy(
        "Look at state, health and symptoms: `gcloud compute tpus tpu-vm describe {node} " + _WHERE + "`",
        f"{_GCLOUD}/tpu-vm/describe",
    )
    DESCRIBE_IN_KUBERNETES = Remedy(
        "Look at its conditions, taints and labels: `kubectl describe node {node}`. GKE's nodes are never restarted "
        "through the Cloud TPU API: to renew this one, have its pods run elsewhere, `kubectl drain {node} "
        "--ignore-daemonsets --delete-emptydir-data`, and delete its VM, which GKE makes again: `gcloud compute "
        "instances delete {node} " + _WHERE + "`",
        "https://docs.cloud.google.com/kubernetes-engine/docs/how-to/node-auto-repair",
    )
    STATUS = Remedy(
        "Look at what its own tpuwatch reports: `gcloud compute tpus tpu-vm ssh {node} " + _WHERE + " --worker=0 "
        "--command='tpuwatch status'`",
        f"{_GCLOUD}/tpu-vm/ssh",
    )
    CHECKPOINT = Remedy("Let the program write a checkpoint now, and go on from it later.", f"{_DOCS}/preemptible")
    MAINTENANCE = Remedy(
        "Wait: the service goes on by itself when the maintenance is over. What is announced is shown by `gcloud "
        "compute tpus tpu-vm describe {node} " + _WHERE + "`",
        f"{_DOCS}/view-maintenance-notifications",
    )
    REPAIR = Remedy(
        "A repair has failed: ask Google's support, or delete the node and create it again: `gcloud compute tpus "
        "tpu-vm delete {node} " + _WHERE + "`, then " + _CREATE,
        f"{_DOCS}/managing-tpus-tpu-vm",
    )
    END_HOLDER = Remedy(
        "End the process that holds the TPU; `sudo lsof -w /dev/accel* /dev/vfio/* /tmp/libtpu_lockfile` shows it: "
        "`kill {pid}`, and if it stays: `kill -9 {pid}`. Then start the program again.",
        "https://github.com/jax-ml/jax/issues/22070",
    )
    LOOK = Remedy(
        "Ask the user of the program that holds the TPU ({pid}) whether it waits for them, as a notebook does "
        "between two cells. Where in its code it is, is shown by `sudo py-spy dump --pid PID`",
        "https://github.com/benfred/py-spy",
    )
    ASK_SERVER = Remedy(
        "Send the server a short request, as its users do. If it answers, it works, and its counts are right again: "
        "some servers go on counting requests whose clients have left. If it does not, start the server again.",
        "https://github.com/vllm-project/vllm/issues/22545",
    )
    FIND_HOLDER = Remedy(
        "Find who holds the TPU among the processes that tpuwatch cannot see, of other users or in other "
        "containers: on the host itself they are named by `sudo lsof -w /dev/accel* /dev/vfio/* /tmp/libtpu_lockfile`. "
        "Leave the lock file alone while a program uses the TPU.",
        "https://github.com/jax-ml/jax/issues/22070",
    )
    AGAIN = Remedy(
        "Start the program again: the program that held the TPU has ended since.",
        "https://github.com/jax-ml/jax/issues/22070",
    )
    LOCK_FILE = Remedy(
        "If `sudo lsof -w /dev/accel* /dev/vfio/* /tmp/libtpu_lockfile`, on the host itself, shows no process, remove "
        "what an ended one left: `sudo rm /tmp/libtpu_lockfile`",
        "https://github.com/vllm-project/tpu-inference/issues/2257",
    )
    UNBUFFER = Remedy(
        "Start the program with LIBTPU_INIT_ARGS=--logbuflevel=-1, so that its log shows how far it comes.",
        "https://github.com/google/glog",
    )
    RESTART_RUNTIME = Remedy(
        "End the program with its runtime, `kill -9 {pid}`, and start it again. Where the runtime is a service of "
        "its own: `sudo systemctl restart tpu-runtime`",
        "https://github.com/GoogleCloudPlatform/ml-auto-solutions/blob/master/dags/solutions_team/configs/"
        "tensorflow/common.py",
    )
    RESTART_NODE = Remedy(
        "Stop and start the node, from another machine; its ledger sees to it that it is started: " + _RESTART,
        f"{_DOCS}/reference/rest/v2/projects.locations.nodes/stop",
    )
    RESET_QUEUED_RESOURCE = Remedy(
        "A slice of several hosts cannot be stopped; reset its queued resource {queued}, from another machine: "
        + _RESTART,
        f"{_GCLOUD}/queued-resources/reset",
    )
    DELETE = Remedy(
        "Delete the node, which gives its capacity and its disk away: `gcloud compute tpus tpu-vm delete {node} "
        + _WHERE
        + "`",
        f"{_DOCS}/managing-tpus-tpu-vm",
    )
    CREATE = Remedy("Create it again: " + _CREATE, f"{_DOCS}/managing-tpus-tpu-vm")
    DELETE_QUEUED = Remedy(
        "Delete the queued resource with its nodes: `gcloud compute tpus queued-resources delete {queued} --force "
        + _WHERE
        + "`",
        f"{_GCLOUD}/queued-resources/delete",
    )
    CREATE_QUEUED = Remedy("Ask for it again: " + _CREATE_QUEUED, f"{_GCLOUD}/queued-resources/create")
    START = Remedy(
        "If it should run, start it; that is tried until there is capacity: " + _RESTART, f"{_GCLOUD}/tpu-vm/start"
    )
    FIX_PROGRAM = Remedy(
        "Follow tpuwatch's finding for this cause, then start the program again.",
        f"{_DOCS}/troubleshooting/trouble-jax",
    )
    HOST_MEMORY = Remedy(
        "Hold less in the host's memory: smaller shuffle and prefetch buffers, fewer data workers, checkpoints "
        "written shard by shard.",
        f"{_DOCS}/troubleshooting/trouble-tf",
    )
    OTHER_WORKERS = Remedy(
        "Look at the other workers first: which of them does not run, and what its log holds. One after another: "
        "`gcloud compute tpus tpu-vm ssh {node} --worker=0 " + _WHERE + "`",
        "https://docs.jax.dev/en/latest/multi_process.html",
    )
    ABUSE = Remedy(
        "Answer Google's notice on the project; its owners have it by mail.", "https://cloud.google.com/terms/aup"
    )
    NAME = Remedy(
        "Correct the name under nodes in [cloud]; which there are is shown by `gcloud compute tpus tpu-vm list "
        + _WHERE
        + "`",
        f"{_DOCS}/managing-tpus-tpu-vm",
    )
    PLACE = Remedy(
        "Correct project and zone in [cloud]; in which zones there are TPUs is shown by `gcloud compute tpus "
        "locations list --project={project}`",
        f"{_DOCS}/regions-zones",
    )
    ENABLE = Remedy(
        "Enable the API: `gcloud services enable tpu.googleapis.com --project={project}`", f"{_DOCS}/setup-gcp-account"
    )
    CREDENTIALS = Remedy(
        "On Google Cloud give the machine a service account; elsewhere `gcloud auth application-default login`, or "
        "GOOGLE_APPLICATION_CREDENTIALS with a valid key.",
        "https://docs.cloud.google.com/docs/authentication/provide-credentials-adc",
    )
    SCOPE = Remedy(
        "Give the machine's service account the scope https://www.googleapis.com/auth/cloud-platform; a TPU VM "
        "gets its scopes when it is created (--scopes).",
        f"{_DOCS}/reference/rest/v2/projects.locations.nodes/list",
    )
    PERMISSION = Remedy(
        "Grant the account the role that lets it see nodes: `gcloud projects add-iam-policy-binding {project} "
        "--member=serviceAccount:ACCOUNT --role=roles/tpu.viewer`",
        "https://docs.cloud.google.com/iam/docs/roles-permissions/tpu",
    )
    CONFIGURE = Remedy(
        "Set project, zone and nodes in [cloud], or set enabled = false there if this is no Cloud TPU.",
        f"{_DOCS}/managing-tpus-tpu-vm",
    )


# What stands in place of steps that ask the Cloud TPU API, where it does not know the node.
_IN_KUBERNETES: Final = {
    RemedyStep.DESCRIBE: RemedyStep.DESCRIBE_IN_KUBERNETES,
    RemedyStep.MAINTENANCE: RemedyStep.DESCRIBE_IN_KUBERNETES,
}


def remedy(steps: tuple[RemedyStep, ...], facts: Facts, pids: tuple[int, ...] = ()) -> tuple[Remedy, ...]:
    """The steps with what is known of the node filled in, each once. `pids` are those of the program at fault."""
    fields = _fields(facts, pids) if steps else {}
    fitting = (_IN_KUBERNETES.get(step, step) if facts.in_kubernetes else step for step in steps)
    return tuple(Remedy(step.value.do.format_map(fields), step.value.source) for step in dict.fromkeys(fitting))


def _fields(facts: Facts, pids: tuple[int, ...]) -> dict[str, str]:
    node, identity = facts.cloud or facts.evidence.cloud.value, facts.identity
    # Only pids that the host itself has seen: one out of a log's name may be of a container, or made up.
    held = [holder.pid for holder in facts.main_holders if holder.pid in pids]
    return {
        "node": _quoted(
            (node.name if node else "")
            or identity.node.value
            or identity.kubernetes.value
            or facts.evidence.node.rpartition("/")[2],
            "NODE",
        ),
        "zone": _quoted((node.zone if node else "") or identity.zone.value, "ZONE"),
        "project": _quoted((node.project if node else "") or identity.project.value, "PROJECT"),
        "queued": _quoted(node.queued_resource if node else "", "QUEUED_RESOURCE"),
        "type": _quoted((node.accelerator if node else "") or identity.accelerator.value, "TYPE"),
        "version": _quoted(node.runtime_version if node else "", "VERSION"),
        "spot": " --spot" if facts.is_spot else "",
        "pid": " ".join(str(pid) for pid in held[:_MAX_PIDS]) or "PID",
    }


def _quoted(known: str, unknown: str) -> str:
    return shlex.quote(clean(known, 100)) if known else unknown
