"""What a server keeps for one slot."""

from collections.abc import Callable

import torch

from bireme.node.encodings import HALF
from bireme.node.memory import Held, tensor_over
from bireme.node.partials import DensePartial, SlotShape
from bireme.transport.base import Buffer

__all__ = ("Cell",)


class Cell:
    """One slot's value: what the optimizer changes, and what readers are shown.

    Without an optimizer both are one piece of memory, and a round's sum takes its place. With one,
    the optimizer's parameter is private (float32 for half types) and readers see a copy of it,
    made when somebody reads. Memory that a reader was given never changes.

    Args:
        store: Number of the store.
        slot: ``(key_id, index)``.
        shape: What stays the same.
        whole: Shape of the whole value when the slot is all of it, else ``None``.
        allocate: Makes memory that frames can be sent from.
    """

    __slots__ = (
        "_allocate",
        "_coded",
        "_fresh",
        "_public",
        "_shown",
        "_spare",
        "param",
        "shape",
        "slot",
        "store",
        "whole",
    )

    def __init__(
        self,
        store: int,
        slot: tuple[int, int],
        shape: SlotShape,
        whole: tuple[int, ...] | None,
        allocate: Callable[[int], Buffer],
    ) -> None:
        self.store = store
        self.slot = slot
        self.shape = shape
        self.whole = whole
        self.param: torch.Tensor | None = None
        self._allocate = allocate
        self._public = self._new_memory()
        self._coded: tuple[str, Held] | None = None
        self._fresh = True
        self._shown: DensePartial | None = None
        self._spare: DensePartial | None = None

    @property
    def coded(self) -> tuple[str, Held] | None:
        """An encoding that loses nothing of the value, and its bytes in it, which do not change."""
        return self._coded

    @property
    def value(self) -> torch.Tensor:
        """The readers' value, up to date; written only by the methods of this class."""
        self._publish()
        return tensor_over(self._public.view, self.shape.dtype, self.shape.length)

    def fill(self, source: torch.Tensor | None) -> None:
        """Set the first value; ``None`` means zeros."""
        self._uncode()
        value = tensor_over(self._public.view, self.shape.dtype, self.shape.length)
        if source is None:
            value.zero_()
        else:
            value.copy_(source)

    def assign(self, total: DensePartial) -> None:
        """Make a sum the value. The sum's memory is used up.

        A sum of contributions that all came in one cast to 16 bits is rounded to that type once,
        so that it can be answered in it; what readers see does not depend on how it reaches them.
        """
        if self._coded is not None:
            self._uncode()
        if self.param is not None:
            self.param.copy_(total.tensor.view_as(self.param))
            self._fresh = False
            total.free()
            return
        if total.code is not None:
            self._coded = (total.code, self._rounded(total))
        old = self._public
        if total.tensor.dtype is self.shape.dtype:
            self._public = total.memory
            if self.shape.small_as is not None:
                self._keep_spare(old, total)
                return
        else:
            self._public = self._new_memory()
            target = tensor_over(self._public.view, self.shape.dtype, self.shape.length)
            target.copy_(total.tensor)
            total.free()
        old.release()

    def take_spare(self) -> DensePartial | None:
        """Return memory for a sum of a small slot, if there is some that nobody looks at."""
        spare, self._spare = self._spare, None
        return spare

    def _keep_spare(self, old: Held, total: DensePartial) -> None:
        """Keep what held a small value until now for the next sum: the two take turns."""
        before, self._shown = self._shown, total
        if before is None or before.memory is not old or old.shared or self._spare is not None:
            old.release()
        else:
            self._spare = before

    def parameter(self) -> torch.Tensor:
        """Return the tensor that an optimizer changes in place; call ``changed`` afterwards."""
        self._uncode()
        if self.param is None:
            param = self.value.to(self.shape.sum_dtype, copy=True)
            self.param = param.view(self.param_shape)
        return self.param

    @property
    def param_shape(self) -> tuple[int, ...]:
        """The shape in which an optimizer sees the slot: its own when whole, else rows or flat."""
        if self.whole is not None:
            return self.whole
        if self.shape.row_length > 1 and self.shape.num_rows:
            return (self.shape.num_rows, self.shape.row_length)
        return (self.shape.length,)

    def overwrite(self, source: torch.Tensor) -> None:
        """Replace the value by a flat tensor of its length, whatever an optimizer thinks of it."""
        if self.param is not None:
            self.param.copy_(source.view(self.param.shape))
            self._fresh = False
            return
        self._replace_if_shared()
        self.fill(source)

    def drop_parameter(self) -> None:
        """Forget the optimizer's parameter: no optimizer changes the value any more."""
        self._publish()
        self.param = None
        self._fresh = True

    def changed(self) -> None:
        """Note that the parameter has changed."""
        self._fresh = False

    def read(self) -> Held:
        """Return the value's memory, which will not change."""
        if not self._fresh:
            self._publish()
        return self._public

    def lend(self) -> None:
        """Give the memory back: the value is kept elsewhere until :meth:`take_back`."""
        self.free()
        self._public = Held(memoryview(b""))

    def take_back(self, source: torch.Tensor) -> None:
        """Hold a value again."""
        self._public = self._new_memory()
        self.fill(source)

    def free(self) -> None:
        """Give the memory back."""
        self._uncode()
        self._public.release()
        # A sum that lies in a sheet keeps all of it, also when its own part has been given back.
        self._shown = None
        spare = self.take_spare()
        if spare is not None:
            spare.free()

    def _rounded(self, total: DensePartial) -> Held:
        """Round a sum to the cast of its contributions; return its bytes in that type."""
        element = HALF[total.code or ""]
        size_bytes = self.shape.length * element.itemsize
        buffer = self._allocate(max(1, size_bytes))
        held = Held(buffer.view[:size_bytes], buffer.release)
        half = tensor_over(held.view, element, self.shape.length)
        half.copy_(total.tensor)
        total.tensor.copy_(half)
        return held

    def _uncode(self) -> None:
        if self._coded is not None:
            self._coded[1].release()
            self._coded = None

    def _publish(self) -> None:
        if self._fresh or self.param is None:
            return
        self._replace_if_shared()
        target = tensor_over(self._public.view, self.shape.dtype, self.shape.length)
        target.copy_(self.param.reshape(-1))
        self._fresh = True

    def _replace_if_shared(self) -> None:
        if self._public.shared:
            # Somebody is still being sent the old value.
            old, self._public = self._public, self._new_memory()
            old.release()

    def _new_memory(self) -> Held:
        size_bytes = self.shape.length * self.shape.dtype.itemsize
        buffer = self._allocate(max(1, size_bytes))
        return Held(buffer.view[:size_bytes], buffer.release)
