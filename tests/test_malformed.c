/* test_malformed.c: every field of every node of the ONNX backend's tests is broken, one after
 * another: inputs and outputs left out, doubled and renamed; attributes gone, of another type, out
 * of range, too short, too long; tensors of another type, rank, size and content, declared,
 * undeclared and constant. What does not fit is an error that names the node; there is no crash,
 * hang or leak. Counts are printed.
 *
 *   SBIT_BAD_STRIDE   every how many-th breakage is tried (default 211; 1: all)
 *   SBIT_BAD_MODELS   only tests whose name contains this
 *   SPARSEBIT_BACKEND another folder of tests than build/onnx-backend
 *   SBIT_BAD_SHOW     prints what every breakage of these came to
 */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* fork, setitimer, opendir */
#endif
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE 1 /* MAP_ANONYMOUS */
#endif
#include "../sparsebit.h"
#include "test.h"
#include "backend_values.h"
#include "bad.h"

enum {
    MOST_INPUTS = 40,
    MOST_SUBJECTS = 4000,
    LONG_LIST = 70
};

/* How a tensor comes to the node. */
typedef enum bad_way {
    WAY_DECLARED,   /* an input of a known type */
    WAY_UNDECLARED, /* an input whose shape nobody told */
    WAY_CONSTANT,   /* stored in the model */
    WAYS
} bad_way;

/* One test of the backend. */
typedef struct bad_subject {
    char *folder;
    unsigned char *bytes;
    size_t size;
    int64_t first, count;        /* of its breakages among all */
    sbit_value fed[MOST_INPUTS]; /* of the graph's inputs, by position */
    bool has[MOST_INPUTS];
    sbit_onnx_doc *memory[MOST_INPUTS];
} bad_subject;

/* What is broken in one copy of it. Breakages are numbered in the order in which break_... meets
 * them; `left` counts down to the one that is done. */
typedef struct breaking {
    int64_t left;
    bool must_fail;
    char what[200];
    sbit_onnx_doc *doc;
    sbit_onnx_model *model;
    sbit_value fed[MOST_INPUTS]; /* of the graph's inputs, by position */
    bool has[MOST_INPUTS];
    sbit_rng rng;
} breaking;

__attribute__((format(printf, 3, 4))) static bool turn(breaking *b, bool must_fail,
                                                       const char *format, ...)
{
    va_list args;
    if (b->left-- != 0) {
        return false;
    }
    b->must_fail = must_fail;
    va_start(args, format);
    vsnprintf(b->what, sizeof b->what, format, args);
    va_end(args);
    return true;
}

static bool is_done(const breaking *b)
{
    return b->left < 0;
}

static sbit_str text(const char *chars)
{
    sbit_str view;
    view.data = chars;
    view.size = strlen(chars);
    return view;
}

/* A copy of `count` elements with room for one more. */
static void *longer(breaking *b, const void *data, size_t count, size_t each)
{
    char *out = (char *)sbit_onnx_alloc(b->doc, count + LONG_LIST, each);
    if (count > 0) {
        memcpy(out, data, count * each);
    }
    return out;
}

/* ---- attributes */

static const int64_t odd_ints[] = {
    0,  1,   -1,        2,         3,         -2,        4,         5,           -3,
    17, 300, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1LL << 40, -(1LL << 40)};
static const float odd_floats[] = {
    0.0f, 1.0f, -1.0f, 0.5f, 1e30f, -1e30f, 1e-30f, (float)INFINITY, -(float)INFINITY, (float)NAN};
static const char *const odd_texts[] = {"bogus",  "",           "a",     "\xff\xfe",
                                        "NOTSET", "SAME_UPPER", "%s%s%n"};
enum {
    ODD_INTS = sizeof odd_ints / sizeof odd_ints[0],
    ODD_FLOATS = sizeof odd_floats / sizeof odd_floats[0],
    ODD_TEXTS = sizeof odd_texts / sizeof odd_texts[0]
};

static sbit_onnx_tensor *small_tensor(breaking *b)
{
    sbit_onnx_tensor *t = (sbit_onnx_tensor *)sbit_onnx_alloc(b->doc, 1, sizeof *t);
    t->dims = (int64_t *)sbit_onnx_alloc(b->doc, 1, sizeof *t->dims);
    t->dims[0] = 2;
    t->dims_count = 1;
    SBIT_ONNX_SET(t, SBIT_ONNX_TENSOR_DATA_TYPE, data_type, (int32_t)SBIT_F32);
    t->raw_data.data = (const char *)sbit_onnx_alloc(b->doc, 1, 8);
    t->raw_data.size = 8;
    t->msg.has |= 1u << SBIT_ONNX_TENSOR_RAW_DATA;
    return t;
}

/* The attribute becomes one of another type. */
static void retype(breaking *b, sbit_onnx_attribute *a, int32_t type)
{
    const sbit_str name = a->name;
    memset(a, 0, sizeof *a);
    SBIT_ONNX_SET(a, SBIT_ONNX_ATTRIBUTE_NAME, name, name);
    SBIT_ONNX_SET(a, SBIT_ONNX_ATTRIBUTE_TYPE, type, type);
    a->floats = (float *)sbit_onnx_alloc(b->doc, 2, sizeof(float));
    a->ints = (int64_t *)sbit_onnx_alloc(b->doc, 2, sizeof(int64_t));
    a->strings = (sbit_str *)sbit_onnx_alloc(b->doc, 2, sizeof(sbit_str));
    a->strings[0] = a->strings[1] = text("a");
    switch (type) {
    case SBIT_ONNX_ATTR_FLOAT:
        SBIT_ONNX_SET(a, SBIT_ONNX_ATTRIBUTE_F, f, 1.0f);
        break;
    case SBIT_ONNX_ATTR_INT:
        SBIT_ONNX_SET(a, SBIT_ONNX_ATTRIBUTE_I, i, 1);
        break;
    case SBIT_ONNX_ATTR_STRING:
        SBIT_ONNX_SET(a, SBIT_ONNX_ATTRIBUTE_S, s, text("a"));
        break;
    case SBIT_ONNX_ATTR_TENSOR:
        a->t = small_tensor(b);
        break;
    case SBIT_ONNX_ATTR_GRAPH:
        a->g = (sbit_onnx_graph *)sbit_onnx_alloc(b->doc, 1, sizeof *a->g);
        SBIT_ONNX_SET(a->g, SBIT_ONNX_GRAPH_NAME, name, text("empty"));
        break;
    case SBIT_ONNX_ATTR_FLOATS:
        a->floats_count = 2;
        break;
    case SBIT_ONNX_ATTR_INTS:
        a->ints_count = 2;
        break;
    case SBIT_ONNX_ATTR_STRINGS:
        a->strings_count = 2;
        break;
    case SBIT_ONNX_ATTR_TENSORS:
        a->tensors = small_tensor(b);
        a->tensors_count = 1;
        break;
    default:
        break;
    }
}

