/* compensate_beside.c: a linear operator beside a block, fitted in closed form. >>compensate-beside
 *
 * Fu et al. 2024 (QwT). y is what a block computes in float, y_q what the quantized model so far does;
 * W and b make |y - y_q - (W x_q + b)|^2 least, x_q being what the quantized block reads. Where a
 * clamp ends the block the sum stands in front of it. The operator - a 1x1 Conv with the block's
 * stride, or a MatMul - is in the float graph from the start, with weights of 0: sites and walks know
 * nothing of it. `compensate` comes to it behind the layers of its block; what it has not fitted - its
 * weight was left float by a setting or a search - is in no file.
 */
#include "layer_private.h"

/* >>compensate-beside nodes */
typedef struct sbit__beside_shape {
    int64_t from, to, stride[2]; /* channels; of a Conv */
    bool conv;
} sbit__beside_shape;

static int64_t sbit__beside_dim(const sbit_value_info *value, int32_t axis)
{
    const sbit_dim *dim = &value->type.dims[axis];
    return dim->symbol == 0 ? dim->value : -1;
}

/* False if no linear operator leads from x to y. */
static bool sbit__beside_fits(const sbit_value_info *x, const sbit_value_info *y,
                              sbit__beside_shape *out)
{
    const int32_t rank = x->type.rank;
    const sbit_dim *rows = &x->type.dims[0], *made = &y->type.dims[0];
    memset(out, 0, sizeof *out);
    if (rank != y->type.rank || rows->value != made->value || rows->symbol != made->symbol ||
        rows->symbol == SBIT_SYMBOL_ANY || rank < 2 || rank > 4 || x->type.dtype != SBIT_F32 ||
        y->type.dtype != SBIT_F32 || y->is_output || y->is_constant || y->producer.idx == 0) {
        return false;
    }
    out->conv = rank == 4;
    const int32_t channels = out->conv ? 1 : rank - 1;
    out->from = sbit__beside_dim(x, channels);
    out->to = sbit__beside_dim(y, channels);
    for (int32_t i = 1; i < rank; i++) {
        const int64_t a = sbit__beside_dim(x, i), b = sbit__beside_dim(y, i);
        if (i == channels) {
            continue;
        }
        if (a <= 0 || b <= 0 || a % b != 0 || (!out->conv && a != b)) {
            return false;
        }
        out->stride[out->conv ? i - 2 : 0] = a / b;
    }
    return out->from > 0 && out->to > 0 && out->from + out->to <= 4096;
}

static sbit_status sbit__beside_node(sbit_graph *graph, const char *op, const char *name,
                                     const sbit_value_id *inputs, const sbit_type *type,
                                     const sbit_attr *attrs, size_t attr_count, sbit_node_id before,
                                     sbit_node_id *node, sbit_value_id *out, sbit_error *error)
{
    sbit_node_desc desc;
    memset(&desc, 0, sizeof desc);
    if (out->idx == 0) {
        SBIT__TRY(sbit_graph_add_value(graph, name, type, out, error));
    }
    desc.op_type = op;
    desc.name = name;
    desc.inputs = inputs;
    desc.input_count = 2;
    desc.outputs = out;
    desc.output_count = 1;
    desc.attrs = attrs;
    desc.attr_count = attr_count;
    desc.before = before;
    return sbit_graph_add_node(graph, &desc, node, error);
}

static sbit_status sbit__beside_zeros(sbit_quant *quant, const char *name, int32_t rank,
                                      const int64_t *dims, sbit_value_id *out, sbit_error *error)
{
    sbit_tensor zeros;
    SBIT__TRY(sbit_tensor_alloc(quant->ctx, SBIT_F32, rank, dims, &zeros, error));
    memset(zeros.data, 0, sbit_tensor_bytes(&zeros));
    const sbit_status status = sbit__graph_take_constant(quant->graph, name, &zeros, out, error);
    if (status != SBIT_OK) {
        sbit_tensor_free(quant->ctx, &zeros);
    }
    return status;
}

