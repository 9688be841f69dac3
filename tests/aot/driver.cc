// A stand-in for the CUDA driver: memory of the host, and a log with a line for each call that says
// what a launcher asked for.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda.h"

static int kernels = 0, maps = 0, device = 0;

static char log[1 << 16];
static size_t logged = 0;
static int sizes[64], major = 9;

static void note(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    logged += (size_t)std::vsnprintf(log + logged, sizeof log - logged, format, values);
    va_end(values);
    if (logged >= sizeof log) std::abort();
}

extern "C" {

// Forget what was noted; the parameters of the next launch have these sizes in bytes, up to a 0.
void stub_reset(const int *given)
{
    logged = 0, maps = 0, log[0] = 0;
    int count = 0;
    while ((sizes[count] = given[count])) ++count;
}
const char *stub_log() { return log; }
void stub_set(int current, int capability) { device = current, major = capability; }

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult, const char **text) { return *text = "CUDA_ERROR", CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult, const char **text) { return *text = "an error", CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *found, int ordinal) { return *found = ordinal, CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice which)
{
    return *context = (CUcontext)(intptr_t)(which + 1), CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext context)
{
    device = (int)(intptr_t)context - 1;
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *found) { return *found = device, CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice)
{
    *value = which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 132
             : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? major : 0;
    return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes)
{
    void *made = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    note("alloc %llu %zu\n", (unsigned long long)(uintptr_t)made, bytes);
    return *address = (CUdeviceptr)(uintptr_t)made, CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr address) { return std::free((void *)address), CUDA_SUCCESS; }
CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes)
{
    return std::memcpy((void *)to, from, bytes), CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes)
{
    return std::memcpy(to, (const void *)from, bytes), CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    // In the tests, streams from 1000 on record.
    *status = (uintptr_t)stream >= 1000 ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                        : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}
CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *, void **, unsigned,
                           CUlibraryOption *, void **, unsigned)
{
    note("library %d\n", std::memcmp(code, "\177ELF", 4) == 0);
    *library = (CUlibrary)(intptr_t)++kernels;
    return CUDA_SUCCESS;
}
CUresult cuLibraryUnload(CUlibrary) { return CUDA_SUCCESS; }
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    note("kernel %s\n", name);
    *kernel = (CUkernel)library;
    return CUDA_SUCCESS;
}
CUresult cuKernelSetAttribute(CUfunction_attribute which, int value, CUkernel kernel, CUdevice)
{
    note("attribute %d %d %d\n", (int)(intptr_t)kernel, (int)which, value);
    return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction, const CUlaunchConfig *config)
{
    return *clusters = 132 / (int)config->gridDimX, CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(
    CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
    const cuuint64_t *extents, const cuuint64_t *strides, const cuuint32_t *box,
    const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    if ((uintptr_t)map % 64) return CUDA_ERROR_INVALID_VALUE;
    note("map %d %u %llu", (int)type, rank, (unsigned long long)(uintptr_t)address);
    for (unsigned axis = 0; axis < rank; ++axis)
        note(" %llu", (unsigned long long)extents[axis]);
    for (unsigned axis = 0; axis + 1 < rank; ++axis)
        note(" %llu", (unsigned long long)strides[axis]);
    for (unsigned axis = 0; axis < rank; ++axis)
        note(" %u %u", box[axis], steps[axis]);
    note(" %d %d %d %d\n", (int)interleave, (int)swizzle, (int)promotion, (int)fill);
    std::memset(map, ++maps, sizeof *map);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction, void **parameters,
                          void **)
{
    note("launch %u %u %u %u %u %u %u %llu", config->gridDimX, config->gridDimY,
         config->gridDimZ, config->blockDimX, config->blockDimY, config->blockDimZ,
         config->sharedMemBytes, (unsigned long long)(uintptr_t)config->hStream);
    for (unsigned place = 0; place < config->numAttrs; ++place) {
        const CUlaunchAttribute &attribute = config->attrs[place];
        note(" %d:%u", (int)attribute.id, attribute.value.clusterDim.x);
    }
    note(" |");
    for (int index = 0; sizes[index]; ++index) {
        note(" ");
        for (int place = 0; place < sizes[index]; ++place)
            note("%02x", ((const unsigned char *)parameters[index])[place]);
    }
    note("\n");
    return CUDA_SUCCESS;
}

}  // extern "C"