static void break_ints(breaking *b, sbit_onnx_attribute *a, const char *name)
{
    if (turn(b, false, "%s is empty", name)) {
        a->ints_count = 0;
    } else if (a->ints_count > 0 && turn(b, false, "%s is one shorter", name)) {
        a->ints_count--;
    } else if (turn(b, false, "%s is one longer", name)) {
        a->ints = (int64_t *)longer(b, a->ints, a->ints_count, sizeof *a->ints);
        a->ints[a->ints_count++] = 1;
    } else if (turn(b, false, "%s is long", name)) {
        a->ints = (int64_t *)longer(b, a->ints, a->ints_count, sizeof *a->ints);
        a->ints_count += LONG_LIST;
    }
    for (size_t i = 0; i < a->ints_count && i < 4; i++) {
        for (size_t v = 0; v < ODD_INTS; v++) {
            if (turn(b, false, "%s[%d] is %lld", name, (int)i, (long long)odd_ints[v])) {
                a->ints[i] = odd_ints[v];
            }
        }
    }
    for (size_t v = 0; v < ODD_INTS; v++) {
        if (turn(b, false, "all of %s are %lld", name, (long long)odd_ints[v])) {
            for (size_t i = 0; i < a->ints_count; i++) {
                a->ints[i] = odd_ints[v];
            }
        }
    }
}

static void break_floats(breaking *b, sbit_onnx_attribute *a, const char *name)
{
    if (turn(b, false, "%s is empty", name)) {
        a->floats_count = 0;
    } else if (a->floats_count > 0 && turn(b, false, "%s is one shorter", name)) {
        a->floats_count--;
    } else if (turn(b, false, "%s is one longer", name)) {
        a->floats = (float *)longer(b, a->floats, a->floats_count, sizeof *a->floats);
        a->floats[a->floats_count++] = 1.0f;
    }
    for (size_t v = 0; a->floats_count > 0 && v < ODD_FLOATS; v++) {
        if (turn(b, false, "%s[0] is %g", name, (double)odd_floats[v])) {
            a->floats[0] = odd_floats[v];
        }
    }
}

static void break_strings(breaking *b, sbit_onnx_attribute *a, const char *name)
{
    if (turn(b, false, "%s is empty", name)) {
        a->strings_count = 0;
    } else if (a->strings_count > 0 && turn(b, false, "%s is one shorter", name)) {
        a->strings_count--;
    } else if (turn(b, false, "%s is one longer", name)) {
        a->strings = (sbit_str *)longer(b, a->strings, a->strings_count, sizeof *a->strings);
        a->strings[a->strings_count++] = text("bogus");
    }
    for (size_t v = 0; a->strings_count > 0 && v < ODD_TEXTS; v++) {
        if (turn(b, false, "%s[0] is '%s'", name, odd_texts[v])) {
            a->strings[0] = text(odd_texts[v]);
        }
    }
}

static void break_tensor(breaking *b, sbit_onnx_tensor *t, const char *name)
{
    for (int32_t dtype = 0; dtype <= (int32_t)SBIT_DTYPE_COUNT; dtype++) {
        if (dtype != t->data_type && turn(b, false, "%s is %s", name, sbit_dtype_name(dtype))) {
            t->data_type = dtype;
        }
    }
    if (turn(b, false, "%s has an axis more", name)) {
        t->dims = (int64_t *)longer(b, t->dims, t->dims_count, sizeof *t->dims);
        t->dims[t->dims_count++] = 1;
    } else if (t->dims_count > 0 && turn(b, false, "%s has an axis less", name)) {
        t->dims_count--;
    } else if (turn(b, false, "%s has 12 axes", name)) {
        t->dims = (int64_t *)longer(b, t->dims, t->dims_count, sizeof *t->dims);
        while (t->dims_count < 12) {
            t->dims[t->dims_count++] = 1;
        }
    }
    for (size_t v = 0; t->dims_count > 0 && v < ODD_INTS; v++) {
        if (t->dims[0] != odd_ints[v] &&
            turn(b, false, "%s has %lld rows", name, (long long)odd_ints[v])) {
            t->dims[0] = odd_ints[v];
        }
    }
}

static void break_graph(breaking *b, sbit_onnx_graph *graph);

static void break_body(breaking *b, sbit_onnx_graph *g, const char *name)
{
    if (turn(b, false, "%s has no nodes", name)) {
        g->node_count = 0;
    } else if (g->input_count > 0 && turn(b, false, "%s has an input less", name)) {
        g->input_count--;
    } else if (g->input_count > 0 && turn(b, false, "%s has no inputs", name)) {
        g->input_count = 0;
    } else if (g->output_count > 0 && turn(b, false, "%s has an output less", name)) {
        g->output_count--;
    } else if (g->output_count > 0 && turn(b, false, "%s has no outputs", name)) {
        g->output_count = 0;
    } else if (g->output_count > 0 && turn(b, false, "%s gives an output twice", name)) {
        g->output =
            (sbit_onnx_value_info *)longer(b, g->output, g->output_count, sizeof *g->output);
        g->output[g->output_count] = g->output[0];
        g->output_count++;
    } else if (g->output_count > 0 && turn(b, true, "%s gives what nobody makes", name)) {
        g->output[0].name = text("nobody");
    }
    if (!is_done(b)) {
        break_graph(b, g);
    }
}

