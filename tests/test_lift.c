/* test_lift.c: a node of an old opset and what the lift makes of it give the same elements. */
#include "../sparsebit.h"
#include "test.h"
#include "build_graph.h"
#include "model_text.h"

enum {
    LIFT_MOST = 4096
};

/* Output 0 of the graph as double, input "x" counted up in steps that no rounding hides. */
static int64_t lift_run(sbit_graph *graph, double *out, sbit_error *error)
{
    sbit_session *session = NULL;
    int64_t count = -1;
    sbit_tensor x;
    memset(&x, 0, sizeof x);
    const sbit_value_id id = sbit_graph_find_value(graph, "x");
    const sbit_type *type = &sbit_graph_value(graph, id)->type;
    int64_t dims[SBIT_MAX_RANK];
    for (int32_t i = 0; i < type->rank; i++) {
        dims[i] = type->dims[i].value;
    }
    if (!CHECK_OK(
            sbit_tensor_alloc(sbit_graph_ctx(graph), type->dtype, type->rank, dims, &x, error),
            *error)) {
        return -1;
    }
    for (int64_t i = 0; i < sbit_tensor_count(&x); i++) {
        const double value = (double)((i * 37) % 101) / 8.0 - 5.0;
        if (type->dtype == SBIT_F64) {
            ((double *)x.data)[i] = value;
        } else if (type->dtype == SBIT_U8) {
            ((uint8_t *)x.data)[i] = (uint8_t)(i % 5);
        } else {
            ((float *)x.data)[i] = (float)value;
        }
    }
    if (CHECK_OK(sbit_session_create(graph, NULL, &session, error), *error) &&
        CHECK_OK(sbit_session_set_input(session, "x", &x, error), *error) &&
        CHECK_OK(sbit_session_run(session, error), *error)) {
        const sbit_tensor *y = &sbit_session_output(session, 0)->tensor;
        count = sbit_tensor_count(y) < LIFT_MOST ? sbit_tensor_count(y) : LIFT_MOST;
        for (int64_t i = 0; i < count; i++) {
            out[i] = (y->dtype == SBIT_F64 ? ((const double *)y->data)[i]
                                           : (double)((const float *)y->data)[i]);
        }
    }
    sbit_session_destroy(session);
    sbit_tensor_free(sbit_graph_ctx(graph), &x);
    return count;
}

static const int lift_targets[] = {7, 8, 9, 10, 11, 12, 13, 15, 17, 18, 19, 20, 21, 23};

/* Lifts the model to each later opset; how many of them were possible. */
static int lift_same(const char *text)
{
    int possible = 0;
    for (size_t t = 0; t < sizeof lift_targets / sizeof lift_targets[0]; t++) {
        sbit_ctx *ctx = test_ctx();
        sbit_error error;
        model_bytes bytes;
        static double before[LIFT_MOST], after[LIFT_MOST];
        memset(&error, 0, sizeof error);
        sbit_graph *graph = model_graph(ctx, text, &bytes, &error);
        if (graph != NULL && sbit_graph_opset(graph, "") < lift_targets[t]) {
            const int64_t n = lift_run(graph, before, &error);
            if (sbit_graph_lift_opset(graph, lift_targets[t], &error) == SBIT_OK) {
                possible++;
                CHECK_OK(sbit_graph_validate(graph, &error), error);
                CHECK_EQ_I64(lift_run(graph, after, &error), n);
                for (int64_t i = 0; i < n; i++) {
                    if (!CHECK_MSG(fabs(before[i] - after[i]) <= 1e-6 * (1.0 + fabs(before[i])),
                                   "element %lld is %g, lifted to %d %g: %s", (long long)i,
                                   before[i], lift_targets[t], after[i], text)) {
                        break;
                    }
                }
            }
        }
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(ctx);
        free(bytes.data);
    }
    return possible;
}

