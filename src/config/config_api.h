/* config_api.h: YAML subset, key tables, layer names. >>config
 *
 * Called by: quant (sbit_qconfig_*), sparse (sbit_sconfig_*), strategy rows (their keys), tools.
 * Calls: graph (layer names only).
 * A key table describes what may be written; reading a YAML map against tables checks names,
 * types and ranges, fills defaults and says line:column of every mistake. The trees themselves
 * (which tables stand where) belong to the layers that own the strategies.
 */
#ifndef SBIT_CONFIG_API_H
#define SBIT_CONFIG_API_H

#include "../exec/exec_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* >>extend */

/* >>yaml: block and flow maps and lists, plain, '...' and "..." scalars, comments, multi-line
 * flow, document start '---'. Anchors, aliases, tags, tabs in indentation, block scalars (| >),
 * duplicate keys and a second document are errors with "line:column" in error->where. */
typedef enum sbit_yaml_kind {
    SBIT_YAML_NULL,
    SBIT_YAML_SCALAR,
    SBIT_YAML_LIST,
    SBIT_YAML_MAP
} sbit_yaml_kind;

typedef struct sbit_yaml {
    sbit_yaml_kind kind;
    int32_t line, column; /* 1-based, of the first character */
    const char *text;     /* SCALAR: decoded */
    bool quoted;          /* SCALAR: never a number, bool or null */
    const char *key;      /* of an entry of a map */
    int32_t key_line, key_column;
    size_t count; /* LIST, MAP */
    const struct sbit_yaml *items;
} sbit_yaml;

typedef struct sbit_yaml_doc sbit_yaml_doc;
/* Copies what it needs of `text`: at most 16 MiB (a document takes up to 80 times that) and 64 levels.
 * Free with sbit_yaml_destroy. */
SPARSEBIT_API sbit_status sbit_yaml_parse(sbit_ctx *ctx, const char *text, size_t size,
                                          sbit_yaml_doc **out, sbit_error *error);
SPARSEBIT_API const sbit_yaml *sbit_yaml_root(const sbit_yaml_doc *doc); /* never NULL */
SPARSEBIT_API void sbit_yaml_destroy(sbit_yaml_doc *doc);

/* >>keys */
typedef enum sbit_key_type {
    SBIT_KEY_BOOL,
    SBIT_KEY_INT,
    SBIT_KEY_FLOAT,
    SBIT_KEY_STRING,
    SBIT_KEY_CHOICE,  /* one of `choices`, any case, '-' and '_' alike; stored as listed there */
    SBIT_KEY_STRINGS, /* a list of strings */
    SBIT_KEY_YAML     /* anything; the owner reads it (SPECIFIC) */
} sbit_key_type;

typedef struct sbit_key {
    const char *path; /* "QUANTIZER.BIT": below the table's own place */
    sbit_key_type type;
    const char *otherwise; /* default as it would be written; NULL: must be set */
    double min, max;       /* of numbers; both 0: no limits */
    const char *choices;   /* CHOICE: "minmax|mse|..." */
    const char *doc;       /* one line for help texts and the README */
} sbit_key;

/* >>rows: strategies (passes, observers, quantizers, profiles, sparsers, steps ...) are const rows:
 * what they are called, their keys, and functions. Every kind of row begins with this head. */
enum {
    SBIT_TARGET_WEIGHT = 1,
    SBIT_TARGET_ACTIVATION = 2
};

typedef struct sbit_head {
    const char *name;     /* lower case: "minmax" */
    const char *doc;      /* one line */
    uint32_t targets;     /* what it may be used for, SBIT_TARGET_*; 0 where the kind has none */
    const sbit_key *keys; /* its options, below the place of its kind ("OBSERVER.") */
    size_t key_count;
} sbit_head;

/* The value of a key. Numbers fill both i and f. */
typedef struct sbit_option {
    const sbit_key *key;
    bool is_set; /* written by the user, not the default */
    bool b;
    int64_t i;
    double f;
    const char *s;           /* STRING, CHOICE */
    const char *const *list; /* STRINGS */
    size_t list_count;
    const sbit_yaml *yaml; /* YAML, borrowed from the document; NULL if not set */
    int32_t line, column;  /* where it was set; 0: default */
} sbit_option;

/* Values of all keys of the tables it was made from. */
typedef struct sbit_options {
    size_t count;
    sbit_option *items;
} sbit_options;

/* Looks a key up by path ("PERCENTILE.ALPHA"); NULL if no table had it. The getters return the
 * value, or 0/false/"" for such a key. */
SPARSEBIT_API const sbit_option *sbit_options_find(const sbit_options *options, const char *path);
SPARSEBIT_API bool sbit_options_bool(const sbit_options *options, const char *path);
SPARSEBIT_API int64_t sbit_options_int(const sbit_options *options, const char *path);
SPARSEBIT_API double sbit_options_float(const sbit_options *options, const char *path);
SPARSEBIT_API const char *sbit_options_string(const sbit_options *options, const char *path);

/* >>users */

/* >>layer names (quantization and pruning alike). A layer answers to its node name, its weight
 * constant's name without ".weight", and its first output's name; '.', '/' and '_' count as the
 * same; a leading "module." or "model/" may be left out; patterns are globs (* ? [a-z] [!a-z]).
 * "op:Conv" stands for the operator's type, "re:REGEX" for a regular expression without groups, from
 * the name's beginning; "!" in front says all others, "&" joins: "op:Gemm&!head*". */
/* The name shown: weight name without ".weight", else node name, else "Conv_<index>". */
SPARSEBIT_API void sbit_layer_name(const sbit_graph *graph, sbit_node_id node, char *text,
                                   size_t size);
SPARSEBIT_API bool sbit_layer_matches(const sbit_graph *graph, sbit_node_id node,
                                      const char *pattern);
/* For a pattern that matched nothing: the nearest layer names, "conv1, conv2" (may be ""). */
SPARSEBIT_API void sbit_layer_suggest(const sbit_graph *graph, const char *pattern, char *text,
                                      size_t size);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_CONFIG_API_H */
