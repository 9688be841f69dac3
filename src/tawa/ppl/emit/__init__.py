"""From IR to LLVM IR, and by LLVM to machine code of this CPU or to PTX."""
