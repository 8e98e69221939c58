"""make_guest.py KERNEL_ROOT HELPER BUSYBOX OUTPUT: the initramfs of a machine that loads the drivers of
virtio-serial, tells READY on its console, and runs `isthmus-helper --listen` on the port "isthmus"."""

import pathlib
import re
import stat
import subprocess
import sys

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
for module in $(cat /modules); do insmod /mods/$module.ko; done
mkdir -p /ws; ip link set lo up
tries=0
until port=$(grep -l '^isthmus$' /sys/class/virtio-ports/*/name 2>/dev/null) || [ $tries = 300 ]; do
    tries=$((tries + 1)); sleep 0.1
done
echo READY >/dev/console
device=/dev/$(basename "$(dirname "$port")")
while :; do HOME=/ PATH=/bin /isthmus-helper --listen "unix:$device" >/dev/console 2>&1; sleep 1; done
"""
WANTED = ["virtio_pci", "virtio_console", "virtio_mmio"]


def find_modules(root):
    """Those that are wanted and what they need, in the order to load them; what is built in is left out."""
    files = {path.name.split(".")[0].replace("-", "_"): path for path in root.glob("**/*.ko*")}
    order = []

    def add(name):
        path = files.get(name.replace("-", "_"))
        if not path or path in order:
            return
        needs = re.search(rb"\0depends=([^\0]*)\0", unpacked(path))
        for other in filter(None, needs.group(1).decode().split(",") if needs else []):
            add(other)
        order.append(path)

    for name in WANTED:
        add(name)
    return order


def unpacked(path):
    if path.suffix == ".xz":
        return subprocess.run(["xz", "-dc", str(path)], capture_output=True, check=True).stdout
    return path.read_bytes()


class Archive:
    """cpio(5), "newc"."""

    def __init__(self):
        self.bytes = bytearray()
        self.count = 0

    def add(self, name, mode, content=b"", device=(0, 0)):
        self.count += 1
        fields = [self.count, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name) + 1, 0]
        self.bytes += b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        self.pad()
        self.bytes += content
        self.pad()

    def pad(self):
        self.bytes += bytes(-len(self.bytes) % 4)


def main():
    root, helper, busybox, output = sys.argv[1:]
    modules = find_modules(pathlib.Path(root) / "lib/modules")
    archive = Archive()
    for name in ("bin", "mods", "proc", "sys", "dev", "tmp", "ws"):
        archive.add(name, stat.S_IFDIR | 0o755)
    archive.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    archive.add("init", stat.S_IFREG | 0o755, INIT.encode())
    archive.add("bin/busybox", stat.S_IFREG | 0o755, pathlib.Path(busybox).read_bytes())
    archive.add("isthmus-helper", stat.S_IFREG | 0o755, pathlib.Path(helper).read_bytes())
    for path in modules:
        archive.add(f"mods/{path.name.split('.')[0]}.ko", stat.S_IFREG | 0o644, unpacked(path))
    archive.add("modules", stat.S_IFREG | 0o644, "\n".join(path.name.split(".")[0] for path in modules).encode())
    archive.add("TRAILER!!!", 0)
    pathlib.Path(output).write_bytes(archive.bytes)


main()
