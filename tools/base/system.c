/* base/system.c: clock, memory and processors, files and folders, lists of names.
 */
#include "base/system.h"

#include <ctype.h>    /* tolower */
#include <dirent.h>   /* opendir; Windows: mingw-w64 has it */
#include <errno.h>    /* the reason a call failed */
#include <stdlib.h>   /* malloc */
#include <sys/stat.h> /* stat, mkdir */
#include <unistd.h>   /* access, isatty, sysconf */

/* ---- what differs between systems: clock, memory, processors, folders */

#if defined(_WIN32)
#define PSAPI_VERSION 2 /* K32GetProcessMemoryInfo, of kernel32 */
#include <windows.h>
#include <psapi.h>

double cli_seconds(void)
{
    LARGE_INTEGER now, rate;
    QueryPerformanceFrequency(&rate);
    QueryPerformanceCounter(&now);
    return (double)now.QuadPart / (double)rate.QuadPart;
}

double cli_peak_bytes(void)
{
    PROCESS_MEMORY_COUNTERS counters;
    const BOOL known = GetProcessMemoryInfo(GetCurrentProcess(), &counters, sizeof counters);
    return known ? (double)counters.PeakWorkingSetSize : 0.0;
}

static long cli_processors(void)
{
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return (long)info.dwNumberOfProcessors;
}

static bool cli_new_folder(const char *path)
{
    return mkdir(path) == 0;
}

static char *cli_link_target(const char *path)
{
    (void)path;
    return NULL;
}

static bool cli_move_over(const char *from, const char *to)
{
    return MoveFileExA(from, to, MOVEFILE_REPLACE_EXISTING) != 0;
}

#else
#include <sys/resource.h> /* getrusage */
#include <time.h>         /* clock_gettime */

double cli_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double cli_peak_bytes(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) {
        return 0.0;
    }
#ifdef __APPLE__
    return (double)usage.ru_maxrss;
#else
    return 1024.0 * (double)usage.ru_maxrss;
#endif
}

static long cli_processors(void)
{
#ifdef _SC_NPROCESSORS_ONLN
    return sysconf(_SC_NPROCESSORS_ONLN);
#else
    return 1;
#endif
}

static bool cli_new_folder(const char *path)
{
    return mkdir(path, 0777) == 0;
}

/* To be freed; NULL: nothing is there. What a symlink points to is made if it is missing. */
static char *cli_link_target(const char *path)
{
    struct stat info;
    char *target = realpath(path, NULL);
    if (target == NULL && lstat(path, &info) == 0) {
        FILE *file = fopen(path, "ab");
        if (file != NULL) {
            fclose(file);
            target = realpath(path, NULL);
        }
    }
    return target;
}

static bool cli_move_over(const char *from, const char *to)
{
    return rename(from, to) == 0;
}
#endif

int32_t cli_processor_count(void)
{
    const long count = cli_processors();
    return count < 1 ? 1 : count > 64 ? 64 : (int32_t)count;
}

bool cli_is_terminal(void)
{
    return isatty(2) != 0;
}

/* ---- files and folders */

static bool cli_is_separator(char ch)
{
#if defined(_WIN32)
    return ch == '/' || ch == '\\';
#else
    return ch == '/';
#endif
}

const char *cli_base_name(const char *path)
{
    const char *base = path;
    for (; *path != '\0'; path++) {
        base = cli_is_separator(*path) ? path + 1 : base;
    }
    return base;
}

bool cli_has_suffix(const char *text, const char *suffix)
{
    const size_t n = strlen(text), m = strlen(suffix);
    for (size_t i = 0; i < m; i++) {
        if (n < m || tolower((unsigned char)text[n - m + i]) != tolower((unsigned char)suffix[i])) {
            return false;
        }
    }
    return true;
}

bool cli_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool cli_same_file(const char *a, const char *b)
{
    struct stat x, y;
    if (stat(a, &x) != 0 || stat(b, &y) != 0) {
        return false;
    }
    return x.st_ino != 0 ? x.st_dev == y.st_dev && x.st_ino == y.st_ino : strcmp(a, b) == 0;
}

char *cli_path_join(const char *folder, const char *name)
{
    const size_t size = strlen(folder) + strlen(name) + 2;
    const bool slash = folder[0] != '\0' && !cli_is_separator(folder[strlen(folder) - 1]);
    char *path = (char *)malloc(size);
    if (path == NULL) {
        cli_fail_memory(size);
        return NULL;
    }
    snprintf(path, size, "%s%s%s", folder, slash ? "/" : "", name);
    return path;
}

/* The folder that a file stands in, to be freed. */
static char *cli_folder_of(const char *path)
{
    const size_t size = (size_t)(cli_base_name(path) - path);
    char *folder = (char *)malloc(size + 2);
    if (folder == NULL) {
        cli_fail_memory(size + 2);
        return NULL;
    }
    memcpy(folder, size > 0 ? path : ".", size > 0 ? size : 1);
    folder[size > 0 ? size : 1] = '\0';
    return folder;
}

