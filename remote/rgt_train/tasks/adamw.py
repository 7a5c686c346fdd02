"""AdamW for the reference tasks.

`torch.optim` imports the whole compiler stack when its first optimizer is made: 0.9 s and 75 MB on a small machine,
which is more than a short task needs for everything else. A loop of your own uses whatever optimizer it likes.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Callable, Dict, Iterable, List

import torch
from torch.utils.hooks import RemovableHandle


class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), the formulas of `torch.optim.AdamW`.

    Args:
        parameters: What to train; sizes and order must be the same at a resume.
        weight_decay: Share of a weight that a step of learning rate 1 would take away.
        betas: Decay of the first and the second moment.
        eps: Added to the root of the second moment.
    """

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        weight_decay: float = 0.01,
        betas: "tuple[float, float]" = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.parameters: List[torch.nn.Parameter] = list(parameters)
        self.param_groups = [{"params": self.parameters}]
        self._decay, self._betas, self._eps = weight_decay, betas, eps
        self._steps = 0
        self._before: "OrderedDict[int, Callable[..., Any]]" = OrderedDict()
        self._first = [torch.zeros_like(p) for p in self.parameters]
        self._second = [torch.zeros_like(p) for p in self.parameters]
        self.state = dict(zip(self.parameters, zip(self._first, self._second)))  # noqa: B905  made together

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook` with the optimizer before every `step`; the handle's ``remove`` takes it away."""
        handle = RemovableHandle(self._before)
        self._before[handle.id] = hook
        return handle

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Apply the gradients with learning rate `lr`; parameters without one are left alone."""
        for hook in list(self._before.values()):
            hook(self)
        self._steps += 1
        b1, b2 = self._betas
        size, root = lr / (1 - b1**self._steps), (1 - b2**self._steps) ** 0.5
        # No strict zip: Python 3.9 has none, and the three lists are made together.
        for parameter, first, second in zip(self.parameters, self._first, self._second):  # noqa: B905
            if parameter.grad is None:
                continue
            parameter.mul_(1 - lr * self._decay)
            first.lerp_(parameter.grad, 1 - b1)
            second.mul_(b2).addcmul_(parameter.grad, parameter.grad, value=1 - b2)
            parameter.addcdiv_(first, second.sqrt().div_(root).add_(self._eps), value=-size)

    def state_dict(self) -> Dict[str, Any]:
        """Return the moments and the number of steps."""
        return {"steps": self._steps, "first": self._first, "second": self._second}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Take over what `state_dict` returned.

        Raises:
            ValueError: It belongs to parameters of other number or shape.
        """
        for mine, saved in ((self._first, state_dict["first"]), (self._second, state_dict["second"])):
            if [t.shape for t in mine] != [t.shape for t in saved]:
                raise ValueError("the moments have other shapes than the parameters")
            for target, source in zip(mine, saved):  # noqa: B905  equal by the line above
                target.copy_(source)
        self._steps = int(state_dict["steps"])
