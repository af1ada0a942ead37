/* attributes.c: what every node of a known domain must be, whatever its operator. >>attributes
 *
 * Called by: infer, program; once for a graph, not for each look at a body. Calls: graph.
 * An attribute's name tells its type: of all operators of ai.onnx, ai.onnx.ml and com.microsoft
 * only a few names have two (tests/interop/check_schemas.py compares with the onnx package). So one
 * table serves all rows, which read an attribute of another type as if it were absent.
 */
#include "ops_private.h"

#include <stdio.h>  /* snprintf */
#include <string.h> /* strstr */

#define SBIT__IS(type) (1u << SBIT_ONNX_ATTR_##type)

typedef struct sbit__attribute_names {
    uint32_t types;
    const char *names; /* with a space in front and behind; Operator.name where it alone differs */
} sbit__attribute_names;

static const sbit__attribute_names sbit__attributes[] = {
    {SBIT__IS(INT), " K N accuracy_level align_corners allowzero antialias axis "
                    "batch_axis batch_dims bits block_size blocksize broadcast ceil_mode "
                    "center_point_box channels_last chunk_size count_include_pad default_int64 "
                    "detect_negative detect_positive do_rotary dtype end exclude_outside exclusive "
                    "fmod group hidden_size ignore_index input_forget interleaved inverse "
                    "is_case_sensitive is_causal is_packed_batching is_test k keepdims "
                    "kv_num_heads largest layout left_window_size linear_before_reset "
                    "local_window_size max_gram_length max_skip_count maxsplit min_gram_length "
                    "n_targets new_axis noop_with_empty_axes num_groups num_heads num_outputs "
                    "num_scan_inputs offset_group onesided output_datatype output_dtype "
                    "multi_class n_supports one_class replaced_value_int64 targets zeros "
                    "output_height output_sequence output_width past_present_share_buffer periodic "
                    "precision q_num_heads qk_matmul_output_mode reverse "
                    "right_window_size rotary_embedding_dim rotary_interleaved sample_size "
                    "sampling_ratio saturate select_last_index size smooth_softmax "
                    "softmax_precision sorted spatial start stash_type storage_order time_axis "
                    "training_mode transA transB transBatchA transBatchB unidirectional upper "
                    "value_int "},
    {SBIT__IS(INTS),
     " axes cats_int64s class_ids class_nodeids class_treeids classlabels_int64s "
     "classlabels_ints imputed_value_int64s inputdimensions nodes_nodeids nodes_treeids "
     "target_ids target_nodeids target_treeids vectors_per_class consumed_inputs dilations "
     "directions ends kernel_shape keys_int64s "
     "leaf_targetids ngram_counts ngram_indexes nodes_falseleafs nodes_falsenodeids "
     "nodes_featureids nodes_missing_value_tracks_true nodes_trueleafs "
     "nodes_truenodeids output_padding output_shape paddings pads perm pool_int64s "
     "pooled_shape qkv_hidden_sizes scan_input_axes scan_input_directions "
     "scan_output_axes scan_output_directions shape split starts strides tree_roots "
     "value_ints values_int64s "},
    {SBIT__IS(FLOAT),
     " activation_gamma alpha beta bias clip cubic_coeff_a decay_factor "
     "default_float epsilon extrapolation_value gamma height_scale high lambd low "
     "mask_filter_value max mean min momentum norm_coefficient "
     "norm_coefficient_post ratio replaced_value_float scale softcap spatial_scale threshold "
     "value_float width_scale "},
    {SBIT__IS(FLOATS),
     " Scaler.scale activation_params base_values class_weights coefficients imputed_value_floats intercepts "
     "kernel_params keys_floats nodes_hitrates nodes_values offset prob_a prob_b rho scales "
     "support_vectors target_weights value_floats values_floats weights "},
    {SBIT__IS(STRING),
     " activation aggregate_function approximate auto_pad case_change_action "
     "coordinate_transformation_mode default_string delimiter direction equation "
     "k_quant_type keep_aspect_ratio_policy kernel_type locale mode nearest_mode norm padding_mode "
     "post_transform reduction round_mode update_rule v_quant_type value_string "},
    {SBIT__IS(STRINGS), " activations cats_strings classes_strings classlabels_strings "
                        "keys_strings nodes_modes pool_strings stopwords "
                        "value_strings values_strings "},
    {SBIT__IS(TENSOR), " TreeEnsemble.nodes_hitrates TreeEnsemble.nodes_modes base_values_as_tensor "
                       "class_weights_as_tensor default_tensor keys_tensor leaf_weights "
                       "membership_values nodes_hitrates_as_tensor nodes_splits "
                       "nodes_values_as_tensor target_weights_as_tensor values_tensor "},
    {SBIT__IS(GRAPH), " body else_branch prob_mod score_mod then_branch "},
    {SBIT__IS(SPARSE_TENSOR), " sparse_value "},
    {SBIT__IS(TYPE_PROTO), " type "},
    {SBIT__IS(FLOAT) | SBIT__IS(FLOATS), " activation_alpha activation_beta "},
    {SBIT__IS(FLOAT) | SBIT__IS(INT), " p "}, /* by the version */
    {SBIT__IS(INT) | SBIT__IS(STRING), " to "},
    {SBIT__IS(INT),
     " Dropout.seed TreeEnsemble.aggregate_function TreeEnsemble.post_transform opset "},
    {SBIT__IS(FLOAT), " seed Pad.value FusedGemm.activation_alpha FusedGemm.activation_beta "},
    {SBIT__IS(TENSOR), " value "},
};

