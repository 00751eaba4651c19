"""The CUDA driver as a job meets it: device files, libcuda, cuInit, devices. Makes no context.

argv: the device files to be opened. CUDA driver API: https://docs.nvidia.com/cuda/cuda-driver-api/
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import sys

NO_DEVICE = 100
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76


def tell(**facts: object) -> None:
    """One line, at once."""
    sys.stdout.write("cockpit-probe " + json.dumps(facts) + "\n")
    sys.stdout.flush()


def opened(path: str) -> str:
    """``ok``, or the name of the error."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "unknown")
    return "ok"


def library_file() -> str | None:
    """Where the loaded libcuda came from."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "/libcuda.so" in line:
                return line.split(None, 5)[5].strip()
    return None


def device(cuda: ctypes.CDLL, ordinal: int) -> dict[str, object]:
    """What the driver says without a context."""
    handle, name = ctypes.c_int(), ctypes.create_string_buffer(128)
    cuda.cuDeviceGet(ctypes.byref(handle), ordinal)
    cuda.cuDeviceGetName(name, 128, handle)
    bus = ctypes.create_string_buffer(32)
    cuda.cuDeviceGetPCIBusId(bus, 32, handle)
    raw = (ctypes.c_ubyte * 16)()
    ask = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
    ask(ctypes.byref(raw), handle)
    digits = bytes(raw).hex()
    cuts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    numbers = []
    for attribute in (CAPABILITY_MAJOR, CAPABILITY_MINOR):
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle)
        numbers.append(value.value)
    return {
        "ordinal": ordinal,
        "name": name.value.decode("utf-8", "replace"),
        "uuid": "-".join(cuts),
        "pci_bus_id": bus.value.decode("ascii", "replace").lower(),
        "capability": f"{numbers[0]}.{numbers[1]}",
    }


def without_mask() -> int | None:
    """cuInit in a fresh process that sees all devices. The answer of this one is final."""
    import subprocess

    environment = {n: v for n, v in os.environ.items() if n != "CUDA_VISIBLE_DEVICES"}
    code = (
        "import sys; sys.path[:] = [p for p in sys.path if p]; "  # not the working directory
        "import ctypes; print('answer', ctypes.CDLL('libcuda.so.1').cuInit(0))"
    )
    run = subprocess.run(
        [sys.executable, "-B", "-c", code], env=environment, stdout=subprocess.PIPE, check=False
    )
    words = run.stdout.decode("ascii", "replace").split()
    return int(words[-1]) if len(words) > 1 and words[-2] == "answer" else None


def main() -> None:
    """Device files first: what follows may hang in one of them."""
    tell(begun="opening the device files")
    tell(opened={path: opened(path) for path in sys.argv[1:]})
    tell(begun="loading libcuda.so.1")
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        tell(library_error=str(error))
        return
    tell(library=library_file(), begun="cuInit")
    answer = cuda.cuInit(0)
    tell(init=answer)
    version = ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(version)) == 0:
        tell(version=version.value)
    if answer == NO_DEVICE and "CUDA_VISIBLE_DEVICES" in os.environ:
        tell(begun="cuInit without CUDA_VISIBLE_DEVICES")
        tell(init_unmasked=without_mask())
    if answer == 0:
        count = ctypes.c_int()
        cuda.cuDeviceGetCount(ctypes.byref(count))
        tell(begun="asking the devices' names")
        tell(devices=[device(cuda, ordinal) for ordinal in range(count.value)])


if __name__ == "__main__":
    main()