static void break_attribute(breaking *b, sbit_onnx_attribute *a, const char *op)
{
    char name[120];
    const int32_t own = a->type;
    snprintf(name, sizeof name, "%s: attribute %.40s", op, a->name.data);
    for (int32_t type = 1; type <= (int32_t)SBIT_ONNX_ATTR_TYPE_PROTOS; type++) {
        const bool one_of_a_list =
            (type == (int32_t)SBIT_ONNX_ATTR_INT && own == (int32_t)SBIT_ONNX_ATTR_INTS) ||
            (type == (int32_t)SBIT_ONNX_ATTR_FLOAT && own == (int32_t)SBIT_ONNX_ATTR_FLOATS);
        const bool by_version = strcmp(a->name.data, "p") == 0 || strcmp(a->name.data, "to") == 0;
        if (type != own && turn(b, !one_of_a_list && !by_version, "%s is of type %d, not %d", name,
                                (int)type, (int)own)) {
            retype(b, a, type);
        }
    }
    for (size_t v = 0; own == (int32_t)SBIT_ONNX_ATTR_INT && v < ODD_INTS; v++) {
        if (turn(b, false, "%s is %lld", name, (long long)odd_ints[v])) {
            a->i = odd_ints[v];
        }
    }
    for (size_t v = 0; own == (int32_t)SBIT_ONNX_ATTR_FLOAT && v < ODD_FLOATS; v++) {
        if (turn(b, false, "%s is %g", name, (double)odd_floats[v])) {
            a->f = odd_floats[v];
        }
    }
    for (size_t v = 0; own == (int32_t)SBIT_ONNX_ATTR_STRING && v < ODD_TEXTS; v++) {
        if (turn(b, false, "%s is '%s'", name, odd_texts[v])) {
            a->s = text(odd_texts[v]);
        }
    }
    if (own == (int32_t)SBIT_ONNX_ATTR_INTS) {
        break_ints(b, a, name);
    } else if (own == (int32_t)SBIT_ONNX_ATTR_FLOATS) {
        break_floats(b, a, name);
    } else if (own == (int32_t)SBIT_ONNX_ATTR_STRINGS) {
        break_strings(b, a, name);
    } else if (own == (int32_t)SBIT_ONNX_ATTR_TENSOR && a->t != NULL) {
        break_tensor(b, a->t, name);
    } else if (own == (int32_t)SBIT_ONNX_ATTR_GRAPH && a->g != NULL) {
        break_body(b, a->g, name);
    }
}

/* ---- nodes */

/* Nobody may ask for what the node no longer makes. */
static void forget_output(sbit_onnx_graph *graph, sbit_str name)
{
    size_t kept = 0;
    for (size_t i = 0; i < graph->output_count; i++) {
        if (strcmp(graph->output[i].name.data, name.data) != 0) {
            graph->output[kept++] = graph->output[i];
        }
    }
    graph->output_count = kept;
}

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names != NULL && strcmp(name, *names) != 0) {
        names++;
    }
    return *names != NULL;
}

/* The most inputs that any version of an operator has; others have any number.
 * tests/interop/check_schemas.py holds it against the schemas, and the rows of each version as well. */
static const char max_inputs[] =
    " Abs:1 Acos:1 Acosh:1 Add:2 AffineGrid:2 And:2 ArgMax:1 ArgMin:1 ArrayFeatureExtractor:2 Asin:1 Asinh:1 Atan:1 Atanh:1"
    " Attention:7 AveragePool:1 BatchNormalization:5 Bernoulli:1 Binarizer:1 BitCast:1 BitShift:2 BitwiseAnd:2 BitwiseNot:1"
    " BitwiseOr:2 BitwiseXor:2 BlackmanWindow:1 Cast:1 CastLike:2 CategoryMapper:1 CausalConvWithState:4 Ceil:1 Celu:1 CenterCropPad:2"
    " Clip:3 Col2Im:3 Compress:2 ConcatFromSequence:1 Constant:0 ConstantOfShape:1 Conv:3 ConvInteger:4 ConvTranspose:3 Cos:1 Cosh:1"
    " CumProd:2 CumSum:2 DFT:3 DeformConv:5 DepthToSpace:1 DequantizeLinear:3 Det:1 Div:2 Dropout:3 DynamicQuantizeLinear:1 Elu:1"
    " Equal:2 Erf:1 Exp:1 Expand:2 EyeLike:1 Flatten:1 FlexAttention:3 Floor:1 GRU:6 Gather:2 GatherElements:2 GatherND:2 Gelu:1"
    " Gemm:3 GlobalAveragePool:1 GlobalLpPool:1 GlobalMaxPool:1 Greater:2 GreaterOrEqual:2 GridSample:2 GroupNormalization:3"
    " HammingWindow:1 HannWindow:1 HardSigmoid:1 HardSwish:1 Hardmax:1 Identity:1 If:1 Imputer:1 InstanceNormalization:3 IsInf:1"
    " IsNaN:1 LRN:1 LSTM:8 LabelEncoder:1 LayerNormalization:3 LeakyRelu:1 Less:2 LessOrEqual:2 LinearAttention:6 LinearClassifier:1"
    " LinearRegressor:1 Log:1 LogSoftmax:1 LpNormalization:1 LpPool:1 MatMul:2 MatMulInteger:4 MaxPool:1 MaxRoiPool:2 MaxUnpool:3"
    " MeanVarianceNormalization:1 MelWeightMatrix:5 Mish:1 Mod:2 Mul:2 Multinomial:1 Neg:1 NegativeLogLikelihoodLoss:3"
    " NonMaxSuppression:5 NonZero:1 Normalizer:1 Not:1 OneHot:3 OneHotEncoder:1 Optional:1 OptionalGetElement:1 OptionalHasElement:1"
    " Or:2 PRelu:2 Pad:4 Pow:2 QLinearConv:9 QLinearMatMul:8 QuantizeLinear:3 RMSNormalization:2 RNN:6 RandomNormal:0"
    " RandomNormalLike:1 RandomUniform:0 RandomUniformLike:1 Range:3 Reciprocal:1 ReduceL1:2 ReduceL2:2 ReduceLogSum:2"
    " ReduceLogSumExp:2 ReduceMax:2 ReduceMean:2 ReduceMin:2 ReduceProd:2 ReduceSum:2 ReduceSumSquare:2 Relu:1 Reshape:2 Resize:4"
    " ReverseSequence:2 RoiAlign:3 RotaryEmbedding:4 Round:1 STFT:4 SVMClassifier:1 SVMRegressor:1 Scaler:1 Scatter:3"
    " ScatterElements:3 ScatterND:3 Selu:1 SequenceAt:2 SequenceEmpty:0 SequenceErase:2 SequenceInsert:3 SequenceLength:1 Shape:1"
    " Shrink:1 Sigmoid:1 Sign:1 Sin:1 Sinh:1 Size:1 Slice:5 Softmax:1 SoftmaxCrossEntropyLoss:3 Softplus:1 Softsign:1 SpaceToDepth:1"
    " Split:2 SplitToSequence:2 Sqrt:1 Squeeze:2 StringConcat:2 StringNormalizer:1 StringSplit:1 Sub:2 SwiGLU:2 Swish:1 Tan:1 Tanh:1"
    " TensorScatter:3 TfIdfVectorizer:1 ThresholdedRelu:1 Tile:3 TopK:2 Transpose:1 TreeEnsemble:1 TreeEnsembleClassifier:1"
    " TreeEnsembleRegressor:1 Trilu:2 Unique:1 Unsqueeze:2 Upsample:2 Where:3 Xor:2 ";