TEST(nearest_resize_keeps_its_pixels)
{
    static const char *const scales[] = {"1 1 0.6 0.6",  "1 1 0.6 1",   "1 1 2 0.5",
                                         "1 1 0.5 2.3",  "1 1 1.7 1.7", "1 1 0.34 3",
                                         "1 0.5 2 0.75", "1 1 1 1",     "1 1 1 0.9"};
    static const char *const modes[] = {"nearest", "linear"};
    char text[400];
    for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
        for (size_t m = 0; m < 2; m++) {
            if (m == 1 && s == 6) {
                continue;
            }
            snprintf(text, sizeof text,
                     "opset 10\nin x f32 1,2,6,7\nc s f32 4 = %s\nResize x,s -> y r mode=%s\n"
                     "out y f32 ...\n",
                     scales[s], modes[m]);
            CHECK_EQ_I64(lift_same(text), 10);
            snprintf(text, sizeof text,
                     "opset 9\nin x f32 1,2,6,7\nc s f32 4 = %s\nUpsample x,s -> y u mode=%s\n"
                     "out y f32 ...\n",
                     scales[s], modes[m]);
            CHECK_EQ_I64(lift_same(text), 11);
        }
    }
}

/* The right pixels, by hand: up to opset 10, ceil(i / scale) where the axis shrinks. */
TEST(nearest_resize_of_opset_10_takes_these_rows)
{
    static const int rows[3] = {0, 2, 4};
    sbit_ctx *ctx = test_ctx();
    sbit_error error;
    model_bytes bytes;
    double y[LIFT_MOST];
    sbit_graph *graph = model_graph(ctx,
                                    "opset 10\nin x f32 1,1,6,1\nc s f32 4 = 1 1 0.6 1\n"
                                    "Resize x,s -> y r\nout y f32 ...\n",
                                    &bytes, &error);
    CHECK_OK(sbit_graph_lift_opset(graph, 13, &error), error);
    CHECK_EQ_I64(lift_run(graph, y, &error), 3);
    for (int i = 0; i < 3; i++) {
        CHECK_NEAR(y[i], (double)((rows[i] * 37) % 101) / 8.0 - 5.0, 0.0);
    }
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    free(bytes.data);
}

TEST(a_nearest_resize_with_computed_scales_is_named)
{
    sbit_ctx *ctx = test_ctx();
    sbit_error error;
    model_bytes bytes;
    sbit_graph *graph = model_graph(ctx,
                                    "opset 10\nin x f32 1,1,6,1\nin s f32 4\n"
                                    "Resize x,s -> y rs\nout y f32 ...\n",
                                    &bytes, &error);
    CHECK_STATUS(sbit_graph_lift_opset(graph, 13, &error), SBIT_ERR_UNSUPPORTED, error);
    CHECK_CONTAINS(error.message, "Resize 'rs'");
    CHECK_CONTAINS(error.message, "scales");
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    free(bytes.data);
}

