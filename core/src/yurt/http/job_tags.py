"""Names of job versions: a tagged version is kept, and can be compared with and gone back to by its name."""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web

from yurt.http.call import Call, empty_answer, json_answer
from yurt.http.errors import Refused
from yurt.sdk.value import Value
from yurt.structs.commands import SetJobVersionTag
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
    body = await call.body(TagVersionBody, optional=True)
    name = call.part("tag")
    if not NAME.match(name):
        raise Refused(400, "the name of a tag has 1 to 128 characters")
    if len(body.description) > DESCRIPTION_MAX:
        raise Refused(400, f"the description of a tag has at most {DESCRIPTION_MAX} characters")
    tag = JobVersionTag(name=name, description=body.description, tagged_time=call.context.env.now())
    command = SetJobVersionTag(
        namespace=call.options.namespace,
        job_id=call.part("job_id"),
        name=name,
        version=None if body.latest else body.version,
        tag=tag,
    )
    done = await call.server.propose(command)
    return json_answer(call, tag, index=done.index)


async def unset(call: Call) -> web.Response:
    """DELETE /v1/job/:id/versions/:name/tag."""
    command = SetJobVersionTag(namespace=call.options.namespace, job_id=call.part("job_id"), name=call.part("tag"))
    done = await call.server.propose(command)
    return empty_answer(index=done.index)
