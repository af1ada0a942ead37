/* permute.c: channels change places so that N of M keeps more. >>permute
 *
 * Pool and Yu 2021. Which inputs of a layer are neighbours is free as long as everything that holds
 * these channels agrees: classes of channels that occur equally often everywhere may exchange places.
 * Exchanges are drawn at random, and stay where N of M then keeps more of the scores of all layers that
 * read them: never less. What a block keeps is found for many lines at a time. At the end the model is run with the old and the new places and compared.
 */
#include "sparse_private.h"

#include <math.h>   /* fabs */
#include <stdlib.h> /* qsort */

enum {
    SBIT__PERMUTE_CHUNK = 256 /* lines */
};

/* The columns of a layer with N of M, or of one group of a convolution. */
typedef struct sbit__columns {
    const sbit_ctx *ctx;
    int32_t *classes;      /* [count]; -1: none */
    int64_t count, lines;  /* lines: rows and what is neither */
    int64_t n, m;          /* n of m go */
    float *scores;         /* [count][lines] */
    float *lowest;         /* [n + 2][SBIT__PERMUTE_CHUNK], scratch */
    int64_t *source;       /* [count]: the column whose scores are there now */
    double *kept;          /* of every block of m */
    int64_t *stamp;        /* of every block: the exchange that looked at it last */
    /* of the classes that are exchanged at present: places[class * times + i] */
    int64_t *places, times;
} sbit__columns;

/* Classes with the same kind may exchange places. */
typedef struct sbit__kind_place {
    uint64_t kind;
    int32_t class_idx;
} sbit__kind_place;

typedef struct sbit__permute {
    sbit_sparse *sparse;
    sbit__arena arena;
    sbit__columns *columns;
    size_t column_count;
    sbit__kind_place *order; /* of the classes, by kind */
    uint64_t *kinds;    /* by class */
    int32_t *now;       /* by class: the one that lies in its places now */
    int32_t *seen;      /* by class; scratch, 0 */
    int64_t trial;
} sbit__permute;

/* >>kinds: how often a class occurs along each list of labels */

static void sbit__permute_count(sbit__permute *p, const int32_t *labels, int64_t n, uint64_t list)
{
    const sbit_sparse *sparse = p->sparse;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < n; i++) {
            const int32_t c = sbit__class_of(&sparse->labeler, &sparse->groups, labels[i]);
            if (c >= 0 && pass == 0) {
                p->seen[c]++;
            } else if (c >= 0 && p->seen[c] > 0) {
                const uint64_t key[3] = {p->kinds[c], list, (uint64_t)p->seen[c]};
                p->kinds[c] = sbit__hash_bytes(key, sizeof key);
                p->seen[c] = 0;
            }
        }
    }
}

static int sbit__kind_order(const void *a, const void *b)
{
    const sbit__kind_place *x = (const sbit__kind_place *)a, *y = (const sbit__kind_place *)b;
    return x->kind != y->kind ? (x->kind < y->kind ? -1 : 1) : x->class_idx < y->class_idx ? -1 : 1;
}

static void sbit__permute_kinds(sbit__permute *p)
{
    const sbit__labeler *labeler = &p->sparse->labeler;
    const uint32_t values = sbit_graph_value_limit(p->sparse->graph);
    uint64_t list = 0;
    for (int32_t c = 0; c < p->sparse->groups.class_count; c++) {
        p->kinds[c] = (uint64_t)p->sparse->groups.classes[c].group + 1;
    }
    sbit__class_cells(p->sparse, p->kinds);
    for (uint32_t v = 1; v < values; v++, list++) {
        const sbit__channel_labels *labels = &labeler->of[v];
        const int64_t n = labels->form == SBIT__LABELS_AXIS      ? labels->dims[labels->axis]
                          : labels->form == SBIT__LABELS_UNIFORM ? 1
                          : labels->form == SBIT__LABELS_FULL    ? sbit__channel_labels_count(labels)
                                                                 : 0;
        sbit__permute_count(p, labels->at, n, list);
    }
    for (size_t m = 0; m < labeler->member_count; m++) {
        const sbit__member *member = &labeler->members[m];
        const int64_t length = member->count / member->parts;
        for (int64_t part = 0; part < member->parts; part++, list++) {
            sbit__permute_count(p, member->labels + part * length, length, list);
        }
    }
    for (int32_t c = 0; c < p->sparse->groups.class_count; c++) {
        p->order[c].kind = p->kinds[c];
        p->order[c].class_idx = p->now[c] = c;
    }
    qsort(p->order, (size_t)p->sparse->groups.class_count, sizeof *p->order, sbit__kind_order);
}

