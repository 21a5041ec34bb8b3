"""The shards of a run as files beside each other, written and read in pieces.

    replay.npz of one machine ──▶ replay_0_of_3.npz, replay_1_of_3.npz, replay_2_of_3.npz

A shard may lie on another host and hold more than fits into a message. So it sends its file in pieces, and
gets it in pieces, two on their way at a time; calls for rows come in between.

Another number of shards gets the rows one after the other, with their priorities.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import Future
from itertools import cycle
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from replay_tutorial.apex.storage import numbers_beside, place_of
from replay_tutorial.buffers.whole_file import own_file
from replay_tutorial.cluster.chunk import Chunk
from replay_tutorial.cluster.shards.shard import PIECE_BYTES, Parcel, ShardLost

FILE_ANSWER_SECONDS = 120.0  # a shard writes some 250 MB a second before it sends the first piece
PIECES_ON_THE_WAY = 2

Answer = TypeVar("Answer")
IsLost = Callable[[BaseException], bool]  # whether an error says that a call did not get through


class ShardCalls(NamedTuple):
    """How to call a shard: the methods of `Shard`, which don't raise, and answer by Futures."""

    add: Callable[[Chunk], Future[int]]
    sample: Callable[[int, int, float], Future[Parcel]]
    update: Callable[[int, NDArray[np.int64], NDArray[np.float32]], Future[int]]
    save: Callable[[], Iterator[Future[bytes]]]
    load: Callable[[bytes], Future[None]]


def await_answer(answer: Future[Answer], is_lost: IsLost) -> Answer:
    """Return an answer.

    Raises:
        ShardLost: If there is none.
        Exception: What the shard failed with.
    """
    futures.wait([answer], FILE_ANSWER_SECONDS)
    if not answer.done():
        raise ShardLost(f"a shard has not answered for {FILE_ANSWER_SECONDS:.0f} s")
    if (error := answer.exception()) and is_lost(error):
        raise ShardLost(f"a shard does not answer ({error})") from error
    return answer.result()


def save_shards(path: Path, shards: Sequence[ShardCalls], is_lost: IsLost) -> None:
    """Write the rows of all shards that answer.

    Raises:
        OSError: If they can't be written, or no shard answers.
    """
    lost: list[ShardLost] = []
    for number, shard in enumerate(shards):
        place = place_of(path, number, len(shards))
        try:
            with own_file(place) as file:
                for answer in shard.save():
                    file.write(await_answer(answer, is_lost))
        except ShardLost as error:
            lost.append(error)
            place.unlink(missing_ok=True)  # rows of another moment than the others'
    if len(lost) == len(shards):
        raise lost[0]


def load_shards(path: Path, shards: Sequence[ShardCalls], is_lost: IsLost) -> bool:
    """Read the files of as many shards into new ones; a shard without a file stays empty.

    Returns:
        Whether it was done: not if the files are of another number of shards, or of none.

    Raises:
        OSError: If they can't be read, or a shard does not answer.
        ValueError: If they are damaged.
    """
    if {count for _, count in numbers_beside(path)} != {len(shards)}:
        return False
    for number, shard in enumerate(shards):
        place = place_of(path, number, len(shards))
        if place.exists():
            load_shard(place, shard, is_lost)
    return True


def add_chunks(chunks: Iterable[Chunk], shards: Sequence[ShardCalls], is_lost: IsLost) -> None:
    """Add chunks to shards in turns.

    Raises:
        OSError: If a shard does not answer.
    """
    on_the_way = deque[Future[int]]()
    for chunk, shard in zip(chunks, cycle(shards), strict=False):
        on_the_way.append(shard.add(chunk))
        while len(on_the_way) > PIECES_ON_THE_WAY:
            await_answer(on_the_way.popleft(), is_lost)
    for answer in on_the_way:
        await_answer(answer, is_lost)


def load_shard(place: Path, shard: ShardCalls, is_lost: IsLost) -> None:
    """Read a file into a new shard.

    Raises:
        OSError: If it can't be read, or the shard does not answer.
        ValueError: If it is damaged, or of another run.
    """
    on_the_way = deque[Future[None]]()
    with place.open("rb") as file:
        piece = b"more"
        while piece:
            piece = file.read(PIECE_BYTES)
            on_the_way.append(shard.load(piece))
            while len(on_the_way) > (PIECES_ON_THE_WAY if piece else 0):
                await_answer(on_the_way.popleft(), is_lost)
