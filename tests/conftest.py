"""Settings for every test."""

import signal

import pytest
from hypothesis import settings

from bireme.transport.interrupts import Shield

# Examples are cut short by the suite's own time limit; a busy machine must not fail a property.
settings.register_profile("bireme", deadline=None, print_blob=True)
settings.load_profile("bireme")

# Shells start what runs in the background with Ctrl-C ignored, and programs hand that on: those
# that tests interrupt would never notice.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Programs that jobs run, not tests: importing them would start their work.
collect_ignore_glob = [
    "integration/forking.py",
    "integration/loading.py",
    "integration/script.py",
    "integration/optimizer_script.py",
    "integration/watched.py",
    "integration/programs/*",
    "clusters/init.py",
    "clusters/programs/*",
]


class TimeIsUp(BaseException):
    """A test took longer than it may.

    Hypothesis takes ``pytest.fail`` for a falsified property, tries the example again, and tells
    that the runs differ (FlakyStrategyDefinition). This goes through it.
    """


@pytest.fixture
def shield():
    shield = Shield()
    shield.raise_up()
    yield shield
    shield.lower()


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer():
    is_set = yield
    fail = signal.getsignal(signal.SIGALRM)

    def tell(signum, frame):
        try:
            fail(signum, frame)
        except pytest.fail.Exception as failure:
            raise TimeIsUp(failure.msg) from None

    if callable(fail):
        signal.signal(signal.SIGALRM, tell)
    return is_set


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        for name in ("integration", "clusters"):
            if name in item.path.parts:
                item.add_marker(getattr(pytest.mark, name))
