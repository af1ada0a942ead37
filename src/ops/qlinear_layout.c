/* qlinear_layout.c: what lowering needs around integer operators. >>qlinear_layout
 *
 * Called by: exec through the rows. Calls: integer kernels.
 * Domain sbit:
 *   ToLast    N, C, positions... -> N, positions..., C; int8 becomes uint8 (q ^ 0x80)
 *   ToFirst   the way back; attribute to: the element type (default: the input's)
 *   QMaxPool  MaxPool of uint8
 *   QShuffle  channels c = i * (C / groups) + j go to j * groups + i; channels last; floats, too
 *   QTable    y = table[x], input 1: 256 bytes; attribute to: the element type
 *   QTables   the same with a table for each channel (axis 1), [C, 256]
 */
#include "../kernels/last_private.h"
#include "../kernels/rows_private.h"
#include "qlinear_private.h"

/* >>layouts */

static bool sbit__q_is_to_last(const sbit_op_call *call)
{
    return sbit__streq(call->row->op_type, "ToLast");
}

static sbit_dtype sbit__q_to_dtype(const sbit_op_call *call)
{
    const sbit_dtype from = sbit__in_dtype(call, 0);
    return sbit__q_is_to_last(call) && from == SBIT_I8
               ? SBIT_U8
               : (sbit_dtype)sbit_node_int(call->node, "to", (int64_t)from);
}

static sbit_status sbit__q_layout_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    sbit__op_same_type(call, 0, 0);
    if (call->output_count > 0 && call->out_type[0] != NULL) {
        call->out_type[0]->dtype = sbit__q_to_dtype(call);
        if (sbit__q_is_to_last(call)) {
            sbit__q_type_to_last(call->out_type[0]);
        } else {
            sbit__q_type_to_first(call->out_type[0]);
        }
    }
    return SBIT_OK;
}

typedef struct sbit__q_layout_task {
    const char *x;
    char *y;
    int64_t rows, columns; /* x is [image][rows][columns], y [image][columns][rows] */
    uint8_t flip;
    const sbit__last_kernels *last;
    const sbit__q8_kernels *q8;
} sbit__q_layout_task;

enum {
    SBIT__Q_LAYOUT_COLUMNS = 64,
    SBIT__Q_LAYOUT_PIXELS = 4096
};

static void sbit__q_layout_bytes(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__q_layout_task *task = (const sbit__q_layout_task *)user;
    const int64_t at = begin * task->rows * task->columns;
    (void)worker;
    sbit__q_to_last(end - begin, task->rows, task->columns, (const uint8_t *)task->x + at,
                    task->flip, (uint8_t *)task->y + at);
}

/* Of pictures, which have three channels: a unit is SBIT__Q_LAYOUT_PIXELS of one. */
static void sbit__q_layout_pixels(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__q_layout_task *task = (const sbit__q_layout_task *)user;
    const int64_t side = SBIT__Q_LAYOUT_PIXELS, blocks = sbit__div_up(task->columns, side);
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = i / blocks * 3 * task->columns, first = i % blocks * side;
        task->q8->q8_three(sbit__smaller(side, task->columns - first), task->columns,
                           (const uint8_t *)task->x + at + first, task->flip,
                           (uint8_t *)task->y + at + 3 * first);
    }
}

/* A unit is SBIT__Q_LAYOUT_COLUMNS columns of an image. */
static void sbit__q_layout_words(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__q_layout_task *task = (const sbit__q_layout_task *)user;
    const int64_t side = SBIT__Q_LAYOUT_COLUMNS, blocks = (task->columns + side - 1) / side;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = i / blocks * task->rows * task->columns, first = i % blocks * side;
        const float *x = (const float *)(const void *)task->x + at + first;
        float *y = (float *)(void *)task->y + at + first * task->rows;
        task->last->last_exchange(task->rows, task->columns - first < side ? task->columns - first : side, x,
                                  task->columns, y, task->rows);
    }
}