static bool has_surplus(const char *op, size_t inputs)
{
    char key[80];
    snprintf(key, sizeof key, " %s:", op);
    const char *at = strstr(max_inputs, key);
    return at != NULL && inputs > (size_t)atoi(at + strlen(key));
}

/* Operators that make any number of tensors. */
static const char *const any_outputs[] = {"Adagrad", "Adam",  "Gradient", "If",          "Loop",
                                          "Momentum", "Scan", "Split",    "SequenceMap", NULL};

/* What an operator of any opset that the tests have cannot do without. */
static const char *const required[] = {
    "AveragePool.kernel_shape", "BitCast.to", "BitShift.direction", "Cast.to", "Concat.axis",
    "ConcatFromSequence.axis", "DepthToSpace.blocksize", "Einsum.equation",
    "GroupNormalization.num_groups", "If.else_branch", "If.then_branch", "LRN.size",
    "LinearAttention.kv_num_heads", "LinearAttention.q_num_heads", "LinearClassifier.coefficients",
    "Loop.body", "LpPool.kernel_shape", "MaxPool.kernel_shape", "MaxRoiPool.pooled_shape",
    "MaxUnpool.kernel_shape", "Momentum.alpha", "Momentum.beta", "Momentum.mode",
    "Momentum.norm_coefficient", "RandomNormal.shape", "RandomUniform.shape", "Scan.body",
    "Scan.num_scan_inputs", "SequenceMap.body", "SpaceToDepth.blocksize",
    "TfIdfVectorizer.max_gram_length", "TfIdfVectorizer.max_skip_count",
    "TfIdfVectorizer.min_gram_length", "TfIdfVectorizer.mode", "TfIdfVectorizer.ngram_counts",
    "TfIdfVectorizer.ngram_indexes", "TreeEnsemble.leaf_targetids", "TreeEnsemble.leaf_weights",
    "TreeEnsemble.nodes_falseleafs", "TreeEnsemble.nodes_falsenodeids",
    "TreeEnsemble.nodes_featureids", "TreeEnsemble.nodes_modes", "TreeEnsemble.nodes_splits",
    "TreeEnsemble.nodes_trueleafs", "TreeEnsemble.nodes_truenodeids", "TreeEnsemble.tree_roots",
    NULL};

static void break_links(breaking *b, sbit_onnx_graph *graph, sbit_onnx_node *node, const char *op)
{
    for (size_t i = 0; i < node->input_count; i++) {
        if (node->input[i].size > 0 && turn(b, false, "%s: input %d is missing", op, (int)i)) {
            node->input[i] = text("");
        } else if (turn(b, false, "%s: inputs end before %d", op, (int)i)) {
            node->input_count = i;
        } else if (i > 0 && turn(b, false, "%s: input %d is input 0", op, (int)i)) {
            node->input[i] = node->input[0];
        }
    }
    for (int more = 1; more <= 40; more += 39) {
        if (node->input_count > 0 && turn(b, has_surplus(op, node->input_count + (size_t)more), "%s: %d inputs more", op, more)) {
            node->input =
                (sbit_str *)longer(b, node->input, node->input_count, sizeof *node->input);
            for (int i = 0; i < more; i++) {
                node->input[node->input_count] = node->input[0];
                node->input_count++;
            }
        }
        if (turn(b, more == 40 && !is_one_of(op, any_outputs), "%s: %d outputs more", op, more)) {
            node->output =
                (sbit_str *)longer(b, node->output, node->output_count, sizeof *node->output);
            for (int i = 0; i < more; i++) {
                char *name = (char *)sbit_onnx_alloc(b->doc, 1, 20);
                snprintf(name, 20, "more%d", i);
                node->output[node->output_count++] = text(name);
            }
        }
    }
    for (size_t i = 0; i < node->output_count; i++) {
        if (node->output[i].size > 0 && turn(b, false, "%s: output %d is left out", op, (int)i)) {
            forget_output(graph, node->output[i]);
            node->output[i] = text("");
        } else if (turn(b, false, "%s: outputs end before %d", op, (int)i)) {
            while (node->output_count > i) {
                forget_output(graph, node->output[--node->output_count]);
            }
        }
    }
}

static void break_graph(breaking *b, sbit_onnx_graph *graph)
{
    for (size_t n = 0; n < graph->node_count && !is_done(b); n++) {
        sbit_onnx_node *node = &graph->node[n];
        char op[60];
        snprintf(op, sizeof op, "%.50s", node->op_type.data);
        break_links(b, graph, node, op);
        for (size_t a = 0; a < node->attribute_count && !is_done(b); a++) {
            char name[120];
            snprintf(name, sizeof name, "%s.%.40s", op, node->attribute[a].name.data);
            if (turn(b, is_one_of(name, required), "%s: attribute %.40s is gone", op, node->attribute[a].name.data)) {
                node->attribute[a] = node->attribute[--node->attribute_count];
            } else {
                break_attribute(b, &node->attribute[a], op);
            }
        }
    }
}

