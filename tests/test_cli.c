/* The command line tool: its commands, messages and exit codes, on small files made here. The
 * numbers expected are worked out by hand from the data.
 */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* mkdir, WEXITSTATUS */
#endif
#include "../sparsebit.h"
#include "test.h"

#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h> /* symlink */

#define TMP SBIT_TEST_TMP "/cli-"

static struct {
    char out[1 << 20], err[1 << 16]; /* of the last run */
} cli;

static void cli_slurp(const char *path, char *to, size_t size)
{
    FILE *file = fopen(path, "rb");
    size_t got = 0;
    if (file != NULL) {
        got = fread(to, 1, size - 1, file);
        fclose(file);
    }
    to[got] = '\0';
}

/* Runs "prefix binary arguments" in a shell; stdout and stderr are in cli.out and cli.err. */
__attribute__((format(printf, 2, 3))) static int cli_run_in(const char *prefix, const char *format,
                                                            ...)
{
    char arguments[3000], command[5000];
    va_list args;
    va_start(args, format);
    vsnprintf(arguments, sizeof arguments, format, args);
    va_end(args);
    snprintf(command, sizeof command, "%s '%s' %s >'%s' 2>'%s'", prefix, test_tool(), arguments,
             TMP "out", TMP "err");
    const int status = system(command);
    cli_slurp(TMP "out", cli.out, sizeof cli.out);
    cli_slurp(TMP "err", cli.err, sizeof cli.err);
    if (strstr(cli.err, "Sanitizer") != NULL || strstr(cli.err, "runtime error") != NULL) {
        test_failed(__FILE__, __LINE__, "%s:\n%s", command, cli.err);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define RUN(...) cli_run_in("", __VA_ARGS__)

/* Writes `to`, as long as `from`, over each `from`; how many there were. */
static int rename_in_file(const char *path, const char *from, const char *to)
{
    size_t size = 0;
    const size_t length = strlen(from);
    unsigned char *bytes = test_read_file(path, &size);
    int count = 0;
    for (size_t i = 0; bytes != NULL && i + length <= size; i++) {
        if (memcmp(bytes + i, from, length) == 0) {
            memcpy(bytes + i, to, length);
            count++;
        }
    }
    FILE *file = bytes != NULL ? fopen(path, "wb") : NULL;
    if (CHECK(file != NULL)) {
        CHECK(fwrite(bytes, 1, size, file) == size);
        fclose(file);
    }
    free(bytes);
    return count;
}

/* Checks the exit code and that stderr contains `text`; stdout must stay empty. */
#define CHECK_FAILS(code, text, ...)                                                               \
    do {                                                                                           \
        CHECK_EQ_I64(RUN(__VA_ARGS__), code);                                                      \
        CHECK_CONTAINS(cli.err, text);                                                             \
        CHECK_STR(cli.out, "");                                                                    \
    } while (0)

/* ---- JSON: one object and nothing else */

static const char *json_space(const char *at)
{
    return at + strspn(at, " \n\t\r");
}

static const char *json_value(const char *at);

static const char *json_string(const char *at)
{
    if (*at != '"') {
        return NULL;
    }
    for (at++; *at != '"'; at++) {
        if (*at == '\0' || (unsigned char)*at < 0x20) {
            return NULL;
        }
        at += *at == '\\' && at[1] != '\0';
    }
    return at + 1;
}

/* Members of an object (keys) or elements of an array, from behind the bracket. */
static const char *json_list(const char *at, bool keys, char end)
{
    at = json_space(at);
    if (*at == end) {
        return at + 1;
    }
    while (at != NULL) {
        at = json_space(at);
        if (keys) {
            at = json_string(at);
            at = at != NULL ? json_space(at) : NULL;
            if (at == NULL || *at++ != ':') {
                return NULL;
            }
        }
        at = json_value(json_space(at));
        at = at != NULL ? json_space(at) : NULL;
        if (at != NULL && *at == end) {
            return at + 1;
        }
        at = at != NULL && *at == ',' ? at + 1 : NULL;
    }
    return NULL;
}

static const char *json_value(const char *at)
{
    if (*at == '{') {
        return json_list(at + 1, true, '}');
    }
    if (*at == '[') {
        return json_list(at + 1, false, ']');
    }
    if (*at == '"') {
        return json_string(at);
    }
    const size_t word = strspn(at, "truefalsn");
    if (word > 0) {
        return at + word;
    }
    char *end = NULL;
    (void)strtod(at, &end);
    return end != at && (*at == '-' || (*at >= '0' && *at <= '9')) ? end : NULL;
}

static bool json_is_one_object(const char *text)
{
    const char *end = text[0] == '{' ? json_value(text) : NULL;
    return end != NULL && strcmp(end, "\n") == 0;
}

/* The number behind the first "key": after `from` ("": the beginning). -12345: not there. */
static double json_number(const char *from, const char *key)
{
    char text[100];
    snprintf(text, sizeof text, "\"%s\":", key);
    const char *at = strstr(cli.out, from);
    at = at != NULL ? strstr(at, text) : NULL;
    return at != NULL ? strtod(at + strlen(text), NULL) : -12345.0;
}

/* ---- files */

static void put_file(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    if (CHECK(file != NULL)) {
        CHECK(fwrite(data, 1, size, file) == size);
        fclose(file);
    }
}

/* A .npy file, version 1; shape as Python writes it: "(2, 3)". */
static void put_npy(const char *path, const char *descr, const char *shape, const void *data,
                    size_t bytes)
{
    char head[256];
    unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 0, 0};
    const int size =
        snprintf(head, sizeof head, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n",
                 descr, shape);
    FILE *file = fopen(path, "wb");
    start[8] = (unsigned char)size;
    if (CHECK(file != NULL)) {
        fwrite(start, 1, sizeof start, file);
        fwrite(head, 1, (size_t)size, file);
        fwrite(data, 1, bytes, file);
        fclose(file);
    }
}

/* A picture of one colour. */
static void put_ppm(const char *path, int width, int height, int r, int g, int b)
{
    FILE *file = fopen(path, "wb");
    if (CHECK(file != NULL)) {
        fprintf(file, "P6\n# made by test_cli\n%d %d\n255\n", width, height);
        for (int i = 0; i < width * height; i++) {
            fputc(r, file);
            fputc(g, file);
            fputc(b, file);
        }
        fclose(file);
    }
}

/* ---- models */

typedef struct maker {
    sbit_ctx *ctx;
    sbit_graph *graph;
    sbit_error error;
} maker;

static void maker_begin(maker *m)
{
    memset(m, 0, sizeof *m);
    m->ctx = test_ctx();
    CHECK_OK(sbit_graph_create(m->ctx, 13, &m->graph, &m->error), m->error);
}

/* dims: 0 is the symbol N, -1 the symbol H. */
static sbit_value_id maker_value(maker *m, const char *name, int32_t rank, const int64_t *dims)
{
    sbit_type type;
    sbit_value_id id = {0};
    memset(&type, 0, sizeof type);
    type.dtype = SBIT_F32;
    type.rank = rank;
    for (int32_t i = 0; i < rank; i++) {
        type.dims[i].value = dims[i];
        if (dims[i] <= 0) {
            CHECK_OK(sbit_graph_symbol(m->graph, dims[i] == 0 ? "N" : "H", &type.dims[i].symbol,
                                       &m->error),
                     m->error);
        }
    }
    CHECK_OK(sbit_graph_add_value(m->graph, name, &type, &id, &m->error), m->error);
    return id;
}

static sbit_value_id maker_input(maker *m, const char *name, int32_t rank, const int64_t *dims)
{
    const sbit_value_id id = maker_value(m, name, rank, dims);
    CHECK_OK(sbit_graph_set_input(m->graph, id, true, &m->error), m->error);
    return id;
}

static sbit_value_id maker_floats(maker *m, const char *name, int32_t rank, const int64_t *dims,
                                  const float *values)
{
    sbit_tensor tensor;
    sbit_value_id id = {0};
    CHECK_OK(sbit_tensor_alloc(m->ctx, SBIT_F32, rank, dims, &tensor, &m->error), m->error);
    memcpy(tensor.data, values, sbit_tensor_bytes(&tensor));
    CHECK_OK(sbit_graph_add_constant(m->graph, name, &tensor, &id, &m->error), m->error);
    sbit_tensor_free(m->ctx, &tensor);
    return id;
}

static void maker_named_node(maker *m, const char *name, const char *op, const sbit_value_id *inputs, size_t count,
                             sbit_value_id output)
{
    sbit_node_desc desc;
    sbit_node_id node;
    memset(&desc, 0, sizeof desc);
    desc.name = name;
    desc.op_type = op;
    desc.inputs = inputs;
    desc.input_count = count;
    desc.outputs = &output;
    desc.output_count = 1;
    CHECK_OK(sbit_graph_add_node(m->graph, &desc, &node, &m->error), m->error);
}

static void maker_node(maker *m, const char *op, const sbit_value_id *inputs, size_t count,
                       sbit_value_id output)
{
    maker_named_node(m, NULL, op, inputs, count, output);
}

static void maker_save(maker *m, sbit_value_id output, const char *path)
{
    CHECK_OK(sbit_graph_add_output(m->graph, output, &m->error), m->error);
    CHECK_OK(sbit_graph_save(m->graph, path, NULL, &m->error), m->error);
    sbit_graph_destroy(m->graph);
    sbit_ctx_destroy(m->ctx);
}

/* logits[N,6] = x[N,6] * factor */
static void make_scale(const char *path, float factor, int64_t batch)
{
    maker m;
    const int64_t dims[2] = {batch, 6};
    maker_begin(&m);
    const sbit_value_id x = maker_input(&m, "x", 2, dims);
    const sbit_value_id inner = maker_value(&m, "inner", 2, dims);
    const sbit_value_id y = maker_value(&m, "logits", 2, dims);
    const sbit_value_id f = maker_floats(&m, "factor", 0, NULL, &factor);
    const sbit_value_id in[2] = {x, f};
    maker_node(&m, "Mul", in, 2, inner);
    maker_node(&m, "Identity", &inner, 1, y);
    maker_save(&m, y, path);
}

/* logits[N,channels]: the mean of each channel of a picture [N,channels,side,side]. */
static void make_colours(const char *path, int64_t batch, int64_t channels, int64_t side)
{
    maker m;
    const int64_t dims[4] = {batch, channels, side, side}, pooled[4] = {batch, channels, 1, 1};
    maker_begin(&m);
    const sbit_value_id x = maker_input(&m, "picture", 4, dims);
    const sbit_value_id p = maker_value(&m, "pooled", 4, pooled);
    const sbit_value_id y = maker_value(&m, "logits", 2, dims);
    maker_node(&m, "GlobalAveragePool", &x, 1, p);
    maker_node(&m, "Flatten", &p, 1, y);
    maker_save(&m, y, path);
}

/* Conv 3x3 (3 -> 4), Relu, GlobalAveragePool, Flatten, Gemm (4 -> 5); 64 x 64 weights are added
 * when `large`, so that the file does not fit into a few KB. */
static void make_named_net(const char *path, const char *layer, bool large)
{
    maker m;
    float w[4 * 3 * 9], b[4], f[4 * 64];
    const int64_t in_dims[4] = {0, 3, 8, 8}, inner[4] = {0, 4, 6, 6}, pooled[4] = {0, 4, 1, 1};
    const int64_t w_dims[4] = {4, 3, 3, 3}, b_dims[1] = {4};
    const int64_t flat[2] = {0, 4}, f_dims[2] = {4, large ? 64 : 5}, y_dims[2] = {0, f_dims[1]};
    sbit_rng rng = sbit_rng_seed(5);
    for (size_t i = 0; i < sizeof w / sizeof w[0]; i++) {
        w[i] = 0.3f * sbit_rng_normal(&rng);
    }
    for (size_t i = 0; i < sizeof f / sizeof f[0]; i++) {
        f[i] = sbit_rng_normal(&rng);
        b[i % 4] = f[i];
    }
    maker_begin(&m);
    const sbit_value_id x = maker_input(&m, "x", 4, in_dims);
    const sbit_value_id conv[3] = {x, maker_floats(&m, layer != NULL ? "w" : "conv.weight", 4, w_dims, w),
                                   maker_floats(&m, layer != NULL ? "b" : "conv.bias", 1, b_dims, b)};
    const sbit_value_id c = maker_value(&m, "c", 4, inner), r = maker_value(&m, "r", 4, inner);
    const sbit_value_id p = maker_value(&m, "p", 4, pooled), l = maker_value(&m, "l", 2, flat);
    const sbit_value_id y = maker_value(&m, "logits", 2, y_dims);
    maker_named_node(&m, layer, "Conv", conv, 3, c);
    maker_node(&m, "Relu", &c, 1, r);
    maker_node(&m, "GlobalAveragePool", &r, 1, p);
    maker_node(&m, "Flatten", &p, 1, l);
    const sbit_value_id gemm[2] = {l, maker_floats(&m, "fc.weight", 2, f_dims, f)};
    maker_node(&m, "Gemm", gemm, 2, y);
    maker_save(&m, y, path);
}

static void make_net(const char *path, bool large)
{
    make_named_net(path, NULL, large);
}

/* y = Conv 1x1 (3 -> 2) of x[N,3,H,8] */
static void make_wide(const char *path)
{
    maker m;
    const float w[6] = {1, 2, 3, 4, 5, 6};
    const int64_t in_dims[4] = {0, 3, -1, 8}, out_dims[4] = {0, 2, -1, 8}, w_dims[4] = {2, 3, 1, 1};
    maker_begin(&m);
    const sbit_value_id x = maker_input(&m, "x", 4, in_dims);
    const sbit_value_id conv[2] = {x, maker_floats(&m, "w", 4, w_dims, w)};
    const sbit_value_id y = maker_value(&m, "y", 4, out_dims);
    maker_node(&m, "Conv", conv, 2, y);
    maker_save(&m, y, path);
}

/* y = Range(0, n, 1) as floats: n, an integer, says how much there is to do. */
static void make_count(const char *path)
{
    maker m;
    const int64_t dims[1] = {0};
    int64_t numbers[2] = {0, 1};
    sbit_tensor number = {SBIT_I64, 0, {0}, NULL};
    sbit_value_id range[3];
    sbit_type type;
    sbit_attr to = {"to",      SBIT_ONNX_ATTR_INT,
                    0,         SBIT_F32,
                    {NULL, 0}, {SBIT_F32, 0, {0}, NULL},
                    NULL,      0,
                    NULL,      NULL,
                    NULL,      NULL,
                    NULL,      NULL};
    sbit_node_desc desc;
    sbit_node_id node;
    maker_begin(&m);
    memset(&type, 0, sizeof type);
    type.dtype = SBIT_I64;
    CHECK_OK(sbit_graph_add_value(m.graph, "n", &type, &range[1], &m.error), m.error);
    CHECK_OK(sbit_graph_set_input(m.graph, range[1], true, &m.error), m.error);
    number.data = &numbers[0];
    CHECK_OK(sbit_graph_add_constant(m.graph, "zero", &number, &range[0], &m.error), m.error);
    number.data = &numbers[1];
    CHECK_OK(sbit_graph_add_constant(m.graph, "one", &number, &range[2], &m.error), m.error);
    const sbit_value_id r = maker_value(&m, "r", 1, dims), y = maker_value(&m, "y", 1, dims);
    maker_node(&m, "Range", range, 3, r);
    memset(&desc, 0, sizeof desc);
    desc.op_type = "Cast";
    desc.inputs = &r;
    desc.outputs = &y;
    desc.input_count = desc.output_count = desc.attr_count = 1;
    desc.attrs = &to;
    CHECK_OK(sbit_graph_add_node(m.graph, &desc, &node, &m.error), m.error);
    maker_save(&m, y, path);
}

/* y = Spin of com.acme of x[N,3] times w[3,4] */
static void make_half_known(const char *path)
{
    maker m;
    const float w[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const int64_t x_dims[2] = {0, 3}, w_dims[2] = {3, 4}, y_dims[2] = {0, 4};
    sbit_node_desc desc;
    sbit_node_id node;
    maker_begin(&m);
    CHECK_OK(sbit_graph_set_opset(m.graph, "com.acme", 2, &m.error), m.error);
    const sbit_value_id x = maker_input(&m, "x", 2, x_dims);
    const sbit_value_id product[2] = {x, maker_floats(&m, "w", 2, w_dims, w)};
    const sbit_value_id p = maker_value(&m, "p", 2, y_dims), y = maker_value(&m, "y", 2, y_dims);
    maker_node(&m, "MatMul", product, 2, p);
    memset(&desc, 0, sizeof desc);
    desc.op_type = "Spin";
    desc.domain = "com.acme";
    desc.inputs = &p;
    desc.outputs = &y;
    desc.input_count = desc.output_count = 1;
    CHECK_OK(sbit_graph_add_node(m.graph, &desc, &node, &m.error), m.error);
    maker_save(&m, y, path);
}

/* x through 12 Spin of com.acme and one Turn of ai.onnx, which nobody knows. */
static void make_foreign(const char *path)
{
    maker m;
    const int64_t dims[1] = {4};
    sbit_node_desc desc;
    sbit_node_id node;
    maker_begin(&m);
    CHECK_OK(sbit_graph_set_opset(m.graph, "com.acme", 2, &m.error), m.error);
    sbit_value_id last = maker_input(&m, "x", 1, dims);
    for (int i = 0; i < 13; i++) {
        const sbit_value_id next = maker_value(&m, "v", 1, dims);
        memset(&desc, 0, sizeof desc);
        desc.op_type = i < 12 ? "Spin" : "Turn";
        desc.domain = i < 12 ? "com.acme" : "";
        desc.name = i < 12 ? "spin" : "turn";
        desc.inputs = &last;
        desc.outputs = &next;
        desc.input_count = desc.output_count = 1;
        CHECK_OK(sbit_graph_add_node(m.graph, &desc, &node, &m.error), m.error);
        last = next;
    }
    maker_save(&m, last, path);
}

/* 30 Conv 1x1 (2 -> 2), one behind the other: int8 saves 12 bytes in each. */
static void make_chain(const char *path)
{
    maker m;
    const float w[4] = {1, -1, 0.5f, 2};
    const int64_t dims[4] = {1, 2, 4, 4}, w_dims[4] = {2, 2, 1, 1};
    maker_begin(&m);
    sbit_value_id last = maker_input(&m, "x", 4, dims);
    for (int i = 0; i < 30; i++) {
        const sbit_value_id conv[2] = {last, maker_floats(&m, "w", 4, w_dims, w)};
        last = maker_value(&m, "v", 4, dims);
        maker_node(&m, "Conv", conv, 2, last);
    }
    maker_save(&m, last, path);
}

#define NET TMP "net.onnx"
#define DATA TMP "x.npy"

/* 16 samples [3,8,8] of numbers between 0 and 1, and the same times 255. */
static void make_net_files(void)
{
    static float x[16 * 192];
    sbit_rng rng = sbit_rng_seed(1);
    make_net(NET, false);
    for (int i = 0; i < 16 * 192; i++) {
        x[i] = sbit_rng_uniform(&rng);
    }
    put_npy(DATA, "<f4", "(16, 3, 8, 8)", x, sizeof x);
    for (int i = 0; i < 16 * 192; i++) {
        x[i] *= 255.0f;
    }
    put_npy(TMP "x255.npy", "<f4", "(16, 3, 8, 8)", x, sizeof x);
}

/* ---- usage */

TEST(cli_help_and_version)
{
    CHECK_EQ_I64(RUN("--version"), 0);
    CHECK_STR(cli.out, "sparsebit " SPARSEBIT_VERSION "\n");
    CHECK_EQ_I64(RUN("--help"), 0);
    CHECK_CONTAINS(cli.out, "Examples");
    CHECK_EQ_I64(RUN("%s", ""), 2);
    CHECK_CONTAINS(cli.err, "Commands");
    static const char *const commands[] = {
        "info",    "simplify", "run",   "eval",      "quantize",   "prune", "compress", "train",
        "compare", "validate", "analyze", "bench",    "graph", "operators", "strategies", "help"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        CHECK_EQ_I64(RUN("help %s", commands[i]), 0);
        CHECK_CONTAINS(cli.out, "Examples\n  sparsebit ");
        CHECK_EQ_I64(RUN("%s --help", commands[i]), 0);
    }
    CHECK_CONTAINS(cli.out, "sparsebit help NAME");
    RUN("help quantize");
    CHECK_CONTAINS(cli.out, "tensorrt"); /* the profiles come from the library's table */
}

TEST(cli_wrong_usage)
{
    make_net_files();
    CHECK_FAILS(2, "did you mean 'quantize'?", "quantise x.onnx");
    CHECK_FAILS(2, "unknown command 'zzzzzz'", "zzzzzz");
    CHECK_FAILS(2, "did you mean '--data'?", "eval %s --dat x", NET);
    CHECK_FAILS(2, "'info' has no option --data", "info %s --data x", NET);
    CHECK_FAILS(2, "the model is missing", "info");
    CHECK_FAILS(2, "the second model is missing", "compare %s --data npy:x", NET);
    CHECK_FAILS(2, "one argument too many", "info a b");
    CHECK_FAILS(2, "--data SPEC is missing: the ranges", "quantize %s -o x", NET);
    CHECK_FAILS(2, "--data SPEC is missing", "eval %s", NET);
    CHECK_FAILS(2, "-o OUT is missing", "simplify %s", NET);
    CHECK_FAILS(2, "needs a value", "eval %s --data", NET);
    CHECK_FAILS(2, "not a whole number", "eval %s --data npy:x --limit many", NET);
    CHECK_FAILS(2, "--threads 0 must be 1 to 64", "run %s --threads 0", NET);
    CHECK_FAILS(2, "did you mean 'cifar10:'?", "eval %s --data cifar:x", NET);
    CHECK_FAILS(2, "known: cifar10:FILE", "eval %s --data x.npy", NET);
    CHECK_FAILS(2, "takes no value", "info %s --json=1", NET);
    CHECK_FAILS(2, "must be one of mermaid|dot", "graph %s --format svg", NET);
    CHECK_FAILS(2, "did you mean 'avx2'", "bench %s --isa avx3", NET);
    CHECK_FAILS(2, "no such pass", "simplify %s -o %ss.onnx --skip nothing", NET, TMP);
    CHECK_CONTAINS(cli.err, "known: ");
    CHECK_FAILS(2, "did you mean 'tensorrt'",
                "quantize %s --target tensort --data npy:%s -o %sq.onnx", NET, DATA, TMP);
    CHECK_CONTAINS(cli.err, "generic");
    CHECK_FAILS(2, "height x width is wanted", "eval %s --data images:. --size 224", NET);
}

/* ---- bad files */

TEST(cli_bad_models)
{
    make_net_files();
    size_t size = 0;
    unsigned char *bytes = test_read_file(NET, &size);
    CHECK_FAILS(1, "No such file", "info %smissing.onnx", TMP);
    CHECK_FAILS(1, "is a folder", "info '%s'", SBIT_TEST_TMP);
    for (size_t cut = 0; cut < size && bytes != NULL; cut += size / 5 + 1) {
        put_file(TMP "cut.onnx", bytes, cut);
        CHECK_FAILS(1, "cut.onnx", "info %scut.onnx", TMP);
    }
    free(bytes);
    put_file(TMP "text.onnx", "this is no model", 16);
    CHECK_FAILS(1, "text.onnx", "run %stext.onnx", TMP);
}

TEST(cli_unwritable_output)
{
    make_net_files();
    CHECK_FAILS(1, "there is no folder", "simplify %s -o %snowhere/x.onnx", NET, TMP);
    CHECK_FAILS(1, "is a folder", "simplify %s -o '%s'", NET, SBIT_TEST_TMP);
    CHECK_FAILS(1, "there is no folder", "quantize %s --data npy:%s -o %snowhere/x.onnx", NET, DATA,
                TMP);
    CHECK_FAILS(1, "cannot be made", "run %s -o %snowhere/x", NET, TMP);
    if (test_file_exists("/dev/full")) {
        char command[600];
        snprintf(command, sizeof command, "'%s' info %s >/dev/full 2>%serr", test_tool(), NET, TMP);
        CHECK_EQ_I64(WEXITSTATUS(system(command)), 1);
        snprintf(command, sizeof command, "'%s' info %s --json >/dev/full 2>%serr", test_tool(),
                 NET, TMP);
        CHECK_EQ_I64(WEXITSTATUS(system(command)), 1);
    }
}

/* A file that may not grow beyond 512 or 1024 bytes stands for a full disk. */
TEST(cli_full_disk_leaves_nothing)
{
    make_net_files();
    make_net(TMP "large.onnx", true);
    remove(TMP "out.onnx");
    remove(TMP "dir/logits.npy");
    CHECK_EQ_I64(
        cli_run_in("trap '' XFSZ; ulimit -f 1;", "simplify %slarge.onnx -o %sout.onnx", TMP, TMP),
        1);
    CHECK(!test_file_exists(TMP "out.onnx"));
    CHECK(!test_file_exists(TMP "out.onnx.sbit-tmp"));
    CHECK_EQ_I64(cli_run_in("trap '' XFSZ; ulimit -f 1;",
                            "quantize %slarge.onnx --data npy:%s -o %sout.onnx", TMP, DATA, TMP),
                 1);
    CHECK(!test_file_exists(TMP "out.onnx"));
    CHECK_EQ_I64(
        cli_run_in("trap '' XFSZ; ulimit -f 1;", "run %s --shape x=99x3x8x8 -o %sdir", NET, TMP),
        1);
    CHECK(!test_file_exists(TMP "dir/logits.npy"));
    CHECK(!test_file_exists(TMP "dir/logits.npy.sbit-tmp"));
}

TEST(cli_out_of_memory_is_an_error)
{
    if (test_sanitized()) {
        return; /* sanitizers take more address space than there would be */
    }
    make_net_files();
    CHECK_EQ_I64(cli_run_in("ulimit -v 150000;", "run %s --shape x=150000x3x8x8 --threads 1", NET),
                 1);
    CHECK_CONTAINS(cli.err, "memory");
}

TEST(cli_bad_data)
{
    static float x[10 * 192];
    static double wide[2 * 192];
    make_net_files();
    mkdir(TMP "empty", 0777);
    remove(TMP "q.onnx");
    const char *q = "-o " TMP "q.onnx";
    CHECK_FAILS(1, "empty' has no pictures (PPM", "quantize %s --data images:%sempty %s", NET, TMP,
                q);
    CHECK_CONTAINS(cli.err, "calibration set is empty");
    CHECK_FAILS(1, "calibration set is empty: 0 folders matched 'test_data_set_*'",
                "quantize %s --data pb:%sempty %s", NET, TMP, q);
    CHECK_FAILS(2, "calibration set is empty", "quantize %s --data npy:%s --calib 0 %s", NET, DATA,
                q);
    CHECK_FAILS(2, "calibration set is empty", "quantize %s --data npy:%s --calib -3 %s", NET, DATA,
                q);
    CHECK_FAILS(1, "No such file", "quantize %s --data npy:%smissing.npy %s", NET, TMP, q);
    put_npy(TMP "none.npy", "<f4", "(0, 3, 8, 8)", x, 0);
    CHECK_FAILS(1, "calibration set is empty", "quantize %s --data npy:%snone.npy %s", NET, TMP, q);
    put_npy(TMP "bad.npy", "<f4", "(2, 2, 8, 8)", x, 2 * 128 * 4);
    CHECK_FAILS(1, "float32[1,2,8,8], the model wants float32[?,3,8,8]: a fixed dim differs",
                "quantize %s --data npy:%sbad.npy %s", NET, TMP, q);
    put_npy(TMP "bad.npy", "<f4", "(3, 8, 8)", x, 192 * 4);
    CHECK_FAILS(1, "save x[np.newaxis]", "quantize %s --data npy:%sbad.npy %s", NET, TMP, q);
    put_npy(TMP "bad.npy", "<f8", "(2, 3, 8, 8)", wide, sizeof wide);
    CHECK_FAILS(1, "x.astype('float32')", "quantize %s --data npy:%sbad.npy %s", NET, TMP, q);
    put_npy(TMP "bad.npy", "|i1", "(2, 3, 8, 8)", wide, 2 * 192);
    CHECK_FAILS(1, "holds int8, input 'x' is float32", "quantize %s --data npy:%sbad.npy %s", NET,
                TMP, q);
    put_npy(TMP "bad.npy", "<f4", "(10, 3, 8, 8)", x, 2 * 192 * 4);
    CHECK_FAILS(1, "is cut short", "quantize %s --data npy:%sbad.npy %s", NET, TMP, q);
    put_npy(TMP "bad.npy", ">f4", "(2, 3, 8, 8)", x, 2 * 192 * 4);
    CHECK_FAILS(1, "the other byte order", "quantize %s --data npy:%sbad.npy %s", NET, TMP, q);
    put_npy(TMP "bad.npy", "<U8", "(2,)", x, 64);
    CHECK_FAILS(1, "np.float32", "quantize %s --data npy:%sbad.npy %s", NET, TMP, q);
    x[7 * 192 + 5] = (float)NAN;
    put_npy(TMP "bad.npy", "<f4", "(10, 3, 8, 8)", x, sizeof x);
    CHECK_FAILS(1, "tensor 'x' has values that are not finite (NaN or infinity) (sample 7)",
                "quantize %s --data npy:%sbad.npy --batch 4 %s", NET, TMP, q);
    CHECK_FAILS(1, "(sample 7)", "quantize %s --data npy:%sbad.npy --shuffle %s", NET, TMP, q);
    put_file(TMP "bad.npy", "hello", 5);
    CHECK_FAILS(1, "is no .npy array", "quantize %s --data npy:%sbad.npy %s", NET, TMP, q);
    CHECK_FAILS(1, "is no .npz archive", "quantize %s --data npz:%sbad.npy %s", NET, TMP, q);
    CHECK_FAILS(1, "has no labels", "eval %s --data npy:%s", NET, DATA);
    CHECK_FAILS(2, "--mean has 2 numbers, the data has 3 channels",
                "quantize %s --data npy:%s --mean 1,2 %s", NET, DATA, q);
    CHECK_FAILS(2, "--std must not be 0", "quantize %s --data npy:%s --std 0 %s", NET, DATA, q);
    CHECK(!test_file_exists(TMP "q.onnx"));
}

/* ---- configuration */

TEST(cli_configuration)
{
    make_net_files();
    const char *yaml = "PLACEMENT: generic\n"
                       "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
                       "A: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 8}}\n";
    put_file(TMP "q.yaml", yaml, strlen(yaml));
    CHECK_EQ_I64(RUN("quantize %s -c %sq.yaml --target tensorrt --set W.QUANTIZER.BIT=4 "
                     "--data npy:%s -o %sq.onnx --json",
                     NET, TMP, DATA, TMP),
                 0);
    CHECK(json_is_one_object(cli.out));
    CHECK_CONTAINS(cli.out, "\"target\": \"tensorrt\""); /* the flag wins */
    CHECK_CONTAINS(cli.out, "\"target\": \"weight\", \"bits\": 4");
    CHECK_CONTAINS(cli.out, "\"target\": \"activation\", \"bits\": 8");
    CHECK_FAILS(1, "BIT",
                "quantize %s -c %sq.yaml --set W.QUANTIZER.BIT=77 --data npy:%s -o %sz.onnx", NET,
                TMP, DATA, TMP);
    CHECK_FAILS(1, "--set W.QUANTIZER.BITS=4",
                "quantize %s --set W.QUANTIZER.BITS=4 --data npy:%s -o %sz.onnx", NET, DATA, TMP);
    CHECK_FAILS(2, "KEY=VALUE is wanted", "quantize %s --set W --data npy:%s -o %sz.onnx", NET,
                DATA, TMP);
    put_file(TMP "bad.yaml", "W:\n  QSCHEME: nonsense\n", 23);
    CHECK_FAILS(1, "2:", "quantize %s -c %sbad.yaml --data npy:%s -o %sz.onnx", NET, TMP, DATA,
                TMP);
    CHECK_FAILS(1, "missing.yaml", "quantize %s -c %smissing.yaml --data npy:%s -o %sz.onnx", NET,
                TMP, DATA, TMP);
    CHECK(!test_file_exists(TMP "z.onnx"));
}

/* ---- results */

TEST(cli_eval_counts)
{
    /* ranks of the labels by hand: sample 0: label 5 is largest (rank 0); 1: label 0 second;
     * 2: label 5 last of six (not in the top five); 3: equal logits, label 1 after label 0 */
    const float x[4 * 6] = {0, 1, 2, 3, 4, 9, 5, 7, 0, 1, 2, 3, 6, 5, 4, 3, 2, 1, 4, 4, 0, 0, 0, 0};
    const int64_t labels[4] = {5, 0, 5, 1};
    make_scale(TMP "scale.onnx", 2.0f, 0);
    make_scale(TMP "scale3.onnx", 2.0f, 3); /* a fixed batch that does not divide 4 */
    put_npy(TMP "e.npy", "<f4", "(4, 6)", x, sizeof x);
    put_npy(TMP "el.npy", "<i8", "(4,)", labels, sizeof labels);
    static const char *const models[] = {"scale.onnx", "scale3.onnx"};
    for (size_t i = 0; i < 2; i++) {
        CHECK_EQ_I64(
            RUN("eval %s%s --data npy:%se.npy,labels=%sel.npy --json", TMP, models[i], TMP, TMP),
            0);
        CHECK(json_is_one_object(cli.out));
        CHECK_EQ_I64(json_number("", "samples"), 4);
        CHECK_NEAR(json_number("", "top1"), 0.25, 1e-9);
        CHECK_NEAR(json_number("", "top5"), 0.75, 1e-9);
        CHECK(json_number("", "ms_per_sample") > 0.0);
        CHECK(json_number("", "threads") >= 1.0);
        CHECK_CONTAINS(cli.out, "\"model\": ");
    }
    CHECK_EQ_I64(
        RUN("eval %sscale.onnx --data npy:%se.npy,labels=%sel.npy --limit 1 --json", TMP, TMP, TMP),
        0);
    CHECK_NEAR(json_number("", "top1"), 1.0, 0);
    CHECK_EQ_I64(RUN("eval %sscale.onnx --data npy:%se.npy,labels=%sel.npy", TMP, TMP, TMP), 0);
    CHECK_CONTAINS(cli.out, "25.00 %");
    put_file(TMP "el.txt", "5\n0\n5\n1\n", 8);
    CHECK_EQ_I64(
        RUN("eval %sscale.onnx --data npy:%se.npy,labels=%sel.txt --batch 3 --json", TMP, TMP, TMP),
        0);
    CHECK_NEAR(json_number("", "top1"), 0.25, 1e-9);
    put_file(TMP "el.txt", "5\n0\n9\n1\n", 8);
    CHECK_FAILS(1, "the labels reach to 9, but output 'logits'",
                "eval %sscale.onnx --data npy:%se.npy,labels=%sel.txt", TMP, TMP, TMP);
    put_file(TMP "el.txt", "5\n0\n", 4);
    CHECK_FAILS(1, "no label for sample 2", "eval %sscale.onnx --data npy:%se.npy,labels=%sel.txt",
                TMP, TMP, TMP);
    put_file(TMP "el.txt", "5\nnought\n", 9);
    CHECK_FAILS(1, "line 2", "eval %sscale.onnx --data npy:%se.npy,labels=%sel.txt", TMP, TMP, TMP);
    CHECK_FAILS(1, "there are: logits",
                "eval %sscale.onnx --data npy:%se.npy,labels=%sel.npy --output nothing", TMP, TMP,
                TMP);
    CHECK_FAILS(1, "fixed batch of 3",
                "eval %sscale3.onnx --data npy:%se.npy,labels=%sel.npy --batch 2", TMP, TMP, TMP);
}

/* Shuffled and cut in two, every sample is counted once. */
TEST(cli_eval_what_calibration_left)
{
    const float x[5 * 6] = {9, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 9, 0, 0,
                            0, 0, 0, 9, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0};
    const int64_t labels[5] = {0, 1, 1, 1, 1}; /* two of five are right */
    make_scale(TMP "scale.onnx", 2.0f, 0);
    put_npy(TMP "f.npy", "<f4", "(5, 6)", x, sizeof x);
    put_npy(TMP "fl.npy", "<i8", "(5,)", labels, sizeof labels);
    bool moved = false;
    for (int seed = 0; seed < 6; seed++) {
        double right[2];
        for (int i = 0; i < 2; i++) {
            CHECK_EQ_I64(RUN("eval %sscale.onnx --data npy:%sf.npy,labels=%sfl.npy --shuffle "
                             "--seed %d %s --json",
                             TMP, TMP, TMP, seed, i == 0 ? "--limit 2" : "--from 2"),
                         0);
            CHECK_EQ_I64(json_number("", "samples"), i == 0 ? 2 : 3);
            right[i] = json_number("", "top1") * (i == 0 ? 2.0 : 3.0);
        }
        CHECK_NEAR(right[0] + right[1], 2.0, 1e-9);
        moved = moved || right[0] < 1.5; /* in file order the first two are right */
    }
    CHECK(moved);
    CHECK_EQ_I64(RUN("eval %sscale.onnx --data npy:%sf.npy,labels=%sfl.npy --from 1 --limit 1 "
                     "--json",
                     TMP, TMP, TMP),
                 0);
    CHECK_NEAR(json_number("", "top1"), 1.0, 0);
    CHECK_EQ_I64(RUN("compare %sscale.onnx %sscale.onnx --data npy:%sf.npy --shuffle --seed 1 "
                     "--from 3 --json",
                     TMP, TMP, TMP),
                 0);
    CHECK_EQ_I64(json_number("", "samples"), 2);
    CHECK_FAILS(1, "--from 5 leaves none",
                "eval %sscale.onnx --data npy:%sf.npy,labels=%sfl.npy --from 5", TMP, TMP, TMP);
}

TEST(cli_validate_says_what_is_proved)
{
    make_net_files();
    CHECK_EQ_I64(RUN("quantize %s --data npy:%s -o %sq.onnx", NET, DATA, TMP), 0);
    CHECK_EQ_I64(RUN("validate %s %sq.onnx --data npy:%s --agreement 50", NET, TMP, DATA), 0);
    CHECK_CONTAINS(cli.out, "proved      int32 sums");
    CHECK_CONTAINS(cli.out, "proved      weights");
    CHECK_CONTAINS(cli.out, "verdict: passed");
    CHECK_EQ_I64(
        RUN("validate %s %sq.onnx --data npy:%s --agreement 50 --strict --json", NET, TMP, DATA),
        0);
    CHECK(json_is_one_object(cli.out));
    CHECK_CONTAINS(cli.out, "\"passed\": true");
    CHECK(json_number("", "nearest") > 0.0);
    CHECK_NEAR(json_number("", "nearest"), json_number("", "weight_elements"), 0);
    CHECK(json_number("", "top1_agreement") >= 0.5);
    CHECK(json_number("\"quantized\"", "bytes") > 0.0);
    /* another network's file: neither its weights nor its predictions */
    make_net(TMP "other.onnx", true);
    CHECK_EQ_I64(
        RUN("quantize %s --set W.QUANTIZER.BIT=2 --data npy:%s -o %sq2.onnx", NET, DATA, TMP), 0);
    CHECK_EQ_I64(RUN("validate %s %sq2.onnx --data npy:%s --agreement 0", NET, TMP, DATA), 0);
    CHECK_CONTAINS(cli.out, "100.00 % to the nearest");
    CHECK_EQ_I64(RUN("validate %sother.onnx %sq2.onnx --data npy:%s --agreement 0", TMP, TMP, DATA),
                 1);
    CHECK_CONTAINS(cli.out, "NOT proved  weights");
    CHECK_CONTAINS(cli.out, "1 weight is not found");
    CHECK_CONTAINS(cli.out, "TOO LOW     outputs differ in shape");
    CHECK_CONTAINS(cli.out, "verdict: FAILED");
    CHECK_CONTAINS(cli.err, "failed validation");
    CHECK_FAILS(1, "no quantized layers", "validate %s %s --data npy:%s", NET, NET, DATA);
    CHECK_FAILS(2, "at least 0 and up to 100", "validate %s %sq.onnx --data npy:%s --agreement 101", NET, TMP,
                DATA);
}

TEST(cli_analyze_ranks_layers)
{
    make_net_files();
    CHECK_EQ_I64(RUN("analyze %s --data npy:%s --set W.QUANTIZER.BIT=3 --json", NET, DATA), 0);
    CHECK(json_is_one_object(cli.out));
    CHECK_EQ_I64(json_number("", "samples"), 16);
    CHECK_CONTAINS(cli.out, "\"layer\": \"conv\"");
    CHECK(json_number("\"layers\"", "noise") > 0.0);
    CHECK(json_number("\"layers\"", "accumulated_mse") > 0.0);
    CHECK_EQ_I64(RUN("analyze %s --sparsity --data npy:%s --json", NET, DATA), 0);
    CHECK(strstr(cli.out, "\"ratio\": 0.9") != NULL || strstr(cli.out, "\"ratio\":0.9") != NULL);
    CHECK_EQ_I64(RUN("analyze %s --sparsity --data npy:%s --set SPARSER.STRATEGY=l2norm", NET, DATA), 0);
    CHECK(strstr(cli.out, "pruned alone") != NULL);
    CHECK_EQ_I64(RUN("analyze %s --data npy:%s --from 12", NET, DATA), 0);
    CHECK_CONTAINS(cli.out, "4 samples");
}

TEST(cli_quantize_searches)
{
    make_net_files();
    CHECK_EQ_I64(RUN("quantize %s --data npy:%s -o %sq.onnx --auto-exclude --max-drop 1 --json", NET,
                     DATA, TMP),
                 0);
    CHECK_EQ_I64(RUN("quantize %s --data npy:%s -o %sq.onnx --percent 50 --to 12 --json", NET, DATA,
                     TMP),
                 0);
    CHECK_CONTAINS(cli.out, "12");
    CHECK_EQ_I64(RUN("quantize %s --data npy:%s -o %sq.onnx --mixed-precision --size-budget 0.5x",
                     NET, DATA, TMP),
                 0);
    CHECK_EQ_I64(RUN("quantize %s --data npy:%s -o %sq.onnx --mixed-precision --bops-budget 0.7x",
                     NET, DATA, TMP),
                 0);
    CHECK_FAILS(1, "cannot be kept",
                "quantize %s --data npy:%s -o %sq.onnx --mixed-precision --size-budget 0.1x", NET,
                DATA, TMP);
    CHECK_FAILS(2, "--size-budget or --bops-budget",
                "quantize %s --data npy:%s -o %sq.onnx --mixed-precision", NET, DATA, TMP);
    CHECK_FAILS(2, "300KB", "quantize %s --data npy:%s -o %sq.onnx --mixed-precision --size-budget 2x",
                NET, DATA, TMP);
    CHECK_FAILS(2, "--to goes with", "quantize %s --data npy:%s -o %sq.onnx --to 8", NET, DATA, TMP);
}

TEST(cli_lint_says_why)
{
    make_net_files();
    CHECK_EQ_I64(RUN("lint %s --target tensorrt --json", NET), 0);
    CHECK(json_is_one_object(cli.out));
    CHECK_CONTAINS(cli.out, "\"target\": \"tensorrt\"");
    CHECK_CONTAINS(cli.out, "\"op_type\": \"Conv\", \"quantized\": true");
    CHECK_EQ_I64(RUN("lint %s --target openvino --set SKIP_TRACE_MODULES=[conv]", NET), 0);
    CHECK_CONTAINS(cli.out, "named in SKIP_TRACE_MODULES");
    CHECK_FAILS(2, "did you mean 'openvino'", "lint %s --target openvin", NET);
}

TEST(cli_quantize_tries_recipes)
{
    make_net_files();
    put_file(TMP "l.txt", "0\n1\n2\n3\n4\n0\n1\n2\n3\n4\n0\n1\n2\n3\n4\n0\n", 32);
    CHECK_EQ_I64(RUN("quantize %s --data npy:%s --eval npy:%s,labels=%sl.txt --max-drop 100 -o "
                     "%sq.onnx --json",
                     NET, DATA, DATA, TMP, TMP),
                 0);
    CHECK(json_is_one_object(cli.out));
    CHECK_CONTAINS(cli.out, "\"recipes\": [{\"recipe\": \"as configured\"");
    CHECK(strstr(cli.out, "mse ranges") == NULL); /* the first is good enough */
    CHECK_EQ_I64(RUN("quantize %s --data npy:%s --eval npy:%s,labels=%sl.txt --max-drop 100 "
                     "--prefer bytes -o %sq.onnx --json",
                     NET, DATA, DATA, TMP, TMP),
                 0);
    CHECK_CONTAINS(cli.out, "\"recipes\": [{\"recipe\": \"4-bit weights");
    CHECK_CONTAINS(cli.out, "auto_exclude");
    CHECK_CONTAINS(cli.out, "\"bits\": 4");
    CHECK(strstr(cli.out, "smooth_quant") == NULL); /* there is no LayerNormalization */
    CHECK_EQ_I64(RUN("quantize %s --data npy:%s --eval npy:%s,labels=%sl.txt --max-drop 0 "
                     "--prefer time --time-budget 1 -o %sq.onnx --json",
                     NET, DATA, DATA, TMP, TMP),
                 0);
    CHECK_CONTAINS(cli.out, "{\"recipe\": \"as configured\"");
    CHECK_EQ_I64(RUN("compare %s %sq.onnx --data npy:%s", NET, TMP, DATA), 0);
    CHECK_FAILS(2, "with --auto-exclude, or with", "quantize %s --data npy:%s --max-drop 1 -o %sq.onnx",
                NET, DATA, TMP);
    CHECK_FAILS(2, "go with --eval", "quantize %s --data npy:%s --prefer time -o %sq.onnx", NET, DATA,
                TMP);
}

TEST(cli_pictures)
{
    mkdir(TMP "pics", 0777);
    put_ppm(TMP "pics/a.ppm", 8, 8, 200, 10, 10);
    put_ppm(TMP "pics/b.ppm", 8, 8, 10, 200, 10);
    put_ppm(TMP "pics/c.ppm", 8, 8, 10, 10, 200);
    const char *labels = "a.ppm, 0, red\nb.ppm,1\nc.ppm 2 blue\n";
    put_file(TMP "pics.txt", labels, strlen(labels));
    make_colours(TMP "colours.onnx", 0, 3, 8);
    make_colours(TMP "colours4.onnx", 0, 3, 4);
    make_colours(TMP "grey.onnx", 0, 1, 8);
    CHECK_EQ_I64(
        RUN("eval %scolours.onnx --data images:%spics,labels=%spics.txt --json", TMP, TMP, TMP), 0);
    CHECK_NEAR(json_number("", "top1"), 1.0, 0);
    /* the mean is taken away per channel: 200/255 - 0.9 < 10/255 - 0 for red only */
    CHECK_EQ_I64(RUN("eval %scolours.onnx --data images:%spics,labels=%spics.txt --mean 0.9,0,0 "
                     "--json",
                     TMP, TMP, TMP),
                 0);
    CHECK_NEAR(json_number("", "top1"), 2.0 / 3.0, 1e-8);
    CHECK_EQ_I64(
        RUN("eval %scolours4.onnx --data images:%spics,labels=%spics.txt --json", TMP, TMP, TMP),
        0);
    CHECK_NEAR(json_number("", "top1"), 1.0, 0);
    CHECK_CONTAINS(cli.err, "resized to 4x4");
    CHECK_FAILS(1, "the pictures have 3 channels, input 'picture' has 1",
                "eval %sgrey.onnx --data images:%spics,labels=%spics.txt", TMP, TMP, TMP);
    CHECK_FAILS(1, "--size 9x9 does not fit",
                "eval %scolours.onnx --data images:%spics,labels=%spics.txt --size 9x9", TMP, TMP,
                TMP);
    put_file(TMP "pics.txt", labels, 14);
    CHECK_FAILS(1, "say nothing about 'b.ppm'",
                "eval %scolours.onnx --data images:%spics,labels=%spics.txt", TMP, TMP, TMP);
    make_net_files();
    CHECK_EQ_I64(
        RUN("quantize %s --data images:%spics --std 0.5 -o %sq.onnx --json", NET, TMP, TMP), 0);
    CHECK_NEAR(json_number("\"inputs\"", "min"), 10.0 / 255.0 / 0.5, 1e-6);
    CHECK_NEAR(json_number("\"inputs\"", "mean"), 220.0 / 3.0 / 255.0 / 0.5, 1e-6);
    CHECK_NEAR(json_number("\"inputs\"", "max"), 200.0 / 255.0 / 0.5, 1e-6);
    CHECK_CONTAINS(cli.out, "\"preprocess\": \"scale=0.00392156863 mean=0 std=0.5 layout=NCHW\"");
    mkdir(TMP "badpics", 0777);
    put_file(TMP "badpics/a.ppm", "P6\n8 8\n255\nshort", 16);
    CHECK_FAILS(1, "has no labels", "eval %scolours.onnx --data images:%sbadpics", TMP, TMP);
    put_file(TMP "pics.txt", "a.ppm 0\n", 8);
    CHECK_FAILS(1, "is cut short", "eval %scolours.onnx --data images:%sbadpics,labels=%spics.txt",
                TMP, TMP, TMP);
}

/* A build without stb_image says so, and what to install. */
TEST(cli_pictures_without_stb)
{
    if (getenv("SPARSEBIT_CLI") != NULL) {
        return;
    }
    static const char advice[] = "install stb_image.h (Debian, Ubuntu: libstb-dev)";
    mkdir(TMP "jpegs", 0777);
    put_file(TMP "jpegs/a.JPG", "x", 1);
    put_file(TMP "jpegs/b.png", "x", 1);
    make_colours(TMP "colours.onnx", 0, 3, 8);
    setenv("SPARSEBIT_CLI", SBIT_TEST_CLI "-plain", 1);
    CHECK_FAILS(1, advice, "quantize %scolours.onnx --data images:%sjpegs -o %sq.onnx", TMP, TMP,
                TMP);
    CHECK_CONTAINS(cli.err, "has 2 PNG and JPEG files, but this build reads PPM and PGM only");
    CHECK_EQ_I64(RUN("help quantize"), 0);
    CHECK_CONTAINS(cli.out, "pictures (PPM and PGM)");
    unsetenv("SPARSEBIT_CLI");
    CHECK_EQ_I64(RUN("help quantize"), 0);
    if (strstr(cli.out, "pictures (PPM, PGM, PNG and JPEG)") == NULL) {
        CHECK_CONTAINS(cli.out, "pictures (PPM and PGM)");
    } else {
        CHECK_FAILS(1, "cannot be read",
                    "quantize %scolours.onnx --data images:%sjpegs -o %sq.onnx", TMP, TMP, TMP);
    }
}

TEST(cli_cifar)
{
    static unsigned char records[3 * 3073];
    make_colours(TMP "colours32.onnx", 0, 3, 32);
    make_colours(TMP "colours16.onnx", 0, 3, 16);
    for (int i = 0; i < 3; i++) { /* the plane of colour i is bright; the last label is wrong */
        records[i * 3073] = (unsigned char)(i == 2 ? 0 : i);
        memset(records + i * 3073 + 1 + i * 1024, 100, 1024);
    }
    put_file(TMP "c.bin", records, sizeof records);
    CHECK_EQ_I64(RUN("eval %scolours32.onnx --data cifar10:%sc.bin --json", TMP, TMP), 0);
    CHECK_NEAR(json_number("", "top1"), 2.0 / 3.0, 1e-8);
    CHECK_EQ_I64(RUN("eval %scolours16.onnx --data cifar10:%sc.bin --size 16x16 --json", TMP, TMP),
                 0);
    CHECK_NEAR(json_number("", "top1"), 2.0 / 3.0, 1e-8);
    CHECK_FAILS(1, "--size 16x16 resizes them", "eval %scolours16.onnx --data cifar10:%sc.bin", TMP,
                TMP);
    put_file(TMP "c.bin", records, sizeof records - 1);
    CHECK_FAILS(1, "not a multiple of 3073", "eval %scolours32.onnx --data cifar10:%sc.bin", TMP,
                TMP);
    put_file(TMP "c.bin", records, 0);
    CHECK_FAILS(1, "is empty", "eval %scolours32.onnx --data cifar10:%sc.bin", TMP, TMP);
    records[0] = 7;
    put_file(TMP "c.bin", records, sizeof records);
    CHECK_FAILS(1, "the labels reach to 7", "eval %scolours32.onnx --data cifar10:%sc.bin", TMP,
                TMP);
}

TEST(cli_compare_numbers)
{
    const float x[2 * 6] = {1, -2, 3, -4, 5, 10, -1, 2, -3, 4, 20, -5};
    make_scale(TMP "one.onnx", 1.0f, 0);
    make_scale(TMP "other.onnx", 1.01f, 0);
    make_scale(TMP "minus.onnx", -1.0f, 0);
    put_npy(TMP "e.npy", "<f4", "(2, 6)", x, sizeof x);
    CHECK_EQ_I64(RUN("compare %sone.onnx %sother.onnx --data npy:%se.npy --json", TMP, TMP, TMP),
                 0);
    CHECK(json_is_one_object(cli.out));
    CHECK_EQ_I64(json_number("", "samples"), 2);
    CHECK_NEAR(json_number("outputs", "sqnr_db"), 40.0, 0.01);
    CHECK_NEAR(json_number("outputs", "cosine"), 1.0, 1e-7);
    CHECK_NEAR(json_number("outputs", "max_abs"), 0.2, 1e-5);
    CHECK_NEAR(json_number("outputs", "relative_error"), 0.01, 1e-6);
    CHECK_NEAR(json_number("", "top1_agreement"), 1.0, 0);
    CHECK_CONTAINS(cli.out, "\"tensors\": [{\"name\": \"inner\"");
    CHECK_NEAR(json_number("tensors", "relative_error"), 0.01, 1e-6);
    CHECK_EQ_I64(RUN("compare %sone.onnx %sminus.onnx --data npy:%se.npy --json", TMP, TMP, TMP),
                 0);
    CHECK_NEAR(json_number("outputs", "cosine"), -1.0, 1e-7);
    CHECK_NEAR(json_number("", "top1_agreement"), 0.0, 0);
    CHECK_EQ_I64(RUN("compare %sone.onnx %sone.onnx --data npy:%se.npy", TMP, TMP, TMP), 0);
    CHECK_CONTAINS(cli.out, "equal");
    CHECK_CONTAINS(cli.out, "top-1 agreement 100.00 % (2 of 2 samples)");
    make_net_files();
    CHECK_FAILS(1, "cannot be fed like", "compare %sone.onnx %s --data npy:%se.npy", TMP, NET, TMP);
}

TEST(cli_run_writes_npy)
{
    const float x[6] = {1, -2, 3, -4, 5, 10};
    make_scale(TMP "scale.onnx", 2.0f, 0);
    put_npy(TMP "r.npy", "<f4", "(1, 6)", x, sizeof x);
    remove(TMP "dir/logits.npy");
    CHECK_EQ_I64(RUN("run %sscale.onnx --input x=%sr.npy -o %sdir --json", TMP, TMP, TMP), 0);
    CHECK(json_is_one_object(cli.out));
    CHECK_CONTAINS(cli.out, "\"first\": [2, -4, 6, -8, 10, 20]");
    CHECK_NEAR(json_number("outputs", "mean"), 26.0 / 6.0, 1e-6);
    size_t size = 0;
    unsigned char *bytes = test_read_file(TMP "dir/logits.npy", &size);
    if (CHECK(bytes != NULL && size > 24)) {
        const float y[6] = {2, -4, 6, -8, 10, 20};
        CHECK_MEM(bytes, "\x93NUMPY\x01", 7);
        CHECK_CONTAINS((const char *)bytes + 10,
                       "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 6), }");
        CHECK_MEM(bytes + size - sizeof y, y, sizeof y);
        CHECK_EQ_I64((size - sizeof y) % 64, 0);
    }
    free(bytes);
    CHECK_EQ_I64(RUN("run %sscale.onnx --input %sr.npy", TMP, TMP), 0);
    CHECK_CONTAINS(cli.out, "float32[1,6]");
    /* random inputs are the same every time */
    CHECK_EQ_I64(RUN("run %sscale.onnx --shape x=3x6 --json", TMP), 0);
    CHECK_CONTAINS(cli.out, "\"shape\": [3, 6]");
    const double mean = json_number("outputs", "mean");
    CHECK_EQ_I64(RUN("run %sscale.onnx --shape 3x6 --json", TMP), 0);
    CHECK_NEAR(json_number("outputs", "mean"), mean, 0);
    CHECK_FAILS(1, "its inputs are: x", "run %sscale.onnx --input y=%sr.npy", TMP, TMP);
    CHECK_FAILS(1, "a fixed dim differs", "run %sscale.onnx --shape x=3x7", TMP);
    CHECK_FAILS(1, "dims are wanted", "run %sscale.onnx --shape x=3xsix", TMP);
    CHECK_FAILS(1, "must be .npy", "run %sscale.onnx --input x=%sr.txt", TMP, TMP);
    put_npy(TMP "r.npy", "<f4", "(6,)", x, sizeof x);
    CHECK_FAILS(1, "the numbers of dims differ", "run %sscale.onnx --input x=%sr.npy", TMP, TMP);
}

/* test_data_set_0 with y = 2x, and test_data_set_1 with a wrong y. */
static void put_pb(const char *path, sbit_ctx *ctx, const float *values)
{
    sbit_error error;
    sbit_tensor tensor;
    const int64_t dims[2] = {1, 6};
    memset(&error, 0, sizeof error);
    CHECK_OK(sbit_tensor_alloc(ctx, SBIT_F32, 2, dims, &tensor, &error), error);
    memcpy(tensor.data, values, 24);
    CHECK_OK(sbit_tensor_save_pb(ctx, path, "t", &tensor, &error), error);
    sbit_tensor_free(ctx, &tensor);
}

TEST(cli_stored_outputs)
{
    const float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {2, 4, 6, 8, 10, 12},
                z[6] = {2, 4, 6, 8, 10, 12.1f};
    sbit_ctx *ctx = test_ctx();
    make_scale(TMP "scale.onnx", 2.0f, 0);
    mkdir(TMP "sets", 0777);
    mkdir(TMP "sets/test_data_set_0", 0777);
    put_pb(TMP "sets/test_data_set_0/input_0.pb", ctx, x);
    put_pb(TMP "sets/test_data_set_0/output_0.pb", ctx, y);
    mkdir(TMP "sets/test_data_set_1", 0777);
    put_pb(TMP "sets/test_data_set_1/input_0.pb", ctx, x);
    put_pb(TMP "sets/test_data_set_1/output_0.pb", ctx, z);
    sbit_ctx_destroy(ctx);
    CHECK_EQ_I64(RUN("eval %sscale.onnx --data pb:%ssets --limit 1", TMP, TMP), 0);
    CHECK_CONTAINS(cli.out, "1 of 1 sets");
    CHECK_EQ_I64(RUN("eval %sscale.onnx --data pb:%ssets/test_data_set_0 --json", TMP, TMP), 0);
    CHECK_EQ_I64(json_number("", "matched"), 1);
    CHECK_EQ_I64(RUN("eval %sscale.onnx --data pb:%ssets --json", TMP, TMP),
                 1); /* a failed check */
    CHECK(json_is_one_object(cli.out));
    CHECK_EQ_I64(json_number("", "matched"), 1);
    CHECK_NEAR(json_number("", "max_relative_error"), 0.1 / 12.1, 1e-6);
    put_file(TMP "sets/test_data_set_1/input_0.pb", "\xff\xff", 2);
    CHECK_FAILS(1, "test_data_set_1/input_0.pb", "eval %sscale.onnx --data pb:%ssets", TMP, TMP);
}

TEST(cli_quantize_and_after)
{
    make_net_files();
    CHECK_EQ_I64(RUN("quantize %s --data npy:%s --calib 1000 -o %sq.onnx --json --threads 1", NET,
                     DATA, TMP),
                 0);
    CHECK(json_is_one_object(cli.out));
    CHECK_CONTAINS(cli.err, "all 16 samples are used (1000 were asked for)");
    CHECK_CONTAINS(cli.err, "configuration (no -c was given)");
    CHECK_CONTAINS(cli.err, "PLACEMENT");
    CHECK_EQ_I64(json_number("", "calibration_samples"), 16);
    /* 4 x 3 x 3 x 3 weights, 4 biases, 4 x 5 weights; 36 positions x 108 + 20 MACs */
    CHECK_EQ_I64(json_number("before", "params"), 132);
    CHECK_EQ_I64(json_number("before", "macs"), 36 * 108 + 20);
    CHECK_EQ_I64(json_number("after", "macs"), 36 * 108 + 20);
    CHECK(json_number("before", "bytes") > 0 && json_number("after", "bytes") > 0);
    CHECK(json_number("before", "peak_bytes") > 0 && json_number("after", "peak_bytes") > 0);
    CHECK_EQ_I64(json_number("\"quantized\"", "Conv"), 1);
    CHECK_EQ_I64(json_number("\"quantized\"", "Gemm"), 1);
    CHECK_CONTAINS(cli.out,
                   "\"name\": \"conv\", \"tensor\": \"conv.weight\", \"target\": \"weight\", "
                   "\"bits\": 8, \"dtype\": \"int8\", \"scheme\": "
                   "\"per-channel-symmetric\", \"observer\": \"minmax\"");
    CHECK_CONTAINS(cli.out, "\"enabled\": true, \"reason\": \"\"");
    CHECK(json_number("\"layers\"", "scale_min") > 0);
    CHECK(json_number("\"inputs\"", "min") >= 0 && json_number("\"inputs\"", "max") <= 1);
    CHECK_NEAR(json_number("\"inputs\"", "mean"), 0.5, 0.02); /* uniform numbers */

    CHECK_EQ_I64(RUN("info %sq.onnx --json", TMP), 0);
    CHECK(json_is_one_object(cli.out));
    CHECK(json_number("operators", "QuantizeLinear") >= 1);
    CHECK(json_number("operators", "DequantizeLinear") >= 3);
    CHECK_CONTAINS(cli.out, "\"unsupported\": []");
    CHECK_CONTAINS(cli.out, "\"sparsebit.preprocess\": \"none\"");
    CHECK_CONTAINS(cli.out, "\"sparsebit.calibration\": \"samples=16 data=npy:cli-x.npy\"");
    CHECK_CONTAINS(cli.out, "\"sparsebit.input_range.x\": \"");

    CHECK_EQ_I64(RUN("compare %s %sq.onnx --data npy:%s --json", NET, TMP, DATA), 0);
    CHECK(json_number("outputs", "sqnr_db") > 20.0);
    CHECK(json_number("outputs", "relative_error") > 0.0); /* it was quantized */
    CHECK(json_number("", "top1_agreement") > 0.7);

    CHECK_EQ_I64(RUN("quantize %s --data npy:%s -o %sq.onnx", NET, DATA, TMP), 0);
    CHECK_CONTAINS(cli.out, "1 Conv, ");
    CHECK_CONTAINS(cli.out, " quantized; 0 nodes float");
    CHECK_CONTAINS(cli.out, "peak memory");

    /* what runs on integers, and the simulation of that in float */
    CHECK_EQ_I64(RUN("bench %sq.onnx --shape x=2x3x8x8 --iters 1 --explain", TMP), 0);
    CHECK_CONTAINS(cli.out, "integer");
    CHECK_EQ_I64(RUN("bench %sq.onnx --shape x=2x3x8x8 --iters 1 --explain --simulate --json", TMP),
                 0);
    CHECK(json_is_one_object(cli.out));
    CHECK_CONTAINS(cli.out, "\"as\": \"float\"");
    CHECK(strstr(cli.out, "\"as\": \"integer\"") == NULL);
    CHECK_EQ_I64(RUN("run %sq.onnx --shape x=2x3x8x8 --simulate", TMP), 0);
}

/* Integer weights alone: nothing is measured, no data is wanted. */
TEST(cli_quantize_weights_without_data)
{
    make_net_files();
    CHECK_EQ_I64(RUN("quantize %s --set A.QUANTIZER.DISABLE=true -o %sw.onnx --json", NET, TMP), 0);
    CHECK(json_is_one_object(cli.out));
    CHECK_EQ_I64(json_number("", "calibration_samples"), 0);
    CHECK_CONTAINS(cli.out, "\"inputs\": []");
    CHECK_EQ_I64(RUN("info %sw.onnx --json", TMP), 0);
    CHECK_EQ_I64(json_number("operators", "DequantizeLinear"), 2);
    CHECK(strstr(cli.out, "\"QuantizeLinear\"") == NULL);
    CHECK_CONTAINS(cli.out, "\"sparsebit.calibration\": \"samples=0 data=none:\"");
    CHECK_EQ_I64(RUN("quantize %s --set A.QUANTIZER.DISABLE=true -o %sw.onnx", NET, TMP), 0);
    CHECK(strstr(cli.out, "peak of activations") == NULL); /* shapes come with data */
    CHECK_EQ_I64(RUN("compare %s %sw.onnx --data npy:%s --json", NET, TMP, DATA), 0);
    CHECK(json_number("outputs", "sqnr_db") > 30.0);
    CHECK(json_number("outputs", "relative_error") > 0.0);
}

TEST(cli_quantize_same_bytes)
{
    make_net_files();
    size_t size[3] = {0, 0, 0};
    unsigned char *bytes[3];
    for (int i = 0; i < 3; i++) { /* once more, and with another number of threads */
        char path[200];
        snprintf(path, sizeof path, "%sq%d.onnx", TMP, i);
        CHECK_EQ_I64(RUN("quantize %s --data npy:%s -o %s --threads %d --batch 3", NET, DATA, path,
                         i == 2 ? 2 : 1),
                     0);
        bytes[i] = test_read_file(path, &size[i]);
    }
    CHECK_EQ_I64(size[0], size[1]);
    CHECK_EQ_I64(size[0], size[2]);
    if (bytes[0] != NULL && bytes[1] != NULL && bytes[2] != NULL && size[0] == size[1] &&
        size[0] == size[2]) {
        CHECK_MEM(bytes[0], bytes[1], size[0]);
        CHECK_MEM(bytes[0], bytes[2], size[0]);
    }
    for (int i = 0; i < 3; i++) {
        free(bytes[i]);
    }
}

TEST(cli_shuffle_is_seeded)
{
    make_net_files();
    double mean[4];
    static const char *const flags[] = {"", "--shuffle --seed 1", "--shuffle --seed 1",
                                        "--shuffle --seed 2"};
    for (int i = 0; i < 4; i++) {
        CHECK_EQ_I64(RUN("quantize %s --data npy:%s -o %sq.onnx --calib 3 %s --json", NET, DATA,
                         TMP, flags[i]),
                     0);
        mean[i] = json_number("\"inputs\"", "mean");
    }
    CHECK(mean[0] != mean[1]);
    CHECK_NEAR(mean[1], mean[2], 0);
    CHECK(mean[1] != mean[3]);
}

/* A5.6: calibrated with 0..1, evaluated with 0..255; and other preprocessing flags. */
TEST(cli_preprocessing_mismatch)
{
    make_net_files();
    put_file(TMP "l.txt", "0\n0\n0\n0\n0\n0\n0\n0\n0\n0\n0\n0\n0\n0\n0\n0\n", 32);
    CHECK_EQ_I64(RUN("quantize %s --data npy:%s -o %sq.onnx", NET, DATA, TMP), 0);
    CHECK_EQ_I64(RUN("eval %sq.onnx --data npy:%s,labels=%sl.txt", TMP, DATA, TMP), 0);
    CHECK(strstr(cli.err, "warning") == NULL);
    CHECK_EQ_I64(RUN("eval %sq.onnx --data npy:%sx255.npy,labels=%sl.txt", TMP, TMP, TMP), 0);
    CHECK(strstr(cli.err, "input clipped 99 %") != NULL ||
          strstr(cli.err, "input clipped 100 %") != NULL);
    CHECK_EQ_I64(RUN("quantize %s --data npy:%sx255.npy --scale 0.00392157 --mean 0.5 -o %sq.onnx",
                     NET, TMP, TMP),
                 0);
    CHECK_EQ_I64(
        RUN("eval %sq.onnx --data npy:%sx255.npy,labels=%sl.txt --scale 0.00392157", TMP, TMP, TMP),
        0);
    CHECK_CONTAINS(cli.err,
                   "was calibrated with other preprocessing: scale=0.00392157 mean=0.5 std=1");
    CHECK_EQ_I64(RUN("quantize %s --data npy:%sx255.npy -o %sq.onnx", NET, TMP, TMP), 0);
    CHECK_CONTAINS(cli.err, "looks like bytes; is --scale missing");
}

/* Conv [4,3,3,3] loses two rows, what reads them two columns. */
/* A network of its own learns which half of a picture is brighter; then with 4-bit quantizers. */
TEST(cli_train)
{
    struct stat info[2];
    enum {
        COUNT = 96,
        SIDE = 6
    };
    static float x[COUNT * SIDE * SIDE];
    static int64_t y[COUNT];
    static const int64_t dims[3] = {1, SIDE, SIDE};
    const sbit_value_id none = {0};
    sbit_conv_desc conv;
    sbit_ctx *ctx = NULL;
    sbit_graph *graph = NULL;
    sbit_error error;
    sbit_rng rng = sbit_rng_seed(3);
    memset(&conv, 0, sizeof conv);
    conv.channels = 6;
    for (int i = 0; i < COUNT; i++) {
        y[i] = i % 2;
        for (int k = 0; k < SIDE * SIDE; k++) {
            const bool bright = (k % SIDE < SIDE / 2) == (y[i] == 0);
            x[i * SIDE * SIDE + k] = (bright ? 1.0f : 0.0f) + 0.2f * sbit_rng_normal(&rng);
        }
    }
    put_npy(TMP "tx.npy", "<f4", "(96, 1, 6, 6)", x, sizeof x);
    put_npy(TMP "ty.npy", "<i8", "(96,)", y, sizeof y);
    CHECK(sbit_ctx_create(NULL, &ctx, &error) == SBIT_OK);
    CHECK(sbit_graph_create(ctx, 17, &graph, &error) == SBIT_OK);
    sbit_builder b = sbit_builder_init(graph, 1, &error);
    sbit_value_id v = sbit_builder_conv(&b, "c", sbit_builder_input(&b, "x", 3, dims), &conv);
    v = sbit_builder_op(&b, "Relu", sbit_builder_batch_norm(&b, "n", v), none);
    v = sbit_builder_op(&b, "Flatten", sbit_builder_pool(&b, "MaxPool", v, 3), none);
    v = sbit_builder_op(&b, "Dropout", v, none);
    CHECK(sbit_builder_output(&b, "logits", sbit_builder_linear(&b, "fc", v, 2)) == SBIT_OK);
    CHECK(sbit_graph_save(graph, TMP "t.onnx", NULL, &error) == SBIT_OK);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    const char *data = "npy:" TMP "tx.npy,labels=" TMP "ty.npy";
    CHECK_EQ_I64(RUN("train %st.onnx --data %s --val %s --epochs 6 --batch 16 --lr 0.05 --log "
                     "%st.csv -o %st1.onnx --json",
                     TMP, data, data, TMP, TMP),
                 0);
    CHECK(json_is_one_object(cli.out));
    CHECK_CONTAINS(cli.out, "\"steps\": 36");
    CHECK_EQ_I64(RUN("eval %st1.onnx --data %s --json", TMP, data), 0);
    CHECK_CONTAINS(cli.out, "\"top1\": 1");
    /* Dropout drops while training, and is not written */
    CHECK_EQ_I64(RUN("info %st1.onnx", TMP), 0);
    CHECK(strstr(cli.out, "Dropout") == NULL);
    double loss[2] = {0.0, 0.0};
    for (int as_is = 0; as_is < 2; as_is++) {
        CHECK_EQ_I64(RUN("train %st.onnx --data %s --batch 96 -o %st3.onnx --json%s", TMP, data, TMP,
                         as_is ? " --as-is" : ""),
                     0);
        const char *at = strstr(cli.out, "\"loss\": ");
        loss[as_is] = at != NULL ? atof(at + 8) : 0.0;
    }
    CHECK_MSG(loss[0] > 0.0 && loss[0] == loss[1], "%.9g, as it is %.9g", loss[0], loss[1]);
    cli_slurp(TMP "t.csv", cli.out, sizeof cli.out);
    CHECK_CONTAINS(cli.out, "epoch,step,loss,rate,top1,seconds\n1,6,");
    CHECK_EQ_I64(RUN("train %st1.onnx --set W.QUANTIZER.TYPE=lsq --set W.QUANTIZER.BIT=4 --set "
                     "A.QUANTIZER.TYPE=lsq --set A.QUANTIZER.BIT=4 --data %s --val %s --calib 32 "
                     "--epochs 2 --lr 0.001 --teacher %st1.onnx --features \"*\" --feature-weight 2 -o "
                     "%st4.onnx",
                     TMP, data, data, TMP, TMP),
                 0);
    CHECK_CONTAINS(cli.out, "epoch 2/2");
    CHECK_EQ_I64(RUN("eval %st4.onnx --data %s --json", TMP, data), 0);
    CHECK_CONTAINS(cli.out, "\"top1\": 1");
    CHECK(RUN("train %st1.onnx --data %s --features \"*\" -o %st4b.onnx", TMP, data, TMP) != 0);
    CHECK_CONTAINS(cli.err, "--teacher");
    CHECK(RUN("train %st1.onnx --data %s --teacher %st1.onnx --features \"no*\" -o %st4b.onnx", TMP, data,
              TMP, TMP) != 0);
    CHECK_CONTAINS(cli.err, "no value 'no*' has one shape in the model and the teacher");
    static const char *const wrong[] = {"--features \"*\" --feature-weight 0", "--feature-weight 2",
                                        "--features \"*\" --feature-weight -1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK_FAILS(2, "--feature-weight", "train %st1.onnx --data %s --teacher %st1.onnx %s -o %st4b.onnx", TMP, data, TMP,
                    wrong[i], TMP);
    }
    CHECK_FAILS(2, "--distill needs a teacher: name it with --teacher", "train %st1.onnx --data %s --distill 0.5 -o %st4b.onnx",
                TMP, data, TMP);
    static const struct {
        const char *flag, *says;
    } beyond[] = {{"--distill 0", "--distill '0': a number above 0 and up to 1 is wanted"},
                  {"--distill 1.5", "--distill '1.5': a number above 0 and up to 1 is wanted"},
                  {"--ema 1", "--ema '1': a number of at least 0 and below 1 is wanted"},
                  {"--ema -0.1", "--ema '-0.1': a number of at least 0 and below 1"},
                  {"--ema 0.9,0.8", "--ema '0.9,0.8': a number"},
                  {"--ema 0.99999999", "--ema '0.99999999': a number of at least 0 and below 1"}, /* in float32 1 */
                  {"--distill 1e-60", "--distill '1e-60': a number above 0"},
                  {"--slim 1e60", "--slim '1e60': a number of at least 0 is wanted"},
                  {"--clip -1", "--clip '-1': a number of at least 0 is wanted"},
                  {"--slim -0.1", "--slim '-0.1': a number of at least 0 is wanted"},
                  {"--dampening inf", "--dampening 'inf': a number of at least 0 is wanted"},
                  {"--observe 1", "--observe '1': a number of at least 0 and below 1"},
                  {"--momentum 1.5", "--momentum '1.5': a number of at least 0 and below 1"},
                  {"--lr 0", "--lr '0': a number above 0 is wanted"},
                  {"--decay -1", "--decay '-1': a number of at least 0 is wanted"},
                  {"--mixup nan", "--mixup 'nan': a number of at least 0 is wanted"},
                  {"--smoothing 2", "--smoothing '2': a number of at least 0 and up to 1"}};
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        CHECK_FAILS(2, beyond[i].says, "train %st1.onnx --data %s --teacher %st1.onnx %s -o %st4b.onnx", TMP, data, TMP,
                    beyond[i].flag, TMP);
    }
    /* five epochs at once, or two, and on from the checkpoint: the same file */
    const char *how = "--optimizer adam --schedule constant --shift 1 --flip";
    CHECK_EQ_I64(RUN("train %st.onnx --data %s %s --epochs 5 -o %st5.onnx", TMP, data, how, TMP),
                 0);
    CHECK_EQ_I64(RUN("train %st.onnx --data %s %s --epochs 2 -o %st2.onnx", TMP, data, how, TMP),
                 0);
    CHECK_EQ_I64(RUN("train %st.onnx --data %s %s --epochs 5 --resume %st2.onnx.checkpoint -o "
                     "%st6.onnx",
                     TMP, data, how, TMP, TMP),
                 0);
    CHECK_EQ_I64(system("cmp -s " TMP "t5.onnx " TMP "t6.onnx"), 0);
    /* Ctrl-C after the first epoch, and on from there: the same file */
    const char *more = "--epochs 40 --schedule constant --ema 0.9 --mixup 0.3 --cutmix 1 --seed 2";
    CHECK_EQ_I64(
        RUN("train %st.onnx --data %s --val %s %s -o %st7.onnx", TMP, data, data, more, TMP), 0);
    char stopped[4000];
    snprintf(stopped, sizeof stopped,
             "rm -f %s7.json; '%s' train %st.onnx --data %s --val %s %s --log %s7.json -o "
             "%st8.onnx >/dev/null 2>%serr & p=$!; while [ ! -s %s7.json ] && kill -0 $p 2>/dev/null; do sleep 0.01; done; "
             "kill -INT $p; wait $p",
             TMP, test_tool(), TMP, data, data, more, TMP, TMP, TMP, TMP);
    if (CHECK_EQ_I64(WEXITSTATUS(system(stopped)), 1)) {
        cli_slurp(TMP "err", cli.err, sizeof cli.err);
        CHECK_CONTAINS(cli.err, "interrupted after step");
        cli_slurp(TMP "7.json", cli.out, sizeof cli.out);
        CHECK_CONTAINS(cli.out, "{\"epoch\": 1, \"step\": 2, ");
        CHECK_EQ_I64(RUN("train %st.onnx --data %s --val %s %s --resume %st8.onnx.checkpoint -o "
                         "%st8.onnx",
                         TMP, data, data, more, TMP, TMP),
                     0);
        CHECK_EQ_I64(system("cmp -s " TMP "t7.onnx " TMP "t8.onnx"), 0);
    }
    /* pruned, quantized and taught in one run; masks made while training, a lottery ticket */
    static const char cut[] = "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.34}\n";
    static const char mask[] =
        "SPARSER: {TYPE: unstructured, STRATEGY: l1norm, RATIO: 0.5, SCHEDULE: agp}\n";
    put_file(TMP "s1.yaml", cut, sizeof cut - 1);
    put_file(TMP "s2.yaml", mask, sizeof mask - 1);
    CHECK_EQ_I64(RUN("train %st1.onnx -s %ss1.yaml --set W.QUANTIZER.TYPE=lsq --set "
                     "A.QUANTIZER.TYPE=lsq --data %s --val %s --calib 32 --epochs 4 --lr 0.02 "
                     "--batch 16 --teacher %st1.onnx --teacher %st7.onnx --dampening 0.001 -o %st9.onnx",
                     TMP, TMP, data, data, TMP, TMP, TMP),
                 0);
    CHECK_EQ_I64(RUN("eval %st9.onnx --data %s --json", TMP, data), 0);
    CHECK_CONTAINS(cli.out, "\"top1\": 1");
    CHECK_EQ_I64(RUN("info %st9.onnx --json", TMP), 0);
    CHECK_CONTAINS(cli.out, "QuantizeLinear");
    CHECK_EQ_I64(RUN("train %st1.onnx -s %ss1.yaml --bytes 0.8x --data %s --val %s --epochs 1 -o %sz.onnx --force", TMP,
                     TMP, data, data, TMP),
                 0);
    CHECK(stat(TMP "t1.onnx", &info[0]) == 0 && stat(TMP "z.onnx", &info[1]) == 0 &&
          (double)info[1].st_size < 0.85 * (double)info[0].st_size);
    remove(TMP "z.onnx");
    CHECK_FAILS(2, "a share such as 0.5x, or a size such as 1MB", "train %st1.onnx -s %ss1.yaml --bytes half --data %s -o %sz.onnx",
                TMP, TMP, data, TMP);
    CHECK_FAILS(2, "go with -s", "train %st1.onnx --macs 0.5x --data %s -o %sz.onnx", TMP, data, TMP);
    CHECK_FAILS(2, "need a structured layer", "train %st1.onnx -s %ss2.yaml --macs 0.5x --data %s -o %sz.onnx", TMP, TMP,
                data, TMP);
    CHECK_EQ_I64(RUN("train %st1.onnx -s %ss2.yaml --rewind --slim 0.0001 --smoothing 0.1 --clip 1 "
                     "--micro 8 --checkpoint 3 --freeze-statistics 10 --freeze fc.bias --patience 9 --data %s "
                     "--val %s --batch 16 --epochs 4 -o %st10.onnx",
                     TMP, TMP, data, data, TMP),
                 0);
    CHECK_EQ_I64(RUN("eval %st10.onnx --data %s --json", TMP, data), 0);
    CHECK_CONTAINS(cli.out, "\"top1\": 1");
    CHECK_FAILS(1, "matches no weight", "train %st.onnx --data %s --freeze none* -o %sz.onnx", TMP,
                data, TMP);
    CHECK_FAILS(1, "has no labels", "train %st.onnx --data npy:%stx.npy -o %sz.onnx", TMP, TMP,
                TMP);
    CHECK_FAILS(1, "known: sgd, adam, adamw", "train %st.onnx --data %s --optimizer x -o %sz.onnx",
                TMP, data, TMP);
    CHECK_FAILS(2, "-o OUT is missing", "train %st.onnx --data %s", TMP, data);
}

