"""CSI volumes in the log: a volume needs a plugin at the position of its registration."""

from __future__ import annotations

from yurt.sdk.value import replace
from yurt.structs.commands import DeregisterJob, RegisterJob, UpsertVolumes
from yurt.structs.task import TaskCSIPluginConfig
from yurt.structs.volumes.csi import CSIVolume
from yurt.testing import factories
from yurt.testing.replica import Replica

VOLUME = CSIVolume(id="data", external_id="vol-1", plugin_id="ebs", namespace="default")
REGISTER = UpsertVolumes(volumes=(VOLUME,), needs_plugins=True)
PURGE = DeregisterJob(namespace="default", job_id="plugin", purge=True)


def add_plugin(replica: Replica) -> None:
    """Register a job that names the plugin."""
    group = factories.group()
    task = replace(group.tasks[0], csi_plugin_config=TaskCSIPluginConfig(id="ebs", type="node"))
    replica.apply(RegisterJob(job=factories.job("plugin", task_groups=(replace(group, tasks=(task,)),))))


def test_a_volume_is_registered_while_a_job_names_its_plugin(replica: Replica) -> None:
    add_plugin(replica)

    state = replica.apply(REGISTER)

    assert ("default", "data") in state.csi_volumes


def test_a_volume_whose_plugin_went_meanwhile_is_rejected(replica: Replica) -> None:
    add_plugin(replica)
    replica.apply(PURGE)

    rejected = replica.reject(REGISTER)

    assert (rejected.kind, rejected.message.partition(":")[0]) == ("not_found", 'no CSI plugin "ebs" is known')


def test_an_entry_of_an_earlier_version_needs_no_plugin(replica: Replica) -> None:
    state = replica.apply(UpsertVolumes(volumes=(VOLUME,)))

    assert ("default", "data") in state.csi_volumes
