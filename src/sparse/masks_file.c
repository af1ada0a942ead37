/* masks_file.c: masks as JSON. >>masks-file
 *
 *     {"conv1": {"weight": {"shape": [8, 3, 3, 3], "runs": [kept, pruned, kept ...]}, "bias": {...}}}
 *
 * NNI's {layer: {weight, bias}}; a mask that no layer reads is the "constant" of its own name.
 */
#include "../passes/passes_private.h"
#include "sparse_private.h"

/* >>names */

static const char *sbit__mask_part(const sbit_node *node, size_t input)
{
    if (sbit__is_op(node, "Gather")) { /* of an embedding's table */
        return input == 0 ? "weight" : NULL;
    }
    static const char *const parts[2][4] = {{NULL, "weight", "bias", NULL},
                                            {NULL, "weight_ih", "weight_hh", "bias"}};
    const bool rnn = sbit__is_op(node, "LSTM") || sbit__is_op(node, "GRU") || sbit__is_op(node, "RNN");
    return input < 4 ? parts[rnn ? 1 : 0][input] : NULL;
}

SBIT__FN const char *sbit__mask_reader(const sbit_sparse *sparse, sbit_value_id value, const char **part)
{
    for (size_t i = 0; i < sparse->layer_count; i++) {
        const sbit_node *node =
            sbit_graph_node(sparse->graph, sparse->labeler.members[sparse->layers[i].member].node);
        for (size_t k = 0; k < node->input_count; k++) {
            *part = node->inputs[k].idx == value.idx ? sbit__mask_part(node, k) : NULL;
            if (*part != NULL) {
                return sparse->layers[i].name;
            }
        }
    }
    return NULL;
}

SBIT__FN sbit_value_id sbit__mask_find(const sbit_sparse *sparse, const char *name)
{
    for (size_t i = 0; i < sparse->layer_count; i++) {
        const sbit_node *node =
            sbit_graph_node(sparse->graph, sparse->labeler.members[sparse->layers[i].member].node);
        const size_t size = strlen(sparse->layers[i].name);
        for (size_t k = 0; k < node->input_count; k++) {
            const char *part = sbit__mask_part(node, k);
            if (part != NULL && node->inputs[k].idx != 0 &&
                sbit_graph_value(sparse->graph, node->inputs[k])->is_constant && strncmp(name, sparse->layers[i].name, size) == 0 &&
                name[size] == '.' && sbit__streq(name + size + 1, part)) {
                return node->inputs[k];
            }
        }
    }
    return sbit_graph_find_value(sparse->graph, name);
}

/* >>writing */

static void sbit__mask_put(sbit_json *to, const sbit_sparse *sparse, const sbit_mask *mask)
{
    const sbit_tensor *tensor = &sbit_graph_value(sparse->graph, mask->value)->constant;
    bool now = true;
    int64_t run = 0;
    sbit_json_open(to, mask->part != NULL ? mask->part : "constant", '{');
    sbit_json_open(to, "shape", '[');
    for (int32_t d = 0; d < tensor->rank; d++) {
        sbit_json_int(to, NULL, tensor->dims[d]);
    }
    sbit_json_close(to, ']');
    sbit_json_open(to, "runs", '[');
    for (int64_t i = 0; i <= mask->count; i++) {
        if (i == mask->count || (mask->keep[i] != 0) != now) {
            sbit_json_int(to, NULL, run);
            now = !now;
            run = 0;
        }
        run++;
    }
    sbit_json_close(to, ']');
    sbit_json_close(to, '}');
}

SBIT__FN void sbit__masks_print(const sbit_sparse *sparse, sbit_json *to)
{
    const size_t count = sbit_sparse_mask_count(sparse);
    sbit_json_open(to, NULL, '{');
    for (size_t i = 0; i < count; i++) {
        sbit_mask first, mask;
        bool again = false; /* an object was made for its layer */
        sbit_sparse_mask(sparse, i, &first);
        for (size_t k = 0; k < i && first.layer != NULL && !again; k++) {
            sbit_sparse_mask(sparse, k, &mask);
            again = mask.layer == first.layer;
        }
        if (again) {
            continue;
        }
        sbit_json_open(to, first.layer != NULL ? first.layer : first.name, '{');
        sbit__mask_put(to, sparse, &first);
        for (size_t k = i + 1; k < count && first.layer != NULL; k++) {
            sbit_sparse_mask(sparse, k, &mask);
            if (mask.layer == first.layer) {
                sbit__mask_put(to, sparse, &mask);
            }
        }
        sbit_json_close(to, '}');
    }
    sbit_json_close(to, '}');
}

