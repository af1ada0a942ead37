/* table.c: all operator rows: the built-in families and what the user registered. >>ops-table
 *
 * Called by: infer, exec, passes, users. Calls: the families in SBIT__OP_FAMILIES.
 */
#include "ops_private.h"

#include <stdio.h> /* snprintf */

typedef const sbit_op_row *(*sbit__op_family_fn)(size_t *count);

static const sbit__op_family_fn sbit__op_families[] = {
#define SBIT__OP_FAMILY_ENTRY(name) sbit__op_rows_##name,
    SBIT__OP_FAMILIES(SBIT__OP_FAMILY_ENTRY)
#undef SBIT__OP_FAMILY_ENTRY
};

/* "ai.onnx" is the long name of the standard domain. */
static const char *sbit__op_domain(const char *domain)
{
    return domain == NULL || strcmp(domain, "ai.onnx") == 0 ? "" : domain;
}

/* >>switches: what each macro takes out; operators of ai.onnx without their domain. A model that
 * needs one is told the macro, so the names stay where the rows are gone. */
typedef struct sbit__op_switch {
    const char *macro;
    bool out;
    const char *operators;
} sbit__op_switch;

#define SBIT__OP_SWITCH(name, operators)                                                           \
    {                                                                                              \
        "SPARSEBIT_NO_OPS_" #name, SPARSEBIT_NO_OPS_##name, " " operators " "                      \
    }
static const sbit__op_switch sbit__op_switches[] = {
    SBIT__OP_SWITCH(RNN, "LSTM GRU RNN sbit.LSTM sbit.RecurrentGrad"),
    SBIT__OP_SWITCH(CONTROL,
                    "If Loop Scan SequenceConstruct SequenceEmpty SequenceAt SequenceInsert "
                    "SequenceErase SequenceLength SplitToSequence ConcatFromSequence SequenceMap "
                    "Optional OptionalGetElement OptionalHasElement"),
    SBIT__OP_SWITCH(STRING, "StringConcat StringSplit StringNormalizer TfIdfVectorizer"),
    SBIT__OP_SWITCH(SIGNAL, "DFT STFT HannWindow HammingWindow BlackmanWindow MelWeightMatrix"),
    SBIT__OP_SWITCH(ML,
                    "ai.onnx.ml.ArrayFeatureExtractor ai.onnx.ml.Binarizer ai.onnx.ml.LabelEncoder "
                    "ai.onnx.ml.CategoryMapper ai.onnx.ml.FeatureVectorizer ai.onnx.ml.Imputer "
                    "ai.onnx.ml.LinearClassifier ai.onnx.ml.LinearRegressor ai.onnx.ml.Normalizer "
                    "ai.onnx.ml.OneHotEncoder ai.onnx.ml.SVMClassifier ai.onnx.ml.SVMRegressor "
                    "ai.onnx.ml.Scaler ai.onnx.ml.TreeEnsemble ai.onnx.ml.TreeEnsembleClassifier "
                    "ai.onnx.ml.TreeEnsembleRegressor"),
    SBIT__OP_SWITCH(
        ATTENTION,
        "Attention sbit.Attention RotaryEmbedding sbit.RotaryEmbedding sbit.AttentionGrad "
        "sbit.AppendKeys ai.onnx.preview.FlexAttention LinearAttention sbit.LinearAttentionGrad "
        "CausalConvWithState SwiGLU"),
    SBIT__OP_SWITCH(VISION,
                    "DeformConv sbit.DeformConvGrad DepthToSpace SpaceToDepth GridSample "
                    "sbit.GridSampleGrad AffineGrid Col2Im sbit.Col2ImGrad"),
    SBIT__OP_SWITCH(
        MICROSOFT,
        "com.microsoft.FusedConv com.microsoft.FusedGemm com.microsoft.FusedMatMul "
        "com.microsoft.TransposeMatMul com.microsoft.BiasGelu com.microsoft.FastGelu "
        "com.microsoft.QuickGelu com.microsoft.BiasSoftmax "
        "com.microsoft.SkipLayerNormalization "
        "com.microsoft.SkipSimplifiedLayerNormalization "
        "com.microsoft.EmbedLayerNormalization com.microsoft.Attention "
        "com.microsoft.QAttention com.microsoft.MultiHeadAttention "
        "com.microsoft.GroupQueryAttention com.microsoft.RotaryEmbedding "
        "com.microsoft.NhwcMaxPool com.microsoft.DynamicQuantizeLSTM "
        "com.microsoft.MatMulNBits com.microsoft.DynamicQuantizeMatMul sbit.NBitsWeight"),
    SBIT__OP_SWITCH(
        TRAINING,
        "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss sbit.LabelLossGrad "
        "ai.onnx.preview.training.Adagrad ai.onnx.preview.training.Adam "
        "ai.onnx.preview.training.Momentum sbit.ActivationGrad sbit.Spread sbit.IndexLike "
        "sbit.ScatterBack sbit.Piece sbit.ZerosLike sbit.ConvDataGrad sbit.ConvWeightGrad "
        "sbit.PoolGrad sbit.BatchNormTrain sbit.BatchNormGrad sbit.NormGrad sbit.LayerNormGrad "
        "sbit.SoftmaxGrad sbit.CrossEntropy sbit.Distillation sbit.LstmGrad sbit.GruGrad "
        "sbit.CumProdGrad sbit.DropoutTrain"),
};
#undef SBIT__OP_SWITCH

