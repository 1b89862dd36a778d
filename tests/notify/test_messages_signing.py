"""Secrets and signatures, compared with the package that receivers use."""

from __future__ import annotations

import time
from base64 import b64decode

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from siteatlas.notify.messages import generate_secret, signed_headers

BODY = '{"type": "scan.published", "text": "ü"}'.encode()


def test_a_secret_has_32_random_bytes_in_base64():
    secret, other = generate_secret(), generate_secret()
    assert secret != other
    assert len(b64decode(secret.removeprefix("whsec_"))) == 32


def test_each_of_two_secrets_verifies_the_message():
    secrets = [generate_secret(), generate_secret()]
    headers = signed_headers("msg_1", int(time.time()), BODY, secrets)
    assert headers["webhook-signature"].count("v1,") == 2
    for secret in secrets:
        assert Webhook(secret).verify(BODY, headers)["text"] == "ü"


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp"])
def test_a_changed_header_a_changed_body_and_another_secret_are_noticed(name: str):
    secret, now = generate_secret(), int(time.time())
    headers = signed_headers("msg_1", now, BODY, [secret])
    other = signed_headers("msg_2", now - 1, BODY, [secret])
    for body, given, key in (
        (BODY + b" ", headers, secret),
        (BODY, headers | {name: other[name]}, secret),
        (BODY, headers, generate_secret()),
    ):
        with pytest.raises(WebhookVerificationError):
            Webhook(key).verify(body, given)
