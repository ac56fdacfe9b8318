"""Simulated users: each sends random requests to random servers, one after the other.

What they ask is in the plan's features. Their answers are recorded: a write that was acknowledged at an index
must be the log's command at that index (A1).
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

from yurt.testing.sim.agents import MANAGEMENT, REGION, ClientAgent, ServerAgent
from yurt.testing.sim.checks import Checks, Violation
from yurt.testing.sim.convergence import ineligible, wanted_jobs
from yurt.testing.sim.csi.requests import CsiRequests, plugin_job
from yurt.testing.sim.driver import NAME as DRIVER
from yurt.testing.sim.foreign.plugins import NOTHING_FOREIGN, Foreign
from yurt.testing.sim.http import Answer
from yurt.testing.sim.plan import Plan
from yurt.testing.sim.transcript import Transcript
from yurt.testing.sim.volumes.requests import VolumeRequests

ANSWER_LIMIT_S = 20.0
JOBS_OF_A_KIND = 3
KINDS = ("service", "batch", "system", "sysbatch")
NO_ACTIONS = ("canary", "gang", "checkpoint", "histories", "disconnect", "client-stop", "preemption")
"""Features without a request of their own."""
AT_REST = ("update", "scale", "stop", "purge", "evaluate", "alloc-stop", "dispatch", "quota", "volumes", "csi")
"""Requests after which the cluster must come to rest again without another one."""
LISTS = ("/v1/jobs", "/v1/allocations", "/v1/evaluations", "/v1/deployments", "/v1/nodes")
RECONCILES = ("best_score", "keep_original", "keep_replacement", "longest_running")
RUNNING = 0.8
"""How often a request to a cluster at rest is about a job that runs."""
QUOTA = "small"
LAUNCHED = "launched"
"""The id of the periodic job."""
PREEMPTION = {"BatchSchedulerEnabled": True, "ServiceSchedulerEnabled": True, "SystemSchedulerEnabled": True}


class Users:
    """All users of one run."""

    def __init__(
        self,
        plan: Plan,
        transcript: Transcript,
        checks: Checks,
        *,
        servers: list[ServerAgent],
        clients: list[ClientAgent],
        foreign: Foreign = NOTHING_FOREIGN,
    ) -> None:
        self._driver, self._devices = foreign
        self._plan = plan
        self._transcript = transcript
        self._checks = checks
        self._servers = servers
        self._clients = clients
        self._chance = random.Random(f"users {plan.seed}")
        self._kinds = [kind for kind in KINDS if kind in plan.features] or ["service"]
        self._actions = ["register", *(each for each in plan.features if each not in (*KINDS, *NO_ACTIONS))]
        self._token = MANAGEMENT if plan.has_acl else ""
        self._volume_requests = VolumeRequests(self._chance, self.ask, clients)
        self._csi_requests = CsiRequests(self._chance, self.ask, checks.acknowledge, clients)
        self.csi_has_controller = False
        """Whether the CSI plugin of the nodes has a controller."""
        self._running: list[str] = []
        """The jobs that run when the cluster is at rest."""
        self._indexes: dict[tuple[str, str], int] = {}
        """The highest index of a list in an answer to each user."""

    async def run(self) -> None:
        """Send requests until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._plan.users):
                group.create_task(self._live(f"user{number + 1}"))

    async def _live(self, name: str) -> None:
        while True:
            await asyncio.sleep(self._chance.expovariate(1 / self._plan.user_pause_s))
            action = self._chance.choice(self._actions)
            await getattr(self, f"_{action.replace('-', '_')}")(name)

    async def act_at_rest(self) -> None:
        """Send random requests, at one time, of those after which the cluster settles again."""
        names = ["register", *(each for each in self._actions if each in AT_REST)]
        found = wanted_jobs(self._servers)
        self._running = [each for each in found if each.partition("-")[0] in self._kinds]
        chosen = [self._chance.choice(names).replace("-", "_") for _ in range(self._plan.rest_together)]
        async with asyncio.TaskGroup() as group:
            for name in chosen:
                group.create_task(getattr(self, f"_{name}")("operator"))

    async def ask(self, user: str, method: str, path: str, body: Any = None) -> Answer | None:
        """Send one request to a random server; None when the outcome is unknown."""
        agent = self._chance.choice(self._servers)
        data = None if body is None else json.dumps(body).encode()
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                answer = await agent.call(method, path, data, token=self._token)
        except (ConnectionError, TimeoutError):
            self._transcript.note(user, f"{method} unknown", f"{path} of {agent.name}")
            return None
        self._transcript.note(user, f"{method} {answer.status}", f"{path} of {agent.name}")
        return answer

    async def begin(self) -> None:
        """Create what users need: a management token, and a quota on their namespace."""
        if self._token:
            await self._until_done("/v1/acl/bootstrap", {"BootstrapSecret": self._token})
        if "csi" in self._plan.features:
            driver = DRIVER if self._driver is None else self._driver.name
            await self._until_done("/v1/jobs", {"Job": plugin_job(driver, has_controller=self.csi_has_controller)})
            await self._csi_requests.register_all("operator")
        if "quota" in self._plan.features:
            await self._until_done("/v1/quota", self._quota_document(4))
            await self._until_done("/v1/namespace/default", {"Name": "default", "Quota": QUOTA})
        if "preemption" in self._plan.features:
            configuration = {"PreemptionConfig": PREEMPTION}
            await self._until_done("/v1/operator/scheduler/configuration", configuration)

    async def _until_done(self, path: str, body: Any) -> None:
        for _ in range(20):
            answer = await self.ask("operator", "PUT", path, body)
            if answer is not None and (answer.status == 200 or (path.endswith("bootstrap") and answer.status == 400)):
                return
            await asyncio.sleep(1.0)
        raise Violation(f"PUT {path} is not carried out while nothing fails")

    def _quota_document(self, size: int) -> dict[str, Any]:
        """A quota for `count` allocations of medium size."""
        return {
            "Name": QUOTA,
            "Limits": [{"Region": REGION, "RegionLimit": {"CPU": 400 * size, "MemoryMB": 512 * size}}],
        }

    async def _quota(self, user: str) -> None:
        await self.ask(user, "PUT", "/v1/quota", self._quota_document(self._chance.choice((3, 5, 9, 20))))

    async def _lists(self, user: str) -> None:
        """Read a list and check its index: never lower than an earlier one of this user (A5)."""
        path = self._chance.choice(LISTS)
        answer = await self.ask(user, "GET", path)
        if answer is None or answer.status != 200:
            return
        index, seen = int(answer.headers["X-Nomad-Index"]), self._indexes.get((user, path), 0)
        if index < seen:
            raise Violation(f"A5 {path} is at index {index} for {user}, who got {seen} before")
        self._indexes[(user, path)] = index

    # Jobs.

    def _job_id(self) -> str:
        if self._running and self._chance.random() < RUNNING:
            return self._chance.choice(self._running)
        return f"{self._chance.choice(self._kinds)}-{self._chance.randrange(JOBS_OF_A_KIND)}"

    def _document(self, job_id: str) -> dict[str, Any]:
        """A version of a job: another count, size or behaviour."""
        chance, kind = self._chance, job_id.partition("-")[0]
        is_batch = kind in ("batch", "sysbatch")
        run_s = chance.choice((1, 5, 40)) if is_batch else chance.choice((0, 0, 0, 60))
        config = {"run_s": run_s, "exit_code": int(chance.random() < 0.2)}
        ports = [{"Label": "http"}] if chance.random() < 0.7 else []
        task: dict[str, Any] = {
            "Name": "main",
            "Driver": DRIVER if self._driver is None else self._driver.name,
            "Config": config if self._driver is None else self._driver.config(run_s, config["exit_code"]),
            "Resources": {"CPU": chance.choice((100, 400, 1500)), "MemoryMB": chance.choice((64, 512, 2000))},
            "KillTimeout": 2_000_000_000,
        }
        if self._devices is not None and chance.random() < 0.8:
            task["Resources"] |= {"Devices": [{"Name": self._devices.request, "Count": chance.choice((1, 1, 1, 2))}]}
        group: dict[str, Any] = {
            "Name": "group",
            "Count": 1 if kind in ("system", "sysbatch") else chance.randint(0, 5),
            "Tasks": [task],
            "Networks": [{"DynamicPorts": ports}] if ports else [],
            "RestartPolicy": {"Attempts": chance.choice((0, 1)), "Delay": 1_000_000_000, "Interval": 60_000_000_000,
                              "Mode": "fail"},
        }  # fmt: skip
        if "gang" in self._plan.features and kind in ("service", "batch") and chance.random() < 0.6:
            group["Gang"] = {"Min": chance.choice((0, 2, 3))}
        if "checkpoint" in self._plan.features and kind == "batch":
            group["Checkpoint"] = {
                "Path": "saved", "Signal": "SIGUSR1", "Grace": 2_000_000_000, "Interval": 5_000_000_000,
            }  # fmt: skip
        if kind in ("service", "batch"):
            group["ReschedulePolicy"] = {
                "Delay": 5_000_000_000, "DelayFunction": "constant", "Unlimited": kind == "service",
                "Attempts": 0 if kind == "service" else 2, "Interval": 0 if kind == "service" else 86_400_000_000_000,
                "MaxDelay": 60_000_000_000,
            }  # fmt: skip
        if kind == "service":
            group["Update"] = {
                "MaxParallel": chance.choice((1, 2)), "MinHealthyTime": 2_000_000_000,
                "HealthyDeadline": 60_000_000_000, "ProgressDeadline": 120_000_000_000,
                "AutoRevert": chance.random() < 0.5,
                "Canary": self._canaries(group) if "canary" in self._plan.features and chance.random() < 0.4 else 0,
            }  # fmt: skip
            if "disconnect" in self._plan.features:
                group["Disconnect"] = {
                    "LostAfter": chance.choice((45_000_000_000, 600_000_000_000)), "Replace": chance.random() < 0.8,
                    "Reconcile": chance.choice(RECONCILES),
                }  # fmt: skip
            elif chance.random() < 0.3:
                group["Disconnect"] = {"LostAfter": 60_000_000_000, "Replace": chance.random() < 0.5}
        if "client-stop" in self._plan.features and kind in ("service", "batch") and chance.random() < 0.5:
            group["Disconnect"] = {
                "StopOnClientAfter": chance.choice((5_000_000_000, 30_000_000_000)), "Replace": chance.random() < 0.8,
            }  # fmt: skip
        groups = [group]
        if "volumes" in self._plan.features:
            groups = self._with_volumes(group)
        if "csi" in self._plan.features and len(groups) == 1 and self._driver is None:
            groups = [self._csi_requests.changed(groups[0], kind)]
        return {
            "ID": job_id, "Name": job_id, "Type": kind, "Datacenters": ["*"], "TaskGroups": groups,
            "Priority": chance.choice((50, 50, 80)),
        }  # fmt: skip

    def _with_volumes(self, group: dict[str, Any]) -> list[dict[str, Any]]:
        """The group with a host volume, at times next to a second one with the same volume."""
        volumes = self._volume_requests.of_group()
        if not volumes:
            return [group]
        task = group["Tasks"][0]
        mounts = [{"Volume": name, "Destination": f"/{name}"} for name in volumes]
        group |= {"Volumes": volumes, "Tasks": [task | {"VolumeMounts": mounts} if self._driver is None else task]}
        has_second = self._chance.random() < 0.25 and "Gang" not in group
        return [group, group | {"Name": "second"}] if has_second else [group]

    @staticmethod
    def _canaries(group: dict[str, Any]) -> int:
        """One, or as many as the group's gang needs."""
        return max(1, group["Gang"]["Min"] or group["Count"]) if "Gang" in group else 1

    async def _register(self, user: str) -> None:
        job_id = self._job_id()
        answer = await self.ask(user, "PUT", "/v1/jobs", {"Job": self._document(job_id)})
        if answer is not None and answer.status == 200:
            self._checks.acknowledge(answer.json["Index"], f"RegisterJob {job_id}")

    _update = _register

    async def _scale(self, user: str) -> None:
        job_id, count = self._job_id(), self._chance.randint(0, 5)
        body = {"Count": count, "Target": {"Group": "group"}}
        await self.ask(user, "PUT", f"/v1/job/{job_id}/scale", body)

    async def _stop(self, user: str) -> None:
        await self.ask(user, "DELETE", f"/v1/job/{self._job_id()}")

    async def _purge(self, user: str) -> None:
        await self.ask(user, "DELETE", f"/v1/job/{self._job_id()}?purge=true")

    async def _evaluate(self, user: str) -> None:
        job_id = self._job_id()
        await self.ask(user, "PUT", f"/v1/job/{job_id}/evaluate", {"JobID": job_id})

    async def _dispatch(self, user: str) -> None:
        """Dispatch a parameterized job with an idempotency token, which may create one job only."""
        job_id = "dispatched"
        if self._chance.random() < 0.3:
            document = self._document("batch-0") | {
                "ID": job_id, "Name": job_id, "Type": "batch", "ParameterizedJob": {"Payload": "optional"},
            }  # fmt: skip
            await self.ask(user, "PUT", "/v1/jobs", {"Job": document})
        token = f"token-{self._chance.randrange(40)}"
        await self.ask(user, "PUT", f"/v1/job/{job_id}/dispatch?idempotency_token={token}", {"JobID": job_id})

    async def _periodic(self, user: str) -> None:
        """Register a job that is launched each minute, or launch it now."""
        if self._chance.random() < 0.7:
            await self.ask(user, "PUT", f"/v1/job/{LAUNCHED}/periodic/force")
            return
        periodic = {"Enabled": True, "Spec": "* * * * *", "ProhibitOverlap": self._chance.random() < 0.5}
        document = self._document("batch-0") | {"ID": LAUNCHED, "Name": LAUNCHED, "Type": "batch", "Periodic": periodic}
        await self.ask(user, "PUT", "/v1/jobs", {"Job": document})

    async def end_launches(self) -> None:
        """Stop the periodic job: a cluster in which something starts each minute is never at rest."""
        for _ in range(20):
            if LAUNCHED not in wanted_jobs(self._servers):
                return
            await self.ask("operator", "DELETE", f"/v1/job/{LAUNCHED}")
            await asyncio.sleep(2.0)

    async def _promote(self, user: str) -> None:
        answer = await self.ask(user, "GET", "/v1/deployments")
        running = [each for each in _rows(answer) if each["Status"] == "running"]
        if running:
            deployment = self._chance.choice(running)["ID"]
            what = self._chance.choice(("promote", "promote", "fail"))
            body = {"DeploymentID": deployment} | ({"All": True} if what == "promote" else {})
            await self.ask(user, "PUT", f"/v1/deployment/{what}/{deployment}", body)

    # Nodes.

    def _node_id(self) -> str:
        return self._chance.choice(self._clients).node_id

    async def _drain(self, user: str) -> None:
        node_id = self._node_id()
        if not node_id:
            return
        if self._chance.random() < 0.5:
            await self.ask(user, "PUT", f"/v1/node/{node_id}/drain", {"DrainSpec": None, "MarkEligible": True})
            return
        spec = {"Deadline": self._chance.choice((-1, 5_000_000_000, 60_000_000_000))}
        await self.ask(user, "PUT", f"/v1/node/{node_id}/drain", {"DrainSpec": spec})

    async def _eligibility(self, user: str) -> None:
        node_id = self._node_id()
        wanted = self._chance.choice(("eligible", "eligible", "ineligible"))
        if node_id:
            await self.ask(user, "PUT", f"/v1/node/{node_id}/eligibility", {"Eligibility": wanted})

    async def _alloc_stop(self, user: str) -> None:
        rows = _rows(await self.ask(user, "GET", "/v1/allocations"))
        if rows:
            await self.ask(user, "PUT", f"/v1/allocation/{self._chance.choice(rows)['ID']}/stop")

    async def _gc(self, user: str) -> None:
        await self.ask(user, "PUT", "/v1/system/gc")

    async def _variables(self, user: str) -> None:
        path = f"/v1/var/some/{self._chance.randrange(3)}"
        if self._chance.random() < 0.5:
            await self.ask(user, "GET", path)
            return
        body = {"Items": {"mark": str(self._chance.randrange(1000))}}
        await self.ask(user, "PUT", path, body)

    async def _volumes(self, user: str) -> None:
        await self._volume_requests.act(user)

    async def _csi(self, user: str) -> None:
        await self._csi_requests.act(user)

    async def settle_nodes(self) -> None:
        """Make every ineligible node eligible again, so that nothing waits for an operator."""
        for node_id in ineligible(self._servers):
            for _ in range(20):
                body = {"DrainSpec": None, "MarkEligible": True}
                answer = await self.ask("operator", "PUT", f"/v1/node/{node_id}/drain", body)
                if answer is not None and answer.status == 200:
                    break
                await asyncio.sleep(2.0)


def _rows(answer: Answer | None) -> list[dict[str, Any]]:
    return answer.json if answer is not None and answer.status == 200 else []
