"""Keeps credentials out of logs, reprs and errors.

Libraries below us log whole requests at DEBUG: botocore prints the session token header. So every
value of `storage_options` that may be a secret is remembered for the life of the process, error
texts pass through `redact`, and a filter cleans the records of the loggers that may carry one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def register_secrets(options: Mapping[str, Any]) -> None:
    """Remember what may be a secret."""
