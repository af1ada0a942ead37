/* text.c: StringConcat, StringSplit, StringNormalizer, TfIdfVectorizer. >>text
 *
 * Called by: infer, exec. Calls: ops/elements.c.
 * Texts are bytes; what a row makes itself lives in the call's text memory. Case changes touch
 * ASCII letters only: letters beyond them depend on a locale, which the library does not read.
 */
#include "elements_private.h"
#include "window_private.h"

#if !SPARSEBIT_NO_OPS_STRING

static const sbit_str *sbit__text_data(const sbit_tensor *tensor)
{
    return (const sbit_str *)tensor->data;
}

static bool sbit__text_equal(sbit_str a, sbit_str b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

/* >>text concat */

static sbit_status sbit__text_concat_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 2, 2, error));
    SBIT__TRY(sbit__op_dtypes(call, 0x2, 0, error));
    sbit_type *out = sbit__op_out(call, 0, SBIT_STRING, -1);
    return out != NULL ? sbit__op_broadcast(call, call->in_type, 2, out, error) : SBIT_OK;
}

static sbit_status sbit__text_concat_run(const sbit_op_call *call, sbit_error *error)
{
    sbit_type type = sbit__type_unknown();
    sbit_tensor *out = NULL;
    int64_t strides[SBIT__LOOP_OPERANDS][SBIT_MAX_RANK];
    sbit__loop loop;
    SBIT__TRY(sbit__op_broadcast(call, call->in_type, 2, &type, error));
    type.dtype = SBIT_STRING;
    SBIT__TRY(sbit__op_output_type(call, 0, &type, &out, error));
    if (out == NULL || sbit_tensor_count(out) == 0) {
        return SBIT_OK;
    }
    memset(strides, 0, sizeof strides);
    sbit__tensor_strides(out, strides[0]);
    for (int32_t i = 0; i < 2; i++) {
        SBIT__TRY(
            sbit__op_strides(call, call->in[i], -1, out->rank, out->dims, strides[i + 1], error));
    }
    sbit__loop_init(&loop, out->rank, out->dims, 3, (const int64_t(*)[SBIT_MAX_RANK])strides);
    for (int64_t row = 0; row < loop.outer; row++) {
        int64_t at[SBIT__LOOP_OPERANDS];
        sbit__loop_row(&loop, row, at);
        for (int64_t i = 0; i < loop.inner; i++) {
            const sbit_str a =
                sbit__text_data(call->in[0])[at[1] + i * loop.strides[1][loop.rank - 1]];
            const sbit_str b =
                sbit__text_data(call->in[1])[at[2] + i * loop.strides[2][loop.rank - 1]];
            size_t size = 0;
            char *text = sbit__add_size(a.size, b.size, &size) && size < SIZE_MAX
                             ? (char *)call->alloc_text(call, size + 1)
                             : NULL;
            if (text == NULL) {
                return sbit__fail_oom(error, size);
            }
            memcpy(text, a.size > 0 ? a.data : "", a.size);
            memcpy(text + a.size, b.size > 0 ? b.data : "", b.size);
            text[size] = '\0';
            sbit_str *to = (sbit_str *)out->data + at[0] + i * loop.strides[0][loop.rank - 1];
            to->data = text;
            to->size = size;
        }
    }
    return SBIT_OK;
}

/* >>text split */

static bool sbit__text_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The pieces of a text, one after another; `left`: splits still allowed, < 0: any number. */
typedef struct sbit__text_pieces {
    sbit_str rest, delimiter;
    int64_t left;
    bool done;
} sbit__text_pieces;

