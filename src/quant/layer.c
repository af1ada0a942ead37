/* layer.c: layers as matrix products, and the sums over their inputs. >>layer
 */
#include "layer_private.h"

enum {
    SBIT__GRAM_CHUNK = 512 /* positions that are multiplied at once */
};

/* >>layer geometry */
static void sbit__layer_ints(const sbit_node *node, const char *name, int32_t spatial,
                             int64_t otherwise, int64_t *out)
{
    const sbit_attr *attr = sbit_node_attr(node, name);
    for (int32_t d = 0; d < spatial; d++) {
        out[3 - spatial + d] =
            attr != NULL && attr->type == SBIT_ONNX_ATTR_INTS && (size_t)d < attr->count
                ? attr->ints[d]
                : otherwise;
    }
}

static bool sbit__layer_conv(const sbit_node *node, const sbit_tensor *w, sbit__layer *out)
{
    const char *pad = sbit_node_string(node, "auto_pad", "NOTSET");
    out->conv = true;
    out->spatial = w->rank - 2;
    if (out->spatial < 1 || out->spatial > 3) {
        return false;
    }
    for (int32_t d = 0; d < 3; d++) {
        out->kernel[d] = out->stride[d] = out->dilation[d] = 1;
        out->pad[d] = 0;
    }
    out->groups = sbit_node_int(node, "group", 1);
    if (out->groups < 1 || w->dims[0] % out->groups != 0) {
        return false;
    }
    out->rows = w->dims[0] / out->groups;
    out->depth = w->dims[1];
    for (int32_t d = 0; d < out->spatial; d++) {
        out->kernel[3 - out->spatial + d] = w->dims[2 + d];
        out->depth *= w->dims[2 + d];
    }
    out->row_step = out->depth;
    out->depth_step = 1;
    sbit__layer_ints(node, "strides", out->spatial, 1, out->stride);
    sbit__layer_ints(node, "dilations", out->spatial, 1, out->dilation);
    sbit__layer_ints(node, "pads", out->spatial, 0, out->pad);
    out->auto_pad = sbit__streq(pad, "SAME_UPPER") ? 1 : sbit__streq(pad, "SAME_LOWER") ? -1 : 0;
    for (int32_t d = 0; d < 3 && sbit__streq(pad, "VALID"); d++) {
        out->pad[d] = 0;
    }
    return true;
}

SBIT__FN bool sbit__layer_of(const sbit_graph *graph, sbit_node_id id, sbit__layer *out)
{
    const sbit_node *node = sbit_graph_node(graph, id);
    memset(out, 0, sizeof *out);
    out->graph = graph;
    out->node = node;
    out->groups = 1;
    if (node->domain[0] != '\0' || node->input_count < 2 || node->inputs[1].idx == 0) {
        return false;
    }
    const sbit_value_info *weight = sbit_graph_value(graph, node->inputs[1]);
    if (!weight->is_constant || sbit_tensor_count(&weight->constant) == 0) {
        return false;
    }
    const sbit_tensor *w = &weight->constant;
    if (sbit__streq(node->op_type, "Conv")) {
        return sbit__layer_conv(node, w, out);
    }
    const bool gemm = sbit__streq(node->op_type, "Gemm") && sbit_node_int(node, "transA", 0) == 0;
    if (!(gemm || sbit__streq(node->op_type, "MatMul")) || w->rank != 2) {
        return false;
    }
    const bool turned = gemm && sbit_node_int(node, "transB", 0) != 0;
    out->rows = w->dims[turned ? 0 : 1];
    out->depth = w->dims[turned ? 1 : 0];
    out->row_step = turned ? out->depth : 1;
    out->depth_step = turned ? 1 : out->rows;
    return true;
}

/* >>layer positions */
/* What one sample of x is to a convolution. */
typedef struct sbit__layer_sample {
    int64_t channels, in[3], out[3], pad[3];
    int64_t positions; /* matrix: rows of x that belong to it */
} sbit__layer_sample;

