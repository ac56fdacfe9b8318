"""No file, however hostile, takes long or ends in anything but a JobspecError."""

from __future__ import annotations

import pytest
from yurt_jobspec import Diagnostic, JobspecError, parse_body, parse_job
from yurt_jobspec.findings import MAX_FINDINGS


def job(expression: str, *, before: str = "") -> str:
    return before + 'job "j" {\n  meta {\n    a = ' + expression + "\n  }\n}\n"


def lists(levels: int) -> str:
    rows = "".join(f"  a{level} = [{', '.join([f'local.a{level - 1}'] * 10)}]\n" for level in range(1, levels))
    return 'locals {\n  a0 = "lol"\n' + rows + "}\n"


def strings(levels: int) -> str:
    rows = "".join(f'  a{level} = "{f"${{local.a{level - 1}}}" * 10}"\n' for level in range(1, levels))
    return 'locals {\n  a0 = "lol"\n' + rows + "}\n"


LOOP = "jsonencode([for a in range(1000) : [for b in range(1000) : [for c in range(10) : 1]]])"
CHAIN = "locals {\n" + "".join(f"  a{n} = local.a{n + 1}\n" for n in range(5000)) + "  a5000 = 1\n}\n"
CIRCLE = "locals {\n  a = local.b\n  b = local.a\n}\n"
ALIASES = "a: &a [1,1,1,1,1,1,1,1,1]\\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\\n" for n in range(9)
)
DYNAMIC = """
job "j" {
  dynamic "group" {
    for_each = range(1000)
    labels   = ["g"]
    content {
      dynamic "task" {
        for_each = range(1000)
        labels   = ["t"]
        content {}
      }
    }
  }
}
"""
HOSTILE = {
    "brackets": job("[" * 10_000 + "]" * 10_000),
    "parentheses": job("(" * 10_000),
    "blocks": "a {\n" * 10_000,
    "unary operators": job("!" * 10_000 + "true"),
    "conditionals": job("true ? 1 : " * 10_000 + "1"),
    "interpolations": job('"${' * 5_000),
    "directives": job('"' + "%{ if true }" * 5_000 + '"'),
    "splats": job("a" + "[*]" * 10_000),
    "a loop over ten million": job(LOOP),
    "shared lists": job("jsonencode(local.a19)", before=lists(20)),
    "shared strings": job("local.a19", before=strings(20)),
    "a long file": "#" * 5_000_000,
    "a long number": job("9" * 100_000),
    "a large exponent": job("1e999999"),
    "a large power": job("pow(9999, 9999)"),
    "backtracking": job(f'regex_replace("{"a" * 40}!", "(a|a)*$", "")'),
    "dynamic blocks": DYNAMIC,
    "JSON brackets": '{"a":' * 10_000,
    "decoded brackets": job('jsondecode("' + "[" * 5_000 + '")'),
    "YAML aliases": job(f'yamldecode("{ALIASES}")'),
    "circular locals": job("local.a", before=CIRCLE),
    "a chain of locals": job("local.a0", before=CHAIN),
    "open quotes": '"' * 100_000,
    "open comments": "/*" * 100_000,
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_time(name: str) -> None:
    with pytest.raises(JobspecError) as caught:
        parse_job(HOSTILE[name], filename="hostile.hcl")
    assert caught.value.diagnostics[0].detail


def test_a_generic_body_has_the_same_bounds() -> None:
    with pytest.raises(JobspecError):
        parse_body("a = " + "[" * 10_000, filename="agent.hcl")


def test_long_chains_of_operators_are_fine() -> None:
    assert parse_job(job("1" + " + 1" * 20_000), filename="long.hcl")["Meta"] == {"a": "20001"}


def findings(source: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(JobspecError) as caught:
        parse_job(source, filename="hostile.hcl")
    return caught.value.diagnostics


WRONG_EVERYWHERE = {
    "stray characters": "^" * 200_000,
    "stray lines": "a b c\n" * 100_000,
    "unknown arguments": 'job "j" {\n' + "".join(f"datacenter{n} = 1\n" for n in range(50_000)) + "}\n",
    "unknown functions": 'job "j" {\n  meta = {\n' + "".join(f"a{n} = uppper(1)\n" for n in range(20_000)) + "}\n}\n",
    "wide characters": "é" * 100_000 + "^" * 50_000,
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", WRONG_EVERYWHERE)
def test_of_many_errors_the_first_are_told_and_the_rest_counted(name: str) -> None:
    shown = findings(WRONG_EVERYWHERE[name])

    assert len(shown) == MAX_FINDINGS + 1
    assert shown[-1].summary.endswith(" more errors")
    assert shown[-1].line is None


def test_the_same_error_of_many_generated_blocks_is_told_once() -> None:
    shown = findings(
        'job "j" {\n  dynamic "group" {\n    for_each = range(99)\n    labels = ["g${group.key}"]\n'
        "    content {\n      cuont = 1\n    }\n  }\n}\n"
    )

    assert [(item.line, item.hint) for item in shown] == [(6, 'Did you mean "count"?')]