static sbit_status sbit__q_layout_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    sbit__q_layout_task task;
    const int64_t positions = sbit__q_is_to_last(call)
                                  ? sbit__tensor_span(x, x->rank < 2 ? x->rank : 2, x->rank)
                                  : sbit__tensor_span(x, x->rank < 2 ? x->rank : 1, x->rank - 1);
    const int64_t count = sbit_tensor_count(x);
    const int bits = sbit_dtype_bits((int32_t)x->dtype);
    if (count == 0) {
        return SBIT_OK;
    }
    if (bits != 8 && bits != 32) {
        return sbit_op_fail(call, SBIT_ERR_UNSUPPORTED, error, "elements of %d bits", bits);
    }
    memset(&task, 0, sizeof task);
    const int64_t images = x->rank < 2 ? 1 : x->dims[0], channels = count / images / positions;
    task.x = (const char *)x->data;
    task.y = (char *)call->out[0]->data;
    task.rows = sbit__q_is_to_last(call) ? channels : positions;
    task.columns = count / images / task.rows;
    task.flip = x->dtype != call->out[0]->dtype ? 0x80 : 0;
    task.last = sbit__last_of(call->ctx);
    task.q8 = sbit__q8_of(call->ctx);
    if (bits == 8 && task.rows == 3) {
        sbit__parallel_range(call->ctx, images * sbit__div_up(task.columns, SBIT__Q_LAYOUT_PIXELS),
                             1 + 16384 / sbit__smaller(task.columns, SBIT__Q_LAYOUT_PIXELS),
                             sbit__q_layout_pixels, &task);
    } else if (bits == 8) {
        sbit__parallel_range(call->ctx, images, 1 + 65536 * images / count, sbit__q_layout_bytes,
                             &task);
    } else if (task.rows == 1 || task.columns == 1) {
        memcpy(task.y, task.x, (size_t)count * sizeof(float));
    } else {
        const int64_t blocks =
            (task.columns + SBIT__Q_LAYOUT_COLUMNS - 1) / SBIT__Q_LAYOUT_COLUMNS;
        sbit__parallel_range(call->ctx, images * blocks,
                             1 + 65536 / (SBIT__Q_LAYOUT_COLUMNS * task.rows), sbit__q_layout_words,
                             &task);
    }
    return SBIT_OK;
}

/* >>max pool */

static sbit_status sbit__q_max_infer(const sbit_op_call *call, sbit_error *error)
{
    const int32_t inputs[1] = {0};
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    return sbit__q_infer_as(call, "MaxPool", 12, inputs, 1, sbit__in_dtype(call, 0), error);
}

static sbit_status sbit__q_max_prepare(const sbit_op_call *call, sbit_error *error)
{
    const int32_t inputs[1] = {0};
    const bool last = sbit__q_channels_last(call);
    sbit__q_view view;
    sbit__pool_shape plan;
    *call->scratch_bytes = 0;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__type_static(call->in_type[0])) {
        return SBIT_OK;
    }
    sbit__q_view_init(call, "MaxPool", 12, inputs, 1, last, &view);
    SBIT__TRY(sbit__pool_shape_of(&view.call, view.in_type[0], false, &plan, error));
    if (!last) { /* each channel is an image of its own */
        plan.batch *= plan.channels;
        plan.channels = 1;
    }
    return sbit__op_keep(call, &plan, sizeof plan, error);
}

typedef struct sbit__q_max_task {
    const sbit__pool_shape *plan;
    const sbit__q8_kernels *q8;
    const uint8_t *x;
    uint8_t *y;
} sbit__q_max_task;

/* Taps of a row's pixels: those in the middle have them all. */
typedef struct sbit__q_max_taps {
    const sbit__q_max_task *task;
    const uint8_t *x;
    uint8_t *y;
    int64_t first, end; /* pixels in the middle */
    int64_t count, offsets[16];
} sbit__q_max_taps;

static void sbit__q_max_middle(sbit__q_max_taps *taps)
{
    const sbit__pool_shape *p = taps->task->plan;
    if (taps->first < taps->end && taps->count > 0) {
        const int64_t step = p->stride[2] * p->channels;
        taps->task->q8->q8_max(p->channels, taps->end - taps->first, step, taps->count,
                               taps->offsets, taps->x + taps->first * step,
                               taps->y + taps->first * p->channels);
    }
    taps->count = 0;
}

