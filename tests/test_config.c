/* test_config.c: YAML, key tables and the quantization configuration. */
#include "../sparsebit.h"
#include "test.h"

#include "build_graph.h"

static char config_text[4096];
static size_t config_size;

static void config_put(const char *text, size_t size, void *user)
{
    (void)user;
    if (config_size + size < sizeof config_text) {
        memcpy(config_text + config_size, text, size);
        config_size += size;
        config_text[config_size] = '\0';
    }
}

/* A node tree on one line: scalars as they are, quoted ones in '', maps {k=v}, lists [v], null ~ */
static void config_dump(const sbit_yaml *y)
{
    switch (y->kind) {
    case SBIT_YAML_NULL:
        config_put("~", 1, NULL);
        break;
    case SBIT_YAML_SCALAR:
        config_put("'", y->quoted ? 1 : 0, NULL);
        config_put(y->text, strlen(y->text), NULL);
        config_put("'", y->quoted ? 1 : 0, NULL);
        break;
    default:
        config_put(y->kind == SBIT_YAML_MAP ? "{" : "[", 1, NULL);
        for (size_t i = 0; i < y->count; i++) {
            config_put(",", i > 0 ? 1 : 0, NULL);
            if (y->kind == SBIT_YAML_MAP) {
                config_put(y->items[i].key, strlen(y->items[i].key), NULL);
                config_put("=", 1, NULL);
            }
            config_dump(&y->items[i]);
        }
        config_put(y->kind == SBIT_YAML_MAP ? "}" : "]", 1, NULL);
        break;
    }
}

TEST(yaml_reads_what_people_write)
{
    static const struct {
        const char *yaml, *tree;
    } cases[] = {
        {"", "~"},
        {"# nothing\n\n", "~"},
        {"---\na: 1\n", "{a=1}"},
        {"\xef\xbb\xbf"
         "a: 1\r\nb: two words # comment\r\n",
         "{a=1,b=two words}"},
        {"a:\n  b:\n    c: 1\n  d: 2\ne: 3\n", "{a={b={c=1},d=2},e=3}"},
        {"a:\n- 1\n- 2\nb:\n  - x\n  -\n  - y\n", "{a=[1,2],b=[x,~,y]}"},
        {"- a: 1\n  b: 2\n- c\n- - d\n  - e\n", "[{a=1,b=2},c,[d,e]]"},
        {"a: [1, 'b c', \"d\\te\", [x], {y: z}, ]\n", "{a=[1,'b c','d\te',[x],{y=z}]}"},
        {"a: {b: 1,\n    c: [2,   # why\n        3]}\nd: 4\n", "{a={b=1,c=[2,3]},d=4}"},
        {"a: ''\nb: \"\"\nc:\nd: ~\ne: null\nf: 'it''s'\n", "{a='',b='',c=~,d=~,e=~,f='it's'}"},
        {"url: http://x/y#z\ntime: 12:30\n", "{url=http://x/y#z,time=12:30}"},
        {"\"a b\": 1\n'c': 2\n", "{a b=1,c=2}"},
        {"SPECIFIC: [{ \"conv*\": [\"QUANTIZER.BIT\", 8] }]\n",
         "{SPECIFIC=[{conv*=['QUANTIZER.BIT',8]}]}"},
        {"a: \"\\u00e9\\x41\"\n", "{a='\xc3\xa9"
                                  "A'}"},
        {"[{a: 1}, b]\n", "[{a=1},b]"},
        {"- [a: , b]\n", NULL},
        {"plain scalar\n", "plain scalar"},
        {"a: -1\n...\n", "{a=-1}"},
        {"a: {b, c: }\n", NULL}, /* keys of flow maps need a colon here */
    };
    sbit_ctx *ctx = test_ctx();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sbit_yaml_doc *doc = NULL;
        sbit_error error;
        memset(&error, 0, sizeof error);
        const sbit_status status =
            sbit_yaml_parse(ctx, cases[i].yaml, strlen(cases[i].yaml), &doc, &error);
        if (cases[i].tree == NULL) {
            CHECK_STATUS(status, SBIT_ERR_CONFIG, error);
            continue;
        }
        if (CHECK_OK(status, error)) {
            config_size = 0;
            config_text[0] = '\0';
            config_dump(sbit_yaml_root(doc));
            CHECK_STR(config_text, cases[i].tree);
        }
        sbit_yaml_destroy(doc);
    }
    sbit_ctx_destroy(ctx);
}

