// CUTLASS's implicit GEMM of Hopper (TMA's im2col mode, wgmma) behind one C function: f16 or bf16
// convolutions of NHWC images with filters (Co, Fh, Fw, C), float32 sums, NHWC output.
//
// CUTLASS has one schedule for convolutions here: a loading warp and one warpgroup that multiplies,
// a tile for each block (its dispatch policy refuses the cooperative and ping-pong ones, "not
// supported for conv yet"). One warpgroup holds 192 columns of 128 rows, not 256.
#include <cstdint>
#include <cuda_runtime.h>

#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/kernel_hardware_info.hpp"

#include "cutlass/conv/collective/collective_builder.hpp"
#include "cutlass/conv/device/conv_universal_adapter.hpp"
#include "cutlass/conv/kernel/conv_universal.hpp"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/numeric_types.h"

using namespace cute;

struct Geometry {
    int n, h, w, c, co, fh, fw, stride, padding, dilation;
};

template <class Element, class Tile, class Cluster>
struct Forward {
    using Layout = cutlass::layout::TensorNHWC;
    static constexpr int Aligned = 16 / sizeof(Element);
    using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
        cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
        cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Layout, Aligned, Element,
        Layout, Aligned, cutlass::epilogue::TmaWarpSpecialized>::CollectiveOp;
    using Mainloop = typename cutlass::conv::collective::CollectiveBuilder<
        cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, cutlass::conv::Operator::kFprop, Element,
        Layout, Aligned, Element, Layout, Aligned, float, Tile, Cluster,
        cutlass::conv::collective::StageCountAutoCarveout<
            static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
        cutlass::conv::KernelImplicitTmaWarpSpecializedSm90>::CollectiveOp;
    using Shape = cutlass::conv::ConvProblemShape<cutlass::conv::Operator::kFprop, 2>;
    using Kernel = cutlass::conv::kernel::ConvUniversal<Shape, Mainloop, Epilogue>;
    using Convolution = cutlass::conv::device::ConvUniversalAdapter<Kernel>;

    // A launch in two steps, as CUTLASS has them: `prepare` encodes tensor maps and returns what
    // `launch` takes, or nothing where CUTLASS refuses the geometry.
    static void *prepare(void const *x, void const *w, void *y, Geometry const &g) {
        Shape shape(cutlass::conv::Mode::kCrossCorrelation, {g.n, g.h, g.w, g.c},
                    {g.co, g.fh, g.fw, g.c}, {g.padding, g.padding}, {g.padding, g.padding},
                    {g.stride, g.stride}, {g.dilation, g.dilation}, 1);
        typename Kernel::StrideD strides{};
        for_each(make_seq<rank<0>(typename Kernel::StrideD{})>{}, [&](auto i) {
            get<0, i>(strides) = shape.stride_C[Shape::RankT - 2 - i];
        });
        cutlass::KernelHardwareInfo device;
        cudaGetDevice(&device.device_id);
        device.sm_count =
            cutlass::KernelHardwareInfo::query_device_multiprocessor_count(device.device_id);
        typename Kernel::EpilogueArguments epilogue{
            {}, nullptr, {}, static_cast<Element *>(y), strides};
        epilogue.thread.alpha = 1.f, epilogue.thread.beta = 0.f;
        typename Convolution::Arguments arguments{
            shape,
            {static_cast<Element const *>(x), static_cast<Element const *>(w)},
            epilogue,
            device,
            {}};
        if (Convolution::can_implement(arguments) != cutlass::Status::kSuccess) { return nullptr; }
        auto *made = new Convolution;
        if (made->initialize(arguments) != cutlass::Status::kSuccess) {
            delete made;
            return nullptr;
        }
        return made;
    }

    static int launch(void *made, cudaStream_t stream) {
        return int(static_cast<Convolution *>(made)->run(stream));
    }
};

struct Choice {
    char const *name;
    void *(*prepare)(void const *, void const *, void *, Geometry const &);
    int (*launch)(void *, cudaStream_t);
};

template <int M, int N, int K, int ClusterM, int ClusterN>
constexpr Choice choice(char const *name) {
    using Kind = Forward<ELEMENT, Shape<Int<M>, Int<N>, Shape<Int<K>>>,
                         Shape<Int<ClusterM>, Int<ClusterN>, _1>>;
    return {name, Kind::prepare, Kind::launch};
}

static Choice const CHOICES[] = {
    choice<128, 128, 64, 1, 1>("128x128x64"),
    choice<128, 128, 64, 2, 1>("128x128x64, clusters of 2x1"),
    choice<64, 256, 64, 1, 1>("64x256x64"),
    choice<64, 256, 64, 2, 1>("64x256x64, clusters of 2x1"),
    choice<128, 192, 64, 1, 1>("128x192x64"),
    choice<64, 128, 64, 1, 1>("64x128x64"),
    choice<128, 64, 64, 1, 1>("128x64x64"),
    choice<256, 64, 64, 1, 1>("256x64x64"),
};

extern "C" char const *cutlass_conv_name(int which) {
    return which < int(sizeof(CHOICES) / sizeof(CHOICES[0])) ? CHOICES[which].name : nullptr;
}
extern "C" void *cutlass_conv_prepare(int which, void const *x, void const *w, void *y,
                                      Geometry const *geometry) {
    return CHOICES[which].prepare(x, w, y, *geometry);
}
extern "C" int cutlass_conv_launch(int which, void *made, cudaStream_t stream) {
    return CHOICES[which].launch(made, stream);
}
