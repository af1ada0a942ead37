/* select.c: which classes of channels go. >>select
 *
 * In each group the classes with the smallest sums of scores, exactly floor(ratio * classes) of
 * them; ties go to the lower index. Sets that must stay equal (groups of a convolution) lose as
 * many each, by score, not by index. Last, classes are given back wherever a set became unequal
 * after all, or nothing would be left of a tensor.
 */
#include "sparse_private.h"

#include <math.h>   /* floor */
#include <stdlib.h> /* qsort */

typedef struct sbit__choice {
    double score;
    uint64_t cell; /* classes of one cell are in the same run of every balanced set */
    int32_t class_idx;
} sbit__choice;

typedef struct sbit__select {
    sbit_sparse *sparse;
    double *scores, *ratios; /* by class */
    int64_t *min_kept, *align;
    bool *together; /* SCOPE model */
    double max_ratio;
    uint64_t *cells;
    sbit__choice *choices;
} sbit__select;

/* Equal scores: the lower index first. */
static int sbit__choice_order(const void *a, const void *b)
{
    const sbit__choice *x = (const sbit__choice *)a, *y = (const sbit__choice *)b;
    if (x->cell != y->cell) {
        return x->cell < y->cell ? -1 : 1;
    }
    return x->score < y->score           ? -1
           : x->score > y->score         ? 1
           : x->class_idx < y->class_idx ? -1
                                         : x->class_idx > y->class_idx;
}

static sbit_status sbit__select_memory(sbit__select *s, sbit__arena *scratch, sbit_error *error)
{
    const size_t n = (size_t)s->sparse->groups.class_count + 1;
    s->scores = (double *)sbit__arena_array(scratch, n, sizeof(double));
    s->ratios = (double *)sbit__arena_array(scratch, n, sizeof(double));
    s->min_kept = (int64_t *)sbit__arena_array(scratch, n, sizeof(int64_t));
    s->align = (int64_t *)sbit__arena_array(scratch, n, sizeof(int64_t));
    s->together = (bool *)sbit__arena_array(scratch, n, sizeof(bool));
    s->cells = (uint64_t *)sbit__arena_array(scratch, n, sizeof(uint64_t));
    s->choices = (sbit__choice *)sbit__arena_array(scratch, n, sizeof(sbit__choice));
    return s->scores == NULL || s->ratios == NULL || s->min_kept == NULL || s->align == NULL ||
                   s->cells == NULL || s->together == NULL || s->choices == NULL
               ? sbit__fail_oom(error, n * sizeof(sbit__choice))
               : SBIT_OK;
}

/* What every class is worth, and the strictest settings of the layers that it is in. */
static void sbit__select_classes_of_layers(sbit__select *s)
{
    sbit_sparse *sparse = s->sparse;
    for (int32_t c = 0; c < sparse->groups.class_count; c++) {
        s->ratios[c] = 1.0;
        s->min_kept[c] = s->align[c] = 1;
    }
    s->max_ratio = 1.0;
    for (size_t i = 0; i < sparse->layer_count; i++) {
        const sbit__sparse_layer *layer = &sparse->layers[i];
        const sbit__member *member = &sparse->labeler.members[layer->member];
        const double ratio = layer->settings.structured ? layer->settings.ratio : 0.0;
        for (int64_t r = 0; r < member->count; r++) {
            const int32_t c = sbit__class_of(&sparse->labeler, &sparse->groups, member->labels[r]);
            if (c < 0) {
                continue;
            }
            s->scores[c] += layer->settings.structured ? layer->scores[r] : 0.0;
            s->ratios[c] = ratio < s->ratios[c] ? ratio : s->ratios[c];
            s->together[c] = layer->settings.whole_model;
            s->max_ratio = layer->settings.whole_model && layer->settings.max_ratio < s->max_ratio
                               ? layer->settings.max_ratio
                               : s->max_ratio;
            s->min_kept[c] = layer->settings.min_kept > s->min_kept[c] ? layer->settings.min_kept
                                                                       : s->min_kept[c];
            s->align[c] = layer->settings.align > s->align[c] ? layer->settings.align : s->align[c];
        }
    }
}

