"""What the functions of the language that are written in it are written with, as ``tl``."""

from __future__ import annotations

from tawa.language.constant import constexpr as constexpr
from tawa.language.dtypes import bfloat16 as bfloat16
from tawa.language.dtypes import float8e4nv as float8e4nv
from tawa.language.dtypes import float8e5 as float8e5
from tawa.language.dtypes import float16 as float16
from tawa.language.dtypes import float32 as float32
from tawa.language.dtypes import int1 as int1
from tawa.language.dtypes import int32 as int32
from tawa.language.dtypes import int64 as int64
from tawa.language.dtypes import uint8 as uint8
from tawa.language.dtypes import uint16 as uint16
from tawa.language.dtypes import uint32 as uint32
from tawa.language.dtypes import uint64 as uint64
from tawa.language.math import abs as abs
from tawa.language.math import ceil as ceil
from tawa.language.math import clamp as clamp
from tawa.language.math import cos as cos
from tawa.language.math import div_rn as div_rn
from tawa.language.math import exp2 as exp2
from tawa.language.math import floor as floor
from tawa.language.math import log as log
from tawa.language.math import maximum as maximum
from tawa.language.math import sin as sin
from tawa.language.math import sqrt as sqrt
from tawa.language.math import sqrt_rn as sqrt_rn
from tawa.language.math import umulhi as umulhi
from tawa.language.program import arange as arange
from tawa.language.program import full as full
from tawa.language.program import static_assert as static_assert
from tawa.language.program import static_range as static_range
from tawa.language.program import to_tensor as to_tensor
from tawa.language.reduction import max as max
from tawa.language.reduction import xor_sum as xor_sum
from tawa.language.tensors import broadcast_to as broadcast_to
from tawa.language.tensors import dot as dot
from tawa.language.tensors import join as join
from tawa.language.tensors import permute as permute
from tawa.language.tensors import reshape as reshape
from tawa.language.tensors import trans as trans
from tawa.language.tensors import where as where
