"""What an operator does about a verdict: steps as data, with the public page that each comes from.

Fields in braces are filled in with what is known of the node, quoted for a shell; what is not known stays in capitals.
"""

from __future__ import annotations

import shlex
from enum import Enum
from typing import TYPE_CHECKING, Final

from tpuwatch.core import clean
from tpuwatch.model import Remedy

if TYPE_CHECKING:
    from tpuwatch.health.facts import Facts

_GCLOUD = "https://cloud.google.com/sdk/gcloud/reference/compute/tpus"
_DOCS = "https://cloud.google.com/tpu/docs"
_ROLES = "https://docs.cloud.google.com/iam/docs/roles-permissions/tpu"
_WHERE = "--zone={zone} --project={project}"
_MAX_PIDS = 8
_CREATE = "gcloud compute tpus tpu-vm create {node} " + _WHERE + " --accelerator-type={type} --version={version}{spot}"
_CREATE_QUEUED = (
    "gcloud compute tpus queued-resources create {queued} --node-id={node} "
    + _WHERE
    + " --accelerator-type={type} --runtime-version={version}{spot}"
)


class RemedyStep(Enum):
    """Something to do. The order has no meaning."""

    DESCRIBE = "describe"
    STATUS = "status"
    CHECKPOINT = "checkpoint"
    MAINTENANCE = "maintenance"
    REPAIR = "repair"
    LOOK = "look"
    END_HOLDER = "end_holder"
    FIND_HOLDER = "find_holder"
    AGAIN = "again"
    LOCK_FILE = "lock_file"
    UNBUFFER = "unbuffer"
    RESTART_RUNTIME = "restart_runtime"
    RESTART_NODE = "restart_node"
    RESET_QUEUED_RESOURCE = "reset_queued_resource"
    DELETE = "delete"
    CREATE = "create"
    RECREATE_QUEUED = "recreate_queued"
    START = "start"
    FIX_PROGRAM = "fix_program"
    HOST_MEMORY = "host_memory"
    OTHER_WORKERS = "other_workers"
    ABUSE = "abuse"
    NAME = "name"
    PLACE = "place"
    ENABLE = "enable"
    CREDENTIALS = "credentials"
    SCOPE = "scope"
    PERMISSION = "permission"
    CONFIGURE = "configure"


