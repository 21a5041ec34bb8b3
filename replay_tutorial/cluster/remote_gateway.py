"""A gateway as a process of Ray's: it imports no torch, so it is there, and there again, a second earlier."""

import pickle
import zlib
from typing import cast

from replay_tutorial.apex.context import Context
from replay_tutorial.cluster.gateway import Gateway
from replay_tutorial.cluster.ray_session import share
from replay_tutorial.local.shared_context import SharedReplay


class RemoteGateway(Gateway):
    """A gateway in a process of its own.

    Args:
        packed: Its context and limiter. Spaces of images are large, and Ray starts an actor again only with
            arguments of at most 100 kB: these are 3.
    """

    def __init__(self, packed: bytes) -> None:
        context, limiter = pickle.loads(zlib.decompress(packed))
        super().__init__(context, limiter, share)

    @staticmethod
    def pack(context: Context) -> bytes:
        """Pack what a gateway is made of; shared memory goes by its address."""
        limiter = cast(SharedReplay, context.replay).limiter
        return zlib.compress(pickle.dumps((context, limiter)))
