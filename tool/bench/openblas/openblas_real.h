/* The arithmetic of the network on OpenBLAS. Included once for each type, with these defined:
 *   REAL, GEMM (a function of OpenBLAS), NAME(name), BITS (an integer as wide), EXPONENT_BIAS, MANTISSA_BITS, ROUNDING
 *   (adding it leaves a whole number), LOWEST and HIGHEST (arguments of exp), LN2_HIGH, LN2_LOW */

static inline REAL NAME(exponential)(REAL x) {
    x = x < LOWEST ? LOWEST : x;
    x = x > HIGHEST ? HIGHEST : x;
    const REAL n = (x * (REAL)1.4426950408889634 + ROUNDING) - ROUNDING;
    const REAL r = x - n * LN2_HIGH - n * LN2_LOW;
    union {
        BITS bits;
        REAL value;
    } power = {.bits = ((BITS)n + EXPONENT_BIAS) << MANTISSA_BITS};
    return NAME(series)(r) * power.value;
}

static inline REAL NAME(sigmoid)(REAL x) { return 1 / (1 + NAME(exponential)(-x)); }
static inline REAL NAME(tangent)(REAL x) { return 1 - 2 / (1 + NAME(exponential)(2 * x)); }

/* One step of `batch` rows. gates: [batch, 4 * hidden] pre-activations, left as activations; c: [batch, hidden];
 * h: rows of `stride` elements. */
CLONES static void NAME(lstm_step)(int64_t batch, int64_t hidden, REAL *gates, const REAL *bias, const REAL *c_before,
                                   REAL *c, REAL *h, int64_t stride) {
    for (int64_t row = 0; row < batch; row++) {
        REAL *restrict i = gates + row * 4 * hidden, *restrict f = i + hidden, *restrict g = f + hidden,
                       *restrict o = g + hidden;
        const REAL *restrict before = c_before + row * hidden;
        REAL *restrict after = c + row * hidden, *restrict out = h + row * stride;
        NO_LOOP_DEPENDENCE
        for (int64_t j = 0; j < hidden; j++) {
            const REAL in = NAME(sigmoid)(i[j] + bias[j]), forget = NAME(sigmoid)(f[j] + bias[hidden + j]);
            const REAL value = NAME(tangent)(g[j] + bias[2 * hidden + j]);
            const REAL gate = NAME(sigmoid)(o[j] + bias[3 * hidden + j]);
            const REAL next = forget * before[j] + in * value;
            i[j] = in;
            f[j] = forget;
            g[j] = value;
            o[j] = gate;
            after[j] = next;
            out[j] = gate * NAME(tangent)(next);
        }
    }
}

/* x: [batch, 3 * hidden] products with the input, u: [batch, 3 * hidden] products with the state. */
CLONES static void NAME(gru_step)(int64_t batch, int64_t hidden, const REAL *x, const REAL *u, const REAL *b,
                                  const REAL *d, const REAL *h_before, int64_t before_stride, REAL *h, int64_t stride) {
    for (int64_t row = 0; row < batch; row++) {
        const REAL *restrict a = x + row * 3 * hidden, *restrict s = u + row * 3 * hidden;
        const REAL *restrict before = h_before + row * before_stride;
        REAL *restrict out = h + row * stride;
        NO_LOOP_DEPENDENCE
        for (int64_t j = 0; j < hidden; j++) {
            const REAL r = NAME(sigmoid)(a[j] + b[j] + s[j] + d[j]);
            const REAL z = NAME(sigmoid)(a[hidden + j] + b[hidden + j] + s[hidden + j] + d[hidden + j]);
            const REAL n =
                NAME(tangent)(a[2 * hidden + j] + b[2 * hidden + j] + r * (s[2 * hidden + j] + d[2 * hidden + j]));
            out[j] = (1 - z) * n + z * before[j];
        }
    }
}

CLONES static void NAME(rnn_step)(int64_t batch, int64_t hidden, const REAL *x, const REAL *bias, bool relu, REAL *h,
                                  int64_t stride) {
    for (int64_t row = 0; row < batch; row++) {
        const REAL *restrict a = x + row * hidden;
        REAL *restrict out = h + row * stride;
        NO_LOOP_DEPENDENCE
        for (int64_t j = 0; j < hidden; j++) {
            const REAL sum = a[j] + bias[j];
            out[j] = relu ? (sum > 0 ? sum : 0) : NAME(tangent)(sum);
        }
    }
}

