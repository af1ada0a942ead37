/* test_float64.c: what is float64 is computed in float64, when it runs and when it is folded.
 * check_float64.py (make interop) compares with numpy; here each operator's float64 result must
 * agree with its float32 result, and must hold numbers that float32 does not have. */
#include "../sparsebit.h"
#include "test.h"
#include "build_graph.h"
#include "model_text.h"

/* Runs a model without inputs; the elements of output 0 as double, and how many. */
static int64_t wide_run(const char *text, bool simplify, double *out, int64_t capacity)
{
    sbit_ctx *ctx = test_ctx();
    sbit_session *session = NULL;
    sbit_error error;
    model_bytes bytes;
    int64_t count = 0;
    memset(&error, 0, sizeof error);
    sbit_graph *graph = model_graph(ctx, text, &bytes, &error);
    if (graph != NULL && (!simplify || CHECK_OK(sbit_simplify(graph, NULL, NULL, &error), error)) &&
        CHECK_OK(sbit_session_create(graph, NULL, &session, &error), error) &&
        CHECK_OK(sbit_session_run(session, &error), error)) {
        const sbit_tensor *y = &sbit_session_output(session, 0)->tensor;
        count = sbit_tensor_count(y) < capacity ? sbit_tensor_count(y) : capacity;
        for (int64_t i = 0; i < count; i++) {
            out[i] = y->dtype == SBIT_F64 ? ((const double *)y->data)[i]
                                          : (double)((const float *)y->data)[i];
        }
    }
    sbit_session_destroy(session);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    free(bytes.data);
    return count;
}

/* "%T" in the text is the element type; "%a" stands for values that float32 rounds. */
static void wide_text(const char *pattern, const char *type, char *text, size_t size)
{
    static const char values[] =
        "0.3141592653 -0.2718281828 0.5772156649 0.1234567891 -0.9876543211 "
        "0.6931471806 0.4142135624 -0.1618033989 0.7320508076 0.2236067977 "
        "0.3333333333";
    size_t used = 0;
    for (const char *at = pattern; *at != '\0' && used + sizeof values < size; at++) {
        if (at[0] == '%' && (at[1] == 'T' || at[1] == 'a')) {
            used += (size_t)snprintf(text + used, size - used, "%s", at[1] == 'T' ? type : values);
            at++;
        } else {
            text[used++] = *at;
        }
    }
    text[used] = '\0';
}