TEST(yaml_errors_name_line_and_column)
{
    static const struct {
        const char *yaml, *where, *message;
    } cases[] = {
        {"a: &x 1\n", "1:4", "anchors"},
        {"a: 1\nb: *x\n", "2:4", "aliases"},
        {"a: !!int 1\n", "1:4", "tags"},
        {"a: |\n  text\n", "1:4", "block scalars"},
        {"%YAML 1.2\n---\na: 1\n", "1:1", "directives"},
        {"a:\n\tb: 1\n", "2:2", "tab"},
        {"a: 1\na: 2\n", "2:1", "twice"},
        {"a: {b: 1, b: 2}\n", "1:11", "twice"},
        {"a: 1\n---\nb: 2\n", "2:1", "second document"},
        {"a:\n    b: 1\n  c: 2\n", "3:3", "indentation"},
        {"a: 1\n  b: 2\n", "2:3", "indentation"},
        {"a: [1, 2\n", "2:1", "']' is missing"},
        {"a: {b: 1\nc: 2\n", "2:1", "',' or '}' is missing"},
        {"a: 'x\n", "1:6", "quoted scalar must end"},
        {"a: \"\\q\"\n", "1:6", "escape"},
        {"a: 'x' y\n", "1:8", "unexpected text"},
        {"a: b: c\n", "1:5", "second ':'"},
        {"a: - 1\n", "1:4", "list must begin"},
        {"a\nb: 1\n", "2:1", "indentation"},
        {"a: [,]\n", "1:5", "missing before ','"},
        {"a: 1\n- b\n", "2:1", "lists and maps"},
        {"a: [x: 1]\n", "1:6", "braces"},
    };
    sbit_ctx *ctx = test_ctx();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sbit_yaml_doc *doc = NULL;
        sbit_error error;
        memset(&error, 0, sizeof error);
        CHECK_STATUS(sbit_yaml_parse(ctx, cases[i].yaml, strlen(cases[i].yaml), &doc, &error),
                     SBIT_ERR_CONFIG, error);
        CHECK_MSG(strcmp(error.where, cases[i].where) == 0, "case %d (%s): at %s, wanted %s: %s",
                  (int)i, cases[i].yaml, error.where, cases[i].where, error.message);
        CHECK_CONTAINS(error.message, cases[i].message);
        CHECK(doc == NULL);
    }
    sbit_ctx_destroy(ctx);
}

/* Every cut and every flipped bit of a text that uses everything: an error or a tree, no crash. */
TEST(yaml_survives_cuts_and_flips)
{
    static const char text[] = "# all\n---\nW:\n  Q: {a: [1, 'x''y', \"b\\u0041\"], c: }\n  L:\n"
                               "  - - p\n    - q: 1\n      r: ~\nA: plain # c\n...\n";
    char copy[sizeof text];
    sbit_ctx *ctx = test_ctx();
    for (size_t i = 0; i < sizeof text; i++) {
        sbit_yaml_doc *doc = NULL;
        if (sbit_yaml_parse(ctx, text, i, &doc, NULL) == SBIT_OK) {
            sbit_yaml_destroy(doc);
        }
        for (int bit = 0; bit < 8 && i + 1 < sizeof text; bit++) {
            memcpy(copy, text, sizeof text);
            copy[i] = (char)(copy[i] ^ (1 << bit));
            doc = NULL;
            if (sbit_yaml_parse(ctx, copy, sizeof text - 1, &doc, NULL) == SBIT_OK) {
                sbit_yaml_destroy(doc);
            }
        }
    }
    sbit_ctx_destroy(ctx);
}

TEST(yaml_limits_depth_and_size)
{
    static char deep[4096];
    sbit_ctx *ctx = test_ctx();
    sbit_yaml_doc *doc = NULL;
    sbit_error error;
    memset(&error, 0, sizeof error);
    memset(deep, '[', sizeof deep);
    CHECK_STATUS(sbit_yaml_parse(ctx, deep, sizeof deep, &doc, &error), SBIT_ERR_CONFIG, error);
    CHECK_CONTAINS(error.message, "deeply");
    CHECK_STATUS(sbit_yaml_parse(ctx, "a: b\0c", 6, &doc, &error), SBIT_ERR_CONFIG, error);
    char *large = (char *)calloc(1, (size_t)32 << 20);
    CHECK_STATUS(sbit_yaml_parse(ctx, large, (size_t)32 << 20, &doc, &error), SBIT_ERR_LIMIT, error);
    size_t used = 0; /* tables of times have two keys for each layer */
    for (int i = 0; i < 5000; i++) {
        used += (size_t)sprintf(large + used, "key%d: %d\n", i, i);
    }
    if (CHECK_OK(sbit_yaml_parse(ctx, large, used, &doc, &error), error)) {
        CHECK_EQ_I64((int64_t)sbit_yaml_root(doc)->count, 5000);
        CHECK_STR(sbit_yaml_root(doc)->items[4999].key, "key4999");
        sbit_yaml_destroy(doc);
    }
    used += (size_t)sprintf(large + used, "key7: 1\nkey3: 1\n"); /* the first in the text is named */
    CHECK_STATUS(sbit_yaml_parse(ctx, large, used, &doc, &error), SBIT_ERR_CONFIG, error);
    CHECK_CONTAINS(error.message, "5001:1");
    free(large);
    sbit_ctx_destroy(ctx);
}

