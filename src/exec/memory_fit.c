/* memory_fit.c: lowest free offsets for values that live for a while. >>memory
 *
 * Called by: memory. Calls: nothing.
 * Each life goes to the lowest offset where it meets none placed before it. Those that live at
 * the same time as [first, last] are the ones that
 *     live at `first`   lists in the nodes of a binary tree over the steps: a life hangs on the at
 *                       most 2 log(steps) nodes that make it up, so those at `first` hang between
 *                       its leaf and the root,
 *     begin after it    a run of all lives sorted by their first step.
 * The tree also knows the highest end of what lives in a span of steps: where more than
 * SBIT__FIT_MOST meet, the value goes there, and gaps are not looked for. So planning takes n log
 * n.
 */
#include "exec_private.h"

#include <stdlib.h> /* qsort */

enum {
    SBIT__FIT_MOST = 512
};

typedef struct sbit__fit_link {
    struct sbit__fit_link *next;
    const sbit__life *life;
} sbit__fit_link;

typedef struct sbit__fit {
    sbit__arena *arena;
    size_t leaves; /* a power of two; node i has the children 2 i and 2 i + 1, the root is 1 */
    sbit__fit_link **lists;
    size_t *over;  /* by node: highest end of the lives that hang here */
    size_t *under; /* the same, of all below as well */
    const sbit__life **by_first;
    size_t *begin; /* by step: where its lives begin in by_first; one more than steps */
    const sbit__life *meets[SBIT__FIT_MOST];
} sbit__fit;

static size_t sbit__fit_last(const sbit__fit *fit, const sbit__life *life)
{
    return (size_t)life->last < fit->leaves ? (size_t)life->last : fit->leaves - 1;
}

static size_t sbit__fit_end(const sbit__life *life)
{
    return life->offset + life->bytes;
}

