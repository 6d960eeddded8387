"""`store.*`: what goes together, and that secrets are seen nowhere."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from mainstem.config import STORE_KEYS, StoreSettings, load_gateway_config
from mainstem.errors import InvalidConfigError

SECRET = "wJalrXUtnFEMI-secret"
KEYS = {"store.access.key.id": "AKIA-secret", "store.secret.access.key": SECRET}


def test_settings_come_from_the_gateways_configuration() -> None:
    environment = {"MAINSTEM_STORE_REGION": "eu-central-1", "MAINSTEM_STORE_ANONYMOUS": "true"}
    flags = {"store.endpoint": "http://127.0.0.1:7070", "store.request.timeout.ms": "10s"}
    settings = load_gateway_config(None, environment, flags).store_settings()
    assert settings == StoreSettings(
        endpoint="http://127.0.0.1:7070",
        region="eu-central-1",
        anonymous=True,
        request_timeout_ms=10_000,
    )
    assert load_gateway_config(None, {}, {}).store_settings() == StoreSettings()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"store.access.key.id": "AKIA-secret"}, "store.secret.access.key is missing"),
        ({"store.secret.access.key": SECRET}, "store.access.key.id is missing"),
        ({"store.session.token": SECRET}, "store.session.token needs"),
        ({**KEYS, "store.profile": "p"}, "store.access.key.id and store.profile are both set"),
        ({"store.profile": "p", "store.anonymous": "true"}, "are both set"),
        ({"store.endpoint": "s3.example.org"}, "must be an address"),
        ({"store.endpoint": "https://host/path"}, "must be an address"),
        ({"store.endpoint": f"https://me:{SECRET}@host"}, "must be an address"),
        ({"store.secret.access.key": [SECRET]}, r"is '\*+'; it must be text"),
        ({"store.secret.access.key": SECRET + "\ud800"}, "no UTF-8 form"),
        ({"store.addressing.style": "x"}, "one of path, virtual"),
        ({"store.request.timeout.ms": 1}, "at least 1000"),
        ({"store.secret.key": SECRET}, "did you mean store.secret.access.key"),
    ],
)
def test_what_cannot_be_meant_is_refused_without_a_secret_in_the_message(
    given: dict[str, object], words: str
) -> None:
    with pytest.raises(InvalidConfigError, match=words) as told:
        load_gateway_config(None, {}, given)
    assert "secret-" not in str(told.value)
    for secret in (SECRET, "AKIA-secret"):
        assert secret not in str(told.value)
        assert secret not in repr(told.value.facts)


def test_nothing_that_prints_itself_shows_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("".join(f'{name} = "{value}"\n' for name, value in KEYS.items()))
    config = load_gateway_config(file, {}, {"store.session.token": SECRET})
    settings = config.store_settings()
    assert settings.secret_access_key == settings.session_token == SECRET
    for shown in (config, settings, config.settings, f"{settings}"):
        assert SECRET not in repr(shown)
        assert "AKIA-secret" not in repr(shown)


def test_tasks_get_the_secrets() -> None:
    settings = StoreSettings(access_key_id="a", secret_access_key=SECRET)
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_every_secret_is_marked_as_one() -> None:
    assert {key.name for key in STORE_KEYS.values() if key.secret} == {
        "store.access.key.id",
        "store.secret.access.key",
        "store.session.token",
    }
