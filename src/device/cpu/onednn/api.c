/* Memory and primitive descriptors of oneDNN's recurrent primitives, for both of its C interfaces. */
#include "device/cpu/onednn/api.h"

#include <string.h>

/* The descriptors of tensor i and of its gradient. */
#define D(i) rcvi_onednn_desc_of(&ports[RCVI_PORT_##i])
#define G(i) rcvi_onednn_desc_of(&ports[RCVI_PORT_GRADIENT + RCVI_PORT_##i])

#if DNNL_VERSION_MAJOR >= 3

dnnl_status_t rcvi_onednn_create_desc(dnnl_memory_desc_t *owned, int dims, const int64_t *shape, dnnl_data_type_t type,
                                      dnnl_format_tag_t tag) {
    dnnl_dims_t sizes = {0};
    memcpy(sizes, shape, (size_t)dims * sizeof *shape);
    return dnnl_memory_desc_create_with_tag(owned, dims, sizes, type, tag);
}

void rcvi_onednn_free_desc(dnnl_memory_desc_t *owned) {
    if (*owned) dnnl_memory_desc_destroy(*owned);
    *owned = NULL;
}

dnnl_status_t rcvi_onednn_create_forward(const rcvi_onednn_kind *k, bool training, const dnnl_memory_desc_t *ports,
                                         dnnl_primitive_desc_t *desc) {
    dnnl_prop_kind_t pass = training ? dnnl_forward_training : dnnl_forward_inference;
    switch (k->cell) {
    case RCVI_ONEDNN_LSTM:
        return dnnl_lstm_forward_primitive_desc_create(desc, k->engine, pass, k->direction, D(X), D(H0), D(C0), D(W),
                                                       D(U), NULL, NULL, D(BIAS), D(Y), D(H1), D(C1),
                                                       dnnl_rnn_flags_undef, k->attributes);
    case RCVI_ONEDNN_GRU:
        return dnnl_lbr_gru_forward_primitive_desc_create(desc, k->engine, pass, k->direction, D(X), D(H0), D(W), D(U),
                                                          D(BIAS), D(Y), D(H1), dnnl_rnn_flags_undef, k->attributes);
    default:
        return dnnl_vanilla_rnn_forward_primitive_desc_create(
            desc, k->engine, pass, k->cell == RCVI_ONEDNN_TANH ? dnnl_eltwise_tanh : dnnl_eltwise_relu, k->direction,
            D(X), D(H0), D(W), D(U), D(BIAS), D(Y), D(H1), dnnl_rnn_flags_undef, 0, 0, k->attributes);
    }
}

dnnl_status_t rcvi_onednn_create_backward(const rcvi_onednn_kind *k, const dnnl_memory_desc_t *ports,
                                          dnnl_primitive_desc_t forward, dnnl_primitive_desc_t *desc) {
    switch (k->cell) {
    case RCVI_ONEDNN_LSTM:
        return dnnl_lstm_backward_primitive_desc_create(desc, k->engine, dnnl_backward, k->direction, D(X), D(H0),
                                                        D(C0), D(W), D(U), NULL, NULL, D(BIAS), D(Y), D(H1), D(C1),
                                                        G(X), G(H0), G(C0), G(W), G(U), NULL, NULL, G(BIAS), G(Y),
                                                        G(H1), G(C1), dnnl_rnn_flags_undef, forward, k->attributes);
    case RCVI_ONEDNN_GRU:
        return dnnl_lbr_gru_backward_primitive_desc_create(
            desc, k->engine, dnnl_backward, k->direction, D(X), D(H0), D(W), D(U), D(BIAS), D(Y), D(H1), G(X), G(H0),
            G(W), G(U), G(BIAS), G(Y), G(H1), dnnl_rnn_flags_undef, forward, k->attributes);
    default:
        return dnnl_vanilla_rnn_backward_primitive_desc_create(
            desc, k->engine, dnnl_backward, k->cell == RCVI_ONEDNN_TANH ? dnnl_eltwise_tanh : dnnl_eltwise_relu,
            k->direction, D(X), D(H0), D(W), D(U), D(BIAS), D(Y), D(H1), G(X), G(H0), G(W), G(U), G(BIAS), G(Y), G(H1),
            dnnl_rnn_flags_undef, 0, 0, forward, k->attributes);
    }
}