/* ---- what is fed */

/* A tensor of small numbers; NULL data if it would be too large. The memory is the document's. */
static sbit_tensor random_tensor(breaking *b, sbit_dtype dtype, int32_t rank, const int64_t *dims)
{
    static const sbit_str words[2] = {{"a", 1}, {"", 0}};
    sbit_tensor out;
    int64_t count = 1;
    memset(&out, 0, sizeof out);
    out.dtype = dtype;
    out.rank = rank;
    for (int32_t i = 0; i < rank; i++) {
        out.dims[i] = dims[i];
        if (dims[i] < 0 || dims[i] > BAD_ELEMENTS || (count *= dims[i]) > BAD_ELEMENTS) {
            count = -1;
            break;
        }
    }
    if (count < 0 || dtype == SBIT_UNDEFINED || dtype >= SBIT_DTYPE_COUNT) {
        return out;
    }
    out.data = sbit_onnx_alloc(b->doc, (size_t)count + 1, 16);
    for (int64_t i = 0; i < count; i++) {
        if (dtype == SBIT_F32) {
            ((float *)out.data)[i] = sbit_rng_normal(&b->rng);
        } else if (dtype == SBIT_F64) {
            ((double *)out.data)[i] = (double)sbit_rng_normal(&b->rng);
        } else if (dtype == SBIT_STRING) {
            ((sbit_str *)out.data)[i] = words[sbit_rng_below(&b->rng, 2)];
        } else if (dtype == SBIT_F16) {
            ((uint16_t *)out.data)[i] = sbit_f32_to_f16(sbit_rng_normal(&b->rng));
        } else if (dtype == SBIT_I64) {
            ((int64_t *)out.data)[i] = (int64_t)sbit_rng_below(&b->rng, 4) - 1;
        } else if (dtype == SBIT_I32) {
            ((int32_t *)out.data)[i] = (int32_t)sbit_rng_below(&b->rng, 4) - 1;
        } else {
            ((unsigned char *)out.data)[i] = (unsigned char)sbit_rng_below(&b->rng, 2);
        }
    }
    return out;
}

/* The same tensor with `value` everywhere, as near as its type comes. False: no such type. */
static bool fill(breaking *b, sbit_tensor *t, double value)
{
    const int64_t count = sbit_tensor_count(t);
    void *data = sbit_onnx_alloc(b->doc, (size_t)count + 1, 16);
    for (int64_t i = 0; i < count; i++) {
        const double least = value < -9.2e18 ? -9.2e18 : value > 9.2e18 ? 9.2e18 : value;
        switch ((int)t->dtype) {
        case SBIT_F32:
            ((float *)data)[i] = (float)value;
            break;
        case SBIT_F64:
            ((double *)data)[i] = value;
            break;
        case SBIT_F16:
            ((uint16_t *)data)[i] = sbit_f32_to_f16((float)value);
            break;
        case SBIT_I64:
            ((int64_t *)data)[i] = value >= 9.2e18    ? INT64_MAX
                                   : value <= -9.2e18 ? INT64_MIN
                                                      : (int64_t)least;
            break;
        case SBIT_I32:
            ((int32_t *)data)[i] = (int32_t)(least > 2e9 ? 2e9 : least < -2e9 ? -2e9 : least);
            break;
        default:
            return false;
        }
    }
    t->data = data;
    return true;
}

static void replace(breaking *b, size_t i, sbit_dtype dtype, int32_t rank, const int64_t *dims)
{
    b->fed[i].tensor = random_tensor(b, dtype, rank, dims);
}

static void break_shape(breaking *b, size_t i, const char *name)
{
    const sbit_tensor was = b->fed[i].tensor;
    int64_t dims[SBIT_MAX_RANK];
    memcpy(dims, was.dims, sizeof dims);
    if (was.rank > 0 && turn(b, false, "%s has an axis less", name)) {
        replace(b, i, was.dtype, was.rank - 1, dims);
    } else if (was.rank > 0 && turn(b, false, "%s has its first axis less", name)) {
        replace(b, i, was.dtype, was.rank - 1, dims + 1);
    } else if (was.rank > 1 && turn(b, false, "%s is a scalar", name)) {
        replace(b, i, was.dtype, 0, dims);
    } else if (was.rank < SBIT_MAX_RANK && turn(b, false, "%s has an axis more", name)) {
        dims[was.rank] = 1;
        replace(b, i, was.dtype, was.rank + 1, dims);
    } else if (was.rank < SBIT_MAX_RANK && turn(b, false, "%s has an axis more in front", name)) {
        memmove(dims + 1, dims, sizeof dims - sizeof dims[0]);
        dims[0] = 1;
        replace(b, i, was.dtype, was.rank + 1, dims);
    } else if (turn(b, false, "%s is of rank 8", name)) {
        for (int32_t d = was.rank; d < SBIT_MAX_RANK; d++) {
            dims[d] = 1;
        }
        replace(b, i, was.dtype, SBIT_MAX_RANK, dims);
    }
    for (int32_t d = 0; d < was.rank && !is_done(b); d++) {
        static const int64_t sizes[] = {0, 1, 2, 3, 7, -1, 1LL << 40, INT64_MAX, INT64_MIN};
        for (size_t v = 0; v < sizeof sizes / sizeof sizes[0]; v++) {
            if (was.dims[d] != sizes[v] &&
                turn(b, false, "%s: dim %d is %lld", name, (int)d, (long long)sizes[v])) {
                dims[d] = sizes[v];
                replace(b, i, was.dtype, was.rank, dims);
                return;
            }
        }
        if (turn(b, false, "%s: dim %d is one larger", name, (int)d)) {
            dims[d]++;
            replace(b, i, was.dtype, was.rank, dims);
        }
    }
}

