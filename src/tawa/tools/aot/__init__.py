"""`tawa build`: a kernel as a cubin with a launcher in C, for programs without Python."""
