/* reduce.c: reductions over axes, ArgMax, ArgMin, running sums and products, TopK. >>reduce
 *
 * Called by: exec through the rows. Calls: kernels (f32_sum, f32_dot, f32_max), libm.
 * Does: all numeric types; axes as attribute or input; empty sets; followed integers.
 * How: axes of 1 are dropped and neighbours of the same kind merged, so that the last run of
 * elements is either reduced (one result per row) or kept (a chunk of results at once). Sums are
 * taken in double (float32 rows: by kernels), integers in 64 bits, wrapping; the order of
 * summation depends on the shape only, never on the number of threads.
 */
#include "elements_private.h"
#include "gradient_private.h"

#include <math.h> /* sqrt, log, exp, fabs, INFINITY */

#define SBIT__REDUCE_CHUNK 96 /* elements at a time, on the stack */
#define SBIT__REDUCE_AT_ONCE 8 /* float32 rows that are added in float32 */
#define SBIT__CUM_CHUNK 48    /* in four arrays */

typedef enum sbit__reduce_op {
    SBIT__REDUCE_SUM,
    SBIT__REDUCE_MEAN,
    SBIT__REDUCE_MAX,
    SBIT__REDUCE_MIN,
    SBIT__REDUCE_PROD,
    SBIT__REDUCE_L1,
    SBIT__REDUCE_L2,
    SBIT__REDUCE_LOG_SUM,
    SBIT__REDUCE_LOG_SUM_EXP,
    SBIT__REDUCE_SUM_SQUARE
} sbit__reduce_op;

/* >>axes */

static bool sbit__reduce_axes_are_input(const sbit_op_call *call)
{
    const bool is_sum = strcmp(call->row->op_type, "ReduceSum") == 0;
    return call->row->since_version >= (is_sum ? 13 : 18);
}

/* Which axes are reduced. *known false: they are computed; *count then says how many, or -1. */
static sbit_status sbit__reduce_axes_of(const sbit_op_call *call, int32_t rank,
                                        bool flags[SBIT_MAX_RANK], bool *known, int64_t *count,
                                        sbit_error *error)
{
    int64_t axes[SBIT_MAX_RANK];
    const bool is_input = sbit__reduce_axes_are_input(call);
    const bool noop = is_input && sbit_node_int(call->node, "noop_with_empty_axes", 0) != 0;
    const sbit_type *input = is_input ? sbit__in_type(call, 1) : NULL;
    SBIT__TRY(sbit__op_ints(call, is_input ? NULL : "axes", is_input ? 1 : -1, axes, SBIT_MAX_RANK,
                            count, error));
    *known = *count >= 0 || input == NULL;
    memset(flags, 0, SBIT_MAX_RANK * sizeof flags[0]);
    if (!*known) {
        *count = input->rank == 1 && sbit__dim_known(input->dims[0]) ? input->dims[0].value : -1;
        return SBIT_OK;
    }
    for (int64_t i = 0; i < *count; i++) {
        int32_t axis = 0;
        SBIT__TRY(sbit__op_axis(call, axes[i], rank, &axis, error));
        flags[axis] = true;
    }
    for (int32_t i = 0; *count <= 0 && !noop && i < rank; i++) {
        flags[i] = true;
    }
    return SBIT_OK;
}

static void sbit__reduce_shape(const sbit_type *x, const bool *flags, bool keep, sbit_type *out)
{
    out->rank = 0;
    for (int32_t i = 0; i < x->rank; i++) {
        if (!flags[i] || keep) {
            out->dims[out->rank++] = flags[i] ? sbit__dim(1) : x->dims[i];
        }
    }
}

/* >>infer */

static void sbit__reduce_elems(const sbit_op_call *call, sbit__reduce_op op)
{
    sbit_dim elems[SBIT__ELEMS_MAX];
    int64_t count = 0;
    if (op > SBIT__REDUCE_PROD || op == SBIT__REDUCE_MEAN ||
        !sbit__op_elems(call, 0, elems, SBIT__ELEMS_MAX, &count) || count == 0) {
        return;
    }
    for (int64_t i = 1; i < count; i++) {
        const bool known = sbit__dim_known(elems[0]) && sbit__dim_known(elems[i]);
        const bool above = known && elems[i].value > elems[0].value;
        if (op == SBIT__REDUCE_SUM) {
            elems[0] = sbit__dim_add(elems[0], elems[i]);
        } else if (op == SBIT__REDUCE_PROD) {
            elems[0] = sbit__dim_mul(elems[0], elems[i]);
        } else if (known) {
            elems[0] = above == (op == SBIT__REDUCE_MAX) ? elems[i] : elems[0];
        } else if (!sbit__dim_equal(elems[0], elems[i])) {
            elems[0] = sbit__dim_any();
        }
    }
    sbit__op_set_elems(call, 0, elems, 1);
}

static sbit_status sbit__reduce_infer_op(const sbit_op_call *call, sbit__reduce_op op,
                                         sbit_error *error)
{
    const bool keep = sbit_node_int(call->node, "keepdims", 1) != 0;
    bool flags[SBIT_MAX_RANK], known = false;
    int64_t count = -1;
    SBIT__TRY(sbit__op_inputs(call, 1, sbit__reduce_axes_are_input(call) ? 2 : 1, error));
    const sbit_type *x = call->in_type[0];
    sbit_type *out = sbit__op_out(call, 0, x->dtype, -1);
    if (out == NULL || x->rank < 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__reduce_axes_of(call, x->rank, flags, &known, &count, error));
    if (known) {
        sbit__reduce_shape(x, flags, keep, out);
        if (x->rank == 1 && flags[0]) {
            sbit__reduce_elems(call, op);
        }
    } else if (keep) {
        out->rank = x->rank;
    } else if (count > 0 && count <= x->rank) {
        out->rank = x->rank - (int32_t)count;
    }
    return SBIT_OK;
}

/* >>loops */

typedef struct sbit__reduce_dims {
    int32_t count;
    int64_t dims[SBIT_MAX_RANK], strides[SBIT_MAX_RANK];
    int64_t total;
} sbit__reduce_dims;

typedef struct sbit__reduce_task {
    const sbit_kernels *kernels;
    sbit__reduce_op op;
    const sbit_tensor *x;
    sbit_tensor *y;
    sbit__reduce_dims kept, reduced; /* without the last run */
    bool row_kept;                   /* the last run of elements is kept, not reduced */
    int64_t row;                     /* its length */
    int64_t chunks;                  /* of a kept run */
    int64_t set;                     /* elements that make one result */
    bool integers, is_unsigned;
} sbit__reduce_task;

