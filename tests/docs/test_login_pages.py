"""The pages about logins: their configurations are accepted, and the reference explains every field."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from yurt.api.encode import to_wire
from yurt.structs.acl import (
    ACLAuthMethod,
    ACLAuthMethodConfig,
    ACLBindingRule,
    OIDCClientAssertion,
    OIDCClientAssertionKey,
)
from yurt.testing.login.site import login_site

DOCS = Path(__file__).resolve().parents[2] / "docs"
HOWTOS = ("log-in-with-oidc.md", "log-in-from-ci.md")


def selectors(text: str) -> list[str]:
    """What pages give to -selector, or show as one."""
    return [first or second for first, second in re.findall(r"-selector='([^']+)'|[Ss]elector: `([^`]+)`", text)]


@pytest.mark.parametrize("name", HOWTOS)
async def test_what_a_page_configures_is_accepted(name: str, tmp_path: Path) -> None:
    text = (DOCS / "howto" / name).read_text()
    configs = [json.loads(block) for block in re.findall(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]
    assert len(configs) >= 2 and len(selectors(text)) >= 2
    async with login_site(tmp_path) as site:
        for number, config in enumerate(configs):
            await site.method(f"m{number}", "OIDC" if "OIDCClientID" in config else "JWT", config)
        for selector in selectors(text):
            await site.rule("m0", Selector=selector)
        await site.rule("m0", BindName="team-${value.team}")


def explained(title: str) -> set[str]:
    """The fields in the first column of the table below a title of the reference."""
    page = (DOCS / "reference" / "login-methods.md").read_text()
    table = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = [row for row in table.splitlines() if row.startswith("|")]
    return {name for row in rows for name in re.findall(r"`([\w.]+)`", row.split(" | ")[0])}


def fields(value: object) -> set[str]:
    wire: dict[str, object] = to_wire(value)
    return set(wire) - {"CreateIndex", "ModifyIndex", "CreateTime", "ModifyTime"}


def test_the_reference_explains_every_field_and_nothing_else() -> None:
    assert explained("The method") == fields(ACLAuthMethod())
    assert explained("Config") == fields(ACLAuthMethodConfig())
    key = {f"PrivateKey.{name}" for name in fields(OIDCClientAssertionKey())}
    assert explained("Client assertions") == fields(OIDCClientAssertion()) - {"PrivateKey"} | key
    assert explained("Binding rules") == fields(ACLBindingRule()) - {"ID", "Description"}
