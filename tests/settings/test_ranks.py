import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import ConfigError
from bireme.settings.ranks import MeetingPoint, RankSettings, Seat, arrange, first_host

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29501",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_RANK": "1",
    "PMIX_NAMESPACE": "1851195393",
}
HOROVOD = {
    "HOROVOD_RANK": "2",
    "HOROVOD_SIZE": "3",
    "HOROVOD_LOCAL_RANK": "0",
    "HOROVOD_LOCAL_SIZE": "1",
    "HOROVOD_CROSS_RANK": "1",
    "HOROVOD_CROSS_SIZE": "2",
    "HOROVOD_HOSTNAME": "127.0.0.1",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.9",
    "HOROVOD_GLOO_RENDEZVOUS_PORT": "4711",
}
MPICH = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "3", "MPI_LOCALNRANKS": "4"}
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_NTASKS": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_STEP_NODELIST": "gpu[07-08,11]",
    "SLURM_JOB_ID": "42",
    "SLURM_STEP_ID": "0",
}
BIREME = {
    "BIREME_ROLE": "worker",
    "BIREME_RANK": "1",
    "BIREME_NUM_WORKERS": "2",
    "BIREME_LOCAL_RANK": "1",
    "BIREME_LOCAL_SIZE": "2",
}


def read(*mappings):
    place = RankSettings.from_env({k: v for each in mappings for k, v in each.items()})
    return place.source, place.rank, place.size, place.local_rank, place.local_size, place.host


def test_a_process_without_a_launcher_is_alone():
    assert RankSettings.from_env({"PATH": "/bin", "RANK": " "}) == RankSettings()


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        (TORCHRUN, ("torchrun", 5, 8, 1, 4, "1")),
        (OPEN_MPI, ("Open MPI", 1, 2, 1, 2, "")),
        (HOROVOD, ("horovodrun", 2, 3, 0, 1, "127.0.0.1")),
        (MPICH, ("MPICH", 3, 4, 3, 4, "")),
        (SLURM, ("srun", 3, 5, 1, 2, "1")),
        (BIREME, ("bireme run", 1, 2, 1, 2, "")),
        ({"DMLC_ROLE": "worker", "DMLC_TASK_ID": "1", "DMLC_NUM_WORKER": "2"},
         ("bireme run", 1, 2, None, None, "")),
        ({"MV2_COMM_WORLD_RANK": "0", "MV2_COMM_WORLD_SIZE": "2"},
         ("MVAPICH", 0, 2, None, None, "")),
    ],
)  # fmt: skip
def test_each_launcher_is_understood(mapping, expected):
    assert read(mapping) == expected


@pytest.mark.parametrize(
    ("mappings", "source"),
    [
        ((SLURM, OPEN_MPI), "Open MPI"),
        ((SLURM, TORCHRUN), "torchrun"),
        ((OPEN_MPI, TORCHRUN), "torchrun"),
        ((TORCHRUN, OPEN_MPI, SLURM, MPICH, HOROVOD, {"RANK": "2", "WORLD_SIZE": "3"}),
         "horovodrun"),
        ((SLURM, BIREME), "bireme run"),
    ],
)  # fmt: skip
def test_an_inner_launcher_comes_before_an_outer_one(mappings, source):
    assert read(*mappings)[0] == source


def test_servers_and_schedulers_have_no_rank_of_their_own():
    assert RankSettings.from_env({**BIREME, "BIREME_ROLE": "server"}).size == 1


