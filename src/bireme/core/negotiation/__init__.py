"""How ranks agree on which named operations run, and in which order. PURE.

Every rank has a `member.Member`, which reports what it has submitted; rank 0 also has the one
`coordinator.Coordinator`, which answers with verdicts. Values in, values out; time is an argument.
"""