/* >>reading: what a mask is set to is kept aside until all of the file is known to be right */

typedef struct sbit__mask_found {
    struct sbit__mask_found *next;
    sbit_value_id value;
    uint8_t *keep;
    int64_t count;
    uint8_t *to; /* in the arena of the sparse */
} sbit__mask_found;

typedef struct sbit__mask_text {
    sbit_sparse *sparse;
    const char *at, *end;
    int line;
    const char *layer; /* that is read */
    sbit__mask_found *found;
    const char *name; /* of found, in the file */
    int64_t done;     /* so much of found->keep, or so many dims of its shape */
    bool shape, runs; /* were read */
    int64_t number;   /* of runs, so far */
    sbit__arena arena;
    sbit_error *error;
} sbit__mask_text;

static sbit_status sbit__masks_fail(const sbit__mask_text *t, const char *what)
{
    return sbit__fail(t->error, SBIT_ERR_CONFIG, NULL, "masks, line %d: %s", t->line, what);
}

/* What comes behind white space is c. */
static bool sbit__masks_next(sbit__mask_text *t, char c, bool take)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\t' || *t->at == '\r' || *t->at == '\n')) {
        t->line += *t->at++ == '\n' ? 1 : 0;
    }
    const bool is = t->at < t->end && *t->at == c;
    t->at += is && take ? 1 : 0;
    return is;
}

/* A string and its colon; copied to the arena. */
static sbit_status sbit__masks_key(sbit__mask_text *t, const char **out)
{
    sbit_yaml_doc *doc = NULL;
    bool is = sbit__masks_next(t, '"', true);
    const char *first = t->at - 1;
    for (; is && t->at < t->end && *t->at != '"'; t->at++) {
        t->at += *t->at == '\\' && t->end - t->at > 1 ? 1 : 0;
        is = *t->at != '\n';
    }
    if (!is || !sbit__masks_next(t, '"', true)) {
        return sbit__masks_fail(t, "a name in quotes is expected");
    }
    SBIT__TRY(sbit_yaml_parse(t->sparse->ctx, first, (size_t)(t->at - first), &doc, t->error)); /* its escapes */
    const char *text = sbit_yaml_root(doc)->text;
    *out = sbit__arena_strdup(&t->arena, text, strlen(text));
    sbit_yaml_destroy(doc);
    if (*out == NULL) {
        return sbit__fail_oom(t->error, (size_t)(t->at - first));
    }
    return sbit__masks_next(t, ':', true) ? SBIT_OK : sbit__masks_fail(t, "a colon is expected");
}

static sbit_status sbit__masks_object(sbit__mask_text *t, const char *what,
                                      sbit_status (*member)(sbit__mask_text *t, const char *key))
{
    if (!sbit__masks_next(t, '{', true)) {
        return sbit__masks_fail(t, what);
    }
    if (sbit__masks_next(t, '}', true)) {
        return SBIT_OK;
    }
    do {
        const char *key = NULL;
        SBIT__TRY(sbit__masks_key(t, &key));
        SBIT__TRY(member(t, key));
    } while (sbit__masks_next(t, ',', true));
    return sbit__masks_next(t, '}', true) ? SBIT_OK : sbit__masks_fail(t, "',' or '}' is expected");
}

static sbit_status sbit__masks_dim(sbit__mask_text *t, int64_t value)
{
    const sbit_tensor *tensor = &sbit_graph_value(t->sparse->graph, t->found->value)->constant;
    return t->done++ < tensor->rank && value == tensor->dims[t->done - 1]
               ? SBIT_OK
               : sbit__fail(t->error, SBIT_ERR_SHAPE, t->name, "masks: '%s' has another shape", t->name);
}