/* Every operator whose meaning was restated, and what else changed its form. */
TEST(old_operators_mean_the_same_after_a_lift)
{
    static const struct {
        const char *text;
        int possible; /* of the targets above the opset */
    } cases[] = {
        {"opset 6\nin x f32 2,3,4,5\nc b f32 3,4 = 1 2 3 4 5 6 7 8 9 10 11 12\n"
         "Add x,b -> y broadcast=1 axis=1\n",
         14},
        {"opset 6\nin x f32 2,3,4,5\nc b f32 5 = 1 2 3 4 5\nMul x,b -> y broadcast=1\n", 14},
        {"opset 6\nin x f32 2,3,4,5\nc b f32 3 = 1 2 3\nSub x,b -> y broadcast=1 axis=1\n", 14},
        {"opset 6\nin x f32 2,3,4,5\nc b f32 4,5 = 1 2 3\nDiv x,b -> y broadcast=1 axis=-2\n", 14},
        {"opset 6\nin x f32 2,3,4\nc b f32 3 = 0.5 2 -1\nPRelu x,b -> y\n", 14},
        {"opset 6\nin x f32 2,3,4\nc s f32 3 = 1 2 3\nc m f32 3 = 1 0 2\nc v f32 3 = 1 2 3\n"
         "BatchNormalization x,s,m,m,v -> y is_test=1\n",
         14},
        {"opset 6\nin x f32 2,3,4\nc s f32 3 = 1 2 3\nc m f32 3 = 1 0 2\nc v f32 3 = 1 2 3\n"
         "BatchNormalization x,s,m,m,v -> y\n",
         14},
        {"opset 7\nin x f32 2,3,4\nc s f32 3 = 1 2 3\nc m f32 3 = 1 0 2\nc v f32 3 = 1 2 3\n"
         "BatchNormalization x,s,m,m,v -> y epsilon=0.1\n",
         13},
        {"opset 10\nin x f32 2,3,4\nClip x -> y min=-0.5 max=2.5\n", 10},
        {"opset 10\nin x f32 2,3,4\nClip x -> y max=2.5\n", 10},
        {"opset 10\nin x f64 2,3,4\nc k f64  = 1e300\nMul x,k -> d\nClip d -> y max=2.5\n", 10},
        {"opset 6\nin x f64 2,3,4\nc k f64  = 1e300\nMul x,k -> d\nClip d -> y\n", 14},
        {"opset 1\nin x f32 2,3,4\nc t f32  = 3\nc a f32  = 1\nTile x,t,a -> y\n", 14},
        {"opset 5\nin x f32 2,3,4\nc t f32  = 2\nc a f32  = -1\nTile x,t,a -> y\n", 14},
        {"opset 1\nin x f32 5\nc t i64  = 0\nc a i64  = 0\nTile x,t,a -> y\n", 14},
        {"opset 10\nin x f64 2,3,4\nClip x -> c min=-0.5\nc k f64  = 1e300\nMul c,k -> d\n"
         "Clip d -> y min=-1.5\n",
         10},
        {"opset 7\nin x f32 2,3,4\nDropout x -> y ratio=0.25\n", 13},
        {"opset 6\nin x f32 2,3\nc b f32 3,4 = 1 2 3\nc c f32 4 = 1 2 3 4\n"
         "Gemm x,b,c -> y broadcast=1 alpha=0.5\n",
         14},
        {"opset 3\nin x f32 2,3\nConcat x,x -> y\n", 14},
        {"opset 5\nin x f32 2,3\nSelu x -> y\n", 14},
        {"opset 9\nin x f32 2,3,4\nReduceSum x -> y axes=[1] keepdims=0\n", 11},
        {"opset 9\nin x f32 2,3,4\nReduceMean x -> y axes=[1,2]\n", 11},
        {"opset 12\nin x f32 2,3,4\nReduceL2 x -> y axes=[-1]\n", 8},
        {"opset 12\nin x f32 2,3,4\nReduceLogSumExp x -> y\n", 8},
        {"opset 9\nin x f32 2,1,4\nSqueeze x -> y axes=[1]\n", 11},
        {"opset 9\nin x f32 2,4\nUnsqueeze x -> y axes=[0,3]\n", 11},
        {"opset 4\nin x f32 2,6\nReshape x -> y shape=[3,-1]\n", 14},
        {"opset 9\nin x f32 4,6\nSlice x -> y starts=[1,-3] ends=[3,9999] axes=[0,1]\n", 11},
        {"opset 9\nin x f32 4,6\nSlice x -> y starts=[1] ends=[3]\n", 11},
        {"opset 9\nin x f32 4,6\nTopK x -> y,i k=2 axis=0\n", 11},
        {"opset 10\nin x f32 4,6\nc k i64 1 = 3\nTopK x,k -> y,i\n", 10},
        {"opset 11\nin x f32 4,6\nSplit x -> y,z axis=1 split=[2,4]\n", 9},
        {"opset 11\nin x f32 4,6\nSplit x -> y,z axis=1\n", 9},
        {"opset 10\nin x f32 2,3\nPad x -> y pads=[1,0,0,2] value=1.5\n", 10},
        {"opset 10\nin x f32 2,3\nPad x -> y pads=[0,1,0,1] mode=reflect\n", 10},
        {"opset 1\nin x f32 2,3\nPad x -> y paddings=[1,0,0,2]\n", 14},
        {"opset 9\nin x f32 3,3\nc i i64 1,2 = 0 2\nc u f32 1,2 = 9 8\nScatter x,i,u -> y axis=1\n",
         11},
        {"opset 11\nin x f32 2,3,4\nSoftmax x -> y axis=1\n", 9},
        {"opset 11\nin x f32 2,3,4\nSoftmax x -> y axis=-1\n", 9},
        {"opset 11\nin x f32 2,3,4\nSoftmax x -> y axis=0\n", 9},
        {"opset 11\nin x f32 2,3,4\nLogSoftmax x -> y axis=-2\n", 9},
        {"opset 9\nin x f32 2,3,1\nSoftmax x -> y\n", 11},
        {"opset 9\nin x f32 2,3,4\nHardmax x -> y\n", 11},
        {"opset 6\nin x f32 4,2,3\nc w f32 1,12,3 = 0.1 -0.2 0.3\nc r f32 1,12,3 = 0.2 0.1 -0.3\n"
         "LSTM x,w,r -> y hidden_size=3 output_sequence=1\n",
         14},
        {"opset 16\nin x f32 1,1,4,4\nc g f32 1,2,3,2 = 0.1 -0.7 0.9 0.3\n"
         "GridSample x,g -> y mode=bicubic\n",
         6},
        {"opset 16\nin x f32 1,1,4,4\nc g f32 1,2,3,2 = 0.1 -0.7 0.9 0.3\nGridSample x,g -> y\n",
         6},
        {"opset 10\nin x f32 1,1,6,6\nc r f32 1,4 = 0.3 0.7 4.4 4.2\nc i i64 1 = 0\n"
         "RoiAlign x,r,i -> y output_height=2 output_width=2\n",
         10},
        {"opset 17\nin x f32 1,8,3,1\nDFT x -> y\n", 5},
        {"opset 18\nin x f32 2,4,3\nc s f32 2 = 1 2\nc b f32 2 = 0.5 -0.5\n"
         "GroupNormalization x,s,b -> y num_groups=2\n",
         4},
        {"opset 11\nin x f32 1,1,5,5\nc r f32 0 = 0\nc s f32 4 = 1 1 0.6 1.7\n"
         "Resize x,r,s -> y nearest_mode=ceil coordinate_transformation_mode=align_corners\n",
         9},
        {"opset 11\nin x f32 1,1,5,5\nc r f32 0 = 0\nc s f32 0 = 0\nc z i64 4 = 1 1 3 8\n"
         "Resize x,r,s,z -> y mode=cubic\n",
         9},
        {"opset 1\nin x f32 1,1,5,5\nUpsample x -> y height_scale=2.0 width_scale=3.0 "
         "mode=bilinear\n",
         12},
        {"opset 7\nin x f32 1,1,5,5\nUpsample x -> y scales=[1.0,1.0,2.0,1.5] mode=nearest\n", 13},
        {"opset 1\nin x f32 1,2,6\nLpPool x -> y p=3.0 kernel_shape=[2]\n", 14},
        {"opset 1\nin x f32 2,3\nCast x -> c to=DOUBLE\nc k f64  = 1\nCast c -> y to=FLOAT\n", 14},
        {"opset 1\nin x f32 1,2,6\nMaxPool x -> y kernel_shape=[2] strides=[2]\n", 14},
        {"opset 7\nin x f32 1,2,6\nAveragePool x -> y kernel_shape=[3] pads=[1,1]\n", 13},
        {"opset 1\nin x f32 1,2,6\nc s f32 2 = 1 2\nInstanceNormalization x,s,s -> y\n", 14},
        {"opset 9\nin x f32 2,3,4\nFlatten x -> y axis=2\n", 11},
        {"opset 1\nin x f32 1,4,2,2\nDepthToSpace x -> y blocksize=2\n", 14},
        {"opset 10\nin x f32 1,8\nc s f32  = 0.25\nc z u8  = 100\nQuantizeLinear x,s,z -> q\n"
         "DequantizeLinear q,s,z -> y\n",
         10},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[800];
        snprintf(text, sizeof text, "%sout y ?\n", cases[i].text);
        const int possible = lift_same(text);
        CHECK_MSG(possible == cases[i].possible, "lifted to %d opsets, not to %d: %s", possible,
                  cases[i].possible, text);
    }
}

