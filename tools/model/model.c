/* model/model.c: loading a model, its inputs and metadata, sessions, elements of tensors.
 */
#include "model/model.h"

#include <float.h>  /* DBL_MAX */
#include <stdlib.h> /* malloc */

/* ---- context */

static void cli_log(sbit_log_level level, const char *message, void *user)
{
    (void)user;
    if (level == SBIT_LOG_WARNING) {
        cli_warn("%s", message);
    } else {
        cli_note("%s", message);
    }
}

static bool cli_show_progress(const char *what, int64_t done, int64_t total, void *user)
{
    (void)user;
    cli_progress(what, done, total);
    return true;
}

static int cli_find_isa(const cli_args *args, sbit_isa *out)
{
    const char *words[SBIT_ISA_COUNT];
    char have[160] = "";
    size_t count = 0;
    for (int i = 1; i < SBIT_ISA_COUNT; i++) {
        const sbit_isa isa = (sbit_isa)i;
        words[count++] = sbit_isa_name(isa);
        if (sbit_isa_available(isa)) {
            const size_t size = strlen(have);
            snprintf(have + size, sizeof have - size, "%s%s", size > 0 ? ", " : "",
                     sbit_isa_name(isa));
        }
        if (strcmp(args->isa, sbit_isa_name(isa)) == 0) {
            *out = isa;
            return sbit_isa_available(isa)
                       ? CLI_OK
                       : cli_fail("--isa %s is not available on this machine; available: %s",
                                  args->isa, have);
        }
    }
    const char *near = sbit_word_nearest(args->isa, words, count);
    return cli_fail_usage(args->command, "unknown instruction set '%s'%s%s%s; available: %s",
                          args->isa, near != NULL ? ", did you mean '" : "",
                          near != NULL ? near : "", near != NULL ? "'?" : "", have);
}

int cli_context_create(const cli_args *args, int32_t otherwise, sbit_ctx **out)
{
    sbit_ctx_desc desc;
    sbit_error error;
    memset(&desc, 0, sizeof desc);
    memset(&error, 0, sizeof error);
    desc.logger.log_fn = cli_log;
    desc.progress.progress_fn = cli_show_progress;
    desc.threads = args->threads > 0 ? (int32_t)args->threads : otherwise;
    if (args->isa != NULL) {
        CLI_TRY(cli_find_isa(args, &desc.force_isa));
    }
    if (sbit_ctx_create(&desc, out, &error) != SBIT_OK) {
        return cli_fail_library(&error, "cannot start");
    }
    return CLI_OK;
}

/* ---- loading */

/* Adds the sizes of the files that hold external weights; each file once. */
static uint64_t cli_external_bytes(sbit_onnx_doc *doc)
{
    const sbit_onnx_graph *graph = sbit_onnx_doc_model(doc)->graph;
    const char *seen[16];
    size_t count = 0;
    uint64_t total = 0;
    for (size_t i = 0; graph != NULL && i < graph->initializer_count; i++) {
        const sbit_onnx_tensor *tensor = &graph->initializer[i];
        for (size_t k = 0; k < tensor->external_data_count; k++) {
            const sbit_onnx_string_entry *entry = &tensor->external_data[k];
            bool known = strcmp(entry->key.data != NULL ? entry->key.data : "", "location") != 0;
            for (size_t s = 0; s < count && !known; s++) {
                known = strcmp(seen[s], entry->value.data) == 0;
            }
            if (known || entry->value.data == NULL || count == CLI_COUNT_OF(seen)) {
                continue;
            }
            seen[count++] = entry->value.data;
            char *path = cli_path_join(sbit_onnx_doc_folder(doc), entry->value.data);
            uint64_t bytes = 0;
            total += path != NULL && cli_file_bytes(path, &bytes) == CLI_OK ? bytes : 0;
            free(path);
        }
    }
    return total;
}

