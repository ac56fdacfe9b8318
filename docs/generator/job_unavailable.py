"""What a job may say and does not get: found out by giving a job with each block to the code that refuses it."""

from __future__ import annotations

from yurt.api.decode import decode_job
from yurt.client.requirements import notice, unavailable
from yurt.rules.canonical import canonicalize_job
from yurt.rules.validation.job import validate_job
from yurt_jobspec import parse_job

from docs.generator.markdown import code, table

TASK_BLOCKS = {
    "vault": 'vault {\n policies = ["p"]\n}',
    "secret": 'secret "s" {\n provider = "nomad"\n path = "p"\n}',
    "resources > device": 'resources {\n device "nvidia/gpu" {}\n}',
    "identity with extra_claims": 'identity {\n file = true\n extra_claims = ["c"]\n}',
    "identity of consul": 'identity {\n name = "consul_default"\n aud = ["consul.io"]\n}',
    "service": 'service {\n name = "s"\n}',
    "dispatch_payload": 'dispatch_payload {\n file = "p"\n}',
    "consul": 'consul {\n namespace = "n"\n}',
    "scaling": 'scaling "cpu" {\n max = 2\n}',
    "resources > numa": 'resources {\n cores = 1\n numa {\n affinity = "none"\n }\n}',
}
GROUP_BLOCKS = {
    "service with connect": 'network {\n mode = "bridge"\n}\n'
    'service {\n name = "s"\n port = "80"\n connect {\n '
    "sidecar_service {}\n }\n}",
    'network with mode "bridge"': 'network {\n mode = "bridge"\n}',
    'network with mode "cni/<name>"': 'network {\n mode = "cni/n"\n}',
    'network with mode "none"': 'network {\n mode = "none"\n}',
}
JOB_BLOCKS = {"multiregion": 'multiregion {\n region "a" {}\n}'}
VOLUME = 'volume "v" {\n type = "host"\n source = "v"\n}'
JOB = 'job "j" {{\n{job}\n group "g" {{\n{group}\n task "t" {{\n driver = "d"\n{task}\n }}\n }}\n}}'


def verdict(*, job: str = "", group: str = "", task: str = "") -> tuple[str, str]:
    """When and how a job with these blocks is refused; two empty texts when it is not."""
    volume = VOLUME if "volume_mount" in task else ""
    text = JOB.format(job=job, group=f"{group}\n{volume}", task=task)
    parsed, _ = decode_job(canonicalize_job(parse_job(text, filename="sample")))
    errors, _ = validate_job(parsed)
    if errors:
        return "when it is registered", errors[0]
    asked = parsed.task_groups[0]
    refusal = unavailable(asked, asked.tasks[0])
    if refusal:
        return "when the task starts", refusal
    return ("runs, and says", notice(asked, asked.tasks[0])) if notice(asked, asked.tasks[0]) else ("", "")


def verdicts() -> dict[str, tuple[str, str]]:
    """Of every block that is asked about."""
    found = {f"task > {name}": verdict(task=text) for name, text in TASK_BLOCKS.items()}
    found |= {f"group > {name}": verdict(group=text) for name, text in GROUP_BLOCKS.items()}
    return found | {f"job > {name}": verdict(job=text) for name, text in JOB_BLOCKS.items()}


def section() -> str:
    """The blocks that are refused, and when."""
    rows = [(code(name), when, text) for name, (when, text) in verdicts().items() if when]
    return "\n\n".join(
        (
            "## What is not available\n\nBlocks that this version can not do are accepted where Nomad accepts them, "
            "and refused before "
            "anything of the task starts. The texts are what the code answers; `t` is the task's name.",
            table(("Block", "Refused", "With"), rows),
            "A `volume` of type `csi` is mounted as a file system: `block-device` fails the task, and so does a plugin "
            "whose controller attaches volumes to nodes. Blocks and attributes without effect say so in the tables "
            "above, and registering a job warns of those that would be missed.",
        )
    )
