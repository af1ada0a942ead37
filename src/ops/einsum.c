/* einsum.c: Einsum and Det. >>einsum
 *
 * Called by: infer, exec. Calls: kernels (gemm driver, threads).
 * Einsum: every letter, and every dim that an ellipsis stands for, is a label with a size. The
 * output is the sum over all labels that it does not have of the products of the operands. With
 * two float32 operands whose labels fall into batch, rows, columns and summed ones that lie
 * together in memory it is a batch of matrix products, transposed or not; everything else walks all
 * label values, summing in double (integers: modulo 2^64).
 * Det: Gaussian elimination with row exchange, in double.
 */
#include "elements_private.h"
#include "gradient_private.h"
#include "window_private.h"

#include <math.h> /* fabs */

#define SBIT__EINSUM_OPERANDS 16
#define SBIT__EINSUM_LABELS (52 + SBIT_MAX_RANK) /* a..z A..Z, then the ellipsis's dims */

typedef struct sbit__einsum_term {
    int32_t rank; /* -1: unknown */
    int32_t labels[SBIT_MAX_RANK];
} sbit__einsum_term;

typedef struct sbit__einsum {
    int32_t operands;
    sbit__einsum_term in[SBIT__EINSUM_OPERANDS], out;
    int32_t ellipsis; /* dims that "..." stands for: the most of all operands */
    sbit_dim sizes[SBIT__EINSUM_LABELS];
    int32_t uses[SBIT__EINSUM_LABELS]; /* how often the label stands on the left */
} sbit__einsum;

/* ---- equation */

static int32_t sbit__einsum_letter(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    return c >= 'a' && c <= 'z' ? 26 + c - 'a' : -1;
}

static sbit_status sbit__einsum_bad(const sbit_op_call *call, const char *what, sbit_error *error)
{
    return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "equation='%s': %s",
                        sbit_node_string(call->node, "equation", ""), what);
}

/* Reads a term up to `,`, `-` or the end: its letters before and after an ellipsis. */
typedef struct sbit__einsum_text {
    int32_t letters[SBIT_MAX_RANK];
    int32_t count, before; /* letters in front of the ellipsis; -1: none */
} sbit__einsum_text;

static sbit_status sbit__einsum_read_term(const sbit_op_call *call, const char **text,
                                          sbit__einsum_text *term, sbit_error *error)
{
    const char *at = *text;
    memset(term, 0, sizeof *term);
    term->before = -1;
    for (; *at != '\0' && *at != ',' && *at != '-'; at++) {
        const int32_t letter = sbit__einsum_letter(*at);
        if (*at == ' ') {
            continue;
        }
        if (*at == '.') {
            if (term->before >= 0 || at[1] != '.' || at[2] != '.') {
                return sbit__einsum_bad(call, "an ellipsis is three dots, once a term", error);
            }
            term->before = term->count;
            at += 2;
            continue;
        }
        if (letter < 0) {
            return sbit__einsum_bad(call, "only letters name dimensions", error);
        }
        if (term->count == SBIT_MAX_RANK) {
            return sbit__einsum_bad(call, "a term is too long", error);
        }
        term->letters[term->count++] = letter;
    }
    *text = at;
    return SBIT_OK;
}

/* Writes the labels of a term in which the ellipsis stands for `dims` dims. */
static sbit_status sbit__einsum_place(const sbit_op_call *call, const sbit__einsum *einsum,
                                      const sbit__einsum_text *text, int32_t dims,
                                      sbit__einsum_term *term, sbit_error *error)
{
    int32_t n = 0;
    if (text->count + dims > SBIT_MAX_RANK) {
        return sbit__einsum_bad(call, "a term is too long", error);
    }
    for (int32_t i = 0; i <= text->count; i++) {
        for (int32_t k = 0; i == text->before && k < dims; k++) {
            term->labels[n++] = 52 + einsum->ellipsis - dims + k; /* aligned on the right */
        }
        if (i < text->count) {
            term->labels[n++] = text->letters[i];
        }
    }
    term->rank = n;
    return SBIT_OK;
}