/* ---- lowering */

/* Lowers the model to `to` and runs both; the operators are left in `ops`, space-separated. */
static void lower_same(const char *text, int64_t to, const char *wanted)
{
    sbit_ctx *ctx = test_ctx();
    sbit_error error;
    model_bytes bytes;
    static double before[LIFT_MOST], after[LIFT_MOST];
    char ops[300] = "";
    memset(&error, 0, sizeof error);
    sbit_graph *graph = model_graph(ctx, text, &bytes, &error);
    if (CHECK(graph != NULL)) {
        const int64_t n = lift_run(graph, before, &error);
        CHECK_OK(sbit_graph_lower_opset(graph, to, &error), error);
        CHECK_OK(sbit_graph_validate(graph, &error), error);
        CHECK_EQ_I64(sbit_graph_opset(graph, ""), to);
        CHECK(n > 0);
        CHECK_EQ_I64(lift_run(graph, after, &error), n);
        for (int64_t i = 0; i < n; i++) {
            if (!CHECK_MSG(fabs(before[i] - after[i]) <= 1e-6 * (1.0 + fabs(before[i])),
                           "element %lld is %g, lowered %g: %s", (long long)i, before[i], after[i],
                           text)) {
                break;
            }
        }
        for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0;
             id = sbit_graph_next(graph, id)) {
            const sbit_node *node = sbit_graph_node(graph, id);
            const size_t used = strlen(ops);
            snprintf(ops + used, sizeof ops - used, "%s%s/%lu", used > 0 ? " " : "", node->op_type,
                     (unsigned long)node->input_count);
        }
        CHECK_STR(ops, wanted);
    }
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    free(bytes.data);
}

