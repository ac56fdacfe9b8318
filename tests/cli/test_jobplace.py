"""The server's words about a job lead to the lines of its file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from yurt.api.decode import decode_job
from yurt.cli.files.finding_positions import findings, follow, messages
from yurt.rules.canonical import canonicalize_job
from yurt.rules.references import reference_doubts
from yurt.rules.validation.job import multi_error, validate_job
from yurt.server.resources.node_names import NodeNames
from yurt_jobspec import parse_job_with_positions

Run = Callable[..., tuple[int, str, str]]

JOB = """
job "web" {
  type     = "service"
  priority = 50
  constraint {
    attribute = "${attr.kernel.name}"
    operator  = "regexp"
    value     = "(linux"
  }
  group "front" {
    count = -1
    network {
      mode = "bridge"
      port "http" {
        static = 99999
      }
    }
    volume "data" {
      type   = "floppy"
      source = "data"
    }
    restart {
      interval = "1s"
    }
    update {
      health_check = "maybe"
    }
    service {
      name = "web"
      port = "nope"
      check {
        name     = "alive"
        type     = "icmp"
        interval = "10s"
        timeout  = "2s"
      }
    }
    task "server" {
      driver = "raw_exec"
      constraint {
        attribute = "${attr.cpu.arch}"
        operator  = "like"
        value     = "amd64"
      }
      config {
        comand = "/bin/true"
      }
      resources {
        cpu    = 100
        memory = 1
      }
      logs {
        max_files = 0
      }
      template {
        data        = "x"
        destination = "../../../etc/passwd"
      }
      artifact {
        source = "https://example.com/a"
        mode   = "hologram"
      }
      volume_mount {
        volume      = "unknown"
        destination = "/data"
      }
    }
  }
}
"""


def placed(text: str) -> dict[str, str]:
    """The lines that a server's text leads to, by the end of each message."""
    job, positions = parse_job_with_positions(JOB, filename="web.hcl")
    lines = JOB.split("\n")
    return {item.detail: lines[item.line - 1].strip() if item.line else "" for item in findings(job, positions, text)}


def test_everything_that_validation_finds_is_placed_at_the_line_to_change() -> None:
    job, _ = parse_job_with_positions(JOB, filename="web.hcl")
    errors, _warnings = validate_job(decode_job(canonicalize_job(job))[0])

    found = placed(multi_error(errors))

    assert all(found.values()), found
    assert set(found.values()) - {'task "server" {'} == {
        'value     = "(linux"',
        "count = -1",
        'port "http" {',
        'type   = "floppy"',
        'interval = "1s"',
        'health_check = "maybe"',
        'port = "nope"',
        'type     = "icmp"',
        'operator  = "like"',
        "memory = 1",
        "max_files = 0",
        'destination = "../../../etc/passwd"',
        'mode   = "hologram"',
        'volume      = "unknown"',
    }


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ('Task group front Task "server" validation failed: config.comand: unknown option', 'comand = "/bin/true"'),
        ('Task group front Task "server" validation failed: config.command: is required', "config {"),
        ("Job.TaskGroups[0].Tasks[0].Resources.MemoryMB is too small", "memory = 1"),
        ('Task group front Task "server": no node has shown which options driver "x" takes', 'driver = "raw_exec"'),
        ('Task group front Task "server" validation failed: unknown driver "raw_exe": no', 'driver = "raw_exec"'),
        ('Group "front" has warnings: Task "server" has warnings: something new', 'task "server" {'),
        ("Task group front validation failed: something new", 'group "front" {'),
        ("Task group back validation failed: something new", ""),
        ('job "web" is in nonexistent node pool "gpu"', 'job "web" {'),
        (
            "Task group front validation failed: Service[web] validation failed: check #1 validation failed: x",
            "check {",
        ),
        ("something new", ""),
        ("Constraint 9 validation failed: Regular expression failed to compile: x", ""),
    ],
)
def test_a_message_leads_to_a_line(message: str, line: str) -> None:
    assert placed(message) == {message: line}


def test_what_a_job_says_of_its_place_and_time_is_shown_where_it_says_it() -> None:
    text = 'job "x" {\n  node_pool = "gpu"\n  region = "mars"\n  periodic {\n    cron = "61 * * * *"\n  }\n}\n'
    job, positions = parse_job_with_positions(text, filename="x.hcl")
    messages = (
        'job "x" is in nonexistent node pool "gpu"',
        "No path to region",
        'periodic validation failed: cron m "6',
    )
    assert [found.line for message in messages for found in findings(job, positions, message)] == [2, 3, 5]


