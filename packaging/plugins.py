"""Writes the lists of plugins that packaging has to spell out: `python packaging/plugins.py`, or `make plugins`.

A driver or device plugin of this repository is named by its folder in drivers/ or devices/. TOML cannot iterate over
folders, so the extras of `yurt` and the workspace's sources are written here, between two marks; a test compares.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BEGIN = "# Written by `make plugins`:"
END = "# End of what `make plugins` writes."
SECTION = re.compile(rf"(?<={re.escape(BEGIN)}\n).*?(?={re.escape(END)})", re.DOTALL)


class Plugin(NamedTuple):
    """A distribution below drivers/ or devices/."""

    folder: str
    distribution: str
    version: str

    @property
    def extra(self) -> str:
        """The extra of `yurt` that installs it: `raw-exec` for drivers/raw_exec."""
        return self.folder.replace("_", "-")

    @property
    def requirement(self) -> str:
        """The distribution with the bounds of its minor version: `yurt-driver-exec>=0.1,<0.2`."""
        major, minor, *_ = self.version.split(".")
        return f"{self.distribution}>={major}.{minor},<{major}.{int(minor) + 1}"


def plugins(root: Path) -> Iterator[Plugin]:
    """All plugins of a checkout, by the names of their folders."""
    paths = [path for kind in ("drivers", "devices") for path in (root / kind).glob("*/pyproject.toml")]
    for path in sorted(paths, key=lambda path: path.parent.name):
        project = tomllib.loads(path.read_text())["project"]
        yield Plugin(path.parent.name, project["name"], project["version"])


def texts(root: Path) -> dict[Path, str]:
    """Each file with a list of plugins, as it has to be."""
    found = list(plugins(root))
    extras = "".join(f'{each.extra} = ["{each.requirement}"]\n' for each in found)
    extras += "all = [\n" + "".join(f'    "{each.requirement}",\n' for each in found) + "]\n"
    sources = "".join(f"{each.distribution} = {{ workspace = true }}\n" for each in found)
    sections = {root / "core" / "pyproject.toml": extras, root / "pyproject.toml": sources}
    return {path: _with_section(path.read_text(), section) for path, section in sections.items()}


def _with_section(text: str, section: str) -> str:
    changed, count = SECTION.subn(section.replace("\\", r"\\"), text)
    assert count == 1, f"one section between {BEGIN!r} and {END!r}"
    return changed


def main() -> None:
    """Write the lists."""
    for path, text in texts(ROOT).items():
        path.write_text(text)


if __name__ == "__main__":
    main()