/* Dims of operand i that its ellipsis stands for; -1: not known. */
static sbit_status sbit__einsum_spread(const sbit_op_call *call, int32_t i,
                                       const sbit__einsum_text *text, int32_t *dims,
                                       sbit_error *error)
{
    int32_t rank = -1;
    SBIT__TRY(sbit__op_rank(call, i, &rank, error));
    *dims = text->before < 0 ? 0 : rank < 0 ? -1 : rank - text->count;
    if (rank >= 0 && (rank < text->count || (text->before < 0 && rank != text->count))) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "equation names %d dimensions of operand %d, which has %d",
                            (int)text->count, (int)i, (int)rank);
    }
    return SBIT_OK;
}

static sbit_status sbit__einsum_merge(const sbit_op_call *call, sbit__einsum *einsum, int32_t i,
                                      sbit_error *error)
{
    const sbit__einsum_term *term = &einsum->in[i];
    for (int32_t k = 0; k < term->rank; k++) {
        sbit_dim *size = &einsum->sizes[term->labels[k]];
        const sbit_dim dim =
            call->in_type[i]->rank >= 0 ? call->in_type[i]->dims[k] : sbit__dim_any();
        const bool first = einsum->uses[term->labels[k]]++ == 0;
        if (first || (sbit__dim_known(*size) && size->value == 1)) {
            *size = dim;
        } else if (sbit__dim_known(*size) && sbit__dim_known(dim)) {
            if (dim.value != 1 && dim.value != size->value) {
                return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                    "dimension %d of operand %d is %lld, elsewhere it is %lld",
                                    (int)k, (int)i, (long long)dim.value, (long long)size->value);
            }
        } else if (!sbit__dim_known(*size) && (sbit__dim_known(dim) && dim.value != 1)) {
            *size = dim;
        } else if (!sbit__dim_known(*size) && !sbit__dim_equal(*size, dim) &&
                   !sbit__dim_known(dim)) {
            *size = sbit__dim_any();
        }
    }
    return SBIT_OK;
}

/* Without "->": the ellipsis, then the letters that stand once, upper case first. */
static sbit_status sbit__einsum_implicit(const sbit_op_call *call, const sbit__einsum *einsum,
                                         sbit__einsum_text *out, sbit_error *error)
{
    memset(out, 0, sizeof *out);
    for (int32_t label = 0; label < 52; label++) {
        if (einsum->uses[label] != 1) {
            continue;
        }
        if (out->count == SBIT_MAX_RANK) {
            return sbit__einsum_bad(call, "the output has too many dimensions", error);
        }
        out->letters[out->count++] = label;
    }
    return SBIT_OK;
}

static sbit_status sbit__einsum_check_out(const sbit_op_call *call, const sbit__einsum *einsum,
                                          const sbit__einsum_text *out, sbit_error *error)
{
    bool seen[52] = {false};
    for (int32_t i = 0; i < out->count; i++) {
        if (einsum->uses[out->letters[i]] == 0 || seen[out->letters[i]]) {
            return sbit__einsum_bad(
                call, "each dimension of the output stands on the left, and once on the right",
                error);
        }
        seen[out->letters[i]] = true;
    }
    return SBIT_OK;
}

