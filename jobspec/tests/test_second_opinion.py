"""python-hcl2, a parser and writer that others wrote, agrees on the part of the language that it knows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from yurt_jobspec import format_source, parse_body, parse_job, write_job

hcl2 = pytest.importorskip("hcl2", reason="python-hcl2 is not installed")

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "jobspecs"
HEREDOC = re.compile(r"<<(\w+)\n(.*?)^\s*\1\Z", re.DOTALL | re.MULTILINE)

SOURCE = """
# a comment
job "web" {
  datacenters = ["dc1", "dc2"] // another
  priority    = 70
  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }
  meta = { "a.b" = "dotted", c = "d" }
  group "front" {
    count = 3
    network {
      port "http" { static = 8080 }
      port "db" {}
    }
    task "server" {
      driver = "docker"
      leader = true
      config {
        image  = "web:1"
        args   = ["-x", "${NOMAD_PORT_http}", "$${not} %%{this}"]
        ratio  = 1.5
        labels = { "a.b" = { c = [1, 2] } }
        mount { type = "bind" }
        mount { type = "tmpfs" }
      }
      template {
        destination = "local/a"
        data        = <<EOF
{{ range service "db" }}
  \\t "quoted" ${attr.x}
{{ end }}
EOF
      }
    }
  }
}
"""


def theirs(text: str) -> Any:
    """What python-hcl2 reads."""
    options = hcl2.SerializationOptions(strip_string_quotes=True, explicit_blocks=False, with_comments=False)
    return _plain(hcl2.loads(text, serialization_options=options))


def _plain(value: Any) -> Any:
    """Heredocs and escaped sequences, which it hands on as they are written, as the texts that they stand for; a list
    of one object as that object.
    """
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        items = [_plain(item) for item in value]
        return items[0] if len(items) == 1 and isinstance(items[0], dict) else items
    if isinstance(value, str):
        heredoc = HEREDOC.fullmatch(value)
        return (heredoc[2] if heredoc else value).replace("$${", "${").replace("%%{", "%{")
    return value


def ours(text: str) -> Any:
    """What this parser reads, in the same form."""
    return _plain(parse_body(text, filename="second.hcl"))


def test_both_read_the_same() -> None:
    assert ours(SOURCE) == theirs(SOURCE)


def test_both_read_the_same_from_what_is_formatted_and_from_what_is_written() -> None:
    written = write_job(parse_job(SOURCE, filename="second.hcl")).text

    assert theirs(format_source(SOURCE)) == ours(SOURCE)
    assert theirs(written) == ours(written)


def test_what_python_hcl2_writes_reads_as_the_same_job() -> None:
    assert parse_job(hcl2.dumps(hcl2.loads(SOURCE)), filename="second.hcl") == parse_job(SOURCE, filename="second.hcl")


@pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus of job files in ../shared next to the checkout")
def test_both_read_the_same_from_jobs_of_the_corpus() -> None:
    golds = sorted(CORPUS.glob("*/*.canon.json"))[::20]
    for gold in golds:
        written = write_job(json.loads(gold.read_text())).text
        if "<<-" not in written:
            assert theirs(written) == ours(written), gold.name
    assert golds
