/* amalgamate.c: assembles sparsebit_onnx.h and sparsebit.h from the files listed in src/MANIFEST.
 *
 *     amalgamate [--check] [checkout]      --check writes nothing and fails where a header differs
 *
 * By its name a listed file is a manual (manual*.txt: the comment at the top), declarations
 * (*_api.h: behind the include guard) or code (other .h and .c). Files are joined in the listed
 * order; an internal #include is dropped, a system #include stays where it is first used. One that
 * stands inside an #if is kept each time, because it may not be compiled. A template, whose name
 * begins with vec_, is not listed: it is pasted from the folder of the file that includes it, as
 * often as it is included. "cold" behind a file's name has gcc compile it at -O1 when the user
 * optimizes for speed: it takes half as long, for code whose speed nobody notices.
 */
#include <stdbool.h> /* bool */
#include <stdio.h>   /* files */
#include <stdlib.h>  /* exit */
#include <string.h>  /* strcmp, strstr ... */

#define FAIL(...) (fprintf(stderr, __VA_ARGS__), exit(1))
#define MAX_FILES 1000
#define MAX_LINE 4096

enum {
    MANUAL,
    DECLARATIONS,
    CODE
};

static struct source {
    char path[MAX_LINE]; /* relative to src/ */
    int output, kind;
    bool cold;
} sources[MAX_FILES];
static int source_count;
static const char *root = ".";

static FILE *open_file(const char *folder, const char *name, const char *mode)
{
    char path[MAX_LINE];
    snprintf(path, sizeof path, "%s/%s%s", root, folder, name);
    return fopen(path, mode);
}

/* Reads a line and cuts trailing space; false at the end of the file. */
static bool next_line(FILE *file, char line[MAX_LINE])
{
    if (fgets(line, MAX_LINE, file) == NULL) {
        return false;
    }
    for (size_t n = strlen(line); n > 0 && strchr(" \t\r\n", line[n - 1]) != NULL; n--) {
        line[n - 1] = '\0';
    }
    return true;
}

/* Whether a listed file has this path, or this name in any folder. */
static bool is_listed(const char *name)
{
    for (int i = 0; i < source_count; i++) {
        const char *path = sources[i].path, *slash = strrchr(path, '/');
        if (strcmp(path, name) == 0 || (slash != NULL && strcmp(slash + 1, name) == 0)) {
            return true;
        }
    }
    return false;
}

static void read_manifest(void)
{
    char line[MAX_LINE];
    int output = -1, number = 1;
    FILE *manifest = open_file("src/", "MANIFEST", "rb"), *file = NULL;
    for (; manifest != NULL && next_line(manifest, line); number++) {
        struct source *s = &sources[source_count];
        line[strcspn(line, "#")] = '\0';
        s->cold = strstr(line, " cold") != NULL;
        line[strcspn(line, " \t")] = '\0';
        if (strcmp(line, "[sparsebit_onnx.h]") == 0 || strcmp(line, "[sparsebit.h]") == 0) {
            output = strcmp(line, "[sparsebit.h]") == 0;
        } else if (line[0] != '\0') {
            if (output < 0 || source_count == MAX_FILES || is_listed(line)) {
                FAIL("src/MANIFEST:%d: '%s' is no section or is listed twice\n", number, line);
            } else if ((file = open_file("src/", line, "rb")) == NULL) {
                FAIL("src/MANIFEST:%d: there is no file src/%s\n", number, line);
            }
            fclose(file);
            strcpy(s->path, line);
            s->output = output;
            s->kind = strstr(line, "manual") && strstr(line, ".txt") ? MANUAL : CODE;
            s->kind = strstr(line, "_api.h") ? DECLARATIONS : s->kind;
            source_count++;
        }
    }
    if (manifest == NULL || fclose(manifest) != 0 || source_count == 0) {
        FAIL("cannot read %s/src/MANIFEST\n", root);
    }
}

