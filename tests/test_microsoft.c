/* test_microsoft.c: operators of com.microsoft give what they are written with; what they cannot do
 * is said. tests/interop/check_microsoft.py holds them against ONNX Runtime. */
#include "../sparsebit.h"
#include "test.h"
#include "build_graph.h"
#include "model_text.h"

enum {
    MS_MOST = 4096
};

/* Output 0 as double, input "x" counted up; -1: it failed, `error` says why. */
static int64_t ms_run(const char *text, double *out, sbit_error *error)
{
    sbit_ctx *ctx = test_ctx();
    sbit_session *session = NULL;
    model_bytes bytes;
    sbit_tensor x;
    int64_t count = -1, dims[SBIT_MAX_RANK];
    memset(&x, 0, sizeof x);
    sbit_graph *graph = model_graph(ctx, text, &bytes, error);
    const sbit_type *type = &sbit_graph_value(graph, sbit_graph_find_value(graph, "x"))->type;
    for (int32_t i = 0; i < type->rank; i++) {
        dims[i] = type->dims[i].value;
    }
    CHECK_OK(sbit_tensor_alloc(ctx, type->dtype, type->rank, dims, &x, error), *error);
    for (int64_t i = 0; i < sbit_tensor_count(&x); i++) {
        const double value = (double)((i * 37) % 101) / 16.0 - 3.0;
        if (type->dtype == SBIT_U8) {
            ((uint8_t *)x.data)[i] = (uint8_t)((i * 37) % 251);
        } else if (type->dtype == SBIT_I32) {
            ((int32_t *)x.data)[i] = (int32_t)(i * 3 % 5);
        } else {
            ((float *)x.data)[i] = (float)value;
        }
    }
    if (sbit_session_create(graph, NULL, &session, error) == SBIT_OK &&
        sbit_session_set_input(session, "x", &x, error) == SBIT_OK &&
        sbit_session_run(session, error) == SBIT_OK) {
        const sbit_tensor *y = &sbit_session_output(session, 0)->tensor;
        count = sbit_tensor_count(y) < MS_MOST ? sbit_tensor_count(y) : MS_MOST;
        for (int64_t i = 0; i < count; i++) {
            out[i] = y->dtype == SBIT_U8    ? (double)((const uint8_t *)y->data)[i]
                     : y->dtype == SBIT_I32 ? (double)((const int32_t *)y->data)[i]
                                            : (double)((const float *)y->data)[i];
        }
    }
    sbit_session_destroy(session);
    sbit_tensor_free(ctx, &x);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    free(bytes.data);
    return count;
}

typedef struct ms_case {
    const char *head; /* of both models */
    const char *ours, *plain;
    double tolerance;
} ms_case;

static void ms_same(const ms_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        static double a[MS_MOST], b[MS_MOST];
        char text[2][1600];
        sbit_error error;
        memset(&error, 0, sizeof error);
        for (int k = 0; k < 2; k++) {
            snprintf(text[k], sizeof text[k], "%sopset 1 com.microsoft\n%s\nout y ?\n",
                     cases[i].head, k == 0 ? cases[i].ours : cases[i].plain);
        }
        const int64_t n = ms_run(text[0], a, &error);
        CHECK_MSG(n > 0, "%s: %s", text[0], error.message);
        CHECK_EQ_I64(ms_run(text[1], b, &error), n);
        for (int64_t k = 0; k < n; k++) {
            if (!CHECK_MSG(fabs(a[k] - b[k]) <= cases[i].tolerance * (1.0 + fabs(b[k])),
                           "element %lld is %g, not %g: %s", (long long)k, a[k], b[k], text[0])) {
                break;
            }
        }
    }
}

#define CONV "in x f32 1,2,5,5\nc w f32 2,2,3,3 = 0.5 -0.25 0.125 1 -1\nc b f32 2 = 0.5 -1\n"
#define ROWS "in x f32 2,3,8\nc g f32 8 = 1 0.5 2 -1\nc b f32 8 = 0.25 -0.5\n"

