/* test_ml.c: classical operators of ai.onnx.ml by hand: what ONNX Runtime leaves open or does
 * otherwise than the specification (tests/interop/check_ml.py compares the rest with it), and
 * attributes that do not fit, which are errors that name the node. */
#include "../sparsebit.h"
#include "test.h"
#include "model_text.h"

#define TWO_ROWS "nodes_treeids=[0,0,0] nodes_nodeids=[0,1,2] nodes_featureids=[0,0,0] "           \
                 "nodes_values=[0.0,0.0,0.0] nodes_modes=[BRANCH_LEQ,LEAF,LEAF] "                  \
                 "nodes_truenodeids=[1,0,0] nodes_falsenodeids=[2,0,0] "
#define VOTES(ids, weights)                                                                        \
    "class_treeids=[0,0,0,0] class_nodeids=[1,1,2,2] class_ids=" ids " class_weights=" weights     \
    " classlabels_int64s=[10,20] "

/* One operator on x [N, F], float32: all outputs in `text`, one number after another, or the error. */
static void ml_run(const char *node, const char *dims, const float *x, int outputs, char *text,
                   size_t size)
{
    char model[1600];
    sbit_ctx *ctx = test_ctx();
    sbit_graph *graph = NULL;
    sbit_session *session = NULL;
    sbit_tensor in, out;
    sbit_error error;
    size_t used = 0;
    memset(&error, 0, sizeof error);
    memset(&in, 0, sizeof in);
    snprintf(model, sizeof model,
             "opset 17\nopset 3 ai.onnx.ml\nin x f32 %s\nai.onnx.ml:%s\nout y %s ...\n%s", dims,
             node, outputs == 2 ? "i64" : "f32", outputs == 2 ? "out z f32 ...\n" : "");
    model_bytes bytes = model_from_text(model);
    in.dtype = SBIT_F32;
    in.rank = 2;
    in.dims[0] = atoi(dims);
    in.dims[1] = atoi(strchr(dims, ',') + 1);
    memcpy(&in.data, &x, sizeof x);
    sbit_status status = sbit_graph_read(ctx, bytes.data, bytes.size, &graph, &error);
    status = status == SBIT_OK ? sbit_session_create(graph, NULL, &session, &error) : status;
    status = status == SBIT_OK ? sbit_session_set_input(session, "x", &in, &error) : status;
    status = status == SBIT_OK ? sbit_session_run(session, &error) : status;
    snprintf(text, size, "%s", status == SBIT_OK ? "" : error.message);
    for (int o = 0; status == SBIT_OK && o < outputs; o++) {
        out = sbit_session_output(session, (size_t)o)->tensor;
        for (int64_t i = 0; i < sbit_tensor_count(&out); i++) {
            const double value = out.dtype == SBIT_I64 ? (double)((const int64_t *)out.data)[i]
                                                       : (double)((const float *)out.data)[i];
            used += (size_t)snprintf(text + used, size - used, "%s%.4g", used > 0 ? " " : "", value);
        }
    }
    sbit_session_destroy(session);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    free(bytes.data);
}