static void break_input(breaking *b, size_t i)
{
    static const double values[] = {
        0.0, -1.0, 1.0, 2.0, -7.0, 100.0, 1e6, 1e19, -1e19, 1e30, (double)INFINITY, (double)NAN};
    const sbit_tensor was = b->fed[i].tensor;
    char name[80];
    snprintf(name, sizeof name, "%.40s", b->model->graph->input[i].name.data);
    if (!b->has[i] || b->fed[i].kind != SBIT_KIND_TENSOR ||
        sbit_tensor_count(&was) > BAD_ELEMENTS) {
        return;
    }
    for (int dtype = 1; dtype < (int)SBIT_DTYPE_COUNT; dtype++) {
        if (dtype != (int)was.dtype && turn(b, false, "%s is %s", name, sbit_dtype_name(dtype))) {
            replace(b, i, (sbit_dtype)dtype, was.rank, was.dims);
        }
    }
    break_shape(b, i, name);
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
        if (turn(b, false, "%s is full of %g", name, values[v]) &&
            !fill(b, &b->fed[i].tensor, values[v])) {
            replace(b, i, was.dtype, was.rank, was.dims);
        }
    }
}

/* Declares input i as what is fed, or tells its element type alone. */
static void declare(breaking *b, size_t i, bool with_shape)
{
    const sbit_tensor *t = &b->fed[i].tensor;
    sbit_onnx_type *type = (sbit_onnx_type *)sbit_onnx_alloc(b->doc, 1, sizeof *type);
    sbit_onnx_type_tensor *of = (sbit_onnx_type_tensor *)sbit_onnx_alloc(b->doc, 1, sizeof *of);
    type->tensor_type = of;
    SBIT_ONNX_SET(of, SBIT_ONNX_TYPE_TENSOR_ELEM_TYPE, elem_type, (int32_t)t->dtype);
    if (with_shape) {
        of->shape = (sbit_onnx_shape *)sbit_onnx_alloc(b->doc, 1, sizeof *of->shape);
        of->shape->dim = (sbit_onnx_dimension *)sbit_onnx_alloc(b->doc, (size_t)t->rank + 1,
                                                                sizeof *of->shape->dim);
        of->shape->dim_count = (size_t)t->rank;
        for (int32_t d = 0; d < t->rank; d++) {
            SBIT_ONNX_SET(&of->shape->dim[d], SBIT_ONNX_DIMENSION_DIM_VALUE, dim_value, t->dims[d]);
        }
    }
    b->model->graph->input[i].type = type;
}

static void store(breaking *b, const sbit_tensor *t, sbit_str name)
{
    sbit_onnx_graph *g = b->model->graph;
    g->initializer =
        (sbit_onnx_tensor *)longer(b, g->initializer, g->initializer_count, sizeof *g->initializer);
    sbit_onnx_tensor *out = &g->initializer[g->initializer_count++];
    SBIT_ONNX_SET(out, SBIT_ONNX_TENSOR_NAME, name, name);
    SBIT_ONNX_SET(out, SBIT_ONNX_TENSOR_DATA_TYPE, data_type, (int32_t)t->dtype);
    out->dims = (int64_t *)longer(b, t->dims, (size_t)t->rank, sizeof *out->dims);
    out->dims_count = (size_t)t->rank;
    if (t->dtype == SBIT_STRING) {
        out->string_data = (sbit_str *)t->data;
        out->string_data_count = t->data != NULL ? (size_t)sbit_tensor_count(t) : 0;
        return;
    }
    out->raw_data.data = (const char *)t->data;
    out->raw_data.size = t->data != NULL ? sbit_tensor_bytes(t) : 0;
    out->msg.has |= 1u << SBIT_ONNX_TENSOR_RAW_DATA;
}

/* Tensors become constants: inputs that are none stay, in their order. */
static void store_all(breaking *b)
{
    sbit_onnx_graph *g = b->model->graph;
    size_t kept = 0;
    for (size_t i = 0; i < g->input_count; i++) {
        if (i < MOST_INPUTS && b->has[i] && b->fed[i].kind == SBIT_KIND_TENSOR) {
            store(b, &b->fed[i].tensor, g->input[i].name);
            continue;
        }
        b->has[kept] = i < MOST_INPUTS && b->has[i];
        b->fed[kept] = i < MOST_INPUTS ? b->fed[i] : b->fed[0];
        g->input[kept++] = g->input[i];
    }
    g->input_count = kept;
}

/* ---- one breakage */

static void name_nodes(sbit_onnx_graph *graph)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        SBIT_ONNX_SET(&graph->node[n], SBIT_ONNX_NODE_NAME, name, text("the broken one"));
        for (size_t a = 0; a < graph->node[n].attribute_count; a++) {
            if (graph->node[n].attribute[a].g != NULL) {
                name_nodes(graph->node[n].attribute[a].g);
            }
        }
    }
}

static void load_fed(bad_subject *subject)
{
    char path[1500];
    sbit_error error;
    sbit_onnx_doc *doc = NULL;
    if (!CHECK_OK(sbit_onnx_read(subject->bytes, subject->size, NULL, &doc, &error), error)) {
        return;
    }
    const sbit_onnx_graph *graph = sbit_onnx_doc_model(doc)->graph;
    for (size_t i = 0; i < graph->input_count && i < MOST_INPUTS; i++) {
        const sbit_onnx_type *declared = graph->input[i].type;
        sbit_type type;
        memset(&type, 0, sizeof type);
        type.kind = declared != NULL && declared->sequence_type != NULL   ? SBIT_KIND_SEQUENCE
                    : declared != NULL && declared->optional_type != NULL ? SBIT_KIND_OPTIONAL
                                                                          : SBIT_KIND_TENSOR;
        snprintf(path, sizeof path, "%s/test_data_set_0/input_%d.pb", subject->folder, (int)i);
        subject->has[i] = test_file_exists(path) &&
                          load_value(path, &type, &subject->memory[i], &subject->fed[i], &error);
    }
    sbit_onnx_destroy(doc);
}

