"""What people see of a plan says who runs where, and keeps secrets."""

from tests.launch.goldens import SECRET, job

from bireme.launch.listing import Listing, assignments
from bireme.launch.plan import THIS_MACHINE, plan_on
from bireme.settings import JobSettings


def test_only_what_differs_from_the_defaults():
    settings = JobSettings(slice_bytes=4 << 20)
    plan = plan_on(job(settings=settings, sync_dir="/tmp/copy"), [THIS_MACHINE])
    listing = Listing(plan)
    *_, every = listing.job()
    assert "BIREME_SLICE_BYTES=4194304" in every
    assert "BIREME_STALENESS" not in every
    assert "BIREME_SECRET=(kept)" in every
    assert SECRET not in "".join(listing.job())
    assert "# after the current folder has been copied to /tmp/copy" in listing.job()
    scheduler, *_, worker = listing.host(plan.hosts[0])
    assert scheduler.startswith("#   H: ")
    assert "RANK=2" in worker
    assert "SLICE_BYTES" not in worker


def test_what_looks_like_a_secret_is_only_named():
    env = {"GITHUB_TOKEN": "t", "DB_PASSWORD": "p", "aws_secret_access_key": "k", "KEYS": "4"}
    assert assignments(env) == [
        "DB_PASSWORD=(kept)",
        "GITHUB_TOKEN=(kept)",
        "KEYS=4",
        "aws_secret_access_key=(kept)",
    ]


def test_values_are_quoted():
    assert assignments({"A": "it's", "B": "x\ny"}) == ["A='it'\"'\"'s'", "B='x\ny'"]
