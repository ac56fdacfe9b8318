"""Quotas and their usage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from yurt.api.decode import decode_value, need_object
from yurt.api.encode import to_wire
from yurt.api.page import Pager
from yurt.api.row_texts import row_form
from yurt.http.answers import changed_view, list_rows, need_complete, one_row
from yurt.http.call import Call, empty_answer, object_missing, read_answer
from yurt.http.errors import Refused
from yurt.http.forwarding.regions import need_authority
from yurt.http.lists import page_answer
from yurt.rules.problems import multi_error
from yurt.server.views.cluster import QuotaRows
from yurt.structs.quota import QuotaSpec

Json = dict[str, Any]

NOT_FOUND: Final = "quota not found"


async def list_quotas(call: Call) -> web.Response:
    """GET /v1/quotas."""
    need_complete(call)
    prefix = call.options.prefix
    return await list_rows(
        call, (QuotaRows,),
        lambda view: view.of(QuotaRows).all().where(lambda row: row.name.startswith(prefix)),
        render=row_form(to_wire), key=lambda row: (row.name, ""),
    )  # fmt: skip


async def read(call: Call) -> web.Response:
    """GET /v1/quota/:name."""
    return await one_row(call, QuotaRows, call.part("name"), render=row_form(to_wire), missing=NOT_FOUND)


async def list_usages(call: Call) -> web.Response:
    """GET /v1/quota-usages: each quota with its usage in this region."""
    from yurt.server.views.quotas import QuotaUsages

    view, index = await changed_view(call, QuotaUsages.watched(), lambda view: view.of(QuotaUsages).index)
    usages, region = view.of(QuotaUsages), call.settings.region
    await call.context.env.in_thread(usages.preparation())
    rows = usages.named(usages.names(call.options.prefix), region=region)
    pager = Pager(rows, to_wire, key=lambda row: (row.name, ""), options=call.options)
    return await page_answer(call, pager, index)


async def read_usage(call: Call) -> web.Response:
    """GET /v1/quota/usage/:name: the usage of a quota in this region."""
    from yurt.server.views.quotas import QuotaUsages

    view, index = await changed_view(call, QuotaUsages.watched(), lambda view: view.of(QuotaUsages).index)
    usages = view.of(QuotaUsages)
    await call.context.env.in_thread(usages.preparation())
    rows = usages.named((call.part("name"),), region=call.settings.region)
    return read_answer(call, rows[0], index) if rows else object_missing(call, NOT_FOUND, index)


async def upsert(call: Call) -> web.Response:
    """PUT /v1/quota and /v1/quota/:name."""
    need_authority(call)
    spec = await _body_spec(call)
    return empty_answer(index=await call.operations.quotas.upsert(spec))


async def _body_spec(call: Call) -> QuotaSpec:
    """The valid specification of the body."""
    from yurt.rules.validation.quota import quota_problems

    document = need_object(await call.document(), "QuotaSpec")
    spec, unknown = decode_value(normalised(document), QuotaSpec, name="QuotaSpec")
    if spec.name != call.request.match_info.get("name", spec.name):
        raise Refused(400, "Quota name does not match request path")
    # A misspelled limit that is ignored would be no limit at all.
    problems = [*(text.replace(" is ignored", "", 1) for text in unknown), *quota_problems(spec)]
    if problems:
        raise Refused(400, multi_error(problems))
    return spec


async def delete(call: Call) -> web.Response:
    """DELETE /v1/quota/:name: only one that no namespace names."""
    need_authority(call)
    return empty_answer(index=await call.operations.quotas.delete(call.part("name")))


# -- the spellings of `quota init -json` -------------------------------------------------------------------------------


def normalised(document: Mapping[str, Any]) -> Json:
    """The document as the structs of Nomad's API spell it.

    The example file of Nomad's command line has other names than its structs: `Storage.Variables`, and `NodePool` as
    an object by name. Both are accepted, and so are sizes with a unit. Names that are null, as Go's clients write what
    is not set, are left out: an unknown name is an error only where it has a value.
    """
    result: Json = _without_nulls(document)
    for limit in _objects(result, "limits"):
        for resources in (*_objects(limit, "regionlimit"), *_objects(limit, "guaranteed")):
            _normalise(resources)
            for pool in _objects(resources, "nodepools"):
                _normalise(pool)
    return result


def _normalise(resources: Json) -> None:
    key = _key(resources, "nodepool")
    pools = resources.get(key)
    if isinstance(pools, dict):
        del resources[key]
        pool_entries = resources.setdefault(_key(resources, "nodepools") or "NodePools", [])
        blocks = [({"NodePool": name}, block) for name, block in pools.items()]
        pool_entries.extend({**name, **block} for name, block in blocks if isinstance(block, dict))
    for storage in _objects(resources, "storage"):
        for short, name in (("variables", "VariablesMB"), ("hostvolumes", "HostVolumesMB")):
            own = _key(storage, short)
            if own:
                storage[name] = storage.pop(own)
            if isinstance(storage.get(name), str):
                storage[name] = _mib(name, storage[name])


def _mib(name: str, text: str) -> int:
    from yurt.api.sizes import parse_mib

    size = parse_mib(text)
    if size is None or size < 0:
        raise Refused(400, f'{name}: "{text[:64]}" is not a size; write MiB, or a number and a unit such as "10 GiB"')
    return size


def _objects(parent: Json, name: str) -> list[Json]:
    """The objects under a name, one or a list; unexpected shapes are left to the decoder."""
    value = parent.get(_key(parent, name))
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]


def _key(parent: Json, name: str) -> str:
    """The spelling of a name in an object, ignoring case; empty when absent."""
    return next((key for key in parent if key.lower() == name), "")


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value