/* y + W x in place of y, W = 0. */
static sbit_status sbit__beside_insert(sbit_quant *quant, sbit_value_id x, sbit_value_id y,
                                       const sbit__beside_shape *shape, sbit__beside *out,
                                       sbit_error *error)
{
    sbit_graph *graph = quant->graph;
    const sbit_node_id before = sbit_graph_next(graph, sbit_graph_value(graph, y)->producer);
    const int64_t conv[4] = {shape->to, shape->from, 1, 1}, matrix[2] = {shape->from, shape->to};
    const sbit_attr strides = sbit__attr_ints("strides", shape->stride, 2);
    const sbit_type type = sbit_graph_value(graph, y)->type;
    sbit_value_id inputs[2], made = {0}, more = {0};
    sbit_node_id node, add;
    char name[200], text[220];
    snprintf(name, sizeof name, "%.180s_beside", sbit_graph_value(graph, y)->name);
    snprintf(text, sizeof text, "%s.weight", name);
    memset(out, 0, sizeof *out);
    out->y = y;
    inputs[0] = x;
    SBIT__TRY(sbit__beside_zeros(quant, text, shape->conv ? 4 : 2, shape->conv ? conv : matrix,
                                 &inputs[1], error));
    SBIT__TRY(sbit__beside_node(graph, shape->conv ? "Conv" : "MatMul", name, inputs, &type, &strides,
                                shape->conv ? 1 : 0, before, &out->node, &made, error));
    if (!shape->conv) { /* where its bias goes */
        snprintf(text, sizeof text, "%s.bias", name);
        inputs[0] = made;
        SBIT__TRY(sbit__beside_zeros(quant, text, 1, &shape->to, &inputs[1], error));
        SBIT__TRY(sbit__beside_node(graph, "Add", text, inputs, &type, NULL, 0, before, &node, &more,
                                    error));
    }
    out->made = shape->conv ? made : more;
    snprintf(text, sizeof text, "%s_sum", name);
    SBIT__TRY(sbit_graph_add_value(graph, text, &type, &out->sum, error));
    SBIT__TRY(sbit_graph_replace_uses(graph, y, out->sum, error));
    inputs[0] = y;
    inputs[1] = out->made;
    return sbit__beside_node(graph, "Add", text, inputs, &type, NULL, 0, before, &add, &out->sum,
                             error);
}

/* What a block computes in front of the clamp that ends it. */
static sbit_value_id sbit__beside_exit(const sbit_quant *quant, sbit_value_id exit)
{
    const sbit_value_info *y = sbit_graph_value(quant->graph, exit);
    const sbit_node *node =
        y->producer.idx != 0 ? sbit_graph_node(quant->graph, y->producer) : NULL;
    return node != NULL && sbit__word_listed(quant->profile->clamps, node->op_type) &&
                   sbit_graph_value(quant->graph, node->inputs[0])->use_count == 1
               ? node->inputs[0]
               : exit;
}