/* A quoted scalar takes what it is long, not what is left of its line. */
TEST(quoted_scalars_of_one_long_line)
{
    test_heap heap;
    sbit_ctx_desc desc;
    sbit_ctx *ctx = NULL;
    sbit_error error;
    sbit_yaml_doc *doc = NULL;
    memset(&heap, 0, sizeof heap);
    memset(&desc, 0, sizeof desc);
    desc.allocator = test_heap_allocator(&heap);
    if (!CHECK_OK(sbit_ctx_create(&desc, &ctx, &error), error)) {
        return;
    }
    char *text = (char *)malloc(2000 * 32);
    size_t used = (size_t)sprintf(text, "{\"\\\\\": 'it''s ''', ");
    for (int i = 0; i < 2000; i++) {
        used += (size_t)sprintf(text + used, "\"a\\\"%d\": 'v%d', ", i, i);
    }
    used += (size_t)sprintf(text + used, "last: \"\"}");
    if (CHECK_OK(sbit_yaml_parse(ctx, text, used, &doc, &error), error)) {
        CHECK_EQ_I64((int64_t)sbit_yaml_root(doc)->count, 2002);
        CHECK_STR(sbit_yaml_root(doc)->items[0].key, "\\");
        CHECK_STR(sbit_yaml_root(doc)->items[0].text, "it's '");
        CHECK_STR(sbit_yaml_root(doc)->items[2000].key, "a\"1999");
        CHECK_STR(sbit_yaml_root(doc)->items[2001].text, "");
        CHECK_MSG(heap.peak_bytes < (8 << 20), "%lld bytes", (long long)heap.peak_bytes);
        sbit_yaml_destroy(doc);
    }
    CHECK_STATUS(sbit_yaml_parse(ctx, "a: 'it''", 8, &doc, &error), SBIT_ERR_CONFIG, error);
    CHECK_STATUS(sbit_yaml_parse(ctx, "a: \"\\\"", 6, &doc, &error), SBIT_ERR_CONFIG, error);
    CHECK_STATUS(sbit_yaml_parse(ctx, "a: 'b\n'", 8, &doc, &error), SBIT_ERR_CONFIG, error);
    free(text);
    sbit_ctx_destroy(ctx);
    CHECK_EQ_I64(heap.live_bytes, 0);
}

static const char config_minimal[] =
    "BACKEND: virtual\n"
    "W:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER: {TYPE: uniform, BIT: 8}\n"
    "  OBSERVER: {TYPE: MINMAX}\n"
    "A:\n  QSCHEME: per-tensor-affine\n  QUANTIZER: {TYPE: uniform, BIT: 8}\n"
    "  OBSERVER: {TYPE: MINMAX}\n";

static sbit_status config_read(sbit_ctx *ctx, const char *text, sbit_qconfig **out,
                               sbit_error *error)
{
    memset(error, 0, sizeof *error);
    return sbit_qconfig_read(ctx, text, strlen(text), out, error);
}

TEST(qconfig_reads_sparsebit_files)
{
    sbit_ctx *ctx = test_ctx();
    sbit_qconfig *config = NULL;
    sbit_error error;
    if (CHECK_OK(config_read(ctx, config_minimal, &config, &error), error)) {
        CHECK_STR(sbit_qconfig_profile(config)->head.name, "sparsebit");
        sbit_qconfig_destroy(config);
    }
    static const char full[] =
        "BACKEND: virtual\nDEVICE: cuda\nSKIP_TRACE_MODULES: ['head*', \"neck\"]\n"
        "SCHEDULE:\n  FUSE_BN: True\n  BN_TUNING: no\n  DISABLE_UNNECESSARY_QUANT: on\n"
        "W:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER:\n    TYPE: UNIFORM\n    DISABLE: "
        "False\n"
        "    BIT: 4\n  OBSERVER:\n    TYPE: MinMax\n"
        "  SPECIFIC: [{\n    \"conv1\": [\"QUANTIZER.BIT\", 8],\n    \"fc\": [QUANTIZER.BIT, 8, "
        "QUANTIZER.DISABLE, True]\n  }]\n"
        "A:\n  QSCHEME: per-tensor-affine\n  QUANTIZER: {BIT: 4}\n"
        "  OBSERVER: {TYPE: moving-average, MOVING_AVERAGE: {EMA_RATIO: 0.95}, LAYOUT: NLC}\n"
        "  QADD: {ENABLE_QUANT: true}\n  SPECIFIC: [{\"fc\": [\"OBSERVER.LAYOUT\", \"NCHW\"]}]\n";
    if (CHECK_OK(config_read(ctx, full, &config, &error), error)) {
        config_size = 0;
        sbit_qconfig_print(config, true, config_put, NULL);
        CHECK_CONTAINS(config_text, "EMA_RATIO: 0.95");
        CHECK_CONTAINS(config_text, "TYPE: moving_average");
        CHECK_CONTAINS(config_text, "SKIP_TRACE_MODULES: [\"head*\", \"neck\"]");
        sbit_qconfig *again = NULL;
        char first[sizeof config_text];
        memcpy(first, config_text, sizeof first);
        if (CHECK_OK(config_read(ctx, first, &again, &error), error)) {
            config_size = 0;
            sbit_qconfig_print(again, true, config_put, NULL);
            CHECK_STR(config_text, first); /* printing and reading are inverse */
            sbit_qconfig_destroy(again);
        }
        sbit_qconfig_destroy(config);
    }
    static const char later[] = /* strategies of Sparsebit's tree that have no row here yet */
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: adaround, BIT: 4},\n"
        "    OBSERVER: {TYPE: PERCENTILE, PERCENTILE: {ALPHA: 0.01}}}\n"
        "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: pact, BIT: 4, PACT: {ALPHA_VALUE: "
        "10}},\n"
        "    OBSERVER: {TYPE: ACIQ, ACIQ: {DISTRIBUTION: laplace}}}\n";
    if (CHECK_OK(config_read(ctx, later, &config, &error), error)) {
        config_size = 0;
        sbit_qconfig_print(config, true, config_put, NULL);
        CHECK_CONTAINS(config_text, "DISTRIBUTION: LAPLACE");
        sbit_qconfig_destroy(config);
    }
    sbit_ctx_destroy(ctx);
}

