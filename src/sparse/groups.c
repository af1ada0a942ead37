/* groups.c: from labels to what may be cut: classes, and the groups that layers make. >>groups
 *
 * A class is all that has one label; it can be removed if nothing fixed it and something is left
 * without it everywhere. A group is the classes that the same rows of the same weights make: the
 * output channels of a layer, or of all layers that are added up, or the units of a hidden layer.
 */
#include "sparse_private.h"

typedef struct sbit__grouper {
    sbit__labeler *labeler;
    sbit__groups *out;
    int32_t *first_of; /* by class: the first entry of its list of makers; -1: none */
    int32_t *last_of;
    int32_t *maker, *next; /* entries */
    int32_t entry_count;
} sbit__grouper;

/* >>nothing may be left of a value or a constant */

static void sbit__groups_keep_one(sbit__labeler *labeler, const int32_t *labels, int64_t count,
                                  const char *name)
{
    for (int64_t i = 1; i < count; i++) {
        if (labels[i] == 0 || labels[0] == 0 ||
            sbit__label_root(labeler, labels[i]) != sbit__label_root(labeler, labels[0])) {
            return;
        }
    }
    if (count > 0 && labels[0] != 0 &&
        !sbit__label_is(labeler, labels[0], SBIT__LABEL_FIXED | SBIT__LABEL_FREE)) {
        const char *reason =
            sbit__arena_printf(labeler->arena, "nothing would be left of '%s'", name);
        sbit__label_fix(labeler, labels[0], reason != NULL ? reason : "nothing would be left");
    }
}

static void sbit__groups_keep_some(sbit__labeler *labeler)
{
    for (uint32_t v = 1; v < sbit_graph_value_limit(labeler->graph); v++) {
        const sbit__channel_labels *labels = &labeler->of[v];
        sbit_value_id id;
        id.idx = v;
        if (labels->form == SBIT__LABELS_FULL &&
            sbit__channel_labels_varies(labeler, labels) != 0) {
            sbit__channel_labels_fix(labeler, labels, "lies on several axes");
        } else if (labels->form == SBIT__LABELS_UNIFORM || labels->form == SBIT__LABELS_AXIS) {
            sbit__groups_keep_one(labeler, labels->at,
                                  labels->form == SBIT__LABELS_AXIS ? labels->dims[labels->axis]
                                                                    : 1,
                                  sbit_graph_value(labeler->graph, id)->name);
        }
    }
    for (size_t m = 0; m < labeler->member_count; m++) {
        const sbit__member *member = &labeler->members[m];
        const int64_t length = member->count / member->parts;
        for (int64_t part = 0; part < member->parts; part++) {
            sbit__groups_keep_one(labeler, member->labels + part * length, length,
                                  sbit_graph_value(labeler->graph, member->value)->name);
        }
    }
}

/* >>classes */

static void sbit__groups_enter(sbit__grouper *grouper, int32_t class_idx, int32_t member)
{
    const int32_t last = grouper->last_of[class_idx];
    if (last >= 0 && grouper->maker[last] == member) {
        return;
    }
    const int32_t entry = grouper->entry_count++;
    grouper->maker[entry] = member;
    grouper->next[entry] = -1;
    if (last >= 0) {
        grouper->next[last] = entry;
    } else {
        grouper->first_of[class_idx] = entry;
    }
    grouper->last_of[class_idx] = entry;
}

SBIT__FN bool sbit__member_makes(const sbit__member *member)
{
    return (member->roles >> SBIT_ROLE_ROWS & 1u) != 0;
}

SBIT__FN bool sbit__member_prunes(const sbit__member *member)
{
    return sbit__member_makes(member) || (member->roles >> SBIT_ROLE_FILTER & 1u) != 0;
}

SBIT__FN int32_t sbit__class_of(const sbit__labeler *labeler, const sbit__groups *groups,
                                int32_t label)
{
    return label == 0 ? -1 : groups->class_of[sbit__label_root(labeler, label)];
}