static int cli_collect_inputs(cli_model *model)
{
    for (size_t i = 0; i < sbit_graph_input_count(model->graph); i++) {
        const sbit_value_id id = sbit_graph_input(model->graph, i);
        const sbit_value_info *info = sbit_graph_value(model->graph, id);
        if (info->is_constant || info->has_default) {
            continue;
        }
        if (model->input_count == CLI_MAX_INPUTS) {
            return cli_fail(
                "'%s' has more than %d inputs: the tool cannot feed it; use the library",
                model->path, CLI_MAX_INPUTS);
        }
        model->inputs[model->input_count++] = id;
    }
    return CLI_OK;
}

static int cli_model_read(sbit_ctx *ctx, const char *path, cli_model *out)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    CLI_TRY(cli_file_bytes(path, &out->file_bytes));
    if (sbit_onnx_load(path, NULL, &out->doc, &error) != SBIT_OK) {
        return cli_fail_library(&error, "cannot read model '%s'", path);
    }
    if (sbit_onnx_doc_model(out->doc) == NULL || sbit_onnx_doc_model(out->doc)->graph == NULL) {
        sbit_onnx_destroy(out->doc);
        return cli_fail("'%s' holds no ONNX model; is it the right file?", path);
    }
    out->file_bytes += cli_external_bytes(out->doc);
    if (sbit_graph_import(ctx, out->doc, &out->graph, &error) != SBIT_OK) {
        out->doc = NULL; /* import took it over */
        return cli_fail_library(&error, "cannot use model '%s'", path);
    }
    if (sbit_infer(out->graph, &error) != SBIT_OK) {
        return cli_fail_library(&error, "model '%s' has shapes that do not fit", path);
    }
    return cli_collect_inputs(out);
}

int cli_model_load(sbit_ctx *ctx, const char *path, cli_model *out)
{
    memset(out, 0, sizeof *out);
    out->ctx = ctx;
    out->path = path;
    const int code = cli_model_read(ctx, path, out);
    if (code != CLI_OK) {
        cli_model_free(out);
    }
    return code;
}

int cli_model_prepare(const cli_args *args, cli_model *model)
{
    sbit_simplify_desc desc;
    sbit_error error;
    memset(&desc, 0, sizeof desc);
    memset(&error, 0, sizeof error);
    desc.fix_defaults = true; /* unless one of them is fed */
    for (size_t i = 0; i < model->input_count; i++) {
        desc.fix_defaults = desc.fix_defaults && !cli_model_input(model, i)->has_default;
    }
    if (!args->as_is && sbit_simplify(model->graph, &desc, NULL, &error) != SBIT_OK) {
        return cli_fail_library(&error, "cannot simplify '%s' (--as-is runs it unchanged)",
                                model->path);
    }
    return CLI_OK;
}

void cli_model_free(cli_model *model)
{
    sbit_graph_destroy(model->graph);
    memset(model, 0, sizeof *model);
}

const sbit_value_info *cli_model_input(const cli_model *model, size_t index)
{
    return sbit_graph_value(model->graph, model->inputs[index]);
}

const char *cli_model_metadata(const cli_model *model, const char *key)
{
    const sbit_onnx_model *source = sbit_onnx_doc_model(model->doc);
    for (size_t i = 0; i < source->metadata_props_count; i++) {
        const sbit_onnx_string_entry *entry = &source->metadata_props[i];
        if (entry->key.data != NULL && strcmp(entry->key.data, key) == 0) {
            return entry->value.data != NULL ? entry->value.data : "";
        }
    }
    return NULL;
}

/* ---- shapes */

const char *cli_type_text(const sbit_graph *graph, const sbit_type *type, char *text, size_t size)
{
    static const char *const kinds[] = {"",    "sequence of ", "optional ",
                                        "map", "sparse ",      "opaque"};
    const char *kind = (size_t)type->kind < CLI_COUNT_OF(kinds) ? kinds[type->kind] : "";
    size_t at = (size_t)snprintf(text, size, "%s%s%s", kind, sbit_dtype_name((int32_t)type->dtype),
                                 type->rank < 0 ? "[?]" : "[");
    for (int32_t i = 0; i < type->rank && at < size; i++) {
        const sbit_dim dim = type->dims[i];
        const char *comma = i > 0 ? "," : "";
        const int wrote =
            dim.symbol == 0 ? snprintf(text + at, size - at, "%s%lld", comma, (long long)dim.value)
                            : snprintf(text + at, size - at, "%s%s", comma,
                                       dim.symbol == SBIT_SYMBOL_ANY
                                           ? "?"
                                           : sbit_graph_symbol_name(graph, dim.symbol));
        at += (size_t)(wrote > 0 ? wrote : 0);
    }
    if (type->rank >= 0 && at < size) {
        snprintf(text + at, size - at, "]");
    }
    return text;
}

