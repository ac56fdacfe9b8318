"""A written job reads back as the same job."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt_jobspec import format_source, parse_job, write_job
from yurt_jobspec.schema import BlockSchema, schema_of

FULL = """
job "full" {
  name        = "Full"
  type        = "batch"
  datacenters = ["dc1", "dc2"]
  meta = {
    "a.b" = "dotted"
    plain = "x"
  }
  constraint {
    distinct_hosts = true
  }
  constraint {
    attribute = "${meta.rack}"
    operator  = "regexp"
    value     = "^r[0-9]+$"
  }
  periodic {
    crons = ["@daily"]
  }
  group "g" {
    count          = 2
    shutdown_delay = "1m30s"
    network {
      mode = "bridge"
      port "http" {
        static = 8080
      }
      port "db" {}
    }
    volume "data" {
      type   = "host"
      source = "data"
    }
    scaling {
      max = 5
      policy {
        cooldown = "1m"
      }
    }
    service {
      name = "web"
      port = "http"
      check {
        type     = "http"
        path     = "/"
        interval = "10s"
        timeout  = "1500ms"
        header {
          Accept = ["a", "b"]
        }
      }
    }
    task "t" {
      driver = "docker"
      config {
        image  = "web:1"
        labels = { "a.b" = "c", d = { e = 1 } }
        mount {
          type   = "bind"
          source = "/x"
        }
        mount {
          type = "tmpfs"
        }
        ports = ["http"]
        ratio = 1.5
      }
      env {
        PATH_LIKE = "$${HOME}/bin:%%{x}:${NOMAD_TASK_DIR}"
        QUOTED    = "a \\"b\\" \\\\ \\t c"
      }
      template {
        destination = "local/a"
        splay       = "1s"
        data        = <<EOT
{{ range service "db" }}
  address = $${not_ours} {{ .Address }}
{{ end }}
EOT
      }
      identity {
        name = "vault"
        aud  = ["v"]
      }
      identity {
        env = true
      }
      scaling "cpu" {
        max = 1000
      }
      resources {
        cpu = 100
        device "nvidia/gpu" {
          count = 1
        }
      }
    }
  }
}
"""


def read(text: str) -> dict[str, Any]:
    return parse_job(text, filename="written.hcl")


def test_a_job_with_everything_comes_back() -> None:
    job = read(FULL)
    written = write_job(job)

    assert read(written.text) == job
    assert written.lost == ()


def test_what_is_written_is_formatted_and_written_the_same_again() -> None:
    text = write_job(read(FULL)).text

    assert format_source(text) == text
    assert write_job(read(text)).text == text


def test_people_can_read_what_is_written() -> None:
    text = write_job(read(FULL)).text

    for line in (
        "    distinct_hosts = true",
        '    attribute = "${meta.rack}"',
        '    shutdown_delay = "1m30s"',
        '        timeout  = "1s500ms"',
        '        PATH_LIKE = "${HOME}/bin:%%{x}:${NOMAD_TASK_DIR}"',
        "        data        = <<EOF",
        "  address = ${not_ours} {{ .Address }}",
    ):
        assert line in text.split("\n"), line


def test_bookkeeping_of_a_server_is_left_out_and_other_losses_are_told() -> None:
    job = {**read(FULL), "Status": "running", "Version": 3, "Wings": 2}

    written = write_job(job)

    assert read(written.text) == read(FULL)
    assert written.lost == ("Job.Wings",)


@pytest.mark.parametrize(
    "groups",
    ["x", 3, ["x"], [{"Name": "g", "Tasks": {"a": 1}}], [{"Name": "g", "Networks": ["x"]}], [{"Services": 1}]],
)
def test_a_field_of_the_wrong_shape_is_a_loss_not_a_crash(groups: Any) -> None:
    assert write_job({"ID": "j", "TaskGroups": groups}).lost


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).map(lambda t: unicodedata.normalize("NFC", t))
TRICKY = st.lists(
    st.sampled_from(
        ["${", "%{", "$", "%", "$${", "%%{", "}", "{", '"', "\\", "\n", "EOF", "\nEOF\n", " ", "\r", "a", "attr.x",
         "${attr.x}", "${var.y}", "${true}", "~", "é", "\0", "${a[0]}", '${a["b"]}', "<<EOF\n", "\t", "//", "#"]
    ),
    max_size=8,
).map("".join)  # fmt: skip
STRINGS = TEXTS | TRICKY | TRICKY.map(lambda text: text + "\n")
NAMES = STRINGS.filter(bool) | st.sampled_from(["image", "a-b", "a.b", "for", "null", "if", "var", "0", "//", "é"])
NUMBERS = (
    st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda n: n != int(n) or abs(n) < 2**53)
)  # fmt: skip
INNER = st.recursive(
    STRINGS | NUMBERS | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(NAMES, INNER, max_size=3)
FREE = st.dictionaries(
    NAMES, STRINGS | NUMBERS | st.booleans() | st.lists(INNER, max_size=3) | OBJECTS.map(lambda o: [o]), max_size=4
)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "string": STRINGS,
    "bool": st.booleans(),
    "duration": st.integers(-(2**63) + 1, 2**63 - 1),
    "durations": st.lists(st.integers(-(2**63) + 1, 2**63 - 1), max_size=3),
    "strings": st.lists(STRINGS, max_size=3),
    "ints": st.lists(st.integers(0, 65535), max_size=3),
    "int": st.integers(-(2**63), 2**63 - 1),
    "uint": st.integers(0, 2**64 - 1),
    "int8": st.integers(-128, 127),
    "uint8": st.integers(0, 255),
    "uint16": st.integers(0, 65535),
    "uint32": st.integers(0, 2**32 - 1),
    "count": st.integers(0, 2**64 - 1),
    "size": st.integers(0, 2**64 - 1),
}
MAPS = {
    "map": st.dictionaries(NAMES, STRINGS, max_size=3),
    "multimap": st.dictionaries(NAMES, st.lists(STRINGS, max_size=2), max_size=3),
    "free": FREE,
}
DEPTH = 4


@st.composite
def blocks(draw: st.DrawFn, table: str, depth: int = 0) -> dict[str, Any]:
    """Any block of the table, as the reader would make it."""
    schema = schema_of(table)
    value: dict[str, Any] = dict(schema.zeros)
    value |= {field: draw(STRINGS) for field in schema.labels}
    for field in schema.attributes.values():
        plain = not field.field.startswith("-") and field.field not in schema.labels
        if plain and (field.required or draw(st.integers(0, 3)) == 0):
            value[field.field] = draw(KINDS[field.kind])
    for child in schema.blocks.values():
        if child.field.startswith("-") or depth > DEPTH or draw(st.integers(0, 2)):
            continue
        if child.kind in MAPS:
            value[child.field] = draw(MAPS[child.kind])
        elif child.kind == "block":
            value[child.field] = draw(blocks(child.block, depth + 1))
        elif child.kind == "blocks":
            value[child.field] = draw(st.lists(blocks(child.block, depth + 1), min_size=1, max_size=2))
        else:
            items = draw(st.lists(blocks(child.block, depth + 1), max_size=2))
            value |= {child.field: {item[schema_of(child.block).labels[0]]: item for item in items}} if items else {}
    return _as_read(schema, value)


def _as_read(schema: BlockSchema, value: dict[str, Any]) -> dict[str, Any]:
    """The rules of single blocks that a random value must keep to be one that a file can say."""
    match schema.name:
        case "Constraint" | "Affinity":
            value["Operand"] = value["Operand"] or "="
        case "NetworkResource":
            value.pop("ReservedPorts", None)
            ports = value.pop("DynamicPorts", [])
            reserved, dynamic = [p for p in ports if p["Value"]], [p for p in ports if not p["Value"]]
            value |= {"ReservedPorts": reserved} if reserved else {}
            value |= {"DynamicPorts": dynamic} if dynamic else {}
        case "PeriodicConfig":
            value["SpecType"] = "cron"
        case "ScalingPolicy":
            value["Type"] = "horizontal"
        case "TaskScalingPolicy":
            value.pop("-name")
            value["Type"] = "vertical_cpu"
        case "Template":
            value = {"ChangeMode": "restart", "Splay": 5 * 10**9, "Perms": "0644", "ErrMissingKey": False, **value}
        case "ChangeScript":
            value = {"Args": [], "Timeout": 5 * 10**9, "FailOnError": False, "RunOnFirstRender": False, **value}
        case "Vault":
            value = {"Env": True, "DisableFile": False, "ChangeMode": "restart", **value}
        case "Task":
            identities = value.pop("Identities", [])
            value |= {"Identities": [i for i in identities if i["Name"] not in ("", "default")]} if identities else {}
            default = [i for i in identities if i["Name"] in ("", "default")]
            value |= {"Identity": default[0]} if default else {}
            value |= {"ScalingPolicies": value["ScalingPolicies"][:1]} if "ScalingPolicies" in value else {}
    return value


@settings(max_examples=200, deadline=None)
@given(blocks("Job"))
def test_any_job_survives_writing_and_reading(job: dict[str, Any]) -> None:
    job.setdefault("Name", job["ID"])
    written = write_job(job)

    assert read(written.text) == job
    assert format_source(written.text) == written.text


@settings(max_examples=300, deadline=None)
@given(FREE)
def test_any_driver_configuration_survives_writing_and_reading(config: dict[str, Any]) -> None:
    task = {**read(FULL)["TaskGroups"][0]["Tasks"][0], "Config": config}
    job = {"ID": "j", "Name": "j", "Dispatched": False, "TaskGroups": [{"Name": "g", "Tasks": [task]}]}

    assert read(write_job(job).text) == job


@settings(max_examples=300, deadline=None)
@given(STRINGS)
def test_any_text_survives_writing_and_reading(text: str) -> None:
    job = {"ID": "j", "Name": text, "Dispatched": False, "Meta": {"k": text}}

    assert read(write_job(job).text) == job
