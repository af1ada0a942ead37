/* encodings.c: scales in the files that other tools keep them in. >>encodings
 *
 *   tensorrt  calibration table: "tensor: 3c010a14", the bits of the float32 step of int8 with zero
 *             point 0, largest size / 127; one scale a tensor, activations alone
 *   aimet     JSON: activation_encodings, param_encodings: a list of {bitwidth, is_symmetric,
 * scale, offset, min, max} a tensor; x = (q + offset) * scale, q from 0 on nni       JSON
 * (calibration_config): {layer: {weight_bits, weight_scale, weight_zero_point, input_bits,
 * tracked_min_input, tracked_max_input, and the same of output}} Read again, they fix the scales of
 * the sites that they name and whose settings can say the same; a range (nni, and tensorrt on grids
 * with a zero point) becomes the scale that such a range has.
 */
#include "../core/json_api.h"
#include "quant_private.h"

typedef struct sbit__encodings {
    sbit_quant *quant;
    sbit__writer *writer; /* saving */
    sbit_status status;
    sbit_error *error;
    int64_t taken; /* loading: sites */
} sbit__encodings;

/* >>encodings save */
static void sbit__encodings_put(const char *text, size_t size, void *user)
{
    sbit__encodings *e = (sbit__encodings *)user;
    if (e->status == SBIT_OK) {
        e->status = sbit__writer_put(e->writer, text, size, e->error);
    }
}

/* Whose scales are known: of the root graph, for names are the file's. */
static bool sbit__encodings_has(const sbit__site *site, uint32_t target)
{
    return site->enabled && !sbit__site_is_float8(site) && site->body == 0 &&
           site->target == target && site->scale != NULL && !site->raw;
}

static float sbit__encodings_end(const sbit__site *site, int64_t part, int32_t q)
{
    return (float)(q - site->zero_point[part]) * site->scale[part];
}

/* The step of int8 with zero point 0. */
static float sbit__encodings_step(const sbit__site *site)
{
    const sbit_grid *grid = &site->settings.grid;
    const float low = -sbit__encodings_end(site, 0, grid->qmin);
    const float high = sbit__encodings_end(site, 0, grid->qmax);
    return grid->symmetric && grid->bits == 8 ? site->scale[0] : (low > high ? low : high) / 127.0f;
}

static void sbit__encodings_save_table(sbit__encodings *e)
{
    static const char head[] = "TRT-8601-EntropyCalibration2\n";
    sbit__encodings_put(head, sizeof head - 1, e);
    for (size_t i = 0; i < e->quant->site_count; i++) {
        const sbit__site *site = &e->quant->sites[i];
        char text[16];
        uint32_t bits;
        if (!sbit__encodings_has(site, SBIT_TARGET_ACTIVATION) || sbit__site_parts(site) != 1) {
            continue;
        }
        const float step = sbit__encodings_step(site);
        memcpy(&bits, &step, sizeof bits);
        snprintf(text, sizeof text, ": %08x\n", (unsigned)bits);
        sbit__encodings_put(site->tensor, strlen(site->tensor), e);
        sbit__encodings_put(text, strlen(text), e);
    }
}

static void sbit__encodings_save_side(sbit__encodings *e, sbit_json *json, uint32_t target)
{
    for (size_t i = 0; i < e->quant->site_count; i++) {
        const sbit__site *site = &e->quant->sites[i];
        const sbit_grid *grid = &site->settings.grid;
        if (!sbit__encodings_has(site, target)) {
            continue;
        }
        sbit_json_open(json, site->tensor, '[');
        for (int64_t c = 0; c < sbit__site_parts(site); c++) {
            sbit_json_open(json, NULL, '{');
            sbit_json_int(json, "bitwidth", grid->bits);
            sbit_json_text(json, "dtype", "int");
            sbit_json_text(json, "is_symmetric", grid->symmetric ? "True" : "False");
            sbit_json_number(json, "max", (double)sbit__encodings_end(site, c, grid->qmax));
            sbit_json_number(json, "min", (double)sbit__encodings_end(site, c, grid->qmin));
            sbit_json_int(json, "offset", sbit__site_lowest(site) - site->zero_point[c]);
            sbit_json_number(json, "scale", (double)site->scale[c]);
            sbit_json_close(json, '}');
        }
        sbit_json_close(json, ']');
    }
}

