/* contract.c: labels through products of two activations: attention. >>labels-contract
 *
 * a [.., I, K] times b [.., K, J], matrix by matrix. Two cases are exact:
 *   channels are summed over (queries times keys): index k of a and of b is one channel. Where the
 *       matrices are heads, the output has the head's label: a head is removed as a whole;
 *   positions are summed over (weights times values): the output has the columns of b, the rows of
 *       a, or the head that both belong to.
 */
#include "sparse_private.h"

typedef struct sbit__contract {
    sbit__label_frame *frame;
    sbit__labeler *labeler;
    int32_t rank; /* of the output */
    int64_t batch, i, j, k;
    int64_t dims[SBIT_MAX_RANK];                                /* of the matrices */
    int64_t a_strides[SBIT_MAX_RANK], b_strides[SBIT_MAX_RANK]; /* likewise, in matrices */
    int32_t *a, *b;
    const sbit__channel_labels *la, *lb;
} sbit__contract;

/* Matrix number `batch` of an operand. */
static int64_t sbit__contract_matrix(const sbit__contract *c, const int64_t *strides, int64_t batch)
{
    int64_t at = 0;
    for (int32_t d = c->rank - 2; d-- > 0;) {
        at += batch % c->dims[d] * strides[d];
        batch /= c->dims[d];
    }
    return at;
}

static int32_t *sbit__contract_a(const sbit__contract *c, int64_t batch)
{
    return c->a + sbit__contract_matrix(c, c->a_strides, batch) * c->i * c->k;
}

static int32_t *sbit__contract_b(const sbit__contract *c, int64_t batch)
{
    return c->b + sbit__contract_matrix(c, c->b_strides, batch) * c->k * c->j;
}

static void sbit__contract_strides(const sbit__contract *c, const sbit__channel_labels *labels,
                                   int64_t *strides)
{
    int64_t stride = 1;
    for (int32_t d = c->rank - 2; d-- > 0;) {
        const int32_t axis = d - (c->rank - labels->rank);
        const int64_t dim = axis < 0 ? 1 : labels->dims[axis];
        strides[d] = dim == 1 ? 0 : stride;
        stride *= dim;
    }
}

static sbit_status sbit__contract_read(sbit__contract *c, sbit_error *error)
{
    const sbit_type *y = c->frame->out_type[0];
    const sbit_node *node = c->frame->node;
    c->la = &c->labeler->of[node->inputs[0].idx];
    c->lb = &c->labeler->of[node->inputs[1].idx];
    c->rank = y->rank;
    c->batch = 1;
    for (int32_t d = 0; d < y->rank - 2; d++) {
        c->dims[d] = y->dims[d].value;
        c->batch *= c->dims[d];
    }
    c->i = c->la->dims[c->la->rank - 2];
    c->k = c->la->dims[c->la->rank - 1];
    c->j = c->lb->dims[c->lb->rank - 1];
    sbit__contract_strides(c, c->la, c->a_strides);
    sbit__contract_strides(c, c->lb, c->b_strides);
    SBIT__TRY(sbit__channel_labels_expand(c->labeler, c->la, &c->a, error));
    return sbit__channel_labels_expand(c->labeler, c->lb, &c->b, error);
}

/* Axes of an operand along which its labels vary: bit 0 the last, 1 the one before, 2 others. */
static uint32_t sbit__contract_varies(const sbit__contract *c, const sbit__channel_labels *labels)
{
    const uint32_t axes = sbit__channel_labels_varies(c->labeler, labels);
    const uint32_t last = 1u << (uint32_t)(labels->rank - 1);
    return ((axes & last) != 0 ? 1u : 0u) | ((axes & last >> 1) != 0 ? 2u : 0u) |
           ((axes & ((last >> 1) - 1u)) != 0 ? 4u : 0u);
}

/* Joins everything of one matrix of each; the label, 0 if it has none. */
static int32_t sbit__contract_one(const sbit__contract *c, int64_t batch)
{
    const int32_t *a = sbit__contract_a(c, batch), *b = sbit__contract_b(c, batch);
    int32_t label = 0;
    for (int64_t n = 0; n < c->i * c->k; n++) {
        sbit__label_join(c->labeler, label, a[n]);
        label = label != 0 ? label : a[n];
    }
    for (int64_t n = 0; n < c->k * c->j; n++) {
        sbit__label_join(c->labeler, label, b[n]);
        label = label != 0 ? label : b[n];
    }
    return label;
}

/* The output's labels are those of the heads: each matrix of both is one channel. */
static sbit_status sbit__contract_heads(sbit__contract *c, sbit__channel_labels *out,
                                        sbit_error *error)
{
    SBIT__TRY(sbit__channel_labels_make(c->labeler, c->frame->out_type[0], SBIT__LABELS_FULL, 0,
                                        out, error));
    for (int64_t n = 0; n < c->batch; n++) {
        const int32_t label = sbit__contract_one(c, n);
        for (int64_t p = 0; p < c->i * c->j; p++) {
            out->at[n * c->i * c->j + p] = label;
        }
    }
    sbit__channel_labels_settle(c->labeler, out);
    return SBIT_OK;
}

