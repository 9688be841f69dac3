/* Functions of the launchers that `tawa build` writes; programs include the kernel's own header. */
#ifndef TAWA_SUPPORT_H
#define TAWA_SUPPORT_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tawa.h"

typedef struct {
    const char *name;
    const char *entry;
    const void *cubin;
    uint32_t threads, shared, cluster, blocks;
    int carveout; /* percent of the memory of a multiprocessor, 0: the driver's choice */
    int persistent, early;
} tawa_shape;

typedef struct {
    const char *name;
    CUtensorMapDataType type;
    CUtensorMapSwizzle swizzle;
    CUtensorMapFloatOOBfill fill;
    int rank, itemsize, row;
    uint32_t box[5]; /* slowest dimension first */
} tawa_map_shape;

/* ---- errors ---- */

static inline tawa_code tawa_fail(tawa_error *error, tawa_code code, const char *format, ...)
{
    if (error) {
        va_list values;
        va_start(values, format);
        error->code = code;
        error->driver = CUDA_SUCCESS;
        vsnprintf(error->text, sizeof error->text, format, values);
        va_end(values);
    }
    return code;
}

static inline tawa_code tawa_refused(
    tawa_error *error, const char *kernel, const char *call, CUresult result)
{
    const char *name = 0, *text = 0;
    cuGetErrorName(result, &name);
    cuGetErrorString(result, &text);
    tawa_fail(error, TAWA_DRIVER, "%s: %s failed: %s (%d): %s", kernel, call,
              name ? name : "unknown error", (int)result, text ? text : "");
    if (error) error->driver = result;
    return TAWA_DRIVER;
}

/* ---- numbers as Python has them; *bad |= 1 where one has no value, 2 where it leaves 64 bits ---- */

static inline int64_t tawa_wide(uint64_t a, int *bad)
{
    if (a > (uint64_t)INT64_MAX) *bad |= 2;
    return (int64_t)(a & (uint64_t)INT64_MAX);
}

static inline int64_t tawa_add(int64_t a, int64_t b, int *bad)
{
    if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b) return *bad |= 2, 0;
    return a + b;
}

static inline int64_t tawa_sub(int64_t a, int64_t b, int *bad)
{
    if (b > 0 ? a < INT64_MIN + b : a > INT64_MAX + b) return *bad |= 2, 0;
    return a - b;
}

static inline int64_t tawa_mul(int64_t a, int64_t b, int *bad)
{
    if (a == 0 || b == 0) return 0;
    if (a == -1 ? b == INT64_MIN : b == -1 ? a == INT64_MIN
        : a > 0 ? (b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a)
                : (b > 0 ? a < INT64_MIN / b : b < INT64_MAX / a))
        return *bad |= 2, 0;
    return a * b;
}

