"""Starting jobs: from one command line to many processes, and to one exit code.

Nothing here imports torch: the launcher starts in a blink, also where torch is not installed.
"""

__all__ = ()
