"""What counts as a secret, and that it is gone from every record of the store libraries."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from strandline.tableformat.redaction import guard_loggers, redact, register_secrets
from strandline.tableformat.storage import open_storage


@pytest.mark.parametrize(
    ("options", "secret"),
    [
        ({"secret": "plain-canary-1"}, "plain-canary-1"),
        ({"some_future_option": "plain-canary-2"}, "plain-canary-2"),
        ({"client_kwargs": {"aws_session_token": "nested-canary"}}, "nested-canary"),
        ({"token": {"private_key": "-----BEGIN\ncanary\n"}}, "-----BEGIN\ncanary\n"),
        ({"token": {"private_key": "-----BEGIN\ncanary\n"}}, "-----BEGIN\\ncanary\\n"),
        ({"many": ["listed-canary"]}, "listed-canary"),
        ({"raw": b"bytes-canary"}, "bytes-canary"),
        ({"key": "with/slash+canary="}, "with%2Fslash%2Bcanary%3D"),
        ({"connection_string": "A=b;AccountKey=part-canary==;C=d"}, "part-canary=="),
        ({"endpoint_url": "http://user-canary:pass-canary@host"}, "pass-canary"),
    ],
)
def test_a_registered_secret_is_masked(options: dict[str, Any], secret: str) -> None:
    """[C10] However it is nested, and in the forms in which libraries print it."""
    register_secrets(options)
    assert secret not in redact(f"before {secret} after")
    assert redact(f"before {secret} after").startswith("before ***")


def test_harmless_options_stay_readable() -> None:
    """An endpoint or a region in an error is a help, not a leak; nor is a short word masked."""
    register_secrets(
        {"endpoint_url": "http://minio:9000", "region_name": "eu-west-7", "x": "short"}
    )
    text = "http://minio:9000 in eu-west-7 is short"
    assert redact(text) == text


def test_given_secrets_are_masked_longest_first() -> None:
    """A secret that begins another does not leave its rest behind."""
    assert redact("abc abcdef", ["abc", "abcdef", ""]) == "*** ***"


def test_credentials_of_a_role_are_masked_by_their_header() -> None:
    """[C10] They never pass through us, but botocore prints their headers."""
    for line in (
        "x-amz-security-token:canarytoken",
        "{'X-Amz-Security-Token': 'canarytoken', 'b': 1}",
        "{'Authorization': b'AWS4-HMAC-canarytoken'}",
        "Authorization: Bearer canarytoken",
    ):
        assert "canarytoken" not in redact(line)


def test_secrets_of_the_environment_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """[C10] The usual variables are registered when a storage is opened."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "environment-canary")
    open_storage("memory://redaction")
    assert redact("environment-canary") == "***"


def test_records_are_cleaned_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    """[C10] Message, arguments and traceback lose the secret; the record itself stays."""
    caplog.set_level(logging.DEBUG)
    # Spark's Python library gives root handlers a format of its own, without tracebacks.
    caplog.handler.setFormatter(logging.Formatter("%(message)s"))
    register_secrets({"secret": "record-canary"})
    logger = logging.getLogger("botocore.made_for_a_test")
    guard_loggers()
    guard_loggers()
    logger.debug("a %s and %r", {"deep": ["record-canary"]}, "record-canary")
    logger.debug("untouched %d", 7)
    try:
        int("record-canary")
    except ValueError:
        logger.exception("failed")

    assert "record-canary" not in caplog.text
    assert [record.getMessage() for record in caplog.records] == [
        "a {'deep': ['***']} and '***'",
        "untouched 7",
        "failed",
    ]
    assert caplog.records[1].args == (7,)
    assert "ValueError: invalid literal for int() with base 10: '***'" in caplog.text
    assert len([f for f in logger.filters if type(f).__name__ == "SecretFilter"]) == 1


def test_other_loggers_are_left_alone() -> None:
    """An application's own loggers get no filter of ours."""
    logger = logging.getLogger("application.made_for_a_test")
    guard_loggers()
    assert logger.filters == []
