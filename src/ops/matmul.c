/* matmul.c: MatMul and Gemm. >>matmul
 *
 * Called by: infer, exec. Calls: kernels (gemm driver).
 * MatMul follows NumPy: 1-D operands get a dimension of 1 that the result loses, leading dims
 * broadcast. A right operand that is one matrix for all of the left one is one gemm over all rows.
 * Gemm: Y = alpha * A' * B' + beta * C, C broadcast in one direction to [M, N].
 * sbit Gemm with a second output gives the sums of B's columns there (a bias's gradient); B is not transposed then.
 * Constant right operands are packed once. Integers are computed modulo 2^bits in plain loops;
 * float types other than float32 are converted.
 */
#include "elements_private.h"
#include "gradient_private.h"
#include "window_private.h"

/* ---- integers: both operators, through 64 bits modulo 2^64 */

static uint64_t sbit__matmul_load(const sbit_tensor *tensor, int64_t at)
{
    switch ((int)tensor->dtype) {
    case SBIT_I32:
        return (uint64_t)(int64_t)((const int32_t *)tensor->data)[at];
    case SBIT_U32:
        return ((const uint32_t *)tensor->data)[at];
    default:
        return ((const uint64_t *)tensor->data)[at];
    }
}

static void sbit__matmul_store(sbit_tensor *tensor, int64_t at, uint64_t value)
{
    if (tensor->dtype == SBIT_I32 || tensor->dtype == SBIT_U32) {
        ((uint32_t *)tensor->data)[at] = (uint32_t)value;
    } else {
        ((uint64_t *)tensor->data)[at] = value;
    }
}

static bool sbit__matmul_is_int(sbit_dtype dtype)
{
    return dtype == SBIT_I32 || dtype == SBIT_U32 || dtype == SBIT_I64 || dtype == SBIT_U64;
}

typedef struct sbit__matmul_int {
    const sbit_tensor *a, *b;
    sbit_tensor *y;
    int64_t a_offset, b_offset, y_offset;
    int64_t n, k;
    int64_t a_row, a_col, b_row, b_col; /* strides */
} sbit__matmul_int;

static void sbit__matmul_int_rows(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__matmul_int *task = (const sbit__matmul_int *)user;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        for (int64_t j = 0; j < task->n; j++) {
            uint64_t sum = 0;
            for (int64_t p = 0; p < task->k; p++) {
                sum +=
                    sbit__matmul_load(task->a, task->a_offset + i * task->a_row + p * task->a_col) *
                    sbit__matmul_load(task->b, task->b_offset + p * task->b_row + j * task->b_col);
            }
            sbit__matmul_store(task->y, task->y_offset + i * task->n + j, sum);
        }
    }
}

/* ---- MatMul */

typedef struct sbit__matmul_plan {
    int64_t m, n, k;
    int32_t batch_rank;
    int64_t batch[SBIT_MAX_RANK];                         /* broadcast leading dims */
    int64_t a_step[SBIT_MAX_RANK], b_step[SBIT_MAX_RANK]; /* in matrices; 0: broadcast */
    int64_t batches, b_count; /* results; matrices that the right operand holds */
    size_t matrix_bytes;      /* of one packed right matrix */
    bool spread;              /* the batches over the threads, instead of each product */
    size_t gemm_bytes;        /* scratch of one product */
    sbit__epilogue epilogue;
} sbit__matmul_plan;

static sbit_status sbit__matmul_ranks(const sbit_op_call *call, int32_t *a, int32_t *b,
                                      sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 2, sbit__op_is_internal(call) ? 4 : 2, error));
    SBIT__TRY(sbit__op_dtypes(call, 10, 0, error));
    SBIT__TRY(sbit__op_rank(call, 0, a, error));
    SBIT__TRY(sbit__op_rank(call, 1, b, error));
    if (*a == 0 || *b == 0) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "operand %d is a scalar", *a == 0 ? 0 : 1);
    }
    return SBIT_OK;
}

static sbit_status sbit__matmul_broadcast(const sbit_op_call *call, sbit_dim a, sbit_dim b,
                                          sbit_dim *out, sbit_error *error)
{
    *out = sbit__dim_any();
    if (sbit__dim_equal(a, b)) {
        *out = a;
    } else if (sbit__dim_known(a) && a.value == 1) {
        *out = b;
    } else if (sbit__dim_known(b) && b.value == 1) {
        *out = a;
    } else if (sbit__dim_known(a) && sbit__dim_known(b)) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "batch dimensions %lld and %lld do not broadcast", (long long)a.value,
                            (long long)b.value);
    } else if (sbit__dim_known(a) || sbit__dim_known(b)) {
        *out = sbit__dim_known(a) ? a : b;
    }
    return SBIT_OK;
}

