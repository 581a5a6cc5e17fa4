"""A server that tests start: the program of target/ with the demo model."""

import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def program():
    """Return the path of the program that was built, or None."""
    built = [ROOT / "target" / kind / "backstitch" for kind in ("release", "debug")]
    return next((path for path in built if path.exists()), None)


class Server:
    """A server on a port of its own, which keeps its state in a folder."""

    def __init__(self, path, *options):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/"
        self.log = tempfile.TemporaryFile()
        self.folder = tempfile.TemporaryDirectory(prefix="page-state-")
        self.command = [
            path, "serve", "-m", ROOT / "demo" / "demo.gguf", "--host", "127.0.0.1", "--port", str(port),
            "--state", self.folder.name, *options,
        ]
        self.start()

    def start(self):
        """Start the program, and wait until it answers."""
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        for _ in range(300):
            try:
                with urllib.request.urlopen(self.url + "health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        self.process.kill()
        self.log.seek(0)
        raise SystemExit(f"the server does not answer:\n{self.log.read().decode(errors='replace')}")

    def stop(self, how=signal.SIGTERM):
        """End the program with a signal."""
        self.process.send_signal(how)
        self.process.wait(60)

    def close(self):
        """End the program, and drop what it kept."""
        self.stop()
        self.log.close()
        self.folder.cleanup()
