"""Atomic operations on int64 arrays that several processes share, for use inside of kernels.

A plain load or store may be split, repeated, merged or moved by the compiler, and on Arm moved by the
processor too. None of this happens to these operations, and they keep an order:

- whoever sees a **release** with an **acquire** sees all that was stored before the release;
- a **fence** keeps what stands before it before what stands after it.

Numba has atomics for GPUs only, so each of these is an intrinsic: a function whose LLVM instructions are
written by hand. They work between threads and between processes, as long as the memory is the same.

Left out: weaker orders than are used here, and other types than int64.
"""

from typing import Any

from replay_tutorial.buffers.jit import intrinsic, ir, types

WORD = 8  # bytes of an int64, and its alignment


def pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Build the address of `array[index]`: the first two arguments of every operation here."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.gep(array.data, [arguments[1]], source_etype=ir.IntType(64))


@intrinsic
def load_acquire(typing_context: Any, array: Any, index: Any) -> Any:
    """Load `array[index]`: what the storing process stored before its release is seen after this."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = pointer(context, builder, signature, arguments)
        return builder.load_atomic(address, "acquire", WORD, typ=ir.IntType(64))

    return types.int64(array, types.int64), build


@intrinsic
def store_release(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """Store into `array[index]`: who sees it with an acquire sees all that was stored before it."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[2], pointer(context, builder, signature, arguments), "release", WORD)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), build


@intrinsic
def fetch_add(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """Add to `array[index]`; return what was there before, to no two callers the same. Acquires, releases."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw(
            "add", pointer(context, builder, signature, arguments), arguments[2], "acq_rel"
        )

    return types.int64(array, types.int64, types.int64), build


@intrinsic
def fetch_max(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """Raise `array[index]` to at least a value; return what was there before. Acquires and releases."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw(
            "max", pointer(context, builder, signature, arguments), arguments[2], "acq_rel"
        )

    return types.int64(array, types.int64, types.int64), build


@intrinsic
def compare_and_swap(typing_context: Any, array: Any, index: Any, expected: Any, value: Any) -> Any:
    """Put a value where the expected one is; return whether it was there. Acquires and releases."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = pointer(context, builder, signature, arguments)
        result = builder.cmpxchg(address, arguments[2], arguments[3], "acq_rel", "acquire")
        return builder.extract_value(result, 1)

    return types.boolean(array, types.int64, types.int64, types.int64), build


@intrinsic
def fence_acquire(typing_context: Any) -> Any:
    """Keep the loads before it before the loads and stores after it."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("acquire")
        return context.get_dummy_value()

    return types.void(), build


@intrinsic
def fence_release(typing_context: Any) -> Any:
    """Keep the loads and stores before it before the stores after it."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("release")
        return context.get_dummy_value()

    return types.void(), build
