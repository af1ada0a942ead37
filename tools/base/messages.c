/* base/messages.c: messages, numbers as text.
 *
 * Messages go to stderr: "sparsebit: error: ...", "sparsebit: warning: ...", "sparsebit: ...".
 */
#include "base/cli.h"

#include <stdarg.h> /* va_list */

/* ---- messages */

enum {
    CLI_FAILURES = 16, /* kept for --json: the first ones and the last */
    CLI_FAILURE_SIZE = 2048
};

static struct {
    char text[CLI_FAILURES][CLI_FAILURE_SIZE];
    size_t count;
} cli_failures;

static void cli_say_failure(const char *format, va_list args)
{
    const size_t last = CLI_FAILURES - 1;
    cli_failures.count = cli_failures.count < last ? cli_failures.count : last;
    char *text = cli_failures.text[cli_failures.count++];
    vsnprintf(text, CLI_FAILURE_SIZE, format, args);
    cli_progress_clear();
    fprintf(stderr, "sparsebit: error: %s\n", text);
}

size_t cli_failure_count(void)
{
    return cli_failures.count;
}

const char *cli_failure_at(size_t index)
{
    return cli_failures.text[index];
}

int cli_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    cli_say_failure(format, args);
    va_end(args);
    return CLI_BAD;
}

int cli_fail_usage(const char *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    cli_say_failure(format, args);
    va_end(args);
    fprintf(stderr, "Try 'sparsebit help%s%s'.\n", command != NULL ? " " : "",
            command != NULL ? command : "");
    return CLI_USAGE;
}

/* What the user can do about a class of failure; NULL: the message says it. */
static const char *cli_advice(sbit_status status)
{
    switch (status) {
    case SBIT_ERR_OUT_OF_MEMORY:
        return "use a smaller --batch or --shape, or a machine with more memory";
    case SBIT_ERR_PARSE:
        return "the file is damaged or not of this format; export or download it again";
    case SBIT_ERR_INVALID_MODEL:
        return "check the exporter; 'python -m onnx.checker' reports the same kind of mistakes";
    case SBIT_ERR_SHAPE:
        return "'sparsebit info MODEL' shows the inputs; give dims with --shape NAME=1x3x224x224";
    case SBIT_ERR_CONFIG:
        return "correct the key in the YAML file or the --set flag";
    default:
        return NULL;
    }
}

int cli_fail_library(const sbit_error *error, const char *format, ...)
{
    va_list args;
    char doing[600];
    const char *advice = cli_advice(error->status);
    va_start(args, format);
    vsnprintf(doing, sizeof doing, format, args);
    va_end(args);
    const bool placed = error->where[0] == '\0' || strstr(error->message, error->where) != NULL;
    cli_fail("%s: %s%s%s%s", doing,
             error->message[0] != '\0' ? error->message : sbit_status_text(error->status),
             placed ? "" : " (at ", placed ? "" : error->where, placed ? "" : ")");
    /* a file that is something else has been named, with what to do */
    const bool said = strstr(error->message, "sparsebit info") != NULL ||
                      strstr(error->message, "the file is no ONNX") != NULL;
    if (advice != NULL && !said) {
        fprintf(stderr, "  %s\n", advice);
    }
    return CLI_BAD;
}

int cli_fail_memory(size_t bytes)
{
    return cli_fail("out of memory (%lu bytes wanted); use a smaller --batch or --limit",
                    (unsigned long)bytes);
}

/* Several sessions of one graph report the same things: each is shown once. */
static bool cli_seen_before(const char *text)
{
    static uint32_t seen[256];
    static size_t count;
    uint32_t hash = 2166136261u;
    for (; *text != '\0'; text++) {
        hash = (hash ^ (uint32_t)(unsigned char)*text) * 16777619u;
    }
    for (size_t i = 0; i < count; i++) {
        if (seen[i] == hash) {
            return true;
        }
    }
    if (count < CLI_COUNT_OF(seen)) {
        seen[count++] = hash;
    }
    return false;
}

static void cli_say_once(const char *kind, const char *format, va_list args)
{
    char text[2048];
    vsnprintf(text, sizeof text, format, args);
    if (!cli_seen_before(text)) {
        cli_progress_clear();
        fprintf(stderr, "sparsebit: %s%s\n", kind, text);
    }
}

void cli_warn(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    cli_say_once("warning: ", format, args);
    va_end(args);
}

void cli_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    cli_say_once("", format, args);
    va_end(args);
}

/* ---- numbers as text */

static const char *cli_scaled(double value, double base, const char *const *units, char *text,
                              size_t size)
{
    size_t i = 0;
    while (value >= base * 0.9995 && i < 4) {
        value /= base;
        i++;
    }
    const int digits = i == 0 ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
    snprintf(text, size, "%.*f%s", digits, value, units[i]);
    return text;
}

const char *cli_bytes_text(double bytes, char *text, size_t size)
{
    static const char *const units[] = {" B", " KB", " MB", " GB", " TB"};
    return cli_scaled(bytes, 1000.0, units, text, size);
}

const char *cli_count_text(double count, char *text, size_t size)
{
    static const char *const units[] = {"", " K", " M", " G", " T"};
    return cli_scaled(count, 1000.0, units, text, size);
}
