"""Tests of the webhook against a real server on this machine."""

from __future__ import annotations

import logging
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.standins.webhook_listener import PATH, Listener, listener
from tpuwatch.config import as_dict, load_config, show
from tpuwatch.core.errors import ConfigError
from tpuwatch.restart.webhook import MAX_PAUSE_SECONDS, MAX_QUEUED, TRIES, Webhook, slack

MESSAGE = {"text": "train-1 is stuck.", "node": "train-1", "blocked": None}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def receiver() -> Iterator[Listener]:
    with listener() as made:
        yield made


class Sender:
    """A webhook whose pauses take no time, and what it counted."""

    def __init__(self, url: str) -> None:
        self.results: list[str] = []
        self.pauses: list[float] = []
        self.changed = threading.Condition()
        self.webhook = Webhook(url, counted=self.count, rng=random.Random(7), wait=self.pause)

    def count(self, result: str) -> None:
        with self.changed:
            self.results.append(result)
            self.changed.notify_all()

    def pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        return False

    def wait(self, *results: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.results) >= len(results), 30)
        assert self.results == list(results)

    def end(self) -> None:
        self.webhook.close()
        assert self.webhook.join(30)


@pytest.fixture
def sender(receiver: Listener) -> Iterator[Sender]:
    made = Sender(receiver.url)
    yield made
    made.end()


def test_a_message_arrives_as_it_is(receiver: Listener, sender: Sender) -> None:
    sender.webhook.send(MESSAGE)
    sender.webhook.send({**MESSAGE, "node": "train-ü\n"})
    sender.wait("sent", "sent")
    assert receiver.asked == [PATH, PATH]
    assert receiver.heard == [MESSAGE, {**MESSAGE, "node": "train-ü\n"}]


def test_an_answer_without_an_end_is_not_waited_for(receiver: Listener, sender: Sender) -> None:
    receiver.endless = threading.Event()
    sender.webhook.send(MESSAGE)
    try:
        sender.wait("sent")
    finally:
        receiver.endless.set()


def test_what_passes_is_tried_again(receiver: Listener, sender: Sender, caplog: pytest.LogCaptureFixture) -> None:
    receiver.answers = [(503, {}), (429, {"Retry-After": "17"}), (500, {"Retry-After": "99999"})]
    sender.webhook.send(MESSAGE)
    sender.wait("sent")
    assert receiver.heard == [MESSAGE]
    first, second, third = sender.pauses
    assert 0 <= first <= 1
    assert (second, third) == (17.0, MAX_PAUSE_SECONDS)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("answers", "tries", "expected"),
    [
        ([(503, {})] * TRIES, TRIES, "status 503"),
        ([(404, {})], 1, "status 404"),
        ([(307, {"Location": "/elsewhere"})], 1, "status 307"),
        ([(302, {"Location": "file:///etc/passwd"})], 1, "status 302"),
    ],
)
def test_what_does_not_pass_is_lost_and_reported_without_the_address(
    receiver: Listener,
    sender: Sender,
    caplog: pytest.LogCaptureFixture,
    answers: list[tuple[int, dict[str, str]]],
    tries: int,
    expected: str,
) -> None:
    receiver.answers = list(answers)
    sender.webhook.send(MESSAGE)
    sender.webhook.send(MESSAGE)
    with caplog.at_level(logging.INFO):
        sender.wait("failed", "sent")
    sender.end()
    assert receiver.asked == [PATH] * (tries + 1)
    lost, again = caplog.messages
    assert lost.startswith("A message to the webhook at 127.0.0.1 is lost: ")
    assert expected in lost
    assert again == "The webhook at 127.0.0.1 takes messages again."
    assert "secret" not in caplog.text


def test_an_address_that_cannot_be_asked_is_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = server.getsockname()[1]
    for port, tries in ((nobody, TRIES), ("port", 1)):  # the second is none that a configuration lets through
        sender = Sender(f"http://127.0.0.1:{port}/hook/secret")
        sender.webhook.send(MESSAGE)
        sender.wait("failed")
        sender.end()
        assert len(sender.pauses) == tries - 1
    assert "it cannot be reached (" in caplog.text
    assert "secret" not in caplog.text


def test_too_many_are_dropped_and_a_pause_ends_with_the_webhook(receiver: Listener) -> None:
    results: list[str] = []
    receiver.answers = [(503, {"Retry-After": "60"})]
    webhook = Webhook(receiver.url, counted=results.append)
    webhook.send(MESSAGE)
    receiver.wait(1)  # it is waiting to try again now, or is about to
    for _ in range(MAX_QUEUED + 3):
        webhook.send(MESSAGE)
    assert results == ["dropped"] * 3
    webhook.close()
    assert webhook.join(30)
    webhook.send(MESSAGE)
    assert receiver.heard == []
    assert results == ["dropped"] * 3


def test_others_words_neither_link_nor_call_everybody() -> None:
    assert slack("<!channel> a & b\nc <http://x|y>") == "&lt;!channel&gt; a &amp; b c &lt;http://x|y&gt;"
    assert len(slack("x" * 10_000)) == 2000


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/x",
        "example.org/hook",
        "https:///hook",
        "https://user:word@example.org/hook",
        "https://example.org/a b",
        "https://example.org:0/",
        "https://example.org:99999/",
        "http://[::1/",
        "https://exämple.org/",
        "file:///etc/passwd",
    ],
)
def test_what_is_no_address_is_refused_and_not_repeated(url: str, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'[restart]\nwebhook_url = "{url}"\n')
    with pytest.raises(ConfigError, match="webhook_url cannot be the given value; give an address") as caught:
        load_config(file, {})
    assert url not in str(caught.value)


@pytest.mark.parametrize("printed", [lambda config: show(config), lambda config: repr(as_dict(config)), repr])
def test_the_address_is_shown_to_nobody(printed: Callable[[Any], str], tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[restart]\nwebhook_url = "https://hooks.example.org:8443/T0/secret-word"\n')
    config = load_config(file, {})
    assert config.restart.webhook_url.endswith("secret-word")
    assert "secret-word" not in printed(config)
