"""Every command of the command line shows its token: without one access control refuses it, with one it does not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple, TextIO

import pytest
from yurt.cli import tree
from yurt.cli.main import main
from yurt.testing.agent import Agent, dev_token, raw_exec_job, register, wait_for

pytestmark = pytest.mark.timeout(900)

JOB = """
job "svc" {
  group "g" {
    task "main" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
      action "greet" {
        command = "/bin/echo"
        args    = ["hello"]
      }
    }
  }
}
"""
VOLUME = 'name = "v"\ntype = "host"\nplugin_id = "mkdir"\ncapability {\n  access_mode = "single-node-writer"\n' \
         '  attachment_mode = "file-system"\n}\n'  # fmt: skip
QUOTA = 'name = "small"\nlimit {\n  region = "global"\n  region_limit {\n    cpu = 1000\n  }\n}\n'
CSI = 'id = "c"\nname = "c"\ntype = "csi"\nplugin_id = "p"\n'
FILES = {
    "svc.nomad.hcl": JOB,
    "policy.hcl": 'node { policy = "read" }\n',
    "volume.hcl": VOLUME,
    "csi.hcl": CSI,
    "quota.hcl": QUOTA,
    "pool.hcl": 'node_pool "extra" {}\n',
    "method.json": '{"JWTValidationPubKeys": ["x"]}',
}
UNKNOWN = "11111111-2222-3333-4444-555555555555"
OPEN = {
    "operator metrics", "ui", "login", "acl lint", "acl bootstrap", "acl auth-method list", "acl token self",
    "job init", "node pool list", "namespace list", "var list", "acl policy list", "acl role list", "queue list",
    "status svc",
}  # fmt: skip
"""What needs no token, says in its own words that one is missing, or shows what the caller may see: nothing."""
CASES = """
agent-info
check
top -once
status
status svc
monitor export -on-disk=false -service-name=x
job init fresh.nomad.hcl
job run -detach svc.nomad.hcl
job plan svc.nomad.hcl
job validate svc.nomad.hcl
job inspect svc
job status svc
job allocs svc
job deployments svc
job history svc
job scaling-events svc
job report -since=1d
job why-not svc
job eval -detach svc
job scale -detach svc g 1
job tag apply -name=t svc
job tag unset -name=t svc
job restart -yes svc
job promote -detach svc
job revert -detach svc 0
job action -job=svc -group=g -task=main greet
job dispatch -detach para
job periodic force -detach often
alloc status
alloc status ALLOC
alloc logs ALLOC
alloc fs ALLOC
alloc exec ALLOC /bin/true
alloc checks ALLOC
alloc why ALLOC
alloc signal -s SIGCONT ALLOC
alloc pause -status ALLOC
alloc keep ALLOC
alloc restart ALLOC
alloc stop -detach ALLOC
deployment list
deployment status DEPLOYMENT
deployment pause DEPLOYMENT
deployment resume -detach DEPLOYMENT
deployment promote -detach DEPLOYMENT
deployment fail -detach DEPLOYMENT
eval list
eval status EVAL
eval replay EVAL
eval delete -yes -filter=ID=="x"
node status
node status NODE
node config -servers
node meta read -node-id=NODE
node meta apply -node-id=NODE a=b
node eligibility -enable NODE
node drain -disable -yes NODE
node identity get NODE
node identity renew NODE
node intro create
node gpu NODE
node topo NODE
node pool list
node pool apply pool.hcl
node pool info extra
node pool jobs extra
node pool nodes extra
node pool delete extra
namespace list
namespace apply extra
namespace status extra
namespace inspect extra
namespace delete extra
queue list
queue jobs -node-pool=default
queue status -node-pool=default
queue tenants -node-pool=default
queue accuracy -node-pool=default
queue why svc
whatif
quota list
quota plan quota.hcl
quota apply quota.hcl
quota status small
quota inspect small
quota delete small
operator api /v1/jobs
operator autopilot get-config
operator autopilot set-config -min-quorum=1
operator autopilot health
operator debug -duration=1s -interval=1s -output=archive
operator root keyring list
operator root keyring rotate
operator root keyring remove UNKNOWN
operator metrics
operator raft list-peers
operator raft remove-peer -peer-id=x
operator raft transfer-leadership -peer-id=x
operator scheduler get-config
operator utilization
operator scheduler set-config -scheduler-algorithm=binpack
operator snapshot save backup.snap
operator snapshot restore backup.snap
plugin list
plugin status
plugin reload raw_exec
scaling policy list
scaling policy info UNKNOWN
server members
server join 127.0.0.1
server force-leave nobody
service list
service info web
service delete web UNKNOWN
system gc
system reconcile summaries
ui -show-url
var put a/b k=v
var get a/b
var list
var lock a/lock /bin/true
var purge a/b
volume status
volume claim list
volume claim delete UNKNOWN
volume create volume.hcl
volume register csi.hcl
volume snapshot create c
volume snapshot list -plugin=p
volume snapshot delete p x
volume detach c NODE
volume deregister c
volume delete UNKNOWN
acl bootstrap
acl policy apply p policy.hcl
acl policy list
acl policy info p
acl policy self
acl lint policy.hcl
acl explain UNKNOWN list-jobs
acl role create -name=r -policy=p
acl role list
acl role info UNKNOWN
acl role update -description=d UNKNOWN
acl role delete UNKNOWN
acl token create -policy=p
acl token list
acl token self
acl token info UNKNOWN
acl token update -name=n UNKNOWN
acl token delete UNKNOWN
acl auth-method create -name=m -type=JWT -max-token-ttl=1h -token-locality=local -config=@method.json
acl auth-method list
acl auth-method info m
acl auth-method update -default m
acl auth-method delete m
acl binding-rule create -auth-method=m -bind-type=policy -bind-name=p
acl binding-rule list
acl binding-rule info UNKNOWN
acl binding-rule update -description=d UNKNOWN
acl binding-rule delete UNKNOWN
login -method=m -login-token=x
acl policy delete p
job stop -detach svc
job start -detach svc
"""
ENDLESS = {"monitor"}
"""Commands that follow something; their token is the one of `operator api`, and of logs in `test_acl.py`."""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """A dev agent with access control and objects for the commands to find."""
    made = Agent(tmp_path_factory.mktemp("acl"), data_dir=None)
    made.flags = ("-acl",)
    for name, text in FILES.items():
        (made.folder / name).write_text(text)
    made.spawn()
    try:
        made.token = dev_token(made)
        assert made.cli("job", "run", "-detach", "svc.nomad.hcl").returncode == 0
        assert made.cli("operator", "snapshot", "save", "backup.snap").returncode == 0
        made.running("svc", 1)
        register(made, {**raw_exec_job("para", "/bin/true", kind="batch"), "ParameterizedJob": {}})
        register(made, {**raw_exec_job("often", "/bin/true", kind="batch"), "Periodic": {"Spec": "0 0 1 1 *"}})
        yield made
    finally:
        made.interrupt()


Ids = dict[str, str]


@pytest.fixture(scope="module")
def ids(agent: Agent) -> Ids:
    """What the words in capitals stand for."""
    alloc = agent.running("svc", 1)[0]
    deployments = wait_for("a deployment", lambda: agent.get("/v1/deployments"))
    return {
        "ALLOC": alloc["ID"],
        "EVAL": alloc["EvalID"],
        "NODE": alloc["NodeID"],
        "UNKNOWN": UNKNOWN,
        "DEPLOYMENT": deployments[0]["ID"],
    }


def cases() -> list[tuple[str, list[str]]]:
    """Each line's command and words."""
    found = []
    names = sorted(command_names(), key=len, reverse=True)
    for line in CASES.strip().splitlines():
        name = next(each for each in names if line == each or line.startswith(f"{each} "))
        found.append((name, line.removeprefix(name).split()))
    return found


