"""What happens to the cache's folder, the clock and the process while the server works."""
import asyncio
import os
import pathlib
import resource
import signal
import subprocess

PAGE = 4096


class Disk:
    """A small disk for the cache's folder: a tmpfs where we may mount one, else the bound on the size
    of files that the kernel keeps for the server's process. Either can be full and have room again."""

    def __init__(self, folder, size, mount=True):
        self.mount = pathlib.Path(folder) / "disk"
        self.mount.mkdir()
        self.size, self.ballast, self.full = size, self.mount / "ballast", False
        self.mounted = mount and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", self.mount],
            capture_output=True).returncode == 0
        self.folder = self.mount / "kv"
        self.file = self.folder / "blocks.skiffkv"

    def fill(self, pid):
        """No byte more can be written."""
        self.full = True
        if not self.mounted:
            if self.file.exists():
                self._limit(pid, max(PAGE, self.file.stat().st_size // 2))
            return
        with open(self.ballast, "wb", buffering=0) as ballast:
            try:
                while ballast.write(b"\xaa" * PAGE) == PAGE:
                    pass
            except OSError:
                pass

    def free(self, pid):
        self.full = False
        if self.mounted:
            self.ballast.unlink(missing_ok=True)
        else:
            self._limit(pid, resource.RLIM_INFINITY)

    def _limit(self, pid, size):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def close(self):
        if self.mounted:
            subprocess.run(["umount", "-l", self.mount], check=False)


def flip_bits(file, rng):
    """In some pages of the file, the first one spared: with it every block is lost at once."""
    size = file.stat().st_size
    if size <= 2 * PAGE:
        return
    with open(file, "r+b", buffering=0) as bytes_of:
        for _ in range(rng.randrange(1, 40)):
            at = rng.randrange(PAGE, size)
            bytes_of.seek(at)
            if old := bytes_of.read(1):
                bytes_of.seek(at)
                bytes_of.write(bytes([old[0] ^ 1 << rng.randrange(8)]))


def truncate(file, rng):
    os.truncate(file, rng.randrange(PAGE, max(PAGE + 1, file.stat().st_size)))


def copy_around(file, rng):
    """A whole record in another one's place: every checksum is right."""
    size = file.stat().st_size
    if size < 40 * PAGE:
        return
    with open(file, "r+b") as bytes_of:
        pages = rng.randrange(1, 30)
        source, target = (rng.randrange(1, size // PAGE - pages) * PAGE for _ in range(2))
        bytes_of.seek(source)
        data = bytes_of.read(pages * PAGE)
        bytes_of.seek(target)
        bytes_of.write(data)


async def trouble(server, disk, rng, counts, until, slow):
    """Faults of the file tier, one after the other, and now and then a process that stands still."""
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        await asyncio.sleep(rng.uniform(0.05, 0.4) * slow)
        kind = rng.choice(["flip"] * 4 + ["copy"] * 2 + ["truncate", "fill", "mode", "freeze"])
        if disk.full and rng.random() < 0.5:
            kind = "free"
        try:
            if kind == "flip":
                flip_bits(disk.file, rng)
            elif kind == "truncate":
                truncate(disk.file, rng)
            elif kind == "copy":
                copy_around(disk.file, rng)
            elif kind == "fill":
                disk.fill(server.pid)
            elif kind == "free":
                disk.free(server.pid)
            elif kind == "mode":
                os.chmod(disk.file, rng.choice([0o000, 0o400, 0o600]))
            elif rng.random() < 0.3:
                server.signal(signal.SIGSTOP)
                await asyncio.sleep(rng.uniform(0.1, 1.0))
                server.signal(signal.SIGCONT)
            else:
                continue
            counts["fault: " + kind] += 1
        except OSError as error:  # the disk that we filled ourselves, a mode that we took away
            counts[f"fault: {kind} not possible ({error.strerror})"] += 1
    disk.free(server.pid)
    os.chmod(disk.file, 0o600)


def clock_shim(folder):
    """The environment in which the time of day jumps; empty where no compiler is found."""
    library = pathlib.Path(folder) / "clock_jump.so"
    source = pathlib.Path(__file__).with_name("clock_jump.c")
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"LD_PRELOAD": str(library)}
