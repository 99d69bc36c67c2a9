"""Text from outside as it is shown: printable, on one line, cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuwatch.core.text import TEXT_LIMIT, clean, printable, redact


def test_a_terminal_gets_nothing_to_obey() -> None:
    assert printable("a\x9bb\u202ec\td") == "a b c d"


@given(st.text(max_size=2 * TEXT_LIMIT), st.integers(1, TEXT_LIMIT))
def test_whatever_the_text_it_is_one_short_line(text: str, limit: int) -> None:
    assert clean(text, limit).isprintable()
    assert len(clean(text, limit)) <= limit
    assert "  " not in clean(text, limit)
    assert printable(text, limit).isprintable()
    assert len(printable(text)) == len(text)


@pytest.mark.parametrize(
    ("text", "limit", "shown"), [("abc", 3, "abc"), ("abcd", 3, "abc…"), ("a\nb", 3, "a b"), ("", 3, "")]
)
def test_a_long_text_is_cut_after_the_limit(text: str, limit: int, shown: str) -> None:
    assert printable(text, limit) == shown


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("It does not fit: it needs 20.5 GiB of HBM", 31, "It does not fit: it needs…"),
        ("It does not fit: it needs 20.5 GiB of HBM", 28, "It does not fit: it needs…"),
        ("The limit (15.75 GiB) is reached", 18, "The limit…"),
        ("Look into /var/log/jobs/train.log, then go on", 30, "Look into…"),
        ("Run `kill -9 4711`, then start the program again", 12, "Run…"),
        ("Run `kill -9 4711`, then start the program again", 24, "Run `kill -9 4711`, then…"),
        ("Run `kill -9 4711`, then start the program again", 19, "Run `kill -9 4711`…"),
        ("words of the same length", 12, "words of the…"),
        ("word " + "x" * 100, 20, "word xxxxxxxxxxxxxxx…"),
        ("/a/path/" + "x" * 100, 12, "/a/path/xxxx…"),
    ],
)
def test_no_number_path_or_command_is_cut(text: str, limit: int, shown: str) -> None:
    assert printable(text, limit) == shown
    assert clean(text, limit + 1) == shown


SECRET = "0c6f1e5d0e7b4d5fa0aa6a1f3b2c9d8e7f6a5b4c"  # noqa: S105 # nobody's


@pytest.mark.parametrize(
    "text",
    [
        "WANDB_API_KEY={}",
        "export HF_TOKEN={}; python3 train.py",
        "KEY={}",
        'api_key = "{}"',
        "apiKey: '{} and more',",
        "hubToken={}",
        "DB_PASSWORD={}&{}",
        "db-pwd: {}",
        "passphrase={}",
        "client_secret={}",
        "AWS_SECRET_ACCESS_KEY={} AWS_REGION=x",
        '{{"password": "a \\"{}\\" b"}}',
        '"{{\\"private_key\\": \\"{}\\"}}"',
        "environ({{'WANDB_API_KEY': '{}'}})",
        "[('WANDB_API_KEY', '{}')]",
        '{{"name": "HF_TOKEN", "value": "{}"}}',
        "train.py --hub-token {} --steps 5",
        "train.py --hub_token={}",
        "['train.py', '--api-key', '{}']",
        "TOKEN_2={}",
        "Authorization: Basic {}",
        "curl -H 'Authorization: Bearer {}' https://example.org/",
        '"authorization": "Token {}"',
        "sent with bearer {}",
        "Set-Cookie: session={}; Path=/",
        "x-goog-api-key: {}",
        "git clone https://alice:{}@example.org/code.git",
        "https://{}@example.org/",
        "proxy http://alice:p@{}@10.0.0.1:3128",
        "GET https://storage.example.org/a?X-Goog-Signature={}&b=1",
        "-----BEGIN RSA PRIVATE KEY-----\\n{}\\n",
        "token hf_{}",
        "ghp_{} was refused",
        "github_pat_{}",
        "glpat-{}",
        "key AIza{}",
        "ya29.{}",
        "sk-proj-{}",
        "xoxb-{}",
        "eyJhbGciOiJIUzI1NiJ9.{}.{}",
        "https://hooks.slack.com/services/T0/B0/{}",
    ],
)
def test_a_secret_is_not_shown(text: str) -> None:
    shown = redact(f"before {text.format(SECRET, SECRET)}\nafter")
    assert SECRET not in shown
    assert shown.startswith("before ")
    assert shown.endswith("\nafter")
    assert "[redacted]" in shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Ran out of memory in memory space hbm. Used 28.00G of 15.75G hbm.",
        "KeyError: 'params/layer_0'",
        "num_tokens=4096 max_tokens: 8192 tokenizer='t5'",
        "oauth2: cannot fetch token: 400 Bad Request",
        "Permission denied (publickey,password).",
        "gs://bucket/path@7 https://example.org/a@b",
        "the bearer of this message",
        "rows by key: 7",
        "commit 0c6f1e5d0e7b4d5fa0aa6a1f3b2c9d8e7f6a5b4c",
    ],
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert redact(text) == text