/* Terms, labels and sizes. out.rank is -1 if it depends on an unknown rank. */
static sbit_status sbit__einsum_read(const sbit_op_call *call, sbit__einsum *einsum,
                                     sbit_error *error)
{
    sbit__einsum_text texts[SBIT__EINSUM_OPERANDS], out;
    int32_t dims[SBIT__EINSUM_OPERANDS];
    const char *text = sbit_node_string(call->node, "equation", "");
    bool unknown = false;
    memset(einsum, 0, sizeof *einsum);
    einsum->operands = call->input_count;
    if (call->input_count > SBIT__EINSUM_OPERANDS) {
        return sbit_op_fail(call, SBIT_ERR_UNSUPPORTED, error, "more than %d operands",
                            SBIT__EINSUM_OPERANDS);
    }
    for (int32_t i = 0; i < einsum->operands; i++) {
        if (i > 0 && *text++ != ',') {
            return sbit__einsum_bad(call, "it has fewer terms than the node has inputs", error);
        }
        SBIT__TRY(sbit__einsum_read_term(call, &text, &texts[i], error));
        SBIT__TRY(sbit__einsum_spread(call, i, &texts[i], &dims[i], error));
        unknown = unknown || dims[i] < 0;
        einsum->ellipsis = dims[i] > einsum->ellipsis ? dims[i] : einsum->ellipsis;
    }
    for (int32_t i = 0; i < einsum->operands; i++) {
        SBIT__TRY(sbit__einsum_place(call, einsum, &texts[i], dims[i] < 0 ? 0 : dims[i],
                                     &einsum->in[i], error));
        if (dims[i] < 0) { /* only its letters are used, without sizes */
            for (int32_t k = 0; k < texts[i].count; k++) {
                einsum->sizes[texts[i].letters[k]] = sbit__dim_any();
                einsum->uses[texts[i].letters[k]]++;
            }
        } else {
            SBIT__TRY(sbit__einsum_merge(call, einsum, i, error));
        }
    }
    if (*text == '\0') {
        SBIT__TRY(sbit__einsum_implicit(call, einsum, &out, error));
    } else {
        if (text[0] != '-' || text[1] != '>') {
            return sbit__einsum_bad(call, "it has more terms than the node has inputs", error);
        }
        text += 2;
        SBIT__TRY(sbit__einsum_read_term(call, &text, &out, error));
        if (*text != '\0') {
            return sbit__einsum_bad(call, "the right side is one term", error);
        }
        SBIT__TRY(sbit__einsum_check_out(call, einsum, &out, error));
    }
    SBIT__TRY(sbit__einsum_place(call, einsum, &out, out.before < 0 ? 0 : einsum->ellipsis,
                                 &einsum->out, error));
    if (unknown && out.before >= 0) {
        einsum->out.rank = -1;
    }
    return SBIT_OK;
}

static sbit_status sbit__einsum_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit__einsum einsum;
    SBIT__TRY(sbit__op_inputs(call, 1, INT32_MAX, error));
    SBIT__TRY(sbit__op_inputs(call, call->input_count, INT32_MAX, error));
    SBIT__TRY(sbit__op_dtypes(call, 0xffffffffu, 0, error));
    SBIT__TRY(sbit__einsum_read(call, &einsum, error));
    sbit_type *out = sbit__op_out(call, 0, call->in_type[0]->dtype, einsum.out.rank);
    for (int32_t i = 0; out != NULL && i < einsum.out.rank; i++) {
        out->dims[i] = einsum.sizes[einsum.out.labels[i]];
    }
    return SBIT_OK;
}

/* ---- as matrix products */

typedef struct sbit__einsum_group {
    int64_t size;
    int64_t stride[3]; /* of a, b, out; 0 where the group is not */
} sbit__einsum_group;

/* strides[t] of every label in a, b and out: t = 0, 1, 2. */
typedef struct sbit__einsum_product {
    int64_t strides[3][SBIT__EINSUM_LABELS];
    sbit__einsum_group m, n, k;
    int32_t batch_labels[SBIT__EINSUM_LABELS];
    int32_t batch_rank;
    int64_t batches;
    bool swapped; /* a is the right operand */
} sbit__einsum_product;

