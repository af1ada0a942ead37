/* test_conformance.c: runs the ONNX project's backend tests and compares with their outputs.
 *
 *     test_conformance [part]     only the tests whose name contains `part`
 *
 * For each folder with a model.onnx: load, create a session, and for each test_data_set_* feed
 * input_*.pb, run, compare with output_*.pb (floats: rtol 1e-3, atol 1e-5; 16-bit floats: half the
 * bits of their mantissa; the rest exactly). Outcomes: pass, fail, unsupported (a node that
 * sbit_graph_unsupported lists). All failures and what is missing go to build/conformance.txt.
 * The program fails if a test does not pass that conformance_known.txt does not list, or if a
 * listed one passes, or gives another type or shape. Each test runs in a process of its own, so
 * that a crash is one failure; SPARSEBIT_NO_FORK=1 runs all in this one. SPARSEBIT_BACKEND is the
 * folder of the data (default: build/onnx-backend).
 */
#include "../sparsebit.h"
#define SBIT_TEST_NO_MAIN
#include "test.h"
#include "backend_values.h"

#include <dirent.h>   /* opendir: the folders of the tests */
#include <signal.h>   /* SIGALRM */
#include <sys/wait.h> /* waitpid */
#include <unistd.h>   /* fork, pipe, alarm */

#define SECONDS_PER_TEST 60
#define MAX_TESTS 4000

typedef enum outcome_kind {
    PASS,
    FAIL,
    UNSUPPORTED,
    RANDOM /* other numbers of the right type, shape and distribution */
} outcome_kind;

typedef struct outcome {
    outcome_kind kind;
    char reason[600];
} outcome;