static bool sbit__layer_shape(const sbit__layer *layer, const sbit_tensor *x, int64_t rows,
                              sbit__layer_sample *out)
{
    const int64_t count = sbit_tensor_count(x);
    memset(out, 0, sizeof *out);
    if (!layer->conv) {
        const bool fits = x->rank >= 1 && x->dims[x->rank - 1] == layer->depth && rows > 0 &&
                          count / layer->depth % rows == 0;
        out->positions = fits ? count / layer->depth / rows : 0;
        return fits;
    }
    if (x->rank != layer->spatial + 2) {
        return false;
    }
    out->channels = x->dims[1];
    out->positions = 1;
    for (int32_t d = 0; d < 3; d++) {
        const int64_t extent = (layer->kernel[d] - 1) * layer->dilation[d] + 1;
        const int32_t at = d - (3 - layer->spatial);
        out->in[d] = at >= 0 ? x->dims[2 + at] : 1;
        out->pad[d] = layer->pad[d];
        int64_t total = 2 * layer->pad[d];
        const sbit_attr *pads = sbit_node_attr(layer->node, "pads");
        if (at >= 0 && pads != NULL && (size_t)(at + layer->spatial) < pads->count &&
            layer->pad[d] == pads->ints[at]) {
            total = pads->ints[at] + pads->ints[at + layer->spatial];
        }
        if (layer->auto_pad != 0 && at >= 0) {
            const int64_t outs = (out->in[d] + layer->stride[d] - 1) / layer->stride[d];
            total = (outs - 1) * layer->stride[d] + extent - out->in[d];
            total = total > 0 ? total : 0;
            out->pad[d] = layer->auto_pad > 0 ? total / 2 : (total + 1) / 2;
        }
        out->out[d] = (out->in[d] + total - extent) / layer->stride[d] + 1;
        out->positions *= out->out[d] > 0 ? out->out[d] : 0;
    }
    return out->positions > 0 &&
           out->channels == layer->groups * (layer->depth / (layer->kernel[0] * layer->kernel[1] *
                                                             layer->kernel[2]));
}

/* Where in a plane the window's values of a position lie; -1: in the padding. */
static void sbit__layer_offsets(const sbit__layer *layer, const sbit__layer_sample *s,
                                int64_t position, int64_t *out)
{
    const int64_t window = layer->kernel[0] * layer->kernel[1] * layer->kernel[2];
    const int64_t at[3] = {position / (s->out[1] * s->out[2]), position / s->out[2] % s->out[1],
                           position % s->out[2]};
    int64_t from[3];
    for (int32_t d = 0; d < 3; d++) {
        from[d] = at[d] * layer->stride[d] - s->pad[d];
    }
    for (int64_t k = 0; k < window; k++) {
        const int64_t z = from[0] + k / (layer->kernel[1] * layer->kernel[2]) * layer->dilation[0];
        const int64_t y = from[1] + k / layer->kernel[2] % layer->kernel[1] * layer->dilation[1];
        const int64_t w = from[2] + k % layer->kernel[2] * layer->dilation[2];
        const bool inside =
            z >= 0 && z < s->in[0] && y >= 0 && y < s->in[1] && w >= 0 && w < s->in[2];
        out[k] = inside ? (z * s->in[1] + y) * s->in[2] + w : -1;
    }
}

/* The values under the window of group g; zeros in the padding. */
static void sbit__layer_column(const sbit__layer *layer, const sbit__layer_sample *s,
                               const float *x, int64_t g, const int64_t *offsets, float *out)
{
    const int64_t window = layer->kernel[0] * layer->kernel[1] * layer->kernel[2];
    const int64_t channels = layer->depth / window, plane = s->in[0] * s->in[1] * s->in[2];
    const float *first = x + g * channels * plane;
    for (int64_t c = 0; c < channels; c++, first += plane) {
        for (int64_t k = 0; k < window; k++) {
            *out++ = offsets[k] >= 0 ? first[offsets[k]] : 0.0f;
        }
    }
}