/* The types of an attribute that is called so; 0: no operator has one. */
static uint32_t sbit__attribute_types(const char *name)
{
    char key[80];
    const int size = snprintf(key, sizeof key, " %s ", name);
    for (size_t i = 0; size < (int)sizeof key && i < SBIT__COUNT_OF(sbit__attributes); i++) {
        if (strstr(sbit__attributes[i].names, key) != NULL) {
            return sbit__attributes[i].types;
        }
    }
    return 0;
}

/* A list may also be given as one number. */
static bool sbit__attribute_fits(const char *op_type, const sbit_attr *attr)
{
    const uint32_t is = 1u << attr->type;
    const uint32_t list = attr->type == SBIT_ONNX_ATTR_INT     ? SBIT__IS(INTS)
                          : attr->type == SBIT_ONNX_ATTR_FLOAT ? SBIT__IS(FLOATS)
                                                               : 0u;
    char own[80];
    snprintf(own, sizeof own, "%s.%s", op_type, attr->name); /* what differs from all others */
    uint32_t types = sbit__attribute_types(own);
    types = types != 0 ? types : sbit__attribute_types(attr->name);
    return types == 0 || (types & (is | list)) != 0; /* what nobody has is not read either */
}

/* Operator.name of what no version does without, but the first of ai.onnx, whose rows look
 * themselves. */
static const char sbit__attributes_required[] =
    " AveragePool.kernel_shape BitCast.to BitShift.direction Cast.to Concat.axis "
    "ConcatFromSequence.axis DepthToSpace.blocksize Einsum.equation GroupNormalization.num_groups "
    "If.else_branch If.then_branch LRN.size LinearAttention.kv_num_heads "
    "LinearAttention.q_num_heads LinearClassifier.coefficients Loop.body LpPool.kernel_shape "
    "MaxPool.kernel_shape MaxRoiPool.pooled_shape MaxUnpool.kernel_shape Momentum.alpha "
    "Momentum.beta Momentum.mode Momentum.norm_coefficient RandomNormal.shape RandomUniform.shape "
    "Scan.body Scan.num_scan_inputs SequenceMap.body SpaceToDepth.blocksize "
    "TfIdfVectorizer.max_gram_length TfIdfVectorizer.max_skip_count "
    "TfIdfVectorizer.min_gram_length TfIdfVectorizer.mode TfIdfVectorizer.ngram_counts "
    "TfIdfVectorizer.ngram_indexes TreeEnsemble.leaf_targetids TreeEnsemble.leaf_weights "
    "TreeEnsemble.nodes_falseleafs TreeEnsemble.nodes_falsenodeids TreeEnsemble.nodes_featureids "
    "TreeEnsemble.nodes_modes TreeEnsemble.nodes_splits TreeEnsemble.nodes_trueleafs "
    "TreeEnsemble.nodes_truenodeids TreeEnsemble.tree_roots ";