static bool sbit__text_next(sbit__text_pieces *p, sbit_str *piece)
{
    size_t end = 0, skip = 0;
    if (p->done) {
        return false;
    }
    if (p->delimiter.size == 0) {
        while (p->rest.size > 0 && sbit__text_blank(p->rest.data[0])) {
            p->rest.data++;
            p->rest.size--;
        }
        if (p->rest.size == 0) {
            p->done = true;
            return false;
        }
        while (end < p->rest.size && (p->left == 0 || !sbit__text_blank(p->rest.data[end]))) {
            end++;
        }
        while (p->left == 0 && end > 0 && sbit__text_blank(p->rest.data[end - 1])) {
            end--; /* what is left over has no blanks at its end */
        }
    } else {
        while (p->left != 0 && end + p->delimiter.size <= p->rest.size &&
               memcmp(p->rest.data + end, p->delimiter.data, p->delimiter.size) != 0) {
            end++;
        }
        skip = p->delimiter.size;
        if (p->left == 0 || end + skip > p->rest.size) {
            end = p->rest.size;
            skip = 0;
            p->done = true;
        }
    }
    piece->data = p->rest.data;
    piece->size = end;
    p->rest.data += end + skip;
    p->rest.size -= end + skip;
    p->left -= p->left > 0 ? 1 : 0;
    return true;
}

static sbit__text_pieces sbit__text_pieces_of(const sbit_op_call *call, sbit_str text)
{
    const sbit_attr *delimiter = sbit_node_attr(call->node, "delimiter");
    sbit__text_pieces pieces;
    memset(&pieces, 0, sizeof pieces);
    pieces.rest = text;
    pieces.left = sbit_node_int(call->node, "maxsplit", -1);
    if (delimiter != NULL) {
        pieces.delimiter = delimiter->s;
    }
    return pieces;
}

/* The most pieces that a text of x has; those of each in `counts`, unless it is NULL. */
static int64_t sbit__text_split_most(const sbit_op_call *call, const sbit_tensor *x,
                                     int64_t *counts)
{
    int64_t most = 0;
    for (int64_t i = 0; i < sbit_tensor_count(x); i++) {
        sbit__text_pieces pieces = sbit__text_pieces_of(call, sbit__text_data(x)[i]);
        sbit_str piece;
        int64_t count = 0;
        while (sbit__text_next(&pieces, &piece)) {
            count++;
        }
        most = count > most ? count : most;
        if (counts != NULL) {
            counts[i] = count;
        }
    }
    return most;
}

static sbit_status sbit__text_split_infer(const sbit_op_call *call, sbit_error *error)
{
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    const sbit_type *x = call->in_type[0];
    if (x->rank >= SBIT_MAX_RANK) {
        return sbit_op_fail(call, SBIT_ERR_LIMIT, error, "its output would have rank %d",
                            (int)x->rank + 1);
    }
    sbit_type *out = sbit__op_out(call, 0, SBIT_STRING, x->rank < 0 ? -1 : x->rank + 1);
    sbit_type *counts = sbit__op_out(call, 1, SBIT_I64, x->rank);
    for (int32_t i = 0; i < x->rank; i++) {
        if (out != NULL) {
            out->dims[i] = x->dims[i];
        }
        if (counts != NULL) {
            counts->dims[i] = x->dims[i];
        }
    }
    if (out != NULL && sbit__op_constant(call, 0) && x->dtype == SBIT_STRING) {
        out->dims[x->rank] = sbit__dim(sbit__text_split_most(call, call->in[0], NULL));
    }
    return SBIT_OK;
}

static sbit_status sbit__text_split_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    const int64_t n = sbit_tensor_count(x);
    int64_t dims[SBIT_MAX_RANK];
    sbit_tensor *out = NULL, *counts = NULL;
    sbit_str piece;
    SBIT__TRY(sbit__op_output(call, 1, SBIT_I64, x->rank, x->dims, &counts, error));
    const int64_t most =
        sbit__text_split_most(call, x, counts != NULL ? (int64_t *)counts->data : NULL);
    memcpy(dims, x->dims, sizeof dims);
    dims[x->rank] = most;
    SBIT__TRY(sbit__op_output(call, 0, SBIT_STRING, x->rank + 1, dims, &out, error));
    for (int64_t i = 0; out != NULL && i < n; i++) {
        sbit__text_pieces pieces = sbit__text_pieces_of(call, sbit__text_data(x)[i]);
        sbit_str *to = (sbit_str *)out->data + i * most;
        for (int64_t k = 0; k < most; k++) {
            to[k] = sbit__str("");
            if (sbit__text_next(&pieces, &piece)) {
                to[k] = piece;
            }
        }
    }
    return SBIT_OK;
}

