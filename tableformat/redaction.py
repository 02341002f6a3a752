"""Keeps credentials out of logs, reprs and errors.

Libraries below us log whole requests at DEBUG: botocore prints the session token header. So every
value of `storage_options` that may be a secret is remembered for the life of the process, error
texts pass through `redact`, and a filter cleans the records of the loggers that may carry one.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

MASK = "***"

_MIN_LENGTH = 6
"""Shorter values would blank out ordinary words."""

_HARMLESS_KEYS = frozenset(
    [
        "endpoint_url",
        "region_name",
        "region",
        "anon",
        "profile",
        "use_ssl",
        "verify",
        "account_name",
        "account_host",
        "project",
        "location",
        "access",
        "consistency",
        "addressing_style",
        "signature_version",
        "mode",
        "type",
        "universe_domain",
        "auth_uri",
        "token_uri",
        "default_cache_type",
        "cache_regions",
    ]
)
_ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_CONNECTION_STRING",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_CLIENT_SECRET",
)
_LIBRARIES = frozenset(
    [
        "botocore",
        "aiobotocore",
        "boto3",
        "s3fs",
        "fsspec",
        "gcsfs",
        "adlfs",
        "azure",
        "google",
        "urllib3",
        "aiohttp",
        "asyncio",
    ]
)
# Credentials that came from a role or a profile never pass through us; these are the places where
# the libraries print them.
_HEADERS = re.compile(
    r"(?i)((?:x-amz-security-token|authorization)['\"]?\s*[:=]\s*(?:b(?=['\"]))?['\"]?)"
    r"((?:(?:bearer|sharedkey)\s+)?[^\s'\",&]+)"
)

_lock = threading.Lock()
_secrets: set[str] = set()
_pattern: re.Pattern[str] | None = None


def register_secrets(options: Mapping[str, Any]) -> None:
    """Remember every value of these options, and of the environment, that may be a secret."""
    global _pattern  # noqa: PLW0603 - one pattern per process, replaced as a whole
    found = set(_candidates(options))
    for name in _ENVIRONMENT:
        found.update(_forms(os.environ.get(name, "")))
    with _lock:
        if not found <= _secrets:
            _secrets.update(found)
            _pattern = _compile(_secrets)


def redact(text: str, secrets: Iterable[str] | None = None) -> str:
    """Return the text without the given secrets, or without those of this process."""
    pattern = _pattern if secrets is None else _compile(secrets)
    if pattern is not None:
        text = pattern.sub(MASK, text)
    return _HEADERS.sub(rf"\1{MASK}", text)


def is_harmless_option(key: str, value: str) -> bool:
    """Whether a storage option may be shown: its key says so, and its value hides nothing."""
    return key.lower() in _HARMLESS_KEYS and "@" not in value


def guard_loggers() -> None:
    """Put the filter on every logger that the store libraries have made so far.

    A filter sees only its own logger's records, not those of loggers below it. So this is called
    after a library was imported and again once its client exists.
    """
    known = [name for name in logging.root.manager.loggerDict if _library(name) in _LIBRARIES]
    for name in {*known, *_LIBRARIES}:
        logger = logging.getLogger(name)
        if _FILTER not in logger.filters:
            logger.addFilter(_FILTER)


class SecretFilter(logging.Filter):
    """Cleans a record in place; never drops one."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite the message and the traceback where they hold a secret."""
        message = _message(record)
        clean = redact(message)
        if clean != message:
            record.msg, record.args = clean, None
        if record.exc_info:
            trace = logging.Formatter().formatException(record.exc_info)
            clean = redact(trace)
            if clean != trace:
                # The text alone: handlers would print the exception itself once more.
                record.exc_info, record.exc_text = None, clean
        return True


_FILTER = SecretFilter()


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a record with wrong arguments is reported by its handler
        return ""


def _library(logger_name: str) -> str:
    return logger_name.partition(".")[0]


def _candidates(value: object, key: str = "") -> Iterator[str]:
    """Yield what may be secret: every longer string whose key does not say otherwise."""
    if isinstance(value, Mapping):
        for inner_key, inner in value.items():
            yield from _candidates(inner, str(inner_key))
    elif isinstance(value, (list, tuple, set, frozenset)):
        for inner in value:
            yield from _candidates(inner, key)
    elif isinstance(value, (bytes, bytearray)):
        yield from _candidates(value.decode(errors="replace"), key)
    elif isinstance(value, str):
        if key.lower() not in _HARMLESS_KEYS:
            yield from _forms(value)
        elif "@" in value:
            yield from _user_and_password(value)


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret as it may look in a log: plain, quoted for a URL, escaped in a repr or JSON.

    A connection string is also taken apart, since libraries print its parts.
    """
    parts = [part.partition("=")[2] for part in secret.split(";")] if ";" in secret else []
    for part in (secret, *parts):
        if len(part) >= _MIN_LENGTH:
            yield from {part, quote(part, safe=""), quote(part), repr(part)[1:-1]}
            yield json.dumps(part)[1:-1]


def _user_and_password(url: str) -> Iterator[str]:
    try:
        found = urlsplit(url)
    except ValueError:
        return
    for part in (found.username, found.password):
        yield from _forms(part or "")


def _compile(secrets: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted({secret for secret in secrets if secret}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