static void sbit__einsum_strides(const sbit__einsum *einsum, const sbit__einsum_term *term,
                                 const sbit_type *type, int64_t *strides)
{
    int64_t stride = 1;
    memset(strides, 0, SBIT__EINSUM_LABELS * sizeof *strides);
    for (int32_t i = term->rank - 1; i >= 0; i--) {
        if (type->dims[i].value == einsum->sizes[term->labels[i]].value) {
            strides[term->labels[i]] += stride; /* a repeated label walks the diagonal */
        }
        stride *= type->dims[i].value;
    }
}

/* Adds a label outside of (in front of) the ones that the group has; false: it does not lie
 * together with them. Labels come from the last to the first. */
static bool sbit__einsum_extend(sbit__einsum_group *group, int64_t size, const int64_t *strides)
{
    if (size == 1) {
        return true;
    }
    for (int32_t t = 0; t < 3; t++) {
        if (group->size == 1) {
            group->stride[t] = strides[t];
        } else if (strides[t] != group->stride[t] * group->size) {
            return false;
        }
    }
    group->size *= size;
    return true;
}

/* Sorts a label into its group. Labels that stand in one operand only, or twice in one, make it no
 * product. */
static bool sbit__einsum_sort(const sbit__einsum *einsum, sbit__einsum_product *product,
                              int32_t label)
{
    const int64_t size = einsum->sizes[label].value;
    int64_t strides[3];
    int32_t in[3] = {0, 0, 0};
    for (int32_t t = 0; t < 3; t++) {
        const sbit__einsum_term *term = t == 2 ? &einsum->out : &einsum->in[t];
        strides[t] = product->strides[t][label];
        for (int32_t i = 0; i < term->rank; i++) {
            in[t] += term->labels[i] == label ? 1 : 0;
        }
    }
    if (in[0] > 1 || in[1] > 1 || (in[2] == 0 && in[0] + in[1] < 2)) {
        return false;
    }
    if (in[2] == 0 && size > 1 && (strides[0] == 0 || strides[1] == 0)) {
        return false; /* summed over one operand and repeated in the other */
    }
    if (in[0] != 0 && in[1] != 0 && in[2] != 0) {
        product->batch_labels[product->batch_rank++] = label;
        product->batches *= size;
        return true;
    }
    return sbit__einsum_extend(in[2] == 0   ? &product->k
                               : in[0] != 0 ? &product->m
                                            : &product->n,
                               size, strides);
}

/* Whether run() computes in float32, converted from another type or not. */
static bool sbit__einsum_in_f32(const sbit_op_call *call)
{
    const sbit_dtype dtype = call->in_type[0]->dtype;
    return dtype == SBIT_F32 || dtype == SBIT_F16 || dtype == SBIT_BF16;
}

/* Whether the einsum is a batch of matrix products that gemm can read and write in place. */
static bool sbit__einsum_is_product(const sbit_op_call *call, const sbit__einsum *einsum,
                                    sbit__einsum_product *product)
{
    memset(product, 0, sizeof *product);
    product->m.size = product->n.size = product->k.size = product->batches = 1;
    if (einsum->operands != 2 || !sbit__einsum_in_f32(call)) {
        return false;
    }
    for (int32_t t = 0; t < 3; t++) {
        sbit__einsum_strides(einsum, t == 2 ? &einsum->out : &einsum->in[t],
                             t == 2 ? call->out_type[0] : call->in_type[t], product->strides[t]);
    }
    bool done[SBIT__EINSUM_LABELS] = {false};
    for (int32_t t = 2; t >= 0; t--) { /* in the output's order, then the operands' */
        const sbit__einsum_term *term = t == 2 ? &einsum->out : &einsum->in[t];
        for (int32_t i = term->rank - 1; i >= 0; i--) {
            if (!done[term->labels[i]] && !sbit__einsum_sort(einsum, product, term->labels[i])) {
                return false;
            }
            done[term->labels[i]] = true;
        }
    }
    sbit__einsum_group *m = &product->m, *n = &product->n, *k = &product->k;
    product->swapped = n->size > 1 && n->stride[2] != 1;
    if (product->swapped) {
        const sbit__einsum_group rows = *m;
        *m = *n;
        *n = rows;
    }
    const int32_t a = product->swapped ? 1 : 0, b = 1 - a;
    return (n->size == 1 || n->stride[2] == 1) &&
           (k->size == 1 || m->size == 1 || k->stride[a] == 1 || m->stride[a] == 1) &&
           (k->size == 1 || n->size == 1 || k->stride[b] == 1 || n->stride[b] == 1);
}