STEPS: Final[dict[RemedyStep, tuple[tuple[str, str], ...]]] = {
    RemedyStep.DESCRIBE: (
        (
            "Look at state, health and symptoms: gcloud compute tpus tpu-vm describe {node} " + _WHERE,
            f"{_GCLOUD}/tpu-vm/describe",
        ),
    ),
    RemedyStep.STATUS: (
        (
            "Look at what its own tpuwatch reports: gcloud compute tpus tpu-vm ssh {node} " + _WHERE + " --worker=0 "
            "--command='tpuwatch status'",
            f"{_GCLOUD}/tpu-vm/ssh",
        ),
    ),
    RemedyStep.CHECKPOINT: (
        ("Let the program write a checkpoint now, and go on from it later.", f"{_DOCS}/preemptible"),
    ),
    RemedyStep.MAINTENANCE: (
        (
            "Wait: the service goes on by itself when the maintenance is over. What is announced is shown by gcloud "
            "compute tpus tpu-vm describe {node} " + _WHERE,
            f"{_DOCS}/view-maintenance-notifications",
        ),
    ),
    RemedyStep.REPAIR: (
        (
            "A repair has failed: ask Google's support, or delete the node and create it again: gcloud compute tpus "
            "tpu-vm delete {node} " + _WHERE + ", then " + _CREATE,
            f"{_DOCS}/managing-tpus-tpu-vm",
        ),
    ),
    RemedyStep.END_HOLDER: (
        (
            "End the process that holds the TPU (kill {pid}, and kill -9 {pid} if it stays), then start the program "
            "again. Who holds it is shown by sudo lsof -w /dev/accel* /dev/vfio/*",
            "https://github.com/jax-ml/jax/issues/22070",
        ),
    ),
    RemedyStep.LOOK: (
        (
            "Ask the user of the program that holds the TPU ({pid}) whether it waits for them, as a notebook does "
            "between two cells. Where in its code it is, is shown by sudo py-spy dump --pid PID",
            "https://github.com/benfred/py-spy",
        ),
    ),
    RemedyStep.FIND_HOLDER: (
        (
            "Find who holds the TPU among the processes that tpuwatch cannot see, of other users or in other "
            "containers: on the host itself, sudo lsof -w /dev/accel* /dev/vfio/* /tmp/libtpu_lockfile names them. "
            "Leave the lock file alone while a program uses the TPU.",
            "https://github.com/jax-ml/jax/issues/22070",
        ),
    ),
    RemedyStep.AGAIN: (
        (
            "Start the program again: the program that held the TPU has ended since.",
            "https://github.com/jax-ml/jax/issues/22070",
        ),
    ),
    RemedyStep.LOCK_FILE: (
        (
            "If sudo lsof -w /dev/accel* /dev/vfio/* shows no process, remove what an ended one left: "
            "sudo rm /tmp/libtpu_lockfile",
            "https://github.com/vllm-project/tpu-inference/issues/2257",
        ),
    ),
    RemedyStep.UNBUFFER: (
        (
            "Start the program with LIBTPU_INIT_ARGS=--logbuflevel=-1, so that its log shows how far it comes.",
            "https://github.com/google/glog",
        ),
    ),
    RemedyStep.RESTART_RUNTIME: (
        (
            "End the program with its runtime (kill -9 {pid}) and start it again. Where the runtime is a "
            "service of its own: sudo systemctl restart tpu-runtime",
            "https://github.com/GoogleCloudPlatform/ml-auto-solutions/blob/master/dags/solutions_team/configs/"
            "tensorflow/common.py",
        ),
    ),
    RemedyStep.RESTART_NODE: (
        (
            "Stop the node: gcloud compute tpus tpu-vm stop {node} " + _WHERE,
            f"{_DOCS}/reference/rest/v2/projects.locations.nodes/stop",
        ),
        (
            "Start it again, which may have to wait for capacity: gcloud compute tpus tpu-vm start {node} " + _WHERE,
            f"{_GCLOUD}/tpu-vm/start",
        ),
    ),
    RemedyStep.RESET_QUEUED_RESOURCE: (
        (
            "A slice of several hosts cannot be stopped; reset its queued resource: gcloud compute tpus "
            "queued-resources reset {queued} " + _WHERE,
            f"{_GCLOUD}/queued-resources/reset",
        ),
    ),
    RemedyStep.DELETE: (
        (
            "Delete the node, which gives its capacity and its disk away: gcloud compute tpus tpu-vm delete {node} "
            + _WHERE,
            f"{_DOCS}/managing-tpus-tpu-vm",
        ),
    ),
    RemedyStep.CREATE: (("Create it again: " + _CREATE, f"{_DOCS}/managing-tpus-tpu-vm"),),
    RemedyStep.RECREATE_QUEUED: (
        (
            "Delete the queued resource with its nodes: gcloud compute tpus queued-resources delete {queued} --force "
            + _WHERE,
            f"{_GCLOUD}/queued-resources/delete",
        ),
        ("Ask for it again: " + _CREATE_QUEUED, f"{_GCLOUD}/queued-resources/create"),
    ),
    RemedyStep.START: (
        (
            "If it should run, start it: gcloud compute tpus tpu-vm start {node} " + _WHERE,
            f"{_GCLOUD}/tpu-vm/start",
        ),
    ),
    RemedyStep.FIX_PROGRAM: (
        (
            "Follow tpuwatch's finding for this cause, then start the program again.",
            f"{_DOCS}/troubleshooting/trouble-jax",
        ),
    ),
    RemedyStep.HOST_MEMORY: (
        (
            "Hold less in the host's memory: smaller shuffle and prefetch buffers, fewer data workers, checkpoints "
            "written shard by shard.",
            f"{_DOCS}/troubleshooting/trouble-tf",
        ),
    ),
    RemedyStep.OTHER_WORKERS: (
        (
            "Look at the other workers first: which of them does not run, and what its log holds. One after another: "
            "gcloud compute tpus tpu-vm ssh {node} --worker=0 " + _WHERE,
            "https://docs.jax.dev/en/latest/multi_process.html",
        ),
    ),
    RemedyStep.ABUSE: (
        ("Answer Google's notice on the project; its owners have it by mail.", "https://cloud.google.com/terms/aup"),
    ),
    RemedyStep.NAME: (
        (
            "Correct the name under nodes in [cloud]; which there are is shown by gcloud compute tpus tpu-vm list "
            + _WHERE,
            f"{_DOCS}/managing-tpus-tpu-vm",
        ),
    ),
    RemedyStep.PLACE: (
        (
            "Correct project and zone in [cloud]; in which zones there are TPUs is shown by gcloud compute tpus "
            "locations list --project={project}",
            f"{_DOCS}/regions-zones",
        ),
    ),
    RemedyStep.ENABLE: (
        (
            "Enable the API: gcloud services enable tpu.googleapis.com --project={project}",
            f"{_DOCS}/setup-gcp-account",
        ),
    ),
    RemedyStep.CREDENTIALS: (
        (
            "On Google Cloud give the machine a service account; elsewhere: gcloud auth application-default login, or "
            "GOOGLE_APPLICATION_CREDENTIALS with a valid key.",
            "https://docs.cloud.google.com/docs/authentication/provide-credentials-adc",
        ),
    ),
    RemedyStep.SCOPE: (
        (
            "Give the machine's service account the scope https://www.googleapis.com/auth/cloud-platform; a TPU VM "
            "gets its scopes when it is created (--scopes).",
            f"{_DOCS}/reference/rest/v2/projects.locations.nodes/list",
        ),
    ),
    RemedyStep.PERMISSION: (
        (
            "Grant the account the role that lets it see nodes: gcloud projects add-iam-policy-binding {project} "
            "--member=serviceAccount:ACCOUNT --role=roles/tpu.viewer",
            _ROLES,
        ),
    ),
    RemedyStep.CONFIGURE: (
        (
            "Set project, zone and nodes in [cloud], or set enabled = false there if this is no Cloud TPU.",
            f"{_DOCS}/managing-tpus-tpu-vm",
        ),
    ),
}


def remedy(steps: tuple[RemedyStep, ...], facts: Facts, pids: tuple[int, ...] = ()) -> tuple[Remedy, ...]:
    """The steps with what is known of the node filled in, each once. `pids` are those of the program at fault."""
    fields = _fields(facts, pids) if steps else {}
    return tuple(Remedy(do.format_map(fields), source) for step in dict.fromkeys(steps) for do, source in STEPS[step])


def _fields(facts: Facts, pids: tuple[int, ...]) -> dict[str, str]:
    node, identity = facts.cloud or facts.evidence.cloud.value, facts.identity
    # Only pids that the host itself has seen: one out of a log's name may be of a container, or made up.
    held = [holder.pid for holder in facts.main_holders if holder.pid in pids]
    return {
        "node": _quoted((node.name if node else "") or identity.node.value or facts.evidence.node, "NODE"),
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