static int64_t sbit__reduce_offset(const sbit__reduce_dims *dims, int64_t index)
{
    int64_t at = 0;
    for (int32_t d = dims->count - 1; d >= 0; d--) {
        at += (index % dims->dims[d]) * dims->strides[d];
        index /= dims->dims[d];
    }
    return at;
}

/* Merges axes into runs of kept and reduced ones, and takes off the last run. */
static void sbit__reduce_runs(const sbit_tensor *x, const bool *flags, sbit__reduce_task *task)
{
    sbit__reduce_dims *last = NULL;
    int64_t strides[SBIT_MAX_RANK];
    sbit__tensor_strides(x, strides);
    task->kept.total = task->reduced.total = 1;
    for (int32_t i = 0; i < x->rank; i++) {
        sbit__reduce_dims *dims = flags[i] ? &task->reduced : &task->kept;
        dims->total *= x->dims[i];
        if (x->dims[i] == 1) {
            continue;
        }
        dims->count += dims == last ? 0 : 1;
        dims->dims[dims->count - 1] =
            dims == last ? dims->dims[dims->count - 1] * x->dims[i] : x->dims[i];
        dims->strides[dims->count - 1] = strides[i];
        last = dims;
    }
    task->set = task->reduced.total;
    task->row_kept = last == &task->kept;
    task->row = last != NULL ? last->dims[last->count - 1] : 1;
    if (last != NULL) {
        last->count--;
    }
    last = task->row_kept ? &task->kept : &task->reduced;
    last->total = 1;
    for (int32_t d = 0; d < last->count; d++) {
        last->total *= last->dims[d];
    }
    task->chunks = task->row_kept ? (task->row + SBIT__REDUCE_CHUNK - 1) / SBIT__REDUCE_CHUNK : 1;
}

/* >>accumulators: acc[i * step] takes in v[i]; step 0 or 1 */

#define SBIT__REDUCE_LOOP(expr)                                                                    \
    for (int64_t i = 0; i < n; i++) {                                                              \
        const double a = acc[i * step];                                                            \
        acc[i * step] = (expr);                                                                    \
    }                                                                                              \
    break;

static void sbit__reduce_f64(sbit__reduce_op op, int64_t n, const double *v, double *acc,
                             int64_t step, const double *shift)
{
    switch (op) {
    case SBIT__REDUCE_MAX:
        SBIT__REDUCE_LOOP(v[i] > a || v[i] != v[i] ? v[i] : a)
    case SBIT__REDUCE_MIN:
        SBIT__REDUCE_LOOP(v[i] < a || v[i] != v[i] ? v[i] : a)
    case SBIT__REDUCE_PROD:
        SBIT__REDUCE_LOOP(a * v[i])
    case SBIT__REDUCE_L1:
        SBIT__REDUCE_LOOP(a + fabs(v[i]))
    case SBIT__REDUCE_L2:
    case SBIT__REDUCE_SUM_SQUARE:
        SBIT__REDUCE_LOOP(a + v[i] * v[i])
    case SBIT__REDUCE_LOG_SUM_EXP:
        SBIT__REDUCE_LOOP(a + exp(v[i] - shift[i * step]))
    default:
        SBIT__REDUCE_LOOP(a + v[i])
    }
}
#undef SBIT__REDUCE_LOOP

static void sbit__reduce_i64(sbit__reduce_op op, bool is_unsigned, int64_t n, const int64_t *v,
                             int64_t *acc, int64_t step)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t a = acc[i * step];
        const uint64_t x = (uint64_t)v[i], size = v[i] < 0 && !is_unsigned ? 0u - x : x;
        const bool above = is_unsigned ? x > (uint64_t)a : v[i] > a;
        switch (op) {
        case SBIT__REDUCE_MAX:
            acc[i * step] = above ? v[i] : a;
            break;
        case SBIT__REDUCE_MIN:
            acc[i * step] = above ? a : v[i];
            break;
        case SBIT__REDUCE_PROD:
            acc[i * step] = (int64_t)((uint64_t)a * x);
            break;
        case SBIT__REDUCE_L1:
            acc[i * step] = (int64_t)((uint64_t)a + size);
            break;
        case SBIT__REDUCE_L2:
        case SBIT__REDUCE_SUM_SQUARE:
            acc[i * step] = (int64_t)((uint64_t)a + x * x);
            break;
        default:
            acc[i * step] = (int64_t)((uint64_t)a + x);
            break;
        }
    }
}

static double sbit__reduce_start_f64(sbit__reduce_op op)
{
    return op == SBIT__REDUCE_PROD  ? 1.0
           : op == SBIT__REDUCE_MAX ? -(double)INFINITY
           : op == SBIT__REDUCE_MIN ? (double)INFINITY
                                    : 0.0;
}

/* The smallest or largest number of an integer type, for the maximum of nothing. */
static int64_t sbit__reduce_limit(sbit_dtype dtype, bool largest)
{
    const int bits = dtype == SBIT_BOOL ? 1 : sbit_dtype_bits((int32_t)dtype);
    const bool is_unsigned = dtype == SBIT_BOOL || (SBIT_T(dtype) & SBIT_T_UNSIGNED) != 0;
    const uint64_t ones = UINT64_MAX >> (64 - (is_unsigned ? bits : bits - 1));
    if (largest) {
        return (int64_t)ones;
    }
    return is_unsigned ? 0 : -(int64_t)ones - 1;
}

static int64_t sbit__reduce_start_i64(sbit__reduce_op op, sbit_dtype dtype)
{
    return op == SBIT__REDUCE_PROD ? 1
           : op == SBIT__REDUCE_MAX || op == SBIT__REDUCE_MIN
               ? sbit__reduce_limit(dtype, op == SBIT__REDUCE_MIN)
               : 0;
}

static double sbit__reduce_end_f64(sbit__reduce_op op, double acc, int64_t set, double shift)
{
    switch (op) {
    case SBIT__REDUCE_MEAN:
        return acc / (double)set;
    case SBIT__REDUCE_L2:
        return sqrt(acc);
    case SBIT__REDUCE_LOG_SUM:
        return log(acc);
    case SBIT__REDUCE_LOG_SUM_EXP:
        return shift + log(acc);
    default:
        return acc;
    }
}