TEST(each_operator_computes_float64_in_float64)
{
    static const char *const cases[] = {
        "c x %T 1,4,5,6 = %a\nc w %T 6,2,3,3 = %a\nc b %T 6 = %a\n"
        "Conv x,w,b -> y group=2 pads=[1,0,2,1] strides=[2,1]\n",
        "c x %T 2,3,7 = %a\nc w %T 3,3,2 = %a\nConv x,w -> y dilations=[2]\n",
        "c x %T 1,2,3,3,3 = %a\nc w %T 2,2,2,2,2 = %a\nConv x,w -> y auto_pad=SAME_UPPER\n",
        "c x %T 1,4,3,4 = %a\nc w %T 4,2,3,2 = %a\nc b %T 4 = %a\n"
        "ConvTranspose x,w,b -> y group=2 strides=[2,3] pads=[1,0,0,1] output_padding=[1,0]\n",
        "opset 19\nc x %T 1,2,4,4 = %a\nc w %T 2,2,2,2 = %a\nc o %T 1,8,3,3 = %a\nc b %T 2 = %a\n"
        "c m %T 1,4,3,3 = %a\nDeformConv x,w,o,b,m -> y\n",
        "c a %T 2,1,3,4 = %a\nc b %T 3,4,5 = %a\nMatMul a,b -> y\n",
        "c a %T 7 = %a\nc b %T 7 = %a\nMatMul a,b -> y\n",
        "c a %T 4,3 = %a\nc b %T 5,4 = %a\nc c %T 3,1 = %a\n"
        "Gemm a,b,c -> y transA=1 transB=1 alpha=0.3 beta=0.7\n",
        "c a %T 2,3,4 = %a\nc b %T 2,4,3 = %a\nEinsum a,b -> y equation=bij,bjk->bik\n",
        "c x %T 1,2,5,5 = %a\nAveragePool x -> y kernel_shape=[3,2] pads=[1,1,0,1] strides=[2,2]\n",
        "c x %T 1,2,5,5 = %a\nAveragePool x -> y kernel_shape=[3,3] pads=[1,1,1,1] "
        "count_include_pad=1\n",
        "c x %T 1,2,5,5 = %a\nLpPool x -> y kernel_shape=[2,3] p=3\n",
        "c x %T 1,2,5,5 = %a\nMaxPool x -> y kernel_shape=[2,3]\n",
        "c x %T 1,2,5,5 = %a\nGlobalAveragePool x -> y\n",
        "c x %T 1,2,5,5 = %a\nGlobalMaxPool x -> y\n",
        "c x %T 1,2,5,5 = %a\nGlobalLpPool x -> y p=3\n",
        "c x %T 1,1,6,6 = %a\nc r %T 1,5 = 0 1 1 4.4 4.2\nMaxRoiPool x,r -> y pooled_shape=[2,2]\n",
        "c x %T 1,1,6,6 = %a\nc r %T 1,4 = 0.3 0.7 4.4 4.2\nc i i64 1 = 0\n"
        "RoiAlign x,r,i -> y output_height=2 output_width=3\n",
        "c x %T 1,1,6,6 = %a\nc r %T 1,4 = 0.3 0.7 4.4 4.2\nc i i64 1 = 0\n"
        "RoiAlign x,r,i -> y output_height=2 output_width=3 mode=max sampling_ratio=2\n",
        "c x %T 2,3,4 = %a\nc s %T 3 = %a\nc b %T 3 = %a\nc m %T 3 = %a\nc v %T 3 = 0.7 0.9 1.3\n"
        "BatchNormalization x,s,b,m,v -> y\n",
        "c x %T 2,3,4 = %a\nc s %T 3 = %a\nc b %T 3 = %a\nc m %T 3 = %a\nc v %T 3 = 0.7 0.9 1.3\n"
        "BatchNormalization x,s,b,m,v -> y,rm,rv training_mode=1\n",
        "c x %T 2,3,4 = %a\nc s %T 3,4 = %a\nc b %T 4 = %a\nLayerNormalization x,s,b -> y axis=1\n",
        "opset 23\nc x %T 2,3,4 = %a\nc s %T 4 = %a\nRMSNormalization x,s -> y\n",
        "c x %T 2,3,4 = %a\nc s %T 3 = %a\nc b %T 3 = %a\nInstanceNormalization x,s,b -> y\n",
        "opset 21\nc x %T 2,4,3 = %a\nc s %T 4 = %a\nc b %T 4 = %a\n"
        "GroupNormalization x,s,b -> y num_groups=2\n",
        "c x %T 2,3,4 = %a\nLpNormalization x -> y axis=1 p=2\n",
        "c x %T 2,3,4 = %a\nLpNormalization x -> y axis=2 p=1\n",
        "c x %T 1,5,2,2 = %a\nLRN x -> y size=3 alpha=0.3\n",
        "c x %T 2,3,2,2 = %a\nMeanVarianceNormalization x -> y\n",
        "c x %T 2,3,4 = %a\nSoftmax x -> y axis=1\n",
        "c x %T 2,3,4 = %a\nLogSoftmax x -> y axis=2\n",
        "c x %T 2,3,4 = %a\nLogSoftmax x -> y axis=0\n",
        "opset 11\nc x %T 2,3,4 = %a\nSoftmax x -> y axis=1\n",
        "c x %T 4,2,3 = %a\nc w %T 2,12,3 = %a\nc r %T 2,12,3 = %a\nc b %T 2,24 = %a\n"
        "c h %T 2,2,3 = %a\nc k %T 2,2,3 = %a\nc p %T 2,9 = %a\nc l i32 2 = 4 3\n"
        "LSTM x,w,r,b,l,h,k,p -> y hidden_size=3 direction=bidirectional\n",
        "c x %T 4,2,3 = %a\nc w %T 1,9,3 = %a\nc r %T 1,9,3 = %a\nc b %T 1,18 = %a\n"
        "GRU x,w,r,b -> y hidden_size=3 direction=reverse\n",
        "c x %T 4,2,3 = %a\nc w %T 1,9,3 = %a\nc r %T 1,9,3 = %a\nc b %T 1,18 = %a\n"
        "GRU x,w,r,b -> y hidden_size=3 linear_before_reset=1\n",
        "c x %T 4,2,3 = %a\nc w %T 1,3,3 = %a\nc r %T 1,3,3 = %a\nRNN x,w,r -> y hidden_size=3 "
        "clip=0.8\n",
        "c x %T 1,1,3,4 = %a\nc s f32 4 = 1 1 1.7 2.3\nResize x,-,s -> y mode=linear\n",
        "c x %T 1,1,5,5 = %a\nc s f32 4 = 1 1 1.7 0.6\nResize x,-,s -> y mode=cubic\n",
        "opset 18\nc x %T 1,1,7,7 = %a\nc s f32 2 = 0.6 0.4\n"
        "Resize x,-,s -> y mode=linear antialias=1 axes=[2,3]\n",
        "c x %T 1,1,5,5 = %a\nc r %T 8 = 0 0 0.3 0.2 1 1 0.8 0.9\nc s i64 4 = 1 1 4 3\n"
        "Resize x,r,-,s -> y mode=linear coordinate_transformation_mode=tf_crop_and_resize\n",
        "opset 9\nc x %T 1,1,3,4 = %a\nc s f32 4 = 1 1 2 3\nUpsample x,s -> y mode=linear\n",
        "c x %T 1,1,4,4 = %a\nc g %T 1,2,3,2 = %a\nGridSample x,g -> y\n",
        "c x %T 1,1,4,4 = %a\nc g %T 1,2,3,2 = %a\nGridSample x,g -> y mode=bicubic "
        "padding_mode=reflection\n",
        "opset 20\nc t %T 1,2,3 = %a\nc s i64 4 = 1 1 3 4\nAffineGrid t,s -> y\n",
        "c x %T 2,3,3 = %a\nDet x -> y\n",
        "c x %T 2,3 = %a\nReduceLogSumExp x -> y\n",
        "c x %T 2,3 = %a\nReduceL2 x -> y\n",
        "c x %T 2,3 = %a\nc a i64  = 1\nCumSum x,a -> y\n",
        "c x %T 2,3 = %a\nErf x -> y\n",
        "c x %T 2,3 = %a\nc p %T 3 = %a\nPRelu x,p -> y\n",
        "opset 18\nc x %T 2,3 = %a\nMish x -> y\n",
        "opset 20\nc x %T 2,3 = %a\nGelu x -> y\n",
        "c x %T 2,3 = %a\nHardSwish x -> y\n",
        "c x %T 2,3 = %a\nMean x,x,x -> y\n",
        "c x %T 1,8,1 = %a\nDFT x -> y axis=1\n",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[2000];
        double single[200], wide[200];
        bool finer = false;
        wide_text(cases[i], "f32", text, sizeof text - 40);
        strcat(text, "out y ?\n");
        const int64_t n = wide_run(text, false, single, 200);
        wide_text(cases[i], "f64", text, sizeof text - 40);
        strcat(text, "out y ?\n");
        if (!CHECK_EQ_I64(wide_run(text, false, wide, 200), n) || !CHECK(n > 0)) {
            printf("%s", cases[i]);
            continue;
        }
        for (int64_t k = 0; k < n; k++) {
            CHECK_MSG(fabs(single[k] - wide[k]) < 3e-5 * (1.0 + fabs(single[k])),
                      "element %lld is %.9g in float32, %.9g in float64: %s", (long long)k,
                      single[k], wide[k], cases[i]);
            finer = finer || (double)(float)wide[k] != wide[k];
        }
        CHECK_MSG(finer, "all numbers are float32's: %s", cases[i]);
    }
}

