/* Launches of scans in waves: tensor maps of the arrays, and a cooperative launch. */
#include "device/cuda/cuda.h"
#include "device/cuda/recurrence/scan.h"
#include "device/cuda/recurrence/tuning.h"

#include <cudaTypedefs.h>

/* As struct Maps of scan_waves.cuh. */
typedef struct {
    CUtensorMap early[2], late;
} maps;

/* The driver's encoder of tensor maps; NULL, with a sentence, where there is none. */
static PFN_cuTensorMapEncodeTiled_v12000 find_encoder(void) {
    void *found = NULL;
    enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const int since = 12000;
    cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, since, cudaEnableDefault, &result);
    if (rcvi_cuda_check(error, "looking for cuTensorMapEncodeTiled") != RCV_OK) return NULL;
    if (!found) rcvi_fail(RCV_UNSUPPORTED, "the driver has no cuTensorMapEncodeTiled: it is older than CUDA 12");
    return (PFN_cuTensorMapEncodeTiled_v12000)(uintptr_t)found;
}

static rcv_status describe(PFN_cuTensorMapEncodeTiled_v12000 encode, const rcvi_scan_wave_pass *pass, const void *array,
                           int steps, CUtensorMap *map) {
    if (!array) return RCV_OK;
    const cuuint64_t sizes[2] = {(cuuint64_t)pass->channels, (cuuint64_t)pass->steps};
    const cuuint64_t strides[1] = {sizes[0] * sizeof(float)};
    const cuuint32_t box[2] = {(cuuint32_t)(pass->cut->lanes * pass->cut->vector), (cuuint32_t)steps},
                     every[2] = {1, 1};
    CUresult result = encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void *)(uintptr_t)array, sizes, strides, box,
                             every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        return rcvi_fail(RCV_UNSUPPORTED, "encoding the tensor map of a scan's array failed: error %d", (int)result);
    return RCV_OK;
}

/* Pieces in flight: the fewer blocks there are, the more each has. */
static int find_depth(const rcvi_scan_wave_pass *pass, rcvi_scan_pieces pieces) {
    const int64_t blocks = pass->cut->chains * pass->cut->members;
    const int waiting = RCVI_TUNED_WAVES_AHEAD * pass->cut->threads / 32 /
                        pieces.warps; /* pieces of tiles whose effects are published and whose steps are not computed */
    const int flight = pass->cut->members > RCVI_TUNED_WAVES_CROWD ? pieces.crowded : pieces.flight;
    const int64_t depth = flight * (int64_t)pass->processors / blocks;
    return depth < pieces.early - waiting ? (int)depth : pieces.early - waiting;
}

rcv_status rcvi_scan_launch_waves(cudaKernel_t kernel, rcvi_scan_wave_pass *pass, cudaStream_t stream) {
    const rcvi_scan_cut *cut = pass->cut;
    const rcvi_scan_pieces pieces = rcvi_scan_find_pieces(cut, pass->backward);
    const PFN_cuTensorMapEncodeTiled_v12000 encode = find_encoder();
    maps described = {0};
    if (!encode) return RCV_UNSUPPORTED;
    for (int i = 0; i < 2; i++) RCVI_TRY(describe(encode, pass, pass->early[i], pieces.steps, &described.early[i]));
    RCVI_TRY(describe(encode, pass, pass->late, pieces.steps, &described.late));
    int chains = (int)cut->chains, members = cut->members, group = cut->group, depth = find_depth(pass, pieces);
    int64_t steps = pass->steps, tiles = cut->tiles;
    char *head = pass->scratch, *words = pass->scratch + RCVI_SCAN_HEAD;
    void *values[] = {pass->arguments, &described, &steps, &chains, &tiles, &members, &group, &depth, &head, &words};
    return rcvi_cuda_launch_cooperative(kernel, cut->chains * members, cut->threads + RCVI_WAVES_HELPERS, pieces.bytes,
                                        values, stream, "launching a scan in waves");
}