/* Breaks a fresh copy; false: there are not so many breakages. */
static bool break_copy(breaking *b, const bad_subject *subject, int64_t at)
{
    sbit_error error;
    const bad_way way = (bad_way)(at % WAYS);
    memset(b, 0, sizeof *b);
    if (!CHECK_OK(sbit_onnx_read(subject->bytes, subject->size, NULL, &b->doc, &error), error)) {
        return false;
    }
    b->left = at / WAYS;
    b->model = sbit_onnx_doc_model(b->doc);
    b->rng = sbit_rng_seed((uint64_t)at);
    name_nodes(b->model->graph);
    memcpy(b->fed, subject->fed, sizeof b->fed);
    memcpy(b->has, subject->has, sizeof b->has);
    for (size_t i = 0; i < b->model->graph->input_count && i < MOST_INPUTS && !is_done(b); i++) {
        break_input(b, i);
        if (is_done(b)) {
            declare(b, i, true);
        }
    }
    break_graph(b, b->model->graph);
    if (!is_done(b)) {
        return false;
    }
    for (size_t i = 0; i < b->model->graph->input_count && i < MOST_INPUTS && way == WAY_UNDECLARED;
         i++) {
        if (b->has[i] && b->fed[i].kind == SBIT_KIND_TENSOR) {
            declare(b, i, false);
        }
    }
    if (way == WAY_CONSTANT) {
        store_all(b);
    }
    return true;
}

/* Runs it; whether all that is to be fed could be is *complete. */
static bad_outcome run_session(bad_work *work, breaking *b, sbit_graph *graph)
{
    sbit_session *session = NULL;
    sbit_session_desc desc;
    bad_outcome outcome = BAD_NONE;
    bool complete = true;
    memset(&desc, 0, sizeof desc);
    desc.max_bytes = (size_t)BAD_BYTES;
    if (sbit_session_create(graph, &desc, &session, &work->error) != SBIT_OK) {
        return BAD_SESSION;
    }
    for (size_t i = 0; i < sbit_graph_input_count(graph) && outcome == BAD_NONE; i++) {
        const sbit_value_info *info = sbit_graph_value(graph, sbit_graph_input(graph, i));
        if (i >= MOST_INPUTS || !b->has[i] ||
            (b->fed[i].kind == SBIT_KIND_TENSOR && b->fed[i].tensor.data == NULL)) {
            complete = complete && info->has_default;
        } else if (sbit_session_set_value(session, info->name, &b->fed[i], &work->error) !=
                   SBIT_OK) {
            outcome = BAD_FEED;
        }
    }
    if (outcome == BAD_NONE &&
        !complete) { /* too large; sizes that are declared can still be planned for */
        const sbit_status status = sbit_session_plan(session, &work->error);
        outcome = status == SBIT_OK                                    ? BAD_NONE
                  : strstr(work->error.message, "was not set") != NULL ? BAD_FEED
                                                                       : BAD_RUN;
    } else if (outcome == BAD_NONE && (sbit_session_run(session, &work->error) != SBIT_OK ||
                                       sbit_session_run(session, &work->error) != SBIT_OK)) {
        outcome = BAD_RUN;
    }
    sbit_session_destroy(session);
    return outcome;
}

static bad_outcome run_broken(bad_work *work, breaking *b)
{
    sbit_graph *graph = NULL;
    bad_outcome outcome = BAD_NONE;
    if (sbit_graph_import(work->ctx, b->doc, &graph, &work->error) != SBIT_OK) {
        return BAD_READ;
    }
    if (sbit_infer(graph, &work->error) != SBIT_OK) {
        outcome = BAD_INFER;
    } else if (sbit_simplify(graph, NULL, NULL, &work->error) != SBIT_OK) {
        outcome = BAD_SIMPLIFY;
    } else {
        outcome = run_session(work, b, graph);
    }
    sbit_graph_destroy(graph);
    return outcome;
}

/* All subjects, in the order of their names; breakages are numbered through. */
typedef struct bad_archive {
    bad_subject *subjects;
    size_t count;
    int64_t breakages;
} bad_archive;

static bad_outcome break_one(bad_work *work, void *user, int64_t at)
{
    const bad_archive *all = (const bad_archive *)user;
    const bad_subject *subject = all->subjects;
    breaking b;
    while (at >= subject->first + subject->count) {
        subject++;
    }
    const char *name = strrchr(subject->folder, '/') + 1;
    CHECK(break_copy(&b, subject, at - subject->first));
    if (getenv("SBIT_BAD_DAMAGE") != NULL) {
        printf("%s: %s\n", name, b.what);
    }
    const bad_outcome outcome = run_broken(work, &b); /* the document is gone */
    const char *said = work->error.message;
    const bool names = strstr(said, "the broken one") != NULL || strstr(said, "value '") != NULL ||
                       strstr(said, "the session may take") != NULL; /* all of it, not one node */
    const bool of_a_node =
        outcome != BAD_READ && outcome != BAD_FEED && work->error.status != SBIT_ERR_OUT_OF_MEMORY;
    const bool wrong = outcome == BAD_NONE ? b.must_fail : of_a_node && !names;
    work->shared->wrong += wrong;
    if (wrong || getenv("SBIT_BAD_SHOW") != NULL) {
        printf("%s %s %lld: %s: %s %s\n", wrong ? "WRONG" : "-", name, (long long)at, b.what,
               bad_outcome_names[outcome], outcome != BAD_NONE ? said : "");
    }
    return outcome;
}

static int64_t count_breakages(const bad_subject *subject)
{
    breaking b;
    const int64_t many = (int64_t)1 << 40;
    break_copy(&b, subject, many * WAYS);
    sbit_onnx_destroy(b.doc);
    return (many - b.left) * WAYS;
}

static int by_folder(const void *a, const void *b)
{
    return strcmp(((const bad_subject *)a)->folder, ((const bad_subject *)b)->folder);
}

static void add_folder(bad_archive *all, const char *root, const char *name)
{
    char path[1500];
    bad_subject *subject = &all->subjects[all->count];
    memset(subject, 0, sizeof *subject);
    snprintf(path, sizeof path, "%s/%s/model.onnx", root, name);
    subject->bytes = test_read_file(path, &subject->size);
    if (subject->bytes == NULL || subject->size > 65536) {
        free(subject->bytes);
        return;
    }
    path[strlen(path) - strlen("/model.onnx")] = '\0';
    subject->folder = (char *)malloc(strlen(path) + 1);
    strcpy(subject->folder, path);
    load_fed(subject);
    subject->count = count_breakages(subject);
    all->count++;
}

