"""Stand-ins in a batch for what a request does not send, such as labels. Reading one ends the call.

So what a model takes is found by what its code reads, whatever the values are, and an answer never depends on what was
not sent. To move or convert a tensor, as code does with all of a batch at once, is not to read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

import torch

_CONVERSIONS = (
    "bool clone contiguous cpu cuda detach double flatten float half int long reshape squeeze to type unsqueeze view"
)
"""Methods of a tensor that need none of its values, and give what is as absent."""
_OPERATORS = (
    "abs add and bool call complex contains delitem divmod eq enter exit float floordiv format ge getitem gt hash "
    "index int invert iter le len lshift lt matmul mod mul ne neg next or pos pow radd rand rdivmod repr reversed "
    "rfloordiv rlshift rmatmul rmod rmul ror rpow rrshift rshift rsub rtruediv rxor setitem str sub truediv xor"
)
"""Of Python, those that do not pass through `__getattribute__`."""


class InputRead(BaseException):
    """The absent input `name` was read; not an Exception, which the user's code may catch."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class AbsentTensor(torch.Tensor):
    """A tensor that was not sent. Has no values, and no function of torch takes it but conversions."""

    absent_name: str

    @classmethod
    def of(cls, name: str) -> AbsentTensor:
        """The one called `name` in a batch."""
        made = torch.empty(0, device="meta").as_subclass(cls)
        made.absent_name = name
        return made

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Iterable[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        first, *others = _absent_among([*args, *(kwargs or {}).values()])
        name = str(getattr(function, "__name__", ""))
        if not others and name in _CONVERSIONS.split() and getattr(torch.Tensor, name) is function:
            return first
        raise InputRead(first.absent_name)


class AbsentValue:
    """Anything else that was not sent; `kind` is the type that code may look for."""

    def __init__(self, name: str, kind: type) -> None:
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_kind", kind)

    def __getattribute__(self, attribute: str) -> Any:
        if attribute == "__class__":
            return object.__getattribute__(self, "_kind")
        raise InputRead(object.__getattribute__(self, "_name"))


def _refuse(absent: AbsentValue, *args: Any) -> NoReturn:
    raise InputRead(object.__getattribute__(absent, "_name"))


for _operator in _OPERATORS.split():
    setattr(AbsentValue, f"__{_operator}__", _refuse)


def _absent_among(values: Iterable[Any]) -> Iterator[AbsentTensor]:
    for value in values:
        if type(value) is AbsentTensor:
            yield value
        elif type(value) in (list, tuple):
            yield from _absent_among(value)