TEST(cli_compress)
{
    static const char both[] = "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5}\n"
                               "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: uniform, BIT: 8}, OBSERVER: {TYPE: minmax}}\n"
                               "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: uniform, BIT: 8}, OBSERVER: {TYPE: minmax}}\n";
    static const char typo[] = "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5}\nW: {}\nA: {}\nSCHEDUL: {}\n";
    make_net_files();
    put_file(TMP "both.yaml", both, sizeof both - 1);
    put_file(TMP "typo.yaml", typo, sizeof typo - 1);
    CHECK_EQ_I64(RUN("compress %s -c %sboth.yaml --data npy:%s -o %sc.onnx --force", NET, TMP, DATA, TMP), 0);
    CHECK_CONTAINS(cli.out, "equal to the masked model");
    CHECK_EQ_I64(RUN("prune %s -c %sboth.yaml -o %sp.onnx --force", NET, TMP, TMP), 0);
    CHECK_EQ_I64(RUN("quantize %sp.onnx -c %sboth.yaml --data npy:%s -o %sq.onnx --force", TMP, TMP, DATA, TMP), 0);
    CHECK_EQ_I64(RUN("compare %sc.onnx %sq.onnx --data npy:%s --json", TMP, TMP, DATA), 0);
    CHECK_CONTAINS(cli.out, "\"max_abs\": 0, \"relative_error\": 0, \"equal\": true");
    CHECK_FAILS(1, "SCHEDUL: unknown key", "compress %s -c %stypo.yaml --data npy:%s -o %sc.onnx --force", NET, TMP,
                DATA, TMP);
}

