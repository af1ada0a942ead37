/* storage.c: the memory of values: blocks, values whose shape depends on data, copies. >>storage
 *
 * Called by: all of exec. Calls: nothing of exec.
 */
#include "exec_private.h"

/* >>the session's memory: counted, limited */

static bool sbit__meter_add(sbit__meter *meter, size_t bytes)
{
    size_t total = 0;
    if (!sbit__add_size(meter->bytes, bytes, &total) ||
        (meter->limit > 0 && total > meter->limit)) {
        meter->refused = true;
        return false;
    }
    meter->bytes = total;
    meter->peak = total > meter->peak ? total : meter->peak;
    return true;
}

static void *sbit__meter_alloc(size_t bytes, void *user)
{
    sbit__meter *meter = (sbit__meter *)user;
    void *data = NULL;
    if (!sbit__meter_add(meter, bytes)) {
        return NULL;
    }
    data = meter->base.alloc_fn(bytes, meter->base.user);
    if (data == NULL) {
        meter->bytes -= bytes;
    }
    return data;
}

static void sbit__meter_free(void *ptr, size_t bytes, void *user)
{
    sbit__meter *meter = (sbit__meter *)user;
    if (ptr != NULL) {
        meter->bytes -= bytes;
        meter->base.free_fn(ptr, bytes, meter->base.user);
    }
}

/* Old and new block may both be there for a moment. */
static void *sbit__meter_realloc(void *ptr, size_t old_bytes, size_t new_bytes, void *user)
{
    sbit__meter *meter = (sbit__meter *)user;
    void *data = NULL;
    if (!sbit__meter_add(meter, new_bytes)) {
        return NULL;
    }
    data = meter->base.realloc_fn(ptr, old_bytes, new_bytes, meter->base.user);
    meter->bytes -= data != NULL ? old_bytes : new_bytes;
    return data;
}

SBIT__FN void sbit__meter_init(sbit__meter *meter, const sbit_allocator *base, size_t limit,
                               sbit_allocator *out)
{
    meter->base = *base;
    meter->limit = limit;
    out->alloc_fn = sbit__meter_alloc;
    out->realloc_fn = sbit__meter_realloc;
    out->free_fn = sbit__meter_free;
    out->user = meter;
}

SBIT__FN sbit_status sbit__meter_explain(const sbit_session *session, sbit_status status,
                                         sbit_error *error)
{
    const sbit__meter *dynamic = (const sbit__meter *)session->dynamic.user;
    const sbit__meter *meter = dynamic->refused ? dynamic : (const sbit__meter *)dynamic->base.user;
    char said[sizeof(((sbit_error *)0)->message)] = "out of memory";
    if (status != SBIT_ERR_OUT_OF_MEMORY || !meter->refused) {
        return status;
    }
    if (error != NULL) { /* which node it was */
        memcpy(said, error->message, sizeof said);
    }
    return sbit__fail(error, SBIT_ERR_LIMIT, NULL,
                      "%.300s: the session may take %lu bytes of memory%s", said,
                      (unsigned long)meter->limit,
                      meter == dynamic ? " for what depends on data (dynamic_bytes)" : "");
}

/* >>blocks */

SBIT__FN sbit__exec_block *sbit__block_make(const sbit_allocator *allocator, size_t bytes)
{
    size_t total = 0;
    sbit__exec_block *block = NULL;
    if (sbit__add_size(bytes, 2 * SBIT__EXEC_ALIGN - 1, &total)) {
        total &= ~(SBIT__EXEC_ALIGN - 1); /* small ones are all alike */
        block = (sbit__exec_block *)sbit__alloc_aligned(allocator, total);
    }
    if (block != NULL) {
        block->next = NULL;
        block->bytes = bytes;
        block->total = total;
    }
    return block;
}

/* What runs give back is kept for the next that asks for as much, so that a session that runs the
 * same shapes again takes nothing. There is a list for each power of two. Of it a few are looked
 * at; if none fits, one goes, so that there are never more blocks than once were in use. */
enum {
    SBIT__SPARE_LOOKS = 8
};

static sbit_session *sbit__block_root(sbit_session *session)
{
    while (session->parent != NULL) {
        session = session->parent;
    }
    return session;
}

