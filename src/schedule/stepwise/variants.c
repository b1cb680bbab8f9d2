/* When combinations of rungs apply to a problem, and which of them are candidates of the planner. */
#include "schedule/stepwise/stepwise.h"

static rcv_status refuse(const char *sentence) { return rcvi_fail(RCV_UNSUPPORTED, "%s", sentence); }

rcv_status rcvi_stepwise_applies(const rcv_net *net, const rcv_plan_options *options, const rcvi_rungs *rungs,
                                 const rcvi_machine *machine) {
    RCVI_TRY(rcvi_rungs_check_device(rungs, machine->gpu));
    RCVI_TRY(rcvi_rungs_check_combination(rungs));
    if (options->dtype == RCV_BFLOAT16 && !rungs->pack && !machine->gpu)
        return refuse("products in bfloat16 need packed weights: add pack");
    if (options->dtype == RCV_BFLOAT16 && rungs->blas) return refuse("OpenBLAS has no products in bfloat16 here");
    if (rungs->blas && machine->no_blas) return refuse(machine->no_blas);
    if (rungs->recompute && !options->training) return refuse("recompute saves what training keeps; this is inference");
    if (rungs->recompute && rungs->combine && rungs->steps != 1 && rungs->steps != rungs->recompute) {
        return rcvi_fail(RCV_UNSUPPORTED,
                         "combine and recompute cut time into the same chunks: give combine steps=%lld",
                         (long long)rungs->recompute);
    }
    if (rungs->forward && !options->training)
        return refuse("forward of combine is for the forward pass of training; this is inference: give steps alone");
    if (rungs->forward && rungs->recompute)
        return refuse("recompute cuts the forward pass into its own chunks: leave forward out of combine");
    if (rungs->split_rows && options->batch < rungs->threads) {
        return rcvi_fail(RCV_UNSUPPORTED, "%lld threads cannot share out a batch of %lld: split columns",
                         (long long)rungs->threads, (long long)options->batch);
    }
    return rungs->wavefront ? rcvi_wavefront_applies(net, options, rungs) : RCV_OK;
}

/* In training also with streams, for the steps around the loops. Where each layer's loop is one kernel, a layer's gradients then overlap
 * the loop of the next layer, for which one more stream is enough. */
static void offer_streams(rcvi_rungs rungs, const rcv_plan_options *options,
                          void (*offer)(void *user, const rcvi_rungs *rungs), void *user) {
    offer(user, &rungs);
    rungs.streams = rungs.persistent && !rungs.wavefront ? 2 : 4;
    if (options->training) offer(user, &rungs);
}

/* Passes that differ. Forwards input products are in the kernel, of all layers where there are several. Backwards layers go one after the
 * other, with products of the whole sequence outside of the loops: a backward step has twice the matrices of a forward step, which often do
 * not fit on the chip, or only with their depth folded. */
static void offer_mixed(rcvi_rungs rungs, const rcv_plan_options *options,
                        void (*offer)(void *user, const rcvi_rungs *rungs), void *user) {
    rungs.forward_wave = rungs.wavefront;
    rungs.steps = 0;
    rungs.forward = 1;
    if (options->training) offer_streams(rungs, options, offer, user);
}

/* Persistent kernels: on a GPU a time loop may be one kernel. Of all layers in a wavefront; of each layer, with input products computed before
 * the loop; or, with one layer, with input products in it. In training the passes may differ; in float32 and tfloat32 both are a wavefront
 * in exhaustive searches only: its backward kernel takes 9 s to compile and was slower than others in all recorded measurements. Where a layer is
 * small and input products are computed before, clusters of processors may hold a layer's weights each. */
