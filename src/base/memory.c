/* memory.c: the one path to the allocator, aligned blocks, arenas, checked arithmetic. >>memory
 *
 * Called by: everything that owns memory. Calls: the user's allocator, or malloc.
 * Does: pass old sizes back to the allocator, so that it needs no headers of its own.
 * Does not: ever stop the program; NULL or `false` reports a failure.
 *
 * Aligned block:  base ... [delta] data     delta = data - base in 1..64, kept in data[-1].
 * Arena block:    [header][slack][data .... capacity]     newest first in a list.
 */
#include "base_private.h"

#include <stdlib.h> /* malloc, realloc, free: the default allocator */

#define SBIT__MEMORY_ALIGN 64u
#define SBIT__MEMORY_LARGE ((size_t)1 << 22)
#define SBIT__ARENA_ALIGN 16u
#define SBIT__ARENA_FIRST_BYTES ((size_t)4096)
#define SBIT__ARENA_MAX_BYTES ((size_t)1 << 20)

struct sbit__arena_block {
    sbit__arena_block *next;
    unsigned char *data; /* 16-byte aligned, inside this allocation */
    size_t capacity, used;
    size_t total_bytes; /* of this allocation, header included */
};

static void *sbit__memory_default_alloc(size_t bytes, void *user)
{
    (void)user;
    void *ptr = malloc(bytes);
    if (ptr != NULL && bytes >= SBIT__MEMORY_LARGE) {
        sbit__pages_large(ptr, bytes);
    }
    return ptr;
}

static void *sbit__memory_default_realloc(void *ptr, size_t old_bytes, size_t new_bytes, void *user)
{
    (void)old_bytes;
    (void)user;
    return realloc(ptr, new_bytes);
}

static void sbit__memory_default_free(void *ptr, size_t bytes, void *user)
{
    (void)bytes;
    (void)user;
    free(ptr);
}

SBIT__FN bool sbit__allocator_valid(const sbit_allocator *allocator)
{
    if (allocator == NULL) {
        return true;
    }
    const int set = (allocator->alloc_fn != NULL) + (allocator->realloc_fn != NULL) +
                    (allocator->free_fn != NULL);
    return set == 0 || set == 3;
}

SBIT__FN sbit_allocator sbit__allocator_or_default(const sbit_allocator *allocator)
{
    if (allocator != NULL && allocator->alloc_fn != NULL) {
        return *allocator;
    }
    sbit_allocator result;
    result.alloc_fn = sbit__memory_default_alloc;
    result.realloc_fn = sbit__memory_default_realloc;
    result.free_fn = sbit__memory_default_free;
    result.user = NULL;
    return result;
}

SBIT__FN void *sbit__alloc(const sbit_allocator *a, size_t bytes)
{
    return a->alloc_fn(bytes != 0 ? bytes : 1, a->user);
}

SBIT__FN void *sbit__calloc(const sbit_allocator *a, size_t count, size_t bytes_each)
{
    size_t bytes = 0;
    if (!sbit__mul_size(count, bytes_each, &bytes)) {
        return NULL;
    }
    void *ptr = sbit__alloc(a, bytes);
    if (ptr != NULL) {
        memset(ptr, 0, bytes);
    }
    return ptr;
}

SBIT__FN void *sbit__realloc(const sbit_allocator *a, void *ptr, size_t old_bytes, size_t new_bytes)
{
    if (ptr == NULL) {
        return sbit__alloc(a, new_bytes);
    }
    return a->realloc_fn(ptr, old_bytes != 0 ? old_bytes : 1, new_bytes != 0 ? new_bytes : 1,
                         a->user);
}

SBIT__FN void sbit__free(const sbit_allocator *a, void *ptr, size_t bytes)
{
    if (ptr != NULL) {
        a->free_fn(ptr, bytes != 0 ? bytes : 1, a->user);
    }
}

