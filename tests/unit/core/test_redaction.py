"""Secrets are taken out of text, by their names or their forms."""

from __future__ import annotations

import pytest

from tpuwatch.core.redaction import redact

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