static void sbit__select_cells(sbit__select *s)
{
    const sbit__labeler *labeler = &s->sparse->labeler;
    for (size_t b = 0; b < labeler->balance_count; b++) {
        const sbit__balance *balance = &labeler->balances[b];
        const int64_t run = balance->count / balance->blocks;
        for (int64_t i = 0; i < balance->count; i++) {
            const int32_t c = sbit__class_of(labeler, &s->sparse->groups, balance->labels[i]);
            if (c >= 0) {
                const uint64_t key[3] = {s->cells[c], (uint64_t)b, (uint64_t)(i / run)};
                s->cells[c] = sbit__hash_bytes(key, sizeof key);
            }
        }
    }
}

/* How many of a group's classes go. */
static int64_t sbit__select_count(const sbit__select *s, const sbit__group *group)
{
    double ratio = 1.0;
    int64_t min_kept = 1, align = 1;
    for (int32_t i = 0; i < group->class_count; i++) {
        const int32_t c = group->classes[i];
        ratio = s->ratios[c] < ratio ? s->ratios[c] : ratio;
        min_kept = s->min_kept[c] > min_kept ? s->min_kept[c] : min_kept;
        align = s->align[c] > align ? s->align[c] : align;
    }
    int64_t kept = group->class_count - (int64_t)floor(ratio * (double)group->class_count + 1e-9);
    kept = kept < min_kept ? min_kept : kept;
    kept = (kept + align - 1) / align * align;
    return kept < group->class_count ? group->class_count - kept : 0;
}

static void sbit__select_group(sbit__select *s, const sbit__group *group)
{
    const int64_t wanted = sbit__select_count(s, group);
    int32_t n = 0;
    for (int32_t i = 0; i < group->class_count; i++) {
        const int32_t c = group->classes[i];
        s->choices[i].score = s->scores[c];
        s->choices[i].cell = s->cells[c];
        s->choices[i].class_idx = c;
    }
    qsort(s->choices, (size_t)group->class_count, sizeof *s->choices, sbit__choice_order);
    for (int32_t first = 0; first < group->class_count; first = n) {
        while (n < group->class_count && s->choices[n].cell == s->choices[first].cell) {
            n++;
        }
        int64_t quota = wanted * (n - first) / group->class_count;
        for (int32_t i = first; i < n && quota > 0; i++) {
            const int32_t c = s->choices[i].class_idx;
            if (s->sparse->groups.classes[c].removable && s->sparse->kept_why[c] == NULL) {
                s->sparse->removed[c] = true;
                quota--;
            }
        }
    }
}

/* Classes of SCOPE model, all groups ranked together: floor(ratio * all) go, the smallest sums
 * first, but of no group more than its largest ratio. */
static void sbit__select_together(sbit__select *s)
{
    sbit_sparse *sparse = s->sparse;
    double ratio = 0.0;
    int32_t n = 0;
    for (int32_t c = 0; c < sparse->groups.class_count; c++) {
        if (s->together[c] && s->ratios[c] > 0.0 && sparse->groups.classes[c].removable) {
            ratio = s->ratios[c] > ratio ? s->ratios[c] : ratio;
            s->choices[n].score = s->scores[c];
            s->choices[n].cell = 0;
            s->choices[n++].class_idx = c;
        }
    }
    qsort(s->choices, (size_t)n, sizeof *s->choices, sbit__choice_order);
    int64_t wanted = (int64_t)floor(ratio * (double)n + 1e-9);
    for (int32_t i = 0; i < n && wanted > 0; i++) {
        const int32_t c = s->choices[i].class_idx;
        const sbit__group *group = &sparse->groups.groups[sparse->groups.classes[c].group];
        int64_t gone = 1;
        for (int32_t k = 0; k < group->class_count; k++) {
            gone += sparse->removed[group->classes[k]] ? 1 : 0;
        }
        if (sparse->kept_why[c] == NULL && group->class_count - gone >= s->min_kept[c] &&
            (double)gone <= s->max_ratio * (double)group->class_count) {
            sparse->removed[c] = true;
            wanted--;
        }
    }
}

