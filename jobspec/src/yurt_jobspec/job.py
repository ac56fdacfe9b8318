"""The public entry: parses a job file to a job.

The steps: read the text into a body, give the variables their values, work out the locals, decode the job block by
its table, then apply the three conveniences that a job file has and a job has not: `vault` and `secret` above a task
are handed down to it, and a task at the job's level becomes a group of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING

from .decode import Decoder, Placed
from .diagnostics import Diagnostic, EvaluationError, JobspecError, Near, OffsetDiagnostic, SourceText
from .evaluator import Evaluator, NameScope
from .files import Files
from .findings import Findings
from .positions import IncompleteJob, Marks, ParsedJob, PartialJob, Positions, paths_of, positions_of
from .schema import ApiObject, schema_of
from .syntax.mistaken_references import mistaken_references
from .syntax.nodes import BlockNode, Body
from .syntax.parser import SyntaxFindings, parse_file, too_deep
from .variables import Inputs, Locals, VariableReader

if TYPE_CHECKING:
    from pathlib import Path

_TOP_LEVEL = ("job", "variable", "variables", "locals")


def parse_job(
    source: str,
    *,
    filename: str,
    variables: Sequence[str] = (),
    var_files: Sequence[Path] = (),
    environ: Mapping[str, str] | None = None,
    strict: bool = True,
    base_dir: Path | None = None,
) -> ApiObject:
    """The job of a job file as JSON data in the API's spelling, without defaults; raises JobspecError.

    `variables` are "name=value" settings, `environ` holds the NOMAD_VAR_ ones, `base_dir` is the only folder that
    file functions may read.
    """
    file = SourceText(filename, source)
    return _guarded(file, Inputs(variables, var_files, environ, strict), base_dir, with_marks=False)[0]


def parse_job_with_positions(
    source: str,
    *,
    filename: str,
    variables: Sequence[str] = (),
    var_files: Sequence[Path] = (),
    environ: Mapping[str, str] | None = None,
    strict: bool = True,
    base_dir: Path | None = None,
) -> tuple[ApiObject, Positions]:
    """As `parse_job`, with the positions of the job's parts."""
    inputs = Inputs(variables, var_files, environ, strict)
    return parse_job_with_findings(source, filename=filename, inputs=inputs, base_dir=base_dir)[:2]


def parse_job_with_findings(
    source: str, *, filename: str, inputs: Inputs | None = None, base_dir: Path | None = None
) -> ParsedJob:
    """As `parse_job_with_positions`, with the warnings."""
    file = SourceText(filename, source)
    job, marks, warnings = _guarded(file, inputs or Inputs(), base_dir, with_marks=True)
    return ParsedJob(job, positions_of(file, job, marks or {}), warnings)


_Result = tuple[ApiObject, "Marks | None", tuple[Diagnostic, ...]]


def _guarded(source: SourceText, inputs: Inputs, base_dir: Path | None, *, with_marks: bool) -> _Result:
    try:
        return _parse(source, inputs, base_dir, with_marks)
    except RecursionError:
        raise too_deep(source) from None


def _parse(source: SourceText, inputs: Inputs, base_dir: Path | None, with_marks: bool) -> _Result:
    findings = Findings()
    body = _read(source, findings)
    evaluator = Evaluator(source.text, files=Files(base_dir, is_confined=not inputs.leaves_folder))
    findings.add_all(source, _top_level(body))
    reader = VariableReader(source, evaluator, findings)
    reader.declare_all(body)
    values = reader.values(inputs)
    block = _job_block(source, body, findings)
    if block is None:
        findings.raise_errors(by_place=findings.is_narrowed)
        raise AssertionError("a missing job block was not reported")
    is_certain = not findings.has_errors
    if not is_certain:
        findings.narrow()
    decoder = Decoder(source, evaluator, findings=findings, with_marks=with_marks)
    job: ApiObject = {}
    try:
        job = _decode(decoder, body, block, values)
    except EvaluationError as error:
        findings.add_all(source, error.problems)
    try:
        findings.raise_errors(by_place=findings.is_narrowed)
    except JobspecError as error:
        raise (_incomplete(error, job, decoder) if is_certain and job and decoder.marks else error) from None
    return job, decoder.marks, findings.warnings