def test_nested_lists_become_single_messages() -> None:
    inner = multi_error(["minimum CPU value is 1; got 0", "two\nlines"])
    text = multi_error(["Missing job name", f"Task group g validation failed: {inner}", "last"])

    assert messages(text) == [
        "Missing job name",
        "Task group g validation failed: minimum CPU value is 1; got 0",
        "Task group g validation failed: two lines",
        "last",
    ]


@pytest.mark.parametrize("text", ["", "\n", "* ", "9 errors occurred:", "9 errors occurred:\n\t* 9 errors occurred:\n"])
def test_odd_texts_are_no_trouble(text: str) -> None:
    assert all(isinstance(message, str) for message in messages(text))


def test_a_deeply_nested_text_ends() -> None:
    assert messages("a validation failed: 1 error occurred:\n\t* " * 5000 + "x")


@pytest.mark.parametrize("job", [{}, {"TaskGroups": 3}, {"TaskGroups": [None]}, {"TaskGroups": [{"Tasks": "x"}]}])
def test_a_job_of_another_shape_is_no_trouble(job: dict[str, Any]) -> None:
    assert follow(job, "Task group g validation failed: Task t validation failed: x") == ()


ANSWER = {
    "ValidationErrors": ["Constraint 1 validation failed: Regular expression failed to compile: missing )"],
    "Warnings": '1 warning:\n\n* Task group front Task "server": no node has shown which options driver "x" takes',
}


def test_validate_prints_findings_as_json(run: Run, api: Any, tmp_path: Path) -> None:
    (tmp_path / "web.hcl").write_text(JOB)
    api.answers["/v1/validate/job"] = ANSWER

    code, out, _ = run("job", "validate", "-format=json", str(tmp_path / "web.hcl"))

    found = json.loads(out)
    assert (code, found["valid"]) == (1, False)
    assert [(item["severity"], item["line"]) for item in found["diagnostics"]] == [("error", 8), ("warning", 39)]


def test_validate_tells_a_wrong_command_line_from_a_wrong_job(run: Run) -> None:
    assert run("job", "validate")[0] == 255
    assert run("job", "validate", "/no/such/file.hcl")[0] == 1


def test_validate_prints_findings_as_sarif(run: Run, api: Any, tmp_path: Path) -> None:
    (tmp_path / "web.hcl").write_text(JOB)
    api.answers["/v1/validate/job"] = ANSWER

    code, out, _ = run("job", "validate", "-format=sarif", str(tmp_path / "web.hcl"))

    result = json.loads(out)["runs"][0]["results"][0]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert code == 1
    assert result["level"] == "error"
    assert (region["startLine"], region["startColumn"]) == (8, 5)


@pytest.mark.parametrize("wrap", ['{"Job": %s}', "%s"])
def test_a_job_in_json_has_places_too(run: Run, api: Any, tmp_path: Path, wrap: str) -> None:
    job, _ = parse_job_with_positions(JOB, filename="web.hcl")
    text = wrap % json.dumps(job, indent=2)
    (tmp_path / "web.json").write_text(text)
    api.answers["/v1/validate/job"] = ANSWER

    code, out, _ = run("job", "validate", "-format=json", str(tmp_path / "web.json"))

    lines = [text.split("\n")[item["line"] - 1].strip() for item in json.loads(out)["diagnostics"]]
    assert code == 1
    assert lines == ['"RTarget": "(linux",', '"Driver": "raw_exec",']


