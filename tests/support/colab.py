"""What stands for Colab in a kernel of ours."""

from __future__ import annotations

from typing import Final

COLABS: Final = """
import sys, types
output = types.ModuleType("google.colab.output")
output.asked, output._widgets = [], types.SimpleNamespace(_installed_url=None)
output.enable_custom_widget_manager = lambda: output.asked.append("manager")
colab = types.ModuleType("google.colab")
colab.output = output
sys.modules |= {"google.colab": colab, "google.colab.output": output}
"""
"""As much of Colab's package as anywidget and we look for."""
QUICKSTART_CELL_S: Final = 180.0
"""As the other notebooks have."""
