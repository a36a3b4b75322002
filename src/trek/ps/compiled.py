"""How the loops over ids and rows are compiled: by Numba, once, kept on disk, without holding Python's lock.

The places that ids and rows have in memory are as good as random, so a loop over them mostly waits for memory, unless
it asks for what it will need some turns later: `prefetch`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])
AHEAD = 16
"""How many turns before it is used an entry is asked for: about as many requests as a core has under way."""


def compiled(function: Function) -> Function:
    """`function` as native code; strict floating point, so that results do not depend on the machine's vectors."""
    return cast(Function, numba.njit(cache=True, nogil=True)(function))


@intrinsic
def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    del typing_context, index
    return types.void(array, types.int64), _emit_prefetch


prefetch = cast(Callable[[Any, Any], None], _prefetch)
"""Have the memory of `array[index]` (its beginning, for a row) in the cache soon. In compiled functions only."""


@intrinsic
def _fused_multiply_add(typing_context: Any, one: Any, other: Any, third: Any) -> Any:
    del typing_context, other, third
    return one(one, one, one), _emit_fused_multiply_add


fused_multiply_add = cast(Callable[[Any, Any, Any], Any], _fused_multiply_add)
"""`one * other + third`, rounded once. In compiled functions only."""


def _emit_fused_multiply_add(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    del context, signature
    return builder.fma(*arguments)


def _emit_prefetch(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    kind = signature.args[0]
    array = context.make_array(kind)(context, builder, arguments[0])
    where = [arguments[1]] + [context.get_constant(types.intp, 0)] * (kind.ndim - 1)
    emit: Any = cgutils
    pointer = emit.get_item_pointer(context, builder, kind, array, where, wraparound=False)
    number, address = ir.IntType(32), ir.IntType(8).as_pointer()
    function_type = ir.FunctionType(ir.VoidType(), [address, number, number, number])
    function = emit.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0")
    read, keep, data = number(0), number(3), number(1)
    builder.call(function, [builder.bitcast(pointer, address), read, keep, data])
    return context.get_dummy_value()