bool cli_type_takes(const sbit_graph *graph, const sbit_type *type, const sbit_tensor *tensor,
                    char *why, size_t size)
{
    char have[200], want[200];
    const char *what = NULL;
    sbit_tensor_describe(tensor, have, sizeof have);
    cli_type_text(graph, type, want, sizeof want);
    if (type->kind != SBIT_KIND_TENSOR) {
        what = "only tensors can be fed";
    } else if (type->dtype != SBIT_UNDEFINED && type->dtype != tensor->dtype) {
        what = "the element types differ";
    } else if (type->rank >= 0 && type->rank != tensor->rank) {
        what = "the numbers of dims differ";
    }
    for (int32_t i = 0; what == NULL && i < type->rank; i++) {
        if (type->dims[i].symbol == 0 && type->dims[i].value != tensor->dims[i]) {
            what = "a fixed dim differs";
        }
    }
    if (what != NULL) {
        snprintf(why, size, "the data is %s, the model wants %s: %s", have, want, what);
    }
    return what == NULL;
}

/* The input that "NAME=..." names, or the only one. Gives input_count when there is none. An input
 * with a default that is named joins those that are fed. */
static size_t cli_named_input(cli_model *model, const char *name, size_t name_size)
{
    for (size_t i = 0; i < model->input_count; i++) {
        const char *have = cli_model_input(model, i)->name;
        if (strlen(have) == name_size && strncmp(have, name, name_size) == 0) {
            return i;
        }
    }
    for (size_t i = 0; i < sbit_graph_input_count(model->graph); i++) {
        const sbit_value_id id = sbit_graph_input(model->graph, i);
        const sbit_value_info *info = sbit_graph_value(model->graph, id);
        if (info->has_default && strlen(info->name) == name_size &&
            strncmp(info->name, name, name_size) == 0 && model->input_count < CLI_MAX_INPUTS) {
            model->inputs[model->input_count] = id;
            return model->input_count++;
        }
    }
    return name_size == 0 && model->input_count == 1 ? 0 : model->input_count;
}

static int cli_fail_input_name(const cli_model *model, const char *option, const char *text)
{
    char names[600] = "";
    for (size_t i = 0; i < model->input_count; i++) {
        const size_t at = strlen(names);
        snprintf(names + at, sizeof names - at, "%s%s", i > 0 ? ", " : "",
                 cli_model_input(model, i)->name);
    }
    return cli_fail("%s '%s' names no input of '%s'; its inputs are: %s", option, text, model->path,
                    names);
}

int cli_input_index(cli_model *model, const char *option, const char *text, size_t *index,
                    const char **value)
{
    size_t name_size = 0;
    cli_split_pair(text, &name_size, value);
    *index = cli_named_input(model, text, name_size);
    return *index < model->input_count ? CLI_OK : cli_fail_input_name(model, option, text);
}

static int cli_apply_shape(cli_model *model, const char *text)
{
    const char *value = NULL;
    size_t index = 0;
    sbit_tensor wanted;
    char why[600];
    memset(&wanted, 0, sizeof wanted);
    CLI_TRY(cli_input_index(model, "--shape", text, &index, &value));
    if (!cli_parse_dims(value, wanted.dims, &wanted.rank)) {
        return cli_fail("--shape '%s': dims are wanted, such as NAME=1x3x224x224", text);
    }
    sbit_type type = cli_model_input(model, index)->type;
    wanted.dtype = type.dtype;
    if (!cli_type_takes(model->graph, &type, &wanted, why, sizeof why)) {
        return cli_fail("--shape '%s': %s", text, why);
    }
    type.rank = wanted.rank;
    for (int32_t i = 0; i < wanted.rank; i++) {
        type.dims[i].symbol = 0;
        type.dims[i].value = wanted.dims[i];
    }
    sbit_graph_set_type(model->graph, model->inputs[index], &type);
    return CLI_OK;
}

