"""Atomic operations on shared int64 arrays, for use in Numba kernels.

The compiler may split, repeat, merge or reorder plain loads and stores, and an Arm processor may reorder them
too. The operations in this module are atomic and ordered:

- a load with **acquire** that reads a value stored with **release** also sees everything that was stored
  before that release;
- a **fence** keeps operations on one side of it from moving to the other side.

Numba provides atomics for GPUs only, so each operation here is an intrinsic that emits LLVM instructions.
They work between threads, and between processes that map the same memory.

Left out: memory orders that the package does not need, and types other than int64.

Built in chapter 06, *Shared memory*.
"""

from typing import Any

from replay_tutorial.buffers.runtime.jit import intrinsic, ir, types

WORD = 8  # bytes of an int64, and its alignment


def pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Return the address of `array[index]`, the first two arguments of each operation."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.gep(array.data, [arguments[1]], source_etype=ir.IntType(64))


def read_modify_write(operation: str) -> Any:
    """Return a function that generates the code of an operation of LLVM's `atomicrmw` (acquire-release)."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = pointer(context, builder, signature, arguments)
        return builder.atomic_rmw(operation, address, arguments[2], "acq_rel")

    return build


def fence(order: str) -> Any:
    """Return a function that generates the code of a fence."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence(order)
        return context.get_dummy_value()

    return build


@intrinsic
def load_acquire(typing_context: Any, array: Any, index: Any) -> Any:
    """Load `array[index]` with acquire: stores made before the matching release become visible."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = pointer(context, builder, signature, arguments)
        return builder.load_atomic(address, "acquire", WORD, typ=ir.IntType(64))

    return types.int64(array, types.int64), build


@intrinsic
def store_release(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """Store `value` in `array[index]` with release: it publishes all earlier stores."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[2], pointer(context, builder, signature, arguments), "release", WORD)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), build


@intrinsic
def fetch_add(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """Add `value` to `array[index]` and return the old value, in one atomic step (acquire-release)."""
    return types.int64(array, types.int64, types.int64), read_modify_write("add")


@intrinsic
def fetch_max(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """Set `array[index]` to the maximum of itself and `value`; return the old value (acquire-release)."""
    return types.int64(array, types.int64, types.int64), read_modify_write("max")


@intrinsic
def compare_and_swap(typing_context: Any, array: Any, index: Any, expected: Any, value: Any) -> Any:
    """Set `array[index]` to `value` if it equals `expected`; return whether it did (acquire-release)."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = pointer(context, builder, signature, arguments)
        result = builder.cmpxchg(address, arguments[2], arguments[3], "acq_rel", "acquire")
        return builder.extract_value(result, 1)

    return types.boolean(array, types.int64, types.int64, types.int64), build


@intrinsic
def fence_acquire(typing_context: Any) -> Any:
    """Keep earlier loads before later loads and stores."""
    return types.void(), fence("acquire")


@intrinsic
def fence_release(typing_context: Any) -> Any:
    """Prevent earlier loads and stores from being reordered after later stores."""
    return types.void(), fence("release")
