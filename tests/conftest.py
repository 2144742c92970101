"""Settings for every test."""

from hypothesis import settings

# Examples are cut short by the suite's own time limit; a busy machine must not fail a property.
settings.register_profile("bireme", deadline=None, print_blob=True)
settings.load_profile("bireme")

# Programs that jobs run, not tests: importing them would start their work.
collect_ignore_glob = ["integration/script.py", "integration/watched.py", "integration/programs/*"]