/* Pixels begin..end-1 have a tap that lies `offset` behind the pixel's place in x. */
static void sbit__q_max_tap(sbit__q_max_taps *taps, int64_t begin, int64_t end, int64_t offset)
{
    const sbit__pool_shape *p = taps->task->plan;
    const int64_t step = p->stride[2] * p->channels;
    const int64_t parts[2][2] = {{begin, sbit__smaller(end, taps->first)},
                                 {sbit__larger(begin, taps->end), end}};
    for (int i = 0; i < 2; i++) {
        if (parts[i][0] < parts[i][1]) {
            taps->task->q8->q8_max(p->channels, parts[i][1] - parts[i][0], step, 1, &offset,
                                   taps->x + parts[i][0] * step, taps->y + parts[i][0] * p->channels);
        }
    }
    taps->offsets[taps->count++] = offset;
    if (taps->count == (int64_t)SBIT__COUNT_OF(taps->offsets)) {
        sbit__q_max_middle(taps);
    }
}

/* Pixels begin..end-1 have tap k along the row. */
static void sbit__q_max_pixels(const sbit__pool_shape *p, int64_t k, int64_t *begin, int64_t *end)
{
    const int64_t at = k * p->dilation[2] - p->pad_begin[2];
    const int64_t reach = at < p->in[2] ? sbit__div_up(p->in[2] - at, p->stride[2]) : 0;
    *begin = at < 0 ? sbit__div_up(-at, p->stride[2]) : 0;
    *end = sbit__smaller(reach, p->out[2]);
}

/* Row `index` of the output. */
static void sbit__q_max_row(const sbit__q_max_task *task, int64_t index)
{
    const sbit__pool_shape *p = task->plan;
    const int64_t c = p->channels, h = index % p->out[1], d = index / p->out[1] % p->out[0];
    const int64_t n = index / p->out[1] / p->out[0];
    int64_t begin = 0, end = 0;
    sbit__q_max_taps taps;
    taps.task = task;
    taps.x = task->x;
    taps.y = task->y + index * p->out[2] * c;
    taps.count = taps.first = 0;
    taps.end = p->out[2];
    for (int64_t k = 0; k < p->kernel[2]; k++) {
        sbit__q_max_pixels(p, k, &begin, &end);
        taps.first = sbit__larger(taps.first, begin);
        taps.end = sbit__smaller(taps.end, end);
    }
    taps.end = sbit__larger(taps.end, taps.first); /* no middle */
    memset(taps.y, 0, (size_t)(p->out[2] * c));
    for (int64_t t = 0; t < p->kernel[0] * p->kernel[1]; t++) {
        const int64_t id = d * p->stride[0] - p->pad_begin[0] + t / p->kernel[1] * p->dilation[0];
        const int64_t ih = h * p->stride[1] - p->pad_begin[1] + t % p->kernel[1] * p->dilation[1];
        const int64_t row = ((n * p->in[0] + id) * p->in[1] + ih) * p->in[2] * c;
        for (int64_t k = 0; k < p->kernel[2]; k++) {
            sbit__q_max_pixels(p, k, &begin, &end);
            if (id >= 0 && id < p->in[0] && ih >= 0 && ih < p->in[1] && begin < end) {
                sbit__q_max_tap(&taps, begin, end, row + (k * p->dilation[2] - p->pad_begin[2]) * c);
            }
        }
    }
    sbit__q_max_middle(&taps);
}

static void sbit__q_max_range(void *user, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        sbit__q_max_row((const sbit__q_max_task *)user, i);
    }
}

static sbit_status sbit__q_max_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit__pool_shape *plan = (const sbit__pool_shape *)call->params;
    sbit__q_max_task task;
    if (plan == NULL) {
        return sbit_op_fail(call, SBIT_ERR_STATE, error, "was not prepared");
    }
    task.plan = plan;
    task.q8 = sbit__q8_of(call->ctx);
    task.x = (const uint8_t *)call->in[0]->data;
    task.y = (uint8_t *)call->out[0]->data;
    const int64_t row = plan->out[2] * plan->channels * plan->kernel[0] * plan->kernel[1];
    sbit__parallel_range(call->ctx, plan->batch * plan->out[0] * plan->out[1],
                         1 + 65536 / (row + 1), sbit__q_max_range, &task);
    return SBIT_OK;
}