/* Rounds down. */
static inline int64_t tawa_floordiv(int64_t a, int64_t b, int *bad)
{
    if (b == 0) return *bad |= 1, 0;
    if (a == INT64_MIN && b == -1) return *bad |= 2, 0;
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* Has the sign of b. */
static inline int64_t tawa_mod(int64_t a, int64_t b, int *bad)
{
    if (b == 0) return *bad |= 1, 0;
    if (b == -1) return 0;
    int64_t left = a % b;
    return left != 0 && (left < 0) != (b < 0) ? left + b : left;
}

/* The kernel's division, towards zero. */
static inline int64_t tawa_divide(int64_t a, int64_t b, int *bad)
{
    if (b == 0) return *bad |= 1, 0;
    if (a == INT64_MIN && b == -1) return *bad |= 2, 0;
    return a / b;
}

static inline int64_t tawa_remainder(int64_t a, int64_t b, int *bad)
{
    return tawa_sub(a, tawa_mul(tawa_divide(a, b, bad), b, bad), bad);
}

static inline int64_t tawa_shl(int64_t a, int64_t b, int *bad)
{
    if (a == 0 && b >= 0) return 0;
    if (b < 0) return *bad |= 1, 0;
    if (b > 62) return *bad |= 2, 0;
    return tawa_mul(a, (int64_t)1 << b, bad);
}

static inline int64_t tawa_shr(int64_t a, int64_t b, int *bad)
{
    if (b < 0) return *bad |= 1, 0;
    if (b > 63) b = 63;
    return a < 0 ? ~(~a >> b) : a >> b;
}

static inline int64_t tawa_abs(int64_t a, int *bad)
{
    return a < 0 ? tawa_sub(0, a, bad) : a;
}

static inline int64_t tawa_min(int64_t a, int64_t b) { return b < a ? b : a; }
static inline int64_t tawa_max(int64_t a, int64_t b) { return b > a ? b : a; }

/* A number that a type from `low` to `high` holds. */
static inline int64_t tawa_fit(int64_t a, int64_t low, int64_t high, int *bad)
{
    if (a < low || a > high) *bad |= 2;
    return a;
}

/* The trips of a loop that counts upwards. */
static inline int64_t tawa_trips(int64_t start, int64_t end, int64_t step, int *bad)
{
    if (step <= 0) return *bad |= 1, 0;
    return tawa_max(0, tawa_sub(0, tawa_floordiv(tawa_sub(start, end, bad), step, bad), bad));
}

/* The bits of a number in a narrow type, rounded to the nearest, ties to even. Without infinity,
   what is too large is the type's NaN, all ones. */
static inline uint32_t tawa_narrow(double value, int exponent, int fraction, int infinity)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = (uint32_t)(bits >> 63) << (exponent + fraction);
    const uint64_t ones = ((uint64_t)1 << exponent) - 1, most = ones << fraction;
    const uint64_t nan = infinity ? most | (uint64_t)1 << (fraction - 1) : most | ((1u << fraction) - 1);
    const int power = (int)(bits >> 52 & 0x7FF);
    const uint64_t low = bits & (((uint64_t)1 << 52) - 1);
    if (power == 0x7FF) return sign | (uint32_t)(low || !infinity ? nan : most);
    if (power == 0) return sign; /* below half of any smallest number */
    int place = power - 1023 + (1 << (exponent - 1)) - 1, shift = 52 - fraction;
    if (place < 1) {
        shift += 1 - place;
        place = 1;
    }
    if (shift > 53) return sign;
    const uint64_t whole = low | (uint64_t)1 << 52, half = (uint64_t)1 << (shift - 1);
    const uint64_t rest = whole & (2 * half - 1);
    uint64_t kept = whole >> shift;
    kept += rest > half || (rest == half && (kept & 1));
    kept += (uint64_t)(place - 1) << fraction;
    if (infinity && kept > most) kept = most;
    if (!infinity && kept > nan) kept = nan;
    return sign | (uint32_t)kept;
}

/* Rounded to float; a finite number must not become infinite. */
static inline float tawa_float(double value, int *bad)
{
    const double most = 3.4028235677973366e38; /* halfway from the last float to the next power */
    if (value - value == 0 && (value >= most || value <= -most)) return *bad |= 2, 0.0f;
    return (float)value;
}

static inline uint32_t tawa_half(double value, int *bad)
{
    const uint32_t bits = tawa_narrow(value, 5, 10, 1);
    if (value - value == 0 && (bits & 0x7FFF) == 0x7C00) *bad |= 2;
    return bits;
}

/* ---- memory ---- */

/* The bytes a tensor may touch, from spans[0] to before spans[1]. */
static inline void tawa_span(
    const tawa_tensor *tensor, int rank, int itemsize, int64_t span[2], int *bad)
{
    int64_t low = 0, high = 1;
    for (int axis = 0; axis < rank; ++axis) {
        if (tensor->extents[axis] == 0) {
            span[0] = span[1] = (int64_t)tensor->address;
            return;
        }
        const int64_t last = tawa_sub(tensor->extents[axis], 1, bad);
        const int64_t step = tawa_mul(last, tensor->strides[axis], bad);
        if (step < 0) low = tawa_add(low, step, bad);
        else high = tawa_add(high, step, bad);
    }
    span[0] = tawa_add((int64_t)tensor->address, tawa_mul(low, itemsize, bad), bad);
    span[1] = tawa_add((int64_t)tensor->address, tawa_mul(high, itemsize, bad), bad);
}