SBIT__FN void *sbit__alloc_aligned(const sbit_allocator *a, size_t bytes)
{
    size_t total = 0;
    if (!sbit__add_size(bytes, SBIT__MEMORY_ALIGN, &total)) {
        return NULL;
    }
    unsigned char *base = (unsigned char *)sbit__alloc(a, total);
    if (base == NULL) {
        return NULL;
    }
    const size_t delta = SBIT__MEMORY_ALIGN - (size_t)((uintptr_t)base & (SBIT__MEMORY_ALIGN - 1u));
    base[delta - 1] = (unsigned char)delta;
    return base + delta;
}

SBIT__FN void sbit__free_aligned(const sbit_allocator *a, void *ptr, size_t bytes)
{
    if (ptr != NULL) {
        unsigned char *data = (unsigned char *)ptr;
        sbit__free(a, data - data[-1], bytes + SBIT__MEMORY_ALIGN);
    }
}

SBIT__FN sbit_status sbit__grow(const sbit_allocator *a, void **items, size_t *capacity,
                                size_t needed, size_t each_bytes, sbit_error *error)
{
    if (needed <= *capacity) {
        return SBIT_OK;
    }
    size_t wanted = *capacity < 8 ? 8 : *capacity;
    while (wanted < needed) {
        wanted = wanted > SIZE_MAX / 2 ? needed : wanted * 2;
    }
    size_t bytes = 0;
    if (!sbit__mul_size(wanted, each_bytes, &bytes)) {
        return sbit__fail_oom(error, SIZE_MAX);
    }
    void *grown = sbit__realloc(a, *items, *capacity * each_bytes, bytes);
    if (grown == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    *items = grown;
    *capacity = wanted;
    return SBIT_OK;
}

SBIT__FN int sbit__f64_order(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* ---- arena ---- */

SBIT__FN void sbit__arena_init(sbit__arena *arena, const sbit_allocator *allocator)
{
    arena->allocator = sbit__allocator_or_default(allocator);
    arena->blocks = NULL;
    arena->used_bytes = 0;
    arena->limit_bytes = 0;
    arena->block_bytes = 0;
}

SBIT__FN void sbit__arena_deinit(sbit__arena *arena)
{
    sbit__arena_block *block = arena->blocks;
    while (block != NULL) {
        sbit__arena_block *next = block->next;
        sbit__free(&arena->allocator, block, block->total_bytes);
        block = next;
    }
    arena->blocks = NULL;
    arena->used_bytes = 0;
}

static sbit__arena_block *sbit__arena_block_create(sbit__arena *arena, size_t capacity)
{
    const size_t header = sizeof(sbit__arena_block) + SBIT__ARENA_ALIGN - 1;
    size_t total = 0;
    if (!sbit__add_size(capacity, header, &total)) {
        return NULL;
    }
    sbit__arena_block *block = (sbit__arena_block *)sbit__alloc(&arena->allocator, total);
    if (block == NULL) {
        return NULL;
    }
    unsigned char *start = (unsigned char *)block + sizeof(sbit__arena_block);
    const size_t misaligned = (size_t)((uintptr_t)start & (SBIT__ARENA_ALIGN - 1u));
    block->next = NULL;
    block->data = start + (misaligned != 0 ? SBIT__ARENA_ALIGN - misaligned : 0);
    block->capacity = capacity;
    block->used = 0;
    block->total_bytes = total;
    return block;
}

/* A block that has room for `bytes`, linked into the list. Requests that would waste most of a
 * common block get one of their own behind the newest, whose free rest stays in use. */
static sbit__arena_block *sbit__arena_room(sbit__arena *arena, size_t bytes)
{
    sbit__arena_block *newest = arena->blocks;
    if (newest != NULL && newest->capacity - newest->used >= bytes) {
        return newest;
    }
    size_t common = arena->block_bytes != 0 ? arena->block_bytes : SBIT__ARENA_FIRST_BYTES;
    while (arena->block_bytes == 0 && common < SBIT__ARENA_MAX_BYTES &&
           common < arena->used_bytes) {
        common *= 2;
    }
    const bool alone = bytes > common / 4;
    sbit__arena_block *block = sbit__arena_block_create(arena, alone ? bytes : common);
    if (block == NULL) {
        return NULL;
    }
    if (alone && newest != NULL) {
        block->next = newest->next;
        newest->next = block;
    } else {
        block->next = newest;
        arena->blocks = block;
    }
    return block;
}

SBIT__FN void *sbit__arena_alloc(sbit__arena *arena, size_t bytes)
{
    size_t rounded = 0;
    size_t used = 0;
    if (!sbit__add_size(bytes != 0 ? bytes : 1, SBIT__ARENA_ALIGN - 1, &rounded)) {
        return NULL;
    }
    rounded &= ~(size_t)(SBIT__ARENA_ALIGN - 1);
    if (!sbit__add_size(arena->used_bytes, rounded, &used) ||
        (arena->limit_bytes != 0 && used > arena->limit_bytes)) {
        return NULL;
    }
    sbit__arena_block *block = sbit__arena_room(arena, rounded);
    if (block == NULL) {
        return NULL;
    }
    unsigned char *ptr = block->data + block->used;
    block->used += rounded;
    arena->used_bytes = used;
    memset(ptr, 0, rounded);
    return ptr;
}

SBIT__FN void *sbit__arena_array(sbit__arena *arena, size_t count, size_t bytes_each)
{
    size_t bytes = 0;
    return sbit__mul_size(count, bytes_each, &bytes) ? sbit__arena_alloc(arena, bytes) : NULL;
}

SBIT__FN char *sbit__arena_strdup(sbit__arena *arena, const char *text, size_t size)
{
    size_t bytes = 0;
    if (!sbit__add_size(size, 1, &bytes)) {
        return NULL;
    }
    char *copy = (char *)sbit__arena_alloc(arena, bytes);
    if (copy != NULL && size != 0) {
        memcpy(copy, text, size);
    }
    return copy;
}

/* ---- checked arithmetic ---- */

SBIT__FN bool sbit__add_size(size_t a, size_t b, size_t *out)
{
    if (a > SIZE_MAX - b) {
        return false;
    }
    *out = a + b;
    return true;
}

SBIT__FN bool sbit__mul_size(size_t a, size_t b, size_t *out)
{
    if (b != 0 && a > SIZE_MAX / b) {
        return false;
    }
    *out = a * b;
    return true;
}

SBIT__FN bool sbit__add_i64(int64_t a, int64_t b, int64_t *out)
{
    if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b) {
        return false;
    }
    *out = a + b;
    return true;
}

SBIT__FN bool sbit__mul_i64(int64_t a, int64_t b, int64_t *out)
{
    if (a == 0 || b == 0) {
        *out = 0;
        return true;
    }
    if (a == -1 || b == -1) { /* INT64_MIN / -1 itself overflows */
        const int64_t other = a == -1 ? b : a;
        if (other == INT64_MIN) {
            return false;
        }
        *out = -other;
        return true;
    }
    const bool negative = (a < 0) != (b < 0);
    const int64_t bound = (negative ? INT64_MIN : INT64_MAX) / b;
    if (b > 0 ? (negative ? a < bound : a > bound) : (negative ? a > bound : a < bound)) {
        return false;
    }
    *out = a * b;
    return true;
}

/* Overflow is looked for in the product of the non-zero dims, so that strides of an empty tensor
 * are safe to compute as well. */
SBIT__FN bool sbit__dims_count(const int64_t *dims, size_t rank, int64_t *out)
{
    int64_t count = 1;
    bool empty = false;
    for (size_t i = 0; i < rank; i++) {
        if (dims[i] < 0) {
            return false;
        }
        if (dims[i] == 0) {
            empty = true;
        } else if (!sbit__mul_i64(count, dims[i], &count)) {
            return false;
        }
    }
    *out = empty ? 0 : count;
    return true;
}
#undef SBIT__MEMORY_ALIGN
#undef SBIT__ARENA_ALIGN
#undef SBIT__ARENA_FIRST_BYTES
#undef SBIT__ARENA_MAX_BYTES