def _incomplete(error: JobspecError, job: ApiObject, decoder: Decoder) -> IncompleteJob:
    positions = positions_of(decoder.source, job, decoder.marks or {})
    return IncompleteJob(error.diagnostics, PartialJob(job, positions, frozenset(paths_of(job, decoder.damaged))))


def _decode(decoder: Decoder, body: Body, block: BlockNode, values: ApiObject) -> ApiObject:
    scope = NameScope({"var": values})
    named = Locals(decoder, body, scope)
    scope.names = {"var": values, "local": named.namespace()}
    named.check_all()
    for doubt in mistaken_references(decoder.source.text, body, {"var": values, "local": named.expressions}):
        decoder.findings.add(decoder.source, doubt, "warning")
    if not decoder.labels_fit(block, ("name",)):
        return {}
    job = decoder.decode(Placed(block, scope), schema_of("Job"))
    _spread_job_level(job)
    if "Name" not in job:
        job["Name"] = job["ID"]
    return job


def _read(source: SourceText, findings: Findings) -> Body:
    """The body of the file; with syntax errors that leave its structure certain, those and the rest of the body."""
    if source.text.lstrip("\ufeff \t\r\n").startswith("{"):
        from .syntax.jsonsyntax import parse_json_job

        return parse_json_job(source)
    try:
        return parse_file(source)
    except SyntaxFindings as error:
        if error.body is None:
            raise
        shown = error.diagnostics[:-1] if error.more else error.diagnostics  # the last one counts the others
        for diagnostic in shown:
            findings.add_diagnostic(diagnostic)
        findings.more += error.more
        findings.narrow()
        return error.body


def _top_level(body: Body) -> Iterator[OffsetDiagnostic]:
    """Report blocks and arguments that are not allowed at the top of a job file."""
    for attribute in body.attributes:
        detail = f'An argument named "{attribute.name}" is not expected here.'
        hint = Near(attribute.name, _TOP_LEVEL)
        yield OffsetDiagnostic("Unsupported argument", detail, attribute.start, attribute.name_end, hint)
    for block in body.blocks:
        if block.type not in _TOP_LEVEL:
            detail = f'Blocks of type "{block.type}" are not expected here.'
            hint = Near(block.type, _TOP_LEVEL, "A job file holds one job block, variable blocks and locals.")
            yield OffsetDiagnostic("Unsupported block type", detail, block.start, block.name_end, hint)


def _job_block(source: SourceText, body: Body, findings: Findings) -> BlockNode | None:
    jobs = [block for block in body.blocks if block.type == "job"]
    if not jobs:
        hint = 'Write job "name" { ... }.'
        findings.add(source, OffsetDiagnostic("Missing job block", "A job file needs a job block.", 0, 0, hint))
        return None
    for extra in jobs[1:]:
        line = source.position(jobs[0].start)[0]
        detail = f"Only one job block is allowed. Another was defined on line {line}."
        hint = "Move each job to a file of its own, and run each file."
        findings.add(source, OffsetDiagnostic("Duplicate job block", detail, extra.start, extra.name_end, hint))
    return jobs[0]


def _spread_job_level(job: ApiObject) -> None:
    """Copy job-level settings to the tasks."""
    alone = [{"Name": task["Name"], "Tasks": [task]} for task in job.pop("-tasks", [])]
    if alone:
        job["TaskGroups"] = [*alone, *job.get("TaskGroups", [])]
    job_vault = job.pop("-vault", None)
    secrets = job.pop("-secrets", [])
    for group in job.get("TaskGroups", ()):
        vault = group.pop("-vault", None) or job_vault
        for task in group.get("Tasks", ()):
            if vault is not None and "Vault" not in task:
                task["Vault"] = deepcopy(vault)
            if secrets:
                task["Secrets"] = [*task.get("Secrets", []), *deepcopy(secrets)]