static inline int tawa_apart(const int64_t a[2], const int64_t b[2])
{
    return !(a[0] < b[1] && b[0] < a[1]);
}

/* ---- tensor maps ---- */

static inline tawa_code tawa_encode(
    CUtensorMap *map, const char *kernel, const tawa_map_shape *shape, CUdeviceptr address,
    const int64_t *extents, const int64_t *strides, tawa_error *error)
{
    const int rank = shape->rank;
    const char *name = shape->name;
    cuuint64_t sizes[5], steps[5] = {0, 0, 0, 0, 0};
    cuuint32_t box[5], ones[5];
    int narrow = 0;
    memset(map, 0, sizeof *map);
    for (int axis = 0; axis < rank; ++axis)
        if (extents[axis] == 0) return TAWA_OK; /* there is nothing to load or store */
    if (address % 16)
        return tawa_fail(error, TAWA_TENSOR_MAP,
                         "%s: %s: TMA needs a base address that is a multiple of 16 bytes, got one"
                         " %d bytes past it", kernel, name, (int)(address % 16));
    for (int axis = 0; axis < rank; ++axis) {
        const int64_t extent = extents[axis], stride = strides[axis];
        const int place = rank - 1 - axis; /* the driver wants the fastest first */
        if (extent < 0 || extent > (int64_t)UINT32_MAX)
            return tawa_fail(error, TAWA_TENSOR_MAP,
                             "%s: %s: TMA takes sizes from 0 up to 2^32 - 1, got %lld along"
                             " dimension %d", kernel, name, (long long)extent, axis);
        sizes[place] = (cuuint64_t)extent;
        box[place] = shape->box[axis];
        ones[place] = 1;
        if (place == 0) {
            if (stride != 1 && extent != 1)
                return tawa_fail(error, TAWA_TENSOR_MAP,
                                 "%s: %s: TMA needs a contiguous last dimension, got a stride of"
                                 " %lld elements", kernel, name, (long long)stride);
        } else if (extent == 1) {
            steps[place - 1] = 16; /* never stepped along: any legal stride */
        } else {
            if (stride < 0 || stride >= ((int64_t)1 << 40) / shape->itemsize)
                return tawa_fail(error, TAWA_TENSOR_MAP,
                                 "%s: %s: TMA takes strides from 0 up to 2^40 - 1 bytes, got %lld"
                                 " elements along dimension %d", kernel, name, (long long)stride,
                                 axis);
            if (stride * shape->itemsize % 16)
                return tawa_fail(error, TAWA_TENSOR_MAP,
                                 "%s: %s: TMA needs strides that are multiples of 16 bytes, got"
                                 " %lld along dimension %d", kernel, name,
                                 (long long)(stride * shape->itemsize), axis);
            steps[place - 1] = (cuuint64_t)(stride * shape->itemsize);
            narrow |= steps[place - 1] % 128 != 0; /* rows that begin inside of lines ask for two */
        }
    }
    narrow |= shape->row >= 256 || sizes[0] * (cuuint64_t)shape->itemsize <= 128;
    const CUresult result = cuTensorMapEncodeTiled(
        map, shape->type, (cuuint32_t)rank, (void *)(uintptr_t)address, sizes, steps, box, ones,
        CU_TENSOR_MAP_INTERLEAVE_NONE, shape->swizzle,
        narrow ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        shape->fill);
    if (result != CUDA_SUCCESS)
        return tawa_refused(error, kernel, "cuTensorMapEncodeTiled", result);
    return TAWA_OK;
}

/* ---- loading and launching ---- */