TEST(classical_operators_are_what_is_worked_by_hand)
{
    static const float x[2] = {-1.0f, 2.0f};
    static const float missing[2] = {0.0f, 3.0f};
    static const struct {
        const char *node;
        int outputs;
        const char *want;
    } cases[] = {
        /* s = x / 2 + 0.1 = -0.4, 1.1: logistic(0.4) = 0.5987, logistic(1.1) = 0.7503 */
        {"LinearClassifier x -> y,z n coefficients=[0.5] intercepts=[0.1] "
         "classlabels_ints=[10,20] post_transform=LOGISTIC",
         2, "10 20 0.5987 0.4013 0.2497 0.7503"},
        {"LinearClassifier x -> y,z n coefficients=[0.5] intercepts=[0.1] "
         "classlabels_ints=[10,20]",
         2, "10 20 1.4 -0.4 -0.1 1.1"},
        /* one target is transformed, too */
        {"LinearRegressor x -> y n coefficients=[0.5] intercepts=[0.1] post_transform=LOGISTIC", 1,
         "0.4013 0.7503"},
        {"LinearRegressor x -> y n coefficients=[0.5] post_transform=SOFTMAX", 1, "1 1"},
        /* both classes get votes and a base value: the larger one is the label */
        {"TreeEnsembleClassifier x -> y,z n " TWO_ROWS VOTES("[0,1,0,1]", "[0.7,0.3,0.2,0.8]")
             "base_values=[0.1,0.2]",
         2, "10 20 0.8 0.5 0.3 1"},
        /* votes for the first class alone speak for the second: 0.3 < 0.5 <= 0.8 */
        {"TreeEnsembleClassifier x -> y,z n " TWO_ROWS VOTES("[0,0,0,0]", "[0.1,0.2,0.3,0.5]"), 2,
         "10 20 0.7 0.3 0.2 0.8"},
        /* normal quantiles of 0.7 and 0.8 by the approximation */
        {"TreeEnsembleClassifier x -> y,z n " TWO_ROWS VOTES("[0,0,0,0]", "[0.1,0.2,0.3,0.5]")
             "post_transform=PROBIT",
         2, "10 20 0.5244 -0.5244 -0.8418 0.8418"},
        /* nobody votes for target 1: 0, and its base value; target 0 takes the least */
        {"TreeEnsembleRegressor x -> y n " TWO_ROWS
         "target_treeids=[0,0,0] target_nodeids=[1,1,2] target_ids=[0,0,0] "
         "target_weights=[3.0,2.0,-1.0] n_targets=2 aggregate_function=MIN base_values=[0.0,0.5]",
         1, "2 0.5 -1 0.5"},
        /* liblinear: the larger score of two classes, -0.4 < -0.3 and 1.1 > 0.9 */
        {"SVMClassifier x -> y,z n coefficients=[0.5,0.4] rho=[0.1] classlabels_ints=[10,20]", 2,
         "20 10 -0.4 -0.3 1.1 0.9"},
        /* one support vector 1: (2 * x * 1 + 1)^3 = -1, 125; times 0.5, minus 0.25 */
        {"SVMRegressor x -> y n kernel_type=POLY kernel_params=[2.0,1.0,3.0] n_supports=1 "
         "support_vectors=[1.0] coefficients=[0.5] rho=[-0.25]",
         1, "-0.75 62.25"},
        {"SVMRegressor x -> y n coefficients=[0.5] rho=[0.1] one_class=1", 1, "-1 1"},
        {"Normalizer x -> y n norm=MAX", 1, "1 1"},
        {"Scaler x -> y n offset=[1.0] scale=[3.0]", 1, "-6 3"},
    };
    char text[300];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ml_run(cases[i].node, "2,1", x, cases[i].outputs, text, sizeof text);
        CHECK_STR(text, cases[i].want);
    }
    /* NaN goes to the false branch, at NEQ as well, unless the node says otherwise */
    float nan[2] = {0.0f, 0.0f};
    nan[1] = missing[0] / nan[0];
    ml_run("TreeEnsembleRegressor x -> y n nodes_treeids=[0,0,0] nodes_nodeids=[0,1,2] "
           "nodes_featureids=[0,0,0] nodes_values=[0.0,0.0,0.0] "
           "nodes_modes=[BRANCH_NEQ,LEAF,LEAF] nodes_truenodeids=[1,0,0] "
           "nodes_falsenodeids=[2,0,0] target_treeids=[0,0] target_nodeids=[1,2] target_ids=[0,0] "
           "target_weights=[5.0,7.0]",
           "2,1", nan, 1, text, sizeof text);
    CHECK_STR(text, "7 7");
}

