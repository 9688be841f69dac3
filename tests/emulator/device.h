// The device of the host emulation, on which generated text is compiled instead of a GPU's.
#include "builtins.h"
