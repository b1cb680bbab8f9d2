#include "schedule/timing.h"

rcvi_clock rcvi_clock_new(int64_t steps, int64_t batch, int64_t chunk, int64_t delay, bool backward) {
    int64_t chunks = (steps + chunk - 1) / chunk, sign = backward ? -1 : 1;
    rcvi_clock clock = {.steps = steps,
                        .batch = batch,
                        .chunk = chunk,
                        .step = {.timed = true, .span = 1, .inner = sign},
                        .span = {.timed = true, .span = chunk},
                        .local_base = backward ? chunk - 1 : 0,
                        .local_inner = sign};
    if (chunks > 1) {
        clock.span.base = backward ? (chunks - 1 + delay) * chunk : -delay * chunk;
        clock.span.inner = sign * chunk;
    }
    clock.step.base = clock.span.base + (backward ? chunk - 1 : 0);
    if (chunks > 1 && chunk > 1) clock.step.outer = sign * chunk;
    return clock;
}

static int64_t slot_of(const rcvi_clock *clock, const rcvi_place *place) { return clock->batch * place->row; }

static rcvi_view ring_view(const rcvi_clock *clock, const rcvi_place *place) {
    int64_t slot = slot_of(clock, place);
    return (rcvi_view){.buffer = place->buffer,
                       .offset = 0,
                       .row = place->row,
                       .column = 1,
                       .slot = slot,
                       .wrap = 2,
                       .phase = (int)(place->offset / slot)};
}

rcvi_view rcvi_place_at_step(const rcvi_clock *clock, const rcvi_place *place) {
    int64_t slot = slot_of(clock, place);
    rcvi_view view = {.buffer = place->buffer, .offset = place->offset, .row = place->row, .column = 1};
    switch (place->kind) {
    case RCVI_OVER_TIME:
        view.offset += clock->step.base * slot;
        view.stride = clock->step.inner * slot;
        view.outer = clock->step.outer * slot;
        break;
    case RCVI_OVER_STEPS:
        view.offset += (clock->steps - 1 - clock->step.base) * slot;
        view.stride = -clock->step.inner * slot;
        view.outer = -clock->step.outer * slot;
        break;
    case RCVI_OVER_CHUNK:
        view.offset += clock->local_base * slot;
        view.stride = clock->local_inner * slot;
        break;
    case RCVI_STILL: break;
    case RCVI_RING: return ring_view(clock, place);
    case RCVI_NOWHERE: return rcvi_no_view();
    }
    return view;
}

rcvi_view rcvi_place_over_chunk(const rcvi_clock *clock, const rcvi_place *place) {
    int64_t slot = slot_of(clock, place);
    rcvi_view view = {.buffer = place->buffer, .offset = place->offset, .row = place->row, .column = 1};
    if (place->kind == RCVI_RING) return ring_view(clock, place);
    if (place->kind == RCVI_OVER_TIME) {
        view.offset += clock->span.base * slot;
        view.stride = clock->span.inner * slot;
    }
    return view;
}

rcvi_view rcvi_place_over_all(const rcvi_place *place) {
    return (rcvi_view){.buffer = place->buffer, .offset = place->offset, .row = place->row, .column = 1};
}

rcvi_place rcvi_place_later(const rcvi_clock *clock, rcvi_place place) {
    int64_t slot = slot_of(clock, &place);
    place.offset += place.kind == RCVI_OVER_STEPS ? -slot : slot;
    return place;
}
