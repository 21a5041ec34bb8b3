"""The processes of a run with shards, as the driver sees them: those of any cluster, and the shards.

A shard that dies begins its next life where there is memory. It takes rows again when it has those that the
newest checkpoint holds of it; without one it begins empty. Actors and learner find it by its name.
"""

import os
import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayError

from replay_tutorial.apex.messages import Message, Note
from replay_tutorial.apex.runs.checkpoint import whole_checkpoints
from replay_tutorial.apex.runs.lives import Lives
from replay_tutorial.apex.runs.setup import RunSetup
from replay_tutorial.apex.runs.watch import ProcessDied
from replay_tutorial.apex.storage import place_of
from replay_tutorial.cluster.actor_link import ActorLink, Send
from replay_tutorial.cluster.cluster_options import ClusterOptions
from replay_tutorial.cluster.cluster_workers import COLOURS, SILENT_SECONDS, ClusterWorkers
from replay_tutorial.cluster.ray_session import WRONG, is_lost
from replay_tutorial.cluster.shards.remote_shard import OPTIONS, NamedShard, RemoteShard
from replay_tutorial.cluster.shards.shard import ShardPart
from replay_tutorial.cluster.shards.shard_files import IsLost, load_shard
from replay_tutorial.cluster.shards.shard_places import bytes_of_shard, of_shard
from replay_tutorial.cluster.shards.sharded_actor_link import ShardedActorLink
from replay_tutorial.cluster.shards.sharded_learner import Way, learn_from_shards
from replay_tutorial.local.parallel import central_roles
from replay_tutorial.local.supervisor import SHUTDOWN_SECONDS


class ShardRole:
    """One shard, and the Ray actor that it lives in now.

    Args:
        setup: Of the run.
        number: Of the shard.
        shards: How many there are.
        name: That it is found by.
        size: Bytes that it needs.
    """

    def __init__(self, setup: RunSetup, number: int, shards: int, name: str, size: int) -> None:
        self.setup = setup
        self.number, self.shards, self.name, self.size = number, shards, name, size
        self.lives = Lives(f"shard {number}", setup.context.config.restart_limit)
        self.handle: Any = None
        self.place: Future[bool] | None = None  # that the life waits for
        self.end: Future[None] | None = None  # of the life
        self.notes: list[Note] = []  # to be said
        self._begun = 0.0
        self._said_waiting = False

    def start(self, remote_shard: Any, sources: str) -> None:
        """Begin the next life."""
        context, life = self.setup.context, self.lives.count
        place = self.number, self.shards, life, life > 0
        part = ShardPart(context.config, context.spaces, *place, self.name, sources)
        self.lives.begin(waits=True)
        try:
            self.handle = remote_shard.options(name=self.name).remote(part)
        except (ValueError, RayError) as error:  # Ray has not heard of the last one's end
            self.lives.end(f"can't be begun: {error}")
            return
        self._begun, self._said_waiting = time.monotonic(), False
        self.place = self.handle.__ray_ready__.remote().future()
        self._await_end()

    def check(self) -> None:
        """Note if the life has got its place, or waits for it, or has ended.

        Raises:
            ProcessDied: If it could not begin, its code failed, or it has died too often.
        """
        self._look_for_place()
        if self.end is None or not self.end.done():
            return
        error = self.end.exception()
        if isinstance(error, WRONG) or (isinstance(error, ActorDiedError) and error.actor_init_failed):
            raise ProcessDied(f"{self.lives.name} failed: \n\n{COLOURS.sub('', str(error))}")
        if not isinstance(error, ActorDiedError):  # it may only be out of reach
            self._await_end()
            return
        self.end = None
        with suppress(RayError):
            ray.kill(self.handle)  # or Ray would keep its name
        self.notes.append(Note(f"{self.lives.name} is gone, with its rows"))
        self.lives.end(f"died: {str(error).strip()}")

    def _look_for_place(self) -> None:
        if self.place is None:
            return
        name, waited = self.lives.name, time.monotonic() - self._begun
        if self.place.done():
            error, self.place = self.place.exception(), None
            if error is not None:  # of its end more is known soon
                return
            life = self.lives.count - 1
            self.lives.hear(life)
            if self._said_waiting:
                self.notes.append(Note(f"{name} has its place, after {waited:.0f} s"))
            if life > 0:
                threading.Thread(target=self._fill, args=(self.handle,), name=name, daemon=True).start()
        elif waited >= SILENT_SECONDS and not self._said_waiting:
            self._said_waiting = True
            need = f"it needs a host with {self.size / 1e9:.3g} GB of memory that nobody uses"
            self.notes.append(Note(f"{name} has had no place for {waited:.0f} s: {need}"))

    def _await_end(self) -> None:
        self.end = self.handle.live.options(concurrency_group="life").remote().future()

    def _saved(self) -> Path | None:
        """Return the newest file with rows of this shard, None if there is none."""
        folders = [folder for _, folder in reversed(whole_checkpoints(self.setup.folder.path))]
        places = [place_of(folder / "replay.npz", self.number, self.shards) for folder in folders]
        return next((place for place in places if place.exists()), None)

    def _fill(self, handle: Any) -> None:
        """Give a life the rows that are saved, the newest there are."""
        name, saved = self.lives.name, self._saved()
        note = f"{name} begins again, without rows: no checkpoint has them"
        if saved is not None:
            try:
                load_shard(saved, NamedShard(self.name).calls, is_lost)
                note = f"{name} begins again, with its rows of checkpoint {saved.parent.name}"
            except (OSError, ValueError) as error:
                note = f"{name} begins again, without the rows of checkpoint {saved.parent.name}: {error}"
        self.notes.append(Note(note))
        with suppress(RayError):
            handle.open.remote()


