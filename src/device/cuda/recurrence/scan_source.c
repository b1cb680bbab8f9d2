/* How scans are divided into tiles, and their kernels as CUDA source. */
#include "device/cuda/codegen/source.h"
#include "device/cuda/recurrence/scan.h"
#include "device/cuda/recurrence/tuning.h"

extern const char rcvi_map_element_text[], rcvi_scan_linear_text[], rcvi_scan_waves_text[];
extern const char rcvi_scan_text[], rcvi_scan_serial_text[], rcvi_scan_chained_text[], rcvi_scan_three_text[],
    rcvi_scan_newton_text[], rcvi_scan_sum_text[];

enum {
    WAVE_CHANNELS = 32,       /* of a chain in waves: one for every lane of a warp */
    WAVE_SHARED = 227 << 10,  /* bytes */
    MOST_WAVE_STEPS = 1 << 30 /* counted in 32 bits, past the end too */
};

static int64_t ceiling(int64_t a, int64_t b) { return a / b + (a % b != 0); }

static int lanes_for(int64_t vectors, int most) {
    int lanes = 1;
    while (lanes < most && lanes < vectors) lanes *= 2;
    return lanes;
}

static rcvi_scan_form fastest(bool is_double, int64_t steps, int64_t vectors, int processors) {
    bool many = vectors >= (int64_t)processors * RCVI_TUNED_SCAN_MANY_VECTORS;
    if (many || steps <= RCVI_TUNED_SCAN_STEPS) return RCVI_SCAN_CHANNELS;
    return is_double ? RCVI_SCAN_THREE : RCVI_SCAN_CHAINED;
}

/* ---- waves ---- */

static const rcvi_scan_pieces forward_pieces = RCVI_TUNED_WAVES_FORWARD, backward_pieces = RCVI_TUNED_WAVES_BACKWARD;

rcvi_scan_pieces rcvi_scan_find_pieces(const rcvi_scan_cut *cut, bool backward) {
    rcvi_scan_pieces pieces = backward ? backward_pieces : forward_pieces;
    if (cut->form != RCVI_SCAN_WAVES) return (rcvi_scan_pieces){0};
    pieces.bytes = (size_t)((2 * pieces.early + pieces.late) * pieces.steps * WAVE_CHANNELS) * sizeof(float);
    return pieces;
}

bool rcvi_scan_has_waves(int major, size_t shared_bytes) { return major >= 9 && shared_bytes >= WAVE_SHARED; }

static int square_root_above(int n) {
    int root = 1;
    while (root * root < n) root++;
    return root;
}

static bool cut_waves(int64_t steps, int64_t channels, int bytes, int processors, rcvi_scan_cut *cut) {
    int64_t chains = ceiling(channels, WAVE_CHANNELS);
    if (bytes != 4 || cut->vector != 4 || channels < WAVE_CHANNELS || chains > processors || steps > MOST_WAVE_STEPS)
        return false;
    cut->form = RCVI_SCAN_WAVES;
    cut->lanes = WAVE_CHANNELS / cut->vector;
    cut->steps = RCVI_TUNED_SCAN_ELEMENTS / cut->vector;
    cut->blocks = 1;
    cut->chains = chains;
    cut->tiles = ceiling(steps, (int64_t)(cut->threads / cut->lanes) * cut->steps);
    cut->members = processors / (int)chains;
    if (cut->members > cut->tiles) cut->members = (int)cut->tiles;
    cut->group = cut->members > RCVI_TUNED_WAVES_LOOK ? square_root_above(cut->members) : 1;
    return true;
}

bool rcvi_scan_waves_pay(const rcvi_scan_cut *cut, int processors) {
    return cut->form == RCVI_SCAN_WAVES &&
           cut->chains * cut->members * 4 >= (int64_t)processors * RCVI_TUNED_WAVES_BUSY_PART;
}

/* ---- how a scan is divided ---- */

rcvi_scan_cut rcvi_scan_find_cut(rcvi_scan_form form, bool is_double, int64_t steps, int64_t channels, int64_t row,
                                 int bytes, int processors) {
    rcvi_scan_cut cut = {
        .vector = bytes == 8 ? 2 : 4, .threads = RCVI_TUNED_SCAN_THREADS, .blocks = RCVI_TUNED_SCAN_BLOCKS};
    while (row % cut.vector) cut.vector /= 2;
    if (form == RCVI_SCAN_SERIAL) cut.vector = 1;
    if (form == RCVI_SCAN_WAVES) {
        if (cut_waves(steps, channels, bytes, processors, &cut)) return cut;
        form = RCVI_SCAN_FORMS;
    }
    int64_t vectors = channels / cut.vector;
    cut.form = form == RCVI_SCAN_FORMS ? fastest(is_double, steps, vectors, processors) : form;
    cut.steps = RCVI_TUNED_SCAN_ELEMENTS / cut.vector / (is_double ? 2 : 1);
    if (cut.steps > RCVI_TUNED_SCAN_STEPS) cut.steps = RCVI_TUNED_SCAN_STEPS;
    cut.lanes = lanes_for(vectors, RCVI_TUNED_SCAN_LANES);
    if (cut.form == RCVI_SCAN_CHAINED) {
        cut.many = ceiling(vectors, cut.lanes) >= processors / RCVI_TUNED_SCAN_MANY_CHAINS;
        cut.window = cut.many ? 0 : RCVI_TUNED_SCAN_WINDOW;
        if (!cut.many) cut.lanes = lanes_for(vectors, bytes == 2 ? RCVI_TUNED_SCAN_LANES : RCVI_TUNED_SCAN_LANES_FEW);
        if (ceiling(vectors, cut.lanes) <= RCVI_TUNED_SCAN_FEWEST_CHAINS) {
            cut.threads = RCVI_TUNED_SCAN_FEWEST_THREADS;
            cut.blocks = 1;
            cut.window = RCVI_TUNED_SCAN_FEWEST_WINDOW / (cut.lanes * cut.vector > 32 ? 2 : 1);
        }
    }
    if (cut.form == RCVI_SCAN_SERIAL || cut.form == RCVI_SCAN_CHANNELS) {
        cut.lanes = 32;
        cut.threads = RCVI_TUNED_SERIAL_THREADS;
        cut.steps = cut.form == RCVI_SCAN_SERIAL ? 1 : cut.steps / 2 > 0 ? cut.steps / 2 : 1;
    }
    cut.chains = ceiling(vectors, cut.lanes);
    cut.tiles = ceiling(steps, (int64_t)(cut.threads / cut.lanes) * cut.steps);
    return cut;
}

