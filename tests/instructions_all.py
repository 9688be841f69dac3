"""All instruction-level programs, as entries of one text."""

import instructions_global
import instructions_memory
import instructions_numbers
import instructions_products
import instructions_sync
from instructions import suite

PROGRAMS = [
    *instructions_global.PROGRAMS,
    *instructions_memory.PROGRAMS,
    *instructions_numbers.PROGRAMS,
    *instructions_products.PROGRAMS,
    *instructions_sync.PROGRAMS,
]
SOURCES = suite(PROGRAMS)