static sbit_status sbit__beside_find(sbit_quant *quant, sbit__arena *arena, sbit_error *error)
{
    const size_t limit = sbit_graph_node_limit(quant->graph);
    sbit_unit *units = (sbit_unit *)sbit__arena_array(arena, limit, sizeof *units);
    sbit__block *blocks = NULL;
    sbit__layer layer;
    size_t unit_count = 0, count = 0;
    const int64_t least = sbit_options_int(&quant->config->tree.top, "EXPORT.SMALLEST_WEIGHT");
    if (units == NULL) {
        return sbit__fail_oom(error, limit * sizeof *units);
    }
    for (sbit_node_id id = sbit_graph_first(quant->graph); id.idx != 0;
         id = sbit_graph_next(quant->graph, id)) {
        if (sbit__layer_of(quant->graph, id, &layer)) {
            memset(&units[unit_count], 0, sizeof *units);
            units[unit_count++].node = id;
        }
    }
    SBIT__TRY(sbit__blocks_find(quant, units, unit_count, 1, arena, &blocks, &count, error));
    quant->beside_count = 0;
    quant->beside =
        (sbit__beside *)sbit__arena_array(&quant->arena, count + 1, sizeof *quant->beside);
    if (quant->beside == NULL) {
        return sbit__fail_oom(error, count * sizeof *quant->beside);
    }
    for (size_t i = 0; i < count; i++) {
        const sbit_value_id y = sbit__beside_exit(quant, blocks[i].exit);
        sbit_value_id x = blocks[i].entry;
        sbit__beside_shape shape;
        size_t layers = 0;
        for (size_t k = 0; k < unit_count; k++) {
            const uint32_t place = blocks[i].place[units[k].node.idx];
            layers += place > blocks[i].begin && place <= blocks[i].end ? 1 : 0;
        }
        for (size_t j = 0; j < quant->beside_count; j++) { /* the block before may end in a sum */
            x = quant->beside[j].y.idx == x.idx ? quant->beside[j].sum : x;
        }
        if (layers > 1 && sbit__beside_fits(sbit_graph_value(quant->graph, x),
                                            sbit_graph_value(quant->graph, y), &shape) &&
            shape.from * shape.to >= least) { /* smaller ones have no site, and stay 0 */
            SBIT__TRY(sbit__beside_insert(quant, x, y, &shape,
                                          &quant->beside[quant->beside_count], error));
            quant->beside_count++;
        }
    }
    sbit__log(quant->ctx, SBIT_LOG_INFO, "compensate: operators beside %u of %u blocks",
              (unsigned)quant->beside_count, (unsigned)count);
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__beside_add(sbit_quant *quant, sbit_error *error)
{
    sbit__arena arena;
    sbit__arena_init(&arena, sbit_ctx_allocator(quant->ctx));
    const sbit_status status = sbit__beside_find(quant, &arena, error);
    sbit__arena_deinit(&arena);
    return status;
}

SBIT__FN const sbit__beside *sbit__beside_of(const sbit_quant *quant, sbit_node_id node)
{
    for (size_t i = 0; i < quant->beside_count; i++) {
        if (quant->beside[i].node.idx == node.idx) {
            return &quant->beside[i];
        }
    }
    return NULL;
}

/* >>compensate-beside data: rows [x_q, y - y_q] of some positions of each sample. */
typedef struct sbit__beside_data {
    const sbit__layer *layer;
    sbit_ctx *ctx;
    int64_t most, taken, width; /* positions of a sample: at most, taken; from + to */
    int64_t first, count;       /* columns that come now */
    float factor;               /* they are added times this */
    float *rows;                /* [samples][taken][width] */
    int64_t samples, at;        /* room for; those seen in this walk */
    size_t bytes;
} sbit__beside_data;

static sbit_status sbit__beside_see(const sbit_walk_batch *batch, void *user, sbit_error *error)
{
    sbit__beside_data *d = (sbit__beside_data *)user;
    const sbit_tensor *x = batch->x;
    const bool conv = d->layer->conv, input = d->first == 0;
    const int64_t w = conv ? x->dims[3] : 1;
    const int64_t stride[2] = {conv && input ? d->layer->stride[1] : 1,
                               conv && input ? d->layer->stride[2] : 1};
    const int64_t own = batch->rows > 0 ? sbit_tensor_count(x) / batch->rows : 0;
    const int64_t across = conv ? (w + stride[1] - 1) / stride[1] : 1;
    const int64_t down = conv ? (x->dims[2] + stride[0] - 1) / stride[0] : own / d->count;
    if (d->rows == NULL) {
        d->taken = d->most > 0 && d->most < across * down ? d->most : across * down;
        d->bytes = (size_t)(d->samples * d->taken * d->width) * sizeof *d->rows;
        d->rows = (float *)sbit__calloc(sbit_ctx_allocator(d->ctx), 1, d->bytes);
        if (d->rows == NULL) {
            return sbit__fail_oom(error, d->bytes);
        }
    }
    for (int64_t s = 0; s < batch->samples && d->at < d->samples; s++, d->at++) {
        const float *sample = (const float *)x->data + s * own;
        for (int64_t i = 0; i < d->taken; i++) {
            const uint64_t drawn = sbit__mix64((uint64_t)(d->at * d->taken + i) + SBIT__MIX64_STEP);
            const int64_t p = d->taken == across * down
                                  ? i
                                  : (int64_t)(drawn % (uint64_t)(across * down));
            const int64_t from = conv ? p / across * stride[0] * w + p % across * stride[1]
                                      : p * d->count;
            const int64_t step = conv ? x->dims[2] * w : 1;
            float *row = d->rows + (d->at * d->taken + i) * d->width + d->first;
            for (int64_t c = 0; c < d->count; c++) {
                row[c] += d->factor * sample[from + c * step];
            }
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__beside_gather(sbit__round_units *units, const sbit_unit *unit,
                                       const sbit__beside *beside, sbit__beside_data *d,
                                       sbit_error *error)
{
    const sbit__layer *l = d->layer;
    d->first = l->depth;
    d->count = l->rows;
    d->factor = 1.0f;
    SBIT__TRY(sbit__walk_to_value(units->plain, unit->node, beside->y, sbit__beside_see, d, error));
    d->factor = -1.0f;
    d->at = 0;
    SBIT__TRY(sbit__walk_to_value(units->walk, unit->node, beside->y, sbit__beside_see, d, error));
    d->first = 0;
    d->count = l->depth;
    d->factor = 1.0f;
    d->at = 0;
    return sbit_walk_to(units->walk, unit->node, unit->input, sbit__beside_see, d, error);
}

/* >>compensate-beside algebra */
/* Scales of 8 bits for the values. */
static sbit_status sbit__beside_scales(sbit_quant *quant, sbit__site *site, const sbit__layer *l,
                                       const float *w, sbit_error *error)
{
    sbit__site_search_bits(quant, site, 8);
    const int64_t parts = sbit__site_parts(site);
    for (int64_t part = 0; part < parts; part++) {
        float most = 0.0f;
        for (int64_t r = parts == 1 ? 0 : part; r < (parts == 1 ? l->rows : part + 1); r++) {
            for (int64_t k = 0; k < l->depth; k++) {
                const float size = fabsf(w[r * l->row_step + k * l->depth_step]);
                most = size > most ? size : most;
            }
        }
        SBIT__TRY(sbit_grid_scale(&site->settings.grid, site->tensor, -most, most, &site->scale[part],
                                  &site->zero_point[part], error));
    }
    return SBIT_OK;
}

/* From the sums about the means: weights, then the bias for the weights as they are stored. */
static sbit_status sbit__beside_fit(sbit_quant *quant, const sbit_unit *unit, const sbit__layer *l,
                                    const sbit__gram *gram, bool floats, double *room, float *w,
                                    float *shift, sbit_error *error)
{
    sbit__site *site = &quant->sites[unit->site];
    const int64_t n = l->depth, m = l->rows, width = n + m;
    double *a = room, *x = room + n * n, mean = 0.0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) { /* the upper triangle is what is summed */
            a[i * n + j] = (double)gram->sums[i <= j ? i * width + j : j * width + i];
        }
        mean += a[i * n + i] / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
        a[i * n + i] += 1e-3 * mean + 1e-12;
    }
    if (!sbit__cholesky(a, n)) {
        return SBIT_OK; /* weights of 0: nothing is added */
    }
    for (int64_t first = 0; first < m; first += SBIT__SOLVE_LANES) {
        for (int64_t k = 0; k < n; k++) {
            for (int64_t r = 0; r < SBIT__SOLVE_LANES; r++) {
                x[k * SBIT__SOLVE_LANES + r] =
                    first + r < m ? (double)gram->sums[k * width + n + first + r] : 0.0;
            }
        }
        sbit__cholesky_solve(a, n, x);
        for (int64_t k = 0; k < n; k++) {
            for (int64_t r = 0; r < SBIT__SOLVE_LANES && first + r < m; r++) {
                w[(first + r) * l->row_step + k * l->depth_step] = (float)x[k * SBIT__SOLVE_LANES + r];
            }
        }
    }
    const bool raw = floats || site->block > 0 || site->change.scale != NULL;
    if (!raw) {
        SBIT__TRY(sbit__beside_scales(quant, site, l, w, error));
    }
    SBIT__TRY(sbit_quant_set_weight(quant, unit->site, w, error));
    site->raw = raw;
    SBIT__TRY(sbit__site_dequantized(quant, site, w, error));
    for (int64_t r = 0; r < m; r++) {
        double sum = (double)gram->mean_a[n + r];
        for (int64_t k = 0; k < n; k++) {
            sum -= (double)w[r * l->row_step + k * l->depth_step] * (double)gram->mean_a[k];
        }
        shift[r] = (float)(sum / gram->count);
    }
    return sbit__site_set_shift(quant, site, shift, (size_t)m, error);
}

static sbit_status sbit__beside_work(sbit__round_units *units, const sbit_unit *unit,
                                     const sbit__beside *beside, sbit__beside_data *d,
                                     sbit__gram *gram, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(units->quant->ctx);
    const sbit__layer *l = d->layer;
    const int64_t n = l->depth, m = l->rows;
    SBIT__TRY(sbit__beside_gather(units, unit, beside, d, error));
    sbit__layer joint; /* a matrix that reads a row */
    memset(&joint, 0, sizeof joint);
    joint.graph = l->graph;
    joint.node = l->node;
    joint.groups = 1;
    joint.rows = 1;
    joint.depth = d->width;
    sbit_tensor all;
    memset(&all, 0, sizeof all);
    all.dtype = SBIT_F32;
    all.rank = 2;
    all.dims[0] = d->at * d->taken;
    all.dims[1] = d->width;
    all.data = d->rows;
    SBIT__TRY(sbit__gram_init(units->quant->ctx, &joint, false, 0, 1, gram, error));
    SBIT__TRY(sbit__gram_add(gram, &all, NULL, all.dims[0], 0, all.dims[0], error));
    if (gram->count <= 0.0) {
        return SBIT_OK;
    }
    sbit__gram_center(gram);
    const size_t doubles = (size_t)(n * n + n * SBIT__SOLVE_LANES), floats = (size_t)(n * m + m);
    const size_t bytes = doubles * sizeof(double) + floats * sizeof(float);
    double *room = (double *)sbit__calloc(a, 1, bytes);
    if (room == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    float *w = (float *)(void *)(room + doubles);
    const bool keep = sbit__same_word(
        sbit_options_string(units->options, "STEP.COMPENSATE.OPERATOR"), "float");
    const sbit_status status =
        sbit__beside_fit(units->quant, unit, l, gram, keep, room, w, w + n * m, error);
    sbit__free(a, room, bytes);
    return status;
}

SBIT__FN sbit_status sbit__beside_unit(sbit__round_units *units, const sbit_unit *unit,
                                       const sbit__beside *beside, const sbit__layer *layer,
                                       sbit_error *error)
{
    sbit__beside_data d;
    sbit__gram gram;
    memset(&d, 0, sizeof d);
    memset(&gram, 0, sizeof gram);
    d.layer = layer;
    d.ctx = units->quant->ctx;
    d.most = units->positions;
    d.width = layer->depth + layer->rows;
    d.samples = units->samples;
    const sbit_status status = sbit__beside_work(units, unit, beside, &d, &gram, error);
    sbit__free(sbit_ctx_allocator(d.ctx), d.rows, d.bytes);
    sbit__gram_deinit(&gram);
    return status;
}