/* >>shuffle, table */

static sbit_status sbit__q_same_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 2, error));
    sbit__op_same_type(call, 0, 0);
    if (call->output_count > 0 && call->out_type[0] != NULL) {
        call->out_type[0]->dtype =
            (sbit_dtype)sbit_node_int(call->node, "to", (int64_t)sbit__in_dtype(call, 0));
    }
    return SBIT_OK;
}

typedef struct sbit__q_map_task {
    const sbit__q8_kernels *q8;
    const sbit__last_kernels *last;
    const uint8_t *x, *table;
    uint8_t *y;
    int64_t channels, groups;
} sbit__q_map_task;

static void sbit__q_shuffle_floats(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__q_map_task *task = (const sbit__q_map_task *)user;
    const int64_t each = task->channels / task->groups;
    (void)worker;
    for (int64_t p = begin; p < end; p++) {
        task->last->last_exchange(
            task->groups, each, (const float *)(const void *)task->x + p * task->channels, each,
            (float *)(void *)task->y + p * task->channels, task->groups);
    }
}

static void sbit__q_shuffle_range(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__q_map_task *task = (const sbit__q_map_task *)user;
    const int64_t each = task->channels / task->groups;
    (void)worker;
    for (int64_t p = begin; p < end; p++) {
        const uint8_t *x = task->x + p * task->channels;
        uint8_t *y = task->y + p * task->channels;
        if (task->groups == 2) {
            task->q8->q8_interleave(each, x, x + each, y);
            continue;
        }
        for (int64_t i = 0; i < task->groups; i++) {
            for (int64_t j = 0; j < each; j++) {
                y[j * task->groups + i] = x[i * each + j];
            }
        }
    }
}

typedef struct sbit__q_shuffle {
    int64_t channels, groups;
} sbit__q_shuffle;

static sbit_status sbit__q_shuffle_prepare(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *x = call->in_type[0];
    sbit__q_shuffle *plan = NULL;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__type_static(x)) {
        return SBIT_OK;
    }
    plan = (sbit__q_shuffle *)call->alloc_params(call, sizeof *plan);
    if (plan == NULL) {
        return sbit__op_no_memory(call, error);
    }
    plan->channels = x->rank > 0 ? x->dims[x->rank - 1].value : 1;
    plan->groups = sbit_node_int(call->node, "groups", 1);
    if (plan->groups < 1 || plan->channels % plan->groups != 0) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "%lld channels in %lld groups",
                            (long long)plan->channels, (long long)plan->groups);
    }
    return SBIT_OK;
}

static sbit_status sbit__q_shuffle_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit__q_shuffle *plan = (const sbit__q_shuffle *)call->params;
    const sbit_tensor *x = call->in[0];
    sbit__q_map_task task;
    memset(&task, 0, sizeof task);
    if (plan == NULL) {
        return sbit_op_fail(call, SBIT_ERR_STATE, error, "was not prepared");
    }
    task.channels = plan->channels;
    task.groups = plan->groups;
    task.last = sbit__last_of(call->ctx);
    task.q8 = sbit__q8_of(call->ctx);
    task.x = (const uint8_t *)x->data;
    task.y = (uint8_t *)call->out[0]->data;
    if (sbit_tensor_count(x) > 0) {
        sbit__parallel_range(call->ctx, sbit_tensor_count(x) / task.channels,
                             1 + 65536 / task.channels, x->dtype == SBIT_F32 ? sbit__q_shuffle_floats : sbit__q_shuffle_range, &task);
    }
    return SBIT_OK;
}

static void sbit__q_map_block(void *user, int64_t begin, int64_t end)
{
    const sbit__q_map_task *task = (const sbit__q_map_task *)user;
    task->q8->q8_lookup(end - begin, task->table, task->x + begin, task->y + begin);
}

