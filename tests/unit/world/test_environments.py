"""Reading a World from every launcher's variables."""

from __future__ import annotations

import pytest

from trek.errors import InputError
from trek.world import World, read_world
from trek.world.environments import first_host

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "1234",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-node0-77@1",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SLURM = {
    "SLURM_PROCID": "2",
    "SLURM_NTASKS": "4",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_NODELIST": "gpu[03-04]",
    "SLURM_JOB_ID": "4711",
}


def test_no_variables_are_a_world_of_one() -> None:
    assert read_world({}) == World()


def test_a_world_reads_back_from_the_variables_it_makes() -> None:
    world = World(rank=2, size=4, local_rank=0, local_size=2, master_addr="node0", master_port=4321)
    assert read_world(world.environment()) == world


def test_torchrun_is_read() -> None:
    expected = World(rank=3, size=4, local_rank=1, local_size=2, master_addr="node0", master_port=1234)
    assert read_world(TORCHRUN) == expected


ONE = World(master_port=5).environment()
"""What Trek sets for a command that runs as one process."""


@pytest.mark.parametrize("launcher", [TORCHRUN, OPEN_MPI, MPICH, SLURM], ids=["torchrun", "Open MPI", "MPICH", "Slurm"])
def test_a_launcher_inside_trek_wins(launcher: dict[str, str]) -> None:
    """Every rank of mpirun in a step of a flow used to read Trek's rank 0 of 1, and trained alone."""
    assert read_world({**ONE, **launcher}) == read_world(launcher)


def test_a_launcher_inside_trek_wins_also_with_treks_own_numbers() -> None:
    two = World(rank=1, size=2, local_rank=1, local_size=2, master_port=5).environment()
    inner = {**two, "MASTER_PORT": "6", "MASTER_ADDR": "127.0.0.1"}
    assert read_world(inner).master_port == 6, "torchrun in each of two processes of Trek"
    assert read_world({**ONE, **OPEN_MPI, "MASTER_ADDR": "node0"}).size == 2, "mpirun -x MASTER_ADDR=node0"


def test_mpich_meets_at_a_port_of_the_job() -> None:
    ports = {read_world(MPICH, find_mpich_job=lambda job=job: job).master_port for job in ("a", "b")}
    assert len(ports) == 2, "two jobs on one machine used to share port 29500"
    assert read_world({**MPICH, "MASTER_PORT": "7"}, find_mpich_job=lambda: "a").master_port == 7


def test_open_mpi_on_one_machine_needs_no_address_and_agrees_on_a_port() -> None:
    first, second = read_world(OPEN_MPI), read_world({**OPEN_MPI, "OMPI_COMM_WORLD_RANK": "0"})
    assert (first.rank, first.size, first.local_rank, first.local_size) == (1, 2, 1, 2)
    assert first.master_port == second.master_port
    assert first.master_addr == "127.0.0.1"


def test_open_mpi_on_several_machines_asks_for_the_address() -> None:
    with pytest.raises(InputError, match="MASTER_ADDR is not set"):
        read_world({**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "4"})


def test_mpich_is_read() -> None:
    world = read_world(MPICH)
    assert (world.rank, world.size, world.local_rank, world.local_size) == (1, 2, 1, 2)


def test_slurm_step_is_read_with_its_first_host_and_a_shared_port() -> None:
    world = read_world(SLURM)
    assert (world.rank, world.size, world.local_rank, world.local_size) == (2, 4, 0, 2)
    assert world.master_addr == "gpu03"
    assert world.master_port == read_world({**SLURM, "SLURM_PROCID": "0", "SLURM_NODEID": "0"}).master_port
    assert world.master_port != read_world({**SLURM, "SLURM_JOB_ID": "4712"}).master_port


def test_srun_with_the_mpich_protocol_is_read_as_slurm() -> None:
    assert read_world({**SLURM, "PMI_RANK": "2", "PMI_SIZE": "4"}) == read_world(SLURM)


def test_mpich_inside_a_slurm_job_is_read_as_mpich() -> None:
    assert read_world({**SLURM, **MPICH}).size == 2


@pytest.mark.parametrize(
    "environ",
    [
        {"SLURM_NTASKS": "4", "SLURM_JOB_ID": "1"},
        {"SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "ENVIRONMENT": "BATCH"},
        {"SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_JOB_NAME": "interactive"},
        {"SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_ID": "4294967290"},
    ],
    ids=["allocation without a step", "batch script", "interactive shell", "interactive step"],
)
def test_a_single_process_in_a_slurm_allocation_does_not_pretend_to_be_many(environ: dict[str, str]) -> None:
    assert read_world(environ) == World()


@pytest.mark.parametrize(
    ("hosts", "first"),
    [("node7", "node7"), ("a[1-3],b", "a1"), ("a[007,9-12]", "a007"), ("r[1-2]n[3-4]", "r1n3"), ("x,y[1-2]", "x")],
)
def test_first_host_of_a_slurm_list(hosts: str, first: str) -> None:
    assert first_host(hosts) == first


def test_a_slurm_list_that_cannot_be_read_says_what_to_do() -> None:
    with pytest.raises(InputError, match="MASTER_ADDR"):
        first_host("a[1-3")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"RANK": "two"}, "RANK is 'two'"),
        ({"RANK": "-1"}, "RANK is '-1'"),
        ({"RANK": "4"}, "RANK is 4 and WORLD_SIZE is 4"),
        ({"WORLD_SIZE": ""}, "WORLD_SIZE is not"),
        ({"RANK": ""}, "RANK is not"),
        ({"MASTER_PORT": "http"}, "MASTER_PORT is 'http'"),
        ({"MASTER_PORT": "70000"}, "MASTER_PORT must be at most 65535, got 70000"),
        ({"LOCAL_RANK": "2"}, "LOCAL_RANK"),
    ],
)
def test_a_value_that_cannot_be_is_named(change: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_world({**TORCHRUN, **change})


def test_the_device_comes_from_the_environment() -> None:
    assert read_world({"TREK_DEVICE": "cpu"}).device_name == "cpu"
    assert read_world({**TORCHRUN, "TREK_DEVICE": "cuda:1"}).device_name == "cuda:1"