TEST(qconfig_errors_name_path_and_place)
{
    static const struct {
        const char *line; /* appended to the minimal file, at the top or below A */
        const char *where;
        const char *part, *part2;
    } cases[] = {
        {"BACKEMD: virtual\n", "10:1", "BACKEMD", "did you mean BACKEND"},
        {"SCHEDULE: {FUSE_BN: maybe}\n", "10:21", "SCHEDULE.FUSE_BN", "true or false"},
        {"  QUANTIZER_: 1\n", "10:3", "A.QUANTIZER_", "unknown key"},
        {"  QADD: {ENABLE: 1}\n", "10:10", "A.QADD.ENABLE", "QADD.ENABLE_QUANT"},
        {"  QADD: 1\n", "10:3", "QADD", "keys are expected"},
        {"  SPECIFIC: [{\"a\": [QUANTIZER.BITS, 8]}]\n", "10:21", "A.QUANTIZER.BITS",
         "A.QUANTIZER.BIT"},
        {"  SPECIFIC: [{\"a\": [QUANTIZER.BIT, 17]}]\n", "10:36", "QUANTIZER.BIT", "0 to 16"},
        {"  SPECIFIC: [{\"a\": [QUANTIZER.BIT]}]\n", "10:20", "SPECIFIC", "[KEY, value"},
        {"  SPECIFIC: 3\n", "10:13", "SPECIFIC", "expected"},
        {"SKIP_TRACE_MODULES: conv\n", "10:21", "SKIP_TRACE_MODULES", "list"},
        {"PLACEMENT: tensort\n", "10:12", "tensort", "tensorrt"},
    };
    sbit_ctx *ctx = test_ctx();
    char text[1024];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sbit_qconfig *config = NULL;
        sbit_error error;
        snprintf(text, sizeof text, "%s%s", config_minimal, cases[i].line);
        CHECK_STATUS(config_read(ctx, text, &config, &error), SBIT_ERR_CONFIG, error);
        CHECK_MSG(strcmp(error.where, cases[i].where) == 0, "case %d: at '%s', wanted '%s': %s",
                  (int)i, error.where, cases[i].where, error.message);
        CHECK_CONTAINS(error.message, cases[i].part);
        CHECK_CONTAINS(error.message, cases[i].part2);
    }
    sbit_ctx_destroy(ctx);
}

TEST(qconfig_checks_types_choices_and_backends)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\nA: {QUANTIZER: {BIT: 8}}\n",
         "A.QSCHEME: must be set"},
        {"W: {QSCHEME: per-channel-symmetric}\nA: {QSCHEME: per-tensor-affine, "
         "QUANTIZER: {BIT: 8}}\n",
         "W.QUANTIZER.BIT: must be set"},
        {"W: {QSCHEME: per-row, QUANTIZER: {BIT: 8}}\n", "'per-row' is not one of"},
        {"W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: eight}}\n", "an integer"},
        {"W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: \"8\"}}\n", "an integer"},
        {"W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8, TYPE: pakt}}\n",
         "'pakt' is not one of uniform"},
        {"W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}, OBSERVER: {TYPE: "
         "moving_average}}\n",
         "'moving_average' is not one of minmax"}, /* activations only */
        {"BACKEND: tensorrt\nW: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
         "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n",
         "BACKEND tensorrt needs"},
        {"BACKEND: onnxruntime\nW: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 4}}\n"
         "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n",
         "W.QUANTIZER.BIT must be 8"},
        {"SCHEDULE: {BN_TUNING: true}\nW: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 8}}\n"
         "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n",
         "per-channel W.QSCHEME"},
        {"W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 1}}\n"
         "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n",
         "2 to 16"},
        {"W: [1]\n", "a map of keys"},
        {"[1, 2]\n", "a map of keys"},
    };
    sbit_ctx *ctx = test_ctx();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sbit_qconfig *config = NULL;
        sbit_error error;
        CHECK_STATUS(config_read(ctx, cases[i].text, &config, &error), SBIT_ERR_CONFIG, error);
        CHECK_CONTAINS(error.message, cases[i].part);
    }
    sbit_ctx_destroy(ctx);
}