TEST(cli_prune)
{
    make_net_files();
    CHECK_EQ_I64(RUN("prune %s --ratio 0.5 -o %sp.onnx --json", NET, TMP), 0);
    CHECK(json_is_one_object(cli.out));
    CHECK_EQ_I64(json_number("before", "params"), 132);
    CHECK_EQ_I64(json_number("after", "params"), 132 / 2);
    CHECK_CONTAINS(cli.out, "\"channels\": 4, \"kept\": 2");
    CHECK_EQ_I64(RUN("compare %s %sp.onnx --data npy:%s", NET, TMP, DATA), 0);
    CHECK_EQ_I64(RUN("prune %s --macs 0.5x --data npy:%s -o %sp.onnx --explain", NET, DATA, TMP),
                 0);
    CHECK_CONTAINS(cli.out, "equal to the masked model");
    CHECK_CONTAINS(cli.out, "reaches the graph's output");
    static const char list[] = "- {op_types: [Conv2d, Linear], sparsity: 0.5}\n";
    put_file(TMP "list.yaml", list, sizeof list - 1);
    CHECK_EQ_I64(RUN("prune %s -c %slist.yaml -o %sp.onnx --force --explain", NET, TMP, TMP), 0);
    CHECK_CONTAINS(cli.out, "op:Conv");
    CHECK_EQ_I64(RUN("prune %s --ratio 0.5 --repair ridge --data npy:%s -o %sp.onnx --force", NET, DATA,
                     TMP),
                 0);
    CHECK(strstr(cli.out, "layers repaired") != NULL);
    CHECK_EQ_I64(RUN("prune %s --macs 0.8x --search sensitivity --data npy:%s -o %sp.onnx --force", NET,
                     DATA, TMP),
                 0);
    CHECK_FAILS(1, "no output 'nowhere'", "prune %s --ratio 0.5 --prune-outputs nowhere -o %sp.onnx --force",
                NET, TMP);
    CHECK_EQ_I64(RUN("prune %s --ratio 0.5 --prune-outputs all -o %sp.onnx --force", NET, TMP), 0);
    CHECK_FAILS(2, "needs a budget", "prune %s --ratio 0.5 --search sensitivity -o %sp.onnx --force", NET, TMP);
    CHECK_FAILS(1, "looks at data", "prune %s --macs 0.8x --search greedy -o %sp.onnx --force", NET, TMP);
    CHECK_FAILS(1, "is not one of", "prune %s --macs 0.8x --search luck -o %sp.onnx --force", NET, TMP);
    CHECK_FAILS(2, "needs --latency", "prune %s --macs 0.8x --latency-table %st.json -o %sp.onnx --force", NET, TMP,
                TMP);
    /* masks written are masks read, with few files open: the same model */
    CHECK_EQ_I64(RUN("prune %s --ratio 0.5 --save-masks %sm.npz -o %sp.onnx --force", NET, TMP, TMP), 0);
    CHECK_EQ_I64(cli_run_in("sh -c 'exec 3<&- 4<&- 5<&- 6<&- 7<&- 8<&- 9<&-; ulimit -n 5; exec \"$@\"' --",
                            "prune %s --masks %sm.npz --save-masks %sm.json --strict -o %sq.onnx --force", NET, TMP, TMP,
                            TMP),
                 0);
    size_t sizes[2] = {0, 0};
    char *json = (char *)test_read_file(TMP "m.json", &sizes[0]); /* a layer's masks in one object */
    const char *layer = json != NULL ? strchr(json + 1, '"') : NULL;
    char key[64];
    snprintf(key, sizeof key, "%.*s", layer != NULL ? (int)(strchr(layer + 1, '"') - layer) + 2 : 0, layer != NULL ? layer : "");
    CHECK_MSG(layer != NULL && strstr(layer + 1, key) == NULL, "%s stands twice", key);
    CHECK(json != NULL && strstr(json, "\"weight\"") != NULL && strstr(json, "\"bias\"") != NULL);
    free(json);
    unsigned char *files[2] = {test_read_file(TMP "p.onnx", &sizes[0]), test_read_file(TMP "q.onnx", &sizes[1])};
    CHECK(files[0] != NULL && files[1] != NULL && sizes[0] == sizes[1] && memcmp(files[0], files[1], sizes[0]) == 0);
    free(files[0]);
    free(files[1]);
    CHECK_EQ_I64(RUN("prune %s --ratio 0.1 --start-masks %sm.npz -o %sq.onnx --force", NET, TMP, TMP), 0);
    CHECK_EQ_I64(RUN("prune %s --masks %sm.json --save-masks %sn.json -o %sq.onnx --force", NET, TMP, TMP, TMP), 0);
    unsigned char *again[2] = {test_read_file(TMP "m.json", &sizes[0]), test_read_file(TMP "n.json", &sizes[1])};
    CHECK(again[0] != NULL && again[1] != NULL && sizes[0] == sizes[1] && memcmp(again[0], again[1], sizes[0]) == 0);
    free(again[0]);
    free(again[1]);
    CHECK_FAILS(1, "no .npz archive", "prune %s --masks %sp.onnx -o %sq.onnx --force", NET, TMP, TMP);
    CHECK_EQ_I64(RUN("prune %s --ratio 0.5 --prune-outputs all --save-masks %sm.npz -o %sp.onnx --force", NET, TMP, TMP), 0);
    CHECK(rename_in_file(TMP "m.npz", "conv.bias", "fc.weight") == 2); /* in front of it, and in the directory */
    CHECK_FAILS(1, "'fc.weight' is given twice", "prune %s --masks %sm.npz -o %sq.onnx --force", NET, TMP, TMP);
    CHECK_FAILS(1, "'fc.weight' is given twice", "prune %s --ratio 0.5 --start-masks %sm.npz -o %sq.onnx --force", NET, TMP, TMP);
    char longer[141]; /* names as long as they are written are read */
    memset(longer, 'n', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    make_named_net(TMP "named.onnx", longer, false);
    CHECK_EQ_I64(RUN("prune %snamed.onnx --ratio 0.5 --save-masks %sm.npz -o %sp.onnx --force", TMP, TMP, TMP), 0);
    CHECK_EQ_I64(RUN("prune %snamed.onnx --masks %sm.npz -o %sq.onnx --force", TMP, TMP, TMP), 0);
    remove(TMP "times.json");
    for (int turn = 0; turn < 2; turn++) { /* measured, then read */
        CHECK_EQ_I64(RUN("prune %s --latency 100x --latency-table %stimes.json -o %sp.onnx --force --json", NET,
                         TMP, TMP),
                     0);
        CHECK_CONTAINS(cli.out, "\"microseconds_after\"");
    }
    CHECK_EQ_I64(RUN("prune %s --set SPARSER.TYPE=unstructured --ratio 0.5 --mask-only -o %sp.onnx "
                     "--json",
                     NET, TMP),
                 0);
    CHECK_EQ_I64(json_number("after", "params"), 132);
    CHECK_EQ_I64(RUN("prune %s --ratio 0 -o %sp.onnx", NET, TMP), 0);
    CHECK_CONTAINS(cli.err, "nothing was pruned");
    CHECK_FAILS(2, "how much is to go?", "prune %s -o %sp.onnx", NET, TMP);
    CHECK_FAILS(1, "--ratio 2", "prune %s --ratio 2 -o %sp.onnx", NET, TMP);
    CHECK_FAILS(2, "a share such as 0.5x", "prune %s --macs half -o %sp.onnx", NET, TMP);
    CHECK_FAILS(2, "a share such as 0.5x", "prune %s --macs infx -o %sp.onnx", NET, TMP);
    CHECK_FAILS(2, "or a size such as 1MB", "prune %s --bytes 1e999 -o %sp.onnx", NET, TMP);
    CHECK_FAILS(2, "exclude each other", "prune %s --macs 0.5x --ratio 0.5 -o %sp.onnx", NET, TMP);
    CHECK_FAILS(1, "cannot be met", "prune %s --macs 0.001x -o %sp.onnx", NET, TMP);
    CHECK_FAILS(1, "is not one of", "prune %s --ratio 0.5 --set SPARSER.STRATEGY=l9 -o %sp.onnx",
                NET, TMP);
}

TEST(cli_info_simplify_bench_graph)
{
    make_net_files();
    CHECK_EQ_I64(RUN("info %s --json", NET), 0);
    CHECK(json_is_one_object(cli.out));
    CHECK_EQ_I64(json_number("", "params"), 132);
    CHECK_EQ_I64(json_number("", "macs"), 36 * 108 + 20);
    CHECK_EQ_I64(json_number("weight_bytes", "float32"), 132 * 4);
    CHECK_EQ_I64(json_number("operators", "Relu"), 1);
    CHECK_EQ_I64(json_number("opsets", "ai.onnx"), 13);
    CHECK_CONTAINS(cli.out, "\"shape\": [\"N\", 3, 8, 8]");
    CHECK(strstr(cli.out, "session_bytes") == NULL); /* N is open */
    CHECK_EQ_I64(RUN("info %s", NET), 0);
    CHECK_CONTAINS(cli.out, "float32[N,3,8,8]");
    CHECK_CONTAINS(cli.out, "can run");
    /* memory is told without running, and is what a run has taken */
    CHECK_EQ_I64(RUN("bench %s --shape 5x3x8x8 --threads 1 --iters 1 --json", NET), 0);
    const double session_bytes = json_number("", "session_bytes");
    CHECK_EQ_I64(RUN("info %s --shape 5x3x8x8 --json", NET), 0);
    CHECK_EQ_I64(json_number("memory", "session_bytes"), session_bytes);
    CHECK(json_number("memory", "activation_bytes") < session_bytes);
    CHECK(json_number("memory", "packed_bytes") > 0);
    CHECK_CONTAINS(cli.out, "\"dynamic_nodes\": []");
    CHECK_EQ_I64(RUN("info %s --shape 5x3x8x8", NET), 0);
    CHECK_CONTAINS(cli.out, "memory");

    make_scale(TMP "scale.onnx", 2.0f, 0);
    CHECK_EQ_I64(RUN("simplify %sscale.onnx -o %ss.onnx --json", TMP, TMP), 0);
    CHECK(json_is_one_object(cli.out));
    CHECK_EQ_I64(json_number("before", "nodes"), 2);
    CHECK_EQ_I64(json_number("after", "nodes"), 1); /* without Identity */
    CHECK_EQ_I64(RUN("simplify %sscale.onnx -o %ss.onnx", TMP, TMP), 0);
    CHECK_CONTAINS(cli.out, "nodes");

    CHECK_EQ_I64(RUN("bench %s --iters 5 --json", NET), 0);
    CHECK(json_is_one_object(cli.out));
    CHECK_EQ_I64(json_number("", "iters"), 5);
    CHECK(json_number("", "min_ms") > 0.0);
    CHECK(json_number("", "min_ms") <= json_number("", "median_ms"));
    CHECK_EQ_I64(json_number("", "macs"), 36 * 108 + 20);
    CHECK_EQ_I64(RUN("bench %s --iters 3 --shape x=2x3x8x8 --isa scalar --profile --json", NET), 0);
    CHECK(json_is_one_object(cli.out));
    CHECK_EQ_I64(json_number("", "macs"), 2 * (36 * 108 + 20));
    CHECK_CONTAINS(cli.out, "\"isa\": \"scalar\"");
    CHECK_CONTAINS(cli.out, "\"op_type\": \"Conv\"");
    CHECK_EQ_I64(RUN("bench %s --iters 3 --profile", NET), 0);
    CHECK_CONTAINS(cli.out, "GFLOP/s");
    CHECK_EQ_I64(RUN("bench %s --iters 3 --explain", NET), 0);
    CHECK_CONTAINS(cli.out, "part of");
    CHECK_CONTAINS(cli.out, "0 integer (0 % of the time)");

    CHECK_EQ_I64(RUN("graph %s", NET), 0);
    CHECK(strncmp(cli.out, "flowchart TD\n", 13) == 0);
    CHECK_CONTAINS(cli.out, "[4,3,3,3] [4]");
    CHECK_EQ_I64(RUN("graph %s --format dot", NET), 0);
    CHECK(strncmp(cli.out, "digraph model {\n", 16) == 0);
    CHECK_CONTAINS(cli.out, "->");
}

/* ---- what is refused, and how it is said */

TEST(cli_output_is_checked)
{
    make_net_files();
    struct stat info;
    size_t size = 0, again = 0;
    unsigned char *before = test_read_file(NET, &size);
    remove("-");
    CHECK_FAILS(2, "-o -", "simplify %s -o -", NET);
    CHECK(!test_file_exists("-"));
    /* the input is not overwritten by accident, whatever its path is */
    CHECK_FAILS(1, "--force", "simplify %s -o %s", NET, NET);
    CHECK_FAILS(1, "--force", "quantize %s --data npy:%s -o %s", NET, DATA, NET);
    remove(TMP "same.onnx");
    CHECK(symlink("cli-net.onnx", TMP "same.onnx") == 0);
    CHECK_FAILS(1, "is the model that is read", "simplify %s -o %ssame.onnx", NET, TMP);
    unsigned char *after = test_read_file(NET, &again);
    CHECK(before != NULL && after != NULL && size == again && memcmp(before, after, size) == 0);
    free(before);
    free(after);
    CHECK_EQ_I64(RUN("simplify %s -o %ssame.onnx --force", NET, TMP), 0);
    CHECK(lstat(TMP "same.onnx", &info) == 0 && S_ISLNK(info.st_mode));
    CHECK_EQ_I64(RUN("info %s", NET), 0);
    /* only regular files are replaced */
    remove(TMP "pipe");
    CHECK(mkfifo(TMP "pipe", 0600) == 0);
    CHECK_FAILS(1, "is no regular file", "simplify %s -o %spipe", NET, TMP);
    CHECK(lstat(TMP "pipe", &info) == 0 && S_ISFIFO(info.st_mode));
    CHECK_FAILS(1, "is no regular file", "quantize %s --data npy:%s -o /dev/null", NET, DATA);
}

TEST(cli_options_that_do_nothing_are_said)
{
    make_net_files();
    CHECK_FAILS(2, "--data is given twice", "eval %s --data npy:%s --data npy:%s", NET, DATA, DATA);
    CHECK_FAILS(2, "-o is given twice", "simplify %s -o %sa.onnx --out %sb.onnx", NET, TMP, TMP);
    CHECK_FAILS(2, "--as-is is given twice", "bench %s --as-is --as-is", NET);
    CHECK_EQ_I64(RUN("simplify %s -o %sa.onnx --skip fold_constants --skip dead_code", NET, TMP),
                 0);
    CHECK_FAILS(2, "--seed is for --shuffle", "quantize %s --data npy:%s --seed 3 -o %sq.onnx", NET,
                DATA, TMP);
    CHECK_FAILS(2, "--layout is for pictures",
                "quantize %s --data npy:%s --layout NHWC -o %sq.onnx", NET, DATA, TMP);
    CHECK_FAILS(2, "--size is for pictures", "quantize %s --data npy:%s --size 8x8 -o %sq.onnx",
                NET, DATA, TMP);
    CHECK_FAILS(2, "-o OUT and --data SPEC are missing", "quantize %s", NET);
    CHECK_EQ_I64(RUN("quantize %s --set A.QUANTIZER.DISABLE=true -o %sq.onnx", NET, TMP), 0);
    CHECK_FAILS(2, "-o OUT is missing", "quantize %s --data npy:%s", NET, DATA);
}

TEST(cli_open_dims_are_said)
{
    make_net_files();
    CHECK_EQ_I64(RUN("info %s", NET), 0);
    CHECK_CONTAINS(cli.out, "(N counts as 1");
    CHECK_EQ_I64(RUN("info %s --json", NET), 0);
    /* Conv 3*3*3*4*6*6 + Gemm 4*5; GlobalAveragePool multiplies nothing */
    CHECK_EQ_I64(json_number("", "macs"), 3888 + 20);
    CHECK_CONTAINS(cli.out, "\"open_dims\": [\"N\"]");
    CHECK_EQ_I64(RUN("info %s --shape 5x3x8x8 --json", NET), 0);
    CHECK_EQ_I64(json_number("", "macs"), 5 * (3888 + 20));
    CHECK_CONTAINS(cli.out, "\"open_dims\": []");
    CHECK_EQ_I64(RUN("info %s --shape 5x3x8x8", NET), 0);
    CHECK(strstr(cli.out, "counts as 1") == NULL);
    make_wide(TMP "wide.onnx");
    static float x[2 * 3 * 10 * 8];
    put_npy(TMP "wide.npy", "<f4", "(2, 3, 10, 8)", x, sizeof x);
    CHECK_EQ_I64(RUN("info %swide.onnx", TMP), 0);
    CHECK_CONTAINS(cli.out, "(N, H count as 1");
    /* quantize knows the shapes from the data: Conv 1x1, 3 -> 2 channels, over 10x8 */
    x[0] = 1.0f;
    put_npy(TMP "wide.npy", "<f4", "(2, 3, 10, 8)", x, sizeof x);
    CHECK_EQ_I64(
        RUN("quantize %swide.onnx --data npy:%swide.npy -o %sq.onnx --json", TMP, TMP, TMP), 0);
    CHECK_EQ_I64(json_number("\"before\"", "macs"), 3 * 2 * 10 * 8);
}

TEST(cli_failures_as_json)
{
    make_net_files();
    CHECK_EQ_I64(RUN("info %smissing.onnx --json", TMP), 1);
    CHECK(json_is_one_object(cli.out));
    CHECK_CONTAINS(cli.out, "{\"error\": {\"message\": \"");
    CHECK_CONTAINS(cli.out, "No such file");
    CHECK_CONTAINS(cli.err, "No such file");
    CHECK_EQ_I64(json_number("", "exit_code"), 1);
    CHECK_EQ_I64(RUN("eval %s --json", NET), 2);
    CHECK(json_is_one_object(cli.out));
    CHECK_EQ_I64(json_number("", "exit_code"), 2);
    CHECK_CONTAINS(cli.out, "--data SPEC is missing");
    CHECK_EQ_I64(RUN("infos --json"), 2);
    CHECK(json_is_one_object(cli.out));
    put_file(TMP "typo.yaml", "W: {QSCHEMA: x}\n", 16);
    CHECK_EQ_I64(
        RUN("quantize %s -c %stypo.yaml --data npy:%s -o %sq.onnx --json", NET, TMP, DATA, TMP), 1);
    CHECK(json_is_one_object(cli.out));
    CHECK_CONTAINS(cli.out, "QSCHEME");
}

/* What a model has to do may depend on the values of an input. */
TEST(cli_bench_takes_inputs)
{
    make_net_files();
    static float x[192];
    put_npy(TMP "one.npy", "<f4", "(1, 3, 8, 8)", x, sizeof x);
    CHECK_EQ_I64(RUN("bench %s --input x=%sone.npy --iters 2 --json", NET, TMP), 0);
    CHECK_EQ_I64(json_number("", "iters"), 2);
    CHECK_EQ_I64(json_number("", "macs"), 3888 + 20);
    CHECK_EQ_I64(RUN("bench %s --iters 2 --profile --json", NET), 0);
    CHECK(json_number("nodes", "gflops") >= 0.0 && json_number("nodes", "of_peak") >= 0.0); /* of the slowest */
    CHECK_EQ_I64(RUN("bench %s --iters 2 --profile", NET), 0);
    CHECK_CONTAINS(cli.out, "GFLOP/s  of peak");
    put_npy(TMP "two.npy", "<f4", "(2, 3, 8, 8)", x, sizeof x / 2);
    CHECK_FAILS(1, "is cut short", "bench %s --input x=%stwo.npy --iters 2", NET, TMP);
    make_count(TMP "count.onnx");
    const int64_t many = 100000, few = 3;
    put_npy(TMP "many.npy", "<i8", "()", &many, sizeof many);
    put_npy(TMP "few.npy", "<i8", "()", &few, sizeof few);
    CHECK_EQ_I64(RUN("bench %scount.onnx --input n=%sfew.npy --iters 3 --json", TMP, TMP), 0);
    const double little = json_number("", "memory_bytes");
    CHECK_EQ_I64(RUN("bench %scount.onnx --input n=%smany.npy --iters 3 --json", TMP, TMP), 0);
    CHECK(json_number("", "memory_bytes") > little + 400000.0);
}

/* Operators are listed once each, with opset, count and the first nodes. */
TEST(cli_unsupported_by_operator)
{
    make_foreign(TMP "foreign.onnx");
    CHECK_EQ_I64(RUN("info %sforeign.onnx", TMP), 0);
    CHECK_CONTAINS(cli.out,
                   "com.acme.Spin-2: no such operator: 12 nodes: 'spin', 'spin_1', 'spin_2' "
                   "and 9 more");
    CHECK_CONTAINS(cli.out, "Turn-13: no such operator: 1 node: 'turn'");
    CHECK_EQ_I64(RUN("info %sforeign.onnx --json", TMP), 0);
    CHECK_CONTAINS(cli.out,
                   "\"op_type\": \"Spin\", \"domain\": \"com.acme\", \"opset\": 2, "
                   "\"reason\": \"no such operator\", \"count\": 12, \"nodes\": [\"spin\", ");
    CHECK_FAILS(1, "com.acme.Spin", "run %sforeign.onnx", TMP);
    CHECK_CONTAINS(cli.err, "13 of its nodes");
    const char *at = strstr(cli.err, "Spin");
    CHECK(at != NULL && strstr(at + 4, "Spin") == NULL);
}

/* Concat and Cast lack what they must have, Relu has an input too many; each works on its own. */
static void make_broken(const char *path)
{
    static const char *const types[] = {"Concat", "Cast", "Relu", "Neg"};
    maker m;
    const int64_t dims[1] = {4};
    sbit_node_desc desc;
    sbit_node_id node;
    maker_begin(&m);
    sbit_value_id in[2] = {maker_input(&m, "x", 1, dims), {0}}, last = in[0];
    in[1] = in[0];
    for (int i = 0; i < 4; i++) {
        last = maker_value(&m, "v", 1, dims);
        memset(&desc, 0, sizeof desc);
        desc.op_type = types[i];
        desc.inputs = in;
        desc.outputs = &last;
        desc.input_count = i == 0 || i == 2 ? 2 : 1;
        desc.output_count = 1;
        CHECK_OK(sbit_graph_add_node(m.graph, &desc, &node, &m.error), m.error);
    }
    maker_save(&m, last, path);
}

TEST(cli_check_tells_all)
{
    make_net_files();
    make_foreign(TMP "foreign.onnx");
    put_file(TMP "other.onnx", "PK\003\004 zip", 8);
    make_broken(TMP "broken.onnx");
    CHECK_EQ_I64(RUN("check %sbroken.onnx", TMP), 1);
    CHECK_CONTAINS(cli.out, "attribute 'axis' is missing");
    CHECK_CONTAINS(cli.out, "attribute 'to' is missing");
    CHECK_CONTAINS(cli.out, "it has 2 inputs, but needs at most 1");
    CHECK_CONTAINS(cli.out, "3 errors, 0 warnings");
    CHECK_EQ_I64(RUN("check %s", NET), 0);
    CHECK_STR(cli.out, "0 errors, 0 warnings\n");
    CHECK_EQ_I64(RUN("check %sforeign.onnx", TMP), 1);
    CHECK_CONTAINS(cli.out, "error: operator: com.acme.Spin-2: no such operator: 12 nodes");
    CHECK_CONTAINS(cli.out, "error: operator: Turn-13: no such operator: 1 node");
    CHECK_EQ_I64(RUN("check %sforeign.onnx --json", TMP), 1);
    CHECK(json_is_one_object(cli.out));
    CHECK_CONTAINS(cli.out, "\"ok\": false, \"findings\": [{\"level\": \"error\"");
    CHECK_EQ_I64(RUN("check %sother.onnx", TMP), 1);
    CHECK_CONTAINS(cli.out, "error: file: ");
}

TEST(cli_opset_is_raised)
{
    make_net_files();
    CHECK_EQ_I64(RUN("convert-opset %s --to 17 -o %sraised.onnx", NET, TMP), 0);
    CHECK_CONTAINS(cli.out, "opset 13 to 17");
    CHECK_EQ_I64(RUN("info %sraised.onnx", TMP), 0);
    CHECK_CONTAINS(cli.out, "ai.onnx 17");
    CHECK_FAILS(1, "older than 7", "convert-opset %s --to 5 -o %slow.onnx", NET, TMP);
    CHECK_FAILS(2, "--to", "convert-opset %s -o %slow.onnx", NET, TMP);
    CHECK(!test_file_exists(TMP "low.onnx"));
}

TEST(cli_next_steps)
{
    make_net_files();
    const char *pruning = "SPARSER:\n  TYPE: structed\n  STRATEGY: l1norm\n  RATIO: 0.5\n";
    put_file(TMP "prune.yaml", pruning, strlen(pruning));
    CHECK_FAILS(1, "is a pruning configuration",
                "quantize %s -c %sprune.yaml --data npy:%s -o %sq.onnx", NET, TMP, DATA, TMP);
}

/* Strategies that are not built, and files that grow. */
TEST(cli_quantize_says_what_to_do)
{
    static float x[32];
    make_net_files();
    CHECK_FAILS(1, "is not one of",
                "quantize %s --set W.QUANTIZER.TYPE=nonsense --data npy:%s -o %sq.onnx", NET, DATA,
                TMP);
    CHECK(strstr(cli.err, "sparsebit info") == NULL);
    make_chain(TMP "chain.onnx");
    for (int i = 0; i < 32; i++) {
        x[i] = (float)i / 16.0f - 1.0f;
    }
    put_npy(TMP "chain.npy", "<f4", "(1, 2, 4, 4)", x, sizeof x);
    CHECK_EQ_I64(RUN("quantize %schain.onnx --data npy:%schain.npy -o %sq.onnx", TMP, TMP, TMP), 0);
    CHECK_CONTAINS(cli.err, "the quantized file is larger than the float one");
    CHECK_CONTAINS(cli.err, "30 weights are so small");
    CHECK_CONTAINS(cli.err, "SKIP_TRACE_MODULES=[\"");
}

TEST(cli_operators)
{
    CHECK_EQ_I64(RUN("operators --json"), 0);
    CHECK(json_is_one_object(cli.out));
    CHECK_CONTAINS(cli.out, "{\"domain\": \"\", \"op_type\": \"Relu\", \"versions\": [{\"since\": 1, "
                            "\"types\": [\"float32\", \"float16\", \"float64\"]");
    CHECK_EQ_I64(RUN("operators"), 0);
    CHECK_CONTAINS(cli.out, "\nConv ");
    CHECK_FAILS(2, "one argument too many", "operators x");
}

/* What of the standard is left out has a reason; interop/check_operators.py compares the lists. */
TEST(cli_operators_missing)
{
    CHECK(RUN("ops --missing") <= 1);
    CHECK_CONTAINS(cli.out, "\nImageDecoder ");
    CHECK(RUN("operators --missing --json") <= 1);
    CHECK(json_is_one_object(cli.out));
    CHECK_CONTAINS(cli.out, "{\"domain\": \"\", \"op_type\": \"Abs\", \"versions\": [1, 6, 13]}");
}

/* Calibrating once, trying other widths without the data: the same file as with it. */
TEST(cli_statistics_are_kept)
{
    make_net_files();
    CHECK_EQ_I64(
        RUN("quantize %s --data npy:%s --save-stats %sseen -o %sq8.onnx", NET, DATA, TMP, TMP), 0);
    CHECK_EQ_I64(RUN("quantize %s --data npy:%s --set A.QUANTIZER.BIT=4 -o %sq4.onnx --json", NET,
                     DATA, TMP),
                 0);
    const double scale = json_number("\"tensor\": \"x\"", "scale_min");
    CHECK_EQ_I64(RUN("quantize %s --stats %sseen --set A.QUANTIZER.BIT=4 -o %sq4s.onnx --json", NET,
                     TMP, TMP),
                 0);
    CHECK(scale > 0.0);
    CHECK_NEAR(json_number("\"tensor\": \"x\"", "scale_min"), scale, 0.0);
    CHECK_EQ_I64(RUN("quantize %s --stats %sseen -o %sq8s.onnx", NET, TMP, TMP), 0);
    CHECK_EQ_I64(RUN("compare %sq8.onnx %sq8s.onnx --data npy:%s --json", TMP, TMP, DATA), 0);
    CHECK_NEAR(json_number("outputs", "max_abs"), 0.0, 0.0);
    CHECK_FAILS(2, "takes the place of --data",
                "quantize %s --data npy:%s --stats %sseen -o %sq.onnx", NET, DATA, TMP, TMP);
    CHECK_FAILS(2, "--save-stats is for what --data shows",
                "quantize %s --save-stats %sx -o %sq.onnx", NET, TMP, TMP);
    CHECK_FAILS(1, "seen2", "quantize %s --stats %sseen2 -o %sq.onnx", NET, TMP, TMP);
    CHECK_EQ_I64(RUN("quantize %s --data npy:%s --calib 5 --save-stats %ss1 -o %sq.onnx", NET, DATA,
                     TMP, TMP), 0);
    CHECK_EQ_I64(RUN("quantize %s --stats %sseen --stats %ss1 --save-stats %sboth -o %sq8j.onnx", NET,
                     TMP, TMP, TMP, TMP), 0);
    CHECK_EQ_I64(RUN("compare %sq8.onnx %sq8j.onnx --data npy:%s --json", TMP, TMP, DATA), 0);
    CHECK_NEAR(json_number("outputs", "max_abs"), 0.0, 0.0); /* the ranges of all of them */
    CHECK_EQ_I64(RUN("quantize %s --stats %ss1 --stats %sseen -o %sq8k.onnx", NET, TMP, TMP, TMP), 0);
    CHECK_EQ_I64(RUN("compare %sq8.onnx %sq8k.onnx --data npy:%s --json", TMP, TMP, DATA), 0);
    CHECK_NEAR(json_number("outputs", "max_abs"), 0.0, 0.0);
    CHECK_EQ_I64(RUN("quantize %s --stats %sboth -o %sq.onnx", NET, TMP, TMP), 0);
}

TEST(cli_strategies)
{
    CHECK_EQ_I64(RUN("strategies --json"), 0);
    CHECK(json_is_one_object(cli.out));
    CHECK_CONTAINS(cli.out, "{\"kind\": \"observer\", \"name\": \"minmax\"");
    CHECK_CONTAINS(
        cli.out,
        "\"path\": \"MOVING_AVERAGE.EMA_RATIO\", \"type\": \"float\", \"default\": \"0.9\"");
    CHECK_EQ_I64(RUN("strategies"), 0);
    CHECK_CONTAINS(cli.out, "tensorrt");
    CHECK_EQ_I64(RUN("help adam"), 0);
    CHECK_CONTAINS(cli.out, "optimizer 'adam'");
    CHECK_FAILS(2, "unknown command 'nonsense'", "help nonsense");
}

/* Weights alone are quantized without running anything: an unknown operator does not matter. */
TEST(cli_weights_alone_need_no_kernels)
{
    make_half_known(TMP "half.onnx");
    CHECK_EQ_I64(
        RUN("quantize %shalf.onnx --set A.QUANTIZER.DISABLE=true -o %sq.onnx --json", TMP, TMP), 0);
    CHECK_CONTAINS(cli.out, "\"target\": \"weight\", \"bits\": 8");
    CHECK_EQ_I64(RUN("info %sq.onnx --json", TMP), 0);
    CHECK_CONTAINS(cli.out, "\"int8\": 16"); /* 12 weights, 4 zero points */
    CHECK_CONTAINS(cli.out, "\"com.acme.Spin\": 1");
}

/* What a file is, and what to do; no word of damage. */
TEST(cli_files_that_are_something_else)
{
    static const struct {
        const char *bytes, *says;
        size_t size;
    } files[] = {{"PK\003\004 and so on ........................", "zip", 40},
                 {"<!DOCTYPE html><html><body>not found</body>", "HTML", 43},
                 {"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git lfs pull", 56}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        put_file(TMP "other.onnx", files[i].bytes, files[i].size);
        CHECK_FAILS(1, files[i].says, "info %sother.onnx", TMP);
        CHECK(strstr(cli.err, "damaged") == NULL);
    }
}
