"""Packages whose files are shown on a how-to page: extracted from the page and installed into a folder."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

BLOCK: Final = re.compile(r"^```\w+\n# (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
"""A block of code that begins with a comment of its path."""


def page_files(page: Path) -> dict[str, str]:
    """The files on the page, by path."""
    return dict(BLOCK.findall(page.read_text(encoding="utf-8")))


def write_sources(files: Mapping[str, str], sources: Path) -> None:
    """Write the package's files below a folder."""
    for name, text in files.items():
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_text(text)


def lay_package(sources: Path, site: Path) -> None:
    """Install these sources into `site` as pip would install a wheel of them; creates `site`."""
    project = tomllib.loads((sources / "pyproject.toml").read_text())["project"]
    shutil.copytree(sources / "src", site)
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
