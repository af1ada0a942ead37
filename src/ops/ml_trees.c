/* ml_trees.c: of ai.onnx.ml: TreeEnsemble, TreeEnsembleClassifier, TreeEnsembleRegressor. >>ml-trees
 *
 * Called by: infer, exec. Calls: ops/ml.c.
 * Prepare makes one form of all three, in the parameter block: nodes, leaves among them, and votes
 * of leaves. It proves that no tree runs in a circle, so that the walk needs no counting. What the
 * specification leaves open (two classes of which one gets votes) is as in ONNX Runtime.
 */
#include "ml_private.h"

#include <math.h>   /* isnan */
#include <stdio.h>  /* snprintf */
#include <stdlib.h> /* qsort */

#if !SPARSEBIT_NO_OPS_ML

/* As TreeEnsemble numbers them. */
enum {
    SBIT__TREE_LEQ,
    SBIT__TREE_LT,
    SBIT__TREE_GTE,
    SBIT__TREE_GT,
    SBIT__TREE_EQ,
    SBIT__TREE_NEQ,
    SBIT__TREE_MEMBER,
    SBIT__TREE_LEAF
};

enum {
    SBIT__TREES_AVERAGE,
    SBIT__TREES_SUM,
    SBIT__TREES_MIN,
    SBIT__TREES_MAX
};

typedef struct sbit__tree_node {
    double split;
    int64_t tree, id;    /* while the trees are made; later what the search for circles needs */
    int32_t from;        /* its place in the attributes */
    int32_t feature;
    int32_t yes, no;     /* children */
    int32_t first, count; /* votes of a leaf; of a MEMBER node the set */
    int32_t mode, nan_yes;
} sbit__tree_node;

typedef struct sbit__tree_vote {
    double weight;
    int64_t target;
} sbit__tree_vote;

/* The head of the parameter block; nodes, votes, members of sets and roots follow. */
typedef struct sbit__forest {
    int64_t nodes, votes, members, roots, targets, features; /* features: that are read */
    int32_t aggregate, post;
    int32_t only;     /* TreeEnsembleClassifier: the one of two classes that gets votes, or -1 */
    int32_t positive; /* no vote is below zero */
} sbit__forest;

typedef struct sbit__forest_view {
    sbit__forest *head;
    sbit__tree_node *nodes;
    sbit__tree_vote *votes;
    double *members;
    int32_t *roots;
} sbit__forest_view;

static sbit__forest_view sbit__forest_at(void *block)
{
    sbit__forest_view view;
    view.head = (sbit__forest *)block;
    view.nodes = (sbit__tree_node *)(void *)(view.head + 1);
    view.votes = (sbit__tree_vote *)(void *)(view.nodes + view.head->nodes);
    view.members = (double *)(void *)(view.votes + view.head->votes);
    view.roots = (int32_t *)(void *)(view.members + view.head->members);
    return view;
}

