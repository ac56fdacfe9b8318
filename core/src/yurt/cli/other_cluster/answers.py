"""The answers of another cluster's agent: documents of the expected shape, or an error with address, path and field."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from yurt.api.decode import decode_json, decode_value
from yurt.cli.api.client import error_of
from yurt.cli.errors import ApiError, CliError, Unreachable
from yurt.cli.terminal.text import printable
from yurt.sdk.errors import Invalid

if TYPE_CHECKING:
    from yurt.cli.api.client import ApiClient

T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R")

NOT_OFFERED: Final = frozenset({404, 405, 501})
"""Answers of an agent that has no such route: Nomad's community edition has no quotas."""
ROWS_MAX: Final = 1_000_000
"""The number of rows of one list."""
SINGLE_MAX: Final = 100_000
"""The number of nodes, and of jobs: each is a request."""
ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024
"""The size of one answer that is not a list of all objects of a kind."""
ANSWER_VALUES_MAX: Final = 10_000_000
"""The number of values in one answer, which take about 100 bytes of memory each; 100,000 allocations have 7 million."""
READ_BYTES_MAX: Final = 1024 * 1024 * 1024
"""The size of all answers together."""
READ_S_MAX: Final = 3600.0
"""The time for the whole state."""
RIGHTS: Final = {
    "/v1/nodes": "node:read", "/v1/node/": "node:read", "/v1/jobs": "list-jobs in each namespace",
    "/v1/job/": "read-job in each namespace", "/v1/allocation": "read-job in each namespace",
    "/v1/evaluations": "read-job in each namespace", "/v1/deployments": "read-job in each namespace",
    "/v1/quotas": "quota:read", "/v1/operator": "operator:read", "/v1/namespaces": "a right in each namespace",
}  # fmt: skip


