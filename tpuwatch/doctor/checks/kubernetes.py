"""The API of Kubernetes, in a pod on GKE: whether it shows the node that the pod runs on."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from tpuwatch.core import SystemClock
from tpuwatch.doctor.check import Area, Check, Result, ok, skipped, unknown, wrong
from tpuwatch.doctor.environment import cut
from tpuwatch.model import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpuwatch.doctor.environment import Environment

_SOURCE: Final = "https://kubernetes.io/docs/reference/access-authn-authz/rbac/"
_CONDITIONS: Final = "https://kubernetes.io/docs/reference/node/node-status/"
_APPLY: Final = "`kubectl apply -f deploy/gke/tpuwatch.yaml`: it has the service account, its role and NODE_NAME"
_CERTAIN: Final = (Problem.DENIED, Problem.UNCONFIGURED, Problem.GONE)


def node(environment: Environment) -> Iterator[Result]:
    """Whether the notices of the node can be read."""
    from tpuwatch.signals import KubernetesSignal, in_cluster

    config = environment.config.kubernetes
    if not config.enabled:
        yield skipped("It is disabled (enabled under [kubernetes]).")
        return
    if not in_cluster(config, environment.environ):
        yield skipped("This is no pod with the token of a service account.")
        return
    signal = KubernetesSignal(config, environment.environ, clock=SystemClock(), rng=random.Random())  # noqa: S311
    answer = signal.ask()
    signal.close()
    if answer.value is None or answer.problem is not None:
        text = cut(f"The maintenance, termination and conditions of the node are unknown. {answer.detail}", 800)
        yield wrong(text, _APPLY, _SOURCE) if answer.problem in _CERTAIN else unknown(text)
        return
    if ill := answer.value.conditions:
        text = cut(f"Node {signal.node} is ill: {', '.join(ill)}.", 800)
        yield wrong(text, f"`kubectl describe node {signal.node}`", _CONDITIONS)
        return
    yield ok(f"It shows node {signal.node}.")


CHECKS = (Check("kubernetes", "API of Kubernetes", Area.CLOUD, node, seconds=70.0),)
