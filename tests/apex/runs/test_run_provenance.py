"""What a run records of its origin."""

import os

import pytest

from replay_tutorial import __version__
from replay_tutorial.apex.runs import run_provenance
from replay_tutorial.apex.runs.run_provenance import digest_of_sources, versions_of


@pytest.mark.skipif(os.name == "nt", reason="Windows permits links to administrators only")
def test_the_digest_depends_on_every_source_and_not_on_what_editors_leave_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(run_provenance, "SOURCES", tmp_path)
    (tmp_path / "layer").mkdir()
    (tmp_path / "layer" / "module.py").write_text("x = 1\n", encoding="utf-8")
    before = digest_of_sources()
    (tmp_path / "layer" / ".#module.py").symlink_to("somebody@host.1234")  # Emacs, while the module is edited
    (tmp_path / "layer" / ".ipynb_checkpoints").mkdir()
    (tmp_path / "layer" / ".ipynb_checkpoints" / "module-checkpoint.py").touch()
    assert digest_of_sources() == before
    (tmp_path / "layer" / "module.py").write_text("x = 2\n", encoding="utf-8")
    changed = digest_of_sources()
    (tmp_path / "layer" / "module.py").rename(tmp_path / "module.py")
    assert len({before, changed, digest_of_sources()}) == 3


def test_the_version_is_that_of_the_code_and_not_of_what_is_installed(monkeypatch):
    monkeypatch.setattr(run_provenance, "version", lambda package: "0.1.0")  # an old installation
    assert versions_of(["replay_tutorial", "numpy"]) | {"python": ""} == {
        "python": "",
        "replay_tutorial": __version__,
        "numpy": "0.1.0",
    }