TEST(fused_operators_are_what_they_fuse)
{
    static const ms_case cases[] = {
        {"opset 8\n" CONV, "com.microsoft:FusedConv x,w,b -> y pads=[1,1,1,1] activation=Relu",
         "Conv x,w,b -> c pads=[1,1,1,1]\nRelu c -> y", 1e-6},
        {"opset 9\n" CONV,
         "com.microsoft:FusedConv x,w,b -> y activation=Clip activation_params=[-0.5,1.5]",
         "Conv x,w,b -> c\nClip c -> y min=-0.5 max=1.5", 1e-6},
        {"opset 17\n" CONV "c z f32 1,2,3,3 = 1 -2 3\n",
         "com.microsoft:FusedConv x,w,b,z -> y activation=HardSigmoid activation_params=[0.3,0.4]",
         "Conv x,w,b -> c\nAdd c,z -> s\nHardSigmoid s -> y alpha=0.3 beta=0.4", 1e-6},
        {"opset 13\nin x f32 3,4\nc w f32 5,4 = 1 -2 0.5\nc b f32 5 = 1 2 3\n",
         "com.microsoft:FusedGemm x,w,b -> y transB=1 alpha=0.5 activation=LeakyRelu "
         "activation_alpha=0.3",
         "Gemm x,w,b -> c transB=1 alpha=0.5\nLeakyRelu c -> y alpha=0.3", 1e-6},
        {"opset 13\nin x f32 3,2,4\nc w f32 5,2,3 = 1 -2 0.5 0.25\n",
         "com.microsoft:FusedMatMul x,w -> y transA=1 transBatchA=1 transB=1 transBatchB=1 "
         "alpha=0.5",
         "Transpose x -> a perm=[1,2,0]\nTranspose w -> b perm=[1,2,0]\nMatMul a,b -> c\n"
         "c h f32  = 0.5\nMul c,h -> y",
         1e-6},
        {"opset 20\n" ROWS, "com.microsoft:BiasGelu x,b -> y", "Add x,b -> s\nGelu s -> y", 1e-6},
        {"opset 20\n" ROWS, "com.microsoft:FastGelu x,b -> y",
         "Add x,b -> s\nGelu s -> y approximate=tanh", 1e-6},
        {"opset 13\n" ROWS, "com.microsoft:QuickGelu x -> y alpha=1.5",
         "c a f32  = 1.5\nMul x,a -> t\nSigmoid t -> s\nMul x,s -> y", 1e-6},
        {"opset 17\n" ROWS, "com.microsoft:SkipLayerNormalization x,x,g,-,b -> y epsilon=0.001",
         "Add x,x -> s\nAdd s,b -> t\nLayerNormalization t,g -> y epsilon=0.001", 1e-5},
        {"opset 23\n" ROWS, "com.microsoft:SkipSimplifiedLayerNormalization x,x,g -> y",
         "Add x,x -> s\nRMSNormalization s,g -> y", 1e-5},
        {"opset 9\n" ROWS, "LayerNormalization x,g,b -> y",
         "c m f32  = 0.125\nReduceMean x -> u axes=[2]\nSub x,u -> d\nMul d,d -> q\n"
         "ReduceMean q -> v axes=[2]\nc e f32  = 0.00001\nAdd v,e -> w\nSqrt w -> r\nDiv d,r -> n\n"
         "Mul n,g -> o\nAdd o,b -> y",
         1e-5},
        {"opset 13\n" ROWS, "SimplifiedLayerNormalization x,g -> n,y",
         "Mul x,x -> q\nReduceMean q -> v axes=[2]\nc e f32  = 0.00001\nAdd v,e -> w\nSqrt w -> r\n"
         "Reciprocal r -> y",
         1e-5},
        {"opset 13\n" ROWS, "com.microsoft:SkipSimplifiedLayerNormalization x,x,g -> n,-,y",
         "Add x,x -> s\nMul s,s -> q\nReduceMean q -> v axes=[2]\nc e f32  = 0.00001\nAdd v,e -> w\n"
         "Sqrt w -> r\nReciprocal r -> y",
         1e-5},
        {"opset 12\nin x u8 1,5,6,2\n",
         "com.microsoft:NhwcMaxPool x -> y kernel_shape=[2,3] strides=[2,1] pads=[1,0,0,1]",
         "Transpose x -> a perm=[0,3,1,2]\nMaxPool a -> b kernel_shape=[2,3] strides=[2,1] "
         "pads=[1,0,0,1]\nTranspose b -> y perm=[0,2,3,1]",
         0.0},
    };
    ms_same(cases, sizeof cases / sizeof cases[0]);
}

