"""One batch of the rows that several shards have sent.

Parcels are read-only and lie where they arrived. What is taken out of them is copied once, to where the
learner wants it: the small fields a record at a time, images each for themselves.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replay_tutorial.apex.context import Sample
from replay_tutorial.cluster.shards.shard import Parcel
from replay_tutorial.cluster.shards.shard_lives import ShardLives
from replay_tutorial.cluster.shards.weighting import Piece, Totals, factors


class Taken(NamedTuple):
    """Rows of a parcel that are used for a batch."""

    shard: int
    parcel: Parcel
    places: NDArray[np.int64]  # int64[n], in the parcel


def put_together(
    told: Sequence[Totals],
    taken: Sequence[Taken],
    lives: Sequence[ShardLives],
    beta: float,
    out: Mapping[str, NDArray[Any]],
) -> Sample:
    """Make a batch, weighted as one of all rows.

    Args:
        told: Of each shard, the totals by which the batch was dealt.
        taken: Its rows.
        lives: Of each shard.
        beta: The exponent of the weights.
        out: Arrays to copy fields into, by name.
    """
    pieces = [Piece(part.shard, len(part.places), part.parcel.totals) for part in taken]
    scale = np.repeat(factors(told, pieces, beta), [piece.rows for piece in pieces])
    records = np.concatenate([part.parcel.records[part.places] for part in taken])
    weights = (records["weights"] * scale).astype(np.float32)
    serials = [lives[p.shard].serials(p.parcel.records["indexes"][p.places]) for p in taken]
    indexes = [own * len(lives) + part.shard for own, part in zip(serials, taken, strict=True)]
    names = [name for name in records.dtype.names or () if name not in ("indexes", "weights")]
    # Fields of records overlap in ways that torch doesn't take.
    rows = {name: out[name] if name in out else np.empty_like(records[name]) for name in names}
    for name, values in rows.items():
        values[...] = records[name]
    for name, images in taken[0].parcel.images.items():
        shape = (len(records), *images.shape[1:])
        rows[name] = out[name] if name in out else np.empty(shape, images.dtype)
        first = 0
        for part in taken:
            copies = rows[name][first : first + len(part.places)]
            np.take(part.parcel.images[name], part.places, axis=0, out=copies, mode="clip")  # else it buffers
            first += len(part.places)
    return Sample(rows, weights, np.concatenate(indexes))
