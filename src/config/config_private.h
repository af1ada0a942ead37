/* config_private.h: reading YAML against key tables.
 *
 * Called by: quant, sparse, train. Calls: base, core.
 */
#ifndef SBIT_CONFIG_PRIVATE_H
#define SBIT_CONFIG_PRIVATE_H

#include "../core/core_private.h"
#include "config_api.h"

#include <stdio.h> /* snprintf */

#ifdef __cplusplus
extern "C" {
#endif

/* "line:column", as errors say it. */
SBIT__FN void sbit__yaml_position(int32_t line, int32_t column, char *text, size_t size);

/* Equality of words in any case, '-' and '_' alike: how names of strategies are compared. */
SBIT__FN bool sbit__same_word(const char *a, const char *b);

/* >>rows: a kind of strategy. Its address is what the user's rows are registered under. */
typedef struct sbit__kind {
    const char *what;                     /* "observer": in messages */
    const sbit_head *(*at)(size_t index); /* the built-in rows; NULL past the end */
} sbit__kind;

/* Row `index` of the built-in ones, then of the user's; NULL past the end. */
SBIT__FN const sbit_head *sbit__row_at(const sbit_ctx *ctx, const sbit__kind *kind, size_t index);
/* The row with that name (any case), or NULL. */
SBIT__FN const sbit_head *sbit__row_find(const sbit_ctx *ctx, const sbit__kind *kind,
                                         const char *name);
/* Adds the user's row, NULL refused; `complete`: it has all functions which are not optional. */
SBIT__FN sbit_status sbit__row_register(sbit_ctx *ctx, const sbit__kind *kind, const sbit_head *row,
                                        bool complete, sbit_error *error);
/* Appends the names of the rows for a target (0: of all), `between` each: "minmax|mse". */
SBIT__FN void sbit__row_names(const sbit_ctx *ctx, const sbit__kind *kind, uint32_t target,
                              const char *between, sbit__text *out);

/* A key table and where it hangs: prefix "OBSERVER." puts its key "PERCENTILE.ALPHA" at
 * OBSERVER.PERCENTILE.ALPHA; "" at the top. */
typedef struct sbit__key_table {
    const char *prefix;
    const sbit_key *keys;
    size_t count;
} sbit__key_table;

/* All keys with their defaults; items live in `arena`. Paths in the result include the prefix. */
SBIT__FN sbit_status sbit__options_init(sbit__arena *arena, const sbit__key_table *tables,
                                        size_t table_count, sbit_options *out, sbit_error *error);
/* True if `path` is a key or a group of keys. */
SBIT__FN bool sbit__options_know(const sbit_options *options, const char *path);
/* Reads a YAML map (nested maps are path parts; key names in any case) into options. `place` is
 * the path of the map itself, for messages ("W"). Unknown keys: error with the full path, the
 * position, and the nearest known key. A key given twice, a wrong type, a value out of range or
 * an unknown choice: likewise. */
SBIT__FN sbit_status sbit__options_read(sbit__arena *arena, sbit_options *options,
                                        const sbit_yaml *map, const char *place, sbit_error *error);
/* Sets one key from text or a YAML value (flat SPECIFIC lists, command line flags). */
SBIT__FN sbit_status sbit__options_set(sbit__arena *arena, sbit_options *options, const char *path,
                                       const sbit_yaml *value, const char *place,
                                       sbit_error *error);
/* Fails for keys without a default that were not set. */
SBIT__FN sbit_status sbit__options_complete(const sbit_options *options, const char *place,
                                            sbit_error *error);
SBIT__FN sbit_status sbit__options_copy(sbit__arena *arena, const sbit_options *from,
                                        sbit_options *to, sbit_error *error);

/* >>config-tree: a whole configuration: keys at the top and sections (W, A, SPARSER), which may
 * override their keys for single layers. The owner fills top and sections with its tables. */

/* One entry of SPECIFIC: a glob and its flat list [KEY, value, ...]. */
typedef struct sbit__specific {
    const char *pattern;
    const sbit_yaml *list;
    bool matched; /* by any layer so far */
} sbit__specific;

typedef struct sbit__section {
    const char *name;     /* its key, "W" */
    sbit_options options; /* one of the keys is SPECIFIC */
    sbit__specific *specific;
    size_t specific_count;
    /* optional: what concerns several keys; also called with the overrides of every layer */
    sbit_status (*check_fn)(const sbit_options *options, const char *section, sbit_error *error);
} sbit__section;

typedef struct sbit__tree {
    sbit_ctx *ctx;
    sbit__arena arena;    /* of options and tables */
    sbit_yaml_doc **docs; /* options borrow lists from them */
    size_t doc_count, doc_capacity;
    sbit_options top;
    sbit__section sections[2];
    size_t section_count;
    size_t holders; /* besides the one who made it: what was made from it borrows its options */
} sbit__tree;

typedef struct sbit__tree_kind {
    sbit_status (*init)(sbit__tree *tree, sbit_error *error);      /* fills top and sections */
    sbit_status (*verify_fn)(sbit__tree *tree, sbit_error *error); /* looks at what was read */
    /* optional: another tool's form as YAML of ours, appended to `out`; nothing: it is ours */
    sbit_status (*translate_fn)(sbit_ctx *ctx, const sbit_yaml *root, sbit__text *out,
                                sbit_error *error);
    /* sections of another tree that may stand in the same file, beside one of ours ("W|A"); rest: what
     * else is unknown then is that tree's too */
    const char *beside;
    bool rest;
} sbit__tree_kind;

/* A tree from YAML text or a file. Every section is checked, with the overrides of single layers.
 * Free with sbit__tree_destroy (NULL is fine). */
SBIT__FN sbit_status sbit__tree_make(sbit_ctx *ctx, const sbit__tree_kind *kind, const char *text,
                                     size_t size, sbit__tree **out, sbit_error *error);
SBIT__FN sbit_status sbit__tree_load(sbit_ctx *ctx, const sbit__tree_kind *kind, const char *path,
                                     sbit__tree **out, sbit_error *error);
SBIT__FN void sbit__tree_destroy(sbit__tree *tree);
/* Sets one key as if it had been written: "A.QUANTIZER.BIT", "4". */
SBIT__FN sbit_status sbit__tree_set(sbit__tree *tree, const char *path, const char *value,
                                    sbit_error *error);
/* Prints the tree, or only what was set, as YAML that reads back equal. */
SBIT__FN void sbit__tree_print(const sbit__tree *tree, bool only_set,
                               void (*put)(const char *text, size_t size, void *user), void *user);
typedef struct sbit__described {
    const char *title;
    const sbit__kind *kind;
} sbit__described;

/* A line or more for each key: sections, path, default, meaning, values; then one for each row of the
 * kinds: name and meaning. */
SBIT__FN sbit_status sbit__tree_describe(const sbit__tree *tree, const sbit__described *kinds, size_t count,
                                         void (*put)(const char *text, size_t size, void *user), void *user,
                                         sbit_error *error);
/* The options of one layer, in `arena`: those of the section and the first override whose glob
 * matches. */
SBIT__FN sbit_status sbit__section_resolve(sbit__section *section, const sbit_graph *graph,
                                           sbit_node_id node, sbit__arena *arena, sbit_options *out,
                                           sbit_error *error);
/* The pattern of that override; "": none. */
SBIT__FN const char *sbit__section_pattern(const sbit__section *section, const sbit_graph *graph,
                                           sbit_node_id node);
/* Warns of overrides that matched no layer so far, and of names in them that leave out none, with the
 * nearest names. */
SBIT__FN void sbit__section_warn_unmatched(const sbit__section *section, const sbit_graph *graph,
                                           const char *layers);
#define SBIT__LAYER_NAME_BYTES 256
/* The first "!name" or "!re:..." of a pattern that no node answers to; term[SBIT__LAYER_NAME_BYTES]. */
SBIT__FN bool sbit__layer_idle_exclusion(const sbit_graph *graph, const char *pattern, char *term);
/* A mistake in the value of an option that was set: error with its position and path. */
SBIT__FN sbit_status sbit__option_fail(const sbit_option *option, const char *section,
                                       const char *what, sbit_error *error);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_CONFIG_PRIVATE_H */