TEST(qconfig_flags_win_over_the_file)
{
    sbit_ctx *ctx = test_ctx();
    sbit_qconfig *config = NULL;
    sbit_error error;
    if (CHECK_OK(config_read(ctx, config_minimal, &config, &error), error)) {
        CHECK_OK(sbit_qconfig_set(config, "PLACEMENT", "generic", &error), error);
        CHECK_STR(sbit_qconfig_profile(config)->head.name, "generic");
        CHECK_OK(sbit_qconfig_set(config, "a.quantizer.bit", "4", &error), error);
        CHECK_OK(sbit_qconfig_set(config, "SKIP_TRACE_MODULES", "[a, b]", &error), error);
        CHECK_STATUS(sbit_qconfig_set(config, "A.QUANTIZER.BIT", "99", &error), SBIT_ERR_CONFIG,
                     error);
        CHECK_STATUS(sbit_qconfig_set(config, "A.NO", "1", &error), SBIT_ERR_CONFIG, error);
        config_size = 0;
        sbit_qconfig_print(config, true, config_put, NULL);
        CHECK_CONTAINS(config_text, "A:\n  QSCHEME: per-tensor-affine\n  QUANTIZER:\n    TYPE: "
                                    "uniform\n    BIT: 4\n");
    }
    sbit_qconfig_destroy(config);
    for (size_t i = 0; sbit_profile_at(i) != NULL; i++) { /* every profile's default is valid */
        config = NULL;
        CHECK_OK(sbit_qconfig_create(ctx, sbit_profile_at(i)->head.name, &config, &error), error);
        sbit_qconfig_destroy(config);
    }
    CHECK_STATUS(sbit_qconfig_create(ctx, "nope", &config, &error), SBIT_ERR_NOT_FOUND, error);
    sbit_ctx_destroy(ctx);
}

static const char config_sparse[] =
    "SPARSER: {TYPE: structed, STRATEGY: L1Norm, RATIO: 0.5,\n"
    "          SPECIFIC: [{\"fc\": [RATIO, 0.0], \"conv?\": [TYPE, unstructured, RATIO, 0.25]}]}\n"
    "DEVICE: cuda\n";

static sbit_status sconfig_read(sbit_ctx *ctx, const char *text, sbit_sconfig **out,
                                sbit_error *error)
{
    memset(error, 0, sizeof *error);
    return sbit_sconfig_read(ctx, text, strlen(text), out, error);
}

