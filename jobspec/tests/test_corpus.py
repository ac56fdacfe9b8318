"""Third-party job files, next to the checkout: each is read as expected or refused at the right place."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from yurt.rules.canonical import canonicalize_job
from yurt_jobspec import JobspecError, format_source, parse_job, with_unset_fields, write_job

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "jobspecs"
POSITION = re.compile(r":(\d+),(\d+)(?:-(?:\d+,)?\d+)?: ")

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus of job files in ../shared next to the checkout")


def cases() -> list[dict[str, Any]]:
    if not CORPUS.is_dir():
        return []
    return [json.loads(line) for line in (CORPUS / "manifest.jsonl").read_text().splitlines()]


def pruned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: pruned(item) for key, item in value.items() if item is not None}
    return [pruned(item) for item in value] if isinstance(value, list) else value


def without(value: Any, paths: list[str]) -> Any:
    for path in paths:
        *parents, last = path.removeprefix("/Job").strip("/").split("/")
        here = value
        for part in parents:
            here = here[int(part)] if isinstance(here, list) else here.get(part, {})
        here.pop(last, None)
    return value


def run(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    base = CORPUS / case["group"] / case["name"]
    files = Path(f"{base}.files")
    if files.is_dir():
        shutil.copytree(files, folder, dirs_exist_ok=True)
    var_files = []
    for item in case["var_files"]:
        var_files.append(Path(shutil.copy(CORPUS / case["group"] / item["file"], folder / item["as"])))
    if case.get("var_content"):
        var_files.append(folder / "content.vars.hcl")
        var_files[-1].write_text(case["var_content"])
    return parse_job(
        source_of(case),
        filename=case["parse_path"],
        variables=case["vars"],
        var_files=var_files,
        environ=dict(item.split("=", 1) for item in case["env"]),
        strict=case["strict"],
        base_dir=folder if case["allow_fs"] else None,
    )


def source_of(case: dict[str, Any]) -> str:
    return (CORPUS / case["group"] / f"{case['name']}.hcl").read_bytes().decode("utf-8", "surrogateescape")


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["id"])
def test_a_job_file_of_the_corpus(case: dict[str, Any], tmp_path: Path) -> None:
    base = CORPUS / case["group"] / case["name"]
    gold = Path(f"{base}.json")
    if gold.exists():
        expected = json.loads(gold.read_text())
        skipped = case["nondeterministic"]
        assert without(pruned(run(case, tmp_path)), skipped) == without(pruned(expected.get("Job", expected)), skipped)
        return
    with pytest.raises(JobspecError) as caught:
        run(case, tmp_path)
    texts = [Path(f"{base}.err").read_text(errors="replace"), *case.get("err_variants", [])]
    places = [(int(found[1]), int(found[2])) for found in map(POSITION.search, texts) if found and found[1] != "0"]
    placed = [item for item in caught.value.diagnostics if item.line is not None]
    assert not places or (placed[0].line, placed[0].column) in places


def key_paths(value: Any, path: str = "") -> set[str]:
    """The paths of all keys, unset ones included."""
    if isinstance(value, list):
        return {found for item in value for found in key_paths(item, f"{path}[]")}
    if not isinstance(value, dict):
        return set()
    return {f"{path}.{key}" for key in value} | {
        found for key, item in value.items() for found in key_paths(item, f"{path}.{key}")
    }


def test_a_parsed_job_has_every_field_that_is_unset(tmp_path: Path) -> None:
    for case in [case for case in cases() if not case["var_files"]][::4]:
        base = CORPUS / case["group"] / case["name"]
        if not Path(f"{base}.json").exists():
            continue
        job = run(case, tmp_path)
        for found, gold in ((job, ".json"), (canonicalize_job(job), ".canon.json")):
            expected = json.loads(Path(f"{base}{gold}").read_text())
            assert key_paths(with_unset_fields(found)) == key_paths(expected.get("Job", expected)), (case["id"], gold)


def test_formatting_the_corpus_is_idempotent() -> None:
    for case in cases():
        try:
            once = format_source(source_of(case))
        except JobspecError:
            continue
        assert format_source(once) == once, case["id"]


def test_every_job_of_the_corpus_survives_writing_and_reading() -> None:
    bases = [f"{CORPUS / case['group'] / case['name']}" for case in cases()]
    golds = [Path(base + end) for base in bases for end in (".json", ".canon.json")]
    for gold in (gold for gold in golds if gold.exists()):
        expected = json.loads(gold.read_text())
        job = expected.get("Job", expected)
        written = write_job(job)
        back = parse_job(written.text, filename="written.hcl")
        if gold.name.endswith(".canon.json"):
            back, job = canonicalize_job(back), canonicalize_job(job)
        assert pruned(back) == pruned(job), gold.name
        assert written.lost == (), gold.name