static int64_t sbit__reduce_end_i64(const sbit__reduce_task *task, int64_t acc)
{
    double value = task->is_unsigned ? (double)(uint64_t)acc : (double)acc;
    if (task->op == SBIT__REDUCE_MEAN) {
        return task->set == 0      ? 0
               : task->is_unsigned ? (int64_t)((uint64_t)acc / (uint64_t)task->set)
                                   : acc / task->set;
    }
    if (task->op != SBIT__REDUCE_L2 && task->op != SBIT__REDUCE_LOG_SUM) {
        return acc;
    }
    value = sbit__reduce_end_f64(task->op, value, task->set, 0.0);
    sbit__convert(SBIT_F64, &value, SBIT_I64, &acc, 1);
    return acc;
}

/* >>one result, or a chunk of neighbours: `n` results whose sets begin at `base` */

/* Takes `op` over the sets; a second pass of LogSumExp needs the maxima in `shift`. */
static void sbit__reduce_pass_f64(const sbit__reduce_task *task, sbit__reduce_op op, int64_t base,
                                  int64_t n, double *acc, const double *shift)
{
    const sbit_dtype dtype = task->x->dtype;
    double chunk[SBIT__REDUCE_CHUNK];
    for (int64_t i = 0; i < n; i++) {
        acc[i] = sbit__reduce_start_f64(op);
    }
    for (int64_t r = 0; r < task->reduced.total; r++) {
        const int64_t from = base + sbit__reduce_offset(&task->reduced, r);
        const int64_t length = task->row_kept ? n : task->row;
        for (int64_t at = 0; at < length; at += SBIT__REDUCE_CHUNK) {
            const int64_t m = length - at < SBIT__REDUCE_CHUNK ? length - at : SBIT__REDUCE_CHUNK;
            sbit__convert(dtype, sbit__elem_at_const(dtype, task->x->data, from + at), SBIT_F64,
                          chunk, m);
            sbit__reduce_f64(op, m, chunk, acc, task->row_kept ? 1 : 0, shift);
        }
    }
}

static void sbit__reduce_store_f64(const sbit__reduce_task *task, int64_t base, int64_t n,
                                   int64_t to)
{
    double acc[SBIT__REDUCE_CHUNK], shift[SBIT__REDUCE_CHUNK];
    const sbit_dtype dtype = task->y->dtype;
    memset(shift, 0, sizeof shift);
    if (task->op == SBIT__REDUCE_LOG_SUM_EXP) {
        sbit__reduce_pass_f64(task, SBIT__REDUCE_MAX, base, n, shift, NULL);
        for (int64_t i = 0; i < n; i++) { /* infinite maxima are what the sum gives by itself */
            shift[i] = shift[i] - shift[i] == 0.0 ? shift[i] : 0.0;
        }
    }
    sbit__reduce_pass_f64(task, task->op, base, n, acc, shift);
    for (int64_t i = 0; i < n; i++) {
        acc[i] = sbit__reduce_end_f64(task->op, acc[i], task->set, shift[i]);
    }
    sbit__convert(SBIT_F64, acc, dtype, sbit__elem_at(dtype, task->y->data, to), n);
}

static void sbit__reduce_store_i64(const sbit__reduce_task *task, int64_t base, int64_t n,
                                   int64_t to)
{
    int64_t acc[SBIT__REDUCE_CHUNK], chunk[SBIT__REDUCE_CHUNK];
    const sbit_dtype dtype = task->x->dtype;
    for (int64_t i = 0; i < n; i++) {
        acc[i] = sbit__reduce_start_i64(task->op, dtype);
    }
    for (int64_t r = 0; r < task->reduced.total; r++) {
        const int64_t from = base + sbit__reduce_offset(&task->reduced, r);
        const int64_t length = task->row_kept ? n : task->row;
        for (int64_t at = 0; at < length; at += SBIT__REDUCE_CHUNK) {
            const int64_t m = length - at < SBIT__REDUCE_CHUNK ? length - at : SBIT__REDUCE_CHUNK;
            sbit__convert(dtype, sbit__elem_at_const(dtype, task->x->data, from + at), SBIT_I64,
                          chunk, m);
            sbit__reduce_i64(task->op, task->is_unsigned, m, chunk, acc, task->row_kept ? 1 : 0);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        acc[i] = sbit__reduce_end_i64(task, acc[i]);
    }
    sbit__convert(SBIT_I64, acc, dtype, sbit__elem_at(dtype, task->y->data, to), n);
}

/* A float32 row that is reduced; false if there is no kernel for the operation, or float32 was too
 * small for what is on the way to the result. */
static bool sbit__reduce_store_f32(const sbit__reduce_task *task, int64_t base, int64_t to)
{
    const float *x = (const float *)task->x->data + base;
    const sbit__reduce_op op = task->op;
    double acc = op == SBIT__REDUCE_MAX ? -(double)INFINITY : 0.0;
    const bool sum = op == SBIT__REDUCE_SUM || op == SBIT__REDUCE_MEAN;
    const bool square = op == SBIT__REDUCE_L2 || op == SBIT__REDUCE_SUM_SQUARE;
    if (task->x->dtype != SBIT_F32 || task->row_kept || task->row == 0 ||
        (!sum && !square && op != SBIT__REDUCE_MAX)) {
        return false;
    }
    for (int64_t r = 0; r < task->reduced.total; r++) {
        const float *row = x + sbit__reduce_offset(&task->reduced, r);
        if (op == SBIT__REDUCE_MAX) {
            const double most = (double)task->kernels->f32_max(task->row, row);
            acc = most > acc || most != most ? most : acc;
        } else {
            acc += (double)(sum ? task->kernels->f32_sum(task->row, row)
                                : task->kernels->f32_dot(task->row, row, row));
        }
    }
    ((float *)task->y->data)[to] = (float)sbit__reduce_end_f64(op, acc, task->set, 0.0);
    return op == SBIT__REDUCE_MAX || acc - acc == 0.0;
}

/* The same of a chunk that is kept: rows are taken in one by one. */
static bool sbit__reduce_store_kept_f32(const sbit__reduce_task *task, int64_t base, int64_t n,
                                        int64_t to)
{
    const sbit__reduce_op op = task->op;
    const bool sum = op == SBIT__REDUCE_SUM || op == SBIT__REDUCE_MEAN;
    const bool most = op == SBIT__REDUCE_MAX || op == SBIT__REDUCE_MIN;
    double acc[SBIT__REDUCE_CHUNK];
    float part[SBIT__REDUCE_CHUNK]; /* floats of a few rows, then doubles */
    float *y = (float *)task->y->data + to;
    if (task->x->dtype != SBIT_F32 || !task->row_kept || task->set == 0 || (!sum && !most)) {
        return false;
    }
    memset(acc, 0, (size_t)n * sizeof acc[0]);
    for (int64_t r = 0; r < task->reduced.total; r++) {
        const float *row =
            (const float *)task->x->data + base + sbit__reduce_offset(&task->reduced, r);
        if (most && r == 0) {
            memcpy(y, row, (size_t)n * sizeof *y);
        } else if (most) {
            task->kernels->f32_binary(op == SBIT__REDUCE_MAX ? SBIT__BINARY_MAX : SBIT__BINARY_MIN,
                                      n, row, 1, y, 1, y);
        }
        if (sum && r % SBIT__REDUCE_AT_ONCE == 0) {
            memcpy(part, row, (size_t)n * sizeof *part);
        } else if (sum) {
            task->kernels->f32_binary(SBIT__BINARY_ADD, n, row, 1, part, 1, part);
        }
        const bool flush = r % SBIT__REDUCE_AT_ONCE == SBIT__REDUCE_AT_ONCE - 1 ||
                           r == task->reduced.total - 1;
        for (int64_t i = 0; sum && flush && i < n; i++) {
            acc[i] += (double)part[i];
        }
    }
    bool fits = true;
    for (int64_t i = 0; sum && i < n; i++) {
        y[i] = (float)sbit__reduce_end_f64(op, acc[i], task->set, 0.0);
        fits = fits && acc[i] - acc[i] == 0.0;
    }
    return fits;
}

static void sbit__reduce_range(void *data, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__reduce_task *task = (const sbit__reduce_task *)data;
    (void)worker;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t outer = unit / task->chunks;
        const int64_t first = (unit % task->chunks) * SBIT__REDUCE_CHUNK;
        const int64_t left = task->row_kept ? task->row - first : 1;
        const int64_t n = left < SBIT__REDUCE_CHUNK ? left : SBIT__REDUCE_CHUNK;
        const int64_t base = sbit__reduce_offset(&task->kept, outer) + first;
        const int64_t to = task->row_kept ? outer * task->row + first : outer;
        if (task->integers) {
            sbit__reduce_store_i64(task, base, n, to);
        } else if (!sbit__reduce_store_f32(task, base, to) &&
                   !sbit__reduce_store_kept_f32(task, base, n, to)) {
            sbit__reduce_store_f64(task, base, n, to);
        }
    }
}