/* A matrix whose rows and columns have these strides, as gemm wants it: one of them 1. */
static void sbit__einsum_operand(const sbit__einsum_group *rows, const sbit__einsum_group *cols,
                                 int32_t t, bool *trans, int64_t *ld)
{
    *trans = cols->size > 1 && cols->stride[t] != 1;
    *ld = *trans ? (cols->size > 1 ? cols->stride[t] : rows->size)
                 : (rows->size > 1 ? rows->stride[t] : cols->size);
}

static void sbit__einsum_gemm(const sbit__einsum_product *product, sbit__gemm *gemm)
{
    const int32_t a = product->swapped ? 1 : 0, b = 1 - a;
    memset(gemm, 0, sizeof *gemm);
    gemm->m = product->m.size;
    gemm->n = product->n.size;
    gemm->k = product->k.size;
    sbit__einsum_operand(&product->m, &product->k, a, &gemm->trans_a, &gemm->lda);
    sbit__einsum_operand(&product->k, &product->n, b, &gemm->trans_b, &gemm->ldb);
    gemm->ldc = product->m.size > 1 ? product->m.stride[2] : product->n.size;
    gemm->alpha = 1.0f;
}

typedef struct sbit__einsum_task {
    const sbit_op_call *call;
    const sbit__einsum *einsum;
    int64_t strides[SBIT__EINSUM_OPERANDS][SBIT__EINSUM_LABELS];
    int32_t summed[SBIT__EINSUM_LABELS]; /* labels, the innermost last */
    int32_t summed_count;
    int64_t terms; /* combinations of them */
} sbit__einsum_task;

/* What a run works with: too much for the stack, so it lies in scratch memory. */
typedef struct sbit__einsum_work {
    sbit__einsum einsum;
    sbit__einsum_product product;
    sbit__einsum_task task;
} sbit__einsum_work;

static void sbit__einsum_run_product(const sbit_op_call *call, const sbit__einsum *einsum,
                                     const sbit__einsum_product *product)
{
    const int32_t a = product->swapped ? 1 : 0, b = 1 - a;
    for (int64_t i = 0; i < product->batches; i++) {
        int64_t offset[3] = {0, 0, 0};
        int64_t rest = i;
        sbit__gemm gemm;
        for (int32_t k = 0; k < product->batch_rank; k++) {
            const int32_t label = product->batch_labels[k];
            const int64_t at = rest % einsum->sizes[label].value;
            rest /= einsum->sizes[label].value;
            for (int32_t t = 0; t < 3; t++) {
                offset[t] += at * product->strides[t][label];
            }
        }
        sbit__einsum_gemm(product, &gemm);
        gemm.a = (const float *)call->in[a]->data + offset[a];
        gemm.b = (const float *)call->in[b]->data + offset[b];
        gemm.c = (float *)call->out[0]->data + offset[2];
        sbit__gemm_run(call->ctx, &gemm,
                       (char *)call->scratch + sbit__align64(sizeof(sbit__einsum_work)));
    }
}

/* ---- by walking all label values */

static double sbit__einsum_load(const sbit_tensor *tensor, int64_t at)
{
    return tensor->dtype == SBIT_F32 ? (double)((const float *)tensor->data)[at]
                                     : sbit__tensor_f64_at(tensor, at);
}

