"""The roles of a job as state machines: ``handle(event, now_s) -> actions``.

Pure: no sockets, threads, clocks, environment or tensors. ``node`` runs them over real transports,
``sim`` under virtual time.
"""