/* >>text normalize */

static char sbit__text_letter(char c, bool upper)
{
    if (upper) {
        return c >= 'a' && c <= 'z' ? (char)(c - ('a' - 'A')) : c;
    }
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

static bool sbit__text_is_stop(const sbit_op_call *call, sbit_str text)
{
    const sbit_attr *stop = sbit_node_attr(call->node, "stopwords");
    const bool exact = sbit_node_int(call->node, "is_case_sensitive", 0) != 0;
    for (size_t i = 0; stop != NULL && i < stop->count; i++) {
        bool same = stop->strings[i].size == text.size;
        for (size_t k = 0; same && k < text.size; k++) {
            const char a = stop->strings[i].data[k], b = text.data[k];
            same = a == b || (!exact && sbit__text_letter(a, false) == sbit__text_letter(b, false));
        }
        if (same) {
            return true;
        }
    }
    return false;
}

static int64_t sbit__text_kept(const sbit_op_call *call, const sbit_tensor *x)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < sbit_tensor_count(x); i++) {
        kept += sbit__text_is_stop(call, sbit__text_data(x)[i]) ? 0 : 1;
    }
    return kept;
}

static sbit_status sbit__text_normalize_infer(const sbit_op_call *call, sbit_error *error)
{
    static const char *const changes[] = {"NONE", "LOWER", "UPPER"};
    int32_t change = 0;
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    SBIT__TRY(sbit__op_word(call, "case_change_action", changes, 3, &change, error));
    const sbit_type *x = call->in_type[0];
    if (x->rank >= 0 && x->rank != 1 &&
        (x->rank != 2 || (sbit__dim_known(x->dims[0]) && x->dims[0].value != 1))) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "its input is [C] or [1, C]");
    }
    sbit_type *out = sbit__op_out(call, 0, SBIT_STRING, x->rank);
    if (out != NULL && x->rank == 2) {
        out->dims[0] = sbit__dim(1);
    }
    if (out != NULL && sbit__op_constant(call, 0) && x->dtype == SBIT_STRING) {
        const int64_t kept = sbit__text_kept(call, call->in[0]);
        out->dims[x->rank - 1] = sbit__dim(kept > 0 ? kept : 1);
    }
    return SBIT_OK;
}

static sbit_status sbit__text_normalize_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit_tensor *x = call->in[0];
    const char *change = sbit_node_string(call->node, "case_change_action", "NONE");
    const int64_t n = sbit_tensor_count(x);
    const int64_t kept = sbit__text_kept(call, x);
    int64_t dims[2] = {1, 0};
    sbit_tensor *out = NULL;
    dims[x->rank - 1] = kept > 0 ? kept : 1; /* nothing left: one empty text */
    SBIT__TRY(sbit__op_output(call, 0, SBIT_STRING, x->rank, dims, &out, error));
    sbit_str *to = out != NULL ? (sbit_str *)out->data : NULL;
    if (to != NULL && kept == 0) {
        *to = sbit__str("");
    }
    for (int64_t i = 0; to != NULL && i < n; i++) {
        const sbit_str from = sbit__text_data(x)[i];
        if (sbit__text_is_stop(call, from)) {
            continue;
        }
        *to = from;
        if (change[0] != 'N') {
            char *text = (char *)call->alloc_text(call, from.size + 1);
            if (text == NULL) {
                return sbit__fail_oom(error, from.size + 1);
            }
            for (size_t k = 0; k < from.size; k++) {
                text[k] = sbit__text_letter(from.data[k], change[0] == 'U');
            }
            text[from.size] = '\0';
            to->data = text;
        }
        to++;
    }
    return SBIT_OK;
}

