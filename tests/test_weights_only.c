/* test_weights_only.c: weights are quantized in models that this build cannot run. */
#include "../sparsebit.h"
#include "test.h"
#include "build_graph.h"
#include "model_text.h"

/* Quantizes with these keys; NULL: refused with `status`. Free with sbit_graph_destroy. */
static void weights_only(const char *model, const char *key, const char *value, sbit_status status,
                         const char *ops)
{
    build b;
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_graph *built = NULL;
    model_bytes bytes;
    char text[400] = "";
    build_begin(&b, 17);
    sbit_graph_destroy(b.graph);
    b.graph = model_graph(b.ctx, model, &bytes, &b.error);
    CHECK_OK(sbit_qconfig_create(b.ctx, "onnxruntime", &config, &b.error), b.error);
    CHECK(key == NULL || CHECK_OK(sbit_qconfig_set(config, key, value, &b.error), b.error));
    const sbit_status made = sbit_quant_create(b.graph, config, &quant, &b.error);
    if (made == SBIT_OK) {
        CHECK(!sbit_quant_needs_data(quant));
        CHECK_OK(sbit_quant_prepare_calibration(quant, &b.error), b.error);
        CHECK_OK(sbit_quant_calc_qparams(quant, false, false, false, &b.error), b.error);
        CHECK_OK(sbit_quant_build(quant, NULL, &built, &b.error), b.error);
    }
    CHECK_STATUS(made, status, b.error);
    for (sbit_node_id id = built != NULL ? sbit_graph_first(built) : (sbit_node_id){0}; id.idx != 0;
         id = sbit_graph_next(built, id)) {
        const sbit_node *node = sbit_graph_node(built, id);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s ", node->op_type);
        if (strcmp(node->op_type, "DequantizeLinear") == 0) {
            const sbit_value_info *q = sbit_graph_value(built, node->inputs[0]);
            CHECK(q->is_constant && q->constant.dtype == SBIT_I8);
        }
    }
    if (status == SBIT_OK) {
        CHECK_STR(text, ops);
    } else {
        CHECK_CONTAINS(b.error.message, ops);
    }
    sbit_graph_destroy(built);
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    build_end(&b);
    free(bytes.data);
}

#define HEAD "opset 17\nopset 1 com.acme\nin x f32 N,4\nc w f32 4,4 = 0.5 -1 0.25 2 0.1\n"

TEST(weights_around_an_unknown_operator_become_integers)
{
    static const char in_the_middle[] =
        HEAD "MatMul x,w -> a\ncom.acme:Magic a -> b magic k=2\nMatMul b,w -> y\nout y f32 ...\n";
    static const char in_a_body[] =
        "graph yes\ncom.acme:Magic x -> a\nMatMul a,w -> b\nout b f32 ...\nend\n"
        "graph no\nMatMul x,w -> c\nout c f32 ...\nend\n" HEAD "in k bool\nMatMul x,w -> d\n"
        "If k -> e then_branch=@yes else_branch=@no\nAdd d,e -> y\nout y f32 ...\n";
    weights_only(in_the_middle, "A.QUANTIZER.DISABLE", "true", SBIT_OK,
                 "DequantizeLinear MatMul Magic MatMul ");
    weights_only(in_a_body, "A.QUANTIZER.DISABLE", "true", SBIT_OK,
                 "DequantizeLinear MatMul If Add ");
    weights_only(in_the_middle, NULL, NULL, SBIT_ERR_UNSUPPORTED, "com.acme.Magic");
}

/* An operator of a known name whose version or element type has no kernel. */
TEST(weights_around_a_known_operator_without_a_kernel_become_integers)
{
    weights_only(
        "opset 17\nin x f32 N,4\nc w f32 4,4 = 0.5 -1 0.25 2 0.1\nMatMul x,w -> a\nGelu a -> b\n"
        "MatMul b,w -> y\nout y f32 ...\n",
        "A.QUANTIZER.DISABLE", "true", SBIT_OK, "DequantizeLinear MatMul Gelu MatMul ");
}

/* 60 nodes of two operators are two entries; nothing is cut without saying so. */
TEST(what_cannot_run_is_listed_by_operator)
{
    char text[8000] = "opset 17\nopset 3 com.acme\nin x f32 4\n";
    for (int i = 0; i < 60; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "com.acme:%s x -> v%d node%d\n",
                 i % 3 == 0 ? "Magic" : "Other", i, i);
    }
    for (int kinds = 0; kinds < 2; kinds++) {
        sbit_ctx *ctx = test_ctx();
        sbit_error error;
        model_bytes bytes;
        sbit_session *session = NULL;
        for (int i = 0; kinds == 1 && i < 20; i++) {
            snprintf(text + strlen(text), sizeof text - strlen(text),
                     "com.acme:AnOperatorWithALongName%d x -> w%d\n", i, i);
        }
        strcat(text, "Relu x -> y\n");
        for (int i = 0; i < 60; i++) {
            snprintf(text + strlen(text), sizeof text - strlen(text), "out v%d ?\n", i);
        }
        for (int i = 0; kinds == 1 && i < 20; i++) {
            snprintf(text + strlen(text), sizeof text - strlen(text), "out w%d ?\n", i);
        }
        sbit_graph *graph = model_graph(ctx, text, &bytes, &error);
        CHECK_STATUS(sbit_session_create(graph, NULL, &session, &error), SBIT_ERR_UNSUPPORTED,
                     error);
        CHECK_CONTAINS(error.message, kinds == 0 ? "60 nodes" : "80 nodes");
        CHECK_CONTAINS(error.message,
                       "com.acme.Magic-3: no such operator (20: 'node0', 'node3', 'node6' ...)");
        CHECK_CONTAINS(error.message,
                       "com.acme.Other-3: no such operator (40: 'node1', 'node2', 'node4' ...)");
        CHECK((strstr(error.message, "and more") != NULL) == (kinds == 1));
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(ctx);
        free(bytes.data);
        text[strstr(text, "Relu x") - text] = '\0';
    }
}