/* Nodes, inputs and attributes. */
static size_t lower_size(const sbit_graph *graph)
{
    size_t size = 0;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        size += 10000 + 100 * node->input_count + node->attr_count;
    }
    return size;
}

static void lower_fails(const char *text, int64_t to, const char *why)
{
    sbit_ctx *ctx = test_ctx();
    sbit_error error;
    model_bytes bytes;
    memset(&error, 0, sizeof error);
    sbit_graph *graph = model_graph(ctx, text, &bytes, &error);
    if (CHECK(graph != NULL)) {
        const int64_t from = sbit_graph_opset(graph, "");
        const size_t before = lower_size(graph);
        CHECK_EQ_I64(sbit_graph_lower_opset(graph, to, &error), SBIT_ERR_UNSUPPORTED);
        CHECK_CONTAINS(error.message, why);
        CHECK_EQ_I64(sbit_graph_opset(graph, ""), from);
        CHECK_EQ_I64((int64_t)lower_size(graph), (int64_t)before);
    }
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    free(bytes.data);
}

TEST(inputs_become_attributes_when_an_opset_is_lowered)
{
    lower_same("opset 18\nin x f32 2,3,4,5\nc a i64 2 = 1 -1\nReduceMean x,a -> y r\n"
               "out y f32 ...\n",
               13, "ReduceMean/1");
    lower_same("opset 18\nin x f32 2,3,4,5\nc a i64 2 = 1 -1\nReduceMean x,a -> y r\n"
               "out y f32 ...\n",
               9, "ReduceMean/1");
    lower_same("opset 21\nin x f32 2,3\nc a i64 1 = -1\nUnsqueeze x,a -> y r\nout y f32 ...\n", 7,
               "Unsqueeze/1");
    lower_same("opset 13\nin x f32 2,3\nc lo f32  = -1.5\nc hi f32  = 2\nClip x,lo,hi -> y r\n"
               "out y f32 ...\n",
               9, "Clip/1");
    lower_same("opset 19\nin x f32 6,8\nc s i64 1 = 1\nc e i64 1 = 7\nc a i64 1 = -1\n"
               "Slice x,s,e,a -> y r\nout y f32 ...\n",
               8, "Slice/1");
    lower_same("opset 13\nin x f32 2,3\nc d i64 1 = 4\nc v f32 2 = 0 1\nOneHot x,d,v -> y o axis=-1\n"
               "out y f32 ...\n",
               10, "Cast/1 Cast/1 Reshape/2 Less/2 Add/2 Where/3 Less/2 Where/3 OneHot/3");
    lower_same("opset 13\nin x f32 2\nc i i64 6 = 0 -1 -3 -4 -7 3\nc d i64  = 3\nc v f32 2 = 0 1\n"
               "OneHot i,d,v -> h\nc w f32 3,2 = 1 2 3 4 5 6\nMatMul h,w -> y r\nout y f32 ...\n",
               9, "Cast/1 Cast/1 Reshape/2 Less/2 Add/2 Where/3 Less/2 Where/3 OneHot/3 MatMul/2");
    lower_same("opset 13\nin x u8 6\nc d i64  = 3\nc v f32 2 = 0 1\nOneHot x,d,v -> y o\n"
               "out y f32 ...\n",
               9, "OneHot/3"); /* never negative */
}