/* A block for `counts`, which it begins with. */
static sbit_status sbit__forest_alloc(const sbit_op_call *call, const sbit__forest *counts,
                                      sbit__forest_view *out, sbit_error *error)
{
    const size_t bytes = sizeof *counts + (size_t)counts->nodes * sizeof(sbit__tree_node) +
                         (size_t)counts->votes * sizeof(sbit__tree_vote) +
                         (size_t)counts->members * sizeof(double) +
                         (size_t)counts->roots * sizeof(int32_t);
    void *block = call->alloc_params(call, bytes);
    if (block == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    memcpy(block, counts, sizeof *counts);
    *out = sbit__forest_at(block);
    return SBIT_OK;
}

/* >>ml-trees checks that all three share */

/* Takes nodes away that have no parent left; what remains runs in a circle. */
static sbit_status sbit__forest_check(const sbit_op_call *call, const sbit__forest_view *f,
                                      sbit_error *error)
{
    const int64_t n = f->head->nodes;
    int64_t queued = 0;
    for (int64_t i = 0; i < n; i++) {
        f->nodes[i].tree = 0; /* parents that are left */
    }
    for (int64_t i = 0; i < n; i++) {
        const sbit__tree_node *node = &f->nodes[i];
        if (node->mode != SBIT__TREE_LEAF) {
            f->nodes[node->yes].tree++;
            f->nodes[node->no].tree++;
            f->head->features =
                node->feature >= f->head->features ? node->feature + 1 : f->head->features;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        if (f->nodes[i].tree == 0) {
            f->nodes[queued++].id = i; /* the queue */
        }
    }
    for (int64_t at = 0; at < queued; at++) {
        const sbit__tree_node *node = &f->nodes[f->nodes[at].id];
        const int32_t children[2] = {node->yes, node->no};
        for (int32_t k = 0; k < 2 && node->mode != SBIT__TREE_LEAF; k++) {
            if (--f->nodes[children[k]].tree == 0) {
                f->nodes[queued++].id = children[k];
            }
        }
    }
    for (int64_t i = 0; i < f->head->votes; i++) {
        if (f->votes[i].target < 0 || f->votes[i].target >= f->head->targets) {
            return sbit__ml_bad(call, "a leaf votes for what is not there", error);
        }
    }
    return queued == n ? SBIT_OK : sbit__ml_bad(call, "a tree runs in a circle", error);
}

/* >>ml-trees TreeEnsemble: children are nodes or leaves, which stand behind the nodes here */

/* Lists that all versions have, one entry a node. */
typedef struct sbit__tree_lists {
    sbit__ml_list features, yes, no, nan_yes;
} sbit__tree_lists;

/* False: they do not fit n nodes. */
static bool sbit__tree_lists_of(const sbit_op_call *call, int64_t n, sbit__tree_lists *out)
{
    out->features = sbit__ml_list_of(call, "nodes_featureids");
    out->yes = sbit__ml_list_of(call, "nodes_truenodeids");
    out->no = sbit__ml_list_of(call, "nodes_falsenodeids");
    out->nan_yes = sbit__ml_list_of(call, "nodes_missing_value_tracks_true");
    return out->features.count == n && out->yes.count == n && out->no.count == n &&
           (out->nan_yes.count == 0 || out->nan_yes.count == n);
}

typedef struct sbit__trees {
    sbit__tree_lists of;
    sbit__ml_list roots, yes_leaf, no_leaf, targets;
    const sbit_tensor *splits, *modes, *weights, *members;
    int64_t nodes, leaves, n_targets, aggregate, post;
} sbit__trees;

static const sbit_tensor *sbit__trees_tensor(const sbit_op_call *call, const char *name)
{
    const sbit_attr *attr = sbit_node_attr(call->node, name);
    return attr != NULL ? &attr->t : NULL;
}

static sbit_status sbit__trees_of(const sbit_op_call *call, sbit__trees *t, sbit_error *error)
{
    memset(t, 0, sizeof *t);
    t->splits = sbit__trees_tensor(call, "nodes_splits");
    t->modes = sbit__trees_tensor(call, "nodes_modes");
    t->weights = sbit__trees_tensor(call, "leaf_weights");
    t->members = sbit__trees_tensor(call, "membership_values");
    t->n_targets = sbit_node_int(call->node, "n_targets", 1);
    t->aggregate = sbit_node_int(call->node, "aggregate_function", SBIT__TREES_SUM);
    t->post = sbit_node_int(call->node, "post_transform", SBIT__ML_NONE);
    if (t->splits == NULL || t->modes == NULL || t->weights == NULL ||
        t->splits->dtype == SBIT_STRING || t->modes->dtype == SBIT_STRING ||
        t->weights->dtype == SBIT_STRING ||
        (t->members != NULL && t->members->dtype == SBIT_STRING)) {
        return sbit__ml_bad(call, "nodes_splits, nodes_modes or leaf_weights is missing", error);
    }
    t->nodes = sbit_tensor_count(t->splits);
    t->leaves = sbit_tensor_count(t->weights);
    t->roots = sbit__ml_list_of(call, "tree_roots");
    t->yes_leaf = sbit__ml_list_of(call, "nodes_trueleafs");
    t->no_leaf = sbit__ml_list_of(call, "nodes_falseleafs");
    t->targets = sbit__ml_list_of(call, "leaf_targetids");
    bool good = sbit__tree_lists_of(call, t->nodes, &t->of) && t->roots.ints != NULL &&
                t->yes_leaf.count == t->nodes && t->no_leaf.count == t->nodes &&
                t->targets.count == t->leaves &&
                sbit_tensor_count(t->modes) == t->nodes && t->nodes + t->leaves < INT32_MAX &&
                t->n_targets >= 1 && t->n_targets < INT32_MAX && t->aggregate >= 0 &&
                t->aggregate <= SBIT__TREES_MAX && t->post >= 0 && t->post <= SBIT__ML_PROBIT;
    for (int64_t i = 0; good && i < t->nodes; i++) {
        const int64_t yes = t->of.yes.ints[i], no = t->of.no.ints[i];
        const int64_t mode = sbit__tensor_i64_at(t->modes, i);
        good = t->of.features.ints[i] >= 0 && t->of.features.ints[i] < INT32_MAX && yes >= 0 &&
               no >= 0 &&
               yes < (t->yes_leaf.ints[i] != 0 ? t->leaves : t->nodes) && mode >= 0 &&
               no < (t->no_leaf.ints[i] != 0 ? t->leaves : t->nodes) && mode < SBIT__TREE_LEAF;
    }
    for (int64_t i = 0; good && i < t->roots.count; i++) {
        good = t->roots.ints[i] >= 0 && t->roots.ints[i] < t->nodes;
    }
    return good ? SBIT_OK : sbit__ml_bad(call, "the attributes of its trees do not fit", error);
}

static sbit_status sbit__trees_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit__trees trees;
    SBIT__TRY(sbit__op_inputs(call, 1, 1, error));
    SBIT__TRY(sbit__trees_of(call, &trees, error));
    const sbit_type *x = call->in_type[0];
    if (x->rank >= 0 && x->rank != 2) {
        return sbit__ml_bad(call, "its input is [N, features]", error);
    }
    sbit__ml_rows_type(call, x->dtype, x->rank == 2 ? x->dims[0] : sbit__dim_any(),
                       trees.n_targets);
    return SBIT_OK;
}

/* Sets follow each other in the order of MEMBER nodes, each ended by a NaN. */
static void sbit__trees_sets(const sbit__trees *t, const sbit__forest_view *f)
{
    int64_t at = 0;
    for (int64_t i = 0; i < f->head->members; i++) {
        f->members[i] = sbit__tensor_f64_at(t->members, i);
    }
    for (int64_t i = 0; i < t->nodes; i++) {
        if (f->nodes[i].mode == SBIT__TREE_MEMBER) {
            f->nodes[i].first = (int32_t)at;
            while (at < f->head->members && !isnan(f->members[at])) {
                at++;
            }
            f->nodes[i].count = (int32_t)at - f->nodes[i].first;
            at += at < f->head->members ? 1 : 0;
        }
    }
}

static sbit_status sbit__trees_prepare(const sbit_op_call *call, sbit_error *error)
{
    sbit__trees t;
    sbit__forest counts;
    sbit__forest_view f;
    SBIT__TRY(sbit__op_check(call, error));
    SBIT__TRY(sbit__trees_of(call, &t, error));
    memset(&counts, 0, sizeof counts);
    counts.nodes = t.nodes + t.leaves;
    counts.votes = t.leaves;
    counts.members = t.members != NULL ? sbit_tensor_count(t.members) : 0;
    counts.roots = t.roots.count;
    counts.targets = t.n_targets;
    counts.aggregate = (int32_t)t.aggregate;
    counts.post = (int32_t)t.post;
    counts.only = -1;
    if (counts.members >= INT32_MAX) {
        return sbit__ml_bad(call, "membership_values are too many", error);
    }
    SBIT__TRY(sbit__forest_alloc(call, &counts, &f, error));
    for (int64_t i = 0; i < t.nodes; i++) {
        sbit__tree_node *node = &f.nodes[i];
        node->split = sbit__tensor_f64_at(t.splits, i);
        node->feature = (int32_t)t.of.features.ints[i];
        node->yes = (int32_t)(t.of.yes.ints[i] + (t.yes_leaf.ints[i] != 0 ? t.nodes : 0));
        node->no = (int32_t)(t.of.no.ints[i] + (t.no_leaf.ints[i] != 0 ? t.nodes : 0));
        node->mode = (int32_t)sbit__tensor_i64_at(t.modes, i);
        node->nan_yes = t.of.nan_yes.count > 0 && t.of.nan_yes.ints[i] != 0;
    }
    for (int64_t i = 0; i < t.leaves; i++) {
        f.nodes[t.nodes + i].mode = SBIT__TREE_LEAF;
        f.nodes[t.nodes + i].first = (int32_t)i;
        f.nodes[t.nodes + i].count = 1;
        f.votes[i].weight = sbit__tensor_f64_at(t.weights, i);
        f.votes[i].target = t.targets.ints[i];
    }
    for (int64_t i = 0; i < t.roots.count; i++) {
        f.roots[i] = (int32_t)t.roots.ints[i];
    }
    sbit__trees_sets(&t, &f);
    *call->scratch_bytes = (size_t)(t.n_targets + 2) * 2 * sizeof(double);
    return sbit__forest_check(call, &f, error);
}

/* >>ml-trees TreeEnsembleClassifier, TreeEnsembleRegressor: nodes by number of tree and node, leaves
 * among them, any votes for a leaf */

typedef struct sbit__old_trees {
    sbit__tree_lists of;
    sbit__ml_list trees, ids, values, vote_trees, vote_ids, targets, weights, base;
    const sbit_attr *modes;
    sbit__ml_classes classes;
    int64_t n_targets;
    int32_t aggregate, post;
} sbit__old_trees;

static sbit__ml_list sbit__old_trees_list(const sbit_op_call *call, bool classifies,
                                          const char *what)
{
    char name[40];
    snprintf(name, sizeof name, "%s_%s", classifies ? "class" : "target", what);
    return sbit__ml_list_of(call, name);
}

static sbit_status sbit__old_trees_of(const sbit_op_call *call, bool classifies, sbit__old_trees *t,
                                      sbit_error *error)
{
    static const char *const sums[] = {"SUM", "AVERAGE", "MIN", "MAX"};
    memset(t, 0, sizeof *t);
    t->trees = sbit__ml_list_of(call, "nodes_treeids");
    t->ids = sbit__ml_list_of(call, "nodes_nodeids");
    t->values = sbit__ml_list_or_tensor(call, "nodes_values");
    t->modes = sbit_node_attr(call->node, "nodes_modes");
    t->vote_trees = sbit__old_trees_list(call, classifies, "treeids");
    t->vote_ids = sbit__old_trees_list(call, classifies, "nodeids");
    t->targets = sbit__old_trees_list(call, classifies, "ids");
    t->weights = sbit__ml_list_or_tensor(call, classifies ? "class_weights" : "target_weights");
    t->base = sbit__ml_list_or_tensor(call, "base_values");
    t->n_targets = sbit_node_int(call->node, "n_targets", 1);
    t->aggregate = SBIT__TREES_SUM;
    if (classifies) {
        SBIT__TRY(sbit__ml_classes_of(call, "classlabels_int64s", &t->classes, error));
        t->n_targets = t->classes.count;
    } else {
        SBIT__TRY(sbit__op_word(call, "aggregate_function", sums, 4, &t->aggregate, error));
        t->aggregate = t->aggregate < 2 ? 1 - t->aggregate : t->aggregate;
    }
    SBIT__TRY(sbit__ml_post_of(call, &t->post, error));
    const int64_t n = t->trees.count, votes = t->targets.count;
    const bool good = n > 0 && n < INT32_MAX && t->ids.count == n && t->values.count == n &&
                      sbit__tree_lists_of(call, n, &t->of) && t->modes != NULL &&
                      (int64_t)t->modes->count == n && t->vote_trees.count == votes &&
                      t->vote_ids.count == votes && t->weights.count == votes &&
                      votes < INT32_MAX && t->n_targets >= 1 && t->n_targets < INT32_MAX &&
                      (t->base.count == 0 || t->base.count == t->n_targets ||
                       (classifies && t->n_targets == 2 && t->base.count == 1));
    return good ? SBIT_OK : sbit__ml_bad(call, "the attributes of its trees do not fit", error);
}

static int sbit__old_trees_order(const void *a, const void *b)
{
    const sbit__tree_node *x = (const sbit__tree_node *)a, *y = (const sbit__tree_node *)b;
    return x->tree != y->tree ? (x->tree < y->tree ? -1 : 1)
           : x->id != y->id   ? (x->id < y->id ? -1 : 1)
                              : 0;
}

/* The place of a node; -1: there is none. */
static int32_t sbit__old_trees_find(const sbit__forest_view *f, int64_t tree, int64_t id)
{
    int64_t low = 0, high = f->head->nodes;
    sbit__tree_node key;
    key.tree = tree;
    key.id = id;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const int order = sbit__old_trees_order(&f->nodes[middle], &key);
        if (order == 0) {
            return (int32_t)middle;
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return -1;
}

static int32_t sbit__old_trees_mode(sbit_str text)
{
    static const char *const words[] = {"BRANCH_LEQ", "BRANCH_LT",  "BRANCH_GTE",    "BRANCH_GT",
                                        "BRANCH_EQ",  "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF"};
    int32_t mode = SBIT__TREE_LEAF;
    while (mode >= 0 && (mode == SBIT__TREE_MEMBER || text.size != strlen(words[mode]) ||
                         memcmp(text.data, words[mode], text.size) != 0)) {
        mode--;
    }
    return mode;
}

/* Nodes sorted by tree and number. */
static sbit_status sbit__old_trees_nodes(const sbit_op_call *call, const sbit__old_trees *t,
                                         const sbit__forest_view *f, sbit_error *error)
{
    const int64_t n = f->head->nodes;
    for (int64_t i = 0; i < n; i++) {
        sbit__tree_node *node = &f->nodes[i];
        node->split = sbit__ml_number(&t->values, i);
        node->tree = t->trees.ints[i];
        node->id = t->ids.ints[i];
        node->from = (int32_t)i;
        node->mode = sbit__old_trees_mode(t->modes->strings[i]);
        node->nan_yes = t->of.nan_yes.count > 0 && t->of.nan_yes.ints[i] != 0;
        const int64_t feature = node->mode == SBIT__TREE_LEAF ? 0 : t->of.features.ints[i];
        if (node->mode < 0 || feature < 0 || feature >= INT32_MAX) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                                "node %lld of tree %lld has no feature or no known mode",
                                (long long)node->id, (long long)node->tree);
        }
        node->feature = (int32_t)feature;
    }
    qsort(f->nodes, (size_t)n, sizeof *f->nodes, sbit__old_trees_order);
    for (int64_t i = 0; i < n; i++) {
        sbit__tree_node *node = &f->nodes[i];
        if (i > 0 && sbit__old_trees_order(&f->nodes[i - 1], node) == 0) {
            return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                                "node %lld of tree %lld is there twice", (long long)node->id,
                                (long long)node->tree);
        }
        if (node->mode != SBIT__TREE_LEAF) {
            node->yes = sbit__old_trees_find(f, node->tree, t->of.yes.ints[node->from]);
            node->no = sbit__old_trees_find(f, node->tree, t->of.no.ints[node->from]);
            if (node->yes < 0 || node->no < 0) {
                return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                                    "a child of node %lld of tree %lld is not there",
                                    (long long)node->id, (long long)node->tree);
            }
        }
    }
    return SBIT_OK;
}

