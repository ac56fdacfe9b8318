"""Shipped code says things in plain English: these words stood for a noun, a verb or a reason that was missing."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("core/src", "drivers", "devices", "jobspec/src")
UNCLEAR = re.compile(r"\b(whoever|anew|beside)\b|\bso many\b", re.IGNORECASE)


def test_no_line_of_shipped_code_uses_an_unclear_word() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if UNCLEAR.search(line)
    ]
    assert found == [], "name the noun, use the active verb"


def test_unclear_words_are_found() -> None:
    assert UNCLEAR.search("Whoever asks") and UNCLEAR.search("beside it") and not UNCLEAR.search("besides")