static void sbit__einsum_element(const sbit__einsum_task *task, int64_t o)
{
    const sbit__einsum *einsum = task->einsum;
    const sbit_op_call *call = task->call;
    sbit_tensor *y = call->out[0];
    const bool integers = (SBIT_T_INTS >> (uint32_t)y->dtype & 1u) != 0;
    int64_t offset[SBIT__EINSUM_OPERANDS] = {0}, at[SBIT__EINSUM_LABELS] = {0};
    uint64_t whole = 0;
    double sum = 0.0;
    int64_t rest = o;
    for (int32_t i = einsum->out.rank - 1; i >= 0; i--) {
        const int32_t label = einsum->out.labels[i];
        const int64_t k = rest % einsum->sizes[label].value;
        rest /= einsum->sizes[label].value;
        for (int32_t t = 0; t < einsum->operands; t++) {
            offset[t] += k * task->strides[t][label];
        }
    }
    for (int64_t i = 0; i < task->terms; i++) {
        uint64_t whole_product = 1;
        double product = 1.0;
        for (int32_t t = 0; t < einsum->operands; t++) {
            if (integers) {
                whole_product *= (uint64_t)sbit__tensor_i64_at(call->in[t], offset[t]);
            } else {
                product *= sbit__einsum_load(call->in[t], offset[t]);
            }
        }
        whole += whole_product;
        sum += product;
        for (int32_t s = task->summed_count - 1; s >= 0; s--) { /* next combination */
            const int32_t label = task->summed[s];
            const bool wraps = ++at[s] == einsum->sizes[label].value;
            for (int32_t t = 0; t < einsum->operands; t++) {
                offset[t] += task->strides[t][label] * (wraps ? 1 - at[s] : 1);
            }
            if (!wraps) {
                break;
            }
            at[s] = 0;
        }
    }
    if (integers) {
        sbit__convert(SBIT_U64, &whole, y->dtype, sbit__elem_at(y->dtype, y->data, o), 1);
    } else {
        sbit__tensor_set_f64(y, o, sum);
    }
}

static void sbit__einsum_elements(void *user, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    for (int64_t o = begin; o < end; o++) {
        sbit__einsum_element((const sbit__einsum_task *)user, o);
    }
}

static sbit_status sbit__einsum_prepare_product(const sbit_op_call *call, sbit__einsum_work *work,
                                                sbit_error *error)
{
    sbit__gemm gemm;
    SBIT__TRY(sbit__einsum_read(call, &work->einsum, error));
    if (call->out_type[0] != NULL && sbit__type_static(call->out_type[0]) &&
        sbit__einsum_is_product(call, &work->einsum, &work->product)) {
        sbit__einsum_gemm(&work->product, &gemm);
        *call->scratch_bytes += sbit__gemm_scratch_bytes(call->ctx, &gemm);
    }
    return SBIT_OK;
}

static sbit_status sbit__einsum_prepare(const sbit_op_call *call, sbit_error *error)
{
    const sbit_allocator *a = &call->ctx->allocator;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    for (int32_t i = 0; i < call->input_count; i++) {
        if (!sbit__type_static(call->in_type[i])) {
            return SBIT_OK;
        }
    }
    *call->scratch_bytes =
        sbit__op_in_float_scratch(call) + sbit__align64(sizeof(sbit__einsum_work));
    sbit__einsum_work *work = (sbit__einsum_work *)sbit__calloc(a, 1, sizeof *work);
    if (work == NULL) {
        return sbit__fail_oom(error, sizeof *work);
    }
    const sbit_status status = sbit__einsum_prepare_product(call, work, error);
    sbit__free(a, work, sizeof *work);
    return status;
}

