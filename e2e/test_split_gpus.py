"""Real agents on a fake NVML: cards that are split for tasks, and a card that vanishes under a gang."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from yurt.testing.agent import register, running_agent, wait_for

fake = pytest.importorskip("yurt_device_nvidia.fake", reason="the NVIDIA plugin is not installed")

from e2e.test_devices import (  # noqa: E402 - without the plugin there is nothing to import it for
    Gpus,
    events_of,
    given_to,
    gpu,
    gpu_job,
    log_of,
    run_file,
    settings,
    shared_job,
    states,
    stop,
    variables,
)


def test_mig_instances_are_created_for_tasks_and_destroyed_after_them(tmp_path: Path) -> None:
    """On a card that the operator lets Yurt split: two tasks with an instance each, then one with the whole card."""
    machine = tmp_path / "machine.json"
    fake.write(machine, fake.layout("h200"))

    def profiles() -> list[str]:
        return [each["profile"] for each in json.loads(machine.read_text())["gpus"][0]["migs"]]

    with running_agent(tmp_path, extra=settings(machine, mig_gpu_ids=["all"])) as agent:
        node = Gpus(agent, machine)
        wait_for("the profiles", lambda: "mig_profiles" in json.dumps(node.node()["NodeResources"]["Devices"]))
        run_file(agent, tmp_path, shared_job("part", "mig", "16GiB", count=1))
        allocs = agent.running("part", 2)
        seen = [variables(log_of(agent, each, "pid"))["CUDA_VISIBLE_DEVICES"] for each in allocs]
        booked = [given_to(agent, each) for each in allocs]
        assert profiles() == ["1g.18gb"] * 2
        assert {each.split("-")[0] for each in seen} == {"MIG"} and len(set(seen)) == 2
        assert sorted(each[0].partition("::")[0] for each in booked) == [gpu(0)] * 2
        assert f"MIG instance 1g.18gb of GPU {gpu(0)} was created for this task" in events_of(agent, allocs[0]["ID"])
        assert "mig" in agent.cli("alloc", "status", allocs[0]["ID"]).stdout

        register(agent, gpu_job("whole", 'echo "pid $$ $CUDA_VISIBLE_DEVICES"; sleep 100'))
        assert "1 asked, 0 free" in agent.cli("job", "why-not", "whole").stdout
        stop(agent, "part")
        (alloc,) = agent.running("whole", 1)
        assert log_of(agent, alloc, "pid").split()[2] == gpu(0)
        assert profiles() == []


def test_a_gang_under_which_a_card_vanishes_meets_again_on_other_cards(tmp_path: Path) -> None:
    """Its members start again together, with the ranks they had; the lost card is given to none of them."""
    machine = tmp_path / "machine.json"
    fake.write(machine, fake.layout("h100x8"))
    with running_agent(tmp_path, extra=settings(machine)) as agent:
        vanish_under_gang(Gpus(agent, machine))


def vanish_under_gang(gpus: Gpus) -> None:
    """Lose a card of a member, and bring it back."""
    agent, before = gpus.agent, states(gpus)
    script = "echo met $YURT_GANG_GENERATION $YURT_GANG_RANK; sleep 100"
    job = gpu_job("gang", script, Gang={"Rendezvous": {"Framework": "torch", "Port": "meet"}}, Count=3)
    job["Type"] = "batch"
    (group,) = job["TaskGroups"]
    group["Networks"] = [{"Mode": "host", "DynamicPorts": [{"Label": "meet"}]}]
    group["Tasks"][0]["Resources"]["Devices"][0]["OnFailure"] = "move"
    register(agent, job)

    def ranks(generation_min: int) -> dict[str, tuple[int, int]]:
        """Generation and rank of each member, once all have met."""
        found = {}
        for each in agent.running("gang", 3):
            said = re.findall(r"met (\d+) (\d+)", agent.cli("alloc", "logs", each["ID"]).stdout)
            if said and int(said[-1][0]) >= generation_min:
                found[each["Name"]] = (int(said[-1][0]), int(said[-1][1]))
        return found if len(found) == 3 else {}

    first = wait_for("a first meeting", lambda: ranks(1))
    lost = agent.running("gang", 3)[1]
    (device,) = given_to(agent, lost)
    gpus.change(int(device.split("-")[2], 16), gone=True)
    generation = max(generation for generation, _ in first.values())
    second = wait_for("a second meeting", lambda: ranks(generation + 1))

    assert {name: rank for name, (_, rank) in second.items()} == {name: rank for name, (_, rank) in first.items()}
    assert len({generation for generation, _ in second.values()}) == 1
    assert device not in {each for alloc in agent.running("gang", 3) for each in given_to(agent, alloc)}
    stop(agent, "gang")
    gpus.change(int(device.split("-")[2], 16), gone=False)
    wait_for("the card is back", lambda: states(gpus) == before)
