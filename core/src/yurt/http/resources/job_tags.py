"""Tags of job versions: a tagged version is kept, and can be compared with and reverted to by its name."""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web

from yurt.http.call import Call, empty_answer, json_answer
from yurt.http.errors import Refused
from yurt.http.forwarding.targets import job_key
from yurt.sdk.value import Value
from yurt.structs.job import JobVersionTag

DESCRIPTION_MAX: Final = 1000
NAME: Final = re.compile(r"[^\x00-\x1f/]{1,128}\Z")


class TagVersionBody(Value):
    """PUT /v1/job/:id/versions/:name/tag; without a version the newest one is named."""

    version: int | None = None
    latest: bool = False
    description: str = ""


async def apply(call: Call) -> web.Response:
    """PUT /v1/job/:id/versions/:name/tag."""
    body = await call.body(TagVersionBody)
    name = call.part("tag")
    if not NAME.match(name):
        raise Refused(400, "the name of a tag has 1 to 128 characters")
    if len(body.description) > DESCRIPTION_MAX:
        raise Refused(400, f"the description of a tag has at most {DESCRIPTION_MAX} characters")
    tag = JobVersionTag(name=name, description=body.description, tagged_time=call.context.env.now())
    version = None if body.latest else body.version
    index = await call.operations.jobs.tag(job_key(call), name, tag, version=version)
    return json_answer(call, tag, index=index)


async def unset(call: Call) -> web.Response:
    """DELETE /v1/job/:id/versions/:name/tag."""
    return empty_answer(index=await call.operations.jobs.untag(job_key(call), call.part("tag")))