static sbit_status sbit__masks_run(sbit__mask_text *t, int64_t value)
{
    if (value > t->found->count - t->done) {
        return sbit__masks_fail(t, "runs do not add up to the shape");
    }
    memset(t->found->keep + t->done, t->number++ % 2 == 0, (size_t)value);
    t->done += value;
    return SBIT_OK;
}

static sbit_status sbit__masks_numbers(sbit__mask_text *t, sbit_status (*each)(sbit__mask_text *t, int64_t value))
{
    t->done = t->number = 0;
    if (!sbit__masks_next(t, '[', true)) {
        return sbit__masks_fail(t, "a list of numbers is expected");
    }
    if (sbit__masks_next(t, ']', true)) {
        return SBIT_OK;
    }
    do {
        int64_t value = 0;
        sbit__masks_next(t, '0', false);
        if (t->at == t->end || *t->at < '0' || *t->at > '9') {
            return sbit__masks_fail(t, "a number that is not negative is expected");
        }
        for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++) { /* too large is too large */
            value = value < INT64_MAX / 16 ? value * 10 + (*t->at - '0') : value;
        }
        SBIT__TRY(each(t, value));
    } while (sbit__masks_next(t, ',', true));
    return sbit__masks_next(t, ']', true) ? SBIT_OK : sbit__masks_fail(t, "',' or ']' is expected");
}

static sbit_status sbit__masks_entry(sbit__mask_text *t, const char *key)
{
    if (sbit__streq(key, "shape")) {
        const int32_t rank = sbit_graph_value(t->sparse->graph, t->found->value)->constant.rank;
        SBIT__TRY(sbit__masks_numbers(t, sbit__masks_dim));
        t->shape = true;
        return t->done == rank ? SBIT_OK
                               : sbit__fail(t->error, SBIT_ERR_SHAPE, t->name, "masks: '%s' has another shape", t->name);
    }
    if (sbit__streq(key, "runs")) {
        SBIT__TRY(sbit__masks_numbers(t, sbit__masks_run));
        t->runs = true;
        return t->done == t->found->count ? SBIT_OK : sbit__masks_fail(t, "runs do not add up to the shape");
    }
    return sbit__masks_fail(t, "{\"shape\": [...], \"runs\": [...]} is expected");
}

/* Place for the mask of t->name. */
static sbit_status sbit__masks_add(sbit__mask_text *t)
{
    sbit__mask_found *found = (sbit__mask_found *)sbit__arena_array(&t->arena, 1, sizeof *found);
    if (found == NULL) {
        return sbit__fail_oom(t->error, sizeof *found);
    }
    memset(found, 0, sizeof *found);
    found->value = sbit__mask_find(t->sparse, t->name);
    if (found->value.idx == 0 || !sbit_graph_value(t->sparse->graph, found->value)->is_constant) {
        return sbit__fail(t->error, SBIT_ERR_NOT_FOUND, t->name, "masks: nothing is called '%s'", t->name);
    }
    for (const sbit__mask_found *f = t->found; f != NULL; f = f->next) {
        if (f->value.idx == found->value.idx) {
            return sbit__fail(t->error, SBIT_ERR_CONFIG, t->name, "masks: '%s' is given twice", t->name);
        }
    }
    found->count = sbit_tensor_count(&sbit_graph_value(t->sparse->graph, found->value)->constant);
    found->keep = (uint8_t *)sbit__arena_alloc(&t->arena, (size_t)found->count + 1);
    if (found->keep == NULL) {
        return sbit__fail_oom(t->error, (size_t)found->count);
    }
    found->next = t->found;
    t->found = found;
    return SBIT_OK;
}

static sbit_status sbit__masks_part(sbit__mask_text *t, const char *key)
{
    t->name = sbit__streq(key, "constant") ? t->layer : sbit__arena_printf(&t->arena, "%s.%s", t->layer, key);
    if (t->name == NULL) {
        return sbit__fail_oom(t->error, strlen(t->layer) + strlen(key) + 2);
    }
    SBIT__TRY(sbit__masks_add(t));
    t->shape = t->runs = false;
    SBIT__TRY(sbit__masks_object(t, "{\"shape\": [...], \"runs\": [...]} is expected", sbit__masks_entry));
    return t->shape && t->runs ? SBIT_OK : sbit__masks_fail(t, "{\"shape\": [...], \"runs\": [...]} is expected");
}