static void find_subjects(bad_archive *all, const char *root, const char *only)
{
    DIR *dir = opendir(root);
    all->subjects = (bad_subject *)calloc(MOST_SUBJECTS, sizeof *all->subjects);
    for (struct dirent *e = dir != NULL ? readdir(dir) : NULL; e != NULL; e = readdir(dir)) {
        const bool expanded =
            strstr(e->d_name, "_expanded") != NULL; /* written with operators that have their own */
        if (e->d_name[0] != '.' && all->count < MOST_SUBJECTS &&
            (only != NULL ? strstr(e->d_name, only) != NULL : !expanded)) {
            add_folder(all, root, e->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    qsort(all->subjects, all->count, sizeof *all->subjects, by_folder);
    for (size_t i = 0; i < all->count; i++) {
        all->subjects[i].first = all->breakages;
        all->breakages += all->subjects[i].count;
    }
}

/* Breakages that once crashed, hung or were let through. */
static const struct {
    const char *test, *what;
} once[] = {
    {"test_attention_3d_gqa_with_past_and_present", "Attention: output 0 is left out"},
    {"test_causal_conv_with_state_silu", "CausalConvWithState: output 0 is left out"},
    {"test_layer_normalization_3d_axis1_epsilon", "LayerNormalization: output 0 is left out"},
    {"test_linear_attention_linear", "LinearAttention: output 0 is left out"},
    {"test_sce_mean_weight_log_prob", "SoftmaxCrossEntropyLoss: output 0 is left out"},
    {"test_rnn_seq_length", "RNN: 40 outputs more"},
    {"test_adagrad", "X is string"},
    {"test_momentum", "X is string"},
    {"test_tfidfvectorizer_tf_only_bigrams_skip0",
     "TfIdfVectorizer: attribute ngram_counts is of type 6, not 7"},
    {"test_tfidfvectorizer_tf_only_bigrams_skip0",
     "all of TfIdfVectorizer: attribute ngram_indexes are 9223372036854775807"},
    {"test_softmax_axis_1", "Softmax: attribute axis is of type 1, not 2"},
    {"test_compress_1", "input: dim 0 is 1099511627776"},
    {"test_cumsum_2d_negative_axis", "x: dim 0 is 1099511627776"},
    {"test_eyelike_with_dtype", "x: dim 0 is 1099511627776"},
    {"test_maxpool_2d_uint8", "x: dim 1 is 1099511627776"},
    {"test_triu_square", "x: dim 1 is 1099511627776"},
    {"test_qlinearmatmul_3D_uint8_float32", "b: dim 2 is 1099511627776"},
    {"test_qlinearmatmul_3D_uint8_float32", "b_scale: dim 0 is 0"},
    {"test_qlinearmatmul_3D_int8_float16", "y_zero_point is int2"},
    {"test_strnormalizer_export_monday_casesensintive_lower",
     "StringNormalizer: attribute is_case_sensitive is -1"},
    {"test_thresholdedrelu_default_expanded_ver18",
     "Constant: attribute value_float is of type 4, not 1"},
    {"test_relu", "Relu: 1 inputs more"},
};

typedef struct bad_once {
    const bad_archive *all;
    const char *what;
} bad_once;

/* Only the breakages that are called so. */
static bad_outcome break_if(bad_work *work, void *user, int64_t at)
{
    const bad_once *wanted = (const bad_once *)user;
    breaking b;
    CHECK(break_copy(&b, wanted->all->subjects, at));
    sbit_onnx_destroy(b.doc);
    if (strcmp(b.what, wanted->what) != 0) {
        return BAD_NONE;
    }
    work->shared->quantized++; /* counts them */
    return break_one(work, (void *)(uintptr_t)wanted->all, at);
}

static void free_subjects(bad_archive *all)
{
    for (size_t i = 0; i < all->count; i++) {
        for (size_t k = 0; k < MOST_INPUTS; k++) {
            sbit_onnx_destroy(all->subjects[i].memory[k]);
        }
        free(all->subjects[i].bytes);
        free(all->subjects[i].folder);
    }
    free(all->subjects);
}

TEST(every_field_of_every_node)
{
    const char *stride_text = getenv("SBIT_BAD_STRIDE");
    const int64_t stride = stride_text != NULL && atoi(stride_text) > 0 ? atoi(stride_text) : 211;
    const char *other = getenv("SPARSEBIT_BACKEND");
    char path[1000];
    bad_totals totals;
    bad_archive all;
    memset(&totals, 0, sizeof totals);
    memset(&all, 0, sizeof all);
    if (other == NULL && !test_backend("node/test_add/model.onnx", path, sizeof path)) {
        SBIT_TEST_SKIP("no ONNX backend data");
    }
    snprintf(path, sizeof path, "%s/node", other != NULL ? other : SBIT_TEST_BACKEND);
    find_subjects(&all, path, getenv("SBIT_BAD_MODELS"));
    bad_sweep(&totals, "malformed", break_one, &all, all.breakages, stride / 2, stride, false);
    totals.models = (int64_t)all.count;
    bad_print("malformed", &totals);
    CHECK(totals.tried < 1000 || (totals.outcomes[BAD_NONE] > 0 && totals.outcomes[BAD_RUN] > 0));
    free_subjects(&all);
}

TEST(breakages_that_once_did_harm)
{
    char path[1000];
    if (!test_backend("node/test_add/model.onnx", path, sizeof path)) {
        SBIT_TEST_SKIP("no ONNX backend data");
    }
    snprintf(path, sizeof path, "%s/node", SBIT_TEST_BACKEND);
    for (size_t i = 0; i < sizeof once / sizeof once[0]; i++) {
        bad_totals totals;
        bad_archive all;
        bad_once wanted;
        memset(&totals, 0, sizeof totals);
        memset(&all, 0, sizeof all);
        all.subjects = (bad_subject *)calloc(1, sizeof *all.subjects);
        add_folder(&all, path, once[i].test);
        wanted.all = &all;
        wanted.what = once[i].what;
        bad_sweep(&totals, once[i].test, break_if, &wanted, all.subjects->count, 0, 1, false);
        CHECK_MSG(totals.quantized == WAYS, "%s: %lld are called \"%s\"", once[i].test,
                  (long long)totals.quantized, once[i].what);
        free_subjects(&all);
    }
}
