"""git and ssh fetch an artifact without anything of the agent's user."""

# ruff: noqa: ASYNC240 - small files of a test

from __future__ import annotations

import asyncio
import base64
import json
import os
import pwd
import subprocess
from pathlib import Path

import pytest
from yurt.client.artifacts import repository, task_artifacts
from yurt.client.artifacts.fetch_request import ArtifactLimits
from yurt.client.artifacts.repository import NO_KEY, SSH
from yurt.client.files.alloc_dir import build_alloc_dir, build_task_dir
from yurt.sdk.driver import TaskDirs
from yurt.sdk.errors import RecoverableError
from yurt.structs.task import TaskArtifact

FAKE_SSH = """#!/bin/sh
# It notes how it was called, shows its key, and does what the host at the other end would do.
{python} -c 'import json, os, sys
keys = [open(word).read() for before, word in zip(sys.argv, sys.argv[1:]) if before == "-i"]
print(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ), "keys": keys}}))' "$@" >> {record}
exec git-upload-pack {bare}
"""
HOSTILE_CONFIG = """[core]
    sshCommand = touch {marks}/ssh-command
    fsmonitor = touch {marks}/fsmonitor
    hooksPath = {marks}/hooks
[credential]
    helper = "!touch {marks}/helper"
[url "file:///nowhere/"]
    insteadOf = ssh://
"""
LIMIT_S = 60


def is_known(uid: int) -> bool:
    """ssh runs only for users that the system's table has."""
    try:
        return bool(pwd.getpwuid(uid))
    except KeyError:
        return False


needs_user = pytest.mark.skipif(not is_known(os.geteuid()), reason="ssh runs for no user that has no name")


class Machine:
    """A machine whose agent's user has settings and keys, and an ssh program that notes its calls."""

    def __init__(self, folder: Path) -> None:
        self.bare, self.home, self.marks = folder / "bare.git", folder / "home", folder / "marks"
        self.record = folder / "record"
        for each in (self.home / ".ssh", self.home / ".config/git", self.marks / "hooks", folder / "bin"):
            each.mkdir(parents=True)
        config = HOSTILE_CONFIG.format(marks=self.marks)
        (self.home / ".gitconfig").write_text(config)
        (self.home / ".config/git/config").write_text(config)
        (self.home / ".ssh/config").write_text(f"Host *\n ProxyCommand touch {self.marks}/proxy\n")
        ssh = folder / "bin/ssh"
        ssh.write_text(FAKE_SSH.format(python="python3", record=self.record, bare=self.bare))
        ssh.chmod(0o755)
        self.path = f"{folder / 'bin'}:{os.environ['PATH']}:/usr/lib/git-core"
        script = f"""
        set -e; git init -q -b main {folder}/work; cd {folder}/work; echo one > file; git add .
        git -c user.name=a -c user.email=a@example.org commit -qm one; git clone -q --bare . {self.bare}
        """
        subprocess.run(["sh", "-c", script], check=True, capture_output=True)

    def call(self) -> dict[str, object]:
        """How ssh was called, once."""
        (line,) = self.record.read_text().splitlines()
        found: dict[str, object] = json.loads(line)
        return found


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The agent's environment names all that git and ssh could use."""
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", made.path)
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    monkeypatch.setenv("GIT_SSH", str(made.marks / "git-ssh"))
    monkeypatch.setenv("GIT_ASKPASS", f"touch {made.marks}/askpass")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(made.home / ".config"))
    return made


NAMES = ("HOME", "SSH_AUTH_SOCK", "GIT_SSH", "GIT_ASKPASS", "XDG_CONFIG_HOME")


@pytest.fixture
def dirs(tmp_path: Path) -> TaskDirs:
    """The directories of a task."""
    build_alloc_dir(str(tmp_path / "allocs"), "id")
    return build_task_dir(str(tmp_path / "allocs"), "id", "web")