/* The labels that are summed over. */
static sbit_status sbit__einsum_terms(const sbit_op_call *call, const sbit__einsum *einsum,
                                      sbit__einsum_task *task, sbit_error *error)
{
    bool in_out[SBIT__EINSUM_LABELS] = {false};
    memset(task, 0, sizeof *task);
    task->call = call;
    task->einsum = einsum;
    task->terms = 1;
    for (int32_t i = 0; i < einsum->operands; i++) {
        sbit__einsum_strides(einsum, &einsum->in[i], call->in_type[i], task->strides[i]);
    }
    for (int32_t i = 0; i < einsum->out.rank; i++) {
        in_out[einsum->out.labels[i]] = true;
    }
    for (int32_t label = 0; label < SBIT__EINSUM_LABELS; label++) {
        if (einsum->uses[label] > 0 && !in_out[label]) {
            task->summed[task->summed_count++] = label;
            if (!sbit__mul_i64(task->terms, einsum->sizes[label].value, &task->terms)) {
                return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "sizes overflow");
            }
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__einsum_run_any(const sbit_op_call *call, sbit_error *error)
{
    sbit__einsum_work *work = (sbit__einsum_work *)call->scratch;
    const int64_t count = sbit_tensor_count(call->out[0]);
    SBIT__TRY(sbit__einsum_read(call, &work->einsum, error));
    if (count == 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__einsum_terms(call, &work->einsum, &work->task, error));
    const int64_t terms = work->task.terms;
    if (terms > 0 && sbit__einsum_is_product(call, &work->einsum, &work->product)) {
        sbit__einsum_run_product(call, &work->einsum, &work->product);
        return SBIT_OK;
    }
    sbit__parallel_range(call->ctx, count, 1 + 4096 / (terms > 0 ? terms : 1),
                         sbit__einsum_elements, &work->task);
    return SBIT_OK;
}

static sbit_status sbit__einsum_run(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_in_float(call, sbit__einsum_run_any, sbit__einsum_run_any, error);
}

/* ---- Det */

static sbit_status sbit__det_infer(const sbit_op_call *call, sbit_error *error)
{
    int32_t rank = -1;
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    SBIT__TRY(sbit__op_rank(call, 0, &rank, error));
    const sbit_type *x = call->in_type[0];
    if (rank >= 0 && rank < 2) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "input rank %d, must be at least 2",
                            (int)rank);
    }
    if (rank >= 2 && sbit__dim_known(x->dims[rank - 1]) && sbit__dim_known(x->dims[rank - 2]) &&
        x->dims[rank - 1].value != x->dims[rank - 2].value) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "%lld x %lld matrices are not square",
                            (long long)x->dims[rank - 2].value, (long long)x->dims[rank - 1].value);
    }
    sbit_type *out = sbit__op_out(call, 0, x->dtype, rank < 0 ? -1 : rank - 2);
    for (int32_t i = 0; out != NULL && i < rank - 2; i++) {
        out->dims[i] = x->dims[i];
    }
    return SBIT_OK;
}

static sbit_status sbit__det_prepare(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *x = call->in_type[0];
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (sbit__type_static(x)) {
        const size_t n = (size_t)x->dims[x->rank - 1].value;
        *call->scratch_bytes = n * n * sizeof(double);
    }
    return SBIT_OK;
}

/* Overwrites the n x n matrix. */
static double sbit__det_of(double *a, int64_t n)
{
    double det = 1.0;
    for (int64_t i = 0; i < n; i++) {
        int64_t pivot = i;
        for (int64_t r = i + 1; r < n; r++) {
            pivot = fabs(a[r * n + i]) > fabs(a[pivot * n + i]) ? r : pivot;
        }
        if (a[pivot * n + i] == 0.0) {
            return 0.0;
        }
        for (int64_t c = 0; pivot != i && c < n; c++) {
            const double swap = a[i * n + c];
            a[i * n + c] = a[pivot * n + c];
            a[pivot * n + c] = swap;
        }
        det *= pivot != i ? -a[i * n + i] : a[i * n + i];
        for (int64_t r = i + 1; r < n; r++) {
            const double factor = a[r * n + i] / a[i * n + i];
            for (int64_t c = i; c < n; c++) {
                a[r * n + c] -= factor * a[i * n + c];
            }
        }
    }
    return det;
}

