"""The versions of the rules by which `apply` refuses and carries out commands, and what each of them brought."""

from __future__ import annotations

from typing import Final

UNPUBLISHED_RULES: Final = 3
"""The rules of a server that does not publish its rules."""
NAMESPACE_RULES: Final = 1
"""From here on `apply` refuses a job that its namespace forbids, and a namespace whose quota does not exist."""
HOST_VOLUME_RULES: Final = 2
"""From here on `apply` takes a deleted host volume from the row of its node as well."""
PLACEMENT_VOLUME_RULES: Final = 3
"""From here on `apply` refuses a placement whose node no longer offers its host volumes to the job's namespace, and a
volume that is being deleted does not become ready when its node changes."""
ACCOUNTING_RULES: Final = 4
"""From here on `apply` adds what allocations used to the sums of their namespaces as they end."""
DEVICE_RULES: Final = 5
"""From here on `apply` counts failed jobs for devices, and moves allocations from failed devices."""
RECLAIM_RULES: Final = 6
"""From here on `apply` counts withdrawn ends of idle allocations, voids the idle time that was measured by another
policy, and refuses to change a device whose mark the operator has not seen."""
MIG_RULES: Final = 7
"""From here on servers book MIG instances that nodes create, and check that no two overlap."""
PACED_MOVE_RULES: Final = 8
"""From here on `apply` leaves services with a migrate block on failed devices: the leader moves them at its pace."""
DEVICE_PART_RULES: Final = 9
"""From here on allocations state the part of a device that a share counts as, and nodes the trials of devices."""
DEVICE_CHECK_RULES: Final = 10
"""From here on `apply` refuses a placement on a device that has failed, vanished or gone on trial since its plan was
checked, or no longer has what the placement's share takes."""
FORCED_LAUNCH_RULES: Final = 11
"""From here on a forced launch of a periodic job ignores `prohibit_overlap`."""
ENDED_SERVICE_RULES: Final = 11
"""From here on the report that an allocation of a service has ended, which no server asked for, evaluates its job."""
GANG_MEMBER_RULES: Final = 11
"""From here on `apply` refuses a plan that leaves a gang with fewer members than the plan names."""
GANG_GROWTH_RULES: Final = 12
"""From here on `apply` refuses a plan that makes a gang larger and leaves it below its minimum."""
LATE_UPDATE_RULES: Final = 12
"""From here on `apply` evaluates a job again when a plan updates an allocation in place that has ended meanwhile."""
SINGLE_WRITER_RULES: Final = 12
"""From here on `apply` refuses any second writer of a host volume that has a single writer, also of the same plan."""
RESTORED_LOSS_RULES: Final = 12
"""From here on a node that is down in a restored snapshot is lost at the index of the restore."""
CHANGED_VOLUME_RULES: Final = 12
"""From here on `apply` evaluates system jobs whose host volume becomes ready or changes, or whose claim is deleted."""
PLAN_ORDER_RULES: Final = 13
"""From here on `apply` refuses a plan that was made without an earlier plan's placements of the same job."""
LEAVING_WRITER_RULES: Final = 13
"""From here on `apply` refuses an allocation that would write to a volume with a single writer next to a live one of
its own name, such as the one that a canary is to replace, unless that one is stopped."""
FINISHED_WORK_RULES: Final = 13
"""From here on `apply` leaves out the replacement of a batch allocation if that one has completed since the plan was
made, or if it failed and its original has; the job is evaluated again."""
CSI_CLAIM_RULES: Final = 13
"""From here on `apply` counts the CSI volumes of allocations whose job was deleted or asks for no CSI volume any more,
and compares the access modes of all claims on a volume."""
PAST_DISCONNECT_RULES: Final = 13
"""From here on `apply` cancels the evaluation of a disconnection's time limit that no unknown allocation waits for."""
DELETING_VOLUME_RULES: Final = 13
"""From here on a host volume that is being deleted has a state of its own, which a late report of its node does not
change."""
CLUSTER_ID_RULES: Final = 14
"""From here on a cluster has an ID."""
STAND_IN_RULES: Final = 14
"""From here on `apply` leaves out the replacement of any allocation whose original, a batch allocation that was out of
contact, has completed since the plan was made; and the stop of a completed one in favour of another one of its name."""
FEWER_CANARIES_RULES: Final = 14
"""From here on a plan lowers the number of canaries that the deployment of a system job desires when too few nodes are
left for them."""
RULES_VERSION: Final = FEWER_CANARIES_RULES
"""The newest version of the rules by which `apply` refuses and carries out commands."""
