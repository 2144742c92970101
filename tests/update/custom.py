"""Optimizers that are not of torch, for tests of optimizers by import path."""

import torch


class _Simple(torch.optim.Optimizer):
    """Calls ``change(param, grad, state, group)`` for each parameter."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self.change(param, param.grad, self.state[param], group)


class Lion(_Simple):
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def change(self, param, grad, state, group):
        momentum = state.setdefault("exp_avg", torch.zeros_like(param))
        first, second = group["betas"]
        direction = (momentum * first + grad * (1 - first)).sign_()
        param.mul_(1 - group["lr"] * group["weight_decay"]).sub_(direction, alpha=group["lr"])
        momentum.mul_(second).add_(grad, alpha=1 - second)


class Lars(_Simple):
    def __init__(self, params, lr=0.1, trust=1e-2):
        super().__init__(params, {"lr": lr, "trust": trust})

    def change(self, param, grad, state, group):
        ratio = group["trust"] * param.norm() / grad.norm() if group["trust"] else 1.0
        param.sub_(grad * ratio, alpha=group["lr"])


class Lamb(_Simple):
    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    def change(self, param, grad, state, group):
        second = state.setdefault("second", torch.zeros_like(param))
        second.mul_(0.9).addcmul_(grad, grad, value=0.1)
        update = grad / (second.sqrt() + 1e-6)
        param.sub_(update * (param.norm() / update.norm()), alpha=group["lr"])


class Clipped(_Simple):
    def __init__(self, params, limit, lr=0.1):
        super().__init__(params, {"lr": lr, "limit": limit})

    def change(self, param, grad, state, group):
        param.sub_(grad * (group["limit"] / grad.norm()).clamp(max=1.0), alpha=group["lr"])


class Noisy(_Simple):
    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    def change(self, param, grad, state, group):
        param.sub_(grad + torch.randn_like(grad), alpha=group["lr"])


class CountsElements(_Simple):
    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    def change(self, param, grad, state, group):
        state["seen"] = state.get("seen", 0) + param.numel()
        param.sub_(grad, alpha=group["lr"])


class Refusing(_Simple):
    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    def change(self, param, grad, state, group):
        raise LookupError("takes nothing")


class Wrapper(torch.optim.Optimizer):
    """Wraps another, as Lookahead does: cannot be described by numbers."""

    def __init__(self, optimizer, every=5):
        super().__init__(optimizer.param_groups, {"every": every})


class NoOptimizer:
    pass


def function():
    return None


def __getattr__(name):
    if name == "Secret":
        raise SystemExit("code that a name must not reach")
    raise AttributeError(name)