/* "-" would be a file of that name. */
static int cli_check_dash(const char *option, const char *path)
{
    return strcmp(path, "-") != 0
               ? CLI_OK
               : cli_fail_usage(NULL,
                                "%s -: nothing is written to standard output; give a name "
                                "('./-' for a file called '-')",
                                option);
}

int cli_check_writable(const char *option, const char *path)
{
    struct stat info;
    CLI_TRY(cli_check_dash(option, path));
    if (path[0] == '\0' || cli_is_folder(path)) {
        return cli_fail("%s '%s' is a folder; give a file name, such as '%s%smodel.onnx'", option,
                        path, path, cli_has_suffix(path, "/") || path[0] == '\0' ? "" : "/");
    }
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        return cli_fail("%s '%s' is no regular file; give another name", option, path);
    }
    char *folder = cli_folder_of(path);
    if (folder == NULL) {
        return CLI_BAD;
    }
    int code = CLI_OK;
    if (!cli_is_folder(folder)) {
        code = cli_fail("%s '%s': there is no folder '%s'; make it first", option, path, folder);
    } else if (access(folder, W_OK) != 0) {
        code = cli_fail("%s '%s': the folder '%s' is not writable: %s; choose another place",
                        option, path, folder, strerror(errno));
    }
    free(folder);
    return code;
}

int cli_file_replace(const char *path, bool (*write)(FILE *file, const void *user), const void *user)
{
    char *target = cli_link_target(path);
    const char *real = target != NULL ? target : path;
    const size_t size = strlen(real) + 16;
    char *temporary = (char *)malloc(size);
    if (temporary == NULL) {
        free(target);
        return cli_fail_memory(size);
    }
    snprintf(temporary, size, "%s.sbit-tmp", real);
    FILE *file = fopen(temporary, "wb+");
    bool good = file != NULL && write(file, user);
    int reason = errno;
    if (file != NULL && fclose(file) != 0 && good) {
        good = false;
        reason = errno;
    }
    if (good && !cli_move_over(temporary, real)) {
        good = false;
        reason = errno;
    }
    if (!good && file != NULL) {
        remove(temporary);
    }
    free(temporary);
    free(target);
    return good ? CLI_OK : cli_fail("'%s' cannot be written: %s", path, strerror(reason));
}

int cli_make_folder(const char *option, const char *path)
{
    CLI_TRY(cli_check_dash(option, path));
    if (!cli_is_folder(path) && !cli_new_folder(path)) {
        return cli_fail("%s '%s': the folder cannot be made: %s; choose another place", option,
                        path, strerror(errno));
    }
    if (access(path, W_OK) != 0) {
        return cli_fail("%s '%s': the folder is not writable: %s; choose another place", option,
                        path, strerror(errno));
    }
    return CLI_OK;
}

int cli_file_bytes(const char *path, uint64_t *bytes)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        return cli_fail("'%s' cannot be read: %s", path, strerror(errno));
    }
    if (S_ISDIR(info.st_mode)) {
        return cli_fail("'%s' is a folder, a file is wanted", path);
    }
    if (access(path, R_OK) != 0) {
        return cli_fail("'%s' cannot be read: %s", path, strerror(errno));
    }
    *bytes = (uint64_t)info.st_size;
    return CLI_OK;
}

bool cli_read_at(FILE *file, uint64_t offset, void *to, size_t bytes)
{
    return fseeko(file, (off_t)offset, SEEK_SET) == 0 && fread(to, 1, bytes, file) == bytes;
}

/* ---- lists of names */

int cli_names_add(cli_names *names, const char *text, size_t size)
{
    if (names->count == names->capacity) {
        const size_t capacity = names->capacity * 2 + 16;
        char **items = (char **)realloc(names->items, capacity * sizeof *items);
        if (items == NULL) {
            return cli_fail_memory(capacity * sizeof *items);
        }
        names->items = items;
        names->capacity = capacity;
    }
    char *copy = (char *)malloc(size + 1);
    if (copy == NULL) {
        return cli_fail_memory(size + 1);
    }
    memcpy(copy, text, size);
    copy[size] = '\0';
    names->items[names->count++] = copy;
    return CLI_OK;
}

void cli_names_free(cli_names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        free(names->items[i]);
    }
    free(names->items);
    memset(names, 0, sizeof *names);
}

static int cli_names_compare(const void *a, const void *b)
{
    char *const *const p = (char *const *)a;
    char *const *const q = (char *const *)b;
    return strcmp(*p, *q);
}

int cli_folder_list(const char *path, bool (*keep)(const char *name), cli_names *out)
{
    int code = CLI_OK;
    memset(out, 0, sizeof *out);
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return cli_fail("folder '%s' cannot be read: %s", path, strerror(errno));
    }
    for (struct dirent *entry; code == CLI_OK && (entry = readdir(folder)) != NULL;) {
        if (keep(entry->d_name)) {
            code = cli_names_add(out, entry->d_name, strlen(entry->d_name));
        }
    }
    closedir(folder);
    if (code != CLI_OK) {
        cli_names_free(out);
    } else if (out->count > 1) {
        qsort(out->items, out->count, sizeof *out->items, cli_names_compare);
    }
    return code;
}