SBIT__FN sbit_status sbit__select_classes(sbit_sparse *sparse, sbit_error *error)
{
    sbit__select s;
    sbit__arena scratch;
    memset(&s, 0, sizeof s);
    s.sparse = sparse;
    sbit__arena_init(&scratch, sbit_ctx_allocator(sparse->ctx));
    sbit_status status = sbit__select_memory(&s, &scratch, error);
    if (status == SBIT_OK) {
        memset(sparse->removed, 0, (size_t)sparse->groups.class_count * sizeof *sparse->removed);
        sbit__select_classes_of_layers(&s);
        sbit__select_cells(&s);
        for (int32_t g = 0; g < sparse->groups.group_count; g++) {
            if (!s.together[sparse->groups.groups[g].classes[0]]) {
                sbit__select_group(&s, &sparse->groups.groups[g]);
            }
        }
        sbit__select_together(&s);
        status = sbit__select_repair(sparse, s.scores, error);
    }
    sbit__arena_deinit(&scratch);
    return status;
}

/* >>repair */

static bool sbit__select_is_gone(const sbit_sparse *sparse, int32_t label, int32_t *class_idx)
{
    *class_idx = sbit__class_of(&sparse->labeler, &sparse->groups, label);
    return *class_idx >= 0 && sparse->removed[*class_idx];
}

/* Gives back the removed class among labels[0..n-1] that is worth most. why: it stays, because of
 * that; NULL: it may go another time. */
static void sbit__select_give_back(sbit_sparse *sparse, const double *scores, const int32_t *labels,
                                   int64_t n, const char *why)
{
    int32_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        int32_t c = -1;
        if (sbit__select_is_gone(sparse, labels[i], &c) &&
            (best < 0 || (scores != NULL ? scores[c] >= scores[best] : c > best))) {
            best = c;
        }
    }
    if (best >= 0) {
        sparse->removed[best] = false;
        sparse->kept_why[best] = why != NULL ? why : sparse->kept_why[best];
    }
}

/* Something must be left along these labels; true if it changed. */
static bool sbit__select_leave_one(sbit_sparse *sparse, const double *scores, const int32_t *labels,
                                   int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int32_t c = -1;
        if (!sbit__select_is_gone(sparse, labels[i], &c)) {
            return false;
        }
    }
    if (n > 0) {
        sbit__select_give_back(sparse, scores, labels, n,
                               "a tensor of the network keeps its last channel");
    }
    return n > 0;
}

static bool sbit__select_balance(sbit_sparse *sparse, const double *scores,
                                 const sbit__balance *balance)
{
    const int64_t run = balance->count / balance->blocks;
    int64_t fewest = run - 1;
    bool changed = false;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t b = 0; b < balance->blocks; b++) {
            int64_t gone = 0;
            for (int64_t i = 0; i < run; i++) {
                int32_t c = -1;
                gone += sbit__select_is_gone(sparse, balance->labels[b * run + i], &c) ? 1 : 0;
            }
            fewest = pass == 0 && gone < fewest ? gone : fewest;
            if (pass == 1 && gone > fewest) {
                sbit__select_give_back(sparse, scores, balance->labels + b * run, run, NULL);
                changed = true;
            }
        }
    }
    return changed;
}

SBIT__FN sbit_status sbit__select_repair(sbit_sparse *sparse, const double *scores,
                                         sbit_error *error)
{
    const sbit__labeler *labeler = &sparse->labeler;
    (void)error;
    for (bool changed = true; changed;) { /* each turn gives something back: it ends */
        changed = false;
        for (size_t b = 0; b < labeler->balance_count; b++) {
            changed = sbit__select_balance(sparse, scores, &labeler->balances[b]) || changed;
        }
        for (uint32_t v = 1; v < sbit_graph_value_limit(sparse->graph); v++) {
            const sbit__channel_labels *labels = &labeler->of[v];
            if (labels->form == SBIT__LABELS_AXIS) {
                changed = sbit__select_leave_one(sparse, scores, labels->at,
                                                 labels->dims[labels->axis]) ||
                          changed;
            }
        }
        for (size_t m = 0; m < labeler->member_count; m++) {
            const sbit__member *member = &labeler->members[m];
            const int64_t length = member->count / member->parts;
            for (int64_t part = 0; part < member->parts; part++) {
                changed = sbit__select_leave_one(sparse, scores, member->labels + part * length,
                                                 length) ||
                          changed;
            }
        }
    }
    return SBIT_OK;
}
