"""Detect changes since the last step: the state may be saved only at a step boundary."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Sequence

import torch
from torch.utils.weak import TensorWeakRef

from rgt_train.checkpoint.snapshot import digest_of, outside_compile, version_of, window_of
from rgt_train.checkpoint.state import RunState
from rgt_train.data import rng
from rgt_train.exits import UsageError
from rgt_train.ranks.choose import is_sharded


class OptimizerHooks:
    """Hooks on the optimizers of a run.

    A CUDA graph captured around an ``optimizer.step()`` changes parameters at each replay without
    calling anything in Python and without torch counting it. So a captured step is detected, and
    optimizers that may be captured (``capturable``) are treated that way from the start.

    Args:
        optimizers: The optimizers.
        before: Called before each change.
        captured: Called once, when a step of one of them is captured into a CUDA graph.

    Attributes:
        silent: Optimizers that may change parameters without calling the hooks, with the reason.
        touched: Whether one of them has begun to change parameters since this was set to False.
    """

    def __init__(
        self,
        optimizers: Sequence[Any],
        before: Callable[[], None],
        captured: Callable[[], None] = lambda: None,
    ) -> None:
        self.silent: list[str] = []
        self.touched = False
        self._before = before
        self._captured = captured
        self._handles: list[Any] = []
        self._known = False
        for optimizer in optimizers:
            name = type(optimizer).__name__
            register = getattr(optimizer, "register_step_pre_hook", None)
            if register is None:
                self.silent.append(f"{name} has no register_step_pre_hook")
                continue
            self._handles.append(register(outside_compile(self._before_change)))
            if any(group.get("capturable") for group in getattr(optimizer, "param_groups", [])):
                self.silent.append(f"{name} is capturable, and a replayed CUDA graph calls no hook")

    @property
    def sees_all_changes(self) -> bool:
        """Whether every change of parameters calls a hook."""
        return bool(self._handles) and not self.silent

    def close(self) -> None:
        """Remove the hooks."""
        while self._handles:
            self._handles.pop().remove()

    def _before_change(self, *_: Any) -> None:
        self.touched = True
        if _capturing():
            if not self._known:
                self._known = True
                self._captured()
            return  # nothing is changed now, and a graph cannot wait for a copy
        self._before()


def _capturing() -> bool:
    return bool(
        # First: asking about a capture would initialise CUDA in a process that only uses the CPU.
        torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        and torch.cuda.is_current_stream_capturing()
    )


class GradientLifetime:
    """Finds out whether gradients outlive a step, as in a loop that accumulates them by itself.

    ``zero_grad`` removes the tensor in ``.grad``. One that is still there later has either grown
    over a step boundary, or the loop sets gradients to zero in place: then a tensor that had values
    is all zero when a backward pass adds to it, or at a boundary.

    Args:
        optimizers: The optimizers, some of whose parameters are watched until this is known.

    Attributes:
        is_carried: Whether a gradient with values has outlived a step.
    """

    def __init__(self, optimizers: Sequence[Any]) -> None:
        self.is_carried = self._unknown = self._zeroed = False
        self._optimizers = optimizers
        self._watched: dict[int, torch.Tensor] = {}
        self._last: dict[int, TensorWeakRef] | None = None
        self._with_values: dict[int, TensorWeakRef] = {}
        self._added: set[int] = set()
        self._boundaries = 0
        self._handles: list[Any] = []
        self._nodes: dict[int, Any] = {}
        # Skipped steps are looked at, too: those of a `GradScaler` are few.
        self._watches_left = 64
        self._begin_watch()

    def _begin_watch(self) -> None:
        for optimizer in self._optimizers:
            register = getattr(optimizer, "register_step_pre_hook", None)
            if register is None:
                continue
            self._handles.append(register(outside_compile(self._judge_at_step)))
            for group in getattr(optimizer, "param_groups", []):
                few = group["params"][:: len(group["params"]) // 4 + 1]
                self._watched.update({id(parameter): parameter for parameter in few})
        for key, parameter in self._watched.items():
            self._watch_additions(key, parameter)

    @property
    def is_decided(self) -> bool:
        """Whether it is known if gradients outlive a step."""
        undecided = self._last is None or bool(self._last)
        return self.is_carried or not (self._unknown or (self._watched and undecided))

    @property
    def is_kept(self) -> bool:
        """Whether a save needs the gradients: some outlive a step, or that is not known yet."""
        return self.is_carried or not self.is_decided

    @property
    def is_zeroed(self) -> bool:
        """Whether a save needs the names of the gradients alone: they are set to zero in place."""
        return self._zeroed and not self.is_kept

    def note_boundary(self) -> None:
        """Note the gradients that are there at the end of a step."""
        if not self._watched and not self._handles:
            return  # it is known
        for key, parameter in [*self._watched.items()]:
            self._judge_zeros(key, parameter.grad)
        if self.is_carried or not self._watched:
            self.remove_hooks()  # not in a hook, while torch goes through them
        self._added.clear()
        self._last = {
            key: TensorWeakRef(parameter.grad)
            for key, parameter in self._watched.items()
            if parameter.grad is not None
        }
        self._boundaries += 1
        most_boundaries = 8
        if self._last and self._boundaries > most_boundaries:
            self._unknown = True  # gradients that never have values: looking costs time each step
            self.remove_hooks()

    def watch_again(self) -> None:
        """Watch once more: a step without an update may be the first of an accumulation."""
        if self._handles or self.is_carried or not self._watches_left:
            return
        self._watches_left -= 1
        self._boundaries = 0
        self._begin_watch()

    def remove_hooks(self) -> None:
        """Remove the hooks from the optimizers."""
        self._watched.clear()
        self._with_values.clear()
        while self._handles:
            self._handles.pop().remove()
        self._nodes.clear()

    def _watch_additions(self, key: int, parameter: torch.Tensor) -> None:
        """Have `_judge_addition` called before a backward pass adds to a gradient."""
        if type(parameter) in (torch.Tensor, torch.nn.Parameter) and parameter.requires_grad:
            with torch.enable_grad():
                view: Any = parameter.view_as(parameter)
            # A hook of the parameter would be seen by torch.compile. The node is kept, or the next
            # backward pass would make another one.
            node = self._nodes[key] = view.grad_fn.next_functions[0][0]
            self._handles.append(
                node.register_prehook(outside_compile(lambda _: self._judge_addition(key)))
            )

    def _judge_addition(self, key: int) -> None:
        if key in self._added or key not in self._watched or _capturing():
            return
        self._added.add(key)
        grad = self._watched[key].grad
        if self._has_outlived(key, grad) and not self._judge_zeros(key, grad):
            self.is_carried = self.is_carried or _has_values(grad)

    def _judge_at_step(self, optimizer: Any, *_: Any) -> None:
        if _capturing():
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                key, grad = id(parameter), parameter.grad
                if key not in self._watched:
                    continue
                if key not in self._added and self._has_outlived(key, grad):
                    # nothing was added since, as far as known
                    self.is_carried = self.is_carried or key not in self._nodes or _has_values(grad)
                elif key in (self._last or {}) and not self._has_outlived(key, grad):
                    self._end_watch(key)
                self._judge_zeros(key, grad)

    def _has_outlived(self, key: int, grad: torch.Tensor | None) -> bool:
        """Return whether `grad` is the tensor of the last boundary."""
        before = (self._last or {}).get(key)
        return before is not None and grad is not None and before() is grad

    def _judge_zeros(self, key: int, grad: torch.Tensor | None) -> bool:
        """Return whether `grad` had values and is zero now; note one with values."""
        if grad is None or key not in self._watched:
            return False
        if _has_values(grad):
            self._with_values[key] = TensorWeakRef(grad)
            return False
        before = self._with_values.get(key)
        zeroed = before is not None and before() is grad
        if zeroed:
            self._zeroed = True
            self._end_watch(key)
        return zeroed

    def _end_watch(self, key: int) -> None:
        del self._watched[key]
        if self._last:
            self._last.pop(key, None)


class ShardedGradients:
    """Finds out whether gradients of a sharded model outlive a step.

    A backward pass adds to them after it has gathered them, where no hook is called before. But a
    loop that accumulates by itself ends steps in which no optimizer has stepped, and the next step
    of an optimizer, or the next end of such a step, still has the same tensors. Each rank looks at
    its own part alone.

    Args:
        optimizers: The optimizers, some of whose parameters are watched in steps without an update.

    Attributes:
        is_carried: Whether a gradient with values has outlived a step.
    """

    def __init__(self, optimizers: Sequence[Any]) -> None:
        self.is_carried = False
        self._watched: list[torch.Tensor] = []
        self._held: list[tuple[torch.Tensor, TensorWeakRef]] = []
        self._boundaries = 0
        for optimizer in optimizers:
            for group in getattr(optimizer, "param_groups", []):
                self._watched += group["params"][:: len(group["params"]) // 4 + 1]

    def judge_held(self) -> None:
        """Note whether gradients of the last step without an update are still there."""
        if any(
            parameter.grad is not None and held() is parameter.grad
            for parameter, held in self._held
        ):
            self.is_carried = True
        self._held = []

    def note_boundary(self, *, updated: bool) -> None:
        """Note the gradients at the end of a step in which an optimizer has stepped, or none."""
        self.judge_held()
        most_boundaries = 64  # looking takes time, also at a GPU
        if updated or self.is_carried or self._boundaries > most_boundaries:
            return
        self._boundaries += 1
        for parameter in self._watched:
            grad: Any = parameter.grad
            if grad is not None and _has_values(getattr(grad, "_local_tensor", grad)):
                self._held.append((parameter, TensorWeakRef(grad)))


def _has_values(grad: torch.Tensor | None) -> bool:
    """Return whether a gradient has a value other than zero; of a sparse one, True."""
    if grad is None or grad.layout is not torch.strided:
        return grad is not None
    # A few values first: usually they are enough, and a large gradient takes milliseconds.
    few = grad[(slice(8),) * grad.dim()]
    return bool(few.any()) or bool(grad.any())


class StepBoundary:
    """Knows whether anything has changed since the last step boundary.

    Args:
        state: The state to save.
        window: Batches of a step.
        epoch_over: Returns whether all steps of the epoch are done.
        optimizers: The objects that change the weights.
        before: Called before each of their changes.
        say: Receives the message about a slower way of saving.
    """

    def __init__(
        self,
        state: RunState,
        window: int,
        epoch_over: Callable[[], bool],
        optimizers: Sequence[Any],
        before: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._state = state
        self._window = window
        self._epoch_over = epoch_over
        self._say = say
        watched: Sequence[Any] = optimizers
        self._sharded: ShardedGradients | None = None
        if is_sharded(state.models):  # no rank has them all
            watched = ()
            self._sharded = ShardedGradients(optimizers)
        self._before = before
        self._hooks = OptimizerHooks(optimizers, self._before_update, self._note_graph_capture)
        self._gradients = GradientLifetime(watched)
        self._ended: tuple[int, bool] | None = None
        state.keeps_gradients = lambda: self._gradients.is_kept or not self._was_updated
        state.zeroes_gradients = lambda: self._gradients.is_zeroed
        self._changed_at_end = False
        state.hooked = self._hooks.sees_all_changes
        for silent in self._hooks.silent:
            say(f"{silent}: saves copy on the training thread")

    @property
    def is_touched(self) -> bool:
        """Whether an optimizer has begun to change weights since the last step boundary."""
        return self._hooks.touched

    @property
    def _was_updated(self) -> bool:
        """Whether an optimizer has stepped in the last step; also if that cannot be known."""
        if not self._hooks.sees_all_changes:
            return True
        if self._ended is not None and self._ended[0] == self._state.progress.step:
            return self._ended[1]
        return self.is_touched

    @property
    def loses_gradients(self) -> bool | None:
        """Whether gradients outlive a step and no rank can save those of all; None if not known yet."""
        if self._sharded is not None:
            return self._sharded.is_carried or None
        if self._gradients.is_decided:
            return self._gradients.is_carried and self._state.world > 1
        return None

    @property
    def is_complete(self) -> bool:
        """Whether, as known so far, nothing ran since the last step and one process has it all."""
        batch_is_step = self._window == 1 or self._state.progress.micro > 0
        return (
            self._state.world == 1
            and self._hooks.sees_all_changes
            and not self.is_touched
            and batch_is_step
        )

    def note_step(self) -> None:
        """Note that a step is over."""
        touched = self._hooks.touched
        self._ended = self._state.progress.step, touched
        if not touched and self._state.world > 1 and self._hooks.sees_all_changes:
            self._gradients.watch_again()  # one process saves the gradients of such steps
        self._gradients.note_boundary()
        if self._sharded is not None:
            self._sharded.note_boundary(updated=touched)
        self._hooks.touched = False
        self.keep_epoch_end()

    def keep_epoch_end(self, random: dict[str, Any] | None = None) -> None:
        """Keep a copy of the small parts of the state if the last step of the epoch is done.

        Args:
            random: Random state that is still to be put back, if there is any.
        """
        if self._epoch_over():
            self._state.keep_epoch_end(random)

    def next_epoch(self, *, last: bool) -> None:
        """Note that the work after the last step of the epoch is over, too; `last` of the run."""
        end, self._state.epoch_end = self._state.epoch_end, None
        self._changed_at_end = last and end is not None and not end.is_unchanged()

    def is_save_outdated(self) -> bool:
        """Return whether a checkpoint of the last step may lack changes that belong to the result."""
        end = self._state.epoch_end
        return self._changed_at_end or (end is not None and bool(end.describe_changed()))

    def why_spoilt(self) -> str:
        """Return why the state is no longer that of the last step; empty if it is unchanged."""
        if self.is_touched:
            return "an optimizer has changed weights without a run.step"
        changed = ""
        if self._state.epoch_end:
            changed = self._state.epoch_end.describe_changed()
        return (
            changed
            and f"{changed} changed after the last step of the epoch; a relaunch does that again"
        )

    def close(self) -> None:
        """Remove the hooks from the optimizers."""
        self._hooks.close()
        self._gradients.remove_hooks()

    def _before_update(self) -> None:
        if self._sharded is not None:
            self._sharded.judge_held()
        self._before()

    def _note_graph_capture(self) -> None:
        self._state.hooked = False
        self._say("optimizer.step() is captured into a CUDA graph: from now on saves copy at once")


_REMEDIES = {
    "optimizer": (
        "optimizer.step() comes after run.step: every checkpoint lacks the last update; "
        "call run.step last"
    ),
    "random": "random numbers are drawn between run.step and the next batch (by a validation "
    "without `with run.evaluating():`?), and a resume does not draw them",
}


class StepGap:
    """Detects changes between `run.step` and the next batch, which a resume would leave out.

    Learning rates, schedules and torch's random state are compared after each step; versions of
    tensors and other random states only in the first steps of a launch and after a save, because
    that takes longer. Each kind of change is reported once, and stored in the checkpoints.

    An ``iter(DataLoader)`` of a validation draws one number: that is undone, so that a resume,
    which does not repeat the validation, continues with the same numbers.

    Args:
        state: The state of the run; `RunState.late` receives the changes.
        touched: Returns whether an optimizer has begun to change weights since the last step.
        say: Receives the messages.
        record: Receives the changes, to keep them for the receipt of a checkpoint of this step.
        resumed: Whether this launch has loaded a checkpoint.
    """

    def __init__(
        self,
        state: RunState,
        touched: Callable[[], bool],
        say: Callable[[str], None],
        record: Callable[[str], None],
        *,
        resumed: bool,
    ) -> None:
        self._state = state
        self._touched = touched
        self._say = say
        self._resumed = resumed
        self._record = record
        watched = [
            part for name, part in state.others.items() if name in state.optimizers | state.small
        ]
        groups = [group for part in watched for group in getattr(part, "param_groups", ())]
        # A tensor as learning rate would need the GPU at every step.
        self._groups = [group for group in groups if type(group["lr"]) is float]
        self._schedules = [part for part in watched if hasattr(part, "last_epoch")]
        self._tensors: list[tuple[str, torch.Tensor]] = []
        for name, part in {**state.models, **state.others}.items():
            if isinstance(part, torch.nn.Module):
                held = [*part.named_parameters(), *part.named_buffers()]
                self._tensors += [(f"{name}/{key}", tensor) for key, tensor in held]
        self._samples: dict[str, Any] | None = self._sampled()
        self._armed = self._untouched = False
        self._steps = 0
        self._settings: list[Any] = []
        self._random = torch.default_generator.get_state()
        self._others: tuple[Any, ...] | None = None

    def begin(self) -> None:
        """Check, at the first batch, that the weights are those with which the Run was made.

        Raises:
            UsageError: They are not those of the checkpoint that was loaded.
        """
        before = self._samples
        self._samples = None
        now = {}
        if before:
            now = self._sampled()
        changed = [name for name in now if before and before.get(name, now[name]) != now[name]]
        if changed and self._resumed:
            raise UsageError(
                f"{changed[0]} was changed after Run(…) had restored it, so this would not "
                "continue from the checkpoint: load weights and make optimizers before the Run, "
                "and change weights for a new epoch at the end of the one before"
            )
        if changed:
            self._report(
                changed[0],
                "was changed after Run(…): a relaunch would do so to the restored weights; do it "
                "before",
            )

    def stepped(self, *, saving: bool) -> None:
        """Remember the state at the end of a step; `saving` looks at it more closely."""
        if self._steps == 0:
            self._untouched = not self._touched()
        self._steps += 1
        self._armed = True
        self._settings = self._rates()
        self._random = torch.default_generator.get_state()
        if saving or self._steps <= 4:
            self._others = self._look_closely()
        else:
            self._others = None

    def forget(self) -> None:
        """Do not compare before the next step: what follows an epoch is done again by a resume."""
        self._armed = False

    def compare(self) -> None:
        """Compare with the state at the end of the last step, when the next batch is requested."""
        if not self._armed:
            return
        self._armed = False
        if self._untouched and self._touched():
            self._report("optimizer", _REMEDIES["optimizer"])
        late = (
            "changes between run.step and the next batch, and a resume leaves that out: put it "
            "before run.step"
        )
        if self._settings != self._rates():
            self._report("a scheduler or learning rate", late)
        now = torch.default_generator.get_state()
        if not _same_bytes(now, self._random) and not self._state.ahead:
            self._undo_draws(now)
        if self._others is not None:
            others = self._look_closely()
            if others[0] != self._others[0] and not self._state.ahead:
                self._report("random", _REMEDIES["random"])
            pairs = zip(self._tensors, others[1], self._others[1])
            name = next((tensor[0] for tensor, new, old in pairs if new != old), None)
            if name is not None and not self._touched():
                self._report(name, late)

    def _undo_draws(self, now: torch.Tensor) -> None:
        """Undo draws of loaders that were iterated; report any other."""
        # On a copy: the real generator must not move while it is only examined.
        trial = torch.Generator("cpu")
        trial.set_state(self._random)
        # Each iter(DataLoader) draws one 64-bit number; eight of them between two steps are plenty.
        for _ in range(8):
            torch.empty((), dtype=torch.int64, device="cpu").random_(generator=trial)
            if _same_bytes(trial.get_state(), now):
                torch.default_generator.set_state(self._random)
                return
        self._report("random", _REMEDIES["random"])

    def _report(self, what: str, remedy: str) -> None:
        if what in _REMEDIES:
            told = remedy
        else:
            told = f"{what} {remedy}"
        if told not in self._state.late:
            self._state.late.append(told)
            self._record(told)
            self._say(f"warning: {told}")

    def _rates(self) -> list[Any]:
        rates: list[Any] = []
        for group in self._groups:
            rates.append(group["lr"])
        for schedule in self._schedules:
            rates.append(schedule.last_epoch)
        return rates

    def _look_closely(self) -> tuple[Any, ...]:
        others = rng.capture_states()
        # Compared separately, because a loader's draws from it can be undone.
        del others["torch"]
        return others, [version_of(tensor) for _, tensor in self._tensors]

    def _sampled(self) -> dict[str, Any]:
        """Return digests of parts of some weights, by name and dtype, wherever they are."""
        apart = max(1, len(self._tensors) // 64)
        return {
            f"{name} ({tensor.dtype})": digest_of(window_of(tensor, 0.5, 256))
            for name, tensor in self._tensors[::apart]
            if type(tensor) in (torch.Tensor, torch.nn.Parameter) and not tensor.is_meta
        }


_compare_memory = ctypes.CDLL(None).memcmp
_compare_memory.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def _same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    # memcmp of 5 kB per step: torch.equal would cost several times as much.
    return not _compare_memory(one.data_ptr(), other.data_ptr(), one.nbytes)
