"""The variables of each framework and the hostfile by which the programs of a gang find each other. Pure.

torchrun takes each of its options from `PET_<OPTION>`; its static rendezvous has the ranks that it is given. A program
of plain PyTorch reads RANK and WORLD_SIZE itself; torchrun sets both for its workers.
"""

from __future__ import annotations

from typing import Final

from yurt.structs.policies import Rendezvous
from yurt.structs.queueing.gang import GangMember, GangRoster

HOSTFILE: Final = "gang-hosts"
"""The hostfile's name in the task's directory `local`."""
Variables = dict[str, str]


def variables(roster: GangRoster, rank: int, rendezvous: Rendezvous, hostfile: str) -> Variables:
    """The environment of a member; `hostfile` is the file's path as the task sees it."""
    own, master = roster.members[rank], roster.members[0]
    neighbours = [member.alloc_id for member in roster.members if member.node_id == own.node_id]
    found = {
        "YURT_GANG_RANK": str(rank),
        "YURT_GANG_SIZE": str(len(roster.members)),
        "YURT_GANG_LOCAL_RANK": str(neighbours.index(own.alloc_id)),
        "YURT_GANG_LOCAL_SIZE": str(len(neighbours)),
        "YURT_GANG_ADDRS": ",".join(member.address for member in roster.members),
        "YURT_GANG_PORTS": ",".join(str(member.port) for member in roster.members),
        "YURT_GANG_MASTER_ADDR": master.address,
        "YURT_GANG_MASTER_PORT": str(master.port),
        "YURT_GANG_GENERATION": str(roster.generation),
        "YURT_GANG_GPUS_PER_NODE": str(own.devices),
        "YURT_GANG_GPUS": str(sum(member.devices for member in roster.members)),
        "YURT_GANG_HOSTFILE": hostfile,
    }
    if rendezvous.interface:
        found |= {"NCCL_SOCKET_IFNAME": rendezvous.interface, "GLOO_SOCKET_IFNAME": rendezvous.interface}
    return found | _of_framework(rendezvous.framework, roster, rank, hostfile)


def _of_framework(framework: str, roster: GangRoster, rank: int, hostfile: str) -> Variables:
    master, size = roster.members[0], str(len(roster.members))
    match framework:
        case "torch":
            return {
                "MASTER_ADDR": master.address,
                "MASTER_PORT": str(master.port),
                "RANK": str(rank),
                "WORLD_SIZE": size,
                "LOCAL_RANK": "0",
                "PET_NNODES": size,
                "PET_NODE_RANK": str(rank),
                "PET_NPROC_PER_NODE": str(max(1, roster.members[rank].devices)),
                "PET_MASTER_ADDR": master.address,
                "PET_MASTER_PORT": str(master.port),
                "PET_RDZV_ID": f"{roster.job_id}-{roster.generation}",
            }
        case "jax":
            return {"JAX_COORDINATOR_ADDRESS": _at(master)}
        case "mpi":
            return dict.fromkeys(
                ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile", "I_MPI_HYDRA_HOST_FILE"), hostfile
            )
        case "ray":
            return {"RAY_ADDRESS": _at(master)} if rank else {}
        case _:
            return {}


def hostfile_text(roster: GangRoster) -> str:
    """One line for each member, `address slots=n`: the number of processes that MPI starts there."""
    return "".join(f"{member.address} slots={max(1, member.devices)}\n" for member in roster.members)


def _at(member: GangMember) -> str:
    return f"[{member.address}]:{member.port}" if ":" in member.address else f"{member.address}:{member.port}"