static void sbit__encodings_save_json(sbit__encodings *e)
{
    sbit_json json;
    memset(&json, 0, sizeof json);
    json.put_fn = sbit__encodings_put;
    json.user = e;
    sbit_json_open(&json, NULL, '{');
    sbit_json_open(&json, "activation_encodings", '{');
    sbit__encodings_save_side(e, &json, SBIT_TARGET_ACTIVATION);
    sbit_json_close(&json, '}');
    sbit_json_open(&json, "param_encodings", '{');
    sbit__encodings_save_side(e, &json, SBIT_TARGET_WEIGHT);
    sbit_json_close(&json, '}');
    sbit_json_text(&json, "version", "0.6.1");
    sbit_json_close(&json, '}');
}

static void sbit__encodings_save_range(sbit_json *json, const sbit__site *site, const char *what)
{
    char key[40];
    if (site == NULL || site->scale == NULL || sbit__site_parts(site) != 1) {
        return;
    }
    snprintf(key, sizeof key, "%s_bits", what);
    sbit_json_int(json, key, site->settings.grid.bits);
    const sbit_grid *grid = &site->settings.grid; /* symmetric: the range whose scale this is */
    const double wide = 0.5 * ((double)grid->qmax - (double)grid->qmin) * (double)site->scale[0];
    const double low = (double)sbit__encodings_end(site, 0, grid->qmin);
    const double high = (double)sbit__encodings_end(site, 0, grid->qmax);
    snprintf(key, sizeof key, "tracked_min_%s", what);
    sbit_json_number(json, key, grid->symmetric ? -wide : low);
    snprintf(key, sizeof key, "tracked_max_%s", what);
    sbit_json_number(json, key, grid->symmetric ? wide : high);
}

static void sbit__encodings_save_layer(sbit__encodings *e, sbit_json *json, const sbit__site *site)
{
    const sbit_node_id node = site->uses != NULL ? site->uses->node : site->layer;
    const sbit_node *info = sbit_graph_node(site->graph, node);
    const sbit_value_id out = info->output_count > 0 ? info->outputs[0] : site->value;
    sbit_json_open(json, site->layer_name, '{');
    sbit_json_int(json, "weight_bits", site->settings.grid.bits);
    sbit_json_open(json, "weight_scale", '[');
    for (int64_t c = 0; c < sbit__site_parts(site); c++) {
        sbit_json_number(json, NULL, (double)site->scale[c]);
    }
    sbit_json_close(json, ']');
    sbit_json_open(json, "weight_zero_point", '[');
    for (int64_t c = 0; c < sbit__site_parts(site); c++) {
        sbit_json_int(json, NULL, site->zero_point[c]);
    }
    sbit_json_close(json, ']');
    sbit__encodings_save_range(json, sbit__quant_input_site(e->quant, site->graph, node, 0),
                               "input");
    const sbit__site *y = sbit__site_on(e->quant, site->graph, out, SBIT_TARGET_ACTIVATION);
    sbit__encodings_save_range(json, y != NULL && y->enabled ? y : NULL, "output");
    sbit_json_close(json, '}');
}

static void sbit__encodings_save_layers(sbit__encodings *e)
{
    sbit_json json;
    const char *last = "";
    memset(&json, 0, sizeof json);
    json.put_fn = sbit__encodings_put;
    json.user = e;
    sbit_json_open(&json, NULL, '{');
    for (size_t i = 0; i < e->quant->site_count; i++) {
        const sbit__site *site = &e->quant->sites[i];
        if (sbit__encodings_has(site, SBIT_TARGET_WEIGHT) && !site->captured &&
            !sbit__streq(last, site->layer_name)) {
            sbit__encodings_save_layer(e, &json, site);
            last = site->layer_name; /* the second weight of an LSTM has no place */
        }
    }
    sbit_json_close(&json, '}');
}

/* >>encodings load */

