"""Bundles of keys stay within what the settings let a message carry."""

import pytest
from tests.integration.jobs import run_job

pytestmark = pytest.mark.slow


@pytest.mark.timeout(200)
@pytest.mark.parametrize("limit", ["bireme_max_payload_bytes", "bireme_window_bytes"])
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_bundles_fit_into_small_messages_and_windows(tmp_path, transport, limit):
    limits = {limit: "1 MiB", "bireme_slice_bytes": "1 MiB", "bireme_transport": transport}
    found = run_job("bundles", tmp_path, num_workers=2, num_servers=2, **limits)
    assert [each["many_keys_are_exchanged_at_once"] for each in found] == ["", ""]