#else

dnnl_status_t rcvi_onednn_create_desc(dnnl_memory_desc_t *owned, int dims, const int64_t *shape, dnnl_data_type_t type,
                                      dnnl_format_tag_t tag) {
    dnnl_dims_t sizes = {0};
    memcpy(sizes, shape, (size_t)dims * sizeof *shape);
    return dnnl_memory_desc_init_by_tag(owned, dims, sizes, type, tag);
}

void rcvi_onednn_free_desc(dnnl_memory_desc_t *owned) { (void)owned; }

static dnnl_status_t create(const rcvi_onednn_kind *k, dnnl_status_t status, const dnnl_rnn_desc_t *rnn,
                            dnnl_primitive_desc_t forward, dnnl_primitive_desc_t *desc) {
    return status != dnnl_success ? status : dnnl_primitive_desc_create(desc, rnn, k->attributes, k->engine, forward);
}

dnnl_status_t rcvi_onednn_create_forward(const rcvi_onednn_kind *k, bool training, const dnnl_memory_desc_t *ports,
                                         dnnl_primitive_desc_t *desc) {
    dnnl_prop_kind_t pass = training ? dnnl_forward_training : dnnl_forward_inference;
    dnnl_rnn_desc_t rnn;
    dnnl_status_t status;
    switch (k->cell) {
    case RCVI_ONEDNN_LSTM:
        status = dnnl_lstm_forward_desc_init(&rnn, pass, k->direction, D(X), D(H0), D(C0), D(W), D(U), D(BIAS), D(Y),
                                             D(H1), D(C1), dnnl_rnn_flags_undef);
        break;
    case RCVI_ONEDNN_GRU:
        status = dnnl_lbr_gru_forward_desc_init(&rnn, pass, k->direction, D(X), D(H0), D(W), D(U), D(BIAS), D(Y), D(H1),
                                                dnnl_rnn_flags_undef);
        break;
    default:
        status = dnnl_vanilla_rnn_forward_desc_init(
            &rnn, pass, k->cell == RCVI_ONEDNN_TANH ? dnnl_eltwise_tanh : dnnl_eltwise_relu, k->direction, D(X), D(H0),
            D(W), D(U), D(BIAS), D(Y), D(H1), dnnl_rnn_flags_undef, 0, 0);
    }
    return create(k, status, &rnn, NULL, desc);
}

dnnl_status_t rcvi_onednn_create_backward(const rcvi_onednn_kind *k, const dnnl_memory_desc_t *ports,
                                          dnnl_primitive_desc_t forward, dnnl_primitive_desc_t *desc) {
    dnnl_rnn_desc_t rnn;
    dnnl_status_t status;
    switch (k->cell) {
    case RCVI_ONEDNN_LSTM:
        status = dnnl_lstm_backward_desc_init(&rnn, dnnl_backward, k->direction, D(X), D(H0), D(C0), D(W), D(U),
                                              D(BIAS), D(Y), D(H1), D(C1), G(X), G(H0), G(C0), G(W), G(U), G(BIAS),
                                              G(Y), G(H1), G(C1), dnnl_rnn_flags_undef);
        break;
    case RCVI_ONEDNN_GRU:
        status =
            dnnl_lbr_gru_backward_desc_init(&rnn, dnnl_backward, k->direction, D(X), D(H0), D(W), D(U), D(BIAS), D(Y),
                                            D(H1), G(X), G(H0), G(W), G(U), G(BIAS), G(Y), G(H1), dnnl_rnn_flags_undef);
        break;
    default:
        status = dnnl_vanilla_rnn_backward_desc_init(
            &rnn, dnnl_backward, k->cell == RCVI_ONEDNN_TANH ? dnnl_eltwise_tanh : dnnl_eltwise_relu, k->direction,
            D(X), D(H0), D(W), D(U), D(BIAS), D(Y), D(H1), G(X), G(H0), G(W), G(U), G(BIAS), G(Y), G(H1),
            dnnl_rnn_flags_undef, 0, 0);
    }
    return create(k, status, &rnn, forward, desc);
}

#endif