/* Fixes a site's scales: [count], one for all or one for each part; zero points from 0 on. */
static void sbit__encodings_fix(sbit__encodings *e, sbit__site *site, int64_t bits, int64_t count,
                                const float *scale, const int32_t *zero)
{
    sbit__learned l;
    memset(&l, 0, sizeof l);
    l.name = site->tensor;
    l.target = site->target;
    l.dtype = bits > 8 ? SBIT_U16 : SBIT_U8;
    l.bits = (int32_t)bits;
    l.axis = count > 1 ? site->axis : -1;
    l.block = site->block;
    l.count = count;
    l.scale = scale;
    l.zero_point = zero;
    bool fixed = false;
    if (e->status == SBIT_OK) {
        e->status = sbit__learned_fix(e->quant, site, &l, &fixed, e->error);
    }
    if (fixed) {
        site->learned = false; /* a wish like any other: settings may change around it */
        e->taken++;
    }
}

static void sbit__encodings_fix_range(sbit__encodings *e, sbit__site *site, int64_t bits,
                                      double min, double max)
{
    const sbit_grid *grid = &site->settings.grid;
    float scale = 0.0f;
    int32_t zero = 0;
    if (e->status == SBIT_OK) {
        e->status =
            sbit_grid_scale(grid, site->tensor, (float)min, (float)max, &scale, &zero, e->error);
    }
    zero -= sbit__site_lowest(site);
    sbit__encodings_fix(e, site, bits, 1, &scale, &zero);
}

static void sbit__encodings_load_line(sbit__encodings *e, const char *name, size_t size,
                                      uint32_t bits)
{
    float step;
    memcpy(&step, &bits, sizeof step);
    for (size_t i = 0; i < e->quant->site_count; i++) {
        sbit__site *site = &e->quant->sites[i];
        const sbit_grid *grid = &site->settings.grid;
        const int32_t middle = sbit__qparams_zero_point(0.0f, 1.0f, true, grid->qmin, grid->qmax) -
                               sbit__site_lowest(site);
        if (site->target != SBIT_TARGET_ACTIVATION || site->body != 0 ||
            strlen(site->tensor) != size || memcmp(site->tensor, name, size) != 0) {
            continue;
        }
        if (grid->symmetric) {
            sbit__encodings_fix(e, site, 8, 1, &step, &middle);
        } else {
            const double most = 127.0 * (double)step;
            sbit__encodings_fix_range(e, site, 8, -most, most);
        }
    }
}

/* Lines "name: 8 hexadecimal digits"; names may hold ": ". */
static void sbit__encodings_load_table(sbit__encodings *e, const char *text, size_t size)
{
    for (size_t at = 0; at < size;) {
        const char *line = text + at;
        size_t length = 0;
        uint32_t bits = 0;
        bool hex = true;
        while (at + length < size && line[length] != '\n') {
            length++;
        }
        at += length + 1;
        length -= length > 0 && line[length - 1] == '\r' ? 1 : 0;
        for (size_t i = length > 10 ? length - 8 : length; i < length; i++) {
            static const char digits[] = "0123456789abcdef";
            const char c = (char)(line[i] >= 'A' && line[i] <= 'F' ? line[i] + 32 : line[i]);
            const char *digit = c != '\0' ? strchr(digits, c) : NULL;
            hex = hex && digit != NULL;
            bits = bits << 4 | (digit != NULL ? (uint32_t)(digit - digits) : 0u);
        }
        if (length > 10 && hex && line[length - 9] == ' ' && line[length - 10] == ':') {
            sbit__encodings_load_line(e, line, length - 10, bits);
        }
    }
}

static const sbit_yaml *sbit__encodings_find(const sbit_yaml *map, const char *key)
{
    for (size_t i = 0; map != NULL && map->kind == SBIT_YAML_MAP && i < map->count; i++) {
        if (sbit__streq(map->items[i].key, key)) {
            return &map->items[i];
        }
    }
    return NULL;
}

static double sbit__encodings_number(const sbit_yaml *value, double otherwise)
{
    double number = otherwise;
    const bool ok =
        value != NULL && value->kind == SBIT_YAML_SCALAR && sbit__parse_f64(value->text, &number);
    return ok ? number : otherwise;
}

/* Item i of a list of numbers, or the number itself. */
static double sbit__encodings_item(const sbit_yaml *value, size_t i, double otherwise)
{
    const bool list = value != NULL && value->kind == SBIT_YAML_LIST;
    return sbit__encodings_number(list ? (i < value->count ? &value->items[i] : NULL) : value,
                                  otherwise);
}

