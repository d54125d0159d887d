# SPDX-License-Identifier: BSD-3-Clause
"""Export of fitted models as ONNX graphs, which run without torch, as C, and by torch.export."""

from ._files import export_c, export_onnx, export_program

__all__ = ["export_c", "export_onnx", "export_program"]