/* One symbol has one value: what --shape says for one input holds for all; what it says of none
 * becomes 1 if `close_rest`. */
static void cli_set_symbols(cli_model *model, const sbit_type *declared, bool close_rest)
{
    for (size_t i = 0; i < model->input_count; i++) {
        sbit_type type = cli_model_input(model, i)->type;
        for (int32_t d = 0; d < type.rank; d++) {
            const uint32_t symbol = type.dims[d].symbol;
            if (symbol == 0) {
                continue;
            }
            if (close_rest) {
                type.dims[d].symbol = 0;
                type.dims[d].value = 1;
            }
            for (size_t k = 0; k < model->input_count && symbol != SBIT_SYMBOL_ANY; k++) {
                const sbit_type *other = &cli_model_input(model, k)->type;
                for (int32_t e = 0; e < other->rank && e < declared[k].rank; e++) {
                    if (declared[k].dims[e].symbol == symbol && other->dims[e].symbol == 0) {
                        type.dims[d].symbol = 0;
                        type.dims[d].value = other->dims[e].value;
                    }
                }
            }
        }
        sbit_graph_set_type(model->graph, model->inputs[i], &type);
    }
}

int cli_model_apply_shapes(cli_model *model, const cli_list *shapes, bool close_rest)
{
    sbit_type declared[CLI_MAX_INPUTS];
    sbit_error error;
    memset(&error, 0, sizeof error);
    for (size_t i = 0; i < model->input_count; i++) {
        declared[i] = cli_model_input(model, i)->type;
    }
    for (size_t i = 0; i < shapes->count; i++) {
        CLI_TRY(cli_apply_shape(model, shapes->items[i]));
    }
    for (size_t i = 0; i < model->input_count; i++) {
        const sbit_value_info *info = cli_model_input(model, i);
        if (info->type.rank < 0 && close_rest) {
            return cli_fail("input '%s' has no declared shape; give it: --shape %s=1x3x224x224",
                            info->name, info->name);
        }
    }
    cli_set_symbols(model, declared, close_rest);
    if (sbit_infer(model->graph, &error) != SBIT_OK) {
        return cli_fail_library(&error, "'%s' does not work with these input shapes", model->path);
    }
    return CLI_OK;
}

int cli_model_open_dims(const cli_model *model, cli_names *out)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < model->input_count; i++) {
        const sbit_type *type = &cli_model_input(model, i)->type;
        for (int32_t d = 0; d < type->rank; d++) {
            const uint32_t symbol = type->dims[d].symbol;
            const char *name =
                symbol == SBIT_SYMBOL_ANY ? "?" : sbit_graph_symbol_name(model->graph, symbol);
            bool known = symbol == 0;
            for (size_t k = 0; k < out->count && !known; k++) {
                known = strcmp(out->items[k], name) == 0;
            }
            if (!known) {
                CLI_TRY(cli_names_add(out, name, strlen(name)));
            }
        }
    }
    return CLI_OK;
}

const char *cli_node_name(const sbit_graph *graph, const sbit_node *node)
{
    if (node->name[0] != '\0' || node->output_count == 0 || node->outputs[0].idx == 0) {
        return node->name;
    }
    return sbit_graph_value(graph, node->outputs[0])->name;
}

/* ---- sessions and tensors */

int cli_session_create(sbit_graph *graph, const sbit_session_desc *desc, const char *path,
                       sbit_session **out)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    if (sbit_session_create(graph, desc, out, &error) != SBIT_OK) {
        return cli_fail_library(&error, "'%s' cannot run", path);
    }
    return CLI_OK;
}