TEST(attributes_that_do_not_fit_name_the_node)
{
#define TREE(nodes, votes) "TreeEnsembleRegressor x -> y n " nodes " " votes
#define LEAVES "target_treeids=[0,0] target_nodeids=[1,2] target_ids=[0,0] target_weights=[5.0,7.0] "
    static const struct {
        const char *node;
        int outputs;
        const char *why;
    } cases[] = {
        {TREE(TWO_ROWS "nodes_missing_value_tracks_true=[1,1]", LEAVES), 1, "do not fit"},
        {TREE(TWO_ROWS, LEAVES "base_values=[1.0,2.0]"), 1, "do not fit"},
        {TREE(TWO_ROWS, LEAVES "n_targets=0"), 1, "do not fit"},
        {TREE(TWO_ROWS, LEAVES "n_targets=99999999999"), 1, "do not fit"},
        {TREE(TWO_ROWS, LEAVES "aggregate_function=MEDIAN"), 1, "MEDIAN"},
        {TREE(TWO_ROWS, LEAVES "post_transform=TANH"), 1, "TANH"},
        {TREE(TWO_ROWS, "target_treeids=[0] target_nodeids=[7] target_ids=[0] "
                        "target_weights=[1.0]"),
         1, "not there"},
        {TREE(TWO_ROWS, "target_treeids=[0] target_nodeids=[1] target_ids=[3] "
                        "target_weights=[1.0]"),
         1, "votes for what is not there"},
        {TREE(TWO_ROWS, "target_treeids=[0] target_nodeids=[1] target_ids=[-1] "
                        "target_weights=[1.0]"),
         1, "votes for what is not there"},
        {TREE("nodes_treeids=[0,0,0] nodes_nodeids=[0,1,1] nodes_featureids=[0,0,0] "
              "nodes_values=[0.0,0.0,0.0] nodes_modes=[BRANCH_LEQ,LEAF,LEAF] "
              "nodes_truenodeids=[1,0,0] nodes_falsenodeids=[1,0,0]",
              ""),
         1, "twice"},
        {TREE("nodes_treeids=[0,0,0] nodes_nodeids=[0,1,2] nodes_featureids=[0,0,0] "
              "nodes_values=[0.0,0.0,0.0] nodes_modes=[BRANCH_LEQ,LEAF,LEAF] "
              "nodes_truenodeids=[1,0,0] nodes_falsenodeids=[9,0,0]",
              ""),
         1, "a child of node 0"},
        {TREE("nodes_treeids=[0,0,0] nodes_nodeids=[0,1,2] nodes_featureids=[0,0,0] "
              "nodes_values=[0.0,0.0,0.0] nodes_modes=[BRANCH_LEQ,BRANCH_GT,LEAF] "
              "nodes_truenodeids=[1,0,0] nodes_falsenodeids=[2,2,0]",
              ""),
         1, "circle"},
        {TREE("nodes_treeids=[0,0,0] nodes_nodeids=[0,1,2] nodes_featureids=[0,0,0] "
              "nodes_values=[0.0,0.0,0.0] nodes_modes=[BRANCH_MEMBER,LEAF,LEAF] "
              "nodes_truenodeids=[1,0,0] nodes_falsenodeids=[2,0,0]",
              ""),
         1, "no known mode"},
        {TREE("nodes_treeids=[0,0,0] nodes_nodeids=[0,1,2] nodes_featureids=[5,0,0] "
              "nodes_values=[0.0,0.0,0.0] nodes_modes=[BRANCH_LEQ,LEAF,LEAF] "
              "nodes_truenodeids=[1,0,0] nodes_falsenodeids=[2,0,0]",
              ""),
         1, "asks for feature 5, the input has 1"},
        {"TreeEnsembleClassifier x -> y,z n " TWO_ROWS, 2, "classlabels"},
        {"LinearClassifier x -> y,z n coefficients=[0.5,0.5] intercepts=[0.1] "
         "classlabels_ints=[1,2]",
         2, "2 features, the input has 1"},
        {"LinearRegressor x -> y n coefficients=[0.5,0.5,0.5] targets=2", 1, "fit together"},
        {"LinearRegressor x -> y n coefficients=[0.5] targets=-1", 1, "fit together"},
        {"SVMRegressor x -> y n coefficients=[0.5] rho=[0.1] kernel_type=COSINE", 1, "COSINE"},
        {"SVMRegressor x -> y n coefficients=[0.5] rho=[0.1] n_supports=-4", 1, "fit together"},
        {"SVMClassifier x -> y,z n coefficients=[0.5,0.5] rho=[0.1] classlabels_ints=[1,2] "
         "support_vectors=[1.0,2.0] vectors_per_class=[1,9223372036854775807]",
         2, "fit together"},
        {"SVMClassifier x -> y,z n coefficients=[0.5,0.5] rho=[0.1] classlabels_ints=[1,2,3] "
         "support_vectors=[1.0,2.0,3.0] vectors_per_class=[1,1,1]",
         2, "fit together"},
        {"SVMRegressor x -> y n coefficients=[0.5] rho=[0.1] kernel_params=[1.0]", 1, "degree"},
        {"Scaler x -> y n offset=[1.0,2.0] scale=[1.0]", 1, "offset has 2 entries"},
        {"Scaler x -> y n offset=[1.0]", 1, "scale has 0 entries"},
        {"Imputer x -> y n imputed_value_int64s=[1]", 1, "imputed_value_floats"},
        {"OneHotEncoder x -> y n cats_strings=[A,B]", 1, "categories"},
        {"OneHotEncoder x -> y n cats_int64s=[9] zeros=0", 1, "of no category"},
        {"FeatureVectorizer x -> y n inputdimensions=[1,2]", 1, "inputdimensions"},
        {"Normalizer x -> y n norm=L7", 1, "L7"},
        {"CategoryMapper x -> y n cats_strings=[A,B] cats_int64s=[1]", 1, "float32"},
    };
    static const float x[2] = {-1.0f, 2.0f};
    char text[600];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ml_run(cases[i].node, "2,1", x, cases[i].outputs, text, sizeof text);
        CHECK_MSG(strstr(text, cases[i].why) != NULL && strstr(text, "'n'") != NULL, "%d: %s",
                  (int)i, text);
    }
}
