/* select.c: which classes of channels go. >>select
 *
 * In each group the classes with the smallest sums of scores, exactly floor(ratio * classes) of
 * them; ties go to the lower index. Sets that must stay equal (groups of a convolution) lose as
 * many each, by score, not by index. Last, classes are given back wherever a set became unequal
 * after all, a group keeps a number that MIN_KEPT or ALIGN forbid, or nothing would be left of a
 * tensor.
 */
#include "sparse_private.h"

#include <math.h>   /* floor, HUGE_VAL */
#include <stdlib.h> /* qsort */

typedef struct sbit__choice {
    double score;
    uint64_t cell; /* classes of one cell are in the same run of every balanced set */
    int32_t class_idx;
} sbit__choice;

typedef struct sbit__select {
    sbit_sparse *sparse;
    double *scores;  /* by class; -HUGE_VAL: a start mask prunes all of it */
    uint8_t *left;   /* by class: 1 scored, 2 not all of it is pruned from the start */
    uint64_t *cells; /* by class */
    int64_t *gone;   /* by group */
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
    const size_t groups = (size_t)s->sparse->groups.group_count + 1;
    s->scores = (double *)sbit__arena_array(scratch, n, sizeof(double));
    s->left = (uint8_t *)sbit__arena_array(scratch, n, 1);
    s->cells = (uint64_t *)sbit__arena_array(scratch, n, sizeof(uint64_t));
    s->gone = (int64_t *)sbit__arena_array(scratch, groups, sizeof(int64_t));
    s->choices = (sbit__choice *)sbit__arena_array(scratch, n, sizeof(sbit__choice));
    return s->scores == NULL || s->left == NULL || s->cells == NULL || s->gone == NULL || s->choices == NULL
               ? sbit__fail_oom(error, n * sizeof(sbit__choice))
               : SBIT_OK;
}

/* >>settings of groups */

static void sbit__select_limit(sbit__group *group, const sbit_sparse_settings *settings)
{
    const double ratio = settings->structured ? settings->ratio : 0.0;
    group->ratio = ratio < group->ratio ? ratio : group->ratio;
    group->min_kept = settings->min_kept > group->min_kept ? settings->min_kept : group->min_kept;
    group->align = settings->align > group->align ? settings->align : group->align;
    group->prune_bias = group->prune_bias && settings->prune_bias;
    if (settings->whole_model) {
        group->whole_model = true;
        group->max_ratio =
            settings->max_ratio < group->max_ratio ? settings->max_ratio : group->max_ratio;
    }
}

SBIT__FN void sbit__groups_limit(sbit_sparse *sparse)
{
    for (int32_t g = 0; g < sparse->groups.group_count; g++) {
        sbit__group *group = &sparse->groups.groups[g];
        group->ratio = group->max_ratio = 1.0;
        group->min_kept = group->align = 1;
        group->prune_bias = true;
        group->whole_model = false;
    }
    for (size_t i = 0; i < sparse->layer_count; i++) {
        const sbit__member *member = &sparse->labeler.members[sparse->layers[i].member];
        for (int64_t r = 0, last = -1; r < member->count; r++) {
            const int32_t c = sbit__class_of(&sparse->labeler, &sparse->groups, member->labels[r]);
            if (c >= 0 && sparse->groups.classes[c].group != last) {
                last = sparse->groups.classes[c].group;
                sbit__select_limit(&sparse->groups.groups[last], &sparse->layers[i].settings);
            }
        }
    }
}

/* The number of classes that a group keeps where `kept` of them were to stay. */
static int64_t sbit__select_allowed(const sbit__group *group, int64_t kept)
{
    kept = kept < group->min_kept ? group->min_kept : kept;
    kept = (kept + group->align - 1) / group->align * group->align;
    return kept < group->class_count ? kept : group->class_count;
}

/* What every class is worth. */
static void sbit__select_scores(sbit__select *s)
{
    const sbit_sparse *sparse = s->sparse;
    for (size_t i = 0; i < sparse->layer_count; i++) {
        const sbit__sparse_layer *layer = &sparse->layers[i];
        const sbit__member *member = &sparse->labeler.members[layer->member];
        for (int64_t r = 0; layer->settings.structured && r < member->count; r++) {
            const int32_t c = sbit__class_of(&sparse->labeler, &sparse->groups, member->labels[r]);
            if (c >= 0) {
                const bool gone = layer->scores[r] == -HUGE_VAL;
                s->scores[c] += gone ? 0.0 : layer->scores[r];
                s->left[c] |= gone ? 1 : 2;
            }
        }
    }
    for (int32_t c = 0; c < sparse->groups.class_count; c++) {
        s->scores[c] = s->left[c] == 1 ? -HUGE_VAL : s->scores[c];
    }
}

/* >>choosing */