/* gates: activations, replaced by the gradients of the pre-activations; dh: gradient of h from the next step; dc: read and replaced. */
CLONES static void NAME(lstm_step_back)(int64_t batch, int64_t hidden, REAL *gates, const REAL *c_before, const REAL *c,
                                        const REAL *dy, int64_t stride, const REAL *dh, REAL *dc) {
    for (int64_t row = 0; row < batch; row++) {
        REAL *restrict i = gates + row * 4 * hidden, *restrict f = i + hidden, *restrict g = f + hidden,
                       *restrict o = g + hidden;
        const REAL *restrict before = c_before + row * hidden, *restrict at = c + row * hidden;
        const REAL *restrict outer = dy + row * stride, *restrict later = dh + row * hidden;
        REAL *restrict carried = dc + row * hidden;
        NO_LOOP_DEPENDENCE
        for (int64_t j = 0; j < hidden; j++) {
            const REAL t = NAME(tangent)(at[j]), d = outer[j] + later[j];
            const REAL in = i[j], forget = f[j], value = g[j], gate = o[j];
            const REAL cell = carried[j] + d * gate * (1 - t * t);
            i[j] = cell * value * in * (1 - in);
            f[j] = cell * before[j] * forget * (1 - forget);
            g[j] = cell * in * (1 - value * value);
            o[j] = d * t * gate * (1 - gate);
            carried[j] = cell * forget;
        }
    }
}

static void NAME(set_bias)(const by_hand *net, const by_hand_place *place) {
    const REAL *parameters = net->tensors->parameters;
    REAL *bias = net->bias;
    for (int64_t j = 0; j < net->gate_count * net->hidden; j++) {
        bias[j] = (place->b >= 0 ? parameters[place->b + j] : 0);
        if (net->kind != BY_HAND_GRU) {
            bias[j] += place->d >= 0 ? parameters[place->d + j] : 0;
        }
    }
}

/* One direction of one layer. x: [steps, batch, features]; h: that direction's part of the output rows. */
static void NAME(layer)(by_hand *net, const by_hand_place *place, const REAL *x, int64_t features, bool reverse,
                        REAL *gates, REAL *cells, REAL *h) {
    const int64_t batch = net->batch, hidden = net->hidden, width = net->gate_count * hidden;
    const int64_t stride = net->directions * hidden;
    const REAL *parameters = net->tensors->parameters, *u = parameters + place->u, *bias = net->bias;
    const bool gru = net->kind == BY_HAND_GRU;
    NAME(set_bias)(net, place);
    GEMM(RCV_BLAS_ROW_MAJOR, RCV_BLAS_AS_STORED, RCV_BLAS_TRANSPOSED, (int)(net->steps * batch), (int)width,
         (int)features, 1, x, (int)features, parameters + place->w, (int)features, 0, gates, (int)width);
    const REAL *before = net->zeros, *c_before = net->zeros;
    int64_t before_stride = hidden;
    for (int64_t i = 0; i < net->steps; i++) {
        const int64_t t = reverse ? net->steps - 1 - i : i;
        REAL *at = gates + t * batch * width, *out = h + t * batch * stride;
        GEMM(RCV_BLAS_ROW_MAJOR, RCV_BLAS_AS_STORED, RCV_BLAS_TRANSPOSED, (int)batch, (int)width, (int)hidden, 1,
             before, (int)before_stride, u, (int)hidden, gru ? 0 : 1, gru ? (REAL *)net->recurrent : at, (int)width);
        if (net->kind == BY_HAND_LSTM) {
            NAME(lstm_step)(batch, hidden, at, bias, c_before, cells + t * batch * hidden, out, stride);
            c_before = cells + t * batch * hidden;
        } else if (gru) {
            const REAL *d = place->d >= 0 ? parameters + place->d : (const REAL *)net->zeros;
            NAME(gru_step)(batch, hidden, at, net->recurrent, bias, d, before, before_stride, out, stride);
        } else {
            NAME(rnn_step)(batch, hidden, at, bias, net->kind == BY_HAND_RELU, out, stride);
        }
        before = out;
        before_stride = stride;
    }
}

void NAME(by_hand_forward)(by_hand *net) {
    const REAL *x = net->tensors->x;
    int64_t features = net->input;
    for (int64_t layer = 0; layer < net->layers; layer++) {
        for (int64_t direction = 0; direction < net->directions; direction++) {
            const int64_t index = layer * net->directions + direction;
            NAME(layer)
            (net, &net->places[index], x, features, direction == 1, net->gates[index], net->cells[index],
             (REAL *)net->outputs[layer] + direction * net->hidden);
        }
        x = net->outputs[layer];
        features = net->directions * net->hidden;
    }
}

