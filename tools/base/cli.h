/* base/cli.h: what all files of the command line tool share: exit codes, messages, numbers as text.
 *
 * sparsebit.c   main, the table of commands, help
 * base/         messages, text, the system (files, clock, memory), options, JSON, tables, progress
 * model/        a model, its inputs and sessions
 * formats/      NumPy files, ZIP archives, pictures
 * data/         data sets: where samples come from and how they become input values
 * report/       accuracy, differences between tensors, what became of a network
 * commands/     one file for each command
 *
 * Only the public functions of the library are used. Functions that can fail return 0 or the exit
 * code; the message is printed where the failure is seen.
 */
#ifndef SBIT_CLI_H
#define SBIT_CLI_H

#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* POSIX 2008 and getrusage */
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif

#include "../sparsebit.h"

#include <stdio.h>  /* FILE */
#include <string.h> /* memset, strcmp */

enum {
    CLI_OK = 0,
    CLI_BAD = 1,  /* bad input, or a check that failed */
    CLI_USAGE = 2 /* wrong usage */
};

#define CLI_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define CLI_TRY(expression)                                                                        \
    do {                                                                                           \
        const int cli_try_code = (expression);                                                     \
        if (cli_try_code != CLI_OK) {                                                              \
            return cli_try_code;                                                                   \
        }                                                                                          \
    } while (0)
#if defined(__GNUC__)
#define CLI_PRINTF(at, first) __attribute__((format(printf, at, first)))
#else
#define CLI_PRINTF(at, first)
#endif

/* ---- base/messages.c */

int cli_fail(const char *format, ...) CLI_PRINTF(1, 2); /* prints, returns CLI_BAD */
int cli_fail_usage(const char *command, const char *format, ...) CLI_PRINTF(2, 3);
/* A failure of the library: "<doing>: <message>", and what to try next. Returns CLI_BAD. */
int cli_fail_library(const sbit_error *error, const char *format, ...) CLI_PRINTF(2, 3);
int cli_fail_memory(size_t bytes);
size_t cli_failure_count(void); /* messages of the functions above, so far */
const char *cli_failure_at(size_t index);
void cli_warn(const char *format, ...) CLI_PRINTF(1, 2); /* the same text only once */
void cli_note(const char *format, ...) CLI_PRINTF(1, 2);

/* "1.40 MB" into text. Gives text back. */
const char *cli_bytes_text(double bytes, char *text, size_t size);
const char *cli_count_text(double count, char *text, size_t size); /* "41.2 M" */

/* ---- base/progress.c: one bar at a time is seen */

void cli_progress(const char *what, int64_t done, int64_t total); /* done == total ends it */
void cli_progress_clear(void);                                    /* before other output */

#endif /* SBIT_CLI_H */