static sbit_status sbit__matmul_infer(const sbit_op_call *call, sbit_error *error)
{
    int32_t ra = -1, rb = -1;
    SBIT__TRY(sbit__matmul_ranks(call, &ra, &rb, error));
    const sbit_type *a = call->in_type[0];
    const sbit_type *b = call->in_type[1];
    if (ra < 0 || rb < 0) {
        (void)sbit__op_out(call, 0, a->dtype, -1);
        return SBIT_OK;
    }
    const sbit_dim ka = a->dims[ra - 1];
    const sbit_dim kb = b->dims[rb >= 2 ? rb - 2 : 0];
    if (sbit__dim_known(ka) && sbit__dim_known(kb) && ka.value != kb.value) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "left operand has %lld columns, right operand has %lld rows",
                            (long long)ka.value, (long long)kb.value);
    }
    const int32_t batch_a = ra > 2 ? ra - 2 : 0, batch_b = rb > 2 ? rb - 2 : 0;
    const int32_t batch = batch_a > batch_b ? batch_a : batch_b;
    int32_t rank = batch + (ra >= 2 ? 1 : 0) + (rb >= 2 ? 1 : 0);
    sbit_type *out = sbit__op_out(call, 0, a->dtype, rank);
    if (out == NULL) {
        return SBIT_OK;
    }
    for (int32_t i = 0; i < batch; i++) {
        const int32_t ia = i - (batch - batch_a), ib = i - (batch - batch_b);
        SBIT__TRY(sbit__matmul_broadcast(call, ia >= 0 ? a->dims[ia] : sbit__dim(1),
                                         ib >= 0 ? b->dims[ib] : sbit__dim(1), &out->dims[i],
                                         error));
    }
    rank = batch;
    if (ra >= 2) {
        out->dims[rank++] = a->dims[ra - 2];
    }
    if (rb >= 2) {
        out->dims[rank] = b->dims[rb - 1];
    }
    if (sbit__op_has(call, 2) && rb >= 2) { /* internal: a vector, one for each column */
        int32_t rank_of = -1;
        SBIT__TRY(sbit__op_rank(call, 2, &rank_of, error));
        if (rank_of >= 0 &&
            (rank_of != 1 || !sbit__dim_equal(call->in_type[2]->dims[0], b->dims[rb - 1]))) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the bias must have a column's length");
        }
    }
    return sbit__epilogue_check(call, 3, error);
}

/* Numbers of the product; the types of both operands are static. */
static void sbit__matmul_plan_of(const sbit_type *a, const sbit_type *b, sbit__matmul_plan *plan)
{
    const int32_t batch_a = a->rank > 2 ? a->rank - 2 : 0, batch_b = b->rank > 2 ? b->rank - 2 : 0;
    int64_t step_a = 1, step_b = 1;
    memset(plan, 0, sizeof *plan);
    plan->m = a->rank >= 2 ? a->dims[a->rank - 2].value : 1;
    plan->k = a->dims[a->rank - 1].value;
    plan->n = b->rank >= 2 ? b->dims[b->rank - 1].value : 1;
    plan->batch_rank = batch_a > batch_b ? batch_a : batch_b;
    plan->batches = 1;
    for (int32_t i = plan->batch_rank - 1; i >= 0; i--) {
        const int32_t ia = i - (plan->batch_rank - batch_a), ib = i - (plan->batch_rank - batch_b);
        const int64_t da = ia >= 0 ? a->dims[ia].value : 1;
        const int64_t db = ib >= 0 ? b->dims[ib].value : 1;
        plan->batch[i] = da == 1 ? db : da;
        plan->a_step[i] = da == 1 ? 0 : step_a;
        plan->b_step[i] = db == 1 ? 0 : step_b;
        step_a *= da;
        step_b *= db;
        plan->batches *= plan->batch[i];
    }
    plan->b_count = step_b;
    if (step_b == 1) { /* one right matrix: all rows of the left operand in one go */
        plan->m *= plan->batches;
        plan->batches = 1;
        plan->batch_rank = 0;
    }
}

/* Which left and right matrix result `batch` is made from. */
static void sbit__matmul_index(const sbit__matmul_plan *plan, int64_t batch, int64_t *a, int64_t *b)
{
    *a = *b = 0;
    for (int32_t i = plan->batch_rank - 1; i >= 0; i--) {
        const int64_t at = batch % plan->batch[i];
        batch /= plan->batch[i];
        *a += at * plan->a_step[i];
        *b += at * plan->b_step[i];
    }
}

static void sbit__matmul_gemm(const sbit__matmul_plan *plan, sbit__gemm *gemm)
{
    memset(gemm, 0, sizeof *gemm);
    gemm->m = plan->m;
    gemm->n = plan->n;
    gemm->k = plan->k;
    gemm->lda = plan->k;
    gemm->ldb = gemm->ldc = plan->n;
    gemm->alpha = 1.0f;
    gemm->serial = plan->spread;
}