#define TOKENS                                                                                     \
    "in x i32 2,3\nc w f32 5,4 = 1 -2 0.5 0.25 3\nc p f32 6,4 = 0.5 1 -1\nc g f32 4 = 1 2\n"         \
    "c b f32 4 = 0.5 -0.5\nc m i32 2,3 = 1 1 1 1 0 0\n"
#define EMBED "Gather w,x -> e\nc i i64 3 = 0 1 2\nGather p,i -> f\nAdd e,f -> s\n"
#define QKV                                                                                        \
    "in x f32 2,3,4\nc w f32 4,24 = 0.5 -0.25 0.125 0.0625 -0.5\nc b f32 24 = 0.1 -0.2 0.3\n"        \
    "c m i32 2,3 = 1 1 1 1 1 0\nc n i32 2 = 3 2\n"
#define SPLIT                                                                                      \
    "MatMul x,w -> t\nAdd t,b -> a\nSplit a -> q,k,v axis=2 num_outputs=3\n"                          \
    "c f f32 2,1,1,3 = 0 0 0 0 0 -10000\n"
#define HEADS "q_num_heads=2 kv_num_heads=2"

TEST(attention_of_com_microsoft)
{
    static const ms_case cases[] = {
        {"opset 17\n" TOKENS, "com.microsoft:EmbedLayerNormalization x,-,w,p,-,g,b,m -> y,k",
         EMBED "LayerNormalization s,g,b -> y epsilon=0.000000000001", 1e-5},
        {"opset 13\n" TOKENS, "com.microsoft:EmbedLayerNormalization x,-,w,p,-,g,b,m -> u,y",
         "c z i32 2,3 = 0\nc o i64 1 = 1\nMul x,z -> t\nAdd t,m -> s\nReduceSum s,o -> y keepdims=0",
         0.0},
        {"opset 23\n" QKV, "com.microsoft:Attention x,w,b,m -> y num_heads=2",
         SPLIT "Attention q,k,v,f -> y " HEADS, 1e-5},
        {"opset 23\n" QKV, "com.microsoft:Attention x,w,b,n -> y num_heads=2 unidirectional=1",
         SPLIT "Attention q,k,v,f -> y " HEADS " is_causal=1", 1e-5},
        {"opset 23\n" QKV "c o f32 2,1,3,8 = 1 -1\n",
         SPLIT "com.microsoft:MultiHeadAttention q,k,v,-,m -> y num_heads=2 scale=0.25",
         SPLIT "Attention q,k,v,f -> y " HEADS " scale=0.25", 1e-5},
        /* two queries, three keys: the last query sees them all, as in ONNX Runtime */
        {"opset 23\n" QKV "c i i64 1 = 0\nc j i64 1 = 2\nc o i64 1 = 1\nc h f32 2,3 = 0 -10000 -10000 0 0 0\n",
         SPLIT "Slice q,i,j,o -> p\ncom.microsoft:MultiHeadAttention p,k,v -> y num_heads=2 unidirectional=1",
         SPLIT "Slice q,i,j,o -> p\nAttention p,k,v,h -> y " HEADS, 1e-5},
        {"opset 23\n" QKV "c l i32 2 = 2 2\nc h i32  = 3\n",
         SPLIT "com.microsoft:GroupQueryAttention q,k,v,-,-,l,h -> y num_heads=2 kv_num_heads=2",
         SPLIT "Attention q,k,v -> y " HEADS " is_causal=1", 1e-5},
        {"opset 23\nin x f32 1,4,3,8\nc c f32 9,4 = 0.5 0.25 -1\nc s f32 9,4 = 1 -0.5\n"
         "c i i64 1 = 4\nc j i64 1,3 = 4 5 6\n",
         "com.microsoft:RotaryEmbedding x,i,c,s -> y interleaved=1",
         "RotaryEmbedding x,c,s,j -> y interleaved=1", 1e-6},
    };
    ms_same(cases, sizeof cases / sizeof cases[0]);
}