/* Reduces the axes of `flags` into y, whose elements lie in the order of the axes that are kept. */
static void sbit__reduce_all(const sbit_op_call *call, sbit__reduce_op op, const sbit_tensor *x,
                             const bool flags[SBIT_MAX_RANK], sbit_tensor *y)
{
    sbit__reduce_task task;
    memset(&task, 0, sizeof task);
    task.kernels = call->kernels;
    task.op = op;
    task.x = x;
    task.y = y;
    task.integers = (SBIT_T(x->dtype) & SBIT_T_FLOATS) == 0 && op != SBIT__REDUCE_LOG_SUM_EXP;
    task.is_unsigned = (SBIT_T(x->dtype) & (SBIT_T_UNSIGNED | SBIT_T(SBIT_BOOL))) != 0;
    sbit__reduce_runs(x, flags, &task);
    sbit__parallel_range(
        call->ctx, task.kept.total * task.chunks,
        1 + 4 * SBIT__BLOCK /
                (1 + task.reduced.total * (task.row_kept ? SBIT__REDUCE_CHUNK : task.row)),
        sbit__reduce_range, &task);
}

static sbit_status sbit__reduce_run_op(const sbit_op_call *call, sbit__reduce_op op,
                                       sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    const sbit_type x_type = sbit__type_of_tensor(x);
    const bool keep = sbit_node_int(call->node, "keepdims", 1) != 0;
    bool flags[SBIT_MAX_RANK], known = false;
    int64_t count = 0;
    sbit_type type = sbit__type_unknown();
    sbit_tensor *y = NULL;
    SBIT__TRY(sbit__reduce_axes_of(call, x->rank, flags, &known, &count, error));
    if (!known) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error, "axes must be a list of integers");
    }
    type.dtype = x->dtype;
    sbit__reduce_shape(&x_type, flags, keep, &type);
    SBIT__TRY(sbit__op_output_type(call, 0, &type, &y, error));
    if (y != NULL && sbit_tensor_count(y) > 0) {
        sbit__reduce_all(call, op, x, flags, y);
    }
    return SBIT_OK;
}

#define SBIT__REDUCE_DEFINE(name, op)                                                              \
    static sbit_status sbit__reduce_##name##_infer(const sbit_op_call *call, sbit_error *error)    \
    {                                                                                              \
        return sbit__reduce_infer_op(call, op, error);                                             \
    }                                                                                              \
    static sbit_status sbit__reduce_##name##_run(const sbit_op_call *call, sbit_error *error)      \
    {                                                                                              \
        return sbit__reduce_run_op(call, op, error);                                               \
    }
SBIT__REDUCE_DEFINE(sum, SBIT__REDUCE_SUM)
SBIT__REDUCE_DEFINE(mean, SBIT__REDUCE_MEAN)
SBIT__REDUCE_DEFINE(max, SBIT__REDUCE_MAX)
SBIT__REDUCE_DEFINE(min, SBIT__REDUCE_MIN)
SBIT__REDUCE_DEFINE(prod, SBIT__REDUCE_PROD)
SBIT__REDUCE_DEFINE(l1, SBIT__REDUCE_L1)
SBIT__REDUCE_DEFINE(l2, SBIT__REDUCE_L2)
SBIT__REDUCE_DEFINE(log_sum, SBIT__REDUCE_LOG_SUM)
SBIT__REDUCE_DEFINE(log_sum_exp, SBIT__REDUCE_LOG_SUM_EXP)
SBIT__REDUCE_DEFINE(sum_square, SBIT__REDUCE_SUM_SQUARE)
#undef SBIT__REDUCE_DEFINE

/* Axes that are reduced mix their channels. */
static sbit_status sbit__reduce_label(const sbit_channel_call *call, sbit_error *error)
{
    const sbit_type *x = call->op->in_type[0];
    bool flags[SBIT_MAX_RANK], known = false;
    int64_t count = 0;
    uint32_t mixed = 0;
    SBIT__TRY(sbit__reduce_axes_of(call->op, x->rank, flags, &known, &count, error));
    for (int32_t i = 0; i < x->rank; i++) {
        mixed |= flags[i] ? 1u << (uint32_t)i : 0u;
    }
    return known ? call->pass(call, mixed, "reduces over the channels", error)
                 : call->stop(call, "reduces axes that are known only while running", error);
}