/* A constant float32 right operand: its matrices behind each other. */
static sbit_status sbit__matmul_pack(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *b = sbit__in(call, 1);
    if (b == NULL || b->dtype != SBIT_F32 || b->rank < 1 || sbit_tensor_count(b) == 0) {
        return SBIT_OK;
    }
    const int64_t k = b->dims[b->rank >= 2 ? b->rank - 2 : 0];
    const int64_t n = b->rank >= 2 ? b->dims[b->rank - 1] : 1;
    const int64_t count = b->rank > 2 ? sbit__tensor_span(b, 0, b->rank - 2) : 1;
    const size_t bytes = sbit__align64(sbit__gemm_pack_b_bytes(call->ctx, n, k));
    char *packed = (char *)call->alloc_packed(call, (size_t)count * bytes);
    if (packed == NULL) {
        return sbit__op_no_memory(call, error);
    }
    for (int64_t i = 0; i < count; i++) {
        sbit__gemm_pack_b(call->ctx, n, k, (const float *)b->data + i * n * k, n, false, 1.0f,
                          (float *)(void *)(packed + (size_t)i * bytes));
    }
    call->release_input(call, 1);
    return SBIT_OK;
}

static sbit_status sbit__matmul_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__matmul_plan plan;
    sbit__gemm gemm;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__type_static(call->in_type[0]) || !sbit__type_static(call->in_type[1])) {
        return SBIT_OK;
    }
    sbit__matmul_plan_of(call->in_type[0], call->in_type[1], &plan);
    const int64_t threads = sbit_ctx_threads(call->ctx);
    plan.spread = threads > 1 && plan.batches >= threads;
    sbit__matmul_gemm(&plan, &gemm);
    plan.matrix_bytes = sbit__align64(sbit__gemm_pack_b_bytes(call->ctx, plan.n, plan.k));
    gemm.packed_b = (const float *)call->packed;
    plan.gemm_bytes = sbit__align64(sbit__gemm_scratch_bytes(call->ctx, &gemm));
    sbit__matmul_plan *params = (sbit__matmul_plan *)call->alloc_params(call, sizeof *params);
    if (params == NULL) {
        return sbit__op_no_memory(call, error);
    }
    *params = plan;
    sbit__epilogue_read(call, &params->epilogue);
    *call->scratch_bytes =
        sbit__op_in_float_scratch(call) + plan.gemm_bytes * (size_t)(plan.spread ? threads : 1);
    return SBIT_OK;
}

typedef struct sbit__matmul_task {
    const sbit_op_call *call;
    const sbit__epilogue *epilogue;
} sbit__matmul_task;

/* Products begin..end. */
static void sbit__matmul_batches(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__matmul_task *task = (const sbit__matmul_task *)user;
    const sbit_op_call *call = task->call;
    const sbit__matmul_plan *plan = (const sbit__matmul_plan *)call->params;
    const sbit__epilogue *given = task->epilogue;
    const sbit_tensor *bias = sbit__in(call, 2);
    float *y = (float *)call->out[0]->data;
    for (int64_t i = begin; i < end; i++) {
        int64_t a = 0, b = 0;
        sbit__epilogue epilogue;
        sbit__gemm gemm;
        sbit__matmul_index(plan, i, &a, &b);
        sbit__matmul_gemm(plan, &gemm);
        gemm.a = (const float *)call->in[0]->data + a * plan->m * plan->k;
        gemm.c = y + i * plan->m * plan->n;
        gemm.bias = bias != NULL ? (const float *)bias->data : NULL;
        if (call->packed != NULL) {
            gemm.packed_b = (const float *)(const void *)((const char *)call->packed +
                                                          (size_t)b * plan->matrix_bytes);
        } else {
            gemm.b = (const float *)call->in[1]->data + b * plan->k * plan->n;
        }
        if (given != NULL) {
            epilogue = *given;
            if (epilogue.residual != NULL) {
                epilogue.residual += i * plan->m * plan->n;
            }
            gemm.epilogue = &epilogue;
        }
        sbit__gemm_run(call->ctx, &gemm, (char *)call->scratch + (size_t)worker * plan->gemm_bytes);
    }
}

static sbit_status sbit__matmul_run32(const sbit_op_call *call, sbit_error *error)
{
    const sbit__matmul_plan *plan = (const sbit__matmul_plan *)call->params;
    sbit__epilogue epilogue;
    sbit__matmul_task task;
    if (plan == NULL) {
        return sbit_op_fail(call, SBIT_ERR_STATE, error, "was not prepared");
    }
    const int64_t count = sbit_tensor_count(call->out[0]);
    if (count == 0) {
        return SBIT_OK;
    }
    task.call = call;
    task.epilogue = sbit__epilogue_of(call, &plan->epilogue, 3, &epilogue);
    if (plan->k == 0) {
        float *y = (float *)call->out[0]->data;
        memset(y, 0, (size_t)count * sizeof *y);
        sbit__epilogue_apply(call->kernels, task.epilogue, 0, count, y);
        return SBIT_OK;
    }
    if (plan->spread) {
        const int64_t each = plan->m * plan->n * plan->k;
        sbit__parallel_range(call->ctx, plan->batches, SBIT__WORTH_A_THREAD / each + 1,
                             sbit__matmul_batches, &task);
    } else {
        sbit__matmul_batches(&task, 0, plan->batches, 0);
    }
    return SBIT_OK;
}