static sbit_status sbit__masks_layer(sbit__mask_text *t, const char *key)
{
    t->layer = key;
    return sbit__masks_object(t, "{layer: {weight: {...}}} is expected", sbit__masks_part);
}

static sbit_status sbit__masks_set(sbit__mask_text *t, uint8_t **masks)
{
    for (sbit__mask_found *f = t->found; f != NULL; f = f->next) {
        f->to = masks[f->value.idx] != NULL
                    ? masks[f->value.idx]
                    : (uint8_t *)sbit__arena_alloc(&t->sparse->arena, (size_t)f->count + 1);
        if (f->to == NULL) {
            return sbit__fail_oom(t->error, (size_t)f->count);
        }
    }
    for (sbit__mask_found *f = t->found; f != NULL; f = f->next) {
        memcpy(f->to, f->keep, (size_t)f->count);
        masks[f->value.idx] = f->to;
    }
    return SBIT_OK;
}

static sbit_status sbit__masks_read(sbit__mask_text *t)
{
    SBIT__TRY(sbit__masks_object(t, "an object is expected", sbit__masks_layer));
    sbit__masks_next(t, '\0', false);
    return t->at == t->end ? SBIT_OK : sbit__masks_fail(t, "something comes behind the object");
}

static void sbit__masks_init(sbit__mask_text *t, sbit_sparse *sparse, sbit_error *error)
{
    memset(t, 0, sizeof *t);
    t->sparse = sparse;
    t->error = error;
    sbit__arena_init(&t->arena, sbit_ctx_allocator(sparse->ctx));
}

/* Sets what was found, unless something failed. */
static sbit_status sbit__masks_end(sbit__mask_text *t, bool start, sbit_status status)
{
    sbit_sparse *sparse = t->sparse;
    status = status == SBIT_OK ? sbit__masks_set(t, start ? sparse->start : sparse->keep) : status;
    sparse->masks_fit = sparse->masks_fit && (start || status != SBIT_OK);
    sbit__arena_deinit(&t->arena);
    return status;
}

SPARSEBIT_API sbit_status sbit_sparse_load_masks(sbit_sparse *sparse, const char *path, bool start,
                                                 sbit_error *error)
{
    sbit__mask_text text;
    sbit__file file;
    SBIT__TRY(sbit__file_open(sbit_ctx_allocator(sparse->ctx), path, &file, error));
    sbit__masks_init(&text, sparse, error);
    text.at = (const char *)file.data;
    text.end = text.at + file.size;
    text.line = 1;
    const sbit_status status = sbit__masks_end(&text, start, sbit__masks_read(&text));
    sbit__file_close(&file);
    return status;
}

static sbit_status sbit__masks_copy(sbit__mask_text *t, const sbit_mask *mask, const sbit__mask_found *to)
{
    if (mask->count != to->count) {
        return sbit__fail(t->error, SBIT_ERR_SHAPE, mask->name, "a mask of %lld for '%s', which has %lld",
                          (long long)mask->count, mask->name, (long long)to->count);
    }
    for (int64_t i = 0; i < mask->count; i++) {
        to->keep[i] = mask->keep[i] != 0 ? 1 : 0;
    }
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_sparse_set_masks(sbit_sparse *sparse, const sbit_mask *masks, size_t count,
                                                bool start, sbit_error *error)
{
    sbit__mask_text text;
    sbit_status status = SBIT_OK;
    sbit__masks_init(&text, sparse, error);
    for (size_t i = 0; i < count && status == SBIT_OK; i++) {
        text.name = masks[i].name;
        status = masks[i].name != NULL && masks[i].keep != NULL
                     ? sbit__masks_add(&text)
                     : sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "name or keep is NULL");
    }
    const sbit__mask_found *found = text.found; /* the last first */
    for (size_t i = count; i-- > 0 && status == SBIT_OK; found = found->next) {
        status = sbit__masks_copy(&text, &masks[i], found);
    }
    return sbit__masks_end(&text, start, status);
}
