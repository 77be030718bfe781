"""What a support bundle must not contain."""

from __future__ import annotations

import json

import pytest

from pelops.cli.redaction import REMOVED, redact_object, redact_text

TEXTS = {
    "redis://orders:s3cret@redis:6379/0": f"redis://{REMOVED}@redis:6379/0",
    "rediss://:s3cret@redis": f"rediss://{REMOVED}@redis",
    "redis://u:s3/cr@et@redis:1": f"redis://{REMOVED}@redis:1",
    '{"url": "redis://u:s3cret@a", "b": "c@d"}': f'{{"url": "redis://{REMOVED}@a", "b": "c@d"}}',
    "password=s3cret user=a": f"password={REMOVED} user=a",
    'REDIS_PASSWORD: "s3cret"': f'REDIS_PASSWORD: "{REMOVED}"',
    "Authorization: Bearer s3cret": f"Authorization: {REMOVED}",
    "apiKey=s3cret": f"apiKey={REMOVED}",
    "secretRef: {name: orders-redis}": "secretRef: {name: orders-redis}",
    "secretName: orders-redis": "secretName: orders-redis",
    "serviceAccountToken:\n  path: token": "serviceAccountToken:\n  path: token",
    "mail to a@b": "mail to a@b",
}


@pytest.mark.parametrize("text", TEXTS)
def test_credentials_are_removed_from_text_and_the_rest_is_kept(text: str) -> None:
    assert redact_text(text) == TEXTS[text]


def test_an_object_keeps_names_and_loses_values() -> None:
    env = [
        {"name": "TOKEN_OF_BANK", "value": "s3cret"},
        {"name": "PELOPS_LOG_LEVEL", "value": "debug"},
        {"name": "PELOPS_REDIS_PASSWORD", "value": "s3cret"},
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    last = {"kubectl.kubernetes.io/last-applied-configuration": "s3cret", "kept": "yes"}
    pod = {
        "kind": "Pod",
        "metadata": {"name": "web", "managedFields": ["s3cret"], "annotations": last},
        "spec": {
            "containers": [
                {"name": "web", "env": env, "args": ["--redis", "redis://a:s3cret@b"]},
            ]
        },
    }
    kept = redact_object(pod)
    assert "s3cret" not in json.dumps(kept)
    assert kept["metadata"] == {"name": "web", "annotations": {"kept": "yes"}}
    variables = {one["name"]: one for one in kept["spec"]["containers"][0]["env"]}
    assert variables["TOKEN_OF_BANK"]["value"] == REMOVED
    assert variables["PELOPS_LOG_LEVEL"]["value"] == "debug"
    assert variables["A"] == env[3]


def test_a_field_that_is_named_as_a_credential_loses_its_text() -> None:
    spec = {"password": "s3cret", "apiKey": "s3cret", "automountServiceAccountToken": True}
    kept = redact_object({"kind": "Other", "spec": spec})["spec"]
    assert kept == {"password": REMOVED, "apiKey": REMOVED, "automountServiceAccountToken": True}


def test_a_secret_keeps_its_name_alone() -> None:
    secret = {"kind": "Secret", "metadata": {"name": "s"}, "data": {"url": "czNjcmV0"}}
    assert redact_object({"items": [secret]}) == {
        "items": [{"kind": "Secret", "metadata": {"name": "s"}}]
    }
