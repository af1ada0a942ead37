/* model_text.h: models from a few lines of text, as the bytes of an ONNX file. Include after
 * test.h.
 *
 *     ir 8                                   IR version (default 8)
 *     opset 17 [domain]                      opset import (default: ai.onnx 17)
 *     in x f32 N,4                           an input; "..." for an unknown rank, "" for a scalar
 *     c w f32 2,2 = 1 2 3 4                  an initializer; repeated from the start if too few
 *     graph then                             a body, named for @then; ends at "end"
 *     Resize x,-,w -> y [node] mode=linear axes=[2,3] k=1 f=0.5 then_branch=@then
 *     out y f32 N,4                          an output; type "?" for one that is not declared
 *
 * Nodes in other domains are written "domain:Type". One line each; "#" begins a comment line. An
 * attribute is an integer, a float (with a '.'), a list of either or of text that begins with a
 * capital letter, a body or text.
 */
#ifndef SBIT_MODEL_TEXT_H
#define SBIT_MODEL_TEXT_H

typedef struct model_bytes {
    unsigned char *data;
    size_t size, room;
} model_bytes;

TEST_FN void model_put(model_bytes *to, const void *data, size_t size)
{
    if (to->size + size > to->room) {
        to->room = 2 * (to->size + size);
        to->data = (unsigned char *)realloc(to->data, to->room);
    }
    if (size > 0) {
        memcpy(to->data + to->size, data, size);
    }
    to->size += size;
}

TEST_FN void model_varint(model_bytes *to, uint64_t value)
{
    do {
        const unsigned char byte = (unsigned char)((value & 127u) | (value > 127 ? 128u : 0u));
        model_put(to, &byte, 1);
        value >>= 7;
    } while (value != 0);
}

TEST_FN void model_int(model_bytes *to, int field, int64_t value)
{
    model_varint(to, (uint64_t)field << 3);
    model_varint(to, (uint64_t)value);
}

TEST_FN void model_float(model_bytes *to, int field, float value)
{
    model_varint(to, (uint64_t)field << 3 | 5u);
    model_put(to, &value, 4);
}

TEST_FN void model_block(model_bytes *to, int field, const void *data, size_t size)
{
    model_varint(to, (uint64_t)field << 3 | 2u);
    model_varint(to, size);
    model_put(to, data, size);
}

TEST_FN void model_text_of(model_bytes *to, int field, const char *text)
{
    model_block(to, field, text, strlen(text));
}

/* Moves a finished message into `to`. */
TEST_FN void model_message(model_bytes *to, int field, model_bytes *message)
{
    model_block(to, field, message->data, message->size);
    free(message->data);
    memset(message, 0, sizeof *message);
}

typedef struct model_type {
    const char *name;
    int dtype, bytes;
} model_type;

TEST_FN model_type model_type_of(const char *name)
{
    static const model_type types[] = {
        {"?", 0, 0},    {"f32", 1, 4},  {"u8", 2, 1},  {"i8", 3, 1},   {"u16", 4, 2},
        {"i16", 5, 2},  {"i32", 6, 4},  {"i64", 7, 8}, {"bool", 9, 1}, {"f16", 10, 2},
        {"f64", 11, 8}, {"u32", 12, 4}, {"u64", 13, 8}, {"bf16", 16, 2}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(types[i].name, name) == 0) {
            return types[i];
        }
    }
    CHECK_MSG(false, "model text: type '%s'", name);
    return types[0];
}

/* TypeProto of a tensor. */
TEST_FN model_bytes model_tensor_type(const char *type, const char *dims)
{
    model_bytes shape = {NULL, 0, 0}, tensor = {NULL, 0, 0}, out = {NULL, 0, 0};
    model_int(&tensor, 1, model_type_of(type).dtype);
    for (const char *at = dims; *at != '\0' && strcmp(dims, "...") != 0;) {
        model_bytes dim = {NULL, 0, 0};
        char text[64];
        const size_t n = strcspn(at, ",");
        snprintf(text, sizeof text, "%.*s", (int)n, at);
        if (strchr("0123456789", text[0]) != NULL) {
            model_int(&dim, 1, atoll(text));
        } else if (text[0] != '?' || text[1] != '\0') {
            model_text_of(&dim, 2, text[0] == '\'' ? text + 1 : text); /* '? is the name "?" */
        }
        model_message(&shape, 1, &dim);
        at += n + (at[n] == ',' ? 1 : 0);
    }
    if (strcmp(dims, "...") != 0) {
        model_message(&tensor, 2, &shape);
    }
    model_message(&out, 1, &tensor);
    return out;
}