/* >>gram */
SBIT__FN sbit_status sbit__gram_init(sbit_ctx *ctx, const sbit__layer *layer, bool cross,
                                     int64_t most, uint64_t seed, sbit__gram *out,
                                     sbit_error *error)
{
    memset(out, 0, sizeof *out);
    out->layer = *layer;
    out->ctx = ctx;
    out->rng = sbit_rng_seed(seed);
    out->most = most;
    out->cross = cross;
    const size_t n = (size_t)layer->groups * (size_t)layer->depth;
    size_t square = 0;
    if (!sbit__mul_size(n, (size_t)layer->depth, &square) ||
        !sbit__mul_size(square * (cross ? 2 : 1) + 2 * n, sizeof(float), &out->bytes)) {
        return sbit__fail_oom(error, n);
    }
    out->sums = (float *)sbit__calloc(sbit_ctx_allocator(ctx), 1, out->bytes);
    if (out->sums == NULL) {
        return sbit__fail_oom(error, out->bytes);
    }
    out->mean_a = out->sums + square;
    out->mean_b = out->mean_a + n;
    out->mixed = cross ? out->mean_b + n : NULL;
    return SBIT_OK;
}

SBIT__FN void sbit__gram_deinit(sbit__gram *gram)
{
    if (gram->other != NULL) {
        sbit__gram_deinit(gram->other);
    }
    if (gram->ctx != NULL) {
        sbit__free(sbit_ctx_allocator(gram->ctx), gram->sums, gram->bytes);
    }
    memset(gram, 0, sizeof *gram);
}

SBIT__FN void sbit__gram_merge(sbit__gram *gram)
{
    sbit__kernels(gram->ctx)->f32_binary(SBIT__BINARY_ADD, (int64_t)(gram->bytes / sizeof(float)), gram->sums,
                                         1, gram->other->sums, 1, gram->sums);
    gram->count += gram->other->count;
    sbit__gram_deinit(gram->other);
    gram->other = NULL;
}

/* sum[depth][depth] += a^T b for `count` columns. */
static void sbit__gram_multiply(const sbit__gram *gram, const float *a, const float *b,
                                int64_t count, float *product, void *scratch, float *sum)
{
    const int64_t depth = gram->layer.depth;
    if (depth * count < 1024) { /* tiny ones */
        for (int64_t p = 0; p < count; p++) {
            for (int64_t i = 0; i < depth; i++) {
                const float x = a[p * depth + i];
                for (int64_t j = 0; j < depth; j++) {
                    sum[i * depth + j] += x * b[p * depth + j];
                }
            }
        }
        return;
    }
    sbit__gemm gemm;
    memset(&gemm, 0, sizeof gemm);
    gemm.m = gemm.n = depth;
    gemm.k = count;
    gemm.a = a;
    gemm.b = b;
    gemm.lda = gemm.ldb = gemm.ldc = depth;
    gemm.trans_a = true;
    gemm.alpha = 1.0f;
    gemm.c = product;
    sbit__gemm_run(gram->ctx, &gemm, scratch);
    sbit__kernels(gram->ctx)->f32_binary(SBIT__BINARY_ADD, depth * depth, sum, 1, product, 1, sum);
}

typedef struct sbit__gram_work {
    sbit__layer_sample sample;
    const float *a, *b;
    int64_t sample_count; /* values of one sample */
    int64_t *position;    /* [chunk]: number of the position, all samples counted through */
    int64_t *offsets;     /* [chunk][window] */
    int64_t window;
    int64_t taken;
    float *columns[2], *product;
    void *scratch;
} sbit__gram_work;

/* The columns of group g, and their sum to `mean`. */
static void sbit__gram_columns(const sbit__gram *gram, const sbit__gram_work *w, const float *x,
                               int64_t g, float *columns, float *mean)
{
    const int64_t depth = gram->layer.depth, positions = w->sample.positions;
    for (int64_t i = 0; i < w->taken; i++) {
        const float *sample = x + w->position[i] / positions * w->sample_count;
        float *column = columns + i * depth;
        if (gram->layer.conv) {
            sbit__layer_column(&gram->layer, &w->sample, sample, g, w->offsets + i * w->window,
                               column);
        } else {
            memcpy(column, sample + w->position[i] % positions * depth,
                   (size_t)depth * sizeof *column);
        }
        for (int64_t k = 0; k < depth; k++) {
            mean[k] += column[k];
        }
    }
}

