import pytest
from tests.launch.goldens import job

from bireme.errors import ConfigError
from bireme.launch.base import State
from bireme.launch.hosts import parse_hosts
from bireme.launch.pe import find_me, pe_hosts, qrsh_step, qstat_output, qstat_state, qsub_number
from bireme.launch.plan import plan_on


def test_hosts_of_a_parallel_job(tmp_path):
    path = tmp_path / "pe"
    path.write_text("a 2 all.q@a UNDEFINED\nb 1 all.q@b UNDEFINED\n")
    assert pe_hosts({"PE_HOSTFILE": str(path)}) == parse_hosts("a:2,b:1")
    assert pe_hosts({}) == ()
    with pytest.raises(ConfigError, match="cannot read PE_HOSTFILE"):
        pe_hosts({"PE_HOSTFILE": f"{tmp_path}/no"})


@pytest.mark.parametrize("name", ["leda", "leda.example.org"])
def test_this_machine_is_found_by_either_name(name):
    plan = find_me(plan_on(job(here="leda.example.org"), parse_hosts(f"castor:2,{name}:2")))
    assert [host.is_here for host in plan.hosts] == [False, True]


def test_what_qrsh_cannot_pass_on():
    assert qrsh_step("a", {}, "/opt/python")[:3] == ("qrsh", "-inherit", "a")
    with pytest.raises(ConfigError, match="no blanks or quotes"):
        qrsh_step("a", {}, "/opt/my env/python")


QSTAT = """job-ID  prior   name       user         state submit/start at     queue      slots
-----------------------------------------------------------------------------------------
      7 0.50000 job-1      ann          r     12/01/2026 14:23:24 all.q@leda     2
      8 0.00000 job-2      ann          qw    12/01/2026 14:23:25                2
     71 0.00000 job-3      ann          hqw   12/01/2026 14:23:25                2
"""


def test_states():
    assert qstat_state(QSTAT, "7") is State.RUNNING
    assert qstat_state(QSTAT, "8") is State.QUEUED
    assert qstat_state(QSTAT, "1") is State.ENDED
    assert qstat_state("", "7") is State.ENDED


def test_numbers_and_outputs():
    assert qsub_number('Your job 12 ("job-1") has been submitted\n') == "12"
    assert qsub_number("Unable to run job: denied") == ""
    assert qstat_output("stdout_path_list:  NONE:NONE:/a/b.log\n") == "/a/b.log"
    assert qstat_output("") == ""