TEST(operators_are_written_with_older_ones)
{
    lower_same("opset 13\nin x f32 2,3,4\nSoftmax x -> y r axis=1\nout y f32 ...\n", 11,
               "Transpose/1 Softmax/1 Transpose/1");
    lower_same("opset 13\nin x f32 2,3,4\nSoftmax x -> y r\nout y f32 ...\n", 9, "Softmax/1");
    lower_same("opset 14\nin x f32 2,3,4\nHardSwish x -> y r\nout y f32 ...\n", 12,
               "HardSigmoid/1 Mul/2");
}

TEST(newer_operators_are_written_with_older_ones)
{
    lower_same("opset 24\nin x f32 2,3\nSwish x -> y r\nout y f32 ...\n", 23, "Sigmoid/1 Mul/2");
    lower_same("opset 28\nin x f32 2,3\nSwish x -> y r alpha=0.5\nout y f32 ...\n", 13,
               "Mul/2 Sigmoid/1 Mul/2");
    lower_same("opset 22\nin x f32 2,3\nMish x -> y r\nout y f32 ...\n", 9,
               "Softplus/1 Tanh/1 Mul/2");
    lower_same("opset 17\nin x f32 2,3,4\nc s f32 3,4 = 1 2 -1\nc b f32 3,4 = 0.5 1\n"
               "LayerNormalization x,s,b -> y r axis=1 epsilon=0.01\nout y f32 ...\n",
               9, "ReduceMean/1 Sub/2 Mul/2 ReduceMean/1 Add/2 Sqrt/1 Div/2 Mul/2 Add/2");
    lower_same("opset 17\nin x f32 2,3,4\nc s f32 4 = 1 2 -1\nLayerNormalization x,s -> y r\n"
               "out y f32 ...\n",
               13, "ReduceMean/1 Sub/2 Mul/2 ReduceMean/1 Add/2 Sqrt/1 Div/2 Mul/2");
    lower_same("opset 19\nin x f32 2,3\nc l f64  = 0.5\nCastLike l,x -> m c\nClip x,m -> y r\n"
               "out y f32 ...\n",
               9, "Clip/1");
    lower_same("opset 19\nin x f32 2,3\nc t i32 1 = 1\nCastLike x,t -> z c\nCastLike z,x -> y d\n"
               "out y f32 ...\n",
               13, "Cast/1 Cast/1");
    lower_same("opset 21\nin x f32 2,3,4\nShape x -> s n start=-2 end=-1\nCast s -> y c to=1\n"
               "out y f32 ...\n",
               13, "Shape/1 Slice/3 Cast/1");
    lower_same("opset 15\nin x f32 2,3,4\nShape x -> s n start=1\nCast s -> y c to=1\n"
               "out y f32 ...\n",
               9, "Shape/1 Slice/1 Cast/1");
    lower_same("opset 19\nin x f32 2,6\nc s i64 2 = 3 -1\nReshape x,s -> y r allowzero=1\n"
               "out y f32 ...\n",
               13, "Reshape/2");
    /* windows of 3 at 0, 2, 4 and 6: the last one reaches one element behind the 8 */
    lower_same("opset 12\nin x f32 1,2,8,9\nMaxPool x -> y p kernel_shape=[3,3] strides=[2,2] "
               "ceil_mode=1\nout y f32 ...\n",
               9, "MaxPool/1");
    lower_same("opset 12\nin x f32 1,2,8,9\nAveragePool x -> y p kernel_shape=[3,2] strides=[2,2] "
               "pads=[1,0,0,0] ceil_mode=1\nout y f32 ...\n",
               8, "AveragePool/1");
    lower_same("opset 13\nin x f32 1,2,3,3\nc s f32 4 = 1 1 2 3\nResize x,,s -> y r\n"
               "out y f32 ...\n",
               10, "Resize/2");
    lower_same("opset 13\nin x f32 1,2,3,3\nc s f32 4 = 1 1 2 1.5\nResize x,,s -> y r "
               "mode=linear coordinate_transformation_mode=asymmetric\nout y f32 ...\n",
               7, "Upsample/1");
    /* axes of Slice-10 and indices of Gather-1 are not negative */
    lower_same("opset 13\nin x f32 3,6\nc s i64 1 = 1\nc e i64 1 = 5\nc a i64 1 = -1\n"
               "Slice x,s,e,a -> y r\nout y f32 ...\n",
               10, "Slice/4");
    lower_same("opset 13\nin x f32 3,6\nc i i64 2 = -1 1\nGather x,i -> y g axis=-1\n"
               "out y f32 ...\n",
               10, "Gather/2");
    /* axes that nodes compute from constants are folded */
    lower_same("opset 18\nin x f32 3,6\nc i i64 1,1 = 1\nc s i64 1 = -1\nReshape i,s -> a\n"
               "ReduceMean x,a -> y r\nout y f32 ...\n",
               17, "ReduceMean/1");
}