static void cli_store_int(void *at, size_t bytes, uint32_t value)
{
    if (bytes == 1) {
        *(uint8_t *)at = (uint8_t)value;
    } else if (bytes == 2) {
        *(uint16_t *)at = (uint16_t)value;
    } else if (bytes == 4) {
        *(uint32_t *)at = value;
    } else if (bytes == 8) {
        *(uint64_t *)at = value;
    }
}

/* Floats from a normal distribution, bytes 0..255, other types 0 or 1 (safe as indices). */
static void cli_random_fill(sbit_tensor *tensor, sbit_rng *rng)
{
    const int64_t count = sbit_tensor_count(tensor);
    const size_t bytes = sbit_tensor_bytes(tensor) / (size_t)(count > 0 ? count : 1);
    for (int64_t i = 0; i < count; i++) {
        if (tensor->dtype == SBIT_F32) {
            ((float *)tensor->data)[i] = sbit_rng_normal(rng);
        } else if (tensor->dtype == SBIT_F64) {
            ((double *)tensor->data)[i] = (double)sbit_rng_normal(rng);
        } else if (tensor->dtype == SBIT_F16) {
            ((uint16_t *)tensor->data)[i] = sbit_f32_to_f16(sbit_rng_normal(rng));
        } else if (tensor->dtype == SBIT_BF16) {
            ((uint16_t *)tensor->data)[i] = sbit_f32_to_bf16(sbit_rng_normal(rng));
        } else {
            const uint32_t bound = tensor->dtype == SBIT_U8 ? 256 : 2;
            cli_store_int((char *)tensor->data + (size_t)i * bytes, bytes,
                          sbit_rng_below(rng, bound));
        }
    }
}

int cli_random_tensor(sbit_ctx *ctx, const sbit_value_info *info, sbit_rng *rng, sbit_tensor *out)
{
    sbit_error error;
    int64_t dims[SBIT_MAX_RANK];
    memset(&error, 0, sizeof error);
    if (info->type.kind != SBIT_KIND_TENSOR || info->type.dtype == SBIT_STRING ||
        info->type.dtype == SBIT_UNDEFINED) {
        return cli_fail("input '%s' is no tensor of numbers: random data cannot be made for it",
                        info->name);
    }
    for (int32_t i = 0; i < info->type.rank; i++) {
        dims[i] = info->type.dims[i].value;
    }
    if (sbit_tensor_alloc(ctx, info->type.dtype, info->type.rank, dims, out, &error) != SBIT_OK) {
        return cli_fail_library(&error, "input '%s'", info->name);
    }
    cli_random_fill(out, rng);
    return CLI_OK;
}

int cli_model_share(const cli_model *model, const cli_args *args, const char *flag, const char *text,
                    const sbit_graph_cost *cost, double *share)
{
    char *end = NULL;
    const double number = strtod(text, &end);
    double unit = 1.0;
    const bool is_number = number > 0.0 && number <= DBL_MAX; /* "inf" is one to strtod */
    if (strcmp(end, "x") == 0 && cost == NULL && is_number) {
        *share = number;
        return CLI_OK;
    }
    if (strcmp(end, "x") == 0) {
        unit = (double)model->file_bytes;
        end++;
    } else {
        unit = strchr("kK", *end) != NULL && *end != '\0'   ? 1e3
               : strchr("mM", *end) != NULL && *end != '\0' ? 1e6
                                                            : 1.0;
        end += unit > 1.0 ? 1 : 0;
        end += *end == 'B' || *end == 'b' ? 1 : 0;
    }
    if (cost == NULL || *end != '\0' || !is_number) {
        return cli_fail_usage(args->command, "%s '%s': a share such as 0.5x%s is wanted", flag, text,
                              cost != NULL ? ", or a size such as 1MB," : "");
    }
    const double rest = (double)model->file_bytes - (double)cost->weight_bytes;
    const double bytes = number * unit - (rest > 0.0 ? rest : 0.0);
    *share = bytes > 0.0 ? bytes / (double)cost->weight_bytes : 1e-9;
    return CLI_OK;
}
