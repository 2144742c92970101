"""A second rank that does as this one does, a number of times over: for tests without processes."""

from bireme.collective import Handle, ReduceOp, SingleProcess, Topology
from bireme.horovod.session import CURRENT


class Echo(SingleProcess):
    """`Collectives` of ``size`` ranks; the others hold ``factor`` times this one's tensors.

    Submissions are noted; they are done when they are waited for.
    """

    def __init__(self, *, size=2, factor=3.0):
        super().__init__()
        self.size, self.factor = size, factor
        self.submitted = []
        self.ops = []

    @property
    def topology(self):
        return Topology.on_one_machine(0, self.size)

    def process_sets(self):
        return {0: tuple(range(self.size))}

    def allreduce(self, tensors, *, names, op=ReduceOp.AVERAGE, outs=None, **how):
        self.submitted.append(tuple(names))
        self.ops.append((op, how.get("prescale", 1.0), how.get("postscale", 1.0)))
        total = 1 + (self.size - 1) * self.factor
        scale = {ReduceOp.AVERAGE: total / self.size, ReduceOp.SUM: total}.get(op, 1.0)
        targets = outs or [tensor.clone() for tensor in tensors]

        def drive(handle, _timeout_s):
            for tensor, target in zip(tensors, targets, strict=True):
                target.copy_(tensor * scale)
            handle.finish(targets)

        return Handle(len(self.submitted), names[0], drive)


def echo(monkeypatch, **given):
    """Make this process's job one of several ranks."""
    engine = Echo(**given)
    monkeypatch.setattr(CURRENT, "_engine", engine)
    return engine