static sbit_status sbit__q_map_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__q_map_task task;
    memset(&task, 0, sizeof task);
    task.x = (const uint8_t *)call->in[0]->data;
    task.y = (uint8_t *)call->out[0]->data;
    task.table = (const uint8_t *)call->in[1]->data;
    task.q8 = sbit__q8_of(call->ctx);
    if (sbit_tensor_count(call->in[1]) != 256) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "the table needs 256 entries");
    }
    sbit__parallel_blocks(call->ctx, sbit_tensor_count(call->in[0]), sbit__q_map_block, &task);
    return SBIT_OK;
}

typedef struct sbit__q_tables {
    int64_t planes, channels, size; /* of a plane */
} sbit__q_tables;

static sbit_status sbit__q_tables_prepare(const sbit_op_call *call, sbit_error *error)
{
    const sbit_type *x = call->in_type[0], *tables = call->in_type[1];
    sbit__q_tables plan;
    SBIT__TRY(sbit__op_check(call, error));
    if (!sbit__type_static(x) || !sbit__type_static(tables)) {
        return SBIT_OK;
    }
    if (x->rank < 2 || sbit__type_size(tables) != 256 * x->dims[1].value) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "each channel needs 256 entries");
    }
    plan.channels = x->dims[1].value;
    plan.planes = x->dims[0].value * plan.channels;
    plan.size = sbit__type_count(x, 2, x->rank);
    return sbit__op_keep(call, &plan, sizeof plan, error);
}

typedef struct sbit__q_tables_task {
    sbit__q_tables plan;
    const sbit__q8_kernels *q8;
    const uint8_t *x, *tables;
    uint8_t *y;
} sbit__q_tables_task;

static void sbit__q_tables_range(void *user, int64_t begin, int64_t end, int32_t worker)
{
    const sbit__q_tables_task *task = (const sbit__q_tables_task *)user;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        task->q8->q8_lookup(task->plan.size, task->tables + 256 * (i % task->plan.channels),
                            task->x + i * task->plan.size, task->y + i * task->plan.size);
    }
}

static sbit_status sbit__q_tables_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__q_tables_task task;
    SBIT__TRY(sbit__op_kept(call, &task.plan, sizeof task.plan, error));
    task.q8 = sbit__q8_of(call->ctx);
    task.x = (const uint8_t *)call->in[0]->data;
    task.tables = (const uint8_t *)call->in[1]->data;
    task.y = (uint8_t *)call->out[0]->data;
    sbit__parallel_range(call->ctx, task.plan.planes, 1 + 65536 / (task.plan.size + 1),
                         sbit__q_tables_range, &task);
    return SBIT_OK;
}

/* >>rows */
#define SBIT__Q_ROW(name, types, infer, prepare, run)                                              \
    {                                                                                              \
        "sbit", name, 1, types, 0, 0, infer, prepare, run, NULL, NULL, NULL, NULL, NULL            \
    }
#define SBIT__Q_LAYOUT_TYPES (SBIT__T_Q8 | SBIT_T(SBIT_F32) | SBIT_T(SBIT_I32))

static const sbit_op_row sbit__q_layout_rows[] = {
    SBIT__Q_ROW("ToLast", SBIT__Q_LAYOUT_TYPES, sbit__q_layout_infer, NULL, sbit__q_layout_run),
    SBIT__Q_ROW("ToFirst", SBIT__Q_LAYOUT_TYPES, sbit__q_layout_infer, NULL, sbit__q_layout_run),
    SBIT__Q_ROW("QMaxPool", SBIT_T(SBIT_U8), sbit__q_max_infer, sbit__q_max_prepare,
                sbit__q_max_run),
    SBIT__Q_ROW("QShuffle", SBIT__T_Q8 | SBIT_T(SBIT_F32), sbit__q_same_infer, sbit__q_shuffle_prepare,
                sbit__q_shuffle_run),
    SBIT__Q_ROW("QTables", SBIT__T_Q8, sbit__q_same_infer, sbit__q_tables_prepare,
                sbit__q_tables_run),
    SBIT__Q_ROW("QTable", SBIT__T_Q8, sbit__q_same_infer, NULL, sbit__q_map_run),
};

#undef SBIT__Q_ROW
#undef SBIT__Q_LAYOUT_TYPES

SBIT__FN const sbit_op_row *sbit__op_rows_qlinear_layout(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__q_layout_rows);
    return sbit__q_layout_rows;
}