static int sbit__fit_by_offset(const void *a, const void *b)
{
    const sbit__life *x = *(const sbit__life *const *)a;
    const sbit__life *y = *(const sbit__life *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void sbit__fit_raise(size_t *value, size_t to)
{
    *value = *value > to ? *value : to;
}

/* Hangs a placed life on the nodes that make it up; false: out of memory. */
static bool sbit__fit_add(sbit__fit *fit, const sbit__life *life)
{
    const size_t end = sbit__fit_end(life);
    size_t ends[2];
    ends[0] = (size_t)life->first + fit->leaves;
    ends[1] = sbit__fit_last(fit, life) + fit->leaves;
    for (size_t l = ends[0], r = ends[1] + 1; l < r; l /= 2, r /= 2) {
        for (int side = 0; side < 2; side++) {
            const size_t node = side == 0 ? l : r - 1;
            if ((side == 0 && l % 2 == 0) || (side == 1 && r % 2 == 0)) {
                continue;
            }
            sbit__fit_link *link = (sbit__fit_link *)sbit__arena_alloc(fit->arena, sizeof *link);
            if (link == NULL) {
                return false;
            }
            link->life = life;
            link->next = fit->lists[node];
            fit->lists[node] = link;
            sbit__fit_raise(&fit->over[node], end);
            sbit__fit_raise(&fit->under[node], end);
        }
        l += l % 2;
        r -= r % 2;
    }
    for (int i = 0; i < 2; i++) {
        for (size_t node = ends[i] / 2; node > 0; node /= 2) {
            sbit__fit_raise(&fit->under[node], end);
        }
    }
    return true;
}

/* The highest end of all that meet `life`. */
static size_t sbit__fit_top(const sbit__fit *fit, const sbit__life *life)
{
    size_t top = 0;
    size_t l = (size_t)life->first + fit->leaves, r = sbit__fit_last(fit, life) + fit->leaves;
    for (size_t a = l, b = r; a > 0; a /= 2, b /= 2) {
        sbit__fit_raise(&top, fit->over[a]);
        sbit__fit_raise(&top, fit->over[b]);
    }
    for (r++; l < r; l = (l + 1) / 2, r /= 2) {
        sbit__fit_raise(&top, l % 2 != 0 ? fit->under[l] : 0);
        sbit__fit_raise(&top, r % 2 != 0 ? fit->under[r - 1] : 0);
    }
    return top;
}

/* Fills `meets`; more than SBIT__FIT_MOST: they are too many to look at. */
static size_t sbit__fit_meet(sbit__fit *fit, const sbit__life *life)
{
    const size_t first = (size_t)life->first, last = sbit__fit_last(fit, life);
    size_t count = 0;
    for (size_t node = first + fit->leaves; node > 0; node /= 2) {
        for (const sbit__fit_link *link = fit->lists[node]; link != NULL; link = link->next) {
            if (count == SBIT__FIT_MOST) {
                return count + 1;
            }
            fit->meets[count++] = link->life;
        }
    }
    if (fit->begin[last + 1] - fit->begin[first + 1] > 8 * SBIT__FIT_MOST) {
        return SBIT__FIT_MOST + 1;
    }
    for (size_t i = fit->begin[first + 1]; i < fit->begin[last + 1]; i++) {
        if (fit->by_first[i]->placed) {
            if (count == SBIT__FIT_MOST) {
                return count + 1;
            }
            fit->meets[count++] = fit->by_first[i];
        }
    }
    return count;
}

static size_t sbit__fit_offset(sbit__fit *fit, const sbit__life *life)
{
    const size_t count = sbit__fit_meet(fit, life);
    size_t offset = 0;
    if (count > SBIT__FIT_MOST) {
        return sbit__fit_top(fit, life);
    }
    qsort(fit->meets, count, sizeof fit->meets[0], sbit__fit_by_offset);
    for (size_t i = 0; i < count && offset + life->bytes > fit->meets[i]->offset; i++) {
        sbit__fit_raise(&offset, sbit__fit_end(fit->meets[i]));
    }
    return offset;
}

static bool sbit__fit_init(sbit__fit *fit, sbit__life *const *lives, size_t count, size_t steps,
                           sbit__arena *arena)
{
    fit->arena = arena;
    fit->leaves = 1;
    while (fit->leaves < steps) {
        fit->leaves *= 2;
    }
    fit->lists = (sbit__fit_link **)sbit__arena_array(arena, 2 * fit->leaves, sizeof(void *));
    fit->over = (size_t *)sbit__arena_array(arena, 2 * fit->leaves, sizeof(size_t));
    fit->under = (size_t *)sbit__arena_array(arena, 2 * fit->leaves, sizeof(size_t));
    fit->begin = (size_t *)sbit__arena_array(arena, fit->leaves + 2, sizeof(size_t));
    fit->by_first = (const sbit__life **)sbit__arena_array(arena, count, sizeof(void *));
    if (fit->lists == NULL || fit->over == NULL || fit->under == NULL || fit->begin == NULL ||
        fit->by_first == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) { /* begin[s + 2]: how many begin at s ... */
        fit->begin[lives[i]->first + 2]++;
    }
    for (size_t s = 2; s < fit->leaves + 2; s++) { /* ... then begin[s + 1]: where they begin */
        fit->begin[s] += fit->begin[s - 1];
    }
    for (size_t i = 0; i < count; i++) { /* now begin[s] */
        fit->by_first[fit->begin[lives[i]->first + 1]++] = lives[i];
    }
    return true;
}

SBIT__FN sbit_status sbit__memory_fit(sbit__life **lives, size_t count, size_t steps,
                                      sbit__arena *arena, size_t *bytes, sbit_error *error)
{
    sbit__fit *fit = (sbit__fit *)sbit__arena_alloc(arena, sizeof *fit);
    bool ok = fit != NULL && sbit__fit_init(fit, lives, count, steps, arena);
    *bytes = 0;
    for (size_t i = 0; i < count; i++) {
        lives[i]->placed = false;
    }
    for (size_t i = 0; ok && i < count; i++) {
        lives[i]->offset = sbit__fit_offset(fit, lives[i]);
        lives[i]->placed = true;
        ok = sbit__fit_add(fit, lives[i]);
        sbit__fit_raise(bytes, sbit__fit_end(lives[i]));
    }
    return ok ? SBIT_OK : sbit__fail_oom(error, count * sizeof *fit);
}
