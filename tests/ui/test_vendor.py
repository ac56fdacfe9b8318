"""The vendored libraries are exactly the files, versions and licences that `vendor.json` names."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
VENDOR = ROOT / "core/src/yurt/ui/vendor"
RECIPE = ROOT / "core/ui-vendor"
KNOWN: dict[str, Any] = json.loads((VENDOR / "vendor.json").read_text())
FOR_TESTS = {"axe.min.js": RECIPE / "axe/axe.min.js"}
FREE = {"MIT", "Apache-2.0", "MPL-2.0"}


@pytest.mark.parametrize("name", sorted(KNOWN["files"]))
def test_a_file_is_the_one_that_was_reviewed(name: str) -> None:
    data, known = FOR_TESTS.get(name, VENDOR / name).read_bytes(), KNOWN["files"][name]

    assert hashlib.sha256(data).hexdigest() == known["sha256"]
    assert (len(data), abs(len(gzip.compress(data, 9, mtime=0)) - known["gzip"]) < 500) == (known["bytes"], True)


def test_nothing_else_is_vendored() -> None:
    scripts = {path.name for path in (*VENDOR.glob("*.js"), *VENDOR.glob("*.css"))}

    assert scripts == set(KNOWN["files"]) - set(FOR_TESTS)


def test_every_package_has_its_licence_and_the_version_that_the_recipe_asks_for() -> None:
    expected = json.loads((RECIPE / "package.json").read_text())["dependencies"]
    packages = KNOWN["packages"]

    assert {name: packages[name]["version"] for name in expected} == expected
    assert {package["license"] for package in packages.values()} <= FREE
    texts = {path.stem for path in (VENDOR / "licences").glob("*.txt")}
    assert texts == {name.replace("/", "-").lstrip("@") for name in packages} - {"axe-core"}
    assert (RECIPE / "axe/LICENSE").is_file()