TEST(sconfig_gives_every_layer_its_settings)
{
    static const struct {
        const char *layer;
        bool structured;
        double ratio;
    } want[] = {{"fc", true, 0.0}, {"conv1", false, 0.25}, {"other", true, 0.5}};
    build b;
    sbit_sconfig *config = NULL;
    build_begin(&b, 17);
    sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4");
    if (!b.failed && CHECK_OK(sconfig_read(b.ctx, config_sparse, &config, &b.error), b.error)) {
        for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
            sbit_sparse_settings got;
            build_node(&b, "Relu", want[i].layer, &x, 1, NULL, 0);
            sbit_node_id node = sbit_graph_first(b.graph);
            while (sbit_graph_next(b.graph, node).idx != 0) {
                node = sbit_graph_next(b.graph, node);
            }
            CHECK_OK(sbit_sconfig_layer(config, b.graph, node, &got, &b.error), b.error);
            CHECK_MSG(got.structured == want[i].structured && got.ratio == want[i].ratio &&
                          strcmp(got.strategy, "l1norm") == 0,
                      "%s: structured %d, ratio %g, %s", want[i].layer, (int)got.structured,
                      got.ratio, got.strategy);
        }
        CHECK_EQ_I64(b.warnings, 0);
        CHECK_OK(sbit_sconfig_set(config, "sparser.ratio", "0.75", &b.error), b.error);
        CHECK_STATUS(sbit_sconfig_set(config, "SPARSER.TYPE", "l1norm", &b.error), SBIT_ERR_CONFIG,
                     b.error); /* a strategy twice */
        config_size = 0;
        sbit_sconfig_print(config, true, config_put, NULL);
        CHECK_STR(
            config_text,
            "DEVICE: \"cuda\"\nSPARSER:\n  TYPE: structed\n  STRATEGY: l1norm\n  RATIO: 0.75\n"
            "  SPECIFIC: [{\"fc\": [RATIO, 0.0], \"conv?\": [TYPE, unstructured, RATIO, 0.25]}]\n");
    }
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* The order of Sparsebit's seed document, which its own code refuses. */
TEST(sconfig_takes_type_and_strategy_in_either_order)
{
    build b;
    sbit_sconfig *config = NULL;
    sbit_sparse_settings got;
    build_begin(&b, 17);
    sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4");
    build_node(&b, "Relu", "a", &x, 1, NULL, 0);
    if (!b.failed &&
        CHECK_OK(sconfig_read(b.ctx, "SPARSER: {TYPE: l1norm, STRATEGY: structured, RATIO: 0.5}\n",
                              &config, &b.error),
                 b.error)) {
        CHECK_EQ_I64(b.warnings, 1);
        CHECK_CONTAINS(b.warning, "wrong way round");
        CHECK_OK(sbit_sconfig_layer(config, b.graph, sbit_graph_first(b.graph), &got, &b.error),
                 b.error);
        CHECK(got.structured && got.ratio == 0.5);
        CHECK_STR(got.strategy, "l1norm");
    }
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* Lists of NNI and torch: what each of these layers gets. The last entry that matches counts. */
TEST(lists_of_other_tools_are_read)
{
    static const struct {
        const char *op, *name;
    } layers[] = {{"Conv", "conv1"}, {"Conv", "blocks.3.conv"}, {"Gemm", "blocks.3.fc"}, {"Gemm", "head"}};
    static const struct {
        const char *text;
        double ratios[4];
        const char *settings; /* of the last layer: structured, strategy, scope, max, block, n of m */
    } cases[] = {
        {"- op_types: [Conv2d]\n  sparsity: 0.5\n- op_names: [conv1]\n  exclude: true\n",
         {0, 0.5, 0, 0},
         "1 l1norm 0 0.99 0x0 0:0"},
        {"- {op_types: [default], sparsity: 0.5}\n- {op_types: [Linear], op_names: [head, conv1], sparsity: 0.25}\n",
         {0.5, 0.5, 0.5, 0.25},
         "1 l1norm 0 0.99 0x0 0:0"},
        {"pruner: FPGMPruner\nconfig_list: [{op_partial_names: [blocks], total_sparsity: 0.4, max_sparsity_per_layer: "
         "0.8},\n {op_names: [head], sparsity_per_layer: 0.1}]\n",
         {0, 0.4, 0.4, 0.1},
         "1 fpgm 0 0.99 0x0 0:0"},
        {"pruner: LevelPruner\nconfig_list:\n- {op_names_re: ['.*\\.[fc]+$', 'h[^x]ad|none'], sparse_ratio: 0.9, "
         "max_sparse_ratio: 0.7, exclude_op_types: [Conv2d], granularity: [1, 4], global_group_id: a}\n",
         {0, 0, 0.7, 0.7},
         "0 level 1 0.7 1x4 0:0"},
        {"- op_types: [Conv2d, Linear]\n  exclude_op_names: [head]\n  target_settings: {weight: {sparse_ratio: 0.3, "
         "granularity: out_channel, align: {module_name: null, target_name: bias, dims: [0]}}}\n",
         {0.3, 0.3, 0.3, 0},
         "1 l1norm 0 0.99 0x0 0:0"},
        {"- {tensor_fqn: conv1.weight, sparsity_level: 0.2}\n- {tensor_fqn: head, sparsity_level: 1.0, "
         "sparse_block_shape: [1, 4], zeros_per_block: 2}\n",
         {0.2, 0, 0, 1},
         "0 l1norm 0 0.99 0x0 2:4"},
        {"- {tensor_fqn: head, sparsity_level: 0.5, semi_structured_block_size: 8, norm: 2}\n",
         {0, 0, 0, 0.5},
         "0 l2norm 0 0.99 0x0 4:8"},
        {"- {op_names: [head], sparse_threshold: 0.5, granularity: in_channel}\n",
         {0, 0, 0, 0},
         "0 l1norm 0 0.99 -1x1x-1 0:0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build b;
        sbit_sconfig *config = NULL;
        build_begin(&b, 17);
        sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4");
        for (size_t k = 0; k < 4; k++) {
            build_node(&b, layers[k].op, layers[k].name, &x, 1, NULL, 0);
        }
        if (!b.failed && CHECK_OK(sconfig_read(b.ctx, cases[i].text, &config, &b.error), b.error)) {
            sbit_node_id node = sbit_graph_first(b.graph);
            for (size_t k = 0; k < 4; k++, node = sbit_graph_next(b.graph, node)) {
                sbit_sparse_settings got;
                char text[100];
                CHECK_OK(sbit_sconfig_layer(config, b.graph, node, &got, &b.error), b.error);
                CHECK_MSG(got.ratio == cases[i].ratios[k] && (got.ratio == 0.0 || got.from[0] != '\0'),
                          "case %d, %s: ratio %g by '%s'", (int)i, layers[k].name, got.ratio, got.from);
                snprintf(text, sizeof text, "%d %s %d %g %dx%d%s %d:%d", (int)got.structured, got.strategy,
                         (int)got.whole_model, got.max_ratio, (int)got.block[0], (int)got.block[1],
                         got.block[2] == -1 ? "x-1" : "", (int)got.n_of_m[0], (int)got.n_of_m[1]);
                if (k == 3) {
                    CHECK_STR(text, cases[i].settings);
                }
            }
        }
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

/* Keys of NNI that say how, not how much. */
TEST(nni_rounding_and_least_ratios)
{
    static const struct {
        const char *text;
        double ratio;
        int64_t align;
    } cases[] = {
        {"- {op_types: [Linear], sparsity: 0.5, preserve_round: 8}\n", 0.5, 8},
        {"- {op_types: [Linear], sparse_ratio: 0.1, min_sparse_ratio: 0.25}\n", 0.25, 1},
        {"- {op_types: [Linear], sparse_ratio: 0.5, min_sparse_ratio: 0.25, dependency_group_id: a, internal_metric_block: 2}\n", 0.5, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build b;
        sbit_sconfig *config = NULL;
        sbit_sparse_settings got;
        build_begin(&b, 17);
        sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4");
        build_node(&b, "Gemm", "head", &x, 1, NULL, 0);
        if (!b.failed && CHECK_OK(sconfig_read(b.ctx, cases[i].text, &config, &b.error), b.error)) {
            CHECK_OK(sbit_sconfig_layer(config, b.graph, sbit_graph_first(b.graph), &got, &b.error), b.error);
            CHECK_MSG(got.ratio == cases[i].ratio && got.align == cases[i].align, "case %d: %g, %d", (int)i, got.ratio, (int)got.align);
        }
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

/* Names that are to be left out are the model's; an & in a name is no joint. */
TEST(exclusions_that_leave_out_nothing_are_told)
{
    static const struct {
        const char *text, *warning;
        double ratio;
    } cases[] = {
        {"- {op_names_re: ['.*'], sparsity: 0.5, exclude_op_names_re: ['haed.*']}\n", "'!re:haed.*' in", 0.5},
        {"- {op_names_re: ['.*'], sparsity: 0.5, exclude_op_names: [bead]}\n", "leaves out no layer", 0.5},
        {"- {op_types: [Linear], sparsity: 0.5, exclude_op_names_re: ['h[a-z]*']}\n", "", 0.0},
        {"- {op_types: [Linear], sparsity: 0.5, exclude_op_names: ['a&b']}\n", "", 0.5},
        {"- {op_names: ['a&b'], sparsity: 0.5}\n- {op_names: [head], sparsity: 0.25}\n", "", 0.25},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build b;
        sbit_sconfig *config = NULL;
        sbit_sparse *sparse = NULL;
        sbit_sparse_layer layer;
        build_begin(&b, 17);
        sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4");
        x = build_binary(&b, "Gemm", "a&b", x, build_weights(&b, "a&b.weight", "4,4", 1));
        build_output(&b, build_binary(&b, "Gemm", "head", x, build_weights(&b, "head.weight", "4,4", 2)));
        if (!b.failed && CHECK_OK(sconfig_read(b.ctx, cases[i].text, &config, &b.error), b.error) &&
            CHECK_OK(sbit_sparse_create(b.graph, config, &sparse, &b.error), b.error)) {
            CHECK_OK(sbit_sparse_layer_at(sparse, 1, &layer), b.error);
            CHECK_NEAR(layer.settings.ratio, cases[i].ratio, 0);
            CHECK_CONTAINS(b.warning, cases[i].warning);
            CHECK(cases[i].warning[0] != '\0' || strstr(b.warning, "leaves") == NULL);
            CHECK_OK(sbit_sparse_layer_at(sparse, 0, &layer), b.error);
            CHECK_NEAR(layer.settings.ratio, i == 3 ? 0.0 : 0.5, 0);
        }
        sbit_sparse_destroy(sparse);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

TEST(mistakes_in_lists_of_other_tools_are_named)
{
    static const struct {
        const char *text, *where, *part;
    } cases[] = {
        {"- {op_types: [Conv2d], sparsty: 0.5}\n", "1:24", "unknown key; did you mean"},
        {"- {op_types: [Conv2d], sparsity: 1.5}\n", "1:34", "must be in 0 to 1"},
        {"- {op_types: [Conv9d], sparsity: 0.5}\n", "1:3", "'Conv9d' is no module"},
        {"- {sparsity: 0.5}\n", "1:3", "which layers?"},
        {"- {op_names: [a]}\n", "1:3", "how much is to go?"},
        {"- {op_names: [a], granularity: [1, 4]}\n", "1:3", "how much is to go?"},
        {"- {op_names: [a], max_sparse_ratio: 0.5, norm: 2}\n", "1:3", "how much is to go?"},
        {"- {op_names: [a], exclude: false}\n", "1:3", "how much is to go?"},
        {"- {op_names: [a], sparsity: 0.5, exclude_op_types: [Conv9d]}\n", "1:3", "'Conv9d' is no module"},
        {"- {op_types: [Linear], sparsity: 0.5, exclude_op_names_re: ['(a|b)']}\n", "1:3", "groups, counts"},
        {"- {op_names_re: ['(a|b)'], sparsity: 0.5}\n", "1:3", "groups, counts"},
        {"- {op_names: [a], sparse_ratio: 0.5, granularity: often}\n", "1:51", "default, out_channel"},
        {"- {op_names: [a], sparse_ratio: 0.5, granularity: [1, 0]}\n", "1:51", "[rows, columns]"},
        {"- {op_names: [a], sparse_ratio: 0.5, target_names: [_input_]}\n", "1:3", "only weight and bias"},
        {"- {op_names: [a], sparse_ratio: 0.5, apply_method: add}\n", "1:52", "'add' is not one of mul"},
        {"pruner: MagicPruner\nconfig_list: [{op_names: [a], sparsity: 0.5}]\n", "1:9", "no such pruner"},
        {"prune: LevelPruner\nconfig_list: [{op_names: [a], sparsity: 0.5}]\n", "1:8", "unknown key"},
        {"config_list: []\n", "1:14", "a list of maps"},
        {"- 5\n", "1:3", "a list of maps"},
    };
    sbit_ctx *ctx = test_ctx();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sbit_sconfig *config = NULL;
        sbit_error error;
        CHECK_STATUS(sconfig_read(ctx, cases[i].text, &config, &error), SBIT_ERR_CONFIG, error);
        CHECK_MSG(strcmp(error.where, cases[i].where) == 0, "case %d: at '%s', wanted '%s': %s",
                  (int)i, error.where, cases[i].where, error.message);
        CHECK_CONTAINS(error.message, cases[i].part);
    }
    sbit_ctx_destroy(ctx);
}

TEST(sconfig_errors_name_path_and_place)
{
    static const struct {
        const char *text, *where, *part;
    } cases[] = {
        {"SPARSER: {TYPE: structed, STRATEGY: l1norm, RATIO: 1.5}\n", "1:52", "SPARSER.RATIO"},
        {"SPARSER: {TYPE: structed, STRATEGY: l1norm, RATIO: -0.1}\n", "1:52", "0 to 1"},
        {"SPARSER: {TYPE: structed, STRATEGY: l1norm, RATIO: half}\n", "1:52", "a number"},
        {"SPARSER: {TYPE: structed, STRATEGY: l7norm}\n", "1:37", "'l7norm' is not one of"},
        {"SPARSER: {TYPE: structed, STRATEGY: unstructured}\n", "1:37", "must be a strategy"},
        {"SPARSER: {TYPE: l1norm, STRATEGY: l1norm}\n", "1:17", "must be structured"},
        {"SPARSER: {TYPE: structed, STRATEGY: l1norm, RATIOS: 0.5}\n", "1:45",
         "SPARSER.RATIOS: unknown key; did you mean SPARSER.RATIO?"},
        {"SPARSE: {TYPE: structed}\n", "1:1", "SPARSE: unknown key; did you mean SPARSER?"},
        {"SPARSER: {STRATEGY: l1norm}\n", "", "SPARSER.TYPE: must be set"},
        {"SPARSER: {TYPE: structed}\n", "", "SPARSER.STRATEGY: must be set"},
        {"", "", "SPARSER.TYPE: must be set"},
        {"SPARSER: {TYPE: structed, STRATEGY: l1norm, SPECIFIC: [{fc: [RATIO, 2]}]}\n", "1:69",
         "SPARSER.RATIO: must be in 0 to 1"},
        {"SPARSER: {TYPE: structed, STRATEGY: l1norm, SPECIFIC: [{fc: [TYPE, l1norm]}]}\n", "1:68",
         "SPARSER.TYPE: must be structured"},
    };
    sbit_ctx *ctx = test_ctx();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sbit_sconfig *config = NULL;
        sbit_error error;
        CHECK_STATUS(sconfig_read(ctx, cases[i].text, &config, &error), SBIT_ERR_CONFIG, error);
        CHECK_MSG(strcmp(error.where, cases[i].where) == 0, "case %d: at '%s', wanted '%s': %s",
                  (int)i, error.where, cases[i].where, error.message);
        CHECK_CONTAINS(error.message, cases[i].part);
    }
    sbit_ctx_destroy(ctx);
}

TEST(configurations_load_from_files)
{
    sbit_ctx *ctx = test_ctx();
    sbit_sconfig *sparse = NULL;
    sbit_qconfig *config = NULL;
    sbit_error error;
    char path[400];
    test_tmp_path("config.yaml", path, sizeof path);
    const char *const texts[] = {config_sparse, config_minimal};
    for (size_t i = 0; i < 2; i++) {
        FILE *file = fopen(path, "wb");
        if (CHECK(file != NULL)) {
            fputs(texts[i], file);
            fclose(file);
        }
        const sbit_status status = i == 0 ? sbit_sconfig_load(ctx, path, &sparse, &error)
                                          : sbit_qconfig_load(ctx, path, &config, &error);
        CHECK_OK(status, error);
    }
    sbit_sconfig_destroy(sparse);
    sbit_qconfig_destroy(config);
    remove(path);
    CHECK_STATUS(sbit_sconfig_load(ctx, path, &sparse, &error), SBIT_ERR_IO, error);
    CHECK_CONTAINS(error.message, "config.yaml");
    CHECK_STATUS(sbit_qconfig_load(ctx, path, NULL, &error), SBIT_ERR_IO, error);
    CHECK_STATUS(sbit_sconfig_load(ctx, NULL, &sparse, &error), SBIT_ERR_INVALID_ARGUMENT, error);
    CHECK_STATUS(sbit_sconfig_read(ctx, "", 0, NULL, &error), SBIT_ERR_INVALID_ARGUMENT, error);
    sbit_ctx_destroy(ctx);
}

TEST(configurations_survive_failing_allocations)
{
    for (int64_t n = 1;; n++) {
        test_heap heap;
        sbit_ctx_desc desc;
        sbit_ctx *ctx = NULL;
        memset(&heap, 0, sizeof heap);
        memset(&desc, 0, sizeof desc);
        heap.fail_at = n;
        desc.allocator = test_heap_allocator(&heap);
        if (sbit_ctx_create(&desc, &ctx, NULL) == SBIT_OK) {
            sbit_qconfig *config = NULL;
            sbit_error error;
            sbit_sconfig *sparse = NULL;
            sbit_status status = config_read(ctx, config_minimal, &config, &error);
            CHECK(status == SBIT_OK || status == SBIT_ERR_OUT_OF_MEMORY);
            if (status == SBIT_OK) {
                status =
                    sbit_qconfig_set(config, "W.SPECIFIC", "[{a: [QUANTIZER.BIT, 4]}]", &error);
                CHECK(status == SBIT_OK || status == SBIT_ERR_OUT_OF_MEMORY);
            }
            status = sconfig_read(ctx, config_sparse, &sparse, &error);
            CHECK(status == SBIT_OK || status == SBIT_ERR_OUT_OF_MEMORY);
            sbit_qconfig_destroy(config);
            sbit_sconfig_destroy(sparse);
            sbit_ctx_destroy(ctx);
        }
        CHECK_EQ_I64(heap.live_bytes, 0);
        if (heap.count < n) {
            break;
        }
    }
}
