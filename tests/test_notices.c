/* test_notices.c: what is likely a mistake in a model is said when it is loaded; axes that cannot
 * be are errors of inference, before anything runs. */
#include "../sparsebit.h"
#include "test.h"
#include "build_graph.h"
#include "model_text.h"

/* All warnings of loading (and inferring) a model, joined. */
static void notices_log(sbit_log_level level, const char *message, void *user)
{
    char *text = (char *)user;
    if (level == SBIT_LOG_WARNING) {
        snprintf(text + strlen(text), 2000 - strlen(text), "%s\n", message);
    }
}

static int notices_of(const char *model, char *text)
{
    sbit_ctx_desc desc = test_ctx_desc();
    sbit_ctx *ctx = NULL;
    sbit_error error;
    model_bytes bytes;
    int count = 0;
    text[0] = '\0';
    desc.logger.log_fn = notices_log;
    desc.logger.user = text;
    CHECK_OK(sbit_ctx_create(&desc, &ctx, &error), error);
    sbit_graph *graph = model_graph(ctx, model, &bytes, &error);
    for (const char *at = text; *at != '\0'; at++) {
        count += *at == '\n';
    }
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    free(bytes.data);
    return count;
}

TEST(likely_mistakes_are_said_at_load)
{
    static const struct {
        const char *model, *parts[3];
    } cases[] = {
        {"opset 13\nc q i32 2 = 1 2\nc s f32  = 0.5\nc z i32  = 3\nDequantizeLinear q,s,z -> y "
         "deq\n"
         "out y f32 2\n",
         {"DequantizeLinear 'deq'", "int32", "zero point"}},
        {"opset 10\nin q u8 2,3\nc s f32  = 0.5\nc z u8  = 3\nDequantizeLinear q,s,z -> y deq "
         "axis=0\n"
         "out y f32 2,3\n",
         {"DequantizeLinear 'deq'", "axis", "13"}},
        {"opset 12\nin x f32 2,3\nc s f32  = 0.5\nc z u8  = 3\nQuantizeLinear x,s,z -> y qu "
         "axis=0\n"
         "out y u8 2,3\n",
         {"QuantizeLinear 'qu'", "axis", "13"}},
        {"opset 13\nin x f32 1,1,4,4\nc s f32 4 = 1 1 2 2\nc z i64 4 = 1 1 8 8\n"
         "Resize x,-,s,z -> y rs\nout y f32 ...\n",
         {"Resize 'rs'", "scales", "sizes"}},
        {"opset 13\nin x f32 4,4\nc b i64 2 = 0 1\nc e i64 2 = 3 4\nc a i64 2 = 1 1\n"
         "Slice x,b,e,a -> y sl\nout y f32 ...\n",
         {"Slice 'sl'", "axis 1", "twice"}},
        {"opset 13\nin x f32 4,4\nc b i64 2 = 0 1\nc e i64 2 = 3 4\nc a i64 2 = 1 -1\n"
         "Slice x,b,e,a -> y sl\nout y f32 ...\n",
         {"Slice 'sl'", "axis 1", "twice"}},
        {"opset 9\nin x f32 4,4\nSlice x -> y sl starts=[0,1] ends=[3,4] axes=[0,0]\nout y f32 "
         "...\n",
         {"Slice 'sl'", "axis 0", "twice"}},
        {"opset 99\nin x f32 4\nRelu x -> y\nout y f32 4\n", {"opset 99", "newer", NULL}},
        {"ir 40\nopset 17\nin x f32 4\nRelu x -> y\nout y f32 4\n",
         {"IR version 40", "newer", NULL}},
        /* in a body */
        {"graph yes\nDequantizeLinear q,s,z -> a deq\nout a f32 2\nend\ngraph no\nIdentity x -> b\n"
         "out b f32 2\nend\nopset 13\nin x f32 2\nin k bool\nc q i32 2 = 1 2\nc s f32  = 0.5\n"
         "c z i32  = 3\nIf k -> y then_branch=@yes else_branch=@no\nout y f32 2\n",
         {"DequantizeLinear 'deq'", "int32", "zero point"}},
    };
    char text[2000];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_MSG(notices_of(cases[i].model, text) == 1, "not one warning for %s: %s",
                  cases[i].model, text);
        for (int k = 0; k < 3 && cases[i].parts[k] != NULL; k++) {
            CHECK_CONTAINS(text, cases[i].parts[k]);
        }
    }
}