/* A tree begins with the node of it that stands first in the attributes. */
static void sbit__old_trees_roots(const sbit__forest_view *f)
{
    int64_t roots = 0;
    for (int64_t i = 0; i < f->head->nodes; i++) {
        const bool next = i == 0 || f->nodes[i].tree != f->nodes[i - 1].tree;
        if (next || f->nodes[i].from < f->nodes[f->roots[roots - 1]].from) {
            roots += next ? 1 : 0;
            f->roots[roots - 1] = (int32_t)i;
        }
    }
    f->head->roots = roots;
}

/* Votes in the order of their leaves. */
static sbit_status sbit__old_trees_votes(const sbit_op_call *call, const sbit__old_trees *t,
                                         const sbit__forest_view *f, sbit_error *error)
{
    int32_t first = 0;
    for (int64_t pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < f->head->votes; i++) {
            const int64_t tree = t->vote_trees.ints[i], id = t->vote_ids.ints[i];
            const int32_t at = sbit__old_trees_find(f, tree, id);
            if (at < 0) {
                return sbit_op_fail(call, SBIT_ERR_INVALID_MODEL, error,
                                    "a vote is of node %lld of tree %lld, which is not there",
                                    (long long)id, (long long)tree);
            }
            if (pass == 1) {
                sbit__tree_vote *vote = &f->votes[f->nodes[at].first + f->nodes[at].count];
                vote->weight = sbit__ml_number(&t->weights, i);
                vote->target = t->targets.ints[i];
            }
            f->nodes[at].count++;
        }
        for (int64_t i = 0; pass == 0 && i < f->head->nodes; i++) {
            f->nodes[i].first = first;
            first += f->nodes[i].count;
            f->nodes[i].count = 0;
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__old_trees_prepare(const sbit_op_call *call, bool classifies,
                                           sbit_error *error)
{
    sbit__old_trees t;
    sbit__forest counts;
    sbit__forest_view f;
    SBIT__TRY(sbit__op_check(call, error));
    SBIT__TRY(sbit__old_trees_of(call, classifies, &t, error));
    memset(&counts, 0, sizeof counts);
    counts.nodes = counts.roots = t.trees.count;
    counts.votes = t.targets.count;
    counts.targets = t.n_targets;
    counts.aggregate = t.aggregate;
    counts.post = t.post;
    counts.positive = 1;
    counts.only = t.n_targets == 2 && counts.votes > 0 && t.targets.ints[0] < 2
                      ? (int32_t)t.targets.ints[0]
                      : -1;
    for (int64_t i = 0; i < counts.votes; i++) {
        counts.positive = counts.positive != 0 && sbit__ml_number(&t.weights, i) >= 0.0;
        counts.only = t.targets.ints[i] == counts.only ? counts.only : -1;
    }
    SBIT__TRY(sbit__forest_alloc(call, &counts, &f, error));
    SBIT__TRY(sbit__old_trees_nodes(call, &t, &f, error));
    SBIT__TRY(sbit__old_trees_votes(call, &t, &f, error));
    sbit__old_trees_roots(&f);
    *call->scratch_bytes = (size_t)(t.n_targets + 2) * 2 * sizeof(double);
    return sbit__forest_check(call, &f, error);
}

static sbit_status sbit__old_trees_classifier_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_dim rows, features;
    sbit__old_trees t;
    SBIT__TRY(sbit__ml_input(call, &rows, &features, error));
    SBIT__TRY(sbit__old_trees_of(call, true, &t, error));
    sbit__ml_classifier_types(call, rows, &t.classes, t.n_targets);
    return SBIT_OK;
}

static sbit_status sbit__old_trees_regressor_infer(const sbit_op_call *call, sbit_error *error)
{
    sbit_dim rows, features;
    sbit__old_trees t;
    SBIT__TRY(sbit__ml_input(call, &rows, &features, error));
    SBIT__TRY(sbit__old_trees_of(call, false, &t, error));
    sbit__ml_rows_type(call, SBIT_F32, rows, t.n_targets);
    return SBIT_OK;
}

static sbit_status sbit__old_trees_classifier_prepare(const sbit_op_call *call, sbit_error *error)
{
    return sbit__old_trees_prepare(call, true, error);
}

static sbit_status sbit__old_trees_regressor_prepare(const sbit_op_call *call, sbit_error *error)
{
    return sbit__old_trees_prepare(call, false, error);
}

/* >>ml-trees the walk */

static bool sbit__tree_goes_yes(const sbit__forest_view *f, const sbit__tree_node *node, double x)
{
    if (isnan(x)) {
        return node->nan_yes != 0;
    }
    switch (node->mode) {
    case SBIT__TREE_LEQ:
        return x <= node->split;
    case SBIT__TREE_LT:
        return x < node->split;
    case SBIT__TREE_GTE:
        return x >= node->split;
    case SBIT__TREE_GT:
        return x > node->split;
    case SBIT__TREE_EQ:
        return !(x < node->split || x > node->split);
    case SBIT__TREE_NEQ:
        return x < node->split || x > node->split;
    default:
        for (int32_t i = 0; i < node->count; i++) {
            const double member = f->members[node->first + i];
            if (!(x < member || x > member)) {
                return true;
            }
        }
        return false;
    }
}

/* The sums of all trees for one row, in y; scratch behind it holds which targets got votes. */
static void sbit__forest_row(const sbit__forest_view *f, const sbit_tensor *x, int64_t from,
                             double *y)
{
    const sbit__forest *head = f->head;
    double *voted = y + head->targets + 2;
    for (int64_t k = 0; k < head->targets; k++) {
        y[k] = voted[k] = 0.0;
    }
    for (int64_t i = 0; i < head->roots; i++) {
        const sbit__tree_node *node = &f->nodes[f->roots[i]];
        while (node->mode != SBIT__TREE_LEAF) {
            const double value = sbit__tensor_f64_at(x, from + node->feature);
            node = &f->nodes[sbit__tree_goes_yes(f, node, value) ? node->yes : node->no];
        }
        for (int32_t k = node->first; k < node->first + node->count; k++) {
            const sbit__tree_vote *vote = &f->votes[k];
            double *to = &y[vote->target];
            const bool first = voted[vote->target] < 1.0;
            if (first || head->aggregate <= SBIT__TREES_SUM) {
                *to += vote->weight;
            } else if (head->aggregate == SBIT__TREES_MIN ? vote->weight < *to
                                                          : vote->weight > *to) {
                *to = vote->weight;
            }
            voted[vote->target] = 1.0;
        }
    }
    for (int64_t k = 0; head->aggregate == SBIT__TREES_AVERAGE && k < head->targets; k++) {
        y[k] /= (double)head->roots;
    }
}

/* The forest that prepare made, with rows and features of the input. */
static sbit_status sbit__forest_of(const sbit_op_call *call, sbit__forest_view *out, int64_t *rows,
                                   int64_t *features, sbit_error *error)
{
    void *block = NULL;
    if (call->params == NULL) {
        return sbit__ml_bad(call, "it was not prepared", error);
    }
    memcpy(&block, &call->params, sizeof block); /* only read */
    *out = sbit__forest_at(block);
    sbit__ml_size(call->in[0], rows, features);
    return out->head->features <= *features
               ? SBIT_OK
               : sbit_op_fail(call, SBIT_ERR_SHAPE, error,
                              "a tree asks for feature %lld, the input has %lld",
                              (long long)out->head->features - 1, (long long)*features);
}

/* TreeEnsemble and TreeEnsembleRegressor. */
static sbit_status sbit__forest_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit__ml_list base = sbit__ml_list_or_tensor(call, "base_values");
    double *y = (double *)call->scratch;
    sbit__forest_view f;
    int64_t rows, features;
    SBIT__TRY(sbit__forest_of(call, &f, &rows, &features, error));
    for (int64_t row = 0; row < rows; row++) {
        sbit__forest_row(&f, call->in[0], row * features, y);
        for (int64_t k = 0; k < base.count && k < f.head->targets; k++) {
            y[k] += sbit__ml_number(&base, k);
        }
        sbit__ml_transform(f.head->post, y, f.head->targets);
        sbit__ml_store(call->out[0], row, y, f.head->targets);
    }
    return SBIT_OK;
}

