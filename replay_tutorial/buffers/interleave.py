"""Interleaving: frames that lie side by side, pixel by pixel, as they do in a stack along the last axis.

    frames        a0 a1 a2 …    b0 b1 b2 …    c0 c1 c2 …
    their stack   a0 b0 c0 a1 b1 c1 a2 b2 c2 …

A loop whose number of frames is known when it is compiled moves 16 to 64 pixels with a few instructions, as
fast as they can be read; one that learns the number when it runs moves them one by one. The length of a tuple
is part of its type, so the frames come as a tuple, and the usual numbers of frames have one each.

Left out: elements of more than one byte. `frame_layout` copies these with NumPy, a frame at a time.
"""

from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.jit import jitable, kernel, types

Frames = Annotated[npt.NDArray[np.uint8], types.uint8[:, ::1]]  # [frames, bytes]
Stacks = Annotated[npt.NDArray[np.uint8], types.uint8[:, :, ::1]]  # [rows, frames of a stack, bytes]
Given = Annotated[npt.NDArray[np.uint8], types.Array(types.uint8, 2, "C", readonly=True)]  # [rows, bytes]
Numbers = Annotated[npt.NDArray[np.int64], types.int64[:, ::1]]  # [rows, frames of a stack]


@jitable
def interleave(frames: tuple[Any, ...], stack: Any) -> None:
    """Lay frames side by side."""
    for pixel in range(len(stack) // len(frames)):
        for i in range(len(frames)):
            stack[pixel * len(frames) + i] = frames[i][pixel]


@jitable
def take_apart(stack: Any, frames: tuple[Any, ...]) -> None:
    """Copy what lies side by side to a frame each."""
    for pixel in range(len(stack) // len(frames)):
        for i in range(len(frames)):
            frames[i][pixel] = stack[pixel * len(frames) + i]


@kernel
def stacks_of(frames: Frames, numbers: Numbers, stacks: Frames) -> None:
    """Interleave for each row the frames that its numbers name; a frame may be longer than is asked for."""
    depth = numbers.shape[1]
    for row in range(numbers.shape[0]):
        f, n, stack = frames, numbers[row], stacks[row]
        if depth == 2:
            interleave((f[n[0]], f[n[1]]), stack)
        elif depth == 3:
            interleave((f[n[0]], f[n[1]], f[n[2]]), stack)
        elif depth == 4:
            interleave((f[n[0]], f[n[1]], f[n[2]], f[n[3]]), stack)
        elif depth == 8:
            first = (f[n[0]], f[n[1]], f[n[2]], f[n[3]])
            interleave((*first, f[n[4]], f[n[5]], f[n[6]], f[n[7]]), stack)
        else:
            for i in range(depth):
                frame = f[n[i]]
                for pixel in range(len(stack) // depth):
                    stack[pixel * depth + i] = frame[pixel]


@kernel
def frames_of(stacks: Given, frames: Stacks) -> None:
    """Take stacks apart: the inverse."""
    depth = frames.shape[1]
    for row in range(stacks.shape[0]):
        stack, f = stacks[row], frames[row]
        if depth == 2:
            take_apart(stack, (f[0], f[1]))
        elif depth == 3:
            take_apart(stack, (f[0], f[1], f[2]))
        elif depth == 4:
            take_apart(stack, (f[0], f[1], f[2], f[3]))
        elif depth == 8:
            take_apart(stack, (f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]))
        else:
            for i in range(depth):
                for pixel in range(f.shape[1]):
                    f[i, pixel] = stack[pixel * depth + i]