TEST(opsets_up_to_28_are_raised_to)
{
    sbit_ctx *ctx = test_ctx();
    sbit_error error;
    model_bytes bytes;
    memset(&error, 0, sizeof error);
    sbit_graph *graph = model_graph(ctx, "opset 18\nin x f32 3,6\nReduceLogSum x -> y r\n"
                                         "out y f32 ...\n", &bytes, &error);
    CHECK_OK(sbit_graph_lift_opset(graph, 28, &error), error);
    CHECK_EQ_I64(sbit_graph_opset(graph, ""), 28);
    CHECK_EQ_I64(sbit_graph_lift_opset(graph, 29, &error), SBIT_ERR_UNSUPPORTED);
    CHECK_OK(sbit_graph_lower_opset(graph, 13, &error), error);
    sbit_graph_destroy(graph);
    free(bytes.data);
    graph = model_graph(ctx, "opset 18\nin x i32 3,6\nReduceLogSum x -> y r\nout y i32 ...\n",
                        &bytes, &error);
    CHECK_OK(sbit_graph_lift_opset(graph, 27, &error), error);
    CHECK_EQ_I64(sbit_graph_lift_opset(graph, 28, &error), SBIT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(error.message, "floats only");
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    free(bytes.data);
}

TEST(what_cannot_be_lowered_is_named)
{
    lower_fails("opset 20\nin x f32 2,3\nGelu x -> y g\nout y f32 ...\n", 17,
                "Gelu came in a later opset");
    lower_fails("opset 13\nin x f32 2,8\nin k i64 1\nReduceSum x,k -> y r\nout y f32 ...\n", 11,
                "its axes is not a constant");
    lower_fails("opset 18\nin x f32 1,2,4,4\nc s f32 4 = 1 1 2 2\n"
                "Resize x,,s -> y r mode=linear antialias=1\nout y f32 ...\n",
                13, "its attribute antialias");
    lower_fails("opset 13\nin x f32 2,8\nRelu x -> y r\nout y f32 ...\n", 6, "older than 7");
    lower_fails("opset 13\nin x f32 2,8\nc e i64 1 = 2\nPow x,e -> y p\nout y f32 ...\n", 11,
                "its exponent is of another type");
    lower_fails("opset 13\nin x f32 2,8\nin z f32 8\nMax x,z -> y m\nout y f32 ...\n", 7,
                "its inputs are broadcast");
    lower_fails("opset 19\nin x f32 1,2,4,4\nc s f32 4 = 1 1 2 2\nResize x,,s -> y r mode=linear "
                "coordinate_transformation_mode=half_pixel_symmetric\nout y f32 ...\n",
                18, "half_pixel_symmetric");
    lower_fails("opset 19\nin x i8 2,8\nc s f16 = 0.5\nDequantizeLinear x,s -> y d\nout y f16 ...\n", 13,
                "float32 before opset 19");
    lower_fails("opset 16\nin x f32 4\nin c bool 4\nCast x -> b to=16\nWhere c,b,b -> y w\n"
                "out y bf16 ...\n",
                13, "bfloat16 came in a later opset");
    lower_fails("opset 28\nin x f32 4\nin z f32 4\nMod x,z -> y m\nout y f32 ...\n", 27, "fmod=0");
    lower_fails("opset 13\nin x f32 3,6\nc s i64 1 = 1\nc e i64 1 = 5\nin a i64 1\n"
                "Slice x,s,e,a -> y r\nout y f32 ...\n",
                10, "could be negative");
    lower_fails("opset 13\nin x f32 1,2,3,3\nc s f32 4 = 1 1 2 1.5\nResize x,,s -> y r\n"
                "out y f32 ...\n",
                10, "other coordinates");
}