/* >>ReduceTo (domain sbit): the sum over what broadcasting the shape of input 1 to input 0 spreads;
 * attribute align: the axis of input 0 that the shape begins at (-1: it ends where input 0 ends) */

static sbit_status sbit__reduce_to_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    return sbit__grad_infer_shape(call, 1, error);
}

static sbit_status sbit__reduce_to_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    int64_t dims[SBIT_MAX_RANK], align = sbit_node_int(call->node, "align", -1);
    bool flags[SBIT_MAX_RANK];
    int32_t rank = 0;
    sbit_tensor *y = NULL;
    SBIT__TRY(sbit__grad_dims(call, 1, &rank, dims, error));
    SBIT__TRY(sbit__op_output(call, 0, x->dtype, rank, dims, &y, error));
    align = align < 0 ? x->rank - rank : align;
    for (int32_t i = 0; i < x->rank; i++) {
        const int64_t at = i - align;
        const int64_t dim = at >= 0 && at < rank ? dims[at] : 1;
        flags[i] = dim != x->dims[i];
        if (align < 0 || align + rank > x->rank || (flags[i] && dim != 1)) {
            return sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                                "the shape does not broadcast to that of input 0");
        }
    }
    if (y != NULL && sbit_tensor_count(y) > 0) {
        sbit__reduce_all(call, SBIT__REDUCE_SUM, x, flags, y);
    }
    return SBIT_OK;
}

/* >>along one axis: outer x size x inner, `inner` elements at a time in chunks */

typedef struct sbit__along {
    const sbit_tensor *x;
    int64_t outer, size, inner;
} sbit__along;

static sbit__along sbit__along_axis(const sbit_tensor *x, int32_t axis)
{
    sbit__along along;
    along.x = x;
    along.outer = sbit__dims_product(x->dims, 0, axis);
    along.size = x->dims[axis];
    along.inner = sbit__dims_product(x->dims, axis + 1, x->rank);
    return along;
}

/* >>ArgMax, ArgMin */

static sbit_status sbit__arg_infer(const sbit_op_call *call, sbit_error *error)
{
    bool flags[SBIT_MAX_RANK] = {false};
    int32_t axis = 0;
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    const sbit_type *x = call->in_type[0];
    sbit_type *out = sbit__op_out(call, 0, SBIT_I64, -1);
    if (x->rank < 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__op_axis(call, sbit_node_int(call->node, "axis", 0), x->rank, &axis, error));
    flags[axis] = true;
    if (out != NULL) {
        sbit__reduce_shape(x, flags, sbit_node_int(call->node, "keepdims", 1) != 0, out);
    }
    return SBIT_OK;
}

typedef struct sbit__arg_task {
    sbit__along along;
    bool smallest, last_index, integers, is_unsigned;
    int64_t *y;
} sbit__arg_task;

/* Whether number i of the row is better than the best so far. What is no number is better than all
 * numbers, for ArgMin too, as in NumPy: it says where they are. */
static bool sbit__arg_better(const sbit__arg_task *task, double f, double best_f, int64_t v,
                             int64_t best_v)
{
    bool above = false, below = false;
    if (f != f || best_f != best_f) {
        return f != f && (best_f == best_f || task->last_index);
    }
    if (!task->integers) {
        above = f > best_f;
        below = f < best_f;
    } else if (task->is_unsigned) {
        above = (uint64_t)v > (uint64_t)best_v;
        below = (uint64_t)v < (uint64_t)best_v;
    } else {
        above = v > best_v;
        below = v < best_v;
    }
    return (task->smallest ? below : above) || (task->last_index && !above && !below);
}

/* The position of the best of `size` elements `inner` apart. */
static int64_t sbit__arg_find(const sbit__arg_task *task, int64_t base)
{
    const sbit_tensor *x = task->along.x;
    double best_f = task->integers ? 0.0 : sbit__tensor_f64_at(x, base);
    int64_t best_v = task->integers ? sbit__tensor_i64_at(x, base) : 0, best = 0;
    for (int64_t i = 1; i < task->along.size; i++) {
        const int64_t at = base + i * task->along.inner;
        const double f = task->integers         ? 0.0
                         : x->dtype == SBIT_F32 ? (double)((const float *)x->data)[at]
                                                : sbit__tensor_f64_at(x, at);
        const int64_t v = task->integers ? sbit__tensor_i64_at(x, at) : 0;
        if (sbit__arg_better(task, f, best_f, v, best_v)) {
            best_f = f;
            best_v = v;
            best = i;
        }
    }
    return best;
}

static void sbit__arg_range(void *data, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__arg_task *task = (const sbit__arg_task *)data;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t base =
            i / task->along.inner * task->along.size * task->along.inner + i % task->along.inner;
        task->y[i] = sbit__arg_find(task, base);
    }
}

static sbit_status sbit__arg_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    sbit__arg_task task;
    int32_t axis = 0;
    if (call->out[0] == NULL) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__op_axis(call, sbit_node_int(call->node, "axis", 0), x->rank, &axis, error));
    task.along = sbit__along_axis(x, axis);
    task.smallest = strcmp(call->row->op_type, "ArgMin") == 0;
    task.last_index = sbit_node_int(call->node, "select_last_index", 0) != 0;
    task.integers = (SBIT_T(x->dtype) & SBIT_T_FLOATS) == 0;
    task.is_unsigned = (SBIT_T(x->dtype) & SBIT_T_UNSIGNED) != 0;
    task.y = (int64_t *)call->out[0]->data;
    if (task.along.size == 0 && task.along.outer * task.along.inner > 0) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "axis %d is empty", (int)axis);
    }
    sbit__parallel_range(call->ctx, task.along.outer * task.along.inner,
                         1 + SBIT__BLOCK / (1 + task.along.size), sbit__arg_range, &task);
    return SBIT_OK;
}

/* >>CumSum, CumProd */

static sbit_status sbit__cum_infer(const sbit_op_call *call, sbit_error *error)
{
    return sbit__op_infer_like(call, 2, 2, 0, error);
}

typedef struct sbit__cum_task {
    sbit__along along;
    bool product, exclusive, reverse, integers;
    sbit_tensor *y;
} sbit__cum_task;