SBIT__FN void sbit__class_cells(const sbit_sparse *sparse, uint64_t *cells)
{
    const sbit__labeler *labeler = &sparse->labeler;
    for (size_t b = 0; b < labeler->balance_count; b++) {
        const sbit__balance *balance = &labeler->balances[b];
        const int64_t run = balance->count / balance->blocks;
        for (int64_t i = 0; i < balance->count; i++) {
            const int32_t c = sbit__class_of(labeler, &sparse->groups, balance->labels[i]);
            if (c >= 0) {
                const uint64_t key[3] = {cells[c], (uint64_t)b, (uint64_t)(i / run)};
                cells[c] = sbit__hash_bytes(key, sizeof key);
            }
        }
    }
}

static void sbit__select_group(sbit__select *s, const sbit__group *group)
{
    const int64_t n_all = group->class_count;
    const int64_t wanted =
        n_all - sbit__select_allowed(
                    group, n_all - (int64_t)floor(group->ratio * (double)n_all + 1e-9));
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
        for (int32_t i = first; i < n && (quota > 0 || s->choices[i].score == -HUGE_VAL); i++) {
            const int32_t c = s->choices[i].class_idx;
            if (s->sparse->groups.classes[c].removable && s->sparse->kept_why[c] == NULL) {
                s->sparse->removed[c] = true;
                quota--;
            }
        }
    }
}

/* Groups of SCOPE model, ranked together: as many classes go as their ratios add up to, the
 * smallest sums of scores first, but of no group more than its MAX_RATIO. */
static void sbit__select_together(sbit__select *s)
{
    sbit_sparse *sparse = s->sparse;
    double share = 0.0;
    int32_t n = 0;
    for (int32_t c = 0; c < sparse->groups.class_count; c++) {
        const sbit__group *group = &sparse->groups.groups[sparse->groups.classes[c].group];
        if (group->whole_model && group->ratio > 0.0 && sparse->groups.classes[c].removable) {
            share += group->ratio;
            s->choices[n].score = s->scores[c];
            s->choices[n].cell = 0;
            s->choices[n++].class_idx = c;
        }
    }
    qsort(s->choices, (size_t)n, sizeof *s->choices, sbit__choice_order);
    int64_t wanted = (int64_t)floor(share + 1e-6);
    for (int32_t i = 0; i < n && (wanted > 0 || s->choices[i].score == -HUGE_VAL); i++) {
        const int32_t c = s->choices[i].class_idx, g = sparse->groups.classes[c].group;
        const sbit__group *group = &sparse->groups.groups[g];
        const int64_t gone = s->gone[g] + 1;
        if (sparse->kept_why[c] == NULL && group->class_count - gone >= group->min_kept &&
            (double)gone <= group->max_ratio * (double)group->class_count + 1e-9) {
            sparse->removed[c] = true;
            s->gone[g] = gone;
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
    const sbit_status status = sbit__select_memory(&s, &scratch, error);
    if (status == SBIT_OK) {
        memset(sparse->removed, 0, (size_t)sparse->groups.class_count * sizeof *sparse->removed);
        sbit__groups_limit(sparse);
        sbit__select_scores(&s);
        sbit__class_cells(sparse, s.cells);
        for (int32_t g = 0; g < sparse->groups.group_count; g++) {
            if (!sparse->groups.groups[g].whole_model) {
                sbit__select_group(&s, &sparse->groups.groups[g]);
            }
        }
        sbit__select_together(&s);
        sbit__select_repair(sparse, s.scores);
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

/* The one of two classes that is worth more; -1: none. */
static int32_t sbit__select_better(const double *scores, int32_t a, int32_t b)
{
    const bool b_is = a < 0 || (b >= 0 && (scores != NULL ? scores[b] >= scores[a] : b > a));
    return b_is ? b : a;
}

/* Gives back the removed class among labels[0..n-1] that is worth most. why: it stays, because of
 * that; NULL: it may go another time. */
static void sbit__select_give_back(sbit_sparse *sparse, const double *scores, const int32_t *labels,
                                   int64_t n, const char *why)
{
    int32_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        int32_t c = -1;
        if (sbit__select_is_gone(sparse, labels[i], &c)) {
            best = sbit__select_better(scores, best, c);
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

/* One class comes back where a group would keep a number that it may not; true if it changed. */
static bool sbit__select_round(sbit_sparse *sparse, const double *scores, const sbit__group *group)
{
    int64_t kept = group->class_count;
    int32_t best = -1;
    for (int32_t i = 0; i < group->class_count; i++) {
        if (sparse->removed[group->classes[i]]) {
            best = sbit__select_better(scores, best, group->classes[i]);
            kept--;
        }
    }
    if (best < 0 || sbit__select_allowed(group, kept) == kept) {
        return false;
    }
    sparse->removed[best] = false;
    return true;
}

SBIT__FN void sbit__select_repair(sbit_sparse *sparse, const double *scores)
{
    const sbit__labeler *labeler = &sparse->labeler;
    sbit__groups_limit(sparse);
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
        for (int32_t g = 0; g < sparse->groups.group_count; g++) {
            changed = sbit__select_round(sparse, scores, &sparse->groups.groups[g]) || changed;
        }
    }
}
