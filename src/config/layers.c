/* layers.c: which names a layer answers to. >>layers
 *
 * One resolver for quantization and pruning (contracts.md section 6).
 */
#include "config_private.h"


/* Copies a name in the form in which names are compared: '.', '/' and ' ' become '_', a leading
 * "module." or "model/" and separators in front are dropped. */
static void sbit__layer_normalize(const char *name, char *out, size_t size)
{
    static const char *const prefixes[] = {"module.", "module/", "model.", "model/"};
    size_t n = 0;
    while (*name == '/' || *name == '.') {
        name++;
    }
    for (size_t i = 0; i < SBIT__COUNT_OF(prefixes); i++) {
        const size_t length = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], length) == 0 && name[length] != '\0') {
            name += length;
            break;
        }
    }
    for (; *name != '\0' && n + 1 < size; name++) {
        out[n++] = *name == '.' || *name == '/' ? '_' : *name;
    }
    out[n] = '\0';
}

static bool sbit__layer_same(const char *pattern, const char *name)
{
    char text[SBIT__LAYER_NAME_BYTES], glob[SBIT__LAYER_NAME_BYTES];
    if (name == NULL || name[0] == '\0') {
        return false;
    }
    if (sbit__fnmatch(pattern, name)) {
        return true;
    }
    sbit__layer_normalize(name, text, sizeof text);
    sbit__layer_normalize(pattern, glob, sizeof glob);
    return sbit__fnmatch(glob, text);
}

/* The layer's weight constant; NULL if it has none. */
static const sbit_value_info *sbit__layer_weight(const sbit_graph *graph, const sbit_node *node)
{
    const sbit_op_row *row = sbit_operator_find(sbit_graph_ctx(graph), node->domain, node->op_type,
                                                sbit_graph_opset(graph, node->domain));
    const int input = row != NULL && row->quant != NULL ? row->quant->weight : -1;
    if (input < 0 || (size_t)input >= node->input_count || node->inputs[input].idx == 0) {
        return NULL;
    }
    const sbit_value_info *weight = sbit_graph_value(graph, node->inputs[input]);
    return weight->is_constant ? weight : NULL;
}

/* The name of the layer's weight constant without ".weight"; false if it has none. Names such as
 * "onnx::Conv_123" are made up by exporters and do not count. */
static bool sbit__layer_weight_name(const sbit_graph *graph, const sbit_node *node, char *text,
                                    size_t size)
{
    static const char suffix[] = ".weight";
    const sbit_value_info *weight = sbit__layer_weight(graph, node);
    const size_t length = weight != NULL ? strlen(weight->name) : 0;
    const size_t tail = sizeof suffix - 1;
    if (weight == NULL || length <= tail || strcmp(weight->name + length - tail, suffix) != 0 ||
        length - tail >= size) {
        return false;
    }
    memcpy(text, weight->name, length - tail);
    text[length - tail] = '\0';
    return true;
}

SPARSEBIT_API void sbit_layer_name(const sbit_graph *graph, sbit_node_id id, char *text,
                                   size_t size)
{
    const sbit_node *node = sbit_graph_node(graph, id);
    if (sbit__layer_weight_name(graph, node, text, size)) {
        return;
    }
    if (node->name[0] != '\0') {
        snprintf(text, size, "%s", node->name);
    } else {
        snprintf(text, size, "%s_%u", node->op_type, (unsigned)id.idx);
    }
}

/* >>layer-regex: what op_names_re of other tools is made of: . [] [^] \d \w \s * + ? ^ $ | (not within
 * groups: there are none), from the beginning of the text. */

/* One atom of [at, end): where the next begins. */
static const char *sbit__regex_next(const char *at, const char *end)
{
    if (*at == '[') {
        const char *close = at + 1;
        close += close < end && *close == '^' ? 1 : 0;
        for (close += close < end ? 1 : 0; close < end && *close != ']';) {
            close++;
        }
        return close < end ? close + 1 : end;
    }
    return *at == '\\' && at + 1 < end ? at + 2 : at + 1;
}

static bool sbit__regex_class(char kind, char c)
{
    const bool digit = c >= '0' && c <= '9';
    const char low = sbit__lower(c);
    switch (kind) {
    case 'd':
        return digit;
    case 'w':
        return digit || (low >= 'a' && low <= 'z') || c == '_';
    case 's':
        return c == ' ' || c == '\t';
    default:
        return kind == c;
    }
}

static bool sbit__regex_one(const char *at, const char *next, char c)
{
    if (c == '\0') {
        return false;
    }
    if (*at == '\\' && next - at == 2) {
        return sbit__regex_class(at[1], c);
    }
    if (*at != '[') {
        return *at == '.' || *at == c;
    }
    const bool inverted = at[1] == '^';
    bool in = false;
    for (const char *i = at + (inverted ? 2 : 1); i < next - 1; i++) {
        const bool range = i + 2 < next - 1 && i[1] == '-';
        in = in || (range ? c >= i[0] && c <= i[2] : c == *i);
        i += range ? 2 : 0;
    }
    return in != inverted;
}

