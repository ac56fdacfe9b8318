"""Templates that others wrote for Nomad parse and render, as far as they need no other product."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.client.templates.render_pass import render
from yurt.client.templates.render_protocol import RenderRequest

CORPUS = Path(__file__).resolve().parents[3].parent / "shared" / "corpus" / "jobspecs"
NEEDS_OTHERS = ("no Consul provider", "no Vault provider", "error calling sockaddr")


def templates(value: Any) -> Iterator[dict[str, Any]]:
    """Every template block of a job."""
    if isinstance(value, dict):
        if value.get("EmbeddedTmpl"):
            yield value
        for inner in value.values():
            yield from templates(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from templates(inner)


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of job files is not in the repository")
def test_templates_of_real_job_files_render_or_name_what_they_lack() -> None:
    count, wrong = 0, []
    for path in sorted(CORPUS.rglob("*.json")):
        for block in templates(json.loads(path.read_text())):
            count += 1
            asked = RenderRequest(
                name=path.name,
                text=block["EmbeddedTmpl"].encode(),
                left=block.get("LeftDelim") or "{{",
                right=block.get("RightDelim") or "}}",
            )
            error = render(asked).error
            if error and not any(word in error for word in NEEDS_OTHERS):
                wrong.append(error)
    assert not wrong
    assert count > 200