static void sbit__gram_flush(sbit__gram *gram, sbit__gram_work *w)
{
    const int64_t depth = gram->layer.depth;
    for (int64_t i = 0; i < w->taken && gram->layer.conv; i++) {
        sbit__layer_offsets(&gram->layer, &w->sample, w->position[i] % w->sample.positions,
                            w->offsets + i * w->window);
    }
    for (int64_t g = 0; g < gram->layer.groups && w->taken > 0; g++) {
        const float *b = w->columns[gram->cross ? 1 : 0];
        sbit__gram_columns(gram, w, w->a, g, w->columns[0], gram->mean_a + g * depth);
        if (gram->cross) {
            sbit__gram_columns(gram, w, w->b, g, w->columns[1], gram->mean_b + g * depth);
        }
        sbit__gram_multiply(gram, b, b, w->taken, w->product, w->scratch,
                            gram->sums + g * depth * depth);
        if (gram->cross) {
            sbit__gram_multiply(gram, w->columns[0], b, w->taken, w->product, w->scratch,
                                gram->mixed + g * depth * depth);
        }
    }
    gram->count += (double)w->taken;
    w->taken = 0;
}

/* Positions of all samples: all, or `most` of each, drawn. */
static void sbit__gram_positions(sbit__gram *gram, sbit__gram_work *w, int64_t samples)
{
    const int64_t all = w->sample.positions;
    const bool draw = gram->most > 0 && gram->most < all && all <= INT32_MAX;
    const int64_t count = draw ? gram->most : all;
    for (int64_t n = 0; n < samples; n++) {
        for (int64_t i = 0; i < count; i++) {
            const int64_t p = draw ? (int64_t)sbit_rng_below(&gram->rng, (uint32_t)all) : i;
            w->position[w->taken++] = n * all + p;
            if (w->taken == SBIT__GRAM_CHUNK) {
                sbit__gram_flush(gram, w);
            }
        }
    }
    sbit__gram_flush(gram, w);
}

