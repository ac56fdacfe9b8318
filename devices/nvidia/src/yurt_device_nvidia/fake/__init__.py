"""Simulated NVIDIA GPUs: a replacement for `libnvidia-ml.so.1` below the real Python bindings.

`library.FakeLibrary` has the functions of NVML as C function pointers, so that `pynvml` marshals its arguments and
structs as it does for the real library; what they answer stands in a JSON file (`machine.FakeMachine`), which may
change at any moment: figures, processes, Xid errors, a GPU that falls off the bus.
`layouts` has machines to begin with.

In an agent: `library = "fake:/path/machine.json"` in the configuration of the plugin, or `fake:h100x8` for a layout by
name; the node then says so in its attribute `device.nvidia.fake`. Tests of other plugins use it with `install`.
"""

from yurt_device_nvidia.fake import activity, mig  # noqa: F401 - declare their functions
from yurt_device_nvidia.fake.layouts import LAYOUTS, layout
from yurt_device_nvidia.fake.library import FakeLibrary, install, uninstall
from yurt_device_nvidia.fake.machine import FakeMachine, change, write

__all__ = ["LAYOUTS", "FakeLibrary", "FakeMachine", "change", "install", "layout", "uninstall", "write"]