/* Channel k of a is channel k of b, in all matrices; the output has none of them. */
static sbit_status sbit__contract_channels(sbit__contract *c, sbit__channel_labels *out,
                                           sbit_error *error)
{
    for (int64_t n = 0; n < c->batch; n++) {
        const int32_t *a = sbit__contract_a(c, n), *b = sbit__contract_b(c, n);
        for (int64_t k = 0; k < c->k; k++) {
            for (int64_t i = 0; i < c->i; i++) {
                sbit__label_join(c->labeler, a[i * c->k + k], b[k * c->j]);
            }
            for (int64_t j = 1; j < c->j; j++) {
                sbit__label_join(c->labeler, b[k * c->j + j], b[k * c->j]);
            }
        }
    }
    SBIT__TRY(sbit__channel_labels_make(c->labeler, c->frame->out_type[0], SBIT__LABELS_UNIFORM, 0,
                                        out, error));
    return sbit__label_new(
        c->labeler, 1, SBIT__LABEL_FIXED,
        sbit__label_reason(c->labeler, c->frame->node->id, "is a sum over channels"), &out->at[0],
        error);
}

/* The output has b's columns (or a's rows), which may differ from matrix to matrix. */
static sbit_status sbit__contract_keeps(sbit__contract *c, bool of_b, sbit__channel_labels *out,
                                        sbit_error *error)
{
    SBIT__TRY(sbit__channel_labels_make(c->labeler, c->frame->out_type[0], SBIT__LABELS_FULL, 0,
                                        out, error));
    for (int64_t n = 0; n < c->batch; n++) {
        const int32_t *a = sbit__contract_a(c, n), *b = sbit__contract_b(c, n);
        for (int64_t p = 0; p < c->i * c->j; p++) {
            const int32_t from = of_b ? b[p % c->j] : a[p / c->j * c->k];
            for (int64_t k = 1; k < c->k; k++) {
                sbit__label_join(c->labeler, from,
                                 of_b ? b[k * c->j + p % c->j] : a[p / c->j * c->k + k]);
            }
            out->at[n * c->i * c->j + p] = from;
        }
    }
    sbit__channel_labels_settle(c->labeler, out);
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__label_contract(sbit__label_frame *frame, sbit_error *error)
{
    sbit__contract c;
    memset(&c, 0, sizeof c);
    c.frame = frame;
    c.labeler = frame->labeler;
    sbit__channel_labels *out = &c.labeler->of[frame->node->outputs[0].idx];
    if (frame->in_type[0]->rank < 2 || frame->in_type[1]->rank < 2) {
        out->form = SBIT__LABELS_NONE;
        sbit__channel_labels_fix(
            c.labeler, &c.labeler->of[frame->node->inputs[0].idx],
            sbit__label_reason(c.labeler, frame->node->id, "multiplies a vector"));
        sbit__channel_labels_fix(
            c.labeler, &c.labeler->of[frame->node->inputs[1].idx],
            sbit__label_reason(c.labeler, frame->node->id, "multiplies a vector"));
        return sbit__contract_channels(&c, out, error);
    }
    SBIT__TRY(sbit__contract_read(&c, error));
    const uint32_t a = sbit__contract_varies(&c, c.la), b = sbit__contract_varies(&c, c.lb);
    const bool heads = ((a | b) & 4u) != 0;
    const bool along_k = (a & 1u) != 0 || (b & 2u) != 0;
    if (along_k && ((a & 2u) != 0 || (b & 1u) != 0)) {
        const char *reason =
            sbit__label_reason(c.labeler, frame->node->id, "sums over one of two axes of channels");
        sbit__channel_labels_fix(c.labeler, c.la, reason);
        sbit__channel_labels_fix(c.labeler, c.lb, reason);
        return sbit__contract_channels(&c, out, error);
    }
    if (along_k) {
        return heads ? sbit__contract_heads(&c, out, error)
                     : sbit__contract_channels(&c, out, error);
    }
    if ((a & 2u) != 0 && (b & 1u) != 0) {
        const char *reason =
            sbit__label_reason(c.labeler, frame->node->id, "has channels as rows and as columns");
        sbit__channel_labels_fix(c.labeler, c.la, reason);
        sbit__channel_labels_fix(c.labeler, c.lb, reason);
        return sbit__contract_channels(&c, out, error);
    }
    if (a != 0 && b != 0) {
        return sbit__contract_heads(&c, out, error);
    }
    return sbit__contract_keeps(&c, b != 0 || a == 0, out, error);
}