TEST(what_is_right_says_nothing)
{
    static const char *const models[] = {
        "opset 13\nc q i32 2 = 1 2\nc s f32  = 0.5\nc z i32  = 0\nDequantizeLinear q,s,z -> y\n"
        "out y f32 2\n", /* written out, and without effect */
        "opset 13\nin x f32 2,3\nc s f32 2 = 0.5 1\nc z u8 2 = 3\nQuantizeLinear x,s,z -> y "
        "axis=0\n"
        "out y u8 2,3\n",
        "opset 11\nin x f32 1,1,4,4\nc r f32 0 = 0\nc s f32 0 = 0\nc z i64 4 = 1 1 8 8\n"
        "Resize x,r,s,z -> y\nout y f32 ...\n",
        "opset 13\nin x f32 4,4\nc b i64 2 = 0 1\nc e i64 2 = 3 4\nc a i64 2 = 0 -1\n"
        "Slice x,b,e,a -> y\nout y f32 ...\n",
        "opset 23\nin x f32 4\nRelu x -> y\nout y f32 4\n",
    };
    char text[2000];
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        CHECK_MSG(notices_of(models[i], text) == 0, "%s: %s", models[i], text);
    }
}

TEST(many_of_a_kind_are_one_warning)
{
    char model[4000] = "opset 13\nc q i32 2 = 1 2\nc s f32  = 0.5\nc z i32  = 3\n", text[2000];
    for (int i = 0; i < 40; i++) {
        snprintf(model + strlen(model), sizeof model - strlen(model),
                 "DequantizeLinear q,s,z -> v%d deq%d\nout v%d f32 2\n", i, i, i);
    }
    CHECK_EQ_I64(notices_of(model, text), 1);
    CHECK_CONTAINS(text, "'deq0'");
    CHECK_CONTAINS(text, "and 39 more");
}

/* Axes and numbers of scales of Q/DQ are checked where shapes are known. */
TEST(axes_of_quantizers_are_checked_by_inference)
{
    static const struct {
        const char *model;
        sbit_status status;
        const char *part;
    } cases[] = {
        {"opset 13\nin x f32 2,3\nc s f32 3 = 1\nc z u8 3 = 0\nQuantizeLinear x,s,z -> y qu "
         "axis=5\n",
         SBIT_ERR_SHAPE, "axis"},
        {"opset 13\nin x f32 2,3\nc s f32 3 = 1\nc z u8 3 = 0\nQuantizeLinear x,s,z -> y qu "
         "axis=-3\n",
         SBIT_ERR_SHAPE, "axis"},
        {"opset 13\nc q i8 2,3 = 1\nc s f32 3 = 1\nDequantizeLinear q,s -> y qu axis=2\n",
         SBIT_ERR_SHAPE, "axis"},
        {"opset 13\nin q i8 2,3\nc s f32 4 = 1\nDequantizeLinear q,s -> y qu axis=1\n",
         SBIT_ERR_SHAPE, "4 scales"},
        {"opset 21\nin q i8 2,3\nc s f32 1,3 = 1\nDequantizeLinear q,s -> y qu axis=7 "
         "block_size=2\n",
         SBIT_ERR_SHAPE, "axis"},
        {"opset 13\nin q i8 2,3\nc s f32  = 1\nDequantizeLinear q,s -> y qu axis=7\n", SBIT_OK,
         NULL},
        {"opset 13\nin q i8 2,3\nc s f32 1 = 1\nDequantizeLinear q,s -> y qu axis=7\n", SBIT_OK,
         NULL},
        {"opset 13\nin q i8 2,N\nc s f32 4 = 1\nDequantizeLinear q,s -> y qu axis=1\n", SBIT_OK,
         NULL},
        {"opset 13\nin q i8 ...\nc s f32 4 = 1\nDequantizeLinear q,s -> y qu axis=9\n", SBIT_OK,
         NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[600];
        sbit_ctx *ctx = test_ctx();
        sbit_error error;
        model_bytes bytes;
        memset(&error, 0, sizeof error);
        snprintf(text, sizeof text, "%sout y ?\n", cases[i].model);
        sbit_graph *graph = model_graph(ctx, text, &bytes, &error);
        const sbit_status status = sbit_infer(graph, &error);
        CHECK_MSG(status == cases[i].status || (status != SBIT_OK && cases[i].status != SBIT_OK),
                  "status %d, wanted %d for %s", (int)status, (int)cases[i].status, text);
        if (cases[i].part != NULL) {
            CHECK_CONTAINS(error.message, cases[i].part);
            CHECK_CONTAINS(error.message, "'qu'");
        }
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(ctx);
        free(bytes.data);
    }
}