static void persistent_variants(const rcv_net *net, const rcv_plan_options *options,
                                void (*offer)(void *user, const rcvi_rungs *rungs), void *user) {
    const int64_t few =
        8; /* sequences: products of unsplit float32, by multiply-adds, take no longer than those of split operands */
    const int64_t small = 1024; /* features; the device checks whether a layer fits into a cluster */
    bool layers = net->options.layers > 1 && net->directions == 1;
    if (options->dtype == RCV_FLOAT64) return;
    for (int all = 0; all < 2; all++) {
        rcvi_rungs rungs = {.combine = true,
                            .steps = all ? 0 : 1,
                            .fuse = true,
                            .pack = true,
                            .wavefront = layers && !all,
                            .merge = true, /* for the steps around the loops */
                            .persistent = true,
                            .graph = true,
                            .threads = 1};
        bool slow = options->training && rungs.wavefront && !rcvi_dtype_is_narrow(options->dtype) &&
                    options->effort != RCV_EXHAUSTIVE;
        if (!slow) offer_streams(rungs, options, offer, user);
        if (!all) offer_mixed(rungs, options, offer, user);
        if (slow) continue;
        rungs.choice = 1; /* of the products outside of the loops */
        if (options->training && !all) offer(user, &rungs);
        rungs.choice = 0;
        rungs.parts = 1;
        if (options->dtype == RCV_FLOAT32 && options->batch <= few) offer(user, &rungs);
        rungs.cluster = all && net->options.hidden <= small;
        if (!rungs.cluster) continue;
        if (options->dtype == RCV_FLOAT32 && options->batch <= 4 * few)
            offer_streams(rungs, options, offer, user); /* each cluster has a share of the batch */
        rungs.parts = 0;
        offer_streams(rungs, options, offer, user);
    }
}

/* Scans: elementwise recurrences as scans; recurrences with products, where a cell has both, as persistent kernels. Long sequences that would
 * not fit in memory are recomputed from checkpoints. */
static void scan_variants(const rcv_net *net, const rcv_plan_options *options,
                          void (*offer)(void *user, const rcvi_rungs *rungs), void *user) {
    const int64_t chunks[] = {1 << 16, 1 << 13};
    bool scans = false, bends = false, multiplies = false;
    for (int64_t i = 0; i < net->options.layers; i++) {
        scans |= net->layers[i].has_elementwise;
        bends |= net->layers[i].has_diagonal;
        multiplies |= net->layers[i].has_dense;
    }
    rcvi_rungs rungs = {.combine = true, .fuse = true, .pack = true, .scan = true, .graph = true, .threads = 1};
    if (!scans) return;
    offer_streams(rungs, options, offer, user);
    rungs.newton = bends;
    if (bends) offer_streams(rungs, options, offer, user);
    rungs.newton = false;
    rungs.choice = 1;
    if (options->training) offer(user, &rungs);
    rungs.choice = 0;
    rungs.persistent = multiplies;
    if (multiplies && options->dtype != RCV_FLOAT64) offer(user, &rungs);
    rungs.persistent = false;
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
        rungs.steps = rungs.recompute = chunks[c];
        if (options->training && chunks[c] < options->steps) offer(user, &rungs);
    }
}

/* On a GPU launches are expensive: layers or directions are merged into one launch, products and their pointwise operations into one map;
 * or, where products are large, the library computes them, on streams. */
static void gpu_variants(const rcv_net *net, const rcv_plan_options *options,
                         void (*offer)(void *user, const rcvi_rungs *rungs), void *user) {
    const int64_t chunks[] = {1, 16, 0};
    bool layers = net->options.layers > 1 && net->directions == 1;
    persistent_variants(net, options, offer, user);
    scan_variants(net, options, offer, user);
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
        if (chunks[c] > 1 && (chunks[c] >= options->steps || !layers)) continue;
        rcvi_rungs rungs = {
            .combine = true, .steps = chunks[c], .fuse = true, .pack = true, .graph = true, .threads = 1};
        rungs.wavefront = layers && chunks[c];
        rungs.merge = rungs.wavefront || net->directions > 1;
        offer(user, &rungs);
        rungs.graph = false; /* then the engine skips rows past their length */
        if (options->lengths && !options->device_lengths) offer(user, &rungs);
        rungs.graph = true;
        rungs.streams = 4; /* for the steps around the time loops */
        if (rungs.merge && options->training && chunks[c] == 1) offer(user, &rungs);
        rungs.streams = 0;
        bool first = c == 0 || (!layers && chunks[c] == 0);
        for (rungs.choice = 1; options->training && first && rungs.choice <= 2; rungs.choice++) offer(user, &rungs);
        rungs.choice = 0;
        rungs.forward = 1;
        if (options->training && chunks[c] > 1) offer(user, &rungs);
        rungs.forward = 0;
        rungs.merge = rungs.pack = false;
        rungs.streams = rungs.wavefront || net->directions > 1 ? 4 : 0;
        for (rungs.choice = 0; chunks[c] != 1 && rungs.choice <= 1; rungs.choice++) offer(user, &rungs);
    }
}