/* Operators with more outputs than one; 0: any number. */
static const char sbit__attributes_outputs[] =
    " Adagrad:0 Adam:0 Attention:4 BatchNormalization:5 CausalConvWithState:2 Dropout:2 "
    "DynamicQuantizeLinear:3 GRU:2 Gradient:0 If:0 LSTM:3 LayerNormalization:3 LinearAttention:2 "
    "LinearClassifier:2 Loop:0 MaxPool:2 Momentum:0 RNN:2 SVMClassifier:2 Scan:0 SequenceMap:0 "
    "SoftmaxCrossEntropyLoss:2 Split:0 StringSplit:2 TopK:2 TreeEnsembleClassifier:2 Unique:4 "
    /* com.microsoft */
    "DynamicQuantizeLSTM:3 EmbedLayerNormalization:3 GroupQueryAttention:4 MultiHeadAttention:4 "
    "QAttention:2 SimplifiedLayerNormalization:2 SkipLayerNormalization:4 "
    "SkipSimplifiedLayerNormalization:4 ";

static sbit_status sbit__op_check_required(const sbit_node *node, const char *where,
                                           sbit_error *error)
{
    char key[80];
    const int size = snprintf(key, sizeof key, " %s.", node->op_type);
    const char *at = size < (int)sizeof key ? strstr(sbit__attributes_required, key) : NULL;
    for (; at != NULL; at = strstr(at, key)) {
        char name[40];
        const char *from = at + size;
        const size_t count = strcspn(from, " ");
        memcpy(name, from, count);
        name[count] = '\0';
        if (sbit_node_attr(node, name) == NULL) {
            return sbit__fail(error, SBIT_ERR_INVALID_MODEL, node->name,
                              "%s: attribute '%s' is missing", where, name);
        }
        at = from;
    }
    return SBIT_OK;
}

static sbit_status sbit__op_check_outputs(const sbit_node *node, const char *where,
                                          sbit_error *error)
{
    char key[80];
    const int size = snprintf(key, sizeof key, " %s:", node->op_type);
    const char *at = size < (int)sizeof key ? strstr(sbit__attributes_outputs, key) : NULL;
    const size_t most = at != NULL ? (size_t)(at[size] - '0') : 1;
    return most == 0 || node->output_count <= most
               ? SBIT_OK
               : sbit__fail(error, SBIT_ERR_INVALID_MODEL, node->name,
                            "%s: it has %lu outputs, but makes at most %lu", where,
                            (unsigned long)node->output_count, (unsigned long)most);
}

static sbit_status sbit__op_check_form(const sbit_graph *graph, const sbit_node *node,
                                       const sbit_op_row *row, sbit_error *error)
{
    static const char *const types[] = {
        "undefined", "a float",          "an integer",         "a string",         "a tensor",
        "a graph",   "a list of floats", "a list of integers", "a list of strings"};
    char name[160];
    const bool known =
        row != NULL && (row->domain[0] == '\0' || strcmp(row->domain, "com.microsoft") == 0 ||
                        strncmp(row->domain, "ai.onnx", 7) == 0);
    if (!known) {
        return SBIT_OK;
    }
    sbit_graph_describe(graph, node->id, name, sizeof name);
    if (node->output_count > 0 && node->outputs[0].idx == 0 && (row->flags & SBIT_OP_OMITS) == 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, node->name, "%s: output 0 is missing",
                          name);
    }
    if (row->domain[0] != '\0' || row->since_version > 1) {
        SBIT__TRY(sbit__op_check_required(node, name, error));
    }
    SBIT__TRY(sbit__op_check_outputs(node, name, error));
    for (size_t i = 0; i < node->attr_count; i++) {
        const sbit_attr *attr = &node->attrs[i];
        if (!sbit__attribute_fits(node->op_type, attr)) {
            const size_t type = (size_t)attr->type;
            return sbit__fail(error, SBIT_ERR_INVALID_MODEL, node->name,
                              "%s: attribute '%.60s' may not be %s", name, attr->name,
                              type < SBIT__COUNT_OF(types) ? types[type] : "of this type");
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__op_check_forms(const sbit_graph *graph, sbit_error *error)
{
    for (graph = graph->family->graphs; graph != NULL; graph = graph->next_graph) {
        for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0 && graph->alive;
             id = sbit_graph_next(graph, id)) {
            int32_t opset = 0;
            const sbit_node *node = sbit_graph_node(graph, id);
            SBIT__TRY(sbit__op_check_form(graph, node, sbit__op_row(graph, node, &opset), error));
        }
    }
    return SBIT_OK;
}