/* The atoms up to `end` match what `text` begins with. */
static bool sbit__regex_here(const char *at, const char *end, const char *text)
{
    for (; at < end;) {
        const char *next = sbit__regex_next(at, end);
        const char how = next < end ? *next : '\0';
        if (*at == '$' && next == end) {
            return *text == '\0';
        }
        if (how == '*' || how == '+' || how == '?') {
            const int least = how == '+' ? 1 : 0;
            int n = 0; /* as many as there are, then fewer */
            while ((how != '?' || n < 1) && sbit__regex_one(at, next, text[n])) {
                n++;
            }
            for (; n >= least; n--) {
                if (sbit__regex_here(next + 1, end, text + n)) {
                    return true;
                }
            }
            return false;
        }
        if (!sbit__regex_one(at, next, *text)) {
            return false;
        }
        text++;
        at = next;
    }
    return true;
}

static bool sbit__regex_matches(const char *pattern, const char *text)
{
    for (const char *at = pattern;; at++) {
        const char *end = at;
        while (*end != '\0' && *end != '|') {
            end = sbit__regex_next(end, pattern + strlen(pattern));
        }
        if (sbit__regex_here(at + (*at == '^' ? 1 : 0), end, text)) {
            return true;
        }
        if (*end == '\0') {
            return false;
        }
        at = end;
    }
}

/* One term of a pattern: a glob, "op:GLOB" or "re:REGEX". */
static bool sbit__layer_term(const sbit_graph *graph, sbit_node_id id, const char *term)
{
    char name[SBIT__LAYER_NAME_BYTES];
    const sbit_node *node = sbit_graph_node(graph, id);
    const sbit_value_info *weight = sbit__layer_weight(graph, node);
    const bool has_output = node->output_count > 0 && node->outputs[0].idx != 0;
    if (strncmp(term, "op:", 3) == 0) {
        return sbit__fnmatch(term + 3, node->op_type);
    }
    sbit_layer_name(graph, id, name, sizeof name);
    const char *const names[4] = {
        name, node->name, weight != NULL ? weight->name : NULL,
        has_output ? sbit_graph_value(graph, node->outputs[0])->name : NULL};
    for (size_t i = 0; i < SBIT__COUNT_OF(names); i++) {
        if (strncmp(term, "re:", 3) == 0
                ? names[i] != NULL && sbit__regex_matches(term + 3, names[i])
                : sbit__layer_same(term, names[i])) {
            return true;
        }
    }
    return false;
}

/* Moves *at behind the next term of a pattern, which is copied; false: none is left, or it is too long
 * (then *at stays). "[&]" is a letter of a name. */
static bool sbit__layer_next_term(const char **at, char *term)
{
    size_t size = strcspn(*at, "&");
    while ((*at)[size] == '&' && size > 0 && (*at)[size - 1] == '[' && (*at)[size + 1] == ']') {
        size += 1 + strcspn(*at + size + 1, "&");
    }
    if (**at == '\0' || size >= SBIT__LAYER_NAME_BYTES) {
        return false;
    }
    memcpy(term, *at, size);
    term[size] = '\0';
    *at += size + ((*at)[size] == '&' ? 1 : 0);
    return true;
}

SPARSEBIT_API bool sbit_layer_matches(const sbit_graph *graph, sbit_node_id id, const char *pattern)
{
    char term[SBIT__LAYER_NAME_BYTES];
    const char *at = pattern;
    while (sbit__layer_next_term(&at, term)) {
        const bool inverted = term[0] == '!';
        if (sbit__layer_term(graph, id, term + (inverted ? 1 : 0)) == inverted) {
            return false;
        }
    }
    return at != pattern && *at == '\0';
}

SBIT__FN bool sbit__layer_idle_exclusion(const sbit_graph *graph, const char *pattern, char *term)
{
    const char *at = pattern;
    while (sbit__layer_next_term(&at, term)) {
        bool any = term[0] != '!' || strncmp(term, "!op:", 4) == 0;
        for (sbit_node_id id = sbit_graph_first(graph); !any && id.idx != 0; id = sbit_graph_next(graph, id)) {
            any = sbit__layer_term(graph, id, term + 1);
        }
        if (!any) {
            return true;
        }
    }
    return false;
}

SPARSEBIT_API void sbit_layer_suggest(const sbit_graph *graph, const char *pattern, char *text,
                                      size_t size)
{
    enum {
        SBIT__LAYER_SUGGESTIONS = 3
    };
    char best[SBIT__LAYER_SUGGESTIONS][SBIT__LAYER_NAME_BYTES];
    size_t distance[SBIT__LAYER_SUGGESTIONS];
    size_t count = 0;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        char name[SBIT__LAYER_NAME_BYTES];
        sbit_layer_name(graph, id, name, sizeof name);
        const size_t d = sbit__edit_distance(pattern, name);
        size_t at = count;
        while (at > 0 && d < distance[at - 1]) {
            at--;
        }
        if (at >= SBIT__LAYER_SUGGESTIONS) {
            continue;
        }
        count += count < SBIT__LAYER_SUGGESTIONS ? 1u : 0u;
        for (size_t i = count - 1; i > at; i--) {
            memcpy(best[i], best[i - 1], sizeof best[i]);
            distance[i] = distance[i - 1];
        }
        memcpy(best[at], name, sizeof name);
        distance[at] = d;
    }
    size_t used = 0;
    if (size > 0) {
        text[0] = '\0';
    }
    for (size_t i = 0; i < count; i++) {
        const int n = snprintf(text + used, size - used, "%s%.60s", i > 0 ? ", " : "", best[i]);
        if (n < 0 || (size_t)n >= size - used) {
            break;
        }
        used += (size_t)n;
    }
}