def command_names() -> set[str]:
    """The commands that ask an agent."""
    commands = (tree.noun(noun).commands for noun in tree.NOUNS)
    return {name for each in commands for name, command in each.items() if command.is_client}


def test_every_command_has_a_case() -> None:
    without = command_names() - {name for name, _ in cases()} - ENDLESS - LOCAL
    assert without == set()


LOCAL = {"job convert", "acl policy suggest"}
"""Commands that ask no agent here."""


class Ran(NamedTuple):
    """A command that has ended."""

    code: int
    text: str


Run = Callable[[tuple[str, list[str]], str], Ran]


@pytest.fixture
def no_input() -> Iterator[TextIO]:
    """Standard input of commands that read it."""
    with open(os.devnull) as found:
        yield found


@pytest.fixture
def run(
    agent: Agent, ids: Ids, no_input: TextIO, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs a command with the token of a flag, or with none at all; in this process, since there are hundreds."""
    monkeypatch.chdir(agent.folder)
    monkeypatch.setattr("sys.stdin", no_input)
    for name, value in {**agent.environment(), "NOMAD_TOKEN": ""}.items():
        monkeypatch.setenv(name, value)

    def run_one(case: tuple[str, list[str]], token: str) -> Ran:
        name, words = case
        if "ALLOC" in words and token:
            ids["ALLOC"] = agent.running("svc", 1)[0]["ID"]
        flags = [f"-token={token}"] if token else []
        code = main([*name.split(), *flags, *(filled(word, ids) for word in words)])
        return Ran(code, "".join(capfd.readouterr()))

    return run_one


def filled(word: str, ids: Ids) -> str:
    """A word with ids in the place of the words in capitals."""
    for key, value in ids.items():
        word = word.replace(key, value)
    return word


def test_without_a_token_every_command_is_refused(run: Run) -> None:
    wrong = []
    for case in cases():
        done = run(case, "")
        is_refused = done.code != 0 and "ermission denied" in done.text
        is_open = case[0] in OPEN or " ".join([case[0], *case[1]]) in OPEN
        if is_refused is is_open:
            wrong.append(f"{case}: {done}")
    assert not wrong, "\n".join(wrong)


def test_with_a_token_no_command_is_refused_and_none_fails_by_a_defect(agent: Agent, run: Run) -> None:
    wrong = []
    for case in cases():
        done = run(case, agent.token)
        if any(words in done.text for words in ("ermission denied", "Traceback", "Internal error")):
            wrong.append((case, done))
    assert not wrong, wrong
