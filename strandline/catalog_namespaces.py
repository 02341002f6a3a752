"""The namespaces of a catalog: made, changed, listed and dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from strandline import catalog_key_lengths
from strandline.catalog.name_chain import new_id
from strandline.catalog_infos import NamespaceInfo, checked_prefix, taken
from strandline.catalog_root import STEPS, CatalogRoot
from strandline.tableformat import catalog_records as records
from strandline.tableformat import names
from strandline.tableformat.config import make_config
from strandline.tableformat.errors import InvalidInput, TableExists
from strandline.tableformat.schema import schema_from
from strandline.tableformat.stores.probe import probe_once_per_process
from strandline.tableformat.windows import format_duration, parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.tableformat.catalog_records import NamespaceRecord

STAMPING: Final = ("timestamping", "uncapped", "order")
_DEFAULTS: Final = ("create_on_append", "create_on_read", "schema", "time_column", "ttl")
_ANY: Final = "any"
"""A column that stands for those that a table will have."""


class HasNamespaces(CatalogRoot):
    """Namespaces with defaults for their tables."""

    def create_namespace(
        self, name: str, *, exist_ok: bool = False, **defaults: Any
    ) -> NamespaceInfo:
        """Create a namespace with defaults for its tables.

        `create_on_append`, `create_on_read`: `append` and `open_table` create what is missing;
        `schema`: with these columns. `time_column`, `ttl`, `timestamping`, `uncapped`, `order`: as
        for `create_table`, used where it is not told otherwise.
        """
        names.check_name(name, "a namespace")
        checked = _checked_defaults(defaults)
        probe_once_per_process(self._storage)
        for _ in range(STEPS):
            head = self._namespaces.head(name)
            if head.exists:
                if exist_ok:
                    return namespace_info(head)
                raise TableExists(
                    f"there is a namespace {name!r} in {self.url} already. Nothing was changed."
                )
            if not head.folder:
                catalog_key_lengths.check_namespace(self._storage, name)
            made = head.next(
                **new_id(self._runtime),
                state=records.LIVE,
                # One that was dropped keeps its folder: tables in it may still be brought back.
                folder=head.folder or names.data_folder(name, self._runtime.random_hex(8)),
                created_at=self._runtime.now_ms(),
                deleted_at=None,
                defaults=checked,
            )
            if self._namespaces.put(made):
                return namespace_info(made)
        raise self._too_busy(name)

    def set_namespace(self, name: str, **defaults: Any) -> NamespaceInfo:
        """Change defaults; None removes one. Tables that exist keep what they were created with."""
        for _ in range(STEPS):
            head = self._namespace(name)
            checked = _checked_defaults({**head.defaults, **defaults})
            made = head.next(**new_id(self._runtime), defaults=checked)
            if self._namespaces.put(made):
                return namespace_info(made)
        raise self._too_busy(name)

    def describe_namespace(self, name: str) -> NamespaceInfo:
        """A namespace and its defaults."""
        return namespace_info(self._namespace(name))

    def list_namespaces(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = None
    ) -> list[NamespaceInfo]:
        """Namespaces in the order of their names' bytes; `after` is the last name of a page."""
        found = (
            [namespace_info(record)]
            for record in self._namespaces.newest(checked_prefix(prefix), after)
            if record.exists
        )
        return taken(found, limit)


def namespace_info(record: NamespaceRecord) -> NamespaceInfo:
    """What users see of a namespace."""
    return NamespaceInfo(record.name, record.created_at, dict(record.defaults))


def _checked_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults as they are stored; what no table could be created with is refused here."""
    unknown = sorted(set(given) - {*_DEFAULTS, *STAMPING})
    if unknown:
        raise InvalidInput(f"a namespace has no default {', '.join(unknown)}")
    kept = {key: value for key, value in given.items() if value is not None}
    for key in ("create_on_append", "create_on_read"):
        if not isinstance(kept.get(key, False), bool):
            raise InvalidInput(f"{key} must be True or False")
    ttl_ms = parse_duration(kept["ttl"], "ttl") if "ttl" in kept else 0
    if ttl_ms and not isinstance(kept["ttl"], str):
        kept["ttl"] = format_duration(ttl_ms)  # defaults are stored as JSON
    schema = kept.get("schema")
    if schema is not None and not (
        isinstance(schema, dict) and all(isinstance(t, str) for t in schema.values())
    ):
        raise InvalidInput("a namespace's schema is a dict of column names to type names")
    if kept.get("create_on_read") and schema is None:
        raise InvalidInput("create_on_read needs a default schema")
    if kept:
        _check_settings(kept)
    return kept


def _check_settings(defaults: Mapping[str, Any]) -> None:
    """Make the configuration that a table would get; columns that are not told stand for any."""
    time = defaults.get("time_column")
    if time is not None and not isinstance(time, str):
        raise InvalidInput(f"time_column is the name of a column, not {time!r}")
    columns = schema_from(defaults.get("schema") or {time or _ANY: "timestamptz"})
    if time is None and not (defaults.get("create_on_append") or defaults.get("create_on_read")):
        # Each table may still name a time column of its own, which some settings need.
        columns, time = schema_from({_ANY: "timestamptz"}), _ANY
    settings = {key: defaults[key] for key in ("ttl", *STAMPING) if key in defaults}
    try:
        make_config(columns, time_column=time, **settings)
    except TypeError as error:
        raise InvalidInput(f"a namespace's default is of a wrong type: {error}") from None