/* >>text n-grams: the pool holds 1-grams, then 2-grams ..., whose places ngram_counts gives; each
 * has an output and a weight. An n-gram of the input has its items `skip + 1` apart. */

typedef struct sbit__ngrams {
    const sbit_attr *pool, *counts, *indexes, *weights;
    int64_t least, most, skip, width; /* width: outputs of a row */
    bool text;
} sbit__ngrams;

static sbit_status sbit__ngrams_of(const sbit_op_call *call, sbit__ngrams *g, sbit_error *error)
{
    memset(g, 0, sizeof *g);
    const sbit_attr *texts = sbit_node_attr(call->node, "pool_strings");
    const sbit_attr *ints = sbit_node_attr(call->node, "pool_int64s");
    g->text = texts != NULL;
    g->pool = g->text ? texts : ints;
    g->counts = sbit_node_attr(call->node, "ngram_counts");
    g->indexes = sbit_node_attr(call->node, "ngram_indexes");
    g->weights = sbit_node_attr(call->node, "weights");
    g->least = sbit_node_int(call->node, "min_gram_length", 1);
    g->most = sbit_node_int(call->node, "max_gram_length", 1);
    g->skip = sbit_node_int(call->node, "max_skip_count", 0);
    const char *mode = sbit_node_string(call->node, "mode", "");
    bool good = g->pool != NULL && (texts == NULL || ints == NULL) && g->counts != NULL &&
                g->indexes != NULL && g->least >= 1 && g->most >= g->least && g->skip >= 0 &&
                g->most <= (int64_t)g->counts->count &&
                (g->weights == NULL || g->weights->count == g->indexes->count) &&
                (strcmp(mode, "TF") == 0 || strcmp(mode, "IDF") == 0 || strcmp(mode, "TFIDF") == 0);
    size_t grams = 0;
    for (size_t n = 1; good && n <= g->counts->count; n++) {
        const int64_t begin = g->counts->ints[n - 1];
        const int64_t end = n < g->counts->count ? g->counts->ints[n] : (int64_t)g->pool->count;
        good = begin >= 0 && end >= begin && end <= (int64_t)g->pool->count &&
               (end - begin) % (int64_t)n == 0;
        grams += good ? (size_t)((end - begin) / (int64_t)n) : 0;
    }
    good = good && grams == g->indexes->count;
    for (size_t i = 0; good && i < g->indexes->count; i++) {
        good = g->indexes->ints[i] >= 0 && g->indexes->ints[i] < INT32_MAX;
        g->width = good && g->indexes->ints[i] >= g->width ? g->indexes->ints[i] + 1 : g->width;
    }
    return good ? SBIT_OK
                : sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                               "mode, the pool, ngram_counts, ngram_indexes, weights and lengths "
                               "do not fit together");
}

static sbit_status sbit__ngrams_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit__ngrams g;
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    SBIT__TRY(sbit__ngrams_of(call, &g, error));
    const sbit_type *x = call->in_type[0];
    if (x->rank >= 0 && x->rank != 1 && x->rank != 2) {
        return sbit_op_fail(call, SBIT_ERR_SHAPE, error, "its input is [C] or [N, C]");
    }
    if (x->dtype != SBIT_UNDEFINED && (x->dtype == SBIT_STRING) != g.text) {
        return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                            "the pool holds %s, the input does not", g.text ? "texts" : "integers");
    }
    sbit_type *out = sbit__op_out(call, 0, SBIT_F32, x->rank);
    if (out != NULL && x->rank > 0) {
        out->dims[0] = x->dims[0];
        out->dims[x->rank - 1] = sbit__dim(g.width);
    }
    return SBIT_OK;
}

static bool sbit__ngrams_same(const sbit__ngrams *g, const sbit_tensor *x, int64_t from,
                              int64_t step, int64_t n, int64_t at)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t k = from + i * step;
        if (g->text ? !sbit__text_equal(sbit__text_data(x)[k], g->pool->strings[at + i])
                    : sbit__tensor_i64_at(x, k) != g->pool->ints[at + i]) {
            return false;
        }
    }
    return true;
}

