"""A device that copies and waits are heard of, on a machine that has none: its tensors lie in main memory.

What is computed on it is right and real. A copy to it is one of that many bytes, and takes as much longer as one from
pageable memory that waits for a queue of kernels; so does a value that is asked for. That time is slept, so that the
truth is unambiguous on a busy machine.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from tests.support.loop_parts import nap

COPY_S: Final = 0.002
WAIT_S: Final = 0.003
DEVICE: Final = torch.device("meta")
"""What its tensors say they are on: of the devices that this torch knows, the one that is no main memory."""
_WAITS: Final = ("item", "tolist", "cpu", "__float__", "__bool__")


class OnDevice(torch.Tensor):
    """A tensor on the device."""

    device = DEVICE
    is_cpu = False

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As it is, after the wait for it where a value is asked for or one is copied into it."""
        if func.__name__ in _WAITS:
            nap(WAIT_S)
        elif func.__name__ == "copy_" and isinstance(args[1], Loaded):
            nap(COPY_S)
            args, types = (args[0], args[1].as_subclass(torch.Tensor)), (cls,)
        tensor: Any = super()
        result = tensor.__torch_function__(func, types, args, kwargs or {})
        return result.as_subclass(torch.Tensor) if func.__name__ == "cpu" else result


class Loaded(torch.Tensor):
    """A tensor in main memory that can be copied to the device."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As it is; a copy to the device is one in main memory."""
        if OnDevice in types:
            return NotImplemented
        if func.__name__ == "to" and args[1] == DEVICE:
            nap(COPY_S)
            return args[0].as_subclass(torch.Tensor).clone().as_subclass(OnDevice)
        tensor: Any = super()
        return tensor.__torch_function__(func, types, args, kwargs or {})