static void sbit__cum_step(const sbit__cum_task *task, int64_t n, const double *f, double *acc_f,
                           const int64_t *v, int64_t *acc_v)
{
    for (int64_t i = 0; i < n; i++) {
        if (!task->integers) {
            acc_f[i] = task->product ? acc_f[i] * f[i] : acc_f[i] + f[i];
        } else {
            const uint64_t a = (uint64_t)acc_v[i], b = (uint64_t)v[i];
            acc_v[i] = (int64_t)(task->product ? a * b : a + b);
        }
    }
}

/* One chunk of neighbours along the whole axis. */
static void sbit__cum_chunk(const sbit__cum_task *task, int64_t base, int64_t n)
{
    double f[SBIT__CUM_CHUNK], acc_f[SBIT__CUM_CHUNK];
    int64_t v[SBIT__CUM_CHUNK], acc_v[SBIT__CUM_CHUNK];
    const sbit_dtype dtype = task->along.x->dtype;
    const sbit_dtype cls = task->integers ? SBIT_I64 : SBIT_F64;
    void *now = task->integers ? (void *)v : (void *)f;
    const void *acc = task->integers ? (const void *)acc_v : (const void *)acc_f;
    for (int64_t i = 0; i < n; i++) {
        acc_f[i] = task->product ? 1.0 : 0.0;
        acc_v[i] = task->product ? 1 : 0;
    }
    for (int64_t k = 0; k < task->along.size; k++) {
        const int64_t row = task->reverse ? task->along.size - 1 - k : k;
        const int64_t at = base + row * task->along.inner;
        sbit__convert(dtype, sbit__elem_at_const(dtype, task->along.x->data, at), cls, now, n);
        if (!task->exclusive) {
            sbit__cum_step(task, n, f, acc_f, v, acc_v);
        }
        sbit__convert(cls, acc, dtype, sbit__elem_at(dtype, task->y->data, at), n);
        if (task->exclusive) {
            sbit__cum_step(task, n, f, acc_f, v, acc_v);
        }
    }
}

static void sbit__cum_range(void *data, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__cum_task *task = (const sbit__cum_task *)data;
    (void)worker;
    for (int64_t o = begin; o < end; o++) {
        const int64_t base = o * task->along.size * task->along.inner;
        for (int64_t i = 0; i < task->along.inner; i += SBIT__CUM_CHUNK) {
            const int64_t left = task->along.inner - i;
            sbit__cum_chunk(task, base + i, left < SBIT__CUM_CHUNK ? left : SBIT__CUM_CHUNK);
        }
    }
}

static sbit_status sbit__cum_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    sbit__cum_task task;
    int64_t given = 0;
    int32_t axis = 0;
    if (call->out[0] == NULL) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__op_scalar(call, 1, 0, &given, error));
    SBIT__TRY(sbit__op_axis(call, given, x->rank, &axis, error));
    task.along = sbit__along_axis(x, axis);
    task.product = strcmp(call->row->op_type, "CumProd") == 0;
    task.exclusive = sbit_node_int(call->node, "exclusive", 0) != 0;
    task.reverse = sbit_node_int(call->node, "reverse", 0) != 0;
    task.integers = (SBIT_T(x->dtype) & SBIT_T_FLOATS) == 0;
    task.y = call->out[0];
    sbit__parallel_range(call->ctx, task.along.outer,
                         1 + SBIT__BLOCK / (1 + task.along.size * task.along.inner),
                         sbit__cum_range, &task);
    return SBIT_OK;
}

/* >>TopK: a heap of the k best indices, the worst at its root, kept in the output `Indices` itself
 * and sorted there at the end. Ties: the lower index is better. NaN is above all numbers. */

static sbit_status sbit__topk_k(const sbit_op_call *call, sbit_dim *k, sbit_error *error)
{
    int64_t count = 0;
    if (call->row->since_version < 10) {
        *k = sbit__dim(sbit_node_int(call->node, "k", -1));
    } else if (!sbit__op_elems(call, 1, k, 1, &count) || count != 1) {
        *k = sbit__dim_any();
    }
    if (sbit__dim_known(*k) && k->value < 0) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "k is missing or negative");
    }
    return SBIT_OK;
}

static sbit_status sbit__topk_infer(const sbit_op_call *call, sbit_error *error)
{
    const int32_t inputs = call->row->since_version < 10 ? 1 : 2;
    sbit_dim k = sbit__dim_any();
    int32_t axis = 0;
    SBIT__TRY(sbit__op_inputs(call, inputs, inputs, error));
    SBIT__TRY(sbit__topk_k(call, &k, error));
    const sbit_type *x = call->in_type[0];
    sbit__op_same_type(call, 0, 0);
    sbit__op_same_type(call, 1, 0);
    if (call->output_count > 1 && call->out_type[1] != NULL) {
        call->out_type[1]->dtype = SBIT_I64;
    }
    if (x->rank < 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__op_axis(call, sbit_node_int(call->node, "axis", -1), x->rank, &axis, error));
    if (sbit__dim_known(k) && sbit__dim_known(x->dims[axis]) && k.value > x->dims[axis].value) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "k is %lld for an axis of size %lld",
                            (long long)k.value, (long long)x->dims[axis].value);
    }
    for (int32_t i = 0; i < 2 && i < call->output_count; i++) {
        if (call->out_type[i] != NULL) {
            call->out_type[i]->dims[axis] = k;
        }
    }
    return SBIT_OK;
}

/* Without the output Indices the heap needs a place. */
static sbit_status sbit__topk_prepare(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *out = call->out_type[0];
    int32_t axis = 0;
    if ((call->output_count > 1 && call->out_type[1] != NULL) || out == NULL || out->rank < 0) {
        return SBIT_OK;
    }
    SBIT__TRY(sbit__op_axis(call, sbit_node_int(call->node, "axis", -1), out->rank, &axis, error));
    if (sbit__dim_known(out->dims[axis])) {
        *call->scratch_bytes = ((size_t)out->dims[axis].value + 1) * sizeof(int64_t);
    }
    return SBIT_OK;
}

typedef struct sbit__topk {
    const sbit_tensor *x;
    bool smallest, integers, is_unsigned;
    int64_t base, inner; /* element i of the axis lies at base + i * inner */
    int64_t *heap;
    int64_t step, count; /* heap[j * step], j < count */
} sbit__topk;