static sbit_status sbit__matmul_run64(const sbit_op_call *call, sbit_error *error)
{
    sbit__matmul_plan plan;
    sbit__f64_gemm gemm;
    (void)error;
    sbit__matmul_plan_of(call->in_type[0], call->in_type[1], &plan);
    memset(&gemm, 0, sizeof gemm);
    gemm.m = plan.m;
    gemm.n = gemm.ldc = gemm.b_row = plan.n;
    gemm.k = gemm.a_row = plan.k;
    gemm.a_col = gemm.b_col = 1;
    for (int64_t i = 0; i < plan.batches; i++) {
        int64_t a = 0, b = 0;
        sbit__matmul_index(&plan, i, &a, &b);
        gemm.a = (const double *)call->in[0]->data + a * plan.m * plan.k;
        gemm.b = (const double *)call->in[1]->data + b * plan.k * plan.n;
        gemm.c = (double *)call->out[0]->data + i * plan.m * plan.n;
        sbit__f64_gemm_run(call->ctx, &gemm);
    }
    return SBIT_OK;
}

static void sbit__matmul_run_int(const sbit_op_call *call, const sbit__matmul_plan *plan)
{
    sbit__matmul_int task;
    memset(&task, 0, sizeof task);
    task.a = call->in[0];
    task.b = call->in[1];
    task.y = call->out[0];
    task.n = plan->n;
    task.k = plan->k;
    task.a_row = plan->k;
    task.a_col = 1;
    task.b_row = plan->n;
    task.b_col = 1;
    for (int64_t i = 0; i < plan->batches; i++) {
        int64_t a = 0, b = 0;
        sbit__matmul_index(plan, i, &a, &b);
        task.a_offset = a * plan->m * plan->k;
        task.b_offset = b * plan->k * plan->n;
        task.y_offset = i * plan->m * plan->n;
        sbit__parallel_range(call->ctx, plan->m, 1, sbit__matmul_int_rows, &task);
    }
}

static sbit_status sbit__matmul_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit__matmul_plan *plan = (const sbit__matmul_plan *)call->params;
    if (!sbit__matmul_is_int(call->in[0]->dtype)) {
        return sbit__op_in_float(call, sbit__matmul_run32, sbit__matmul_run64, error);
    }
    if (plan == NULL) {
        return sbit_op_fail(call, SBIT_ERR_STATE, error, "was not prepared");
    }
    if (sbit_tensor_count(call->out[0]) > 0) {
        sbit__matmul_run_int(call, plan);
    }
    return SBIT_OK;
}

static int64_t sbit__matmul_macs(const sbit_op_call *call)
{
    const sbit_type *a = call->in_type[0];
    const int64_t k =
        a->rank > 0 && sbit__dim_known(a->dims[a->rank - 1]) ? a->dims[a->rank - 1].value : 1;
    return sbit__saturating_mul(sbit__type_size(call->out_type[0]), k);
}

/* ---- Gemm */

typedef struct sbit__gemm_params {
    sbit__gemm gemm; /* without operands */
    sbit__epilogue epilogue;
    float beta;
    size_t gemm_scratch; /* what the driver needs; C's copy lies behind it */
} sbit__gemm_params;

/* The operands' sides: rows and columns after transposition. */
static sbit_status sbit__gemm_sides(const sbit_op_call *call, sbit_dim *m, sbit_dim *k, sbit_dim *n,
                                    sbit_error *error)
{
    int32_t rank = -1;
    const bool trans_a = sbit_node_int(call->node, "transA", 0) != 0;
    const bool trans_b = sbit_node_int(call->node, "transB", 0) != 0;
    sbit_dim kb = sbit__dim_any();
    *m = *k = *n = sbit__dim_any();
    for (int32_t i = 0; i < 2; i++) {
        SBIT__TRY(sbit__op_rank(call, i, &rank, error));
        if (rank >= 0 && rank != 2) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "operand %d has rank %d, must be 2",
                                (int)i, (int)rank);
        }
        if (rank == 2 && i == 0) {
            *m = call->in_type[0]->dims[trans_a ? 1 : 0];
            *k = call->in_type[0]->dims[trans_a ? 0 : 1];
        } else if (rank == 2) {
            kb = call->in_type[1]->dims[trans_b ? 1 : 0];
            *n = call->in_type[1]->dims[trans_b ? 0 : 1];
        }
    }
    if (sbit__dim_known(*k) && sbit__dim_known(kb) && k->value != kb.value) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                            "left operand has %lld columns, right operand has %lld rows",
                            (long long)k->value, (long long)kb.value);
    }
    if (!sbit__dim_known(*k)) {
        *k = kb;
    }
    return SBIT_OK;
}