/* Where votes are for one of two classes only, that score decides: against 0, or against 1/2 if no
 * vote is negative; the first class' votes then speak for the second. */
static int64_t sbit__forest_decides(const sbit__forest *head, double *y)
{
    if (head->only < 0) {
        const int64_t top = sbit__ml_top(y, head->targets);
        sbit__ml_transform(head->post, y, head->targets);
        return top;
    }
    const bool second = y[head->only] > (head->positive != 0 ? 0.5 : 0.0);
    if (head->only == 0) {
        sbit__ml_pair(head->post, head->positive != 0, y[0], y);
    } else {
        sbit__ml_transform(head->post, y, 2);
    }
    return second;
}

static sbit_status sbit__old_trees_classifier_run(const sbit_op_call *call, sbit_error *error)
{
    const sbit__ml_list base = sbit__ml_list_or_tensor(call, "base_values");
    double *y = (double *)call->scratch;
    sbit__forest_view f;
    sbit__ml_classes classes;
    int64_t rows, features;
    SBIT__TRY(sbit__ml_classes_of(call, "classlabels_int64s", &classes, error));
    SBIT__TRY(sbit__forest_of(call, &f, &rows, &features, error));
    for (int64_t row = 0; row < rows; row++) {
        sbit__forest_row(&f, call->in[0], row * features, y);
        for (int64_t k = 0; k < base.count; k++) {
            y[k] += sbit__ml_number(&base, k);
        }
        sbit__ml_set_label(call, &classes, row, sbit__forest_decides(f.head, y));
        sbit__ml_store(sbit__out(call, 1), row, y, f.head->targets);
    }
    return SBIT_OK;
}