/* Element i is better than element j. */
static bool sbit__topk_better(const sbit__topk *top, int64_t i, int64_t j)
{
    const int64_t at_i = top->base + i * top->inner, at_j = top->base + j * top->inner;
    bool above = false, below = false;
    if (top->integers) {
        const int64_t a = sbit__tensor_i64_at(top->x, at_i), b = sbit__tensor_i64_at(top->x, at_j);
        above = top->is_unsigned ? (uint64_t)a > (uint64_t)b : a > b;
        below = !above && a != b;
    } else {
        const bool f32 = top->x->dtype == SBIT_F32;
        const float *x = (const float *)top->x->data;
        const double a = f32 ? (double)x[at_i] : sbit__tensor_f64_at(top->x, at_i);
        const double b = f32 ? (double)x[at_j] : sbit__tensor_f64_at(top->x, at_j);
        above = a > b || (a != a && b == b);
        below = a < b || (a == a && b != b);
    }
    return (top->smallest ? below : above) || (!above && !below && i < j);
}

static void sbit__topk_sift_down(const sbit__topk *top, int64_t count)
{
    int64_t at = 0;
    for (int64_t child = 1; child < count; child = 2 * at + 1) {
        int64_t *heap = top->heap, s = top->step;
        if (child + 1 < count && sbit__topk_better(top, heap[child * s], heap[(child + 1) * s])) {
            child++;
        }
        if (!sbit__topk_better(top, heap[at * s], heap[child * s])) {
            return;
        }
        const int64_t swapped = heap[at * s];
        heap[at * s] = heap[child * s];
        heap[child * s] = swapped;
        at = child;
    }
}

static void sbit__topk_push(sbit__topk *top, int64_t i)
{
    int64_t at = top->count++;
    const int64_t s = top->step;
    top->heap[at * s] = i;
    while (at > 0 && sbit__topk_better(top, top->heap[(at - 1) / 2 * s], top->heap[at * s])) {
        const int64_t parent = (at - 1) / 2, swapped = top->heap[parent * s];
        top->heap[parent * s] = top->heap[at * s];
        top->heap[at * s] = swapped;
        at = parent;
    }
}

static void sbit__topk_select(sbit__topk *top, int64_t size, int64_t k)
{
    top->count = 0;
    for (int64_t i = 0; i < size && k > 0; i++) {
        if (top->count < k) {
            sbit__topk_push(top, i);
        } else if (sbit__topk_better(top, i, top->heap[0])) {
            top->heap[0] = i;
            sbit__topk_sift_down(top, k);
        }
    }
    for (int64_t left = top->count - 1; left > 0; left--) {
        const int64_t worst = top->heap[0];
        top->heap[0] = top->heap[left * top->step];
        top->heap[left * top->step] = worst;
        sbit__topk_sift_down(top, left);
    }
}

typedef struct sbit__topk_task {
    sbit__along along;
    sbit__topk top;
    int64_t k;
    sbit_tensor *values, *indices;
    int64_t *scratch;
} sbit__topk_task;

static void sbit__topk_range(void *data, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__topk_task *task = (const sbit__topk_task *)data;
    const int64_t inner = task->along.inner;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        sbit__topk top = task->top;
        const int64_t to = i / inner * task->k * inner + i % inner;
        top.base = i / inner * task->along.size * inner + i % inner;
        top.heap = task->indices != NULL ? (int64_t *)task->indices->data + to : task->scratch;
        top.step = task->indices != NULL ? inner : 1;
        sbit__topk_select(&top, task->along.size, task->k);
        for (int64_t j = 0; task->values != NULL && j < task->k; j++) {
            sbit__elem_copy(top.x->dtype, task->values->data, to + j * inner, top.x->data,
                            top.base + top.heap[j * top.step] * inner, 1);
        }
    }
}

static sbit_status sbit__topk_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    sbit_dim k = sbit__dim_any();
    int64_t dims[SBIT_MAX_RANK];
    int32_t axis = 0;
    sbit__topk_task task;
    memset(&task, 0, sizeof task);
    SBIT__TRY(sbit__topk_k(call, &k, error));
    SBIT__TRY(sbit__op_axis(call, sbit_node_int(call->node, "axis", -1), x->rank, &axis, error));
    if (!sbit__dim_known(k) || k.value > x->dims[axis]) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "k is not within the axis of size %lld",
                            (long long)x->dims[axis]);
    }
    memcpy(dims, x->dims, sizeof dims);
    dims[axis] = k.value;
    SBIT__TRY(sbit__op_output(call, 0, x->dtype, x->rank, dims, &task.values, error));
    SBIT__TRY(sbit__op_output(call, 1, SBIT_I64, x->rank, dims, &task.indices, error));
    task.along = sbit__along_axis(x, axis);
    task.k = k.value;
    task.scratch = (int64_t *)call->scratch;
    task.top.x = x;
    task.top.inner = task.along.inner;
    task.top.smallest = sbit_node_int(call->node, "largest", 1) == 0;
    task.top.integers = (SBIT_T(x->dtype) & SBIT_T_FLOATS) == 0;
    task.top.is_unsigned = (SBIT_T(x->dtype) & SBIT_T_UNSIGNED) != 0;
    const int64_t units = task.along.outer * task.along.inner;
    if (task.indices == NULL) { /* one heap only */
        sbit__topk_range(&task, 0, units, 0);
    } else {
        sbit__parallel_range(call->ctx, units, 1 + SBIT__BLOCK / (8 + 8 * task.along.size),
                             sbit__topk_range, &task);
    }
    return SBIT_OK;
}

/* >>rows */

static const sbit_op_quant sbit__reduce_quant_mean = {
    SBIT_QUANT_INPUTS | SBIT_QUANT_OUTPUT, 1, -1, -1, -1, 0, 0, NULL, 0.0f, 0.0f};
static const sbit_op_channel sbit__reduce_channel = {SBIT_CHANNEL_OWN,  1, 0, 0, 0,
                                                     sbit__reduce_label};

#define SBIT__REDUCE_T1 (SBIT__T_FLOATS1 | SBIT__T_WORDS)
#define SBIT__REDUCE_T13 (SBIT_T_FLOATS | SBIT__T_WORDS)
#define SBIT__REDUCE_BYTES (SBIT_T(SBIT_I8) | SBIT_T(SBIT_U8))
#define SBIT__REDUCE_ROW(name, version, types, fn, gradient, quant)                                \
    {                                                                                              \
        "", name, version, types, 0, 0, sbit__reduce_##fn##_infer, NULL, sbit__reduce_##fn##_run,  \
            gradient, NULL, quant, &sbit__reduce_channel, NULL                                     \
    }
