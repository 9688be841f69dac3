// All of the emulation that is no template, as one unit.
#include "copies.cc"
#include "division.cc"
#include "machine.cc"
#include "memory.cc"
#include "products.cc"