SBIT__FN sbit_status sbit__gram_add(sbit__gram *gram, const sbit_tensor *a, const sbit_tensor *b,
                                    int64_t rows, int64_t first, int64_t samples, sbit_error *error)
{
    const sbit_allocator *allocator = sbit_ctx_allocator(gram->ctx);
    const int64_t depth = gram->layer.depth;
    sbit__gram_work w;
    sbit__gemm gemm;
    memset(&w, 0, sizeof w);
    if (a->dtype != SBIT_F32 || (b != NULL && b->dtype != SBIT_F32) ||
        !sbit__layer_shape(&gram->layer, a, rows, &w.sample)) {
        char text[160];
        sbit_tensor_describe(a, text, sizeof text);
        return sbit__fail(error, SBIT_ERR_SHAPE, gram->layer.node->name,
                          "the input of '%s' is %s, which does not go with its weight",
                          gram->layer.node->name, text);
    }
    memset(&gemm, 0, sizeof gemm);
    gemm.m = gemm.n = gemm.lda = gemm.ldb = gemm.ldc = depth;
    gemm.k = SBIT__GRAM_CHUNK;
    gemm.trans_a = true;
    const size_t scratch = sbit__gemm_scratch_bytes(gram->ctx, &gemm) + 64;
    const size_t columns = (size_t)(SBIT__GRAM_CHUNK * depth);
    const size_t floats = 2 * columns + (size_t)(depth * depth);
    w.window = gram->layer.conv
                   ? gram->layer.kernel[0] * gram->layer.kernel[1] * gram->layer.kernel[2]
                   : 0;
    const size_t numbers = (size_t)(SBIT__GRAM_CHUNK * (1 + w.window));
    const size_t bytes = scratch + floats * sizeof(float) + numbers * sizeof(int64_t);
    char *room = (char *)sbit__alloc(allocator, bytes);
    if (room == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    w.position = (int64_t *)(void *)room;
    w.offsets = w.position + SBIT__GRAM_CHUNK;
    room += numbers * sizeof(int64_t);
    w.scratch = (void *)(((uintptr_t)room + 63u) & ~(uintptr_t)63u);
    w.columns[0] = (float *)(void *)(room + scratch);
    w.columns[1] = w.columns[0] + columns;
    w.product = w.columns[1] + columns;
    w.sample_count = rows > 0 ? sbit_tensor_count(a) / rows : 0;
    w.a = (const float *)a->data + first * w.sample_count;
    w.b = b != NULL ? (const float *)b->data + first * w.sample_count : w.a;
    sbit__gram_positions(gram, &w, samples);
    sbit__free(allocator, w.position, bytes);
    return SBIT_OK;
}

static void sbit__gram_move(sbit__gram *gram, double count)
{
    const int64_t depth = gram->layer.depth;
    const float *mean_b = gram->cross ? gram->mean_b : gram->mean_a;
    for (int64_t g = 0; g < gram->layer.groups; g++) {
        for (int which = 0; which < (gram->cross ? 2 : 1); which++) {
            const float *a = (which == 0 ? mean_b : gram->mean_a) + g * depth;
            const float *b = mean_b + g * depth;
            float *sums = (which == 0 ? gram->sums : gram->mixed) + g * depth * depth;
            for (int64_t i = 0; i < depth * depth; i++) {
                sums[i] -= (float)((double)a[i / depth] * (double)b[i % depth] / count);
            }
        }
    }
}

SBIT__FN void sbit__gram_center(sbit__gram *gram)
{
    sbit__gram_move(gram, gram->count);
}

SBIT__FN void sbit__gram_uncenter(sbit__gram *gram)
{
    sbit__gram_move(gram, -gram->count);
}

/* >>means */
/* Sums of one window cell over the positions of a sample: cells in the padding are 0. */
static double sbit__layer_cell(const sbit__layer *layer, const sbit__layer_sample *s,
                               const float *plane, int64_t k)
{
    int64_t first[3], count[3];
    const int64_t cell[3] = {k / (layer->kernel[1] * layer->kernel[2]),
                             k / layer->kernel[2] % layer->kernel[1], k % layer->kernel[2]};
    double sum = 0.0;
    for (int32_t d = 0; d < 3; d++) { /* positions whose cell lies inside */
        const int64_t shift = cell[d] * layer->dilation[d] - s->pad[d], step = layer->stride[d];
        const int64_t begin = shift < 0 ? (-shift + step - 1) / step : 0;
        const int64_t last = s->in[d] - 1 - shift;
        int64_t end = last < 0 ? 0 : last / step + 1;
        end = end < s->out[d] ? end : s->out[d];
        first[d] = begin * step + shift;
        count[d] = end > begin ? end - begin : 0;
    }
    for (int64_t z = 0; z < count[0]; z++) {
        for (int64_t y = 0; y < count[1]; y++) {
            const float *line =
                plane +
                ((first[0] + z * layer->stride[0]) * s->in[1] + first[1] + y * layer->stride[1]) *
                    s->in[2] +
                first[2];
            for (int64_t x = 0; x < count[2]; x++) {
                sum += (double)line[x * layer->stride[2]];
            }
        }
    }
    return sum;
}

SBIT__FN sbit_status sbit__layer_means(const sbit__layer *layer, const sbit_tensor *x, int64_t rows,
                                       int64_t samples, double *sums, double *count,
                                       sbit_error *error)
{
    sbit__layer_sample s;
    if (x->dtype != SBIT_F32 || !sbit__layer_shape(layer, x, rows, &s)) {
        return sbit__fail(error, SBIT_ERR_SHAPE, layer->node->name,
                          "the input of '%s' does not go with its weight", layer->node->name);
    }
    const int64_t values = sbit_tensor_count(x) / rows;
    const int64_t window = layer->conv ? layer->kernel[0] * layer->kernel[1] * layer->kernel[2] : 1;
    for (int64_t n = 0; n < samples; n++) {
        const float *sample = (const float *)x->data + n * values;
        for (int64_t i = 0; layer->conv && i < s.channels * window; i++) {
            const float *plane = sample + i / window * s.in[0] * s.in[1] * s.in[2];
            sums[i] += sbit__layer_cell(layer, &s, plane, i % window);
        }
        for (int64_t i = 0; !layer->conv && i < values; i++) {
            sums[i % layer->depth] += (double)sample[i];
        }
    }
    *count += (double)(samples * s.positions);
    return SBIT_OK;
}

/* >>rounding layer by layer */
typedef struct sbit__round {
    sbit__round_units *units;
    sbit_walk *walks[2]; /* float; quantized so far (NULL: rounding for float inputs) */
    bool *done;          /* [site count] */
    sbit__gram gram, other;
} sbit__round;

static sbit_status sbit__round_see(const sbit_walk_batch *batch, void *user, sbit_error *error)
{
    sbit__round *r = (sbit__round *)user;
    return sbit__gram_add(&r->gram, batch->x, NULL, batch->rows, 0, batch->samples, error);
}

static sbit_status sbit__round_see_both(const sbit_walk_batch *batch, void *user, sbit_error *error)
{
    sbit__round *r = (sbit__round *)user;
    if (!sbit_tensor_same_shape(batch[0].x, batch[1].x)) {
        return sbit__fail(error, SBIT_ERR_SHAPE, r->gram.layer.node->name,
                          "the input of '%s' has another shape when quantized",
                          r->gram.layer.node->name);
    }
    sbit__gram *other = r->gram.other;
    int64_t own = batch->samples; /* every second batch is the other's; half of the only one */
    if (other != NULL && (batch->index % 2 != 0 || batch->samples == r->units->samples)) {
        own = batch->index % 2 != 0 ? 0 : batch->samples / 2;
        SBIT__TRY(sbit__gram_add(other, batch[0].x, batch[1].x, batch->rows, own, batch->samples - own,
                                 error));
    }
    return sbit__gram_add(&r->gram, batch[0].x, batch[1].x, batch->rows, 0, own, error);
}

static sbit_status sbit__round_gather(sbit__round *r, const sbit_unit *unit, sbit_error *error)
{
    if (r->walks[1] == NULL) {
        return sbit_walk_to(r->walks[0], unit->node, unit->input, sbit__round_see, r, error);
    }
    return sbit__walk_both(r->walks, unit->node, unit->input, sbit__round_see_both, r, error);
}

static sbit_status sbit__round_unit(sbit__round *r, const sbit_unit *unit, sbit_error *error)
{
    sbit_quant *quant = r->units->quant;
    sbit__layer layer;
    if (!sbit__layer_of(quant->graph, unit->node, &layer) || layer.depth > 16384) {
        char text[160];
        sbit_graph_describe(quant->graph, unit->node, text, sizeof text);
        sbit__log(quant->ctx, SBIT_LOG_INFO, "%s: %s leaves its weight at the nearest values",
                  r->units->step->head.name, text);
        r->done[unit->site] = true;
        return SBIT_OK;
    }
    SBIT__TRY(sbit__gram_init(quant->ctx, &layer, r->walks[1] != NULL, r->units->positions,
                              unit->site + 1, &r->gram, error));
    sbit_status status = SBIT_OK;
    if (r->units->halves && r->walks[1] != NULL) {
        status = sbit__gram_init(quant->ctx, &layer, true, r->units->positions, unit->site + 1, &r->other,
                                 error);
        r->gram.other = &r->other;
    }
    status = status == SBIT_OK ? sbit__round_gather(r, unit, error) : status;
    if (status == SBIT_OK) {
        status = r->units->round(r->units, unit, &layer, &r->gram, error);
    }
    r->done[unit->site] = true;
    sbit__gram_deinit(&r->gram);
    return status;
}

static sbit_status sbit__round_all(sbit__round *r, const sbit_feed *feed, sbit_unit *units,
                                   size_t count, sbit_error *error)
{
    sbit_quant *quant = r->units->quant;
    sbit_walk_desc desc;
    memset(&desc, 0, sizeof desc);
    SBIT__TRY(sbit_walk_create(quant, feed, NULL, &r->walks[0], error));
    for (size_t i = 0; i < quant->site_count; i++) { /* what is not rounded here is done already */
        r->done[i] = true;
    }
    for (size_t i = 0; i < count; i++) {
        r->done[units[i].site] = false;
    }
    desc.sites = r->done;
    if (sbit_quant_asym(quant, &desc) || r->units->quantized) {
        desc.quantized = true;
        SBIT__TRY(sbit_walk_create(quant, feed, &desc, &r->walks[1], error));
    }
    r->units->plain = r->walks[0];
    r->units->walk = r->walks[1];
    r->units->samples = feed->count;
    for (size_t i = 0; i < count; i++) {
        SBIT__TRY(sbit__progress(quant->ctx, r->units->step->head.name, (int64_t)i, (int64_t)count,
                                 error));
        SBIT__TRY(sbit__round_unit(r, &units[i], error));
    }
    return sbit__progress(quant->ctx, r->units->step->head.name, (int64_t)count, (int64_t)count,
                          error);
}

static sbit_status sbit__round_units_run(sbit__round_units *units, const sbit_feed *feed,
                                         sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(units->quant->ctx);
    const size_t count = sbit_quant_units(units->quant, units->step, NULL, 0);
    const size_t bytes = count * sizeof(sbit_unit) + units->quant->site_count + 64;
    sbit__round r;
    memset(&r, 0, sizeof r);
    sbit_unit *list = (sbit_unit *)sbit__calloc(a, 1, bytes);
    if (list == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    r.units = units;
    r.done = (bool *)(void *)(list + count);
    sbit_quant_units(units->quant, units->step, list, count);
    const sbit_status status = sbit__round_all(&r, feed, list, count, error);
    sbit__gram_deinit(&r.gram);
    sbit_walk_destroy(r.walks[0]);
    sbit_walk_destroy(r.walks[1]);
    sbit__free(a, list, bytes);
    return status;
}

SBIT__FN sbit_status sbit__round_run(void *state, const sbit_options *options,
                                     const sbit_step_row *step, const char *positions,
                                     bool quantized, bool halves, sbit__round_fn round,
                                     const sbit_feed *feed, sbit_error *error)
{
    sbit__round_units units;
    units.quant = (sbit_quant *)state;
    units.options = options;
    units.step = step;
    units.positions = sbit_options_int(options, positions);
    units.quantized = quantized;
    units.halves = halves;
    units.round = round;
    units.plain = units.walk = NULL;
    units.samples = 0;
    return sbit__round_units_run(&units, feed, error);
}

/* >>layer products */
static sbit__gemm sbit__layer_gemm(const sbit__layer *layer)
{
    sbit__gemm gemm;
    memset(&gemm, 0, sizeof gemm);
    gemm.m = layer->rows;
    gemm.n = gemm.k = gemm.lda = gemm.ldb = gemm.ldc = layer->depth;
    gemm.alpha = 1.0f;
    return gemm;
}

SBIT__FN size_t sbit__layer_product_bytes(sbit_ctx *ctx, const sbit__layer *layer)
{
    const sbit__gemm gemm = sbit__layer_gemm(layer);
    return sbit__gemm_scratch_bytes(ctx, &gemm) + 64;
}

SBIT__FN void sbit__layer_product(sbit_ctx *ctx, const sbit__layer *layer, const float *a,
                                  const float *g, float *c, void *scratch)
{
    sbit__gemm gemm = sbit__layer_gemm(layer);
    gemm.a = a;
    gemm.b = g;
    gemm.c = c;
    sbit__gemm_run(ctx, &gemm, scratch);
}
