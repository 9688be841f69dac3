"""tawa in PyTorch: operators with gradients, layers that take the place of torch's.

torch is imported here, and nowhere else in this package. `import tawa.torch` also defines
`torch.ops.tawa`. What works and what does not: docs/torch.md.
"""

from __future__ import annotations

from tawa.torch import conv
from tawa.torch.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from tawa.torch.flops import register as register_flops
from tawa.torch.functional import (
    attention,
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    linear,
    matmul,
    scaled_dot_product_attention,
)
from tawa.torch.hugging_face import register as register_hugging_face
from tawa.torch.kv_cache import flash_attn_with_kvcache
from tawa.torch.layers import Linear, Replaced, replace
from tawa.torch.operator import op
from tawa.torch.triton import replace_triton

register_flops()

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Linear",
    "Replaced",
    "attention",
    "conv",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "linear",
    "matmul",
    "op",
    "register_hugging_face",
    "replace",
    "replace_triton",
    "scaled_dot_product_attention",
]
