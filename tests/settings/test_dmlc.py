"""MXNet's variables are carried over where ours are not set."""

import pytest

from bireme.errors import ConfigError
from bireme.settings import JobSettings, NodeSettings
from bireme.settings.dmlc import SPELLINGS, translate
from bireme.settings.variables import variables


def test_every_translation_leads_to_a_variable():
    ours = {each.name for cls in (NodeSettings, JobSettings) for each in variables(cls).values()}
    assert set(SPELLINGS) <= ours


def test_the_mapping_itself_is_left_alone():
    mapping = {"DMLC_ROLE": "worker"}
    assert translate(mapping) == {"DMLC_ROLE": "worker", "BIREME_ROLE": "worker"}
    assert mapping == {"DMLC_ROLE": "worker"}


def test_ours_wins_and_empty_ones_count_for_nothing():
    assert translate({"DMLC_ROLE": "worker", "BIREME_ROLE": "server"})["BIREME_ROLE"] == "server"
    assert translate({"DMLC_ROLE": "worker", "BIREME_ROLE": " "})["BIREME_ROLE"] == "worker"
    assert translate({"DMLC_ROLE": ""}) == {"DMLC_ROLE": ""}


@pytest.mark.parametrize(
    ("role", "rank"), [("worker", "3"), ("server", None), ("scheduler", None), (None, None)]
)
def test_a_task_number_is_a_workers_rank(role, rank):
    mapping = {"DMLC_TASK_ID": "3", **({"DMLC_ROLE": role} if role else {})}
    assert translate(mapping).get("BIREME_RANK") == rank


def test_milliseconds_become_seconds():
    assert translate({"PS_RESEND_TIMEOUT": "1000"})["BIREME_RESEND_TIMEOUT"] == "1.0"
    with pytest.raises(ConfigError, match="PS_RESEND_TIMEOUT must be a number of milliseconds"):
        translate({"PS_RESEND_TIMEOUT": "soon"})