TEST(float64_is_folded_in_float64)
{
    static const char model[] =
        "c a f64 2,2 = 1e200 2 3 1\nc b f64 2,2 = 1 0 0.001 1e-170\nc k f64 1 = 1e-40\n"
        "MatMul a,b -> m\nMul k,k -> tiny\nAdd m,tiny -> y\nout y f64 2,2\n";
    static const double want[4] = {1e200, 1e-80, 3.001, 1e-80};
    for (int simplify = 0; simplify < 2; simplify++) {
        double y[4];
        CHECK_EQ_I64(wide_run(model, simplify == 1, y, 4), 4);
        for (int i = 0; i < 4; i++) {
            CHECK_NEAR(y[i], want[i], 1e-14 * fabs(want[i]));
        }
    }
}

/* Rewrites that write float attributes, or think in float32's range. */
TEST(patterns_leave_float64_as_exact_as_it_was)
{
    static const struct {
        const char *text;
        double want;
    } cases[] = {
        {"in x f64 1\nc lo f64  = -1e300\nc hi f64  = 1e100\nClip x,lo,hi -> y\nout y f64 1\n",
         1e100},
        {"in x f64 1\nc hi f64  = 1e100\nc h2 f64  = 1e90\nMin x,hi -> m\nMin m,h2 -> y\nout y f64 "
         "1\n",
         1e90},
        {"in x f64 1\nc c f64  = 1e50\nRelu x -> r\nMin r,c -> y\nout y f64 1\n", 1e50},
    };
    static const double x[1] = {1e200};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sbit_ctx *ctx = test_ctx();
        sbit_session *session = NULL;
        sbit_error error;
        model_bytes bytes;
        const sbit_tensor tensor = build_tensor(SBIT_F64, "1", x);
        sbit_graph *graph = model_graph(ctx, cases[i].text, &bytes, &error);
        if (graph != NULL && CHECK_OK(sbit_simplify(graph, NULL, NULL, &error), error) &&
            CHECK_OK(sbit_session_create(graph, NULL, &session, &error), error) &&
            CHECK_OK(sbit_session_set_input(session, "x", &tensor, &error), error) &&
            CHECK_OK(sbit_session_run(session, &error), error)) {
            CHECK_NEAR(((const double *)sbit_session_output(session, 0)->tensor.data)[0],
                       cases[i].want, 1e-14 * cases[i].want);
        }
        sbit_session_destroy(session);
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(ctx);
        free(bytes.data);
    }
}

