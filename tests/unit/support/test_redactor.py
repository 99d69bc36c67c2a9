"""What is taken out of a text, and what is left."""

from __future__ import annotations

import random
import string

import pytest

from tpuwatch.support import Redactor


def made(letters: str, length: int, seed: int = 1) -> str:
    """Random letters, made here: no text of the repository looks like a secret."""
    dice = random.Random(seed)
    return "".join(dice.choice(letters) for _ in range(length))


WORD = string.ascii_letters + string.digits
BASE64 = f"{WORD}+/"
HEX = "0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer {}", made(WORD, 40)),
        ("curl -H 'X-Auth: {}' -u bob:x http://h/", made(WORD, 32)),
        ("curl -u bob:{} http://h/", "short-one"),
        ('"private_key_id": "{}",', made(HEX, 40)),
        ("AWS_SECRET_ACCESS_KEY={}", made(BASE64, 40)),
        ("found {} in the file", made(BASE64, 40)),
        ("postgres://bob:{}@db/x", "hunter2"),
        ("HF_TOKEN=hf_{}", made(WORD, 34)),
        ("logged in with hf_{}", made(WORD, 34)),
        ("wandb: {}", made(HEX, 40)),
        ("Set-Cookie: session={}; Path=/", made(WORD, 16)),
        ("cookies {{'sid': '{}'}}", "abc123"),
        ("the password is {}", "correct-horse"),
        ("mysql -u root -p{} db", "S3cret"),
        ("sshpass -p {} ssh x", "hunter2"),
        ("DefaultEndpointsProtocol=https;AccountKey={};", made(BASE64, 60) + "=="),
        ("npm_{}", made(WORD, 36)),
        ("machine h login bob password {}", "hunter22"),
        ("<password>{}</password>", "qwerty12"),
        ('{{"name": "DB_PASS", "value": "{}"}}', "qwerty1"),
        ("root:$6$salt${}:19000::", made(WORD, 60)),
        ("eyJhbGciOi.{}.x", made(WORD, 30)),
        ("kubectl create secret generic x --from-literal=hub={}", "Tulip-7"),
        ("posting to https://hooks.slack.com/triggers/{}", f"T{made(WORD, 8)}/{made(HEX, 12)}"),
        ("https://chat.example.org/api/webhooks/{}", f"{made('123456789', 18)}/{made(WORD, 40)}"),
        ("curl -ubob:{} http://h/", "Tulip-7"),
        ("Settings(db_pass=SecretStr('{}'))", "Tulip-7"),
        ("['mysql', '-p{}']", "Tulip-7"),
        ("Passwort: {}", "Tulip-7"),
        ("key bytes {}", " ".join(made(HEX, 2, seed) for seed in range(16))),
        ("kubeadm join 10.0.0.2:6443 --token {}", "abcdef.0123456789abcdef"),
        ("https://{}:x-oauth-basic@git.example.org/a", made(WORD, 40)),
        ('{{"auths": {{"gcr.io": {{"auth": "{}"}}}}}}', made(BASE64, 32)),
    ],
)
def test_secrets(text: str, secret: str) -> None:
    for whole in (text.format(secret), f"E1120 13:44:14.25 4242 a.cc:1] {text.format(secret)} and more"):
        redacted = Redactor().text(whole)
        assert secret not in redacted
        assert Redactor().document({"text": [whole]}) == {"text": [redacted]}


def test_a_private_key_goes_as_a_whole_though_it_is_cut_off() -> None:
    lines = "\n".join(made(BASE64, 64, seed) for seed in range(5))
    for end in ("\n-----END RSA PRIVATE KEY-----\nafter", ""):
        assert lines[70:90] not in Redactor().text(f"before\n-----BEGIN RSA PRIVATE KEY-----\n{lines}{end}")
    assert (
        Redactor().text(f"-----BEGIN PRIVATE KEY-----\n{lines}\n-----END PRIVATE KEY-----\nafter").endswith("\nafter")
    )


def test_a_name_of_a_document_counts() -> None:
    found = Redactor().document({"password": "x y", "env": [{"API_KEY": "abc", "steps": "12"}], "token": None})
    pair = {"name": "DB_PASS", "value": "abc"}
    assert Redactor().document([pair]) == [{**pair, "value": "[redacted]"}]
    assert found == {"password": "[redacted]", "env": [{"API_KEY": "[redacted]", "steps": "12"}], "token": None}


def test_people_are_the_same_ones_everywhere_and_projects_only_where_that_is_wanted() -> None:
    redactor = Redactor(["alice", "alice_example_com", "root", "bo"], ["research-7"])
    text = (
        "tpu_driver.t1v-n-1.alice.log.INFO /home/alice/x /home/zoe/y ALICE malice alice_example_com a@b.example bo root"
    )
    assert redactor.text(text) == (
        "tpu_driver.t1v-n-1.user2.log.INFO /home/user2/x /home/[user]/y user2 malice user1 [e-mail] bo root"
    )
    assert redactor.text("projects/research-7/x") == "projects/[project]/x"
    assert Redactor().text("projects/research-7/x") == "projects/research-7/x"
    assert redactor.text("10.0.0.2 203.0.113.9 8.8.8.8 127.0.0.1:9478 1.2.3.4.5") == (
        "10.0.0.2 203.0.113.9 [address] 127.0.0.1:9478 1.2.3.4.5"
    )


@pytest.mark.parametrize(
    "text",
    [
        "E1120 13:43:14.250000 4242 hbm.cc:10] Ran out of memory in memory space hbm. Used 28.00G of 15.75G hbm.",
        "RESOURCE_EXHAUSTED: Attempting to reserve 12.50G at the bottom of memory. That was not possible.",
        "/usr/lib/python3/dist-packages/google/cloud/tpu_v2alpha1/services/tpu/client.py, line 1234",
        "/opt/tpuwatch/lib/python3.11/site-packages/jax/_src/interpreters/pxla.py:1234",
        "bf16[8,128,2048]{2,1,0:T(8,128)(2,1)S(1)} all-reduce-start.17.remat_uncompressed",
        "libtpu_20261001_RC00 built by cloud on 2026-10-01T00:00:00Z v2-alpha-tpuv5-lite t1v-n-1a2b3c4d-w-0",
        "TPU_PREMAPPED_BUFFER_SIZE=4294967296 TPU_PROCESS_BOUNDS=1,1,1 LIBTPU_INIT_ARGS=--xla_tpu_enable_async=true",
        "projects/research-7/locations/us-central2-b/operations/operation-1700000000000-6110-4f2c",
        "boot 3f2b8c1e-9d4a-4b6f-8e2a-1c5d7f9b0a3e, 268435456 bytes, 0x7f5f42226f10, PjRtStreamExecutorBuffer",
        'tpuwatch_tpu_init_seconds_bucket{le="10.0"} 3.0',
        "tokens: 8192 per second, token rate 3; keys are sorted; step 1000 loss 2.31 learning_rate 0.0003",
        "the ssh key of google-auth 2.43.0, which is a package",
        "Linux version 6.8.0-1015-gcp (buildd@lcy02-amd64-063) #17~22.04.2-Ubuntu SMP",
    ],
)
def test_what_helps_is_left(text: str) -> None:
    assert Redactor().text(text) == text
