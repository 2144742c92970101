import stat
from dataclasses import replace

import pytest
from tests.launch.goldens import job
from tests.launch.test_queued import Printer

from bireme.errors import JobError
from bireme.launch.hosts import parse_hosts
from bireme.launch.plan import all_elsewhere, plan_on
from bireme.launch.sge_array import run_array

QSUB = """#!/bin/sh
cp -p "$PWD/.job-1.env" "$PWD/seen"
echo 'Unable to run job: denied'
exit 1
"""


def test_a_refused_job_leaves_nothing_and_says_why(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "qsub").write_text(QSUB)
    (tmp_path / "qsub").chmod(0o755)
    spec = job(workdir=str(tmp_path), inherited={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    plan = all_elsewhere(plan_on(replace(spec, name="job-1"), parse_hosts("task-1:3")))
    with pytest.raises(JobError, match="denied"):
        run_array(plan, "#!/bin/sh\n", Printer(), "python")
    seen = tmp_path / "seen"
    assert stat.S_IMODE(seen.stat().st_mode) == 0o600
    assert "export BIREME_CALL_KEY=" in seen.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["qsub", "seen"]