/* The epsilon of a LayerNormalization that is written with Mean, Sub, Pow ... stays double. */
TEST(a_norm_pattern_in_float64_keeps_its_epsilon)
{
    static const char model[] =
        "in x f64 1,2\nc e f64  = 0.1\nc two f64  = 2\nc s f64 2 = 1 1\nc b f64 2 = 0 0\n"
        "ReduceMean x -> m axes=[-1]\nSub x,m -> d\nPow d,two -> p\nReduceMean p -> v axes=[-1]\n"
        "Add v,e -> ve\nSqrt ve -> r\nDiv d,r -> q\nMul q,s -> t\nAdd t,b -> y\nout y f64 1,2\n";
    static const double x[2] = {0.25, 0.75};
    sbit_ctx *ctx = test_ctx();
    sbit_session *session = NULL;
    sbit_error error;
    model_bytes bytes;
    const sbit_tensor tensor = build_tensor(SBIT_F64, "1,2", x);
    sbit_graph *graph = model_graph(ctx, model, &bytes, &error);
    if (graph != NULL && CHECK_OK(sbit_simplify(graph, NULL, NULL, &error), error) &&
        CHECK_OK(sbit_session_create(graph, NULL, &session, &error), error) &&
        CHECK_OK(sbit_session_set_input(session, "x", &tensor, &error), error) &&
        CHECK_OK(sbit_session_run(session, &error), error)) {
        CHECK_NEAR(((const double *)sbit_session_output(session, 0)->tensor.data)[1],
                   0.25 / sqrt(0.0625 + 0.1), 1e-15);
    }
    sbit_session_destroy(session);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    free(bytes.data);
}