/* Scales and zero points (from 0 on) of one tensor: item(i) of `count` gives them. */
typedef void (*sbit__encodings_item_fn)(const sbit_yaml *value, const sbit__site *site, size_t i,
                                        double *scale, double *zero);

static void sbit__encodings_load_items(sbit__encodings *e, sbit__site *site, const sbit_yaml *value,
                                       size_t count, int64_t bits, sbit__encodings_item_fn item)
{
    const sbit_allocator *a = sbit_ctx_allocator(e->quant->ctx);
    const size_t bytes = count * (sizeof(float) + sizeof(int32_t));
    if (count == 0 || e->status != SBIT_OK) {
        return;
    }
    float *scales = (float *)sbit__alloc(a, bytes);
    if (scales == NULL) {
        e->status = sbit__fail_oom(e->error, bytes);
        return;
    }
    int32_t *zeros = (int32_t *)(void *)(scales + count);
    for (size_t i = 0; i < count; i++) {
        double scale = 0.0, zero = 0.0;
        item(value, site, i, &scale, &zero);
        scales[i] = (float)scale;
        zeros[i] = zero >= 0.0 && zero <= 65535.0 ? (int32_t)zero : -1; /* fits nowhere */
    }
    sbit__encodings_fix(e, site, bits, (int64_t)count, scales, zeros);
    sbit__free(a, scales, bytes);
}

static void sbit__encodings_item_json(const sbit_yaml *value, const sbit__site *site, size_t i,
                                      double *scale, double *zero)
{
    (void)site;
    *scale = sbit__encodings_number(sbit__encodings_find(&value->items[i], "scale"), 0.0);
    *zero = -sbit__encodings_number(sbit__encodings_find(&value->items[i], "offset"), 1.0);
}

static void sbit__encodings_item_layer(const sbit_yaml *value, const sbit__site *site, size_t i,
                                       double *scale, double *zero)
{
    *scale = sbit__encodings_item(sbit__encodings_find(value, "weight_scale"), i, 0.0);
    *zero = sbit__encodings_item(sbit__encodings_find(value, "weight_zero_point"), i, 0.0) -
            (double)sbit__site_lowest(site);
}

static void sbit__encodings_load_json(sbit__encodings *e, const sbit_yaml *root)
{
    for (size_t i = 0; i < e->quant->site_count; i++) {
        sbit__site *site = &e->quant->sites[i];
        const bool weight = site->target == SBIT_TARGET_WEIGHT;
        const sbit_yaml *list = sbit__encodings_find(
            sbit__encodings_find(root, weight ? "param_encodings" : "activation_encodings"),
            site->tensor);
        if (site->body == 0 && list != NULL && list->kind == SBIT_YAML_LIST && list->count > 0) {
            const sbit_yaml *bits = sbit__encodings_find(&list->items[0], "bitwidth");
            sbit__encodings_load_items(e, site, list, list->count,
                                       (int64_t)sbit__encodings_number(bits, 8.0),
                                       sbit__encodings_item_json);
        }
    }
}

static void sbit__encodings_load_range(sbit__encodings *e, sbit__site *site, const sbit_yaml *layer,
                                       const char *what)
{
    char bits[40], min[40], max[40];
    snprintf(bits, sizeof bits, "%s_bits", what);
    snprintf(min, sizeof min, "tracked_min_%s", what);
    snprintf(max, sizeof max, "tracked_max_%s", what);
    const sbit_yaml *low = sbit__encodings_find(layer, min),
                    *high = sbit__encodings_find(layer, max);
    if (site != NULL && low != NULL && high != NULL) {
        sbit__encodings_fix_range(
            e, site, (int64_t)sbit__encodings_number(sbit__encodings_find(layer, bits), 8.0),
            sbit__encodings_number(low, 0.0), sbit__encodings_number(high, 0.0));
    }
}

