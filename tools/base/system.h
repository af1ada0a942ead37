/* base/system.h: clock, memory, processors, files, folders, lists of names.
 */
#ifndef SBIT_CLI_SYSTEM_H
#define SBIT_CLI_SYSTEM_H

#include "base/cli.h"

double cli_seconds(void);          /* a monotonic clock */
double cli_peak_bytes(void);       /* the largest memory this process had */
int32_t cli_processor_count(void); /* that are online, 1..64 */
bool cli_is_terminal(void);        /* stderr */

const char *cli_base_name(const char *path);
bool cli_has_suffix(const char *text, const char *suffix); /* any case */
bool cli_is_folder(const char *path);
bool cli_same_file(const char *a, const char *b); /* both are there, and one */
/* The file can be made or replaced; says why not. */
int cli_check_writable(const char *option, const char *path);
/* Makes the folder if its parent exists; checks that files can be made in it. */
int cli_make_folder(const char *option, const char *path);
/* What `write` puts into a file of another name replaces the file (that a symlink points to) when it
 * is whole; `write` gives false with errno. */
int cli_file_replace(const char *path, bool (*write)(FILE *file, const void *user), const void *user);
int cli_file_bytes(const char *path, uint64_t *bytes);
bool cli_read_at(FILE *file, uint64_t offset, void *to, size_t bytes);

/* A sorted list of a folder's entries that `keep` accepts; free with cli_names_free. */
typedef struct cli_names {
    char **items;
    size_t count, capacity;
} cli_names;
int cli_folder_list(const char *path, bool (*keep)(const char *name), cli_names *out);
int cli_names_add(cli_names *names, const char *text, size_t size);
void cli_names_free(cli_names *names);
/* folder + "/" + name, to be freed; NULL: out of memory, already told. */
char *cli_path_join(const char *folder, const char *name);

#endif /* SBIT_CLI_SYSTEM_H */