TEST_FN void model_value_info(model_bytes *graph, int field, const char *name, const char *type,
                              const char *dims)
{
    model_bytes info = {NULL, 0, 0};
    model_text_of(&info, 1, name);
    if (type[0] != '?') {
        model_bytes inner = model_tensor_type(type, dims);
        model_message(&info, 2, &inner);
    }
    model_message(graph, field, &info);
}

TEST_FN void model_element(model_bytes *raw, model_type type, const char *text)
{
    const double value = strtod(text, NULL);
    const float f = (float)value;
    const int64_t i = (int64_t)strtoll(text, NULL, 10);
    if (type.dtype == 1) {
        model_put(raw, &f, 4);
    } else if (type.dtype == 11) {
        model_put(raw, &value, 8);
    } else {
        model_put(raw, &i, (size_t)type.bytes); /* little-endian; float16: bits */
    }
}

TEST_FN void model_initializer(model_bytes *graph, const char *name, const char *type_name,
                               const char *dims, const char *values)
{
    model_bytes tensor = {NULL, 0, 0}, raw = {NULL, 0, 0};
    const model_type type = model_type_of(type_name);
    int64_t count = 1;
    for (const char *at = dims; *at != '\0';) {
        const size_t n = strcspn(at, ",");
        model_int(&tensor, 1, atoll(at));
        count *= atoll(at);
        at += n + (at[n] == ',' ? 1 : 0);
    }
    model_int(&tensor, 2, type.dtype);
    model_text_of(&tensor, 8, name);
    const char *at = values + strspn(values, " ");
    for (int64_t i = 0; i < count; i++) {
        if (*at == '\0') {
            at = values + strspn(values, " ");
        }
        model_element(&raw, type, at);
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    model_message(&tensor, 9, &raw);
    model_message(graph, 5, &tensor);
}

typedef struct model_body {
    char name[32];
    model_bytes bytes;
} model_body;

typedef struct model_state {
    model_bytes graph, opsets;
    model_body bodies[64];
    int body_count;
    int64_t ir;
} model_state;

TEST_FN void model_attribute(model_state *state, model_bytes *node, const char *name,
                             const char *value)
{
    model_bytes attr = {NULL, 0, 0};
    const bool list = value[0] == '[';
    const bool words = list && value[1] >= 'A' && value[1] <= 'Z';
    const bool number = list || strchr("-0123456789", value[0]) != NULL;
    const bool real = number && strpbrk(value, ".einf") != NULL;
    model_text_of(&attr, 1, name);
    if (value[0] == '@') {
        for (int i = 0; i < state->body_count; i++) {
            if (strcmp(state->bodies[i].name, value + 1) == 0) {
                model_block(&attr, 6, state->bodies[i].bytes.data, state->bodies[i].bytes.size);
            }
        }
        model_int(&attr, 20, 5);
    } else if (!number) {
        model_text_of(&attr, 4, value);
        model_int(&attr, 20, 3);
    } else if (!list) {
        if (real) {
            model_float(&attr, 2, (float)atof(value));
        } else {
            model_int(&attr, 3, atoll(value));
        }
        model_int(&attr, 20, real ? 1 : 2);
    } else {
        for (const char *at = value + 1; *at != ']' && *at != '\0';) {
            const size_t n = strcspn(at, ",]");
            if (words) {
                model_block(&attr, 9, at, n);
            } else if (real) {
                model_float(&attr, 7, (float)atof(at));
            } else {
                model_int(&attr, 8, atoll(at));
            }
            at += n + (at[n] == ',' ? 1 : 0);
        }
        model_int(&attr, 20, words ? 8 : real ? 6 : 7);
    }
    model_message(node, 5, &attr);
}

TEST_FN void model_names(model_bytes *node, int field, const char *list)
{
    for (const char *at = list; *at != '\0';) {
        const size_t n = strcspn(at, ",");
        model_block(node, field, at, n == 1 && at[0] == '-' ? 0 : n);
        at += n + (at[n] == ',' ? 1 : 0);
    }
}

/* "Type a,b -> c [name] attr=value ..." */
TEST_FN void model_node(model_state *state, char *line)
{
    model_bytes node = {NULL, 0, 0};
    char *type = strtok(line, " ");
    char *word = strtok(NULL, " ");
    char *colon = strchr(type, ':');
    if (word != NULL && strcmp(word, "->") != 0) {
        model_names(&node, 1, word);
        word = strtok(NULL, " ");
    }
    word = strtok(NULL, " ");
    model_names(&node, 2, word);
    while ((word = strtok(NULL, " ")) != NULL) {
        char *equals = strchr(word, '=');
        if (equals == NULL) {
            model_text_of(&node, 3, word);
            continue;
        }
        *equals = '\0';
        model_attribute(state, &node, word, equals + 1);
    }
    if (colon != NULL) {
        *colon = '\0';
        model_text_of(&node, 7, type);
    }
    model_text_of(&node, 4, colon != NULL ? colon + 1 : type);
    model_message(&state->graph, 1, &node);
}

TEST_FN void model_line(model_state *state, char *line)
{
    char name[64] = "", type[16] = "", dims[160] = "";
    char *values = strstr(line, " = ");
    if (strncmp(line, "ir ", 3) == 0) {
        state->ir = atoll(line + 3);
    } else if (strncmp(line, "opset ", 6) == 0) {
        model_bytes opset = {NULL, 0, 0};
        int version = 0;
        if (sscanf(line + 6, "%d %63s", &version, name) == 2) {
            model_text_of(&opset, 1, name);
        }
        model_int(&opset, 2, version);
        model_message(&state->opsets, 8, &opset);
    } else if (strncmp(line, "in ", 3) == 0 || strncmp(line, "out ", 4) == 0) {
        const bool in = line[0] == 'i';
        (void)sscanf(line + (in ? 3 : 4), "%63s %15s %159s", name, type, dims);
        model_value_info(&state->graph, in ? 11 : 12, name, type[0] != '\0' ? type : "?", dims);
    } else if (strncmp(line, "c ", 2) == 0 && values != NULL) {
        *values = '\0';
        (void)sscanf(line + 2, "%63s %15s %159s", name, type, dims);
        model_initializer(&state->graph, name, type, dims, values + 3);
    } else {
        model_node(state, line);
    }
}

/* The file's bytes; free `data`. */
TEST_FN model_bytes model_from_text(const char *text)
{
    model_state *state = (model_state *)calloc(1, sizeof *state);
    model_bytes root = {NULL, 0, 0}, out = {NULL, 0, 0};
    char *copy = (char *)malloc(strlen(text) + 1);
    char *next = strcpy(copy, text);
    state->ir = 8;
    while (*next != '\0') {
        char *line = next + strspn(next, " ");
        const size_t n = strcspn(line, "\n");
        next = line + n + (line[n] == '\n' ? 1 : 0);
        line[n] = '\0';
        if (strncmp(line, "graph ", 6) == 0) {
            root = state->graph;
            memset(&state->graph, 0, sizeof state->graph);
            snprintf(state->bodies[state->body_count].name, 32, "%s", line + 6);
            model_text_of(&state->graph, 2, line + 6);
        } else if (strcmp(line, "end") == 0) {
            state->bodies[state->body_count++].bytes = state->graph;
            state->graph = root;
        } else if (line[0] != '#' && line[0] != '\0') {
            model_line(state, line);
        }
    }
    model_int(&out, 1, state->ir);
    model_text_of(&state->graph, 2, "g");
    model_message(&out, 7, &state->graph);
    if (state->opsets.size == 0) {
        char opset[] = "opset 17";
        model_line(state, opset);
    }
    model_put(&out, state->opsets.data, state->opsets.size);
    free(state->opsets.data);
    for (int i = 0; i < state->body_count; i++) {
        free(state->bodies[i].bytes.data);
    }
    free(state);
    free(copy);
    return out;
}

#if defined(SPARSEBIT_INCLUDED) || defined(SBIT_GRAPH_API_H)
/* A graph of that model; `bytes` keeps what it borrows: free bytes->data after the graph. */
TEST_FN sbit_graph *model_graph(sbit_ctx *ctx, const char *text, model_bytes *bytes,
                                sbit_error *error)
{
    sbit_graph *graph = NULL;
    *bytes = model_from_text(text);
    CHECK_OK(sbit_graph_read(ctx, bytes->data, bytes->size, &graph, error), *error);
    return graph;
}
#endif

#endif /* SBIT_MODEL_TEXT_H */
