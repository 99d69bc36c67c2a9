"""An error that a simulated service answers with."""

from __future__ import annotations


class Refusal(Exception):  # noqa: N818 # it is no error of the program, but the service's answer
    """Raised by whatever serves a call: the caller gets this gRPC code, message and details."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        reason: str = "",
        resource: str = "",
        retry_after_seconds: float | None = None,
    ) -> None:
        """`code` is a gRPC code's name, `reason` goes into ErrorInfo, `resource` (a name) into ResourceInfo."""
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.reason = reason
        self.resource = resource
        self.retry_after_seconds = retry_after_seconds


def not_found(resource: str) -> Refusal:
    """There is no such resource, in the form that the Cloud TPU API says it."""
    return Refusal("NOT_FOUND", f"Resource '{resource}' was not found", resource=resource)