def test_a_batch_script_is_not_one_of_the_tasks_that_it_will_start():
    batch = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}
    assert RankSettings.from_env(batch).size == 1


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({**HOROVOD, "RANK": "0", "WORLD_SIZE": "3"},
         ["HOROVOD_RANK=2", "RANK=0", "horovodrun", "torchrun", "unset"]),
        ({**BIREME, "HOROVOD_RANK": "1", "HOROVOD_SIZE": "4"},
         ["BIREME_NUM_WORKERS=2", "HOROVOD_SIZE=4"]),
        ({**OPEN_MPI, "RANK": "0", "WORLD_SIZE": "1"}, ["RANK=0", "OMPI_COMM_WORLD_RANK=1"]),
        ({"HOROVOD_RANK": "1"}, ["HOROVOD_RANK=1 is set and HOROVOD_SIZE is not"]),
        ({"WORLD_SIZE": "2"}, ["WORLD_SIZE=2 is set and RANK is not"]),
        ({"RANK": "2", "WORLD_SIZE": "2"}, ["rank 2 of 2", "torchrun"]),
        ({"RANK": "x", "WORLD_SIZE": "2"}, ["RANK must be an integer >= 0, got 'x'"]),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, ["RANK must be an integer >= 0, got '-1'"]),
        ({**HOROVOD, "HOROVOD_LOCAL_SIZE": "9"}, ["local_size must be", "9", "horovodrun"]),
        ({**HOROVOD, "HOROVOD_LOCAL_RANK": "1"}, ["local_rank must be", "horovodrun"]),
        ({**TORCHRUN, "MASTER_PORT": "99999"}, ["MASTER_PORT", "99999"]),
    ],
)  # fmt: skip
def test_contradictions_are_errors_that_name_the_variables(mapping, words):
    with pytest.raises(ConfigError) as caught:
        RankSettings.from_env(mapping)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("mapping", "meeting"),
    [
        (TORCHRUN, MeetingPoint(host="node0", port=29501, is_served=True)),
        (HOROVOD, MeetingPoint(host="10.0.0.9", port=4711)),
        (
            {**HOROVOD, "MASTER_ADDR": "m", "MASTER_PORT": "9"},
            MeetingPoint(host="10.0.0.9", port=4711),
        ),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "m"}, MeetingPoint(host="m", port=29500)),
        ({**OPEN_MPI, "MASTER_PORT": "77"}, MeetingPoint(host="127.0.0.1", port=77)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
    ],
)
def test_where_the_processes_meet(mapping, meeting):
    assert RankSettings.from_env(mapping).meeting == meeting


def test_ranks_of_one_job_derive_the_same_port_and_other_jobs_another():
    def port(rank, job):
        each = {**SLURM, "SLURM_PROCID": str(rank), "SLURM_JOB_ID": job}
        return RankSettings.from_env(each).meeting

    assert port(0, "42") == port(4, "42")
    assert port(0, "42").host == "gpu07"
    assert port(0, "42").port != port(0, "43").port


def test_mpi_across_machines_needs_an_address_and_says_so():
    place = RankSettings.from_env({**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "4"})
    assert place.meeting is None
    for word in ("Open MPI", "4 processes", "MASTER_ADDR", "MASTER_PORT"):
        assert word in str(place.missing_meeting())


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("n[1-3]", "n1"),
        ("n[004,7-9],m2", "n004"),
        ("r[1-2]n[3-4],x", "r1n3"),
        ("", ""),
    ],
)
def test_first_host_of_a_node_list(nodes, first):
    assert first_host(nodes) == first


def test_what_launchers_say_about_local_ranks_holds():
    # Two "machines" of one real machine, as horovodrun -H localhost:2,127.0.0.1:1 makes them.
    seats = [Seat("localhost", 0, 2), Seat("localhost", 1, 2), Seat("127.0.0.1", 0, 1)]
    places = arrange(seats)
    assert [(p.local_rank, p.local_size, p.cross_rank, p.cross_size) for p in places] == [
        (0, 2, 0, 2),
        (1, 2, 0, 1),
        (0, 1, 1, 2),
    ]
    assert not places[0].is_homogeneous


def test_ranks_that_know_and_ranks_that_do_not_are_an_error():
    with pytest.raises(ConfigError, match=r"ranks \[1\] have no local rank"):
        arrange([Seat("a", 0, 1), Seat("b")])


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12))
def test_local_and_cross_ranks_number_every_machine_without_gaps(hosts):
    places = arrange([Seat(host) for host in hosts])
    assert [place.rank for place in places] == list(range(len(hosts)))
    for host in set(hosts):
        mine = [place for place in places if place.hostname == host]
        assert [place.local_rank for place in mine] == list(range(len(mine)))
        assert {place.local_size for place in mine} == {len(mine)}
    for number in {place.local_rank for place in places}:
        column = [place for place in places if place.local_rank == number]
        assert [place.cross_rank for place in column] == list(range(len(column)))
        assert {place.cross_size for place in column} == {len(column)}
    assert len({place.is_homogeneous for place in places}) == 1


def test_containers_of_one_name_are_apart():
    seats = [Seat("node", machine=token) for token in ("x", "y", "x")]
    assert [(each.local_rank, each.local_size) for each in arrange(seats)] == [
        (0, 2),
        (0, 1),
        (1, 2),
    ]
    assert {each.hostname for each in arrange(seats)} == {"node"}
