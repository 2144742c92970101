"""Settings for every test."""

from hypothesis import settings

# Examples are cut short by the suite's own time limit; a busy machine must not fail a property.
settings.register_profile("bireme", deadline=None, print_blob=True)
settings.load_profile("bireme")
