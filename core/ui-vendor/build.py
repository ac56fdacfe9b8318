"""Bundles the libraries of the web UI from the npm registry: `python core/ui-vendor/build.py`.

Needs node and npm. The outcome is committed, so neither building nor running Yurt needs them. `vendor.json` next to the
bundles names each package with its version, licence and the digest of its registry archive, and each file with its
size and SHA-256.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SHIPPED = HERE.parent / "src/yurt/ui/vendor"
FOR_TESTS = HERE / "axe"
BUNDLES = ("preact", "uplot", "xterm", "codemirror")
STYLES = {"uplot.css": "uplot/dist/uPlot.min.css", "xterm.css": "@xterm/xterm/css/xterm.css"}
DEVELOPMENT = ("esbuild", "@esbuild/", "typescript", "@typescript/")


def packages(modules: Path) -> dict[str, Any]:
    """The installed packages that are shipped or tested with, by name."""
    lock = json.loads((modules / ".package-lock.json").read_text())
    found = {}
    for path, entry in sorted(lock["packages"].items()):
        name = path.removeprefix("node_modules/")
        if name.startswith(DEVELOPMENT):
            continue
        found[name] = {"version": entry["version"], "license": entry["license"], "integrity": entry["integrity"]}
    return found


def bundle(work: Path, name: str) -> None:
    """One library as one ES module without imports."""
    entry = work / f"{name}.js"
    shutil.copy(HERE / "entries" / f"{name}.js", entry)
    subprocess.run(
        [work / "node_modules/.bin/esbuild", entry, "--bundle", "--minify", "--format=esm", "--target=es2022",
         "--legal-comments=none", f"--outfile={SHIPPED / f'{name}.js'}"],
        check=True,
    )  # fmt: skip


def copy_licences(modules: Path, names: list[str]) -> None:
    """The licence text of each package, as its authors wrote it."""
    folder = SHIPPED / "licences"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in names:
        if name != "axe-core":
            text = (modules / name / "LICENSE").read_text()
            (folder / f"{name.replace('/', '-').lstrip('@')}.txt").write_text(text)


def describe(path: Path) -> dict[str, Any]:
    """A file's size, compressed size and digest."""
    data = path.read_bytes()
    return {
        "bytes": len(data),
        "gzip": len(gzip.compress(data, 9, mtime=0)),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def main() -> int:
    """Install, bundle, copy, describe."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        shutil.copy(HERE / "package.json", work)
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=work, check=True)
        modules = work / "node_modules"
        SHIPPED.mkdir(parents=True, exist_ok=True)
        for name in BUNDLES:
            bundle(work, name)
        for name, source in STYLES.items():
            shutil.copy(modules / source, SHIPPED / name)
        FOR_TESTS.mkdir(exist_ok=True)
        shutil.copy(modules / "axe-core/axe.min.js", FOR_TESTS)
        shutil.copy(modules / "axe-core/LICENSE", FOR_TESTS)
        found = packages(modules)
        copy_licences(modules, list(found))
    files = sorted(path for path in (*SHIPPED.glob("*.js"), *SHIPPED.glob("*.css"), FOR_TESTS / "axe.min.js"))
    known = {"packages": found, "files": {path.name: describe(path) for path in files}}
    (SHIPPED / "vendor.json").write_text(json.dumps(known, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