static sbit__exec_block **sbit__block_spare(sbit_session *root, size_t bytes)
{
    size_t list = 0;
    size_t units = bytes / SBIT__EXEC_ALIGN + (bytes % SBIT__EXEC_ALIGN != 0 ? 1 : 0);
    for (; units > 1 && list + 1 < SBIT__SPARE_LISTS; units /= 2) {
        list++;
    }
    return &root->spare[list];
}

static void sbit__block_free(sbit_session *session, sbit__exec_block *block)
{
    sbit__free_aligned(&session->dynamic, block, block->total);
}

SBIT__FN void sbit__block_free_spare(sbit_session *root)
{
    for (size_t i = 0; i < SBIT__SPARE_LISTS; i++) {
        while (root->spare[i] != NULL) {
            sbit__exec_block *block = root->spare[i];
            root->spare[i] = block->next;
            sbit__block_free(root, block);
        }
    }
}

static sbit__exec_block *sbit__block_take(sbit_session *root, size_t bytes)
{
    sbit__exec_block **link = sbit__block_spare(root, bytes), **last = NULL;
    for (int i = 0; i < SBIT__SPARE_LOOKS && *link != NULL; i++) {
        sbit__exec_block *block = *link;
        if (block->total - SBIT__EXEC_ALIGN >= bytes) {
            *link = block->next;
            block->bytes = bytes;
            return block;
        }
        last = link;
        link = &block->next;
    }
    if (last != NULL) {
        sbit__exec_block *block = *last;
        *last = block->next;
        sbit__block_free(root, block);
    }
    return NULL;
}

SBIT__FN void *sbit__block_add(sbit_session *session, sbit__exec_block **list, size_t bytes)
{
    sbit_session *root = sbit__block_root(session);
    sbit__exec_block *block = sbit__block_take(root, bytes);
    if (block == NULL) {
        block = sbit__block_make(&root->dynamic, bytes);
    }
    if (block == NULL) {
        sbit__block_free_spare(root);
        block = sbit__block_make(&root->dynamic, bytes);
    }
    if (block == NULL) {
        return NULL;
    }
    block->next = *list;
    *list = block;
    return sbit__block_data(block);
}

SBIT__FN void sbit__block_free_all(sbit_session *session, sbit__exec_block **list)
{
    sbit_session *root = sbit__block_root(session);
    while (*list != NULL) {
        sbit__exec_block *block = *list;
        *list = block->next;
        sbit__exec_block **spare = sbit__block_spare(root, block->total - SBIT__EXEC_ALIGN);
        block->next = *spare;
        *spare = block;
    }
}

SBIT__FN bool sbit__exec_bytes(sbit_dtype dtype, int64_t count, size_t *bytes)
{
    if (dtype == SBIT_STRING) {
        return count >= 0 && sbit__mul_size((size_t)count, sizeof(sbit_str), bytes);
    }
    return sbit_dtype_bytes((int32_t)dtype, count, bytes);
}

/* Memory of a value that is known when the session plans is planned memory. */
static void sbit__dynamic_free_main(sbit_session *session, sbit__dynamic *dynamic)
{
    sbit__free_aligned(dynamic->constant ? &session->allocator : &session->dynamic, dynamic->main,
                       dynamic->main_bytes);
    session->state_bytes -= dynamic->constant ? dynamic->main_bytes : 0;
    dynamic->main = NULL;
    dynamic->main_bytes = 0;
}

SBIT__FN void sbit__dynamic_set_constant(sbit_session *session, sbit__dynamic *dynamic,
                                         bool constant)
{
    if (dynamic->constant != constant) {
        sbit__dynamic_free_main(session, dynamic);
    }
    dynamic->constant = constant;
}

