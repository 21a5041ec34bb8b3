"""Copies of whole rows, inside of kernels.

A row is copied by the system's `memcpy`, which moves up to 64 bytes with one instruction. A loop over the row's words
is the same in Numba, and two to five times slower: it can't know that the rows don't overlap.

Left out: rows that are not whole words of eight bytes; `fields` pads them.
"""

from typing import Any

from replay_tutorial.buffers.jit import Integers, Words, cgutils, intrinsic, ir, kernel, types


def first_word(context: Any, builder: Any, array_type: Any, value: Any, row: Any) -> tuple[Any, Any]:
    """Build the address of a row's first word, and the number of words in a row."""
    array = context.make_array(array_type)(context, builder, value)
    words = builder.extract_value(array.shape, 1)
    return builder.gep(array.data, [builder.mul(row, words)], source_etype=ir.IntType(64)), words


@intrinsic
def copy_row(typing_context: Any, target: Any, place: Any, source: Any, slot: Any) -> Any:
    """Copy `source[slot]` to `target[place]`: contiguous arrays of 8-byte words, with rows of the same length."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, words = first_word(context, builder, signature.args[0], arguments[0], arguments[1])
        origin, _ = first_word(context, builder, signature.args[2], arguments[2], arguments[3])
        cgutils.raw_memcpy(builder, to, origin, words, 8, align=8)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64), build


@kernel
def take_rows(rows: Words, slots: Integers, copies: Words) -> None:
    """Copy the rows of slots."""
    for i in range(slots.shape[0]):
        copy_row(copies, i, rows, slots[i])
