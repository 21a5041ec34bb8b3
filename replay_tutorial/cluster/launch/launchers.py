"""The files that start a cluster in a cloud, printed by `cluster launch NAME`.

They are data, not code: a person reads what it costs, fills in the two blanks, and hands the file to `ray up`
or `kubectl`. So they lie beside this one as they are, with their comments.

Left out: filling in the blanks, and starting anything. Nothing that costs money is begun by this package.
"""

from importlib.resources import files

LAUNCHERS = ("aws", "kuberay")


def launcher(name: str) -> str:
    """Return the YAML file that starts a cluster in one kind of cloud, comments and blanks included.

    Args:
        name: One of `LAUNCHERS`: "aws" is for `ray up`, "kuberay" for `kubectl create`.

    Raises:
        ValueError: If there is no such launcher.
    """
    if name not in LAUNCHERS:
        raise ValueError(f"no launcher is called {name!r}; there are {', '.join(LAUNCHERS)}.")
    return (files("replay_tutorial.cluster.launch") / f"{name}.yaml").read_text(encoding="utf-8")