static sbit_status sbit__dynamic_reserve(sbit_session *session, sbit__dynamic *dynamic,
                                         size_t bytes, sbit_error *error)
{
    const sbit_allocator *a = dynamic->constant ? &session->allocator : &session->dynamic;
    void *data = NULL;
    if (bytes <= dynamic->main_bytes) {
        return SBIT_OK;
    }
    data = sbit__alloc_aligned(a, bytes);
    if (data == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    sbit__dynamic_free_main(session, dynamic);
    session->state_bytes += dynamic->constant ? bytes : 0;
    dynamic->main = data;
    dynamic->main_bytes = bytes;
    return SBIT_OK;
}

SBIT__FN void sbit__dynamic_free(sbit_session *session, sbit__dynamic *dynamic)
{
    sbit__block_free_all(session, &dynamic->items);
    sbit__dynamic_free_main(session, dynamic);
}

SBIT__FN sbit_status sbit__exec_shape(sbit_dtype dtype, int32_t rank, const int64_t *dims,
                                      sbit_tensor *tensor, size_t *bytes, sbit_error *error)
{
    int64_t count = 0;
    if (rank < 0 || rank > SBIT_MAX_RANK) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL,
                          "a tensor of rank %d; at most %d is possible", (int)rank, SBIT_MAX_RANK);
    }
    for (int32_t i = 0; i < rank; i++) {
        if (dims[i] < 0) {
            return sbit__fail(error, SBIT_ERR_SHAPE, NULL, "dimension %d would be %lld", (int)i,
                              (long long)dims[i]);
        }
    }
    if (!sbit__dims_count(dims, (size_t)rank, &count) || !sbit__exec_bytes(dtype, count, bytes)) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "a %s tensor is too large",
                          sbit_dtype_name((int32_t)dtype));
    }
    memset(tensor, 0, sizeof *tensor);
    tensor->dtype = dtype;
    tensor->rank = rank;
    for (int32_t i = 0; i < rank; i++) {
        tensor->dims[i] = dims[i];
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__dynamic_tensor(sbit_session *session, sbit__dynamic *dynamic,
                                          sbit_dtype dtype, int32_t rank, const int64_t *dims,
                                          sbit_tensor *tensor, sbit_error *error)
{
    sbit_tensor shaped;
    size_t bytes = 0;
    SBIT__TRY(sbit__exec_shape(dtype, rank, dims, &shaped, &bytes, error));
    SBIT__TRY(sbit__dynamic_reserve(session, dynamic, bytes > 0 ? bytes : 1, error));
    shaped.data = dynamic->main;
    *tensor = shaped;
    return SBIT_OK;
}

static sbit_status sbit__text_copy(sbit_session *session, sbit__exec_block **list,
                                   const sbit_str *from, sbit_str *to, int64_t count,
                                   sbit_error *error)
{
    size_t bytes = 0;
    char *text = NULL;
    for (int64_t i = 0; i < count; i++) {
        bytes += from[i].size + 1;
    }
    text = (char *)sbit__block_add(session, list, bytes);
    if (text == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    for (int64_t i = 0; i < count; i++) {
        if (from[i].size > 0) {
            memcpy(text, from[i].data, from[i].size);
        }
        text[from[i].size] = '\0';
        to[i].size = from[i].size;
        to[i].data = text;
        text += to[i].size + 1;
    }
    return SBIT_OK;
}

static sbit_status sbit__tensor_copy_to(sbit_session *session, sbit__exec_block **list,
                                        const sbit_tensor *tensor, sbit_tensor *out,
                                        sbit_error *error)
{
    sbit_tensor copy;
    size_t bytes = 0;
    SBIT__TRY(sbit__exec_shape(tensor->dtype, tensor->rank, tensor->dims, &copy, &bytes, error));
    copy.data = sbit__block_add(session, list, bytes);
    if (copy.data == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    if (tensor->dtype == SBIT_STRING) {
        SBIT__TRY(sbit__text_copy(session, list, (const sbit_str *)tensor->data,
                                  (sbit_str *)copy.data, sbit_tensor_count(tensor), error));
    } else if (bytes > 0) {
        memcpy(copy.data, tensor->data, bytes);
    }
    *out = copy;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__value_copy(sbit_session *session, sbit__exec_block **list,
                                      const sbit_value *value, sbit_value *out, sbit_error *error)
{
    sbit_value copy;
    size_t bytes = 0;
    memset(&copy, 0, sizeof copy);
    copy.kind = value->kind;
    if (value->kind == SBIT_KIND_TENSOR) {
        SBIT__TRY(sbit__tensor_copy_to(session, list, &value->tensor, &copy.tensor, error));
        *out = copy;
        return SBIT_OK;
    }
    if (value->kind != SBIT_KIND_SEQUENCE && value->kind != SBIT_KIND_OPTIONAL) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, NULL,
                          "only tensors, sequences and optionals can be computed with");
    }
    if (!sbit__mul_size((size_t)value->item_count, sizeof(sbit_value), &bytes)) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "a sequence is too long");
    }
    copy.items = (sbit_value *)sbit__block_add(session, list, bytes);
    if (copy.items == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    copy.item_count = value->item_count;
    for (int64_t i = 0; i < value->item_count; i++) {
        SBIT__TRY(sbit__value_copy(session, list, &value->items[i], &copy.items[i], error));
    }
    *out = copy;
    return SBIT_OK;
}

/* >>values */

SBIT__FN sbit__exec_value *sbit__exec_own(sbit_session *session, uint32_t idx)
{
    sbit__exec_value *value = session->values[idx];
    if (value == NULL || value->shared) {
        value = (sbit__exec_value *)sbit__arena_alloc(&session->arena, sizeof *value);
        if (value != NULL) {
            value->root = value;
            value->type = sbit__type_unknown();
            session->values[idx] = value;
        }
    }
    return value;
}

SBIT__FN sbit__place sbit__exec_place(const sbit_session *session, uint32_t idx)
{
    return session->values[idx] != NULL ? session->values[idx]->place : SBIT__PLACE_NONE;
}

SBIT__FN sbit_type sbit__type_of_value(const sbit_value *value, const sbit_type *declared)
{
    sbit_type type = sbit__type_unknown();
    const sbit_value *item = value;
    if (value->kind == SBIT_KIND_TENSOR) {
        return sbit__type_of_tensor(&value->tensor);
    }
    type.kind = value->kind;
    type.of = declared->of;
    while (item->kind != SBIT_KIND_TENSOR && item->item_count > 0) {
        item = &item->items[0];
        if (item->kind != SBIT_KIND_TENSOR) {
            type.of = item->kind;
        }
    }
    type.dtype = item->kind == SBIT_KIND_TENSOR ? item->tensor.dtype : declared->dtype;
    return type;
}

SBIT__FN bool sbit__exec_owns(const sbit_session *s, uint32_t idx)
{
    const sbit__exec_value *value = s->values[idx];
    while (value->root != value) {
        value = value->root;
    }
    return value->place != SBIT__PLACE_INPUT && value->place != SBIT__PLACE_NONE;
}

SBIT__FN void *sbit__block_data(sbit__exec_block *block)
{
    return (char *)block + SBIT__EXEC_ALIGN;
}

SBIT__FN int64_t sbit__type_elements(const sbit_type *type)
{
    int64_t dims[SBIT_MAX_RANK], count = INT64_MAX;
    for (int32_t i = 0; i < type->rank; i++) {
        dims[i] = type->dims[i].value;
    }
    return sbit__dims_count(dims, (size_t)type->rank, &count) ? count : INT64_MAX;
}

SBIT__FN void sbit__tensor_of_type(const sbit_type *type, sbit_tensor *out)
{
    memset(out, 0, sizeof *out);
    out->dtype = type->dtype;
    out->rank = type->rank;
    for (int32_t d = 0; d < type->rank; d++) {
        out->dims[d] = type->dims[d].value;
    }
}

SBIT__FN sbit_type sbit__session_expected(const sbit_session *s, const sbit_value_info *input)
{
    sbit_type type = input->type;
    if (s->parent == NULL) {
        sbit__shape_apply(s->program->desc.shapes, s->program->desc.shape_count, input->id, &type);
    }
    return type;
}

SBIT__FN sbit_status sbit__session_set_type(sbit_session *s, sbit__exec_value *value,
                                            const sbit_type *type, sbit_error *error)
{
    if (value->fed_type == NULL) {
        value->fed_type = (sbit_type *)sbit__arena_alloc(&s->arena, sizeof *type);
    }
    if (value->fed_type == NULL) {
        return sbit__meter_explain(s, sbit__fail_oom(error, sizeof *type), error);
    }
    *value->fed_type = *type;
    value->fed = true;
    return SBIT_OK;
}

/* >>results of bodies */

SBIT__FN sbit__body_result *sbit__body_result_make(sbit_session *session)
{
    sbit__exec_block *own = NULL;
    sbit__body_result *result = (sbit__body_result *)sbit__block_add(session, &own, sizeof *result);
    if (result != NULL) {
        memset(result, 0, sizeof *result);
        result->own = own;
    }
    return result;
}

SBIT__FN void sbit__body_result_free(sbit_session *session, sbit__body_result *result)
{
    sbit__exec_block *own = result->own;
    sbit__block_free_all(session, &result->blocks);
    sbit__block_free_all(session, &own);
}

SBIT__FN void sbit__body_results_free(sbit_session *session, sbit__exec_node *node)
{
    while (node->results != NULL) {
        sbit__body_result *result = node->results;
        node->results = result->next;
        sbit__body_result_free(session, result);
    }
}