static outcome result(outcome_kind kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static outcome result(outcome_kind kind, const char *format, ...)
{
    outcome out;
    va_list args;
    out.kind = kind;
    va_start(args, format);
    vsnprintf(out.reason, sizeof out.reason, format, args);
    va_end(args);
    return out;
}

/* ---- comparing */

static double number_at(const sbit_tensor *tensor, int64_t i)
{
    const int bits = sbit_dtype_bits((int32_t)tensor->dtype);
    const uint8_t *bytes = (const uint8_t *)tensor->data;
    switch ((int)tensor->dtype) {
    case SBIT_F32:
        return (double)((const float *)tensor->data)[i];
    case SBIT_F64:
        return ((const double *)tensor->data)[i];
    case SBIT_F16:
        return (double)sbit_f16_to_f32(((const uint16_t *)tensor->data)[i]);
    case SBIT_BF16:
        return (double)sbit_bf16_to_f32(((const uint16_t *)tensor->data)[i]);
    case SBIT_I32:
        return (double)((const int32_t *)tensor->data)[i];
    case SBIT_I64:
        return (double)((const int64_t *)tensor->data)[i];
    default: /* shown as bits */
        return bits < 8 ? (bytes[i * bits / 8] >> (i * bits % 8)) & ((1 << bits) - 1) : bytes[i];
    }
}

static double relative_tolerance(sbit_dtype dtype)
{
    return dtype == SBIT_F32 || dtype == SBIT_F64 ? 1e-3
           : dtype == SBIT_F16                    ? 4e-3
           : dtype == SBIT_BF16                   ? 2e-2
                                                  : -1.0;
}

static bool float8_is_nan(sbit_dtype dtype, unsigned code)
{
    return dtype == SBIT_F8E4M3FN ? (code & 0x7fu) == 0x7fu
           : dtype == SBIT_F8E5M2 ? (code & 0x7fu) > 0x7cu
                                  : false;
}

static bool same_element(const sbit_tensor *a, const sbit_tensor *b, int64_t i)
{
    const double rtol = relative_tolerance(a->dtype);
    const int bits = sbit_dtype_bits((int32_t)a->dtype);
    if (a->dtype == SBIT_STRING) {
        const sbit_str s = ((const sbit_str *)a->data)[i], t = ((const sbit_str *)b->data)[i];
        return s.size == t.size && (s.size == 0 || memcmp(s.data, t.data, s.size) == 0);
    }
    if (rtol >= 0.0) {
        const double x = number_at(a, i), y = number_at(b, i);
        return x == y || (isnan(x) && isnan(y)) ||
               (!isinf(x) && !isinf(y) && fabs(x - y) <= 1e-5 + rtol * fabs(y));
    }
    if (bits >= 8) {
        const size_t each = (size_t)bits / 8;
        const char *x = (const char *)a->data + (size_t)i * each;
        const char *y = (const char *)b->data + (size_t)i * each;
        return memcmp(x, y, each) == 0 || (float8_is_nan(a->dtype, (unsigned char)*x) &&
                                           float8_is_nan(a->dtype, (unsigned char)*y));
    }
    return number_at(a, i) == number_at(b, i);
}

static bool same_value(const sbit_value *got, const sbit_value *want, char *why, size_t size)
{
    char a[160], b[160];
    if (got->kind != want->kind || got->item_count != want->item_count) {
        snprintf(why, size, "kind %d with %ld items, wanted %d with %ld", (int)got->kind,
                 (long)got->item_count, (int)want->kind, (long)want->item_count);
        return false;
    }
    for (int64_t i = 0; i < got->item_count; i++) {
        if (!same_value(&got->items[i], &want->items[i], why, size)) {
            return false;
        }
    }
    if (got->kind != SBIT_KIND_TENSOR) {
        return true;
    }
    sbit_tensor_describe(&got->tensor, a, sizeof a);
    sbit_tensor_describe(&want->tensor, b, sizeof b);
    if (strcmp(a, b) != 0) {
        snprintf(why, size, "%s, wanted %s", a, b);
        return false;
    }
    for (int64_t i = 0; i < sbit_tensor_count(&got->tensor); i++) {
        if (!same_element(&got->tensor, &want->tensor, i)) {
            if (got->tensor.dtype == SBIT_STRING) {
                snprintf(why, size, "element %ld is '%s', wanted '%s'", (long)i,
                         ((const sbit_str *)got->tensor.data)[i].data,
                         ((const sbit_str *)want->tensor.data)[i].data);
            } else {
                snprintf(why, size, "%s: element %ld is %.9g, wanted %.9g", a, (long)i,
                         number_at(&got->tensor, i), number_at(&want->tensor, i));
            }
            return false;
        }
    }
    return true;
}

/* ---- one test */

static void keep_first(const sbit_unsupported *item, void *user)
{
    const sbit_node *node = sbit_graph_node(item->graph, item->node);
    char *text = (char *)user;
    if (text[0] == '\0') {
        snprintf(text, 200, "%s%s%s: %s", node->domain, node->domain[0] ? "." : "", node->op_type,
                 item->reason);
    }
}

static outcome run_set(sbit_graph *graph, sbit_session *session, const char *folder, int set)
{
    char path[1200], why[500] = "";
    sbit_error error;
    sbit_value want;
    sbit_onnx_doc *memory = NULL; /* is not freed: the process ends soon */
    for (size_t i = 0; i < sbit_graph_input_count(graph); i++) {
        const sbit_value_info *info = sbit_graph_value(graph, sbit_graph_input(graph, i));
        sbit_value value;
        snprintf(path, sizeof path, "%s/test_data_set_%d/input_%d.pb", folder, set, (int)i);
        if (!test_file_exists(path)) {
            continue; /* has a default value */
        }
        if (!load_value(path, &info->type, &memory, &value, &error)) {
            return result(FAIL, "input %d: %s", (int)i, error.message);
        }
        if (sbit_session_set_value(session, info->name, &value, &error) != SBIT_OK) {
            return result(FAIL, "set: %s", error.message);
        }
    }
    if (sbit_session_run(session, &error) != SBIT_OK) {
        return result(FAIL, "run: %s", error.message);
    }
    for (size_t i = 0; i < sbit_session_output_count(session); i++) {
        const sbit_value *got = sbit_session_output(session, i);
        sbit_type type;
        memset(&type, 0, sizeof type);
        type.kind = got->kind;
        snprintf(path, sizeof path, "%s/test_data_set_%d/output_%d.pb", folder, set, (int)i);
        if (!load_value(path, &type, &memory, &want, &error)) {
            return result(FAIL, "output %d: %s", (int)i, error.message);
        }
        if (!same_value(got, &want, why, sizeof why)) {
            return result(FAIL, "output '%s': %s", sbit_session_output_info(session, i)->name, why);
        }
    }
    return result(PASS, "%s", "");
}

static outcome run_with(sbit_ctx *ctx, const char *folder)
{
    char path[1200], missing[200] = "";
    sbit_graph *graph = NULL;
    sbit_session *session = NULL;
    sbit_error error;
    outcome out = {FAIL, "no test data"};
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    if (sbit_graph_load(ctx, path, &graph, &error) != SBIT_OK) {
        return result(FAIL, "load: %s", error.message);
    }
    if (sbit_graph_unsupported(graph, keep_first, missing) > 0) {
        out = result(UNSUPPORTED, "%s", missing);
    } else if (sbit_session_create(graph, NULL, &session, &error) != SBIT_OK) {
        out = result(error.status == SBIT_ERR_UNSUPPORTED ? UNSUPPORTED : FAIL, "create: %s",
                     error.message);
    } else {
        for (int set = 0; set == 0 || out.kind == PASS; set++) {
            snprintf(path, sizeof path, "%s/test_data_set_%d", folder, set);
            if (access(path, R_OK) != 0) {
                break;
            }
            out = run_set(graph, session, folder, set);
        }
    }
    sbit_session_destroy(session);
    sbit_graph_destroy(graph);
    return out;
}

/* ---- random numbers: their distribution, over many runs with other seeds */

enum {
    TRIALS = 500,
    MOST_ELEMENTS = 1000
};

/* What is drawn: for each element, how often it was 1 (kept), and the probability of that. */
typedef struct drawn {
    int64_t ones[MOST_ELEMENTS];
    double p[MOST_ELEMENTS];
    int64_t count;
} drawn;

/* All random nodes get another seed. */
static void reseed(sbit_onnx_doc *doc, int trial)
{
    const sbit_onnx_graph *graph = sbit_onnx_doc_model(doc)->graph;
    char *name = (char *)sbit_onnx_alloc(doc, 1, 20);
    snprintf(name, 20, "trial%d", trial);
    for (size_t n = 0; n < graph->node_count; n++) {
        sbit_onnx_node *node = &graph->node[n];
        const sbit_str text = {name, strlen(name)};
        SBIT_ONNX_SET(node, SBIT_ONNX_NODE_NAME, name, text);
        for (size_t a = 0; a < node->attribute_count; a++) {
            if (strcmp(node->attribute[a].name.data, "seed") == 0) {
                node->attribute[a].i = trial;
                node->attribute[a].f = (float)trial;
            }
        }
    }
}

/* Bernoulli: y is 1 with the probability x; what ONNX expands it to asks whether a uniform number
 * is greater than x, so there with 1 - x. Dropout: y is 0, or x / (1 - ratio) with 1 - ratio; the
 * mask tells which. */
static const char *count_drawn(sbit_session *session, const sbit_value *x, double ratio,
                               bool dropout, bool expanded, drawn *all)
{
    const sbit_tensor *y = &sbit_session_output(session, 0)->tensor;
    const sbit_value *mask =
        sbit_session_output_count(session) > 1 ? sbit_session_output(session, 1) : NULL;
    all->count = sbit_tensor_count(y);
    if (all->count > MOST_ELEMENTS || all->count != sbit_tensor_count(&x->tensor)) {
        return "there are as many elements as in the input";
    }
    for (int64_t i = 0; i < all->count; i++) {
        const double from = number_at(&x->tensor, i), to = number_at(y, i);
        const double kept = dropout ? from / (1.0 - ratio) : 1.0;
        if (to != 0.0 && fabs(to - kept) > 1e-6 * fabs(kept)) {
            return dropout ? "elements are 0 or x / (1 - ratio)" : "elements are 0 or 1";
        }
        if (mask != NULL && (number_at(&mask->tensor, i) != 0.0) != (to != 0.0)) {
            return "the mask tells which elements are kept";
        }
        all->ones[i] += to != 0.0;
        all->p[i] = dropout ? 1.0 - ratio : expanded ? 1.0 - from : from;
    }
    return NULL;
}

static const char *draw(sbit_ctx *ctx, const char *folder, int trial, bool dropout, drawn *all)
{
    char path[1200];
    sbit_onnx_doc *doc = NULL, *memory = NULL;
    sbit_graph *graph = NULL;
    sbit_session *session = NULL;
    sbit_error error;
    sbit_value x[3];
    const char *problem = "it runs";
    double ratio = 0.5;
    memset(x, 0, sizeof x);
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    if (sbit_onnx_load(path, NULL, &doc, &error) != SBIT_OK) {
        return "it loads";
    }
    reseed(doc, trial);
    bool ok = sbit_graph_import(ctx, doc, &graph, &error) == SBIT_OK &&
              sbit_session_create(graph, NULL, &session, &error) == SBIT_OK;
    for (size_t i = 0; ok && i < sbit_graph_input_count(graph) && i < 3; i++) {
        const sbit_value_info *info = sbit_graph_value(graph, sbit_graph_input(graph, i));
        snprintf(path, sizeof path, "%s/test_data_set_0/input_%d.pb", folder, (int)i);
        ok = load_value(path, &info->type, &memory, &x[i], &error) &&
             sbit_session_set_value(session, info->name, &x[i], &error) == SBIT_OK;
        ratio = i == 1 && ok ? number_at(&x[1].tensor, 0) : ratio;
    }
    if (ok && sbit_session_run(session, &error) == SBIT_OK) {
        problem =
            count_drawn(session, &x[0], ratio, dropout, strstr(folder, "_expanded") != NULL, all);
    }
    sbit_session_destroy(session);
    sbit_graph_destroy(graph);
    return problem;
}

/* Shares of single elements and of all lie within what chance does once in 10^8 times. */
static outcome check_distribution(sbit_ctx *ctx, const char *folder)
{
    static drawn all;
    const bool dropout = strstr(folder, "dropout") != NULL;
    double sum = 0.0, expected = 0.0, variance = 0.0;
    memset(&all, 0, sizeof all);
    for (int trial = 1; trial <= TRIALS; trial++) {
        const char *problem = draw(ctx, folder, trial, dropout, &all);
        if (problem != NULL) {
            return result(FAIL, "not so: %s", problem);
        }
    }
    for (int64_t i = 0; i < all.count; i++) {
        const double wanted = TRIALS * all.p[i], own = TRIALS * all.p[i] * (1.0 - all.p[i]);
        if (fabs((double)all.ones[i] - wanted) > 5.8 * sqrt(own) + 0.5) {
            return result(FAIL, "element %ld is 1 in %ld of %d runs, wanted %.0f", (long)i,
                          (long)all.ones[i], (int)TRIALS, wanted);
        }
        sum += (double)all.ones[i];
        expected += wanted;
        variance += own;
    }
    return fabs(sum - expected) <= 5.8 * sqrt(variance) + 0.5
               ? result(RANDOM, "%.0f of %.0f drawn, wanted %.0f", sum,
                        (double)TRIALS * (double)all.count, expected)
               : result(FAIL, "%.0f of %.0f drawn, wanted %.0f", sum,
                        (double)TRIALS * (double)all.count, expected);
}

/* ---- light graphs: one file, outputs beside it; inputs are 0, 1/n, 2/n ... */

static outcome run_light(sbit_ctx *ctx, const char *path)
{
    char want_path[1200], why[500] = "";
    sbit_graph *graph = NULL;
    sbit_session *session = NULL;
    sbit_onnx_doc *memory = NULL;
    sbit_error error;
    sbit_value want;
    sbit_tensor x;
    sbit_type type;
    memset(&type, 0, sizeof type);
    if (sbit_graph_load(ctx, path, &graph, &error) != SBIT_OK ||
        sbit_session_create(graph, NULL, &session, &error) != SBIT_OK) {
        return result(FAIL, "load: %s", error.message);
    }
    const sbit_value_info *info = sbit_session_input_info(session, 0);
    int64_t dims[SBIT_MAX_RANK] = {0};
    for (int32_t i = 0; i < info->type.rank; i++) {
        dims[i] = info->type.dims[i].symbol != 0 ? 1 : info->type.dims[i].value;
    }
    if (sbit_tensor_alloc(ctx, SBIT_F32, info->type.rank, dims, &x, &error) != SBIT_OK) {
        return result(FAIL, "input: %s", error.message);
    }
    const int64_t count = sbit_tensor_count(&x);
    for (int64_t i = 0; i < count; i++) {
        ((float *)x.data)[i] = (float)i / (float)count;
    }
    snprintf(want_path, sizeof want_path, "%.*s_output_0.pb", (int)(strlen(path) - 5), path);
    if (sbit_session_set_input(session, info->name, &x, &error) != SBIT_OK ||
        sbit_session_run(session, &error) != SBIT_OK ||
        !load_value(want_path, &type, &memory, &want, &error)) {
        return result(FAIL, "run: %s", error.message);
    }
    return same_value(sbit_session_output(session, 0), &want, why, sizeof why)
               ? result(PASS, "%s", "")
               : result(FAIL, "%s", why);
}

static outcome run_here(const char *path, bool is_listed)
{
    const sbit_ctx_desc desc = test_ctx_desc();
    sbit_ctx *ctx = NULL;
    sbit_error error;
    outcome out;
    if (sbit_ctx_create(&desc, &ctx, &error) != SBIT_OK) {
        return result(FAIL, "context: %s", error.message);
    }
    if (strstr(path, ".onnx") != NULL) {
        out = run_light(ctx, path);
    } else {
        out = run_with(ctx, path);
        if (is_listed && out.kind == FAIL && strstr(out.reason, ": element ") != NULL) {
            out = check_distribution(ctx, path); /* the right type and shape, other numbers */
        }
    }
    sbit_ctx_destroy(ctx);
    return out;
}

static outcome run_forked(const char *path, bool is_listed)
{
    outcome out;
    int ends[2], status = 0;
    if (getenv("SPARSEBIT_NO_FORK") != NULL || pipe(ends) != 0) {
        return run_here(path, is_listed);
    }
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        alarm(SECONDS_PER_TEST);
        out = run_here(path, is_listed);
        _exit(write(ends[1], &out, sizeof out) == (ssize_t)sizeof out ? 0 : 1);
    }
    close(ends[1]);
    const bool complete = read(ends[0], &out, sizeof out) == (ssize_t)sizeof out;
    close(ends[0]);
    waitpid(child, &status, 0);
    if (!complete) {
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM
                   ? result(FAIL, "took longer than %d seconds", SECONDS_PER_TEST)
                   : result(FAIL, "crashed with signal %d",
                            WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    return out;
}

/* ---- all tests */

static const char *const groups[] = {"node", "simple", "pytorch-converted", "pytorch-operator",
                                     "light"};
enum {
    GROUPS = sizeof groups / sizeof groups[0]
};
static char *tests[MAX_TESTS];
static int group_of[MAX_TESTS];
static int test_count;

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void find_tests(const char *root, const char *part)
{
    /* light: seconds of large convolutions, which sanitizers make minutes */
    const int count = getenv("SBIT_TEST_QUICK") != NULL && part == NULL ? GROUPS - 1 : GROUPS;
    for (int g = 0; g < count; g++) {
        char path[1100];
        snprintf(path, sizeof path, "%s/%s", root, groups[g]);
        DIR *folder = opendir(path);
        const int first = test_count;
        for (const struct dirent *entry = NULL;
             folder != NULL && (entry = readdir(folder)) != NULL && test_count < MAX_TESTS;) {
            const bool flat = strchr(entry->d_name, '.') != NULL; /* light: one file each */
            if (entry->d_name[0] != '.' && (!flat || strstr(entry->d_name, ".onnx") != NULL) &&
                (part == NULL || strstr(entry->d_name, part) != NULL)) {
                const size_t size = strlen(path) + strlen(entry->d_name) + 2;
                tests[test_count] = (char *)malloc(size);
                group_of[test_count] = g;
                snprintf(tests[test_count++], size, "%s/%s", path, entry->d_name);
            }
        }
        if (folder != NULL) {
            closedir(folder);
        }
        qsort(tests + first, (size_t)(test_count - first), sizeof tests[0], by_name);
    }
}

static bool is_known(const char *known, const char *name)
{
    const size_t size = strlen(name);
    for (const char *at = known; at != NULL && (at = strstr(at, name)) != NULL; at += size) {
        const bool starts = at == known || at[-1] == '\n';
        if (starts && strchr(" \t\r\n#", at[size]) != NULL) {
            return true;
        }
    }
    return false;
}

/* Writes a line to the report and, where it matters, to the screen. */
static void tell(FILE *report, bool show, const char *word, const char *name, const outcome *out)
{
    const char *colon = out->reason[0] != '\0' ? ": " : "";
    if (report != NULL) {
        fprintf(report, "%s %s%s%s\n", word, name, colon, out->reason);
    }
    if (show) {
        printf("%s %s%s%s\n", word, name, colon, out->reason);
    }
}

int main(int argc, char **argv)
{
    const char *env = getenv("SPARSEBIT_BACKEND"), *part = argc > 1 ? argv[1] : NULL;
    const bool other = env != NULL && env[0] != '\0';
    int counts[2] = {0, 0}, known_count = 0, passed[GROUPS], all[GROUPS];
    char path[1200];
    size_t size = 0;
    if (!other && !test_backend("node/test_add/model.onnx", path, sizeof path)) {
        test_skip(true, "no ONNX backend data");
        if (test_state.skip_reason != NULL) {
            printf("SKIP test_conformance: %s\n", test_state.skip_reason);
        }
        printf("test_conformance: 0 passed, %d failed, %d skipped\n", test_state.checks_failed,
               test_state.skip_reason != NULL);
        return test_state.checks_failed > 0;
    }
    test_checkout("tests/conformance_known.txt", path, sizeof path);
    char *known = (char *)test_read_file(path, &size);
    snprintf(path, sizeof path, "%s/tests/build/conformance.txt", SBIT_TEST_ROOT);
    FILE *report = part == NULL && !other ? fopen(path, "w") : NULL;
    find_tests(other ? env : SBIT_TEST_BACKEND, part);
    if (test_count == 0) {
        printf("no such test\ntest_conformance: 0 passed, 1 failed, 0 skipped\n");
        return 1;
    }
    memset(passed, 0, sizeof passed);
    memset(all, 0, sizeof all);
    for (int t = 0; t < test_count; t++) {
        const char *name = strrchr(tests[t], '/') + 1;
        const bool is_listed = is_known(known, name);
        outcome out = run_forked(tests[t], is_listed);
        all[group_of[t]]++;
        if (is_listed && (out.kind == UNSUPPORTED || out.kind == RANDOM)) {
            known_count++;
            tell(report, part != NULL, "known", name, &out);
            continue;
        }
        if (out.kind == PASS && is_listed) {
            out = result(FAIL, "%s", "it passes: remove it from conformance_known.txt");
        }
        passed[group_of[t]] += out.kind == PASS ? 1 : 0;
        counts[out.kind == PASS ? PASS : FAIL]++;
        tell(report, out.kind != PASS || part != NULL,
             out.kind == PASS   ? "pass"
             : out.kind == FAIL ? "FAIL"
                                : "FAIL unsupported",
             name, &out);
    }
    for (int g = 0; g < GROUPS; g++) {
        if (all[g] > 0) {
            printf("%s: %d of %d\n", groups[g], passed[g], all[g]);
        }
    }
    if (report != NULL) {
        fprintf(report, "%d pass, %d fail, %d as listed\n", counts[PASS], counts[FAIL],
                known_count);
        fclose(report);
    }
    printf("conformance: %d pass, %d fail, %d as listed\n", counts[PASS], counts[FAIL],
           known_count);
    printf("test_conformance: %d passed, %d failed, 0 skipped\n", counts[PASS], counts[FAIL]);
    free(known);
    return counts[FAIL] > 0;
}