/* >>what is kept */

static double sbit__columns_sum(const float *x, int64_t n)
{
    double sums[4] = {0.0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        sums[0] += (double)x[i];
        sums[1] += (double)x[i + 1];
        sums[2] += (double)x[i + 2];
        sums[3] += (double)x[i + 3];
    }
    for (; i < n; i++) {
        sums[0] += (double)x[i];
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* What n of m keeps of n lines from `line` on: of every line the smallest so far stay aside, ascending,
 * and what they push out is kept. */
static double sbit__columns_chunk(const sbit__columns *t, int64_t block, int64_t line, int64_t n)
{
    const int64_t first = block * t->m, width = first + t->m < t->count ? t->m : t->count - first;
    const int64_t gone = t->n - (t->m - width);
    const sbit_kernels *kernels = sbit__kernels(t->ctx);
    float *spare[2] = {t->lowest + t->n * SBIT__PERMUTE_CHUNK, t->lowest + (t->n + 1) * SBIT__PERMUTE_CHUNK};
    double kept = 0.0;
    for (int64_t i = 0, lows = 0; i < width; i++) {
        const float *x = t->scores + t->source[first + i] * t->lines + line;
        for (int64_t k = 0; k < lows; k++) {
            float *low = t->lowest + k * SBIT__PERMUTE_CHUNK;
            kernels->f32_binary(SBIT__BINARY_MAX, n, low, 1, x, 1, spare[k % 2]);
            kernels->f32_binary(SBIT__BINARY_MIN, n, low, 1, x, 1, low);
            x = spare[k % 2];
        }
        if (lows < gone) {
            memcpy(t->lowest + lows++ * SBIT__PERMUTE_CHUNK, x, (size_t)n * sizeof *x);
        } else {
            kept += sbit__columns_sum(x, n);
        }
    }
    return kept;
}

static double sbit__columns_block(const sbit__columns *t, int64_t block)
{
    const int64_t chunk = SBIT__PERMUTE_CHUNK;
    double kept = 0.0;
    for (int64_t line = 0; line < t->lines; line += chunk) {
        const int64_t left = t->lines - line;
        kept += sbit__columns_chunk(t, block, line, left < chunk ? left : chunk);
    }
    return kept;
}

/* Part of all scores that is kept. */
static double sbit__permute_share(const sbit__permute *p)
{
    double kept = 0.0, all = 0.0;
    for (size_t i = 0; i < p->column_count; i++) {
        const sbit__columns *t = &p->columns[i];
        for (int64_t b = 0; b * t->m < t->count; b++) {
            kept += t->kept[b];
        }
        for (int64_t k = 0; k < t->count * t->lines; k++) {
            all += (double)t->scores[k];
        }
    }
    return all > 0.0 ? kept / all : 1.0;
}

/* The columns of `part` of a layer's rows. */
static sbit_status sbit__columns_make(sbit__permute *p, const sbit__sparse_layer *layer,
                                      const sbit__member *member, int64_t part, sbit_error *error)
{
    const sbit_tensor *w = &sbit_graph_value(p->sparse->graph, member->value)->constant;
    sbit__columns *t = &p->columns[p->column_count++];
    int64_t inner = 1, at = 0;
    memset(t, 0, sizeof *t);
    t->ctx = p->sparse->ctx;
    t->count = w->dims[member->axis];
    t->lines = sbit_tensor_count(w) / member->parts / t->count;
    t->n = layer->settings.n_of_m[0];
    t->m = layer->settings.n_of_m[1];
    const size_t blocks = (size_t)((t->count + t->m - 1) / t->m);
    t->classes = (int32_t *)sbit__arena_array(&p->arena, (size_t)t->count, sizeof(int32_t));
    t->scores = (float *)sbit__arena_array(&p->arena, (size_t)(t->count * t->lines), sizeof(float));
    t->lowest = (float *)sbit__arena_array(&p->arena, (size_t)(t->n + 2) * SBIT__PERMUTE_CHUNK, sizeof(float));
    t->source = (int64_t *)sbit__arena_array(&p->arena, (size_t)t->count, sizeof(int64_t));
    t->places = (int64_t *)sbit__arena_array(&p->arena, (size_t)t->count, sizeof(int64_t));
    t->kept = (double *)sbit__arena_array(&p->arena, blocks, sizeof(double));
    t->stamp = (int64_t *)sbit__arena_array(&p->arena, blocks, sizeof(int64_t));
    if (t->classes == NULL || t->scores == NULL || t->lowest == NULL || t->source == NULL || t->places == NULL ||
        t->kept == NULL || t->stamp == NULL) {
        return sbit__fail_oom(error, (size_t)(t->count * t->lines) * sizeof(float));
    }
    for (int32_t i = member->axis + 1; i < w->rank; i++) {
        inner *= w->dims[i];
    }
    const int64_t each = sbit_tensor_count(w) / member->parts, first = part * each; /* parts are of axis 0 */
    for (int64_t i = 0; i < each; i++) {
        const int64_t column = (first + i) / inner % t->count;
        at = i / inner / t->count * inner + i % inner; /* line */
        const double score = layer->row->update == NULL ? layer->scores[first + i]
                                                         : fabs(sbit__tensor_f64_at(w, first + i));
        t->scores[column * t->lines + at] = (float)score;
    }
    for (int64_t c = 0; c < t->count; c++) {
        t->source[c] = c;
        t->classes[c] = sbit__class_of(&p->sparse->labeler, &p->sparse->groups, member->labels[part * t->count + c]);
    }
    for (size_t b = 0; b < blocks; b++) {
        t->kept[b] = sbit__columns_block(t, (int64_t)b);
    }
    return SBIT_OK;
}

static bool sbit__permute_takes(const sbit__sparse_layer *layer)
{
    return !layer->settings.structured && layer->settings.n_of_m[1] > 0 && layer->settings.n_of_m[0] <= 64 &&
           layer->call.in_axis >= 0;
}

static sbit_status sbit__permute_columns(sbit__permute *p, sbit_error *error)
{
    const sbit_sparse *sparse = p->sparse;
    for (int pass = 0; pass < 2; pass++) {
        size_t count = 0;
        for (size_t i = 0; i < sparse->layer_count; i++) {
            const sbit__sparse_layer *layer = &sparse->layers[i];
            for (size_t m = 0; sbit__permute_takes(layer) && m < sparse->labeler.member_count; m++) {
                const sbit__member *member = &sparse->labeler.members[m];
                if (member->value.idx != sparse->labeler.members[layer->member].value.idx ||
                    member->axis != layer->call.in_axis || (member->roles >> SBIT_ROLE_COLUMNS & 1u) == 0) {
                    continue;
                }
                count += (size_t)member->parts;
                for (int64_t part = 0; pass == 1 && part < member->parts; part++) {
                    SBIT__TRY(sbit__columns_make(p, layer, member, part, error));
                }
            }
        }
        if (pass == 0) {
            p->columns = (sbit__columns *)sbit__arena_array(&p->arena, count + 1, sizeof *p->columns);
            if (p->columns == NULL) {
                return sbit__fail_oom(error, count * sizeof *p->columns);
            }
        }
    }
    return SBIT_OK;
}

/* >>exchanges */

/* Where the classes order[0..n-1] lie, each equally often; false: no column is one of them. */
static bool sbit__permute_places(sbit__permute *p, const sbit__kind_place *order, int32_t n)
{
    bool any = false;
    for (size_t i = 0; i < p->column_count; i++) {
        sbit__columns *t = &p->columns[i];
        int64_t found = 0;
        for (int32_t k = 0; k < n; k++) {
            p->seen[order[k].class_idx] = k + 1;
        }
        for (int64_t c = 0; c < t->count; c++) {
            found += t->classes[c] >= 0 && p->seen[t->classes[c]] > 0 ? 1 : 0;
        }
        t->times = found / n;
        for (int32_t k = 0; k < n; k++) { /* the next free of its places, from 1 */
            p->seen[order[k].class_idx] = (int32_t)(k * t->times) + 1;
        }
        for (int64_t c = 0; c < t->count; c++) {
            if (t->classes[c] >= 0 && p->seen[t->classes[c]] > 0) {
                t->places[p->seen[t->classes[c]]++ - 1] = c;
            }
        }
        any = any || t->times > 0;
    }
    for (int32_t k = 0; k < n; k++) {
        p->seen[order[k].class_idx] = 0;
    }
    return any;
}

static void sbit__columns_exchange(const sbit__columns *t, int32_t a, int32_t b)
{
    for (int64_t i = 0; i < t->times; i++) {
        int64_t *x = &t->source[t->places[a * t->times + i]], *y = &t->source[t->places[b * t->times + i]];
        const int64_t was = *x;
        *x = *y;
        *y = was;
    }
}

/* What the blocks with these classes keep beyond `kept`; keep: it is noted there. */
static double sbit__columns_gain(sbit__permute *p, sbit__columns *t, int32_t a, int32_t b, bool keep)
{
    double gain = 0.0;
    p->trial++;
    for (int64_t i = 0; i < 2 * t->times; i++) {
        const int64_t block = t->places[(i < t->times ? a : b) * t->times + i % t->times] / t->m;
        if (t->stamp[block] != p->trial) {
            const double kept = sbit__columns_block(t, block);
            t->stamp[block] = p->trial;
            gain += kept - t->kept[block];
            t->kept[block] = keep ? kept : t->kept[block];
        }
    }
    return gain;
}

static void sbit__permute_try(sbit__permute *p, const sbit__kind_place *order, int32_t a, int32_t b)
{
    double gain = 0.0;
    for (size_t i = 0; i < p->column_count; i++) {
        sbit__columns_exchange(&p->columns[i], a, b);
        gain += sbit__columns_gain(p, &p->columns[i], a, b, false);
    }
    const bool better = gain > 0.0;
    for (size_t i = 0; i < p->column_count; i++) {
        if (better) {
            sbit__columns_gain(p, &p->columns[i], a, b, true);
        } else {
            sbit__columns_exchange(&p->columns[i], a, b);
        }
    }
    if (better) {
        int32_t *x = &p->now[order[a].class_idx], *y = &p->now[order[b].class_idx];
        const int32_t was = *x;
        *x = *y;
        *y = was;
    }
}

static sbit_status sbit__permute_search(sbit__permute *p, int64_t tries, sbit_error *error)
{
    const int32_t classes = p->sparse->groups.class_count;
    sbit_rng rng = sbit_rng_seed(1);
    for (int32_t first = 0, end; first < classes; first = end) {
        for (end = first + 1; end < classes && p->order[end].kind == p->order[first].kind; end++) {
        }
        const uint32_t n = (uint32_t)(end - first);
        if (n < 2 || !p->sparse->groups.classes[p->order[first].class_idx].removable ||
            !sbit__permute_places(p, p->order + first, end - first)) {
            continue;
        }
        for (int64_t i = 0; i < tries * (int64_t)n; i++) {
            const uint32_t a = (uint32_t)(i % n), b = (a + 1 + sbit_rng_below(&rng, n - 1)) % n;
            sbit__permute_try(p, p->order + first, (int32_t)a, (int32_t)b);
        }
        SBIT__TRY(sbit__progress(p->sparse->ctx, "permute", end, classes, error));
    }
    return SBIT_OK;
}

/* >>the graph follows */

/* from[i]: the index whose place index i gets, along labels. */
static sbit_status sbit__permute_map(sbit__permute *p, const int32_t *labels, int64_t n, sbit__arena *arena,
                                     int64_t **from, sbit_error *error)
{
    const sbit__labeler *labeler = &p->sparse->labeler;
    int64_t *map = (int64_t *)sbit__arena_array(arena, (size_t)n + 1, sizeof *map);
    if (map == NULL) {
        return sbit__fail_oom(error, (size_t)n * sizeof *map);
    }
    for (int64_t i = 0; i < n; i++) {
        const int32_t c = sbit__class_of(labeler, &p->sparse->groups, labels[i]);
        map[i] = i;
        if (c >= 0 && p->now[c] != c) { /* the same occurrence of what lies here now */
            int64_t before = p->seen[c]++;
            for (int64_t k = 0; k < n; k++) {
                if (sbit__class_of(labeler, &p->sparse->groups, labels[k]) == p->now[c] && before-- == 0) {
                    map[i] = k;
                    break;
                }
            }
        }
    }
    for (int64_t i = 0; i < n; i++) {
        const int32_t c = sbit__class_of(labeler, &p->sparse->groups, labels[i]);
        p->seen[c >= 0 ? c : 0] = 0;
    }
    *from = map;
    return SBIT_OK;
}

/* One axis of a constant, with the labels of each part of axis 0. */
static sbit_status sbit__permute_axis(sbit__permute *p, sbit_value_id id, int32_t axis, const int32_t *labels,
                                      int64_t parts, bool *changed, sbit_error *error)
{
    const sbit_tensor *w = &sbit_graph_value(p->sparse->graph, id)->constant;
    const int64_t length = w->dims[axis], count = sbit_tensor_count(w);
    const size_t each = count > 0 ? sbit_tensor_bytes(w) / (size_t)count : 0;
    sbit_tensor moved;
    sbit__arena arena;
    int64_t inner = 1;
    bool any = false;
    sbit_status status = SBIT_OK;
    for (int64_t i = 0; i < parts * length && !any; i++) {
        const int32_t c = sbit__class_of(&p->sparse->labeler, &p->sparse->groups, labels[i]);
        any = c >= 0 && p->now[c] != c;
    }
    if (!any) {
        return SBIT_OK;
    }
    for (int32_t i = axis + 1; i < w->rank; i++) {
        inner *= w->dims[i];
    }
    SBIT__TRY(sbit__tensor_copy(p->sparse->ctx, w, &moved, error));
    sbit__arena_init(&arena, sbit_ctx_allocator(p->sparse->ctx));
    for (int64_t part = 0, rows = count / parts; part < parts && status == SBIT_OK; part++) {
        int64_t *from = NULL;
        status = sbit__permute_map(p, labels + part * length, length, &arena, &from, error);
        for (int64_t i = part * rows; status == SBIT_OK && i < (part + 1) * rows; i += inner) {
            const int64_t at = i / inner % length;
            memcpy((char *)moved.data + (size_t)i * each,
                   (const char *)w->data + (size_t)(i + (from[at] - at) * inner) * each, (size_t)inner * each);
        }
    }
    status = status == SBIT_OK ? sbit_graph_set_constant(p->sparse->graph, id, &moved, error) : status;
    sbit_tensor_free(p->sparse->ctx, &moved);
    sbit__arena_deinit(&arena);
    *changed = true;
    return status;
}

static sbit_status sbit__permute_constant(sbit__permute *p, sbit_value_id id, bool *changed, sbit_error *error)
{
    const sbit__labeler *labeler = &p->sparse->labeler;
    const sbit__channel_labels *labels = &labeler->of[id.idx];
    uint32_t done = 0; /* axes */
    for (size_t m = 0; m < labeler->member_count; m++) {
        const sbit__member *member = &labeler->members[m];
        if (member->value.idx == id.idx && (done >> member->axis & 1u) == 0) {
            done |= 1u << member->axis;
            SBIT__TRY(sbit__permute_axis(p, id, member->axis, member->labels, member->parts, changed, error));
        }
    }
    return labels->form == SBIT__LABELS_AXIS && (done >> labels->axis & 1u) == 0
               ? sbit__permute_axis(p, id, labels->axis, labels->at, 1, changed, error)
               : SBIT_OK;
}

/* The user's graph gets the new places too, if it holds all that changed. */
static sbit_status sbit__permute_original(sbit_sparse *sparse, const bool *changed, sbit_error *error)
{
    bool all = sparse->original != NULL;
    sbit_status status = SBIT_OK;
    for (uint32_t v = 1; v < sbit_graph_value_limit(sparse->graph); v++) {
        all = all && (!changed[v] || sparse->in_original[v]);
    }
    for (uint32_t v = 1; v < sbit_graph_value_limit(sparse->graph) && all && status == SBIT_OK; v++) {
        sbit_value_id id;
        id.idx = v;
        if (changed[v]) {
            status = sbit__originals_put(sparse, sparse->original, id,
                                         &sbit_graph_value(sparse->graph, id)->constant, error);
        }
    }
    if (!all) {
        sbit_graph_destroy(sparse->original);
        sparse->original = NULL;
    }
    return status;
}

static sbit_status sbit__permute_apply(sbit__permute *p, sbit_error *error)
{
    sbit_sparse *sparse = p->sparse;
    const uint32_t limit = sbit_graph_value_limit(sparse->graph);
    bool *changed = (bool *)sbit__arena_array(&p->arena, limit, sizeof *changed);
    sbit_graph *before = NULL;
    if (changed == NULL) {
        return sbit__fail_oom(error, limit);
    }
    SBIT__TRY(sbit_graph_clone(sparse->graph, &before, error));
    sbit_status status = SBIT_OK;
    for (uint32_t v = 1; v < limit && status == SBIT_OK; v++) {
        sbit_value_id id;
        id.idx = v;
        if (sbit_graph_value_alive(sparse->graph, id) && sbit_graph_value(sparse->graph, id)->is_constant) {
            status = sbit__permute_constant(p, id, &changed[v], error);
        }
    }
    status = status == SBIT_OK ? sbit__sparse_same(sparse, before, sparse->graph, error) : status;
    for (uint32_t v = 1; v < limit && status != SBIT_OK; v++) { /* as it was */
        sbit_value_id id;
        id.idx = v;
        if (changed[v]) {
            sbit_graph_set_constant(sparse->graph, id, &sbit_graph_value(before, id)->constant, NULL);
        }
    }
    sbit_graph_destroy(before);
    return status == SBIT_OK ? sbit__permute_original(sparse, changed, error) : status;
}

static sbit_status sbit__permute_run(sbit__permute *p, int64_t tries, sbit_sparse_permuted *out,
                                     sbit_error *error)
{
    const size_t n = (size_t)p->sparse->groups.class_count + 1;
    p->order = (sbit__kind_place *)sbit__arena_array(&p->arena, n, sizeof *p->order);
    p->kinds = (uint64_t *)sbit__arena_array(&p->arena, n, sizeof *p->kinds);
    p->now = (int32_t *)sbit__arena_array(&p->arena, n, sizeof *p->now);
    p->seen = (int32_t *)sbit__arena_array(&p->arena, n, sizeof *p->seen);
    if (p->order == NULL || p->kinds == NULL || p->now == NULL || p->seen == NULL) {
        return sbit__fail_oom(error, n * sizeof *p->order);
    }
    SBIT__TRY(sbit__permute_columns(p, error));
    sbit__permute_kinds(p);
    out->before = sbit__permute_share(p);
    SBIT__TRY(sbit__permute_search(p, tries, error));
    out->after = sbit__permute_share(p);
    for (int32_t c = 0; c < p->sparse->groups.class_count; c++) {
        out->channels += p->now[c] != c ? 1 : 0;
    }
    return out->channels > 0 ? sbit__permute_apply(p, error) : SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_sparse_permute(sbit_sparse *sparse, const sbit_feed *feed,
                                              sbit_sparse_permuted *out, sbit_error *error)
{
    const int64_t tries = sbit_options_int(&sparse->options, "PERMUTE");
    sbit_sparse_permuted unused;
    sbit__permute p;
    out = out != NULL ? out : &unused;
    memset(out, 0, sizeof *out);
    if (tries == 0) {
        return SBIT_OK;
    }
    if (sparse->packed_count > 0 || sparse->format != NULL) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL,
                          "PERMUTE: weights that are integers keep their places; prune before quantizing");
    }
    for (uint32_t v = 1; v < sbit_graph_value_limit(sparse->graph); v++) {
        if (sparse->start[v] != NULL) {
            return sbit__fail(error, SBIT_ERR_STATE, NULL, "PERMUTE: a start mask is of the places before");
        }
    }
    SBIT__TRY(sbit__sparse_restore(sparse, error));
    SBIT__TRY(sbit__layers_score(sparse, feed, error));
    sbit__masks_clear(sparse);
    sparse->masks_fit = false;
    memset(&p, 0, sizeof p);
    p.sparse = sparse;
    sbit__arena_init(&p.arena, sbit_ctx_allocator(sparse->ctx));
    const sbit_status status = sbit__permute_run(&p, tries, out, error);
    sbit__arena_deinit(&p.arena);
    return status;
}