static inline void tawa_configure(
    CUlaunchConfig *config, CUlaunchAttribute attributes[2], const tawa_shape *shape)
{
    memset(config, 0, sizeof *config);
    memset(attributes, 0, 2 * sizeof *attributes);
    config->blockDimX = shape->threads;
    config->blockDimY = config->blockDimZ = 1;
    config->gridDimX = shape->cluster;
    config->gridDimY = config->gridDimZ = 1;
    config->sharedMemBytes = shape->shared;
    if (shape->cluster > 1) {
        attributes[config->numAttrs].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attributes[config->numAttrs].value.clusterDim.x = shape->cluster;
        attributes[config->numAttrs].value.clusterDim.y = 1;
        attributes[config->numAttrs].value.clusterDim.z = 1;
        ++config->numAttrs;
    }
    config->attrs = attributes;
}

static inline tawa_code tawa_load(tawa_loaded *loaded, const tawa_shape *shape, tawa_error *error)
{
#define TAWA_TRY(call, ...)                                                     \
    do {                                                                        \
        const CUresult result_ = call(__VA_ARGS__);                             \
        if (result_ != CUDA_SUCCESS)                                            \
            return tawa_refused(error, shape->name, #call, result_);            \
    } while (0)
    int major = 0, minor = 0, processors = 0, clusters = 0;
    CUlaunchConfig config;
    CUlaunchAttribute attributes[2];
    TAWA_TRY(cuCtxGetDevice, &loaded->device);
    TAWA_TRY(cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
             loaded->device);
    TAWA_TRY(cuDeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
             loaded->device);
    if (major != 9 || minor != 0)
        return tawa_fail(error, TAWA_ARGUMENT,
                         "%s is built for sm_90a (H100, H200, GH200), and the device has compute"
                         " capability %d.%d", shape->name, major, minor);
    TAWA_TRY(cuLibraryLoadData, &loaded->library, shape->cubin, 0, 0, 0, 0, 0, 0);
    TAWA_TRY(cuLibraryGetKernel, &loaded->kernel, loaded->library, shape->entry);
    TAWA_TRY(cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
             (int)shape->shared, loaded->kernel, loaded->device);
    if (shape->carveout)
        TAWA_TRY(cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                 shape->carveout, loaded->kernel, loaded->device);
    if (shape->cluster == 1) {
        TAWA_TRY(cuDeviceGetAttribute, &processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                 loaded->device);
        loaded->resident = (int64_t)processors * shape->blocks;
        return TAWA_OK;
    }
    tawa_configure(&config, attributes, shape);
    TAWA_TRY(cuOccupancyMaxActiveClusters, &clusters, (CUfunction)loaded->kernel, &config);
#undef TAWA_TRY
    if (clusters == 0)
        return tawa_fail(error, TAWA_DRIVER, "%s: no cluster of %u blocks fits on the device",
                         shape->name, (unsigned)shape->cluster);
    loaded->resident = (int64_t)clusters * shape->cluster;
    return TAWA_OK;
}

/* Refuses what no launch of the kernel can be; *empty: there are no programs. */
static inline tawa_code tawa_check_grid(
    const tawa_shape *shape, const int64_t grid[3], int *empty, tawa_error *error)
{
    static const int64_t limits[3] = {TAWA_PROGRAMS};
    *empty = 0;
    for (int axis = 0; axis < 3; ++axis) {
        if (grid[axis] > limits[axis] && (axis || !shape->persistent))
            return tawa_fail(error, TAWA_GRID, "%s: extent %d of the grid may be 0 to %lld, got %lld",
                             shape->name, axis, (long long)limits[axis], (long long)grid[axis]);
        if (grid[axis] == 0) *empty = 1;
    }
    if (*empty) return TAWA_OK;
    if (!shape->persistent && grid[0] % shape->cluster)
        return tawa_fail(error, TAWA_GRID,
                         "%s: the first extent of the grid is %lld, which is no multiple of its"
                         " cluster of %u blocks", shape->name, (long long)grid[0],
                         (unsigned)shape->cluster);
    if (shape->persistent
        && (grid[0] > TAWA_WALKED || grid[0] * grid[1] > TAWA_WALKED
            || grid[0] * grid[1] * grid[2] > TAWA_WALKED))
        return tawa_fail(error, TAWA_GRID, "%s: a grid of a persistent kernel has up to %lld programs",
                         shape->name, (long long)TAWA_WALKED);
    return TAWA_OK;
}

static inline tawa_code tawa_submit(
    const tawa_shape *shape, const tawa_loaded *loaded, CUstream stream, const int64_t grid[3],
    void **parameters, tawa_error *error)
{
    CUlaunchConfig config;
    CUlaunchAttribute attributes[2];
    CUresult result;
    tawa_configure(&config, attributes, shape);
    if (shape->early) {
        attributes[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[config.numAttrs].value.programmaticStreamSerializationAllowed = 1;
        ++config.numAttrs;
    }
    config.gridDimX = (unsigned)grid[0];
    config.gridDimY = (unsigned)grid[1];
    config.gridDimZ = (unsigned)grid[2];
    if (shape->persistent) {
        const int64_t size = shape->cluster, programs = grid[0] * grid[1] * grid[2];
        config.gridDimX = (unsigned)tawa_min(loaded->resident, (programs + size - 1) / size * size);
        config.gridDimY = config.gridDimZ = 1;
    }
    config.hStream = stream;
    result = cuLaunchKernelEx(&config, (CUfunction)loaded->kernel, parameters, 0);
    return result == CUDA_SUCCESS ? TAWA_OK
                                  : tawa_refused(error, shape->name, "cuLaunchKernelEx", result);
}

/* Refuses a launch in a context of another device than the kernel was loaded for. */
static inline tawa_code tawa_enter(const tawa_loaded *loaded, const char *kernel, tawa_error *error)
{
    CUdevice device = -1;
    const CUresult result = cuCtxGetDevice(&device);
    if (result != CUDA_SUCCESS) return tawa_refused(error, kernel, "cuCtxGetDevice", result);
    if (loaded->kernel && device == loaded->device) return TAWA_OK;
    return tawa_fail(error, TAWA_ARGUMENT,
                     "%s is not loaded for device %d, whose context is current", kernel,
                     (int)device);
}

/* A parameter of a type, at the start of its place. */
#define TAWA_PUT(place, type, given)             \
    do {                                         \
        const type value_ = (type)(given);       \
        memcpy(&(place), &value_, sizeof value_); \
    } while (0)

/* The counter of a launch: launches of one stream share one, each captured launch has its own. */
static inline tawa_code tawa_counter(
    tawa_counters *counters, CUstream stream, const char *kernel, int32_t *number,
    tawa_error *error)
{
    const int32_t most = (int32_t)(sizeof counters->streams / sizeof counters->streams[0]);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (stream == CU_STREAM_PER_THREAD)
        return tawa_fail(error, TAWA_ARGUMENT,
                         "%s has a counter for each stream, and CU_STREAM_PER_THREAD is one handle"
                         " of many: pass a stream of cuStreamCreate", kernel);
    if (stream == CU_STREAM_LEGACY) stream = 0;
    const CUresult result = cuStreamIsCapturing(stream, &status);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        return tawa_refused(error, kernel, "cuStreamIsCapturing", result);
    const int own = result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
    int32_t place = own ? counters->used : 0; /* given out from the last one down */
    while (place < counters->used && counters->streams[place] != stream) ++place;
    if (place == most)
        return tawa_fail(error, TAWA_ARGUMENT,
                         "%s: all %d counters are given out to streams and captured launches: load"
                         " the kernel once more", kernel, (int)most);
    if (place == counters->used) counters->streams[counters->used++] = own ? CU_STREAM_PER_THREAD : stream;
    *number = most - 1 - place;
    return TAWA_OK;
}

#endif