/* Gradients of the parameters from those of the pre-activations, dg: [steps, batch, 4 * hidden]. */
static void NAME(parameters_back)(by_hand *net, const by_hand_place *place, const REAL *x, int64_t features,
                                  bool reverse, const REAL *dg, const REAL *h) {
    const int64_t batch = net->batch, hidden = net->hidden, width = 4 * hidden, rows = net->steps * batch;
    const int64_t stride = net->directions * hidden, later = reverse ? 0 : batch, earlier = reverse ? batch : 0;
    REAL *gradients = net->tensors->dparameters;
    GEMM(RCV_BLAS_ROW_MAJOR, RCV_BLAS_TRANSPOSED, RCV_BLAS_AS_STORED, (int)width, (int)features, (int)rows, 1, dg,
         (int)width, x, (int)features, 0, gradients + place->w, (int)features);
    memset(gradients + place->u, 0, (size_t)(width * hidden) * sizeof(REAL));
    if (rows > batch) {
        GEMM(RCV_BLAS_ROW_MAJOR, RCV_BLAS_TRANSPOSED, RCV_BLAS_AS_STORED, (int)width, (int)hidden, (int)(rows - batch),
             1, dg + later * width, (int)width, h + earlier * stride, (int)stride, 0, gradients + place->u,
             (int)hidden);
    }
    REAL *sum = net->bias;
    memset(sum, 0, (size_t)width * sizeof(REAL));
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t j = 0; j < width; j++) {
            sum[j] += dg[row * width + j];
        }
    }
    if (place->b >= 0) {
        memcpy(gradients + place->b, sum, (size_t)width * sizeof(REAL));
    }
    if (place->d >= 0) {
        memcpy(gradients + place->d, sum, (size_t)width * sizeof(REAL));
    }
}

/* dy: that direction's part of the gradients of the output; dx: [steps, batch, features], added to with `add`. */
static void NAME(layer_back)(by_hand *net, int64_t index, const REAL *x, int64_t features, bool reverse, const REAL *h,
                             const REAL *dy, REAL *dx, bool add) {
    const int64_t batch = net->batch, hidden = net->hidden, width = 4 * hidden, stride = net->directions * hidden;
    const by_hand_place *place = &net->places[index];
    const REAL *parameters = net->tensors->parameters, *cells = net->cells[index];
    REAL *dg = net->gates[index];
    memset(net->dh, 0, (size_t)(batch * hidden) * sizeof(REAL));
    memset(net->dc, 0, (size_t)(batch * hidden) * sizeof(REAL));
    for (int64_t i = net->steps - 1; i >= 0; i--) {
        const int64_t t = reverse ? net->steps - 1 - i : i, before = reverse ? t + 1 : t - 1;
        const REAL *c_before = i > 0 ? cells + before * batch * hidden : (const REAL *)net->zeros;
        REAL *at = dg + t * batch * width;
        NAME(lstm_step_back)
        (batch, hidden, at, c_before, cells + t * batch * hidden, dy + t * batch * stride, stride, net->dh, net->dc);
        GEMM(RCV_BLAS_ROW_MAJOR, RCV_BLAS_AS_STORED, RCV_BLAS_AS_STORED, (int)batch, (int)hidden, (int)width, 1, at,
             (int)width, parameters + place->u, (int)hidden, 0, net->dh, (int)hidden);
    }
    GEMM(RCV_BLAS_ROW_MAJOR, RCV_BLAS_AS_STORED, RCV_BLAS_AS_STORED, (int)(net->steps * batch), (int)features,
         (int)width, 1, dg, (int)width, parameters + place->w, (int)features, add ? 1 : 0, dx, (int)features);
    NAME(parameters_back)(net, place, x, features, reverse, dg, h);
}

void NAME(by_hand_backward)(by_hand *net) {
    const REAL *dy = net->tensors->dy;
    for (int64_t layer = net->layers - 1; layer >= 0; layer--) {
        const REAL *x = layer > 0 ? net->outputs[layer - 1] : net->tensors->x;
        const int64_t features = layer > 0 ? net->directions * net->hidden : net->input;
        REAL *dx = layer > 0 ? net->dlayer[layer % 2] : net->tensors->dx;
        for (int64_t direction = 0; direction < net->directions; direction++) {
            const int64_t part = direction * net->hidden;
            NAME(layer_back)
            (net, layer * net->directions + direction, x, features, direction == 1,
             (const REAL *)net->outputs[layer] + part, dy + part, dx, direction == 1);
        }
        dy = dx;
    }
}
