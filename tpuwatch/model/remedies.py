"""What to do about a verdict: steps with the public page that each comes from. The causes' steps are in `logs/rules`.

Words in capitals in their commands are filled in with what is known, quoted for a shell.
"""

from __future__ import annotations

from enum import Enum, unique

from tpuwatch.model.events import Remedy

_GCLOUD = "https://cloud.google.com/sdk/gcloud/reference/compute/tpus"
_DOCS = "https://cloud.google.com/tpu/docs"
_WHERE = "--zone=ZONE --project=PROJECT"
_RESTART = "`tpuwatch restart ZONE/NODE --project=PROJECT`"
_CREATE = "`gcloud compute tpus tpu-vm create NODE " + _WHERE + " --accelerator-type=TYPE --version=VERSION`"
_CREATE_QUEUED = (
    "`gcloud compute tpus queued-resources create QUEUED_RESOURCE --node-id=NODE "
    + _WHERE
    + " --accelerator-type=TYPE --runtime-version=VERSION`"
)
_GUIDE = "https://docs.cloud.google.com/tpu/docs/troubleshooting/troubleshooting"
_INSTALLATION = "https://docs.jax.dev/en/latest/installation.html"


@unique
class RemedyStep(Enum):
    """Something to do about a verdict. The order has no meaning."""

    DESCRIBE = Remedy(
        "Look at state, health and symptoms: `gcloud compute tpus tpu-vm describe NODE " + _WHERE + "`",
        f"{_GCLOUD}/tpu-vm/describe",
    )
    DESCRIBE_IN_KUBERNETES = Remedy(
        "Look at its conditions, taints and labels: `kubectl describe node NODE`. GKE's nodes are never restarted "
        "through the Cloud TPU API: to renew this one, have its pods run elsewhere, `kubectl drain NODE "
        "--ignore-daemonsets --delete-emptydir-data`, and delete its VM, which GKE makes again: `gcloud compute "
        "instances delete NODE " + _WHERE + "`",
        "https://docs.cloud.google.com/kubernetes-engine/docs/how-to/node-auto-repair",
    )
    STATUS = Remedy(
        "Look at what its own tpuwatch reports: `gcloud compute tpus tpu-vm ssh NODE " + _WHERE + " --worker=WORKER "
        "--command='tpuwatch status'`",
        f"{_GCLOUD}/tpu-vm/ssh",
    )
    CHECKPOINT = Remedy("Let the program write a checkpoint now, and go on from it later.", f"{_DOCS}/preemptible")
    MAINTENANCE = Remedy(
        "Wait: the service goes on by itself when the maintenance is over. What is announced is shown by `gcloud "
        "compute tpus tpu-vm describe NODE " + _WHERE + "`",
        f"{_DOCS}/view-maintenance-notifications",
    )
    REPAIR = Remedy(
        "A repair has failed: ask Google's support, or delete the node and create it again: `gcloud compute tpus "
        "tpu-vm delete NODE " + _WHERE + "`, then " + _CREATE,
        f"{_DOCS}/managing-tpus-tpu-vm",
    )
    END_HOLDER = Remedy(
        "End the process that holds the TPU; `sudo lsof -w /dev/accel* /dev/vfio/* /tmp/libtpu_lockfile` shows it: "
        "`kill PID`, and if it stays: `kill -9 PID`. Then start the program again.",
        "https://github.com/jax-ml/jax/issues/22070",
    )
    LOOK = Remedy(
        "Ask the user of the program that holds the TPU whether it waits for them, as a notebook does between two "
        "cells. Where it is in its code: `sudo py-spy dump --pid PID`",
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
        "End the program with its runtime, `kill -9 PID`, and start it again. Where the runtime is a service of "
        "its own: `sudo systemctl restart tpu-runtime`",
        "https://github.com/GoogleCloudPlatform/ml-auto-solutions/blob/master/dags/solutions_team/configs/"
        "tensorflow/common.py",
    )
    RESTART_NODE = Remedy(
        "Stop and start the node, from another machine; its ledger sees to it that it is started: " + _RESTART,
        f"{_DOCS}/reference/rest/v2/projects.locations.nodes/stop",
    )
    RESET_QUEUED_RESOURCE = Remedy(
        "A slice of several hosts cannot be stopped; reset its queued resource `QUEUED_RESOURCE`, from another "
        "machine: " + _RESTART,
        f"{_GCLOUD}/queued-resources/reset",
    )
    DELETE = Remedy(
        "Delete the node, which gives its capacity and its disk away: `gcloud compute tpus tpu-vm delete NODE "
        + _WHERE
        + "`",
        f"{_DOCS}/managing-tpus-tpu-vm",
    )
    CREATE = Remedy("Create it again: " + _CREATE, f"{_DOCS}/managing-tpus-tpu-vm")
    DESCRIBE_QUEUED = Remedy(
        "Look at the state of the queued resource: `gcloud compute tpus queued-resources describe QUEUED_RESOURCE "
        + _WHERE
        + "`. Leave it alone while it is ACCEPTED, CREATING, PROVISIONING or WAITING_FOR_RESOURCES: then it makes the "
        "node. One that is FAILED or SUSPENDED makes none any more.",
        f"{_GCLOUD}/queued-resources/describe",
    )
    LIST_QUEUED = Remedy(
        "Look whether a queued resource makes the node, and in which state it is: `gcloud compute tpus "
        "queued-resources list " + _WHERE + "`",
        f"{_GCLOUD}/queued-resources/list",
    )
    LIST_NODES = Remedy(
        "List the nodes of the zone: `gcloud compute tpus tpu-vm list " + _WHERE + "`. If its nodes stay away, ask the "
        "owner whether the queued resource is still needed. tpuwatch never advises to delete an ACTIVE one.",
        f"{_DOCS}/managing-tpus-tpu-vm",
    )
    OTHER_ZONE = Remedy(
        "Let it wait: it makes its nodes when there is capacity. If that takes too long, ask for the type in another "
        "zone that has it, or for another size: `gcloud compute tpus locations list --project=PROJECT`",
        f"{_DOCS}/queued-resources",
    )
    DELETE_QUEUED = Remedy(
        "Delete the queued resource with its nodes: `gcloud compute tpus queued-resources delete QUEUED_RESOURCE "
        "--force " + _WHERE + "`",
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
        "`gcloud compute tpus tpu-vm ssh NODE --worker=0 " + _WHERE + "`",
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
        "locations list --project=PROJECT`",
        f"{_DOCS}/regions-zones",
    )
    ENABLE = Remedy(
        "Enable the API: `gcloud services enable tpu.googleapis.com --project=PROJECT`", f"{_DOCS}/setup-gcp-account"
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
        "Grant the account the role that lets it see nodes: `gcloud projects add-iam-policy-binding PROJECT "
        "--member=serviceAccount:ACCOUNT --role=roles/tpu.viewer`",
        "https://docs.cloud.google.com/iam/docs/roles-permissions/tpu",
    )
    CONFIGURE = Remedy(
        "Set project, zone and nodes in [cloud], or set enabled = false there if this is no Cloud TPU.",
        f"{_DOCS}/managing-tpus-tpu-vm",
    )


