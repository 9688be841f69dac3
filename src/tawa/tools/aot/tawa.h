/* What the launchers that `tawa build` writes have in common: their errors and their arguments. */
#ifndef TAWA_H
#define TAWA_H

#include <cuda.h>
#include <stdint.h>

typedef enum {
    TAWA_OK = 0,
    TAWA_ARGUMENT = 1,   /* an argument is not what the kernel was built for */
    TAWA_GRID = 2,       /* a grid that the kernel cannot have */
    TAWA_TENSOR_MAP = 3, /* a tensor that TMA cannot take */
    TAWA_DEMAND = 4,     /* the kernel would not end, or not as its text says */
    TAWA_GUARD = 5,      /* a condition of the kernel does not hold, and no other kernel is there */
    TAWA_DRIVER = 6      /* the driver refused; `driver` says why */
} tawa_code;

typedef struct {
    tawa_code code;
    CUresult driver;
    char text[512];
} tawa_error;

/* A tensor in the GPU's memory: extents and strides in elements, slowest dimension first. */
typedef struct {
    CUdeviceptr address;
    int64_t extents[5];
    int64_t strides[5];
} tawa_tensor;

/* A kernel on the device whose context was current when it was loaded. */
typedef struct {
    CUlibrary library;
    CUkernel kernel;
    CUdevice device;
    int64_t resident; /* blocks of a persistent kernel that run at once */
} tawa_loaded;

/* The counters of a kernel that asks for its programs one by one: which stream uses which. */
typedef struct {
    CUstream streams[4096];
    int32_t used;
} tawa_counters;

#endif
