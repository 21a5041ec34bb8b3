"""Batches across shards: drawn and weighted as if all rows lay in one buffer.

    P(i) = m_i / M        w_i = (m_min / m_i)^β              in one buffer: masses m, their total M
    q_i  = π_s · m_i / M_s                                   with shards: a part π_s of the batch comes from s
    v_i  = P(i) / q_i · w_i = ρ_s · (m_min / m_min,s)^β · w_i,s           ρ_s = (M_s / M) / π_s

Drawn by q and weighted by v, a batch has the same expectation as one drawn by P and weighted by w, whatever
is averaged. The shard's own weight w_i,s = (m_min,s / m_i)^β is what its buffer returns, so that all that is
left to do here is one factor for each shard. It mends both mistakes of a batch that is put together from
shards: weights that are 1 for the least mass of each shard, and parts that don't go with the totals, since
those have changed, or a shard did not answer. A batch dealt by the totals themselves has ρ_s = 1.

PER's formula applied to q, (N q_i)^-β, is another estimator unless β = 1, and so are a shard's own weights.

Left out: weights divided by the largest of the batch.

Source: Schaul et al. 2016, eq. 1 and section 3.4, over all shards.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np

from replay_tutorial.buffers.jit import Floats, Integers


class Totals(NamedTuple):
    """What a shard says of all its rows."""

    mass: float  # M_s, the sum of their masses
    least: float  # m_min,s, the smallest mass above 0; 0.0 if there is none
    stored: int  # rows
    next_index: int  # that its next row will get


class Piece(NamedTuple):
    """Rows of a batch that one shard drew at one moment."""

    shard: int
    rows: int
    totals: Totals  # of the shard, at that moment


def deal(masses: Floats, uniforms: Floats) -> Integers:
    """Deal n draws, stratified over all shards, to those whose masses they meet.

    The shards' masses are laid end to end and cut into n equal parts; a draw is a point in each. Of shard s
    there are n · M_s / M on average, and always less than two more or fewer: a part can be cut off at both
    its ends. A shard without mass gets none.

    Args:
        masses: float64[S], the total of each shard; one at least is above 0.
        uniforms: float64[n], numbers in [0, 1).

    Returns:
        int64[S], the number of draws from each shard.
    """
    ends = np.cumsum(masses)
    points = (np.arange(len(uniforms)) + uniforms) / len(uniforms) * ends[-1]
    # Strictly below its end, as in the sum tree; a point rounded up to the total is the last shard's.
    shards = cast(Integers, np.searchsorted(ends, points, side="right"))
    last = np.flatnonzero(masses)[-1]
    return np.bincount(np.minimum(shards, last), minlength=len(masses))


def factors(told: Sequence[Totals], pieces: Sequence[Piece], beta: float) -> Floats:
    """Return what the weights of each piece have to be multiplied by.

    Args:
        told: Of each shard that the batch was dealt to, also of those that got no draw, the totals by which.
        pieces: What was drawn; a shard's may be of several moments.
        beta: The exponent of the weights, in [0, 1].

    Returns:
        float64[pieces]; above 1 only where a shard has grown since it told its total.
    """
    dealt = np.array([totals.mass for totals in told])
    drawn = dealt.copy()  # when its rows were drawn, on average; without draws this is the best known
    for shard in {piece.shard for piece in pieces}:
        of_shard = [piece for piece in pieces if piece.shard == shard]
        rows = sum(piece.rows for piece in of_shard)
        drawn[shard] = sum(piece.rows * piece.totals.mass for piece in of_shard) / rows
    shares, total = dealt / dealt.sum(), drawn.sum()
    known = [*told, *(piece.totals for piece in pieces)]
    least = min(totals.least for totals in known if totals.mass > 0.0)
    return np.array(
        [
            piece.totals.mass / total / shares[piece.shard] * (least / piece.totals.least) ** beta
            for piece in pieces
        ]
    )
