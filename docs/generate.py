"""Writes the reference pages from the code's own tables: `python -m docs.generate`, or `make docs`.

`--check` writes nothing and ends with 1 when a page is not what the code says.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from docs import sdk_reference  # noqa: E402
from docs.generator import (  # noqa: E402
    access,
    agent_configuration,
    command_line,
    drivers,
    errors,
    http_api,
    job_files,
    metrics,
    mistakes,
    ui_schema,
)

REFERENCE = ROOT / "docs" / "reference"
UI_SCHEMA = "../../core/src/yurt/ui/app/data/job_schema.js"
"""Completion in the web UI's editor knows the names of job files from the table that reads them."""
PAGES: dict[str, Callable[[], str]] = {
    "access.md": access.page_text,
    "agent-configuration.md": agent_configuration.page_text,
    "command-line.md": command_line.page_text,
    "drivers.md": drivers.page_text,
    "errors.md": errors.page_text,
    "http-api.md": http_api.page_text,
    "job-files.md": job_files.page_,
    "metrics.md": metrics.page_text,
    "sdk.md": sdk_reference.page_text,
    UI_SCHEMA: ui_schema.module_text,
    "../howto/common-mistakes.md": mistakes.page_text,
}


def main(arguments: list[str]) -> int:
    """Write or compare every page; the exit code."""
    stale = []
    for name, make in PAGES.items():
        path, text = REFERENCE / name, make()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    if stale:
        verb = "is stale, run `make docs`" if "--check" in arguments else "written"
        sys.stdout.write("".join(f"docs/reference/{name}: {verb}\n" for name in stale))
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