enum { WORD_BYTES = 16 };

size_t rcvi_scan_scratch(const rcvi_scan_cut *cut, size_t real_bytes) {
    size_t channels = (size_t)cut->chains * (size_t)(cut->vector * cut->lanes), tiles = (size_t)cut->tiles;
    if (cut->form == RCVI_SCAN_CHAINED) return RCVI_SCAN_HEAD + channels * tiles * WORD_BYTES;
    if (cut->form == RCVI_SCAN_WAVES) {
        size_t groups = (size_t)ceiling(cut->members, cut->group);
        return RCVI_SCAN_HEAD + RCVI_TUNED_WAVES_SLOTS * channels * (2 * (size_t)cut->members + groups) * WORD_BYTES;
    }
    return cut->form == RCVI_SCAN_THREE ? channels * tiles * 4 * real_bytes : 0;
}

static const char *const form_names[] = {[RCVI_SCAN_SERIAL] = "FORM_SERIAL",
                                         [RCVI_SCAN_CHANNELS] = "FORM_CHANNELS",
                                         [RCVI_SCAN_CHAINED] = "FORM_CHAINED",
                                         [RCVI_SCAN_THREE] = "FORM_THREE",
                                         [RCVI_SCAN_WAVES] = "FORM_WAVES"};

void rcvi_scan_add_kernels(rcvi_text *text) {
    static const char *const texts[] = {rcvi_scan_text,       rcvi_scan_serial_text, rcvi_scan_chained_text,
                                        rcvi_scan_three_text, rcvi_scan_newton_text, rcvi_scan_sum_text};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) rcvi_text_add(text, "%s", texts[i]);
}

rcv_status rcvi_scan_source(rcv_context *context, const rcvi_scan_shape *shape, char **text) {
    const rcvi_scan_cut *cut = &shape->cut;
    const rcvi_scan_pieces pieces = rcvi_scan_find_pieces(cut, shape->backward);
    bool is_double = shape->data == RCVI_F64;
    rcvi_text out;
    rcvi_text_init(&out, context);
    rcvi_text_add(
        &out,
        "#define REAL %s\n#define REAL_IS_DOUBLE %d\n#define WORDS 1\n#define VECTOR %d\n#define LANES %d\n"
        "#define CHANNELS (VECTOR * LANES)\n#define STEPS %d\n#define THREADS %d\n#define WINDOW %d\n"
        "#define MANY %d\n#define BLOCKS %d\n#define FETCH STEPS\n#define BATCH (STEPS %% 4 ? 1 : 4)\n#define %s 1\n"
        "#define FORM_SUM %d\n",
        is_double ? "double" : "float", is_double, cut->vector, cut->lanes, cut->steps, cut->threads, cut->window,
        cut->many, cut->blocks, form_names[cut->form], shape->backward && shape->resets);
    rcvi_text_add(&out,
                  "#define DATA %s\n#define BACKWARD %d\n#define REVERSE %d\n#define DOWN %d\n#define LENGTHS %d\n"
                  "#define RESETS %d\n#define STREAMED %d\n#define STARTS_EARLY 1\n",
                  rcvi_source_types[shape->data], shape->backward, shape->reverse, shape->reverse != shape->backward,
                  shape->lengths, shape->resets, shape->streamed);
    rcvi_text_add(&out,
                  "#define PIECES %d\n#define LATE_PIECES %d\n#define PIECE_WARPS %d\n#define AHEAD %d\n"
                  "#define SLOTS %d\n#define LOOK %d\n#define HELPERS %d\n",
                  pieces.early, pieces.late, pieces.warps, RCVI_TUNED_WAVES_AHEAD, RCVI_TUNED_WAVES_SLOTS,
                  RCVI_TUNED_WAVES_LOOK, RCVI_WAVES_HELPERS);
    rcvi_text_add(&out, "%s%s", rcvi_map_element_text, rcvi_scan_linear_text);
    rcvi_scan_add_kernels(&out);
    if (cut->form == RCVI_SCAN_WAVES) rcvi_text_add(&out, "%s", rcvi_scan_waves_text);
    return rcvi_text_take(&out, text);
}
