"""The server: named tables over one store of cells; who waits for whom.

Left out: everything that one table does by itself (`contents`).
"""

from replay_tutorial.buffers.fields import Fields
from replay_tutorial.tables.message import Message


class Server:
    """Named tables in this process, for threads.

    Attributes:
        fields: The columns, by name.
    """

    fields: Fields

    def insert(self, message: Message, timeout: float | None = None) -> list[int]:
        """Store the values of a message, then insert its items, each when its table lets it in.

        Everything is checked before anything changes. After a TimeoutError the items that are in stay in; the
        same message, sent again, goes on where it stopped. A message that is finished is answered as before.

        Args:
            message: The writer's next message, or its last one again.
            timeout: Seconds to wait at most, for all items together; None waits, 0 looks once.

        Returns:
            The keys of all its items, in their order.

        Raises:
            CapacityError: If there are no free cells for its values.
            Closed: If the server is closed, before or meanwhile.
            KeyError: If there is no such table or column.
            TimeoutError: If not all items are in when the time is up.
            UnknownWriter: If it is not the writer's first message, and the server does not know the writer.
            ValueError: If anything in it does not fit, or the writer's last message is not finished.
        """
        raise NotImplementedError

    def close_writer(self, writer: int) -> None:
        """Forget a writer and what it has sent, but for what items name; one that is unknown is ignored."""
        raise NotImplementedError