static sbit_status sbit__det_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    const int64_t n = x->dims[x->rank - 1];
    double *matrix = (double *)call->scratch;
    (void)error;
    for (int64_t i = 0; i < sbit_tensor_count(call->out[0]); i++) {
        for (int64_t k = 0; k < n * n; k++) {
            matrix[k] = sbit__tensor_f64_at(x, i * n * n + k);
        }
        sbit__tensor_set_f64(call->out[0], i, sbit__det_of(matrix, n));
    }
    return SBIT_OK;
}

/* DetGrad(x, dy): dx = dy times the cofactors: determinants without the row and the column, so that
 * matrices without an inverse are like any other. */
static sbit_status sbit__det_grad_infer(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_infer_like(call, 2, 2, 0, error);
}

static sbit_status sbit__det_grad_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    const int64_t n = x->dims[x->rank - 1];
    double *minor = (double *)call->scratch;
    (void)error;
    for (int64_t i = 0; i < sbit_tensor_count(x); i++) {
        const int64_t first = i / (n * n) * n * n, row = i / n % n, column = i % n;
        for (int64_t k = 0, at = 0; k < n * n; k++) {
            if (k / n != row && k % n != column) {
                minor[at++] = sbit__tensor_f64_at(x, first + k);
            }
        }
        const double det = sbit__det_of(minor, n - 1);
        sbit__tensor_set_f64(call->out[0], i,
                             sbit__tensor_f64_at(call->in[1], i / (n * n)) *
                                 ((row + column) % 2 == 0 ? det : -det));
    }
    return SBIT_OK;
}

/* Multiplications of the terms' elements: all label values, for each operand but one. */
static int64_t sbit__einsum_macs(const sbit_op_call *call)
{
    sbit__einsum einsum;
    int64_t count = 1;
    if (sbit__einsum_read(call, &einsum, NULL) != SBIT_OK || einsum.operands < 2) {
        return 0;
    }
    for (int32_t label = 0; label < SBIT__EINSUM_LABELS; label++) {
        if (einsum.uses[label] > 0 && sbit__dim_known(einsum.sizes[label])) {
            count = sbit__saturating_mul(count, einsum.sizes[label].value);
        }
    }
    return sbit__saturating_mul(count, einsum.operands - 1);
}

/* ---- rows */

#define SBIT__EINSUM_ROW(version, types)                                                           \
    {                                                                                              \
        "", "Einsum", version, types, 0, 0, sbit__einsum_infer, sbit__einsum_prepare,              \
            sbit__einsum_run, sbit__grad_einsum, NULL, NULL, NULL, sbit__einsum_macs               \
    }
#define SBIT__DET_ROW(version, types)                                                              \
    {                                                                                              \
        "", "Det", version, types, 0, 0, sbit__det_infer, sbit__det_prepare, sbit__det_run,        \
            sbit__grad_det, NULL, NULL, NULL, NULL                                                 \
    }

static const sbit_op_row sbit__einsum_rows[] = {
    SBIT__EINSUM_ROW(12, SBIT__T_NUMBERS1),
    SBIT__EINSUM_ROW(28, SBIT_T_NUMBERS),
    SBIT__DET_ROW(11, SBIT__T_FLOATS1),
    SBIT__DET_ROW(22, SBIT_T_FLOATS),
    {SBIT__GRAD_DOMAIN, "DetGrad", 1, SBIT__T_GRAD, 0, 0, sbit__det_grad_infer, sbit__det_prepare,
     sbit__det_grad_run, NULL, NULL, NULL, NULL, NULL},
};

#undef SBIT__EINSUM_OPERANDS
#undef SBIT__EINSUM_LABELS
#undef SBIT__EINSUM_ROW
#undef SBIT__DET_ROW

SBIT__FN const sbit_op_row *sbit__op_rows_einsum(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__einsum_rows);
    return sbit__einsum_rows;
}