async def fetch(dirs: TaskDirs, **options: str) -> None:
    """Fetch by ssh. The fake ssh writes beside the allocation, which a confined download cannot."""
    artifact = TaskArtifact(
        getter_source="git::ssh://git@host.example/repo.git", relative_dest="local/got", getter_options=options
    )
    place = task_artifacts.TaskPlace(task_name="web", dirs=dirs)
    limits = ArtifactLimits(is_confined=False, env_names=NAMES)
    async with asyncio.timeout(LIMIT_S):
        expected = task_artifacts.plan((artifact,), place, lookup=lambda _name: None, limits=limits)
        await task_artifacts.fetch_all(expected, on_done=lambda _digest: None)


async def test_git_by_ssh_uses_no_configuration_of_the_agents_user(machine: Machine, dirs: TaskDirs) -> None:
    await fetch(dirs)
    assert Path(dirs.local_dir, "got/file").read_text() == "one\n"
    assert [path.name for path in machine.marks.rglob("*")] == ["hooks"]


async def test_ssh_gets_no_key_no_agent_and_no_variable_of_the_agents_user(machine: Machine, dirs: TaskDirs) -> None:
    await fetch(dirs)
    call = machine.call()
    argv, env = call["argv"], call["env"]
    assert isinstance(argv, list) and isinstance(env, dict)
    assert argv[:2] == ["-F", "/dev/null"]
    assert {"IdentityAgent=none", "IdentityFile=none", "IdentitiesOnly=yes"} <= set(argv)
    assert not {"SSH_AUTH_SOCK", "GIT_SSH", "GIT_ASKPASS"} & set(env)
    assert str(machine.home) not in (env["HOME"], env.get("XDG_CONFIG_HOME"))


async def test_the_key_of_an_artifact_is_the_only_one_that_ssh_gets(machine: Machine, dirs: TaskDirs) -> None:
    await fetch(dirs, sshkey=base64.b64encode(b"a key").decode())
    call = machine.call()
    argv = call["argv"]
    assert isinstance(argv, list)
    assert call["keys"] == ["a key\n"]
    assert {"IdentityAgent=none", "IdentitiesOnly=yes"} <= set(argv) and "IdentityFile=none" not in argv
    assert not list(Path(dirs.alloc_dir).rglob("key"))


@needs_user
def test_ssh_itself_understands_the_options_so() -> None:
    done = subprocess.run([*SSH.split(), *NO_KEY.split(), "-G", "host"], capture_output=True, text=True, check=True)
    settings = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert settings["identityagent"] == settings["identityfile"] == "none"
    assert settings["userknownhostsfile"] == settings["globalknownhostsfile"] == "/dev/null"
    assert settings["identitiesonly"] == "yes" and "proxycommand" not in settings
    assert settings["hostbasedauthentication"] == settings["gssapiauthentication"] == "no"


@needs_user
async def test_ssh_itself_runs_in_a_confined_download(dirs: TaskDirs) -> None:
    place = task_artifacts.TaskPlace(task_name="web", dirs=dirs)
    artifact = TaskArtifact(getter_source="git::ssh://git@127.0.0.1:1/repo.git", relative_dest="local/got")
    expected = task_artifacts.plan((artifact,), place, lookup=lambda _name: None, limits=ArtifactLimits())
    with pytest.raises(RecoverableError, match="Connection refused"):
        await task_artifacts.fetch_all(expected, on_done=lambda _digest: None)


@pytest.mark.parametrize(
    "name",
    [
        "AWS_ACCESS_KEY_ID", "AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_OAUTH_ACCESS_TOKEN",
        "GCE_METADATA_HOST", "AZURE_CLIENT_ID", "VAULT_ADDR", "NOMAD_TOKEN", "MY_SERVICE_PASSWORD", "app_secret",
        "GIT_ASKPASS", "NPM_CONFIG__AUTH", "DEPLOY_KEY",
    ],
)  # fmt: skip
def test_programs_see_no_secret_of_the_operator(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "x")
    assert name not in repository.filtered_environment()


@pytest.mark.parametrize(
    "name", ["PATH", "LANG", "https_proxy", "NO_PROXY", "SSL_CERT_FILE", "TMPDIR", "LD_LIBRARY_PATH"]
)
def test_programs_see_what_they_need(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "x")
    assert repository.filtered_environment()[name] == "x"
