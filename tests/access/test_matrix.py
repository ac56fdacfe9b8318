"""Every route as every caller: what a real server answers is what docs/reference/access.json says.

A route without its row, and an answer that differs, is written anew by `python -m docs.access_matrix`; then read the
diff. The rules below hold for any matrix, so a mistake is not written into the file unseen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from yurt.http import routes
from yurt.http.route_table import ROUTES
from yurt.testing.access.matrix import measure, names_of_rows, outdated_rows, read_matrix
from yurt.testing.access.world import rights

FILE = Path(__file__).parents[2] / "docs" / "reference" / "access.json"
MATRIX = read_matrix(FILE.read_text())
ROWS: dict[str, dict[str, Any]] = MATRIX["rows"]
NONE = "none"
NOT_FOR_MANAGEMENT = {
    # Whoever has a secret that is exchanged once may do it; the probe has none.
    "PUT /v1/acl/token/onetime/exchange", "POST /v1/acl/token/onetime/exchange",
    # Off unless the configuration has enable_debug.
    "GET /v1/agent/host", "GET /v1/agent/pprof/{name:.*}",
    # Answered to a server of another region that shows a management token; a user is refused.
    "GET /v1/regions/shared/{table}", "GET /v1/regions/shared/{table}/rows",
}  # fmt: skip
FOR_ANYBODY = {"GET /v1/acl/token/self": "the token of those who show none is nobody's"}
OPEN_NO_ROUTE = {
    # These count together with another right, for what is in a job or where a command runs.
    "host_volume:mount-readonly", "host_volume:mount-readwrite", "csi-register-plugin", "sentinel-override",
    "alloc-node-exec",
    # Parts of Nomad that do not exist here.
    "operator:license-read", "plugin:write", "submit-recommendation", "unblock-deployment", "cancel-deployment",
    "pause-allocation",
}  # fmt: skip
FOR_ANY_RIGHT = ("GET /v1/namespace", "PUT /v1/search", "POST /v1/search", "GET /v1/acl/", "PUT /v1/acl/token/onetime",
                 "POST /v1/acl/token/onetime")  # fmt: skip
"""Routes that whoever has any right may use."""


async def test_every_caller_gets_from_every_route_what_the_file_says() -> None:
    measured = await measure()
    assert measured["callers"] == MATRIX["callers"]
    wrong = {name: (row, ROWS.get(name)) for name, row in measured["rows"].items() if row != ROWS.get(name)}
    assert not wrong, f"run `python -m docs.access_matrix` and read the diff: {wrong}"


def test_every_route_and_nothing_else_has_a_row() -> None:
    assert outdated_rows(MATRIX) == []


def test_a_new_route_gets_a_row_of_its_own() -> None:
    new = routes.get("/v1/new/{id}", ROUTES[0].handler, needs=ROUTES[0].needs, scope=ROUTES[0].scope)
    assert set(names_of_rows((*ROUTES, new))) - set(ROWS) == {"GET /v1/new/{id}"}


@pytest.mark.parametrize("caller", ["expired token", "unknown token"])
def test_a_token_that_is_not_valid_opens_what_needs_none_and_shows_nothing(caller: str) -> None:
    assert [name for name, row in ROWS.items() if caller in row["allowed"] and row["needs"] != NONE] == []
    assert [name for name, row in ROWS.items() if caller in row["hidden"]] == []


@pytest.mark.parametrize("caller", ["no token", "client certificate"])
def test_who_shows_no_token_may_do_nothing(caller: str) -> None:
    found = {name for name, row in ROWS.items() if caller in row["allowed"] and row["needs"] != NONE}
    assert found == set(FOR_ANYBODY)


def test_a_client_certificate_gives_no_right_of_a_user() -> None:
    for row in ROWS.values():
        for outcome in ("allowed", "hidden"):
            assert ("client certificate" in row[outcome]) == ("no token" in row[outcome])


def test_rights_in_another_namespace_open_nothing_in_this_one() -> None:
    own = ("/v1/acl/policy/self", "/v1/acl/token/self", "/v1/acl/token/onetime", "/v1/yurt/acl/explain")
    # Without an id these say that it is missing, to whoever has the right anywhere.
    without_id = tuple(f"GET /v1/client/fs/{verb}" for verb in ("ls", "stat", "cat", "readat", "stream", "logs"))
    found = {name for name, row in ROWS.items() if "wrong namespace" in row["allowed"] and row["needs"] != NONE}
    assert {name for name in found if not name.endswith(own) and name not in without_id} == set()


def test_management_may_do_everything() -> None:
    assert {name for name, row in ROWS.items() if "management" not in row["allowed"]} <= NOT_FOR_MANAGEMENT


def test_every_right_opens_something() -> None:
    opened = {
        caller for name, row in ROWS.items() for caller in row["allowed"]
        if row["needs"] != NONE and not name.startswith(FOR_ANY_RIGHT)
    }  # fmt: skip
    assert set(rights()) - opened <= OPEN_NO_ROUTE