/* ---- rows */

static const sbit_op_row sbit__ml_trees_table[] = {
    SBIT__ML_ROW("TreeEnsemble", 5, SBIT_T(SBIT_F32) | SBIT_T(SBIT_F64) | SBIT_T(SBIT_F16),
                 sbit__trees_infer, sbit__trees_prepare, sbit__forest_run),
    SBIT__ML_ROW("TreeEnsembleClassifier", 1, SBIT__ML_NUMBERS, sbit__old_trees_classifier_infer,
                 sbit__old_trees_classifier_prepare, sbit__old_trees_classifier_run),
    SBIT__ML_ROW("TreeEnsembleClassifier", 3, SBIT__ML_NUMBERS, sbit__old_trees_classifier_infer,
                 sbit__old_trees_classifier_prepare, sbit__old_trees_classifier_run),
    SBIT__ML_ROW("TreeEnsembleRegressor", 1, SBIT__ML_NUMBERS, sbit__old_trees_regressor_infer,
                 sbit__old_trees_regressor_prepare, sbit__forest_run),
    SBIT__ML_ROW("TreeEnsembleRegressor", 3, SBIT__ML_NUMBERS, sbit__old_trees_regressor_infer,
                 sbit__old_trees_regressor_prepare, sbit__forest_run),
};

SBIT__FN const sbit_op_row *sbit__op_rows_ml_trees(size_t *count)
{
    *count = SBIT__COUNT_OF(sbit__ml_trees_table);
    return sbit__ml_trees_table;
}

#endif /* SPARSEBIT_NO_OPS_ML */
