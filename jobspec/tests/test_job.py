"""Job files to jobs: blocks, defaults of the file format, variables, dynamic blocks, JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from yurt_jobspec import JobspecError, parse_body, parse_body_with_positions, parse_job, parse_job_with_positions
from yurt_jobspec.durations import parse_duration
from yurt_jobspec.schema import block_names, schema_of

WEB = """
variable "image" {
  type    = string
  default = "web:1"
  validation {
    condition     = var.image != ""
    error_message = "The image must be named."
  }
}

variable "ports" {
  type    = list(number)
  default = [8080]
}

locals {
  label = "${var.image}-${length(var.ports)}"
}

job "web" {
  datacenters = ["dc1"]
  meta { label = local.label }

  constraint { distinct_hosts = true }

  group "front" {
    count = "2"
    network {
      port "http" { to = 80 }
      port "admin" { static = 9000 }
    }

    task "serve" {
      driver       = "docker"
      kill_timeout = "90s"
      config {
        image = var.image
        mount {
          type = "bind"
        }
        labels = { tier = "front" }
      }
      env { KERNEL = "${attr.kernel.name}" }
      dynamic "template" {
        for_each = var.ports
        content {
          destination = "local/${template.key}-${template.value}.conf"
          data        = "x"
        }
      }
    }
  }
}
"""


def parse(source: str, **options: Any) -> dict[str, Any]:
    return parse_job(source, filename="web.hcl", **options)


def errors(source: str, **options: Any) -> list[tuple[int | None, int | None, str]]:
    with pytest.raises(JobspecError) as caught:
        parse(source, **options)
    return [(item.line, item.column, item.summary) for item in caught.value.diagnostics]


def task_of(job: dict[str, Any]) -> dict[str, Any]:
    task: dict[str, Any] = job["TaskGroups"][0]["Tasks"][0]
    return task


def test_blocks_become_the_fields_of_the_api() -> None:
    job = parse(WEB)
    assert (job["ID"], job["Name"], job["Datacenters"]) == ("web", "web", ["dc1"])
    assert job["Meta"] == {"label": "web:1-1"}
    assert job["Constraints"] == [{"LTarget": "", "RTarget": "true", "Operand": "distinct_hosts"}]
    group = job["TaskGroups"][0]
    assert group["Count"] == 2
    assert [port["Label"] for port in group["Networks"][0]["DynamicPorts"]] == ["http"]
    assert [port["Value"] for port in group["Networks"][0]["ReservedPorts"]] == [9000]


def test_driver_config_is_plain_data_with_blocks_and_objects_as_lists() -> None:
    assert task_of(parse(WEB))["Config"] == {
        "image": "web:1",
        "mount": [{"type": "bind"}],
        "labels": [{"tier": "front"}],
    }


def test_text_for_run_time_is_kept() -> None:
    assert task_of(parse(WEB))["Env"] == {"KERNEL": "${attr.kernel.name}"}


def test_durations_are_nanoseconds() -> None:
    assert task_of(parse(WEB))["KillTimeout"] == 90 * 10**9


@pytest.mark.parametrize("text", ["1" * 65 + "s", "\N{ARABIC-INDIC DIGIT ONE}s"])
def test_a_long_text_or_other_digits_are_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration") as caught:
        parse_duration(text)
    assert len(str(caught.value)) < 150


def test_a_dynamic_block_is_generated_for_each_element() -> None:
    job = parse(WEB, variables=["ports=[1, 2]"])
    assert [item["DestPath"] for item in task_of(job)["Templates"]] == ["local/0-1.conf", "local/1-2.conf"]


def test_templates_and_vault_start_from_the_defaults_of_the_file_format() -> None:
    template = task_of(parse(WEB))["Templates"][0]
    assert (template["ChangeMode"], template["Splay"], template["Perms"]) == ("restart", 5 * 10**9, "0644")


def test_later_sources_of_a_variable_win(tmp_path: Path) -> None:
    file = tmp_path / "web.vars"
    file.write_text('image = "from-file"\n')
    environ = {"NOMAD_VAR_image": "from-env", "NOMAD_VAR_other": "ignored"}
    assert task_of(parse(WEB, environ=environ))["Config"]["image"] == "from-env"
    assert task_of(parse(WEB, environ=environ, var_files=[file]))["Config"]["image"] == "from-file"
    job = parse(WEB, environ=environ, var_files=[file], variables=["image=a", "image=b"])
    assert task_of(job)["Config"]["image"] == "b"


def test_a_variable_file_may_be_json(tmp_path: Path) -> None:
    file = tmp_path / "web.json"
    file.write_text(json.dumps({"image": "from-json", "ports": [7]}))
    assert task_of(parse(WEB, var_files=[file]))["Config"]["image"] == "from-json"


def test_an_undeclared_variable_is_an_error_only_when_strict() -> None:
    assert errors(WEB, variables=["ghost=1"]) == [(None, None, "Undefined -var variable")]
    assert parse(WEB, variables=["ghost=1"], strict=False)["ID"] == "web"


def test_a_failed_validation_shows_its_message() -> None:
    with pytest.raises(JobspecError, match="The image must be named"):
        parse(WEB, variables=["image="])


def test_an_unset_variable_is_named() -> None:
    assert errors('variable "x" {}\njob "j" {}') == [(1, 1, 'Unset variable "x"')]


def test_locals_that_refer_to_one_another_in_a_circle_are_refused() -> None:
    assert {item[2] for item in errors('locals {\n a = local.b\n b = local.a\n}\njob "j" {}')} == {
        "Circular local definition"
    }


def test_all_mistakes_are_found_at_once() -> None:
    group = '  group "g" {\n    tsk "t" {}\n    count = var.none\n  }\n'
    source = 'job "j" {\n  datacenter = ["a"]\n  priority = "high"\n' + group + "}\n"
    assert sorted(errors(source), key=lambda item: item[:2]) == [
        (2, 3, "Unsupported argument"),
        (3, 15, "Unsuitable value type"),
        (5, 5, "Unsupported block type"),
        (6, 16, "Unsupported attribute"),
    ]


def test_all_syntax_mistakes_are_found_at_once() -> None:
    found = errors('job "j" {\n  a = \n  b = [1 2]\n  "c" = 3\n}\n')
    assert [item[0] for item in found] == [2, 3, 4]


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(JobspecError) as caught:
        parse('job "j" {\n  datacenter = ["a"]\n}')
    assert caught.value.diagnostics[0].hint == 'Did you mean "datacenters"?'


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ('job "j" {\n  type = "a"\n  type = "b"\n}', (3, 3)),
        ('job "j" {\n  update {}\n  update {}\n}', (3, 3)),
        ('job "a" "b" {}', (1, 9)),
        ("job {}", (1, 5)),
        ('job "j" {\n  group "g" {\n    scaling {\n    }\n  }\n}', (3, 13)),
        ('job "j" {\n  group "g" {', (2, 13)),
        ('job "${x}" {}', (1, 6)),
        ('job "j" {\n  a = 1, b = 2\n}', (2, 8)),
        ('job "j" { type = "a"\n}', (1, 21)),
        ('job "j" {\n  dynamic "group" {\n    content {}\n  }\n}', (2, 19)),
        ('job "j" {}\njob "k" {}', (2, 1)),
        ('task "t" {}', (1, 1)),
    ],
)
def test_a_mistake_is_reported_where_it_is(source: str, place: tuple[int, int]) -> None:
    assert errors(source)[0][:2] == place


def test_a_job_level_task_becomes_a_group_and_inherits_the_vault_block() -> None:
    job = parse('job "j" {\n  vault { role = "r" }\n  task "t" { driver = "exec" }\n}')
    group = job["TaskGroups"][0]
    assert (group["Name"], group["Tasks"][0]["Vault"]["Role"]) == ("t", "r")


def test_identities_are_split_into_the_default_and_the_named_ones() -> None:
    job = parse('job "j" {\n  task "t" {\n    identity { env = true }\n    identity { name = "aws" }\n  }\n}')
    task = task_of(job)
    assert task["Identity"]["Env"] is True
    assert [item["Name"] for item in task["Identities"]] == ["aws"]


def test_file_functions_read_below_the_base_folder_only(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "a.txt").write_text("content")
    (tmp_path / "outside.txt").write_text("secret")
    (tmp_path / "inside" / "link.txt").symlink_to(tmp_path / "outside.txt")
    base = tmp_path / "inside"
    source = 'job "j" {{\n  meta {{ a = file("{}") }}\n}}'
    assert parse(source.format("a.txt"), base_dir=base)["Meta"] == {"a": "content"}
    for path in ("../outside.txt", "link.txt", str(tmp_path / "outside.txt"), "none.txt"):
        assert errors(source.format(path), base_dir=base)[0][2] == "Error in function call"
    assert errors(source.format("a.txt"))[0][2] == "Error in function call"


JSON_JOB = {
    "//": "a comment",
    "variable": {"tag": {"type": "string", "default": "v1"}},
    "job": {
        "web": {
            "datacenters": ["dc1"],
            "meta": {"tag": "${var.tag}-${attr.kernel.name}"},
            "group": [
                {
                    "front": {
                        "network": {"port": {"http": {"static": 80}, "admin": {}}},
                        "task": {"serve": {"driver": "docker", "config": {"image": "web", "args": ["a", 1]}}},
                    }
                }
            ],
        }
    },
}


def test_a_job_file_may_be_json() -> None:
    job = parse(json.dumps(JSON_JOB))
    assert job["Meta"] == {"tag": "v1-${attr.kernel.name}"}
    assert task_of(job)["Config"] == {"image": "web", "args": ["a", 1]}
    network = job["TaskGroups"][0]["Networks"][0]
    assert (network["ReservedPorts"][0]["Label"], network["DynamicPorts"][0]["Label"]) == ("http", "admin")


def test_mistakes_in_json_have_places() -> None:
    source = '{"job": {"j": {\n  "grop": {},\n  "priority": "${1 + true}"\n}}}'
    assert [item[:2] for item in errors(source)] == [(2, 3), (3, 15)]


def test_positions_lead_from_the_job_back_to_the_file() -> None:
    job, positions = parse_job_with_positions(WEB, filename="web.hcl")
    path = ("TaskGroups", 0, "Tasks", 0, "Config", "image")
    line = WEB.split("\n").index("        image = var.image") + 1
    assert positions[path][:3] == ("web.hcl", line, 9)
    assert positions[("TaskGroups", 0, "Networks", 0, "ReservedPorts", 0, "Value")].line > 0
    nearest = positions.nearest(("TaskGroups", 0, "Tasks", 0, "Driver", "none"))
    assert nearest is not None and nearest.line == line - 3
    assert job["ID"] == "web"


def test_a_generic_body_keeps_every_name() -> None:
    source = (
        'name = "n"\nports {\n  http = 1\n}\nplugin "docker" {\n  config {\n    "quoted" = [1, 2.5, true]\n  }\n}\n'
    )
    data, positions = parse_body_with_positions(source, filename="agent.hcl")
    assert data == {
        "name": "n",
        "ports": [{"http": 1}],
        "plugin": [{"docker": [{"config": [{"quoted": [1, 2.5, True]}]}]}],
    }
    assert positions[("plugin", 0, "docker", 0, "config", 0, "quoted")].line == 7
    assert parse_body('{"a": {"b": 1}}', filename="agent.json") == {"a": {"b": 1}}


def test_every_table_can_be_read_and_names_known_blocks() -> None:
    for name in block_names():
        schema = schema_of(name)
        assert all(child.block in block_names() for child in schema.blocks.values() if child.block), name


DEVICES = """
job "x" {
  group "g" {
    count = 4
    gang { min = 2 }
    task "t" {
      driver = "raw_exec"
      resources {
        device "nvidia/gpu" {
          count = "all"
          ids   = ["GPU-1", "GPU-2"]
          topology { nvlink = "require" }
        }
        device "gpu" {
          first_available "nvidia/gpu/H200" {}
          first_available "nvidia/gpu/A100" { count = 2 }
        }
        device "nvidia/gpu" {
          share   = "mps"
          memory  = "20GiB"
          compute = 30
        }
      }
    }
  }
}
"""


def test_devices_are_all_alternatives_pinned_or_shared_and_groups_are_gangs() -> None:
    group = parse_job(DEVICES, filename="x.nomad.hcl")["TaskGroups"][0]
    whole, either, shared = group["Tasks"][0]["Resources"]["Devices"]
    assert group["Gang"] == {"Min": 2}
    assert (whole["Count"], whole["AllOfNode"], whole["Topology"]) == (1, True, {"NVLink": "require"})
    pinned = {"LTarget": "${device.ids}", "Operand": "set_contains_any", "RTarget": "GPU-1,GPU-2"}
    assert whole["Constraints"] == [pinned]
    assert [(each["Name"], each.get("Count")) for each in either["FirstAvailable"]] == [
        ("nvidia/gpu/H200", None), ("nvidia/gpu/A100", 2)
    ]  # fmt: skip
    assert (shared["Share"], shared["MemoryMB"], shared["Compute"]) == ("mps", 20480, 30)


@pytest.mark.parametrize(
    ("text", "size"), [("512", 512), ('"512MiB"', 512), ('"2GB"', 1908), ('"1 TiB"', 2**20), ('"7"', 7)]
)
def test_a_size_is_a_number_of_mib_or_has_a_unit(text: str, size: int) -> None:
    source = DEVICES.replace('"20GiB"', text)
    devices = parse_job(source, filename="x.nomad.hcl")["TaskGroups"][0]["Tasks"][0]["Resources"]["Devices"]
    assert devices[2]["MemoryMB"] == size


@pytest.mark.parametrize("text", ['"20GiBs"', '"many"', "-1", '"1.5GiB"', '"20 parsec"'])
def test_a_size_without_meaning_is_refused_and_the_right_forms_are_told(text: str) -> None:
    with pytest.raises(JobspecError) as error:
        parse_job(DEVICES.replace('"20GiB"', text), filename="x.nomad.hcl")
    assert "MiB" in str(error.value) or "whole number" in str(error.value)


@pytest.mark.parametrize(
    ("argument", "line", "column"),
    [
        ("user = null", 4, 8),
        ("leader = null", 4, 10),
        ("shutdown_delay = null", 4, 18),
        ("env = { A = null }", 4, 7),
        ("meta {\nA = null\n}", 5, 5),
        ('service {\ntags = ["a", null]\n}', 5, 8),
        ("service {\nport = null\n}", 5, 8),
        ('action "a" {\ncommand = null\n}', 5, 11),
        ('action "a" {\ncommand = "x"\nargs = [null]\n}', 6, 8),
    ],
)
def test_null_is_no_value_where_one_is_required(argument: str, line: int, column: int) -> None:
    source = f'job "x" {{\ngroup "g" {{\ntask "t" {{\n{argument}\n}}\n}}\n}}\n'

    with pytest.raises(JobspecError, match="null value is not allowed") as caught:
        parse_job(source, filename="j.hcl")

    (found,) = caught.value.diagnostics
    assert (found.line, found.column) == (line, column)


def test_null_leaves_out_what_need_not_have_a_value() -> None:
    task = 'task "t" {\nconfig {\na = null\n}\n}'
    source = f'job "x" {{\nregion = null\ndatacenters = null\ngroup "g" {{\ncount = null\n{task}\n}}\n}}'

    job = parse_job(source, filename="j.hcl")

    assert job.get("Region") is None
    assert job["TaskGroups"][0]["Tasks"][0]["Config"] == {}


RENDEZVOUS = """
job "train" {
  group "w" {
    gang {
      elastic = true
      rendezvous {
        framework = "torch"
        port      = "meet"
        barrier   = "5m"
      }
    }
    task "t" {
      driver = "exec"
    }
  }
}
"""


def test_a_gang_has_a_rendezvous() -> None:
    group = parse_job(RENDEZVOUS, filename="x.nomad.hcl")["TaskGroups"][0]
    meet = {"Framework": "torch", "Port": "meet", "Interface": None, "Barrier": 300_000_000_000}
    assert group["Gang"]["Elastic"] is True
    assert {name: value for name, value in group["Gang"]["Rendezvous"].items() if value is not None} == {
        name: value for name, value in meet.items() if value is not None
    }
