"""What the executor asks of the Cloud TPU API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tpuwatch.model import Target
    from tpuwatch.restart.workflow.workflow import ApiCall, CallAnswer, NodeObservation


class NodeApi(Protocol):
    """One server of the API. Every call has a deadline; nothing is retried here."""

    def look(self, target: Target, *, since: float) -> NodeObservation:
        """What it shows of the node, with the operations on it that were created at or after `since`.

        A fault gives a Sight without a state; never raises for what is foreseen.
        """

    def call(self, call: ApiCall, target: Target, queued_resource: str) -> CallAnswer:
        """Make the call. A lost answer is a CallAnswer without an outcome."""

    def close(self) -> None:
        """Let the connection go."""
