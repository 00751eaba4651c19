"""Package indexes on loopback with hand-made wheels, and real environments to install them into."""

from __future__ import annotations

import atexit
import functools
import http.server
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TORCH = """
class version: cuda = {cuda!r}
__version__ = {version!r}
class cuda:
    get_arch_list = staticmethod(lambda: {arches!r})
    is_available = staticmethod(lambda: {available!r})
    device_count = staticmethod(lambda: {count!r})
class _Sum:
    def sum(self): return self
    def item(self): return 8.0
def ones(n, device): return _Sum()
"""


def wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    files: dict[str, str] | None = None,
    requires: tuple[str, ...] = (),
    padding: int = 0,
) -> Path:
    """A wheel of pure Python; ``padding`` files make its installation take a while."""
    info = f"{name}-{version}.dist-info"
    contents = dict(files or {f"{name}/__init__.py": f"__version__ = {version!r}\n"})
    contents |= {f"{name}/padding/m{n}.py": "x = 1\n" for n in range(padding)}
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    contents[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
    )
    contents[f"{info}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    contents[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*contents, f"{info}/RECORD"])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inner, text in contents.items():
            archive.writestr(inner, text)
    return path


def torch_wheel(folder: Path, version: str, *, gpus: int = 0, **options: object) -> Path:
    """A torch that tells its build as the real one does."""
    tag = version.partition("+")[2]
    cuda = f"{tag[2:-1]}.{tag[-1]}" if tag.startswith("cu") else None
    arches = ["sm_80", "sm_90"] if cuda else []
    text = TORCH.format(version=version, cuda=cuda, arches=arches, available=bool(gpus), count=gpus)
    return wheel(folder, "torch", version, files={"torch/__init__.py": text}, **options)


class _Index(http.server.SimpleHTTPRequestHandler):
    """``/whl/<tag>/<project>/`` lists the wheels of that folder; ``.whl`` gives one, slowly."""

    def do_GET(self) -> None:
        server = self.server
        server.seen.append(self.path)
        parts = self.path.strip("/").split("/")
        folder = server.root / parts[1] if len(parts) > 1 else server.root
        if self.path.endswith(".whl"):
            time.sleep(server.slow_s)
            return self._send((folder / parts[-1].replace("%2B", "+")).read_bytes())
        found = sorted(folder.glob(f"{parts[-1].replace('-', '_')}-*.whl"))
        if not found:
            return self.send_error(404)
        links = "".join(
            f'<a href="/whl/{parts[1]}/{f.name.replace("+", "%2B")}">{f.name}</a>' for f in found
        )
        return self._send(f"<!DOCTYPE html><html><body>{links}</body></html>".encode())

    def _send(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        try:
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # a cancelled pip

    def log_message(self, *_: object) -> None:
        """Silent."""


@contextmanager
def serving(root: Path) -> Iterator[http.server.ThreadingHTTPServer]:
    """``server.url`` is the host of the indexes; ``seen`` the paths that were asked for."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Index)
    server.root, server.seen, server.slow_s = root, [], 0.0
    server.url = f"http://127.0.0.1:{server.server_address[1]}/whl"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@functools.cache
def _template(pip: bool) -> Path:
    """Made once: to copy a venv takes a tenth of making one with pip."""
    folder = Path(tempfile.mkdtemp(prefix="cockpit-venv-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    flags = [] if pip else ["--without-pip"]
    subprocess.run([sys.executable, "-m", "venv", *flags, str(folder)], check=True)
    return folder


def environment(folder: Path, *wheels: Path, pip: bool = True) -> str:
    """A real venv with these wheels in it; the path of its Python."""
    shutil.copytree(_template(pip), folder, symlinks=True)
    python = str(folder / "bin" / "python")
    if wheels:
        install(python, *wheels)
    return python


def install(python: str, *wheels: Path) -> None:
    """By name and version, as from an index: nothing remembers the file."""
    command = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps"]
    links = [word for path in wheels for word in ("--find-links", str(path.parent))]
    exact = ["==".join(path.name.split("-")[:2]) for path in wheels]
    subprocess.run([*command, "--no-index", *links, *exact], check=True)


def versions(python: str) -> dict[str, str]:
    """What is installed in it now."""
    program = (
        "from importlib.metadata import distributions as d; "
        "[print(x.metadata['Name'], x.version) for x in d()]"
    )
    out = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    return dict(line.split() for line in out.stdout.splitlines())