/* Decides on `#include name`. `seen` lists the system headers that are included for certain. */
static bool keep_include(const char *from, int number, const char *name, bool certain, char *seen)
{
    char key[MAX_LINE];
    snprintf(key, sizeof key, "%.*s", (int)strcspn(name + 1, "\">") + 1, name);
    if (*name == '<') {
        const bool known = strstr(seen, key) != NULL;
        strncat(seen, certain ? key : "", MAX_LINE - strlen(seen) - 1);
        return !known;
    }
    if (!is_listed(strrchr(key, '/') != NULL ? strrchr(key, '/') + 1 : key + 1)) {
        FAIL("src/%s:%d: includes %s\", which src/MANIFEST lacks\n", from, number, key);
    }
    return false;
}

static void put_source(FILE *out, const struct source *s, char *seen);

/* Puts the file that `#include "vec_..."` names; false if the line names none. */
static bool put_template(FILE *out, const struct source *s, const char *name, char *seen)
{
    const char *slash = strrchr(s->path, '/');
    struct source template = *s;
    if (strncmp(name, "\"vec_", 5) != 0) {
        return false;
    }
    snprintf(template.path, sizeof template.path, "%.*s%.*s",
             slash != NULL ? (int)(slash + 1 - s->path) : 0, s->path, (int)strcspn(name + 1, "\""),
             name + 1);
    put_source(out, &template, seen);
    return true;
}

static void put_source(FILE *out, const struct source *s, char *seen)
{
    const bool manual = s->kind == MANUAL;
    const bool guarded = strstr(s->path, ".h") && !strstr(s->path, "vec_");
    int number = 1, depth = guarded ? -1 : 0; /* a header's own guard: no #if */
    bool blank = false;
    char line[MAX_LINE];
    FILE *file = open_file("src/", s->path, "rb");
    if (file == NULL) {
        FAIL("there is no file src/%s\n", s->path);
    }
    fprintf(out, "/* ---- begin src/%s ----%s\n", s->path, manual ? "" : " */");
    for (; next_line(file, line); number++) {
        const char *p = line;
        if (manual && (strstr(line, "/*") || strstr(line, "*/"))) {
            FAIL("src/%s:%d: a manual cannot hold a comment\n", s->path, number);
        } else if (!manual && *p == '#') { /* clang-format leaves # in the first column */
            p += 1 + strspn(p + 1, " ");
            depth += strncmp(p, "if", 2) == 0 ? 1 : strncmp(p, "endif", 5) == 0 ? -1 : 0;
            p += strncmp(p, "include", 7) == 0 ? 7 + strspn(p + 7, " ") : 0;
            if (put_template(out, s, p, seen)) {
                continue;
            }
            if ((*p == '<' || *p == '"') && !keep_include(s->path, number, p, depth <= 0, seen)) {
                continue;
            }
        }
        if (line[0] != '\0') {
            fprintf(out, "%s%s\n", blank ? "\n" : "", line);
        }
        blank = line[0] == '\0';
    }
    fprintf(out, "%s---- end src/%s ---- */\n\n", manual ? "" : "/* ", s->path);
    fclose(file);
}

/* Between files that are cold and others. */
static void put_cold(FILE *out, bool begin)
{
    fprintf(out,
            "#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && "
            "!defined(__OPTIMIZE_SIZE__)\n%s#endif\n\n",
            begin ? "#pragma GCC push_options\n#pragma GCC optimize(\"O1\")\n"
                  : "#pragma GCC pop_options\n");
}

static void put_code(FILE *out, int output, int kind, char *seen)
{
    bool cold = false;
    for (int i = 0; i < source_count; i++) {
        if (sources[i].output == output && sources[i].kind == kind) {
            if (sources[i].cold != cold) {
                put_cold(out, cold = !cold);
            }
            put_source(out, &sources[i], seen);
        }
    }
    if (cold) {
        put_cold(out, false);
    }
}

