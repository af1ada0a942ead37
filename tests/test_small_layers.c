/* test_small_layers.c: EXPORT.SMALLEST_WEIGHT leaves layers float whose weights are too small to
 * gain. */
#include "../sparsebit.h"
#include "test.h"
#include "build_graph.h"

/* x -> MatMul 8x8 (64 elements) -> MatMul 8x64 (512) -> MatMul 64x2 (128) */
static void small_layers(const char *threshold, const char *ops)
{
    build b;
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_graph *built = NULL;
    static float x[32];
    char text[300] = "";
    for (int i = 0; i < 32; i++) {
        x[i] = (float)(i % 7) - 3.0f;
    }
    const sbit_tensor data = build_tensor(SBIT_F32, "4,8", x);
    build_begin(&b, 17);
    sbit_value_id v = build_input(&b, "x", SBIT_F32, "N,8");
    v = build_binary(&b, "MatMul", "a", v, build_weights(&b, "w1", "8,8", 1));
    v = build_binary(&b, "MatMul", "b", v, build_weights(&b, "w2", "8,64", 2));
    v = build_binary(&b, "MatMul", "c", v, build_weights(&b, "w3", "64,2", 3));
    build_output(&b, v);
    CHECK_OK(sbit_qconfig_create(b.ctx, "sparsebit", &config, &b.error), b.error);
    CHECK(
        threshold == NULL ||
        CHECK_OK(sbit_qconfig_set(config, "EXPORT.SMALLEST_WEIGHT", threshold, &b.error), b.error));
    if (CHECK_OK(sbit_quant_create(b.graph, config, &quant, &b.error), b.error)) {
        CHECK_OK(sbit_quant_prepare_calibration(quant, &b.error), b.error);
        CHECK_OK(sbit_quant_forward(quant, NULL, &data, 1, &b.error), b.error);
        CHECK_OK(sbit_quant_calc_qparams(quant, false, false, false, &b.error), b.error);
        CHECK_OK(sbit_quant_build(quant, NULL, &built, &b.error), b.error);
    }
    for (sbit_node_id id = built != NULL ? sbit_graph_first(built) : (sbit_node_id){0}; id.idx != 0;
         id = sbit_graph_next(built, id)) {
        const char *op = sbit_graph_node(built, id)->op_type;
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s ",
                 strcmp(op, "QuantizeLinear") == 0     ? "Q"
                 : strcmp(op, "DequantizeLinear") == 0 ? "DQ"
                                                       : op);
    }
    CHECK_STR(text, ops);
    sbit_graph_destroy(built);
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    build_end(&b);
}

TEST(layers_too_small_to_gain_stay_float)
{
    static const char all[] = "Q DQ DQ MatMul Q DQ DQ MatMul Q DQ DQ MatMul ";
    small_layers(NULL, all);
    small_layers("64", all);
    small_layers("65", "MatMul Q DQ DQ MatMul Q DQ DQ MatMul ");
    small_layers("129", "MatMul Q DQ DQ MatMul MatMul ");
}