/* C must broadcast to [m, n]. */
static sbit_status sbit__gemm_check_c(const sbit_op_call *call, sbit_dim m, sbit_dim n,
                                      sbit_error *error)
{
    int32_t rank = -1;
    SBIT__TRY(sbit__op_rank(call, 2, &rank, error));
    if (rank > 2) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "C has rank %d, at most 2 is allowed",
                            (int)rank);
    }
    for (int32_t i = 0; i < rank; i++) {
        const sbit_dim have = call->in_type[2]->dims[rank - 1 - i];
        const sbit_dim want = i == 0 ? n : m;
        if (sbit__dim_known(have) && have.value != 1 && sbit__dim_known(want) &&
            have.value != want.value) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "C has %lld %s, the product has %lld",
                                (long long)have.value, i == 0 ? "columns" : "rows",
                                (long long)want.value);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__gemm_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_dim m, k, n;
    SBIT__TRY(sbit__op_inputs(call, 2, sbit__op_is_internal(call) ? 4 : 3, error));
    SBIT__TRY(sbit__op_dtypes(call, 14, 0, error));
    SBIT__TRY(sbit__gemm_sides(call, &m, &k, &n, error));
    SBIT__TRY(sbit__gemm_check_c(call, m, n, error));
    sbit_type *out = sbit__op_out(call, 0, call->in_type[0]->dtype, 2);
    if (out != NULL) {
        out->dims[0] = m;
        out->dims[1] = n;
    }
    out = sbit__op_is_internal(call) ? sbit__op_out(call, 1, call->in_type[0]->dtype, 1) : NULL;
    if (out != NULL) { /* sums of the right operand's columns */
        out->dims[0] = n;
    }
    return sbit__epilogue_check(call, 3, error);
}

/* m, n, k, strides and alpha for the node. */
static sbit_status sbit__gemm_of(const sbit_op_call *call, sbit__gemm *gemm, sbit_error *error)
{
    sbit_dim m, k, n;
    SBIT__TRY(sbit__gemm_sides(call, &m, &k, &n, error));
    SBIT__TRY(sbit__gemm_check_c(call, m, n, error));
    memset(gemm, 0, sizeof *gemm);
    gemm->m = m.value;
    gemm->n = gemm->ldc = n.value;
    gemm->k = k.value;
    gemm->lda = call->in_type[0]->dims[1].value;
    gemm->ldb = call->in_type[1]->dims[1].value;
    gemm->trans_a = sbit_node_int(call->node, "transA", 0) != 0;
    gemm->trans_b = sbit_node_int(call->node, "transB", 0) != 0;
    gemm->alpha = sbit_node_float(call->node, "alpha", 1.0f);
    return SBIT_OK;
}

/* A constant float32 right operand, times alpha. */
static sbit_status sbit__gemm_op_pack(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *b = sbit__in(call, 1);
    const bool trans_b = sbit_node_int(call->node, "transB", 0) != 0;
    if (b == NULL || b->dtype != SBIT_F32 || b->rank != 2 || sbit_tensor_count(b) == 0) {
        return SBIT_OK;
    }
    const int64_t n = b->dims[trans_b ? 0 : 1], k = b->dims[trans_b ? 1 : 0];
    float *packed =
        (float *)call->alloc_packed(call, sbit__gemm_pack_b_bytes(call->ctx, n, k));
    if (packed == NULL) {
        return sbit__op_no_memory(call, error);
    }
    sbit__gemm_pack_b(call->ctx, n, k, (const float *)b->data, b->dims[1], trans_b,
                      sbit_node_float(call->node, "alpha", 1.0f), packed);
    call->release_input(call, 1);
    return SBIT_OK;
}

static sbit_status sbit__gemm_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__gemm gemm;
    int64_t c_count = 0;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__type_static(call->in_type[0]) || !sbit__type_static(call->in_type[1])) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__gemm_of(call, &gemm, error));
    if (!sbit__mul_i64(gemm.m, gemm.n, &c_count) || c_count > INT64_MAX / 64) {
        return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "sizes overflow");
    }
    c_count += gemm.m + gemm.n;
    sbit__gemm_params *params = (sbit__gemm_params *)call->alloc_params(call, sizeof *params);
    if (params == NULL) {
        return sbit__op_no_memory(call, error);
    }
    params->gemm = gemm;
    params->beta = sbit_node_float(call->node, "beta", 1.0f);
    sbit__epilogue_read(call, &params->epilogue);
    if (call->packed != NULL) {
        params->gemm.alpha = gemm.alpha = 1.0f; /* is in the packed operand */
        gemm.packed_b = (const float *)call->packed;
    }
    params->gemm_scratch = sbit__align64(sbit__gemm_scratch_bytes(call->ctx, &gemm));
    *call->scratch_bytes = sbit__op_in_float_scratch(call) + params->gemm_scratch +
                           (sbit__op_has(call, 2) ? (size_t)c_count * sizeof(float) : 0);
    return SBIT_OK;
}