static sbit_status sbit__groups_classes(sbit__grouper *grouper, sbit_error *error)
{
    sbit__labeler *labeler = grouper->labeler;
    sbit__groups *out = grouper->out;
    size_t rows = 1;
    for (size_t m = 0; m < labeler->member_count; m++) {
        rows += sbit__member_makes(&labeler->members[m]) ? (size_t)labeler->members[m].count : 0;
    }
    out->class_of = (int32_t *)sbit__arena_array(labeler->arena, (size_t)labeler->label_count + 1,
                                                 sizeof(int32_t));
    out->classes = (sbit__class *)sbit__arena_array(labeler->arena, rows, sizeof(sbit__class));
    int32_t *lists = (int32_t *)sbit__arena_array(labeler->arena, rows, 4 * sizeof(int32_t));
    if (out->class_of == NULL || out->classes == NULL || lists == NULL) {
        return sbit__fail_oom(error, rows * sizeof(sbit__class));
    }
    grouper->first_of = lists;
    grouper->last_of = lists + rows;
    grouper->maker = lists + 2 * rows;
    grouper->next = lists + 3 * rows;
    for (int32_t i = 0; i <= labeler->label_count; i++) {
        out->class_of[i] = -1;
    }
    for (size_t m = 0; m < labeler->member_count; m++) {
        const sbit__member *member = &labeler->members[m];
        for (int64_t i = 0; sbit__member_makes(member) && i < member->count; i++) {
            const int32_t root = sbit__label_root(labeler, member->labels[i]);
            int32_t *idx = &out->class_of[root];
            if (*idx < 0) {
                *idx = out->class_count++;
                out->classes[*idx].root = root;
                out->classes[*idx].group = -1;
                out->classes[*idx].removable = !sbit__label_is(labeler, root, SBIT__LABEL_FIXED);
                out->classes[*idx].reason = labeler->reasons[root];
                grouper->first_of[*idx] = grouper->last_of[*idx] = -1;
            }
            sbit__groups_enter(grouper, *idx, (int32_t)m);
        }
    }
    return SBIT_OK;
}

/* >>groups */

static bool sbit__groups_same_makers(const sbit__grouper *grouper, int32_t a, int32_t b)
{
    a = grouper->first_of[a];
    b = grouper->first_of[b];
    while (a >= 0 && b >= 0 && grouper->maker[a] == grouper->maker[b]) {
        a = grouper->next[a];
        b = grouper->next[b];
    }
    return a < 0 && b < 0;
}

/* Classes of one group stand together in most models: each is compared with the groups that begin
 * with the same maker. */
static void sbit__groups_assign(sbit__grouper *grouper, int32_t *heads)
{
    sbit__groups *out = grouper->out;
    for (int32_t c = 0; c < out->class_count; c++) {
        for (int32_t g = out->group_count; out->classes[c].group < 0 && g-- > 0;) {
            out->classes[c].group = sbit__groups_same_makers(grouper, c, heads[g]) ? g : -1;
        }
        if (out->classes[c].group < 0) {
            heads[out->group_count] = c;
            out->classes[c].group = out->group_count++;
        }
        out->groups[out->classes[c].group].class_count++;
    }
}

static sbit_status sbit__groups_fill(sbit__grouper *grouper, const int32_t *heads, int32_t *classes,
                                     sbit_error *error)
{
    sbit__groups *out = grouper->out;
    for (int32_t g = 0; g < out->group_count; g++) {
        sbit__group *group = &out->groups[g];
        group->classes = classes;
        classes += group->class_count;
        group->class_count = 0;
        for (int32_t e = grouper->first_of[heads[g]]; e >= 0; e = grouper->next[e]) {
            group->maker_count++;
        }
        group->makers = (int32_t *)sbit__arena_array(grouper->labeler->arena,
                                                     (size_t)group->maker_count, sizeof(int32_t));
        if (group->makers == NULL) {
            return sbit__fail_oom(error, (size_t)group->maker_count * sizeof(int32_t));
        }
        int32_t n = 0;
        for (int32_t e = grouper->first_of[heads[g]]; e >= 0; e = grouper->next[e]) {
            group->makers[n++] = grouper->maker[e];
        }
    }
    for (int32_t c = 0; c < out->class_count; c++) {
        sbit__group *group = &out->groups[out->classes[c].group];
        group->classes[group->class_count++] = c;
    }
    for (int32_t g = 0; g < out->group_count; g++) {
        sbit__group *group = &out->groups[g];
        group->reason = out->classes[group->classes[0]].reason;
        for (int32_t i = 0; i < group->class_count; i++) {
            group->reason = out->classes[group->classes[i]].removable ? NULL : group->reason;
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__groups_make(sbit__labeler *labeler, sbit__groups *out, sbit_error *error)
{
    sbit__grouper grouper;
    memset(&grouper, 0, sizeof grouper);
    memset(out, 0, sizeof *out);
    grouper.labeler = labeler;
    grouper.out = out;
    sbit__groups_keep_some(labeler);
    SBIT__TRY(sbit__groups_classes(&grouper, error));
    const size_t n = (size_t)out->class_count + 1;
    int32_t *heads = (int32_t *)sbit__arena_array(labeler->arena, n, sizeof *heads);
    int32_t *classes = (int32_t *)sbit__arena_array(labeler->arena, n, sizeof *classes);
    out->groups = (sbit__group *)sbit__arena_array(labeler->arena, n, sizeof *out->groups);
    if (heads == NULL || classes == NULL || out->groups == NULL) {
        return sbit__fail_oom(error, n * sizeof *out->groups);
    }
    sbit__groups_assign(&grouper, heads);
    return sbit__groups_fill(&grouper, heads, classes, error);
}
