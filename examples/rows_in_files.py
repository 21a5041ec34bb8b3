"""The rows of a buffer in a file, as cpprb's `save_transitions` and `load_transitions` store them."""

# --8<-- [start:main]
import numpy as np

from replay_tutorial import ReplayBuffer


def save_transitions(buffer, path):
    np.savez(path, **buffer[:])


def load_transitions(buffer, path):
    with np.load(path) as rows:
        buffer.add(**rows)


def load_from_cpprb(buffer, path):  # unpickling can run any code: load only files that you trust
    with np.load(path, allow_pickle=True) as file:
        if not file["safe"]:
            raise ValueError(f"{path} was written with safe=False; only cpprb can read it.")
        buffer.add(**file["data"].item())


# --8<-- [end:main]


def main(path):
    buffer = ReplayBuffer(10, {"obs": {}}, dedupe_next="obs")
    smaller = ReplayBuffer(4, {"obs": {}, "next_obs": {}})
    buffer.add(obs=np.arange(10), next_obs=np.arange(1, 11))
    save_transitions(buffer, path)
    load_transitions(smaller, path)
    print("the last rows:", smaller[:].obs)


if __name__ == "__main__":
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder) / "rows.npz")
