"""The namespaces of a catalog: made, changed, listed and dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from strandline.catalog.name_chain import new_id
from strandline.catalog_infos import NamespaceInfo, checked_prefix, taken
from strandline.catalog_root import STEPS, CatalogRoot
from strandline.tableformat import catalog_records as records
from strandline.tableformat import names
from strandline.tableformat.errors import InvalidInput, TableExists
from strandline.tableformat.stores.probe import probe_once_per_process
from strandline.tableformat.windows import parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.tableformat.catalog_records import NamespaceRecord

STAMPING: Final = ("timestamping", "uncapped", "order")
_DEFAULTS: Final = ("create_on_append", "create_on_read", "schema", "time_column", "ttl")


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
            merged = {**head.defaults, **defaults}
            kept = {key: value for key, value in merged.items() if value is not None}
            made = head.next(**new_id(self._runtime), defaults=_checked_defaults(kept))
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
    unknown = sorted(set(given) - {*_DEFAULTS, *STAMPING})
    if unknown:
        raise InvalidInput(f"a namespace has no default {', '.join(unknown)}")
    for key in ("create_on_append", "create_on_read", "uncapped"):
        if not isinstance(given.get(key, False), bool):
            raise InvalidInput(f"{key} must be True or False")
    if given.get("ttl") is not None:
        parse_duration(given["ttl"], "ttl")
    schema = given.get("schema")
    if schema is not None and not (
        isinstance(schema, dict) and all(isinstance(t, str) for t in schema.values())
    ):
        raise InvalidInput("a namespace's schema is a dict of column names to type names")
    if given.get("create_on_read") and schema is None:
        raise InvalidInput("create_on_read needs a default schema")
    return dict(given)