/* Counts of one row of `length` items from `first`. */
static void sbit__ngrams_row(const sbit__ngrams *g, const sbit_tensor *x, int64_t first,
                             int64_t length, float *y)
{
    size_t gram = 0;
    for (int64_t n = 1; n <= (int64_t)g->counts->count; n++) {
        const int64_t begin = g->counts->ints[n - 1];
        const int64_t end =
            n < (int64_t)g->counts->count ? g->counts->ints[n] : (int64_t)g->pool->count;
        for (int64_t at = begin; at < end; at += n, gram++) {
            int64_t found = 0;
            for (int64_t step = 1; n >= g->least && n <= g->most && step - 1 <= g->skip &&
                                   (n == 1 || (n - 1) * step < length);
                 step++) {
                for (int64_t i = 0; i + (n - 1) * step < length; i++) {
                    found += sbit__ngrams_same(g, x, first + i, step, n, at) ? 1 : 0;
                }
                if (n == 1) {
                    break; /* nothing to skip */
                }
            }
            y[g->indexes->ints[gram]] += (float)found;
        }
    }
}

static sbit_status sbit__ngrams_run(const sbit_op_call *call, sbit_error *error)
{
    sbit__ngrams g;
    const sbit_tensor *x = call->in[0];
    const char *mode = sbit_node_string(call->node, "mode", "");
    sbit_tensor *out = NULL;
    int64_t dims[2];
    SBIT__TRY(sbit__ngrams_of(call, &g, error));
    dims[0] = x->dims[0];
    dims[x->rank - 1] = g.width;
    SBIT__TRY(sbit__op_output(call, 0, SBIT_F32, x->rank, dims, &out, error));
    const int64_t rows = x->rank == 2 ? x->dims[0] : 1, length = x->dims[x->rank - 1];
    for (int64_t row = 0; out != NULL && row < rows; row++) {
        float *y = (float *)out->data + row * g.width;
        memset(y, 0, (size_t)g.width * sizeof y[0]);
        sbit__ngrams_row(&g, x, row * length, length, y);
        for (size_t i = 0; mode[0] == 'I' && i < (size_t)g.width; i++) {
            y[i] = y[i] > 0.0f ? 1.0f : 0.0f;
        }
        for (size_t i = 0; mode[1] != 'F' || mode[2] != '\0'; i++) { /* IDF, TFIDF */
            if (i >= g.indexes->count || g.weights == NULL) {
                break;
            }
            y[g.indexes->ints[i]] *= g.weights->floats[i];
        }
    }
    return SBIT_OK;
}

/* ---- rows */

#define SBIT__TEXT_ROW(name, version, types, fn)                                                   \
    {                                                                                              \
        "", name, version, types, SBIT_OP_DYNAMIC, 0, sbit__##fn##_infer, NULL, sbit__##fn##_run,  \
            NULL, NULL, NULL, NULL, NULL                                                           \
    }

static const sbit_op_row sbit__text_table[] = {
    SBIT__TEXT_ROW("StringConcat", 20, SBIT_T(SBIT_STRING), text_concat),
    SBIT__TEXT_ROW("StringSplit", 20, SBIT_T(SBIT_STRING), text_split),
    SBIT__TEXT_ROW("StringNormalizer", 10, SBIT_T(SBIT_STRING), text_normalize),
    SBIT__TEXT_ROW("TfIdfVectorizer", 9, SBIT_T(SBIT_STRING) | SBIT_T(SBIT_I32) | SBIT_T(SBIT_I64),
                   ngrams),
};

#undef SBIT__TEXT_ROW

SBIT__FN const sbit_op_row *sbit__op_rows_text(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__text_table);
    return sbit__text_table;
}

#endif /* SPARSEBIT_NO_OPS_STRING */
