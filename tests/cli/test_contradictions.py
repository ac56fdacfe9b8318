"""What excludes each other on a command line is refused before anything is asked, by one rule of all commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from yurt.cli.declaration import CliCommand
from yurt.cli.flags import BOOL, INT
from yurt.cli.main import main
from yurt.cli.tree import command, command_names

COMMANDS = [command(name) for name in command_names()]
PAIRS = [(each, pair) for each in COMMANDS for pair in each.exclusive]
NOWHERE = "http://127.0.0.1:9"


def kind_of(each: CliCommand, name: str) -> str:
    return next(flag.kind for flag in each.all_flags if flag.name == name)


def line_with(each: CliCommand, pair: tuple[str, str]) -> list[str]:
    """A command line with both flags, and as many arguments as the command needs."""
    arguments = [f"argument{number}" for number in range(each.arguments[0])]
    kinds = {name: kind_of(each, name) for name in pair}
    values = {name: "" if kind == BOOL else "=7" if kind == INT else "=other" for name, kind in kinds.items()}
    return [*each.name.split(), *(f"-{name}{value}" for name, value in values.items()), *arguments]


@pytest.mark.parametrize(("each", "pair"), PAIRS, ids=lambda value: getattr(value, "name", value))
def test_a_declared_pair_exists_and_is_refused(
    each: CliCommand, pair: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOMAD_ADDR", NOWHERE)
    assert set(pair) <= {flag.name for flag in each.all_flags}
    assert main(line_with(each, pair)) == (each.usage_code or each.failure_code)
    assert "contradict each other; leave out one of the two" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("alloc logs a1 -n 3 -c 4", "-n=3 and -c=4 contradict each other"),
        ("node drain n1 -disable -force", "-disable and -force contradict each other"),
        ("node drain n1 -disable -deadline 1h", "-disable and -deadline=1h contradict each other"),
        ("job history web -diff-version 1 -diff-tag a", "-diff-version=1 and -diff-tag=a contradict each other"),
        ("monitor -node-id n -server-id s", "-node-id=n and -server-id=s contradict each other"),
        ("eval delete e1 -filter x", "one of the two"),
        ("node drain n1 -self -enable", "leave out -self or the argument"),
        ("node eligibility n1 -self -enable", "leave out -self or the argument"),
    ],
)
def test_what_is_contradicted_is_named(
    words: str, error: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOMAD_ADDR", NOWHERE)
    assert main(words.split()) == 1
    assert error in capsys.readouterr().err


@pytest.mark.parametrize("words", ["alloc restart a1 web -task web", "alloc logs a1 web"])
def test_what_agrees_is_carried_out(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOMAD_ADDR", NOWHERE)
    main(words.split())
    assert "No agent answers" in capsys.readouterr().err


ALLOC = "aaaaaaaa-1111-4222-8333-444444444444"
NODE = "bbbbbbbb-1111-4222-8333-444444444444"


@pytest.mark.parametrize(
    "words",
    [
        "alloc fs a1 /f -stat -f",
        "alloc fs a1 /f -stat -tail",
        "alloc fs a1 /f -n -1 -c 4",
        "alloc logs a1 -n=3 -c=-1",
        "alloc pause a1 -status -state run",
        "node topo bb -self",
        "job init -list-templates -short",
        "job init -list-templates a.nomad",
        "job init -list-templates -template t",
        "job init -template t -short",
        "job inspect web -hcl -json",
        "job inspect web -hcl -t {{.ID}}",
        "job status web -no-color -force-color",
        "node status bb -allocs -filter x -os -page-token p -per-page 3 -quiet",
        "node meta apply -unset a a=1",
        "operator metrics -format prometheus -json",
        "operator metrics -format prometheus -t {{.}}",
        "volume claim list c1 -group g -job web -volume-name v",
    ],
)
def test_what_nomad_accepts_is_accepted(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOMAD_ADDR", NOWHERE)
    assert main(words.split()) == 1
    assert "No agent answers" in capsys.readouterr().err


@pytest.mark.parametrize("order", [("-no-color", "-force-color"), ("-force-color", "-no-color")])
def test_no_color_wins_over_force_color(run: Any, api: Any, order: tuple[str, str]) -> None:
    _one_node(api)
    _, forced, _ = run("node", "status", "-force-color", NODE)
    code, plain, _ = run("node", "status", *order, NODE)
    assert ("\033[" in forced, "\033[" in plain, code) == (True, False, 0)


def test_flags_for_lists_have_no_effect_on_one_node(run: Any, api: Any) -> None:
    _one_node(api)
    flags = ("-filter", "x", "-per-page", "3", "-page-token", "p", "-quiet", "-os", "-allocs")
    code, shown, _ = run("node", "status", NODE)
    assert (code, shown) == run("node", "status", *flags, NODE)[:2]
    assert code == 0 and "one" in shown
    assert not any("filter=" in path or "page" in path for _, path, *_ in api.asked)


def _one_node(api: Any) -> None:
    node = {"ID": NODE, "Name": "one", "Datacenter": "dc1", "Status": "down", "SchedulingEligibility": "eligible"}
    api.answers |= {"/v1/nodes": [node], f"/v1/node/{NODE}": node, f"/v1/node/{NODE}/allocations": []}


def test_the_filters_of_claims_select_together(run: Any, api: Any) -> None:
    api.answers["/v1/volumes/claims"] = []
    assert run("volume", "claim", "list", "-job", "web", "-group", "g", "-volume-name", "v", "c1")[0] == 0
    path = api.asked[-1][1]
    assert all(part in path for part in ("job_id=web", "task_group=g", "volume_name=v", "prefix=c1"))


def test_stat_wins_over_following(run: Any, api: Any) -> None:
    entry = {"Name": "f", "IsDir": False, "Size": 5, "FileMode": "-rw-", "ModTime": "2026-01-01T00:00:00Z"}
    _one_alloc(api)
    api.answers[f"/v1/client/fs/stat/{ALLOC}"] = entry
    code, shown, _ = run("alloc", "fs", "-stat", "-f", "-tail", ALLOC, "f")
    assert (code, "Content Type" in shown) == (0, True)
    assert not any("/fs/cat" in path or "/fs/stream" in path for _, path, *_ in api.asked)


def test_status_wins_over_the_state_of_a_pause(run: Any, api: Any) -> None:
    _one_alloc(api)
    api.answers[f"/v1/client/allocation/{ALLOC}/pause"] = {"ScheduleState": "pause"}
    assert run("alloc", "pause", "-status", "-state", "run", ALLOC)[:2] == (0, "pause\n")
    assert {method for method, *_ in api.asked} == {"GET"}


def test_a_group_has_no_effect_on_an_allocation(run: Any, api: Any) -> None:
    _one_alloc(api)
    api.answers[f"/v1/client/allocation/{ALLOC}/pause"] = {"ScheduleState": "run"}
    assert run("alloc", "pause", "-status", "-group", "db", ALLOC)[:2] == (0, "run\n")


@pytest.mark.parametrize(
    ("words", "path", "field"),
    [
        (("restart", "-task", "side"), "restart", "TaskName"),
        (("signal", "-s", "SIGHUP", "-task", "side"), "signal", "Task"),
        (("pause", "-task", "side"), "pause", "Task"),
    ],
)
def test_a_tasks_flag_wins_over_the_argument(run: Any, api: Any, words: tuple[str, ...], path: str, field: str) -> None:
    _one_alloc(api, "main", "side")
    api.answers[f"/v1/client/allocation/{ALLOC}/{path}"] = {}
    assert run("alloc", *words, ALLOC, "main")[0] == 0
    assert api.asked[-1][3][field] == "side"


def test_the_flag_for_a_task_wins_over_the_argument_for_its_logs(run: Any, api: Any) -> None:
    _one_alloc(api, "main", "side")
    run("alloc", "logs", "-task", "side", ALLOC, "main")
    assert [path for _, path, *_ in api.asked if "task=side" in path] == [api.asked[-1][1]]


def test_the_flag_for_a_plugin_wins_over_the_argument(run: Any, api: Any) -> None:
    api.answers["/v1/volumes/snapshot"] = {}
    assert run("volume", "snapshot", "list", "-plugin", "two", "one")[0] == 0
    assert "plugin_id=two" in api.asked[-1][1]


def test_the_agents_own_node_wins_over_an_argument(run: Any, api: Any) -> None:
    _one_node(api)
    api.answers["/v1/agent/self"] = {"stats": {"client": {"node_id": NODE}}}
    code, shown, _ = run("node", "status", "-self", "ffff")
    assert (code, "one" in shown) == (0, True)
    assert not any("ffff" in path for _, path, *_ in api.asked)


def _one_alloc(api: Any, *names: str) -> None:
    tasks = [{"Name": name} for name in names or ("main",)]
    job = {"ID": "web", "TaskGroups": [{"Name": "web", "Tasks": tasks}]}
    api.answers["/v1/allocations"] = [{"ID": ALLOC, "Namespace": "default"}]
    api.answers[f"/v1/allocation/{ALLOC}"] = {
        "ID": ALLOC, "TaskGroup": "web", "Namespace": "default", "Job": job, "TaskStates": {"main": {}}
    }  # fmt: skip


def test_a_key_that_is_set_and_taken_away_is_set(run: Any, api: Any) -> None:
    api.answers["/v1/client/metadata"] = {}
    assert run("node", "meta", "apply", "-unset", "b,a", "a=1")[0] == 0
    assert api.asked[-1][3]["Meta"] == {"a": "1", "b": None}


def test_the_list_of_templates_wins_over_a_file(
    run: Any, api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    api.answers["/v1/vars"] = [{"Path": "nomad/job-templates/t"}]
    assert run("job", "init", "-list-templates", "-short", "-template", "t", "a.nomad")[:2] == (0, "t\n")
    assert not list(tmp_path.iterdir())


def test_a_template_wins_over_the_short_example(
    run: Any, api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    api.answers["/v1/var/nomad/job-templates/t"] = {"Path": "nomad/job-templates/t", "Items": {"template": "stored"}}
    assert run("job", "init", "-template", "t", "-short", "a.nomad")[0] == 0
    assert (tmp_path / "a.nomad").read_text() == "stored"


@pytest.mark.parametrize("other", [("-json",), ("-t", "{{.}}")])
def test_the_format_wins_over_json(run: Any, api: Any, other: tuple[str, ...]) -> None:
    api.answers["/v1/metrics"] = b"yurt_up 1\n"
    assert run("operator", "metrics", "-format", "prometheus", *other)[:2] == (0, "yurt_up 1\n")


@pytest.mark.parametrize("other", [("-json",), ("-t", "{{.ID}}")])
def test_the_job_file_wins_over_json(run: Any, api: Any, other: tuple[str, ...]) -> None:
    api.answers["/v1/jobs"] = [{"ID": "web", "Namespace": "default"}]
    api.answers["/v1/job/web"] = {"ID": "web", "Namespace": "default", "Version": 0}
    api.answers["/v1/job/web/submission"] = {"Format": "hcl2", "Source": 'job "web" {}'}
    assert run("job", "inspect", "-hcl", *other, "web")[:2] == (0, 'job "web" {}\n')