#define SBIT__REDUCE_ROWS(name, fn, gradient, quant)                                               \
    SBIT__REDUCE_ROW(name, 1, SBIT__REDUCE_T1, fn, gradient, quant),                               \
        SBIT__REDUCE_ROW(name, 11, SBIT__REDUCE_T1, fn, gradient, quant),                          \
        SBIT__REDUCE_ROW(name, 13, SBIT__REDUCE_T13, fn, gradient, quant)
#define SBIT__REDUCE_ROWS_18(name, fn, gradient, quant)                                            \
    SBIT__REDUCE_ROWS(name, fn, gradient, quant),                                                  \
        SBIT__REDUCE_ROW(name, 18, SBIT__REDUCE_T13, fn, gradient, quant)
#define SBIT__REDUCE_ROWS_ORDER(name, fn)                                                          \
    SBIT__REDUCE_ROW(name, 1, SBIT__REDUCE_T1, fn, sbit__grad_reduce_other, NULL),                 \
        SBIT__REDUCE_ROW(name, 11, SBIT__REDUCE_T1, fn, sbit__grad_reduce_other, NULL),            \
        SBIT__REDUCE_ROW(name, 12, SBIT__REDUCE_T1 | SBIT__REDUCE_BYTES, fn,                       \
                         sbit__grad_reduce_other, NULL),                                           \
        SBIT__REDUCE_ROW(name, 13, SBIT__REDUCE_T13 | SBIT__REDUCE_BYTES, fn,                      \
                         sbit__grad_reduce_other, NULL),                                           \
        SBIT__REDUCE_ROW(name, 18, SBIT__REDUCE_T13 | SBIT__REDUCE_BYTES, fn,                      \
                         sbit__grad_reduce_other, NULL),                                           \
        SBIT__REDUCE_ROW(name, 20, SBIT__REDUCE_T13 | SBIT__REDUCE_BYTES | SBIT_T(SBIT_BOOL), fn,  \
                         sbit__grad_reduce_other, NULL)
#define SBIT__REDUCE_OTHER(name, version, types, fn, prepare, gradient)                            \
    {                                                                                              \
        "", name, version, types, 0, 0, sbit__##fn##_infer, prepare, sbit__##fn##_run, gradient,   \
            NULL, NULL, NULL, NULL                                                                 \
    }
#define SBIT__REDUCE_ARG(name)                                                                     \
    SBIT__REDUCE_OTHER(name, 1, SBIT__T_NUMBERS1, arg, NULL, NULL),                                \
        SBIT__REDUCE_OTHER(name, 11, SBIT__T_NUMBERS1, arg, NULL, NULL),                           \
        SBIT__REDUCE_OTHER(name, 12, SBIT__T_NUMBERS1, arg, NULL, NULL),                           \
        SBIT__REDUCE_OTHER(name, 13, SBIT_T_NUMBERS, arg, NULL, NULL)

static const sbit_op_row sbit__reduce_rows[] = {
    SBIT__REDUCE_ROWS("ReduceSum", sum, sbit__grad_reduce_sum, NULL),
    SBIT__REDUCE_ROWS_18("ReduceMean", mean, sbit__grad_reduce_mean, &sbit__reduce_quant_mean),
    SBIT__REDUCE_ROWS_18("ReduceProd", prod, sbit__grad_reduce_prod, NULL),
    SBIT__REDUCE_ROWS_18("ReduceL1", l1, sbit__grad_reduce_other, NULL),
    SBIT__REDUCE_ROWS_18("ReduceL2", l2, sbit__grad_reduce_other, NULL),
    SBIT__REDUCE_ROWS_18("ReduceLogSum", log_sum, sbit__grad_reduce_log_sum, NULL),
    SBIT__REDUCE_ROW("ReduceLogSum", 28, SBIT_T_FLOATS, log_sum, sbit__grad_reduce_log_sum, NULL),
    SBIT__REDUCE_ROWS_18("ReduceLogSumExp", log_sum_exp, sbit__grad_reduce_other, NULL),
    SBIT__REDUCE_ROW("ReduceLogSumExp", 28, SBIT_T_FLOATS, log_sum_exp, sbit__grad_reduce_other,
                     NULL),
    SBIT__REDUCE_ROWS_18("ReduceSumSquare", sum_square, sbit__grad_reduce_other, NULL),
    SBIT__REDUCE_ROWS_ORDER("ReduceMax", max),
    SBIT__REDUCE_ROWS_ORDER("ReduceMin", min),
    {SBIT__GRAD_DOMAIN, "ReduceTo", 1, SBIT__T_GRAD, 0, 0, sbit__reduce_to_infer, NULL,
     sbit__reduce_to_run, NULL, NULL, NULL, NULL, NULL},
    SBIT__REDUCE_ARG("ArgMax"),
    SBIT__REDUCE_ARG("ArgMin"),
    SBIT__REDUCE_OTHER("CumSum", 11, SBIT_T(SBIT_F32) | SBIT_T(SBIT_F64) | SBIT__T_WORDS, cum, NULL,
                       sbit__grad_cum_sum),
    SBIT__REDUCE_OTHER("CumSum", 14, SBIT__REDUCE_T13, cum, NULL, sbit__grad_cum_sum),
    SBIT__REDUCE_OTHER("CumProd", 26, SBIT__REDUCE_T13, cum, NULL, sbit__grad_cum_prod),
    SBIT__REDUCE_OTHER("TopK", 1, SBIT__T_FLOATS1, topk, sbit__topk_prepare, sbit__grad_top_k),
    SBIT__REDUCE_OTHER("TopK", 10, SBIT__T_FLOATS1, topk, sbit__topk_prepare, sbit__grad_top_k),
    SBIT__REDUCE_OTHER("TopK", 11, SBIT__T_NUMBERS1, topk, sbit__topk_prepare, sbit__grad_top_k),
    SBIT__REDUCE_OTHER("TopK", 24, SBIT_T_NUMBERS, topk, sbit__topk_prepare, sbit__grad_top_k),
};

#undef SBIT__REDUCE_T1
#undef SBIT__REDUCE_T13
#undef SBIT__REDUCE_BYTES
#undef SBIT__REDUCE_ROW
#undef SBIT__REDUCE_ROWS
#undef SBIT__REDUCE_ROWS_18
#undef SBIT__REDUCE_ROWS_ORDER
#undef SBIT__REDUCE_OTHER
#undef SBIT__REDUCE_ARG
#undef SBIT__REDUCE_CHUNK
#undef SBIT__CUM_CHUNK

SBIT__FN const sbit_op_row *sbit__op_rows_reduce(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__reduce_rows);
    return sbit__reduce_rows;
}