static void sbit__encodings_load_layers(sbit__encodings *e, const sbit_yaml *root)
{
    for (size_t i = 0; i < e->quant->site_count; i++) {
        sbit__site *site = &e->quant->sites[i];
        const sbit_yaml *layer = sbit__encodings_find(root, site->layer_name);
        if (layer == NULL || site->body != 0 || site->captured ||
            site->target != SBIT_TARGET_WEIGHT || site->uses == NULL) {
            continue;
        }
        const sbit_node *node = sbit_graph_node(site->graph, site->uses->node);
        const sbit_yaml *scales = sbit__encodings_find(layer, "weight_scale");
        const size_t count = scales == NULL                   ? 0
                             : scales->kind == SBIT_YAML_LIST ? scales->count
                                                              : 1;
        const double bits = sbit__encodings_number(sbit__encodings_find(layer, "weight_bits"), 8.0);
        sbit__encodings_load_items(e, site, layer, count, (int64_t)bits,
                                   sbit__encodings_item_layer);
        sbit__encodings_load_range(e, sbit__quant_input_site(e->quant, site->graph, node->id, 0),
                                   layer, "input");
        sbit__encodings_load_range(
            e,
            node->output_count > 0
                ? sbit__site_on(e->quant, site->graph, node->outputs[0], SBIT_TARGET_ACTIVATION)
                : NULL,
            layer, "output");
    }
}

static void sbit__encodings_load(sbit__encodings *e, const char *text, size_t size)
{
    sbit_yaml_doc *doc = NULL;
    if (size > 4 && memcmp(text, "TRT-", 4) == 0) {
        sbit__encodings_load_table(e, text, size);
        return;
    }
    e->status = sbit_yaml_parse(e->quant->ctx, text, size, &doc, e->error);
    if (e->status == SBIT_OK) {
        const sbit_yaml *root = sbit_yaml_root(doc);
        if (sbit__encodings_find(root, "activation_encodings") != NULL ||
            sbit__encodings_find(root, "param_encodings") != NULL) {
            sbit__encodings_load_json(e, root);
        } else {
            sbit__encodings_load_layers(e, root);
        }
        sbit_yaml_destroy(doc);
    }
}

/* >>encodings public */
typedef struct sbit__encodings_row {
    const char *name;
    void (*save)(sbit__encodings *e);
} sbit__encodings_row;

static const sbit__encodings_row sbit__encodings_rows[] = {
    {"tensorrt", sbit__encodings_save_table},
    {"aimet", sbit__encodings_save_json},
    {"nni", sbit__encodings_save_layers},
};

SPARSEBIT_API sbit_status sbit_quant_save_encodings(sbit_quant *quant, const char *path,
                                                    const char *format, sbit_error *error)
{
    const sbit__encodings_row *row = NULL;
    sbit__encodings e;
    sbit__writer writer;
    for (size_t i = 0; i < SBIT__COUNT_OF(sbit__encodings_rows); i++) {
        row = sbit__streq(sbit__encodings_rows[i].name, format) ? &sbit__encodings_rows[i] : row;
    }
    if (row == NULL) {
        return sbit__fail(error, SBIT_ERR_NOT_FOUND, format,
                          "unknown encodings '%s'; known: tensorrt, aimet, nni", format);
    }
    if (!quant->calibrated) {
        return sbit__fail(error, SBIT_ERR_STATE, NULL, "call sbit_quant_calc_qparams first");
    }
    memset(&e, 0, sizeof e);
    SBIT__TRY(sbit__writer_open(sbit_ctx_allocator(quant->ctx), path, &writer, error));
    e.quant = quant;
    e.writer = &writer;
    e.error = error;
    row->save(&e);
    if (e.status != SBIT_OK) {
        sbit__writer_abort(&writer);
        return e.status;
    }
    return sbit__writer_commit(&writer, error);
}

SPARSEBIT_API sbit_status sbit_quant_load_encodings(sbit_quant *quant, const char *path,
                                                    int64_t *taken, sbit_error *error)
{
    sbit__encodings e;
    sbit__file file;
    memset(&e, 0, sizeof e);
    SBIT__TRY(sbit__file_open(sbit_ctx_allocator(quant->ctx), path, &file, error));
    e.quant = quant;
    e.error = error;
    sbit__encodings_load(&e, (const char *)file.data, file.size);
    sbit__file_close(&file);
    *taken = e.taken;
    quant->calibrated = quant->calibrated && e.taken == 0;
    return e.status;
}