/* Makes beta * C the gemm's bias or residual; `epilogue` is the copy that the gemm uses. */
static void sbit__gemm_add_c(const sbit_tensor *c, float beta, sbit__gemm *gemm,
                             sbit__epilogue *epilogue, float *scratch)
{
    const float *from = (const float *)c->data;
    const int64_t cols = c->rank > 0 ? c->dims[c->rank - 1] : 1;
    const int64_t rows = c->rank > 1 ? c->dims[0] : 1;
    if (beta == 0.0f) { /* C may hold anything then, NaN too */
        return;
    }
    if (rows == 1 || cols == 1) {
        const int64_t n = rows == 1 ? gemm->n : gemm->m;
        const int64_t step = (rows == 1 ? cols : rows) == 1 ? 0 : 1;
        gemm->bias_rows = rows != 1;
        gemm->bias = from;
        if (beta != 1.0f || step == 0) {
            for (int64_t i = 0; i < n; i++) {
                scratch[i] = beta * from[i * step];
            }
            gemm->bias = scratch;
        }
        return;
    }
    if (beta == 1.0f && epilogue->residual == NULL) {
        epilogue->residual = from;
        return;
    }
    for (int64_t i = 0; i < rows * cols; i++) {
        scratch[i] = beta * from[i] + (epilogue->residual != NULL ? epilogue->residual[i] : 0.0f);
    }
    epilogue->residual = scratch;
}

/* Without columns to sum over only C is left. */
static void sbit__gemm_only_c(const sbit_op_call *call, const sbit__gemm *gemm,
                              const sbit__epilogue *epilogue)
{
    for (int64_t i = 0; i < gemm->m; i++) {
        float *row = gemm->c + i * gemm->n;
        for (int64_t j = 0; j < gemm->n; j++) {
            row[j] = gemm->bias != NULL ? gemm->bias[gemm->bias_rows ? i : j] : 0.0f;
        }
        sbit__epilogue_apply(call->kernels, epilogue, i * gemm->n, gemm->n, row);
    }
}

static sbit_status sbit__gemm_run32(const sbit_op_call *call, sbit_error *error)
{
    const sbit__gemm_params *params = (const sbit__gemm_params *)call->params;
    sbit__epilogue epilogue;
    sbit__gemm gemm;
    if (params == NULL) {
        return sbit_op_fail(call, SBIT_ERR_STATE, error, "was not prepared");
    }
    if (sbit_tensor_count(call->out[0]) == 0 && sbit__out(call, 1) == NULL) {
        return SBIT_OK;
    }
    gemm = params->gemm;
    (void)sbit__epilogue_of(call, &params->epilogue, 3, &epilogue);
    gemm.a = (const float *)call->in[0]->data;
    gemm.c = (float *)call->out[0]->data;
    if (call->packed != NULL) {
        gemm.packed_b = (const float *)call->packed;
    } else {
        gemm.b = (const float *)call->in[1]->data;
    }
    if (call->input_count > 2 && call->in[2] != NULL) {
        float *scratch = (float *)(void *)((char *)call->scratch + params->gemm_scratch);
        sbit__gemm_add_c(call->in[2], params->beta, &gemm, &epilogue, scratch);
    }
    gemm.b_sums = sbit__out(call, 1) != NULL ? (float *)call->out[1]->data : NULL;
    if (gemm.k == 0) {
        sbit__gemm_only_c(call, &gemm, &epilogue);
        for (int64_t i = 0; gemm.b_sums != NULL && i < gemm.n; i++) {
            gemm.b_sums[i] = 0.0f;
        }
        return SBIT_OK;
    }
    gemm.epilogue = &epilogue;
    sbit__gemm_run(call->ctx, &gemm, call->scratch);
    return SBIT_OK;
}