/* Products of the whole sequence leave the time loop, and each pass is one graph, unless that would have very many launches. The maps of two
 * directions are one launch, their products run side by side. */
rcvi_rungs rcvi_stepwise_interpreted(const rcv_net *net, const rcv_plan_options *options) {
    const int64_t many = 100000, launches = options->training ? 8 : 4; /* of a step of a layer, about */
    int64_t steps = net->options.layers * net->directions * launches;
    return (rcvi_rungs){.combine = true,
                        .fuse = true,
                        .merge = net->directions > 1,
                        .interpret = true,
                        .streams = net->directions > 1 ? 4 : 0,
                        .graph = options->steps <= many / steps,
                        .threads = 1};
}

/* Where no kernels can be compiled: that plan; without a graph, which can leave out rows past their length; step by step, which takes less
 * memory; layers side by side. */
static void interpreted_variants(const rcv_net *net, const rcv_plan_options *options,
                                 void (*offer)(void *user, const rcvi_rungs *rungs), void *user) {
    bool layers = net->options.layers > 1 && net->directions == 1;
    rcvi_rungs rungs = rcvi_stepwise_interpreted(net, options);
    offer(user, &rungs);
    rungs.choice = 1;
    if (options->training) offer(user, &rungs);
    rungs.choice = 0;
    rungs.graph = !rungs.graph;
    if (options->lengths || rungs.graph) offer(user, &rungs);
    rungs.graph = true;
    rungs.steps = 1;
    offer(user, &rungs);
    rungs.wavefront = rungs.merge = layers;
    rungs.streams = 4;
    if (layers) offer(user, &rungs);
    rungs.steps = 16;
    if (layers && rungs.steps < options->steps) offer(user, &rungs);
}

void rcvi_stepwise_variants(const rcv_net *net, const rcv_plan_options *options, const rcvi_machine *machine,
                            void (*offer)(void *user, const rcvi_rungs *rungs), void *user) {
    if (machine->gpu && machine->no_compiler) {
        interpreted_variants(net, options, offer, user);
        return;
    }
    if (machine->gpu) {
        gpu_variants(net, options, offer, user);
        return;
    }
    const int64_t chunks[] = {1, 4, 8, 16, 32, 0};
    int64_t threads = machine->threads;
    bool parts = net->layers[0].parts > 1;
    for (int64_t n = threads; n >= 1; n = n > 1 ? n / 2 : 0) {
        for (int rows = n > 1; rows >= 0; rows--) {
            for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
                if (chunks[c] > 1 && chunks[c] >= options->steps) continue;
                rcvi_rungs rungs = {.combine = true,
                                    .steps = chunks[c],
                                    .fuse = true,
                                    .pack = true,
                                    .threads = n,
                                    .split_rows = rows && n > 1};
                offer(user, &rungs);
                rungs.scan = true;
                if (parts && chunks[c] != 1) offer(user, &rungs);
                rungs.scan = false;
                rungs.forward = 1;
                if (options->training && chunks[c] != 1) offer(user, &rungs);
                rungs.forward = 0;
                rungs.wavefront = true;
                if (net->options.layers > 1 && n > 1 && !rows && chunks[c]) offer(user, &rungs);
                rungs.wavefront = false;
                rungs.pack = false;
                rungs.transpose = true;
                bool some = chunks[c] == 1 || chunks[c] == 8 || chunks[c] == 0;
                if (some && options->dtype != RCV_BFLOAT16 && options->batch >= machine->grain) offer(user, &rungs);
                rungs.pack = true;
                rungs.transpose = false;
                rungs.blas = true;
                bool whole = options->training && options->dtype != RCV_BFLOAT16 && chunks[c] == 0;
                if (whole) offer(user, &rungs);
                rungs.scan = true;
                if (whole && parts) offer(user, &rungs);
            }
        }
    }
    for (int64_t every = 4; options->training && every < options->steps; every *= 4) {
        offer(user, &(rcvi_rungs){.combine = true,
                                  .steps = every,
                                  .fuse = true,
                                  .pack = true,
                                  .recompute = every,
                                  .threads = threads,
                                  .split_rows = threads > 1 && options->batch >= threads});
    }
}
