/* describe.c: the keys of a configuration tree as a table for help texts and the manual.
 * >>config-describe
 *
 *     W A  OBSERVER.PERCENTILE.ALPHA = 0.001    part of the values of each sign to cut (0 to 1)
 *
 * First the sections that have the key, then the key with its default, and what its row says.
 */
#include "config_private.h"

enum {
    SBIT__DESCRIBE_DOC = 48, /* column of the meaning */
    SBIT__DESCRIBE_WIDTH = 100
};

/* Appends words to a line that breaks before column 100 and goes on in column 48. */
static void sbit__describe_words(sbit__text *out, size_t *column, const char *words)
{
    while (*words != '\0') {
        const size_t length = strcspn(words, " ");
        if (*column + 1 + length > SBIT__DESCRIBE_WIDTH) {
            sbit__text_printf(out, "\n%*s", (int)SBIT__DESCRIBE_DOC, "");
            *column = SBIT__DESCRIBE_DOC;
        } else if (*column > SBIT__DESCRIBE_DOC) {
            sbit__text_append(out, " ", 1);
            (*column)++;
        }
        sbit__text_append(out, words, length);
        *column += length;
        words += length + strspn(words + length, " ");
    }
}

/* "(0 to 1)", "(a, b, c)": what may be written. */
static void sbit__describe_values(sbit__text *out, size_t *column, const sbit_key *key)
{
    char word[96];
    if ((key->type == SBIT_KEY_INT || key->type == SBIT_KEY_FLOAT) &&
        (key->min < 0.0 || key->min > 0.0 || key->max < 0.0 || key->max > 0.0)) {
        snprintf(word, sizeof word, "(%g to %g)", key->min, key->max);
        sbit__describe_words(out, column, word);
    } else if (key->type == SBIT_KEY_CHOICE && key->choices != NULL) {
        const char *at = key->choices;
        for (bool first = true; *at != '\0'; first = false) {
            const size_t length = strcspn(at, "|");
            const bool last = at[length] == '\0';
            snprintf(word, sizeof word, "%s%.*s%s", first ? "(" : "",
                     (int)(length < 80 ? length : 80), at, last ? ")" : ",");
            sbit__describe_words(out, column, word);
            at += length + (last ? 0 : 1);
        }
    }
}

static void sbit__describe_key(sbit__text *out, const char *sections, const sbit_key *key)
{
    const size_t start = out->size;
    const bool text = key->type == SBIT_KEY_STRINGS || key->type == SBIT_KEY_YAML;
    sbit__text_printf(out, "    %-4s %s = %s", sections, key->path,
                      key->otherwise == NULL              ? "(must be set)"
                      : key->otherwise[0] == '\0' && text ? "[]"
                                                          : key->otherwise);
    size_t column = out->size - start;
    if (column + 2 > SBIT__DESCRIBE_DOC) {
        sbit__text_append(out, "\n", 1);
        column = 0;
    }
    sbit__text_printf(out, "%*s", (int)(SBIT__DESCRIBE_DOC - column), "");
    column = SBIT__DESCRIBE_DOC;
    sbit__describe_words(out, &column, key->doc);
    sbit__describe_values(out, &column, key);
    sbit__text_append(out, "\n", 1);
}

/* The same key with the same meaning in another section. */
static bool sbit__describe_same(const sbit_options *options, const sbit_key *key)
{
    const sbit_option *other = sbit_options_find(options, key->path);
    return other != NULL && sbit__streq(other->key->choices != NULL ? other->key->choices : "",
                                        key->choices != NULL ? key->choices : "");
}

static void sbit__describe_tree(const sbit__tree *tree, sbit__text *out)
{
    for (size_t i = 0; i < tree->top.count; i++) {
        sbit__describe_key(out, "", tree->top.items[i].key);
    }
    for (size_t s = 0; s < tree->section_count; s++) {
        const sbit__section *section = &tree->sections[s];
        for (size_t i = 0; i < section->options.count; i++) {
            const sbit_key *key = section->options.items[i].key;
            char sections[64];
            bool before = false;
            size_t used = (size_t)snprintf(sections, sizeof sections, "%s", section->name);
            for (size_t t = 0; t < tree->section_count; t++) {
                const bool same = t != s && sbit__describe_same(&tree->sections[t].options, key);
                before = before || (same && t < s);
                if (same && t > s && used < sizeof sections) {
                    used += (size_t)snprintf(sections + used, sizeof sections - used, " %s",
                                             tree->sections[t].name);
                }
            }
            if (!before) { /* else it stands with that section */
                sbit__describe_key(out, sections, key);
            }
        }
    }
}

static void sbit__describe_rows(const sbit_ctx *ctx, const sbit__kind *kind, sbit__text *out)
{
    const sbit_head *row;
    for (size_t i = 0; (row = sbit__row_at(ctx, kind, i)) != NULL; i++) {
        if (row->targets != 0 || kind->at(0)->targets == 0) { /* can be asked for by name */
            sbit__text_printf(out, "    %-18s %s\n", row->name, row->doc);
        }
    }
}

SBIT__FN sbit_status sbit__tree_describe(const sbit__tree *tree, const sbit__described *kinds, size_t count,
                                         void (*put)(const char *text, size_t size, void *user), void *user,
                                         sbit_error *error)
{
    sbit__text text;
    sbit__text_init(&text, sbit_ctx_allocator(tree->ctx));
    sbit__text_printf(&text, "  Keys\n");
    sbit__describe_tree(tree, &text);
    for (size_t i = 0; i < count; i++) {
        sbit__text_printf(&text, "  %s\n", kinds[i].title);
        sbit__describe_rows(tree->ctx, kinds[i].kind, &text);
    }
    const sbit_status status = text.failed ? sbit__fail_oom(error, text.size) : SBIT_OK;
    if (status == SBIT_OK) {
        put(text.data, text.size, user);
    }
    sbit__text_deinit(&text);
    return status;
}