def test_what_the_parser_finds_needs_no_agent(run: Run, api: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.hcl").write_text('job "x" {\n  cuont = 1\n  grop "g" {}\n}\n')

    code, out, _ = run("job", "validate", "-format=json", str(tmp_path / "bad.hcl"))

    assert code == 1
    assert [item["line"] for item in json.loads(out)["diagnostics"]] == [2, 3]
    assert [path for _, path, *_ in api.asked] == ["/v1/validate/job"], "asked for more, and nothing was answered"


def test_a_valid_file_gives_an_empty_report(run: Run, api: Any, tmp_path: Path) -> None:
    (tmp_path / "web.hcl").write_text(JOB)
    api.answers["/v1/validate/job"] = {}

    code, out, _ = run("job", "validate", "-format", "json", str(tmp_path / "web.hcl"))

    assert (code, json.loads(out)) == (0, {"valid": True, "diagnostics": []})


def test_warnings_of_the_parser_reach_the_user(run: Run, api: Any, tmp_path: Path) -> None:
    (tmp_path / "web.hcl").write_text(JOB)
    api.answers["/v1/validate/job"] = {}

    words = ("job", "validate", "-hcl2-strict=false", "-var", "imgae=1", str(tmp_path / "web.hcl"))
    code, _, err = run(*words)

    assert code == 0
    assert "Warning: Undefined -var variable" in err


def test_an_unknown_format_is_refused(run: Run, tmp_path: Path) -> None:
    code, _, err = run("job", "validate", "-format=xml", str(tmp_path / "web.hcl"))

    assert code == 255
    assert "text, json, sarif" in err


RANKS = """\
job "train" {
  type = "batch"
  group "ranks" {
    count = 4
    gang {
      min = 9
      rendezvous {
        framework = "tourch"
        port      = "meet"
        interface = "a b"
        barrier   = "1ms"
      }
    }
    requeue {
      delay          = "10s"
      delay_function = "linear"
      max_delay      = "1s"
    }
    checkpoint {
      signal   = "SIGSAVE"
      grace    = "-1s"
      interval = "-2s"
      path     = "../x"
    }
    task "main" {
      driver = "raw_exec"
      constraint {
        attribute = "${node.clas}"
        value     = "big"
      }
      env {
        RANK = "${NOMAD_ALOC_INDEX}"
      }
    }
  }
}
"""


def test_blocks_of_yurts_own_are_refused_at_their_fields() -> None:
    job, positions = parse_job_with_positions(RANKS, filename="x.hcl")
    read = decode_job(canonicalize_job(job))[0]
    errors, _ = validate_job(read)

    told = findings(job, positions, multi_error(errors))
    warnings = [f"* {text}" for text in reference_doubts(read, NodeNames(None))]
    doubts = findings(job, positions, "\n".join(["2 warnings:", *warnings]), is_warning=True)

    lines = RANKS.split("\n")
    assert {lines[each.line - 1].split()[0] for each in told if each.line} == {
        "min", "framework", "port", "interface", "barrier", "delay_function", "max_delay", "signal", "grace",
        "interval", "path",
    }  # fmt: skip
    assert [lines[each.line - 1].strip() for each in doubts if each.line] == [
        'attribute = "${node.clas}"',
        'RANK = "${NOMAD_ALOC_INDEX}"',
    ]


def test_what_repeats_a_name_is_shown_at_its_own_name() -> None:
    text = 'job "x" {\n  group "g" {\n    task "t" {}\n    task "t" {}\n  }\n  group "g" {}\n}\n'
    job, positions = parse_job_with_positions(text, filename="x.hcl")
    messages = (
        "Task group g validation failed: Task name 't' is used more than once in the group",
        "Job task group 2 redefines 'g' from group 1",
    )

    told = [found for message in messages for found in findings(job, positions, message)]

    assert [(found.line, found.column) for found in told] == [(4, 10), (6, 9)]
    assert all(found.hint == "Rename one of the two." for found in told)


def test_a_mistake_in_the_block_on_idle_devices_is_shown_at_its_field() -> None:
    devices = [{"Name": "nvidia/gpu"}, {"Name": "amd/gpu", "Idle": {"Action": "requeu"}}]
    job = {"TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Resources": {"Devices": devices}}]}]}
    found = follow(job, 'Task group g validation failed: idle action "requeu" is not valid')

    assert found == ("TaskGroups", 0, "Tasks", 0, "Resources", "Devices", 1, "Idle", "Action")


def test_a_count_of_mig_instances_is_shown_at_the_count() -> None:
    text = """job "x" {
  group "g" {
    task "t" {
      driver = "raw_exec"
      resources {
        device "nvidia/gpu" {
          share  = "mig"
          memory = "8GiB"
          count  = 2
        }
      }
    }
  }
}
"""
    job, positions = parse_job_with_positions(text, filename="x.hcl")
    (problem,) = validate_job(decode_job(job)[0])[0]
    (found,) = findings(job, positions, multi_error([problem]))
    assert (found.line, "a process sees one MIG instance only" in found.detail) == (9, True)
