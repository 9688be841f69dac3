"""Big plates of data by tile kernels, for all chains at once."""