static sbit_status sbit__gemm_run64(const sbit_op_call *call, sbit_error *error)
{
    const double alpha = (double)sbit_node_float(call->node, "alpha", 1.0f);
    const double beta = (double)sbit_node_float(call->node, "beta", 1.0f);
    const sbit_tensor *c = call->input_count > 2 && beta != 0.0 ? call->in[2] : NULL;
    sbit__f64_gemm task;
    sbit__gemm gemm;
    SBIT__TRY(sbit__gemm_of(call, &gemm, error));
    task.m = gemm.m;
    task.n = task.ldc = gemm.n;
    task.k = gemm.k;
    task.a = (const double *)call->in[0]->data;
    task.b = (const double *)call->in[1]->data;
    task.c = (double *)call->out[0]->data;
    task.a_row = gemm.trans_a ? 1 : gemm.lda;
    task.a_col = gemm.trans_a ? gemm.lda : 1;
    task.b_row = gemm.trans_b ? 1 : gemm.ldb;
    task.b_col = gemm.trans_b ? gemm.ldb : 1;
    sbit__f64_gemm_run(call->ctx, &task);
    const int64_t cols = c != NULL && c->rank > 0 ? c->dims[c->rank - 1] : 1;
    const int64_t rows = c != NULL && c->rank > 1 ? c->dims[0] : 1;
    for (int64_t i = 0; i < gemm.m * gemm.n; i++) {
        const int64_t at = (rows == 1 ? 0 : i / gemm.n * cols) + (cols == 1 ? 0 : i % gemm.n);
        const double add = c != NULL ? beta * ((const double *)c->data)[at] : 0.0;
        task.c[i] = alpha * task.c[i] + add;
    }
    return SBIT_OK;
}

static sbit_status sbit__gemm_run_int(const sbit_op_call *call, sbit_error *error)
{
    sbit__matmul_int task;
    sbit__gemm gemm;
    const float alpha = sbit_node_float(call->node, "alpha", 1.0f);
    const float beta = sbit_node_float(call->node, "beta", 1.0f);
    const sbit_tensor *c = call->input_count > 2 ? call->in[2] : NULL;
    sbit_tensor *y = call->out[0];
    if (sbit_tensor_count(y) == 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__gemm_of(call, &gemm, error));
    memset(&task, 0, sizeof task);
    task.a = call->in[0];
    task.b = call->in[1];
    task.y = y;
    task.n = gemm.n;
    task.k = gemm.k;
    task.a_row = gemm.trans_a ? 1 : gemm.lda;
    task.a_col = gemm.trans_a ? gemm.lda : 1;
    task.b_row = gemm.trans_b ? 1 : gemm.ldb;
    task.b_col = gemm.trans_b ? gemm.ldb : 1;
    sbit__parallel_range(call->ctx, gemm.m, 1, sbit__matmul_int_rows, &task);
    const int64_t cols = c != NULL && c->rank > 0 ? c->dims[c->rank - 1] : 1;
    const int64_t rows = c != NULL && c->rank > 1 ? c->dims[0] : 1;
    for (int64_t i = 0; i < gemm.m * gemm.n; i++) {
        const int64_t at = (rows == 1 ? 0 : i / gemm.n * cols) + (cols == 1 ? 0 : i % gemm.n);
        if (alpha == 1.0f && (beta == 1.0f || c == NULL)) {
            const uint64_t add = c != NULL ? sbit__matmul_load(c, at) : 0;
            sbit__matmul_store(y, i, sbit__matmul_load(y, i) + add);
            continue;
        }
        const double add = c != NULL ? (double)beta * sbit__tensor_f64_at(c, at) : 0.0;
        sbit__tensor_set_f64(y, i, (double)alpha * sbit__tensor_f64_at(y, i) + add);
    }
    return SBIT_OK;
}

static sbit_status sbit__gemm_op_run(const sbit_op_call *call, sbit_error *error)
{
    if (sbit__matmul_is_int(call->in[0]->dtype)) {
        return sbit__gemm_run_int(call, error);
    }
    return sbit__op_in_float(call, sbit__gemm_run32, sbit__gemm_run64, error);
}

static int64_t sbit__gemm_macs(const sbit_op_call *call)
{
    const sbit_type *a = call->in_type[0];
    const int32_t axis = sbit_node_int(call->node, "transA", 0) != 0 ? 0 : 1;
    const int64_t k = a->rank == 2 && sbit__dim_known(a->dims[axis]) ? a->dims[axis].value : 1;
    return sbit__saturating_mul(sbit__type_size(call->out_type[0]), k);
}

/* ---- channels */

/* Input 0 times a constant matrix: its rows (axis `made`) are the output's channels, its columns
 * (axis `read`) those of input 0's last axis. */
static sbit_status sbit__matmul_label_weight(const sbit_channel_call *call, int32_t read,
                                             int32_t made, const int32_t **rows, sbit_error *error)
{
    const int32_t *x = NULL, *columns = NULL;
    const sbit_type *w = call->op->in_type[1];
    SBIT__TRY(call->labels(call, 0, call->op->in_type[0]->rank - 1, 1, SBIT_ROLE_PARAM, &x, error));
    SBIT__TRY(call->labels(call, 1, read, 1, SBIT_ROLE_COLUMNS, &columns, error));
    for (int64_t i = 0; i < w->dims[read].value; i++) {
        call->join(call, x[i], columns[i]);
    }
    return call->labels(call, 1, made, 1, SBIT_ROLE_ROWS, rows, error);
}