class Answers:
    """GET requests to one agent; every failure is a CliError with the agent's address and the path."""

    def __init__(self, api: ApiClient, *, now: Callable[[], float] = time.monotonic) -> None:
        self.address = printable(api.connection.address)
        self._api = api
        self._now = now
        self._ends = now() + READ_S_MAX
        self._bytes = 0

    def get(self, path: str, query: Mapping[str, str] | None = None, *, bytes_max: int = ANSWER_BYTES_MAX) -> Any:
        """The document; raises ApiError for a refusal."""
        if self._now() > self._ends:
            raise CliError(f"{self.address}: the cluster could not be read within {READ_S_MAX / 60:g} minutes")
        target = f"{path}?{urlencode(query, quote_via=quote)}" if query else path
        try:
            answer = self._api.raw("GET", target)
        except Unreachable as error:
            text = printable(str(error)).replace("-address or NOMAD_ADDR", "-from")
            raise CliError(self._text(path, text)) from None
        self._count(path, len(answer.body))
        if not 200 <= answer.status < 300:
            raise error_of(answer)
        if len(answer.body) > bytes_max:
            raise self.wrong(path, f"the answer has {len(answer.body)} bytes; {bytes_max} are possible")
        # Values are counted before decoding, which makes many times the memory of them.
        values = sum(answer.body.count(sign) for sign in (b",", b"{", b"["))
        if values > ANSWER_VALUES_MAX:
            raise self.wrong(path, f"the answer has about {values} values; {ANSWER_VALUES_MAX} are possible")
        try:
            return decode_json(answer.body)
        except Invalid as error:
            text = str(error).replace("Failed to decode body: ", "")
            raise self.wrong(path, f"the answer is not JSON within its limits: {text}") from None

    def _count(self, path: str, size: int) -> None:
        self._bytes += size
        if self._bytes > READ_BYTES_MAX:
            raise CliError(self._text(path, f"all answers together exceed {READ_BYTES_MAX} bytes"))

    def need(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """The document; a refusal names the missing right."""
        try:
            return self.get(path, query)
        except ApiError as error:
            raise self.refused(path, error) from None

    def rows(
        self, path: str, query: Mapping[str, str] | None = None, *, most: int = ROWS_MAX, is_optional: bool = False
    ) -> list[Mapping[str, Any]]:
        """The objects of a list; none where the route is optional and the agent has no such route."""
        try:
            found = self.get(path, query, bytes_max=READ_BYTES_MAX)
        except ApiError as error:
            if is_optional and error.status in NOT_OFFERED:
                return []
            raise self.refused(path, error) from None
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise self.wrong(path, "the answer is not a list of objects, as Nomad's API has it")
        if len(found) > most:
            raise self.wrong(path, f"the list has {len(found)} rows; {most} are possible")
        return found

    def document(self, path: str, query: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        """One object."""
        return self.object(self.need(path, query), path)

    def object(self, found: Any, path: str, field: str = "the answer") -> Mapping[str, Any]:
        """A value that has to be an object."""
        if not isinstance(found, dict):
            raise self.wrong(path, f"{field} is not an object, as Nomad's API has it")
        return found

    def mapping(self, found: Mapping[str, Any], field: str, path: str) -> Mapping[str, Mapping[str, Any]]:
        """A field with objects by name; null is none."""
        value = self.object(found.get(field) or {}, path, field)
        return {name: self.object(each, path, f"{field}[{printable(name)}]") for name, each in value.items()}

    def objects(self, found: Mapping[str, Any], field: str, path: str) -> list[Mapping[str, Any]]:
        """A field with a list of objects; null is none."""
        values = self._list(found, field, path)
        return [self.object(each, path, f"{field}[{number}]") for number, each in enumerate(values)]

    def names(self, found: Mapping[str, Any], field: str, path: str) -> list[str]:
        """A field with a list of names; null is none."""
        return [self.text({field: each}, field, path) for each in self._list(found, field, path)]

    def _list(self, found: Mapping[str, Any], field: str, path: str) -> list[Any]:
        values = found.get(field)
        if values is None:
            return []
        if not isinstance(values, list):
            raise self.wrong(path, f"{field} is not a list, as Nomad's API has it")
        return values

    def text(self, found: Mapping[str, Any], field: str, path: str, default: str = "") -> str:
        """A field with a name: not empty, without control characters."""
        value = found.get(field) or default
        if not isinstance(value, str) or not value:
            raise self.wrong(path, f"{field}: expected a name, got {printable(repr(value))}")
        if not value.isprintable() or len(value) > 1024:
            raise self.wrong(path, f"{field}: {printable(repr(value))} is not a name")
        return value

    def value(self, document: Any, cls: type[T], path: str, name: str = "") -> T:
        """A document as a struct; `name` opens the fields in messages, by default that of the struct."""
        return self.checked(path, lambda: decode_value(document, cls, name=name or cls.__name__)[0])

    def checked(self, path: str, decode: Callable[[], R]) -> R:
        """What `decode` makes of an answer; its Invalid names address and path."""
        try:
            return decode()
        except Invalid as error:
            raise self.wrong(path, str(error)) from None

    def unique(self, keys: Iterable[Any], path: str) -> None:
        """Refuse a list that has the same key twice."""
        seen: set[Any] = set()
        for key in keys:
            if key in seen:
                raise self.wrong(path, f"the list has {printable(str(key))} twice")
            seen.add(key)

    def refused(self, path: str, error: ApiError) -> CliError:
        """An error of the agent."""
        right = next((right for start, right in RIGHTS.items() if path.startswith(start)), "")
        hint = f"; -from needs a token with {right}" if error.status == 403 and right else ""
        return CliError(self._text(path, f"{printable(str(error))}{hint}"))

    def wrong(self, path: str, problem: str) -> CliError:
        """An answer that no Nomad agent gives."""
        return CliError(self._text(path, printable(problem)))

    def _text(self, path: str, problem: str) -> str:
        return f"{self.address}: GET {printable(path)}: {problem}"


def present_fields(found: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """The given fields, without nulls."""
    return {key: found[key] for key in keys if found.get(key) is not None}


def without(found: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The other fields."""
    return {name: value for name, value in found.items() if name != key}