SPARSEBIT_API const char *sbit_operator_switch(const char *domain, const char *op_type, bool *out)
{
    const sbit__op_switch *found = NULL;
    char word[128];
    domain = sbit__op_domain(domain);
    const int n =
        snprintf(word, sizeof word, " %s%s%s ", domain, domain[0] != '\0' ? "." : "", op_type);
    for (size_t i = 0; n > 0 && (size_t)n < sizeof word && i < SBIT__COUNT_OF(sbit__op_switches);
         i++) {
        if (strstr(sbit__op_switches[i].operators, word) != NULL) {
            found = &sbit__op_switches[i];
        }
    }
    if (out != NULL) {
        *out = found != NULL && found->out;
    }
    return found != NULL ? found->macro : NULL;
}

/* What operator rows are registered under. */
static const char sbit__op_kind[] = "operator";

SBIT__INLINE bool sbit__op_row_matches(const sbit_op_row *row, const char *domain, const char *op_type)
{
    return row->op_type[0] == op_type[0] && /* mostly no, without a call */
           strcmp(row->op_type, op_type) == 0 && strcmp(sbit__op_domain(row->domain), domain) == 0;
}

SPARSEBIT_API sbit_status sbit_operator_register(sbit_ctx *ctx, const sbit_op_row *row,
                                                 sbit_error *error)
{
    const void *other_row = NULL;
    if (row == NULL || row->op_type == NULL || row->op_type[0] == '\0') {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "an operator row needs an op_type");
    }
    if (row->since_version < 1 || row->infer == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, row->op_type,
                          "the row of operator %s needs a since_version of at least 1 and infer()",
                          row->op_type);
    }
    for (size_t i = 0; (other_row = sbit__registry_at(ctx, sbit__op_kind, i)) != NULL; i++) {
        const sbit_op_row *other = (const sbit_op_row *)other_row;
        if (sbit__op_row_matches(other, sbit__op_domain(row->domain), row->op_type) &&
            other->since_version == row->since_version) {
            return sbit__fail(error, SBIT_ERR_DUPLICATE, row->op_type,
                              "operator %s, version %d, is already registered", row->op_type,
                              (int)row->since_version);
        }
    }
    return sbit__registry_add(ctx, sbit__op_kind, row, error);
}

SPARSEBIT_API const sbit_op_row *sbit_operator_find(const sbit_ctx *ctx, const char *domain,
                                                    const char *op_type, int64_t opset)
{
    const sbit_op_row *best = NULL;
    size_t count = 0;
    const void *user = NULL;
    domain = sbit__op_domain(domain);
    for (size_t i = 0; (user = sbit__registry_at(ctx, sbit__op_kind, i)) != NULL; i++) {
        const sbit_op_row *row = (const sbit_op_row *)user;
        if (row->since_version <= opset && sbit__op_row_matches(row, domain, op_type) &&
            (best == NULL || row->since_version > best->since_version)) {
            best = row;
        }
    }
    for (size_t f = 0; best == NULL && f < SBIT__COUNT_OF(sbit__op_families); f++) {
        const sbit_op_row *family = sbit__op_families[f](&count);
        for (size_t i = 0; i < count; i++) {
            if (sbit__op_row_matches(&family[i], domain, op_type) &&
                family[i].since_version <= opset &&
                (best == NULL || family[i].since_version > best->since_version)) {
                best = &family[i];
            }
        }
    }
    return best;
}

SBIT__FN bool sbit__op_row_is_built_in(const sbit_ctx *ctx, const sbit_op_row *row)
{
    const void *user = NULL;
    for (size_t i = 0; (user = sbit__registry_at(ctx, sbit__op_kind, i)) != NULL; i++) {
        if (user == row) {
            return false;
        }
    }
    return true;
}

SPARSEBIT_API const sbit_op_row *sbit_operator_at(size_t index)
{
    for (size_t f = 0; f < SBIT__COUNT_OF(sbit__op_families); f++) {
        size_t count = 0;
        const sbit_op_row *family = sbit__op_families[f](&count);
        if (index < count) {
            return &family[index];
        }
        index -= count;
    }
    return NULL;
}

SBIT__FN const sbit_op_row *sbit__op_row(const sbit_graph *graph, const sbit_node *node,
                                         int32_t *opset)
{
    const int64_t version = sbit_graph_opset(graph, node->domain);
    *opset = version < 1 ? 1 : version > INT32_MAX ? INT32_MAX : (int32_t)version;
    return sbit_operator_find(sbit_graph_ctx(graph), node->domain, node->op_type, *opset);
}