@unique
class ProbeStep(Enum):
    """Something to do about what a probe has found."""

    DESCRIBE = Remedy(
        "See what the cloud says of the node: `tpuwatch nodes`. Where it calls it unhealthy too, restart it: `tpuwatch "
        "restart NODE --probe`",
        _GUIDE,
    )
    AGAIN = Remedy("Probe once more, to see whether it comes again: `sudo tpuwatch probe`", _GUIDE)
    DOCTOR = Remedy("Check what a TPU job needs of the machine: `sudo tpuwatch doctor`", _GUIDE)
    NEW_ENVIRONMENT = Remedy(
        "Install the framework and its libtpu, of versions that belong together, into an environment of their own, and "
        "probe with it: `tpuwatch probe --python PATH`",
        _INSTALLATION,
    )
    JAX = Remedy("Install JAX with libtpu: `pip install 'jax[tpu]'`", _INSTALLATION)
    TENSORFLOW = Remedy(
        "Install the build for TPUs in place of the stock one: `pip uninstall tensorflow tensorflow-cpu`, then `pip "
        "install tensorflow-tpu -f https://storage.googleapis.com/libtpu-tf-releases/index.html`",
        "https://www.tensorflow.org/install/pip",
    )
    TORCH = Remedy("Install torch_xla with libtpu: `pip install 'torch_xla[tpu]'`", "https://github.com/pytorch/xla")
    FLOAT32 = Remedy(
        "Compare in float32 throughout, with `jax.default_matmul_precision('float32')` in JAX; what still differs "
        "depends on random numbers, on an order of sums, or on values that overflow",
        "https://docs.jax.dev/en/latest/_autosummary/jax.default_matmul_precision.html",
    )
    OWN_PROGRAM = Remedy(
        "Look at the program itself: `tpuwatch diagnose FILE` reads its output; `tpuwatch probe --step "
        "MODULE:FUNCTION` runs its own step on the TPU and on the CPU",
        _GUIDE,
    )
    INTERPRETER = Remedy("Name the interpreter that runs the program: `tpuwatch probe --python PATH`", _INSTALLATION)
    FREE = Remedy(
        "Probe when the program that holds the TPU has ended; `sudo tpuwatch status` names it",
        "https://github.com/jax-ml/jax/issues/22070",
    )