/* ---- declarations */

#define MARK_USERS "/* >>users */"
#define MARK_EXTEND "/* >>extend */"
enum {
    USERS,
    EXTENDERS
};

/* The lines between a *_api.h's guard and extern "C" and their ends, by part. */
typedef struct body {
    char *text[2]; /* "line\nline\n" */
    char *banner;  /* the comment at the top */
} body;

static char *append(char *text, const char *line)
{
    const size_t size = text != NULL ? strlen(text) : 0;
    text = (char *)realloc(text, size + strlen(line) + 2);
    if (text == NULL) {
        FAIL("out of memory\n");
    }
    sprintf(text + size, "%s\n", line);
    return text;
}

/* Takes `part` out of text: where it stands last. */
static void drop(const char *path, char *text, const char *part)
{
    char *at = NULL;
    for (char *next = text; (next = strstr(next, part)) != NULL; next++) {
        at = next;
    }
    if (at == NULL) {
        FAIL("src/%s: without \"%s\"\n", path, part);
    }
    memmove(at, at + strlen(part), strlen(at + strlen(part)) + 1);
}

static char *read_inside(const struct source *s, FILE *out, char *seen, char **banner)
{
    char *text = append(NULL, ""), line[MAX_LINE];
    int guard = 0; /* lines of it that lie behind */
    FILE *file = open_file("src/", s->path, "rb");
    for (int number = 1; next_line(file, line); number++) {
        if (strncmp(line, "#include ", 9) == 0) {
            if (keep_include(s->path, number, line + 9, true, seen)) {
                fprintf(out, "%s\n", line);
            }
        } else if (guard < 2 && (strncmp(line, "#ifndef ", 8) == 0 || guard == 1)) {
            guard++;
        } else if (guard == 2) {
            text = append(text, line);
        } else {
            *banner = append(*banner, line);
        }
    }
    fclose(file);
    drop(s->path, text, "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
    drop(s->path, text, "\n#ifdef __cplusplus\n}\n#endif\n");
    *strstr(text, "\n#endif /* SBIT_") = '\0'; /* the guard's */
    return text;
}

static body read_body(const struct source *s, FILE *out, char *seen)
{
    body b = {{append(NULL, ""), append(NULL, "")}, append(NULL, "")};
    char *text = read_inside(s, out, seen, &b.banner);
    int part = USERS;
    for (char *line = text, *end = NULL; line != NULL; line = end) {
        end = strchr(line, '\n');
        if (end != NULL) {
            *end++ = '\0';
        }
        if (strcmp(line, MARK_USERS) == 0 || strcmp(line, MARK_EXTEND) == 0) {
            part = strcmp(line, MARK_USERS) == 0 ? USERS : EXTENDERS;
            line[0] = '\0';
        }
        b.text[part] = append(b.text[part], line);
    }
    free(text);
    return b;
}

/* Text without blank lines at its ends, and one where there were several. */
static void put_text(FILE *out, const char *text)
{
    bool blank = false, any = false;
    while (*text != '\0') {
        const int size = (int)strcspn(text, "\n");
        if (size > 0) {
            fprintf(out, "%s%.*s\n", blank && any ? "\n" : "", size, text);
            any = true;
        }
        blank = size == 0;
        text += text[size] == '\n' ? size + 1 : size;
    }
}

static bool is_empty(const char *text)
{
    return text[strspn(text, "\n")] == '\0';
}

static void put_declarations(FILE *out, int output, const body *bodies, int part)
{
    for (int i = 0; i < source_count; i++) {
        const char *path = sources[i].path, *text = bodies[i].text[part];
        if (sources[i].output != output || sources[i].kind != DECLARATIONS || is_empty(text)) {
            continue;
        }
        fprintf(out, "/* ---- begin src/%s ---- */\n", path);
        if (part == USERS || is_empty(bodies[i].text[USERS])) {
            put_text(out, bodies[i].banner);
            fputs("\n", out);
        }
        put_text(out, text);
        fprintf(out, "/* ---- end src/%s ---- */\n\n", path);
    }
}

static void put_parts(FILE *out, int output, char *seen)
{
    static body bodies[MAX_FILES];
    bool extends = false;
    for (int i = 0; i < source_count; i++) {
        if (sources[i].output == output && sources[i].kind == DECLARATIONS) {
            bodies[i] = read_body(&sources[i], out, seen);
            extends = extends || !is_empty(bodies[i].text[EXTENDERS]);
        }
    }
    fputs("\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n", out);
    fputs(extends ? "/* ======== Part 1: for users. >>part1 ======== */\n\n" : "", out);
    put_declarations(out, output, bodies, USERS);
    fputs(extends
              ? "/* ======== Part 2: for those who extend the library: editing graphs, operators, "
                "passes and\n * strategies of their own. >>part2 ======== */\n\n"
              : "",
          out);
    put_declarations(out, output, bodies, EXTENDERS);
    fputs("#ifdef __cplusplus\n}\n#endif\n\n", out);
}

static void put_header(FILE *out, int output)
{
    static const char *const prefixes[] = {"SPARSEBIT_ONNX", "SPARSEBIT"};
    static const char *const declarations_of[] = {"", "#include \"sparsebit_onnx.h\"\n\n"};
    static const char *const code_of[] = {
        "", "#ifndef SPARSEBIT_ONNX_IMPLEMENTATION\n#define SPARSEBIT_ONNX_IMPLEMENTATION\n"
            "#endif\n#include \"sparsebit_onnx.h\"\n\n"};
    const char *x = prefixes[output];
    char seen[MAX_LINE] = "", line[MAX_LINE];
    fprintf(out, "/* GENERATED from src/ by tools/amalgamate - do not edit. "
                 "Edit src/<file>, then run 'make -C tools amalgamate'. */\n");
    put_code(out, output, MANUAL, seen);
    fprintf(out, "#ifndef %s_INCLUDED\n#define %s_INCLUDED\n\n%s", x, x, declarations_of[output]);
    put_parts(out, output, seen);
    fprintf(out, "#endif /* %s_INCLUDED */\n\n#ifdef %s_IMPLEMENTATION\n", x, x);
    fprintf(out, "/* ======== The code. >>code ======== */\n\n");
    fprintf(out, "#ifndef %s_IMPLEMENTED\n#define %s_IMPLEMENTED\n\n%s", x, x, code_of[output]);
    put_code(out, output, CODE, seen);
    fprintf(out, "#endif /* %s_IMPLEMENTED */\n#endif /* %s_IMPLEMENTATION */\n\n/*\n", x, x);
    FILE *license = open_file("", "LICENSE", "rb");
    while (license != NULL && next_line(license, line)) {
        fprintf(out, "%s\n", line);
    }
    fprintf(out, "*/\n");
}

/* Copies `from` over the named file, or only compares: false if they differ. */
static bool update(FILE *from, const char *name, bool check)
{
    FILE *to = open_file("", name, check ? "rb" : "wb");
    bool same = to != NULL;
    rewind(from);
    for (int c = 0; same && c != EOF;) {
        c = getc(from);
        same = check ? getc(to) == c : c == EOF || putc(c, to) == c;
    }
    return to != NULL && fclose(to) == 0 && same;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"sparsebit_onnx.h", "sparsebit.h"};
    const bool check = argc > 1 && strcmp(argv[1], "--check") == 0;
    int result = 0;
    root = argc > 1 + check ? argv[1 + check] : ".";
    read_manifest();
    for (int i = 0; i < 2; i++) {
        FILE *out = tmpfile();
        put_header(out, i);
        if (!update(out, names[i], true) && (check || !update(out, names[i], false))) {
            printf("%s differs from src/: run 'make -C tools amalgamate'\n", names[i]);
            result = 1;
        }
    }
    return result;
}