class ShardedWorkers(ClusterWorkers):
    """The processes of a run with shards.

    Args:
        setup: Of the run.
        options: How many shards, and what others need.
    """

    def __init__(self, setup: RunSetup, options: ClusterOptions) -> None:
        run = uuid.uuid4().hex[:8]  # this process may have had another run in the same namespace
        count = options.shards
        self.names = [f"shard {number} of {count}, run {run}" for number in range(count)]
        session = ray.get_runtime_context()
        environment = {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
        way = Way(session.gcs_address, session.namespace, environment, self.names)
        super().__init__(setup, options, central_roles(setup, partial(learn_from_shards, way)))
        size = bytes_of_shard(setup.context.config, setup.context.spaces, count)
        self.shards = [ShardRole(setup, number, count, name, size) for number, name in enumerate(self.names)]
        self._remote_shard: Any = ray.remote(**OPTIONS, **of_shard(size))(RemoteShard)

    def _start_remote(self) -> None:
        for shard in self.shards:  # first, because they are looked for
            shard.start(self._remote_shard, self.sources)
        super()._start_remote()

    @property
    def _ends(self) -> Sequence[Any]:
        return ([*self.gateways], partial(link_to_shards, self.names))

    def _check_remote(self, received: list[Message]) -> None:
        super()._check_remote(received)
        for shard in self.shards:
            shard.check()
            if shard.lives.is_due():
                shard.start(self._remote_shard, self.sources)
            while shard.notes:
                received.append(shard.notes.pop(0))

    def _end_remote(self, seconds: float) -> None:
        super()._end_remote(seconds)
        handles = [shard.handle for shard in self.shards if shard.handle is not None]
        with suppress(RayError, OSError):
            wait([handle.tidy.remote().future() for handle in handles], min(seconds, SHUTDOWN_SECONDS))
        for handle in handles:
            with suppress(RayError):
                ray.kill(handle)


def link_to_shards(
    names: Sequence[str], gateways: Sequence[Send], actor: int, life: int, is_lost: IsLost
) -> ActorLink:
    """Return an actor's link."""
    adds = [NamedShard(name).calls.add for name in names]
    return ShardedActorLink(gateways, actor, life, is_lost, adds)
