"""One build of the site for all its tests, a server that shows it, and a browser that looks at it."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from built_site import ADDRESSES, Loads, Site
from filelock import FileLock
from places import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUMS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge"]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Site:
    """The site as it is built from this tree, strictly; all workers of a run share one."""
    pytest.importorskip("mkdocs", reason="the site needs the extra `docs`")
    here = tmp_path_factory.getbasetemp()
    folder = (here if worker_id == "master" else here.parent) / "site"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            build_site(folder.with_name("half-built"))
            folder.with_name("half-built").rename(folder)
    pages = {page.relative_to(folder).as_posix(): Loads(page) for page in sorted(folder.rglob("*.html"))}
    return Site(folder, pages)


def build_site(folder: Path) -> None:
    """Run mkdocs."""
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", ROOT / "mkdocs.yml", "-d", folder],
        cwd=ROOT,
        env=os.environ | ADDRESSES,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert result.returncode == 0, result.stderr


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder and writes no line for each request."""

    def log_message(self, format: str, *args: Any) -> None:  # the name is the standard library's
        """Say nothing."""


@pytest.fixture(scope="session")
def address(site: Site) -> Iterator[str]:
    """Where the site is served: below the path that it was built for."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site.folder.parent))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/site/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """A chromium without a window. Without one the tests that look are skipped; on CI they fail."""

    def leave_out(why: str) -> None:
        remedy = f"{why}: `apt-get install chromium`, or Google Chrome, and the extra `dev`"
        if os.environ.get("CI"):
            pytest.fail(remedy)
        pytest.skip(remedy)

    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        leave_out(str(error))
    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, CHROMIUMS)), None)
        try:
            found = playwright.chromium.launch(
                executable_path=path,
                channel=None if path else "chrome",
                args=["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],  # nothing is sent outside
                timeout=300_000,
            )
        except Error as error:
            leave_out(f"no browser: {error.message.splitlines()[0]}")
        yield found
        found.close()