static sbit_status sbit__matmul_label(const sbit_channel_call *call, sbit_error *error)
{
    const sbit_type *y = call->op->out_type[0];
    const int32_t *rows = NULL;
    if (!call->is_constant(call, 0) && !call->is_constant(call, 1)) {
        return call->contract(call, error);
    }
    if (call->is_constant(call, 0) || call->op->in_type[1]->rank != 2) {
        return call->stop(call, "has a constant that is no matrix behind an activation", error);
    }
    SBIT__TRY(sbit__matmul_label_weight(call, 0, 1, &rows, error));
    return call->produce(call, 0, y->rank - 1, rows, error);
}

static sbit_status sbit__gemm_label(const sbit_channel_call *call, sbit_error *error)
{
    const sbit_type *c = sbit__op_has(call->op, 2) ? call->op->in_type[2] : NULL;
    const int32_t made = sbit_node_int(call->op->node, "transB", 0) != 0 ? 0 : 1;
    const int64_t n = call->op->in_type[1]->dims[made].value;
    const int32_t *rows = NULL, *bias = NULL;
    if (call->is_constant(call, 0) || !call->is_constant(call, 1) ||
        sbit_node_int(call->op->node, "transA", 0) != 0) {
        return call->stop(call, "is no activation times a constant matrix", error);
    }
    const bool wide = c != NULL && c->rank > 0 && c->dims[c->rank - 1].value == n && n > 1;
    if (c != NULL && !wide && sbit__type_size(c) != 1) {
        return call->stop(call, "adds one number a row", error);
    }
    SBIT__TRY(sbit__matmul_label_weight(call, 1 - made, made, &rows, error));
    if (wide) {
        SBIT__TRY(call->labels(call, 2, c->rank - 1, 1, SBIT_ROLE_BIAS, &bias, error));
        for (int64_t i = 0; i < n; i++) {
            call->join(call, rows[i], bias[i]);
        }
    }
    return call->produce(call, 0, 1, rows, error);
}

/* ---- rows */

static const sbit_op_quant sbit__gemm_quant = {
    SBIT_QUANT_INPUTS | SBIT_QUANT_OUTPUT, 1, 1, -1, 2, 1, 0, "transB", 0, 0};
static const sbit_op_quant sbit__matmul_quant = {
    SBIT_QUANT_INPUTS | SBIT_QUANT_OUTPUT, 3, 1, -1, -1, -1, -2, NULL, 0, 0};
static const sbit_op_channel sbit__matmul_channel = {SBIT_CHANNEL_OWN,  3, 0, 0, 0,
                                                     sbit__matmul_label};
static const sbit_op_channel sbit__gemm_channel = {SBIT_CHANNEL_OWN, 1, 0, 0, 0, sbit__gemm_label};

#define SBIT__MATMUL_T9 (SBIT__T_FLOATS1 | SBIT__T_WORDS)
#define SBIT__MATMUL_ROW(domain, version, types)                                                   \
    {                                                                                              \
        domain, "MatMul", version, types, 0, sbit__matmul_pack, sbit__matmul_infer,                \
            sbit__matmul_prepare, sbit__matmul_run, sbit__grad_matmul, NULL, &sbit__matmul_quant,  \
            &sbit__matmul_channel, sbit__matmul_macs                                               \
    }
#define SBIT__GEMM_ROW(domain, version, types)                                                     \
    {                                                                                              \
        domain, "Gemm", version, types, 0, sbit__gemm_op_pack, sbit__gemm_infer,                   \
            sbit__gemm_prepare, sbit__gemm_op_run, sbit__grad_gemm, NULL, &sbit__gemm_quant,       \
            &sbit__gemm_channel, sbit__gemm_macs                                                   \
    }

static const sbit_op_row sbit__matmul_rows[] = {
    SBIT__MATMUL_ROW("", 1, SBIT__T_FLOATS1),
    SBIT__MATMUL_ROW("", 9, SBIT__MATMUL_T9),
    SBIT__MATMUL_ROW("", 13, SBIT__MATMUL_T9 | SBIT_T(SBIT_BF16)),
    SBIT__GEMM_ROW("", 1, SBIT__T_FLOATS1),
    SBIT__GEMM_ROW("", 6, SBIT__T_FLOATS1),
    SBIT__GEMM_ROW("", 7, SBIT__T_FLOATS1),
    SBIT__GEMM_ROW("", 9, SBIT__MATMUL_T9),
    SBIT__GEMM_ROW("", 11, SBIT__MATMUL_T9),
    SBIT__GEMM_ROW("", 13, SBIT__MATMUL_T9 | SBIT_T(SBIT_BF16)),
    SBIT__MATMUL_ROW("sbit", 1, SBIT_T(SBIT_F32)),
    SBIT__GEMM_ROW("sbit", 1, SBIT_T(SBIT_F32)),
};

#undef SBIT__MATMUL_T9
#undef SBIT__MATMUL_ROW
#undef SBIT__GEMM_ROW

SBIT__FN const sbit_op_row *sbit__op_rows_matmul(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__matmul_rows);
    return sbit__matmul_rows;
}