/* One sample has one key of the past, the other three: the new key follows its own. By hand. */
TEST(new_keys_follow_each_samples_own)
{
    static double y[MS_MOST];
    sbit_error error;
    memset(&error, 0, sizeof error);
    CHECK_EQ_I64(ms_run("opset 17\nopset 1 com.microsoft\nin x f32 2,1,2\n"
                        "c p f32 2,1,3,2 = 1 2 9 9 9 9 3 4 5 6 7 8\nc l i32 2 = 1 3\nc h i32  = 4\n"
                        "com.microsoft:GroupQueryAttention x,x,x,p,p,l,h -> o,y,v num_heads=1 "
                        "kv_num_heads=1\nout y ?\n",
                        y, &error),
                 16);
    /* x: -3, 37 / 16 - 3 | 74 / 16 - 3, 10 / 16 - 3 */
    const double want[16] = {1, 2, -3, -0.6875, 0, 0, 0, 0, 3, 4, 5, 6, 7, 8, 1.625, -2.375};
    for (int i = 0; i < 16; i++) {
        CHECK_NEAR(y[i], want[i], 1e-6);
    }
}

/* Weights as (q - zero point) scale, which numbers of 8 bits hold exactly. */
TEST(a_quantized_lstm_is_an_lstm)
{
    static const ms_case cases[] = {
        {"opset 14\nin x f32 4,2,3\nc w u8 1,3,8 = 100 140 128 120 150 90\n"
         "c r u8 1,2,8 = 128 120 140\nc s f32 1 = 0.0625\nc z u8 1 = 128\n"
         "c f f32 1,3,8 = -1.75 0.75 0 -0.5 1.375 -2.375\nc g f32 1,2,8 = 0 -0.5 0.75\n",
         "com.microsoft:DynamicQuantizeLSTM x,w,r,-,-,-,-,-,s,z,s,z -> y hidden_size=2",
         "Transpose f -> a perm=[0,2,1]\nTranspose g -> b perm=[0,2,1]\n"
         "LSTM x,a,b -> y hidden_size=2",
         1e-6},
    };
    ms_same(cases, 1);
}

TEST(what_they_cannot_do_is_said)
{
    static const struct {
        const char *text, *say;
    } cases[] = {
        {"opset 17\n" CONV "com.microsoft:FusedConv x,w -> y fc activation=Mish",
         "FusedConv 'fc': its activation is not known"},
        {"opset 9\n" QKV "com.microsoft:Attention x,w,b -> y at num_heads=2",
         "Attention 'at': it can be run from opset 10 on, this model has 9"},
        {"opset 17\n" QKV "com.microsoft:Attention x,w,b -> y at num_heads=5", "do not fit 5 heads"},
        {"opset 17\n" QKV "com.microsoft:Attention x,w,b -> y at num_heads=0", "num_heads"},
        {"opset 17\n" QKV "com.microsoft:MultiHeadAttention x,x -> y mh num_heads=2",
         "MultiHeadAttention 'mh'"},
        {"opset 17\n" QKV "c l i32 2 = 2 2\nc h i32  = 3\n"
         "com.microsoft:GroupQueryAttention x,x,x,-,-,l,h -> y gq num_heads=3 kv_num_heads=2",
         "multiple of kv_num_heads"},
        {"opset 17\n" QKV "c l i32 2 = 9 2\nc h i32  = 4\n"
         "com.microsoft:GroupQueryAttention x,x,x,-,-,l,h -> y gq num_heads=2 kv_num_heads=2",
         "sample 0 has 7 past keys"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static double y[MS_MOST];
        char text[1600];
        sbit_error error;
        memset(&error, 0, sizeof error);
        snprintf(text, sizeof text, "opset 1 com.microsoft\n%s\nout y ?\n", cases[i].text);
        CHECK_EQ_I64(ms_run(text, y, &error), -1);
        CHECK_CONTAINS(error.message, cases[i].say);
    }
}
