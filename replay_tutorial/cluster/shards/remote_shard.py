"""How a shard is made a Ray actor, and called by its name.

Ray does not begin it again when it dies: the next life has another number, which only the driver knows. It
has the same name, so that whoever finds the old life dead looks the name up, and calls the new one.

A shard's files are sent by a thread of their own, so that they keep nobody waiting for rows.

Left out: on which host it lives.
"""

import glob
import shutil
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError

from replay_tutorial.cluster.ray_session import call, failed
from replay_tutorial.cluster.remote_actor import check_sources
from replay_tutorial.cluster.shards.shard import Shard, ShardPart
from replay_tutorial.cluster.shards.shard_files import FILE_ANSWER_SECONDS, PIECES_ON_THE_WAY, ShardCalls

# Ray's options: in one life only, and no call is made twice.
OPTIONS: dict[str, Any] = {
    "max_restarts": 0,
    "max_task_retries": 0,
    "concurrency_groups": {"files": 1, "life": 1},
}
# Of a call that sends a file: no more pieces lie in Ray's store than this, whoever is slow to write them.
SAVING: dict[str, Any] = {
    "num_returns": "streaming",
    "concurrency_group": "files",
    "_generator_backpressure_num_objects": PIECES_ON_THE_WAY,
}
LIFE_SECONDS = 10.0  # in which a shard that has a place answers


class RemoteShard(Shard):
    """A shard in a process of its own.

    Args:
        part: Which one.

    Raises:
        MemoryError: As for `Shard`.
        OtherSources: If this host has another version of the package.
    """

    def __init__(self, part: ShardPart) -> None:
        check_sources(part.sources)
        super().__init__(part)
        self.tidy()

    def tidy(self) -> None:
        """Remove the folders that this life, or a killed one before it, has on this host."""
        for folder in Path(tempfile.gettempdir()).glob(f"{glob.escape(self.scratch)}*"):
            shutil.rmtree(folder, ignore_errors=True)

    def live(self) -> None:
        """Answer when this process ends: never."""
        threading.Event().wait()


class NamedShard:
    """Calls a shard, whichever life it is in.

    Args:
        name: That Ray knows it by, in the namespace of this process.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._handle: Any = None  # of the last life that was found, as far as it answers

    @property
    def calls(self) -> ShardCalls:
        """How to call it."""
        add, sample, update, load = (partial(self.call, m) for m in ("add", "sample", "update", "load"))
        return ShardCalls(add, sample, update, self._save, load)

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        """Call a method; return the Future of its answer, an error of Ray's if there is no such shard."""
        try:
            answer = call(getattr(self._find(), method), *arguments)
        except RayError as error:
            answer = failed(error)
        answer.add_done_callback(self._look_again)
        return answer

    def _save(self) -> Iterator[Future[bytes]]:
        try:
            shard = self._find()
            lives = shard.__ray_ready__.remote()
        except RayError as error:
            yield failed(error)
            return
        if not ray.wait([lives], timeout=LIFE_SECONDS)[0]:
            yield failed(GetTimeoutError(f"{self.name} has had no place for {LIFE_SECONDS:.0f} s"))
            return
        pieces = shard.save.options(**SAVING).remote()
        while ray.wait([pieces], timeout=FILE_ANSWER_SECONDS)[0]:
            try:
                yield next(pieces).future()
            except StopIteration:
                return
        yield failed(GetTimeoutError(f"{self.name} has not answered for {FILE_ANSWER_SECONDS:.0f} s"))

    def _find(self) -> Any:
        """Return Ray's handle.

        Raises:
            RayActorError: If no shard has the name.
        """
        handle = self._handle  # another thread may forget it meanwhile
        if handle is None:
            try:
                handle = self._handle = ray.get_actor(self.name)
            except ValueError as error:
                raise RayActorError(error_msg=f"there is no {self.name} now") from error
        return handle

    def _look_again(self, answer: Future[Any]) -> None:
        """Forget a life that doesn't answer."""
        if answer.exception() is not None:
            self._handle = None
