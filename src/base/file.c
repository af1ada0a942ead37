/* file.c: whole files and ranges mapped or read, and files replaced in one step. >>file
 *
 * Called by: onnx, config, data sets. Calls: the operating system; nowhere else does.
 * POSIX: open/mmap/write/fsync/rename. Elsewhere: C's stdio, files are read into memory.
 * Writing goes to "<path>.sbit-tmp" (a number is appended if that exists) and is renamed at commit,
 * so that a reader sees the old file or the whole new one; a symbolic link stays and its target is
 * replaced, and what is no regular file (a device, a pipe) is refused. A mapped file that somebody
 * else cuts short faults on access, as with every use of mmap: replace files by renaming.
 */
#include "base_private.h"

#if !SPARSEBIT_NO_FILES
#include <errno.h> /* the reason a call failed, for the message only */
#include <stdio.h> /* rename, remove, snprintf, stdio builds: FILE */
#if !defined(_WIN32) && (defined(__unix__) || defined(__APPLE__) || defined(__HAIKU__))
#define SBIT__FILE_POSIX 1
#include <fcntl.h>    /* open */
#include <sys/stat.h> /* fstat, stat */
#include <unistd.h>   /* read, write, lseek, close, sysconf */
#if !SPARSEBIT_NO_MMAP
#include <sys/mman.h> /* mmap, munmap */
#endif
#else
#define SBIT__FILE_POSIX 0
#endif

#define SBIT__FILE_BUFFER_BYTES ((size_t)1 << 16)
#define SBIT__FILE_CHUNK_BYTES ((size_t)1 << 30) /* per system call: some stop at 2 GiB */
#define SBIT__FILE_TEMP_TRIES 100
#define SBIT__FILE_LINK_TRIES 40 /* symbolic links in a row; Linux allows as many */
#ifdef O_CLOEXEC                 /* strict -std=c99 hides it */
#define SBIT__FILE_CLOEXEC O_CLOEXEC
#else
#define SBIT__FILE_CLOEXEC 0
#endif

#if SBIT__FILE_POSIX
#ifdef __cplusplus
extern "C" {
#endif
int fsync(int fd); /* POSIX.1-2001; strict -std=c99 hides unistd.h's own declaration */
#ifdef __cplusplus
}
#else
ssize_t readlink(const char *path, char *to, size_t size); /* likewise; C++ shows it */
#endif
#endif

#if SBIT__FILE_POSIX && !SPARSEBIT_NO_MMAP && defined(__linux__)
#ifndef __cplusplus
int madvise(void *data, size_t size, int advice); /* strict -std=c99 hides it, and its numbers */
#endif
#define SBIT__PAGES_FORGET 4
#define SBIT__PAGES_LARGE 14
#endif

static const char *sbit__file_reason(int code)
{
    switch (code) {
#ifdef ENOENT
    case ENOENT:
        return "no such file or folder";
#endif
#ifdef EACCES
    case EACCES:
        return "permission denied";
#endif
#ifdef EISDIR
    case EISDIR:
        return "it is a folder";
#endif
#ifdef ENOTDIR
    case ENOTDIR:
        return "a part of the path is not a folder";
#endif
#ifdef ENOSPC
    case ENOSPC:
        return "no space left on the device";
#endif
#ifdef EROFS
    case EROFS:
        return "the file system is read-only";
#endif
#ifdef EMFILE
    case EMFILE:
        return "too many open files";
#endif
#ifdef ENOMEM
    case ENOMEM:
        return "not enough memory";
#endif
    default:
        return "input/output error";
    }
}

static sbit_status sbit__file_fail(sbit_error *error, const char *path, const char *what, int code)
{
    return sbit__fail(error, SBIT_ERR_IO, path, "file '%.300s' cannot be %s: %s", path, what,
                      sbit__file_reason(code));
}

SBIT__FN bool sbit__file_missing(const char *path)
{
#if SBIT__FILE_POSIX
    struct stat info;
    return stat(path, &info) != 0 && errno == ENOENT;
#else
    FILE *stream = fopen(path, "rb");
    const int code = errno;
    if (stream != NULL) {
        fclose(stream);
    }
#ifdef ENOENT
    return stream == NULL && code == ENOENT;
#else
    (void)code;
    return false;
#endif
#endif
}

/* An empty file has data too: callers may form pointers into it. */
static void sbit__file_set(sbit__file *out, const sbit_allocator *a, const unsigned char *data,
                           size_t size, bool mapped)
{
    static const unsigned char empty[1] = {0};
    out->data = size != 0 ? data : empty;
    out->size = size;
    out->mapped = mapped;
    out->allocator = *a;
}

/* One open file for reading: `handle` on POSIX, `stream` elsewhere. */
typedef struct sbit__file_source {
    const char *path;
    uint64_t size; /* UINT64_MAX: not known (a pipe) */
#if SBIT__FILE_POSIX
    int handle;
#else
    FILE *stream;
#endif
} sbit__file_source;

#if SBIT__FILE_POSIX

static sbit_status sbit__file_source_open(const char *path, sbit__file_source *source,
                                          sbit_error *error)
{
    struct stat info;
    source->path = path;
    source->handle = open(path, O_RDONLY | SBIT__FILE_CLOEXEC);
    if (source->handle < 0) {
        return sbit__file_fail(error, path, "opened", errno);
    }
    if (fstat(source->handle, &info) != 0 || S_ISDIR(info.st_mode)) {
        const int code = S_ISDIR(info.st_mode) ? EISDIR : errno;
        close(source->handle);
        return sbit__file_fail(error, path, "read", code);
    }
    source->size = S_ISREG(info.st_mode) && info.st_size >= 0 ? (uint64_t)info.st_size : UINT64_MAX;
    return SBIT_OK;
}

static void sbit__file_source_close(sbit__file_source *source)
{
    close(source->handle);
}

/* Reads up to `size` bytes; fewer only at the end of the file. */
static bool sbit__file_source_read(sbit__file_source *source, unsigned char *to, size_t size,
                                   size_t *got)
{
    *got = 0;
    while (*got < size) {
        const size_t want =
            size - *got < SBIT__FILE_CHUNK_BYTES ? size - *got : SBIT__FILE_CHUNK_BYTES;
        const ssize_t count = read(source->handle, to + *got, want);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return count == 0;
        }
        *got += (size_t)count;
    }
    return true;
}

static bool sbit__file_source_seek(sbit__file_source *source, uint64_t offset)
{
    const off_t position = (off_t)offset;
    return position >= 0 && (uint64_t)position == offset &&
           lseek(source->handle, position, SEEK_SET) == position;
}

#if !SPARSEBIT_NO_MMAP
static size_t sbit__file_page_bytes(void)
{
    const long bytes = sysconf(_SC_PAGESIZE);
    return bytes > 0 ? (size_t)bytes : 4096;
}

/* False: mapping is not possible here, reading may be. */
static bool sbit__file_source_map(sbit__file_source *source, uint64_t offset, size_t size,
                                  const unsigned char **data)
{
    const size_t lead = (size_t)(offset & (sbit__file_page_bytes() - 1));
    const off_t position = (off_t)(offset - lead);
    size_t bytes = 0;
    if (size == 0 || !sbit__add_size(size, lead, &bytes) || position < 0 ||
        (uint64_t)position != offset - lead) {
        return false;
    }
    void *base = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, source->handle, position);
    if (base == MAP_FAILED) {
        return false;
    }
    *data = (const unsigned char *)base + lead;
    return true;
}
#endif

#else /* stdio */

static sbit_status sbit__file_source_open(const char *path, sbit__file_source *source,
                                          sbit_error *error)
{
    source->path = path;
    source->size = UINT64_MAX; /* ftell's long cannot hold every size */
    source->stream = fopen(path, "rb");
    return source->stream != NULL ? SBIT_OK : sbit__file_fail(error, path, "opened", errno);
}

static void sbit__file_source_close(sbit__file_source *source)
{
    fclose(source->stream);
}

static bool sbit__file_source_read(sbit__file_source *source, unsigned char *to, size_t size,
                                   size_t *got)
{
    *got = fread(to, 1, size, source->stream);
    return *got == size || ferror(source->stream) == 0;
}

/* In steps that fit a 32-bit long. */
static bool sbit__file_source_seek(sbit__file_source *source, uint64_t offset)
{
    if (fseek(source->stream, 0, SEEK_SET) != 0) {
        return false;
    }
    while (offset != 0) {
        const uint64_t step = offset < SBIT__FILE_CHUNK_BYTES ? offset : SBIT__FILE_CHUNK_BYTES;
        if (fseek(source->stream, (long)step, SEEK_CUR) != 0) {
            return false;
        }
        offset -= step;
    }
    return true;
}

#endif

/* Reads `size` bytes from here into one allocation. */
static sbit_status sbit__file_read_exact(const sbit_allocator *a, sbit__file_source *source,
                                         size_t size, sbit__file *out, sbit_error *error)
{
    size_t got = 0;
    if (size == 0) {
        sbit__file_set(out, a, NULL, 0, false);
        return SBIT_OK;
    }
    unsigned char *data = (unsigned char *)sbit__alloc(a, size);
    if (data == NULL) {
        return sbit__fail_oom(error, size);
    }
    if (!sbit__file_source_read(source, data, size, &got) || got != size) {
        sbit__free(a, data, size);
        return sbit__fail(error, SBIT_ERR_IO, source->path,
                          "file '%.300s' ends before %llu bytes could be read", source->path,
                          (unsigned long long)size);
    }
    sbit__file_set(out, a, data, size, false);
    return SBIT_OK;
}

/* Reads to the end of a file of unknown size. */
static sbit_status sbit__file_read_rest(const sbit_allocator *a, sbit__file_source *source,
                                        sbit__file *out, sbit_error *error)
{
    void *data = NULL;
    size_t size = 0;
    size_t capacity = 0;
    for (;;) {
        size_t got = 0;
        const sbit_status status =
            sbit__grow(a, &data, &capacity, size + SBIT__FILE_BUFFER_BYTES, 1, error);
        if (status != SBIT_OK) {
            sbit__free(a, data, capacity);
            return status;
        }
        if (!sbit__file_source_read(source, (unsigned char *)data + size, capacity - size, &got)) {
            sbit__free(a, data, capacity);
            return sbit__file_fail(error, source->path, "read", errno);
        }
        size += got;
        if (size < capacity) {
            break;
        }
    }
    if (size == 0) {
        sbit__free(a, data, capacity);
        sbit__file_set(out, a, NULL, 0, false);
        return SBIT_OK;
    }
    void *exact = sbit__realloc(a, data, capacity, size);
    if (exact == NULL) {
        sbit__free(a, data, capacity);
        return sbit__fail_oom(error, size);
    }
    sbit__file_set(out, a, (const unsigned char *)exact, size, false);
    return SBIT_OK;
}

static sbit_status sbit__file_take_range(const sbit_allocator *a, sbit__file_source *source,
                                         uint64_t offset, size_t size, sbit__file *out,
                                         sbit_error *error)
{
#if SBIT__FILE_POSIX && !SPARSEBIT_NO_MMAP
    const unsigned char *data = NULL;
    if (source->size != UINT64_MAX && sbit__file_source_map(source, offset, size, &data)) {
        sbit__file_set(out, a, data, size, true);
        return SBIT_OK;
    }
#endif
    if (offset != 0 && !sbit__file_source_seek(source, offset)) {
        return sbit__file_fail(error, source->path, "positioned", errno);
    }
    return sbit__file_read_exact(a, source, size, out, error);
}

SBIT__FN sbit_status sbit__file_open(const sbit_allocator *a, const char *path, sbit__file *out,
                                     sbit_error *error)
{
    sbit__file_source source;
    SBIT__TRY(sbit__file_source_open(path, &source, error));
    sbit_status status = SBIT_OK;
    if (source.size == UINT64_MAX) {
        status = sbit__file_read_rest(a, &source, out, error);
    } else if (source.size > SIZE_MAX / 2) {
        status = sbit__fail(error, SBIT_ERR_LIMIT, path,
                            "file '%.300s' of %llu bytes exceeds the address space", path,
                            (unsigned long long)source.size);
    } else {
        status = sbit__file_take_range(a, &source, 0, (size_t)source.size, out, error);
    }
    sbit__file_source_close(&source);
    return status;
}

SBIT__FN sbit_status sbit__file_open_range(const sbit_allocator *a, const char *path,
                                           uint64_t offset, size_t size, sbit__file *out,
                                           sbit_error *error)
{
    sbit__file_source source;
    SBIT__TRY(sbit__file_source_open(path, &source, error));
    sbit_status status = SBIT_OK;
    if (offset > source.size || size > source.size - offset) {
        status = sbit__fail(error, SBIT_ERR_IO, path,
                            "file '%.300s' has %llu bytes, too few for %llu bytes at offset %llu",
                            path, (unsigned long long)source.size, (unsigned long long)size,
                            (unsigned long long)offset);
    } else {
        status = sbit__file_take_range(a, &source, offset, size, out, error);
    }
    sbit__file_source_close(&source);
    return status;
}

/* munmap and free take plain pointers, although nobody writes through them. */
static void *sbit__file_unconst(const unsigned char *data)
{
    void *plain = NULL;
    memcpy(&plain, &data, sizeof(plain));
    return plain;
}

SBIT__FN void sbit__file_close(sbit__file *file)
{
    if (file->size != 0) {
        unsigned char *data = (unsigned char *)sbit__file_unconst(file->data);
#if SBIT__FILE_POSIX && !SPARSEBIT_NO_MMAP
        if (file->mapped) {
            const size_t lead = (size_t)((uintptr_t)data & (sbit__file_page_bytes() - 1));
            munmap(data - lead, file->size + lead);
            data = NULL;
        }
#endif
        sbit__free(&file->allocator, data, file->size);
    }
    file->data = NULL;
    file->size = 0;
    file->mapped = false;
}

/* ---- writing ---- */

#if SBIT__FILE_POSIX

/* Replaces writer->path by what it leads to, if it is a symbolic link: that file is written. */
static bool sbit__writer_follow(sbit__writer *writer)
{
    char *target = (char *)writer->buffer;
    for (int i = 0; i < SBIT__FILE_LINK_TRIES; i++) {
        const ssize_t got = readlink(writer->path, target, SBIT__FILE_BUFFER_BYTES);
        if (got <= 0 || (size_t)got >= SBIT__FILE_BUFFER_BYTES) {
            return true; /* no link */
        }
        const char *slash = target[0] != '/' ? strrchr(writer->path, '/') : NULL;
        const size_t folder = slash != NULL ? (size_t)(slash - writer->path) + 1 : 0;
        const size_t bytes = folder + (size_t)got + 1;
        char *path = (char *)sbit__realloc(&writer->allocator, writer->path, writer->path_bytes,
                                           bytes > writer->path_bytes ? bytes : writer->path_bytes);
        if (path == NULL) {
            return false;
        }
        writer->path_bytes = bytes > writer->path_bytes ? bytes : writer->path_bytes;
        memcpy(path + folder, target, (size_t)got);
        path[folder + (size_t)got] = '\0';
        writer->path = path;
    }
    return true; /* a circle: see sbit__writer_obstacle */
}

/* Why `path` cannot be replaced by a file; NULL: nothing is in the way. */
static const char *sbit__writer_obstacle(const char *path)
{
    struct stat old;
    if (stat(path, &old) != 0) {
        return errno == ELOOP ? "its symbolic links lead in a circle" : NULL;
    }
    if (S_ISREG(old.st_mode)) {
        return NULL;
    }
    return S_ISDIR(old.st_mode) ? "it is a folder" : "it is no regular file";
}

/* A file that is replaced keeps its permissions; a new one gets the usual ones (umask applies). */
static bool sbit__writer_create(sbit__writer *writer)
{
    struct stat old;
    const mode_t mode = stat(writer->path, &old) == 0 ? (mode_t)(old.st_mode & 0777) : (mode_t)0666;
    writer->fd = open(writer->temp_path, O_WRONLY | O_CREAT | O_EXCL | SBIT__FILE_CLOEXEC,
                      mode | (mode_t)0200);
    return writer->fd >= 0;
}

static bool sbit__writer_raw(sbit__writer *writer, const unsigned char *data, size_t size)
{
    while (size != 0) {
        const size_t want = size < SBIT__FILE_CHUNK_BYTES ? size : SBIT__FILE_CHUNK_BYTES;
        const ssize_t count = write(writer->fd, data, want);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return false;
        }
        data += count;
        size -= (size_t)count;
    }
    return true;
}

static bool sbit__writer_finish(sbit__writer *writer)
{
    const bool synced = fsync(writer->fd) == 0 || errno == EINVAL; /* EINVAL: not a disk file */
    return close(writer->fd) == 0 && synced;
}

static bool sbit__writer_replace(const char *from, const char *to)
{
    return rename(from, to) == 0;
}

static void sbit__writer_drop(sbit__writer *writer)
{
    close(writer->fd);
}

#else /* stdio */

static bool sbit__writer_follow(sbit__writer *writer)
{
    return writer->path != NULL;
}

static const char *sbit__writer_obstacle(const char *path)
{
    (void)path;
    return NULL;
}

/* C99 has no exclusive creation: a name that can be opened for reading counts as taken. */
static bool sbit__writer_create(sbit__writer *writer)
{
    FILE *existing = fopen(writer->temp_path, "rb");
    if (existing != NULL) {
        fclose(existing);
#ifdef EEXIST
        errno = EEXIST;
#endif
        return false;
    }
    writer->stream = fopen(writer->temp_path, "wb");
    return writer->stream != NULL;
}

static bool sbit__writer_raw(sbit__writer *writer, const unsigned char *data, size_t size)
{
    return size == 0 || fwrite(data, 1, size, (FILE *)writer->stream) == size;
}

static bool sbit__writer_finish(sbit__writer *writer)
{
    return fclose((FILE *)writer->stream) == 0;
}

/* Windows' rename refuses an existing target, which then goes first. "r+b" opens no folders. */
static bool sbit__writer_replace(const char *from, const char *to)
{
    if (rename(from, to) == 0) {
        return true;
    }
    FILE *existing = fopen(to, "r+b");
    if (existing == NULL) {
        return false;
    }
    fclose(existing);
    return remove(to) == 0 && rename(from, to) == 0;
}

static void sbit__writer_drop(sbit__writer *writer)
{
    fclose((FILE *)writer->stream);
}

#endif

static void sbit__writer_release(sbit__writer *writer)
{
    sbit__free(&writer->allocator, writer->path, writer->path_bytes);
    sbit__free(&writer->allocator, writer->temp_path, writer->temp_path_bytes);
    sbit__free(&writer->allocator, writer->buffer, SBIT__FILE_BUFFER_BYTES);
    writer->path = NULL;
    writer->temp_path = NULL;
    writer->buffer = NULL;
}

static bool sbit__writer_create_unique(sbit__writer *writer)
{
    for (int i = 0; i < SBIT__FILE_TEMP_TRIES; i++) {
        snprintf(writer->temp_path, writer->temp_path_bytes,
                 i == 0 ? "%s.sbit-tmp" : "%s.sbit-tmp%d", writer->path, i);
        if (sbit__writer_create(writer)) {
            return true;
        }
#ifdef EEXIST
        if (errno != EEXIST) {
            return false;
        }
#endif
    }
    return false;
}

/* Allocates; false: out of memory. */
static bool sbit__writer_paths(sbit__writer *writer, const char *path)
{
    writer->path_bytes = strlen(path) + 1;
    writer->path = (char *)sbit__alloc(&writer->allocator, writer->path_bytes);
    writer->buffer = (unsigned char *)sbit__alloc(&writer->allocator, SBIT__FILE_BUFFER_BYTES);
    if (writer->path == NULL || writer->buffer == NULL) {
        return false;
    }
    memcpy(writer->path, path, writer->path_bytes);
    if (!sbit__writer_follow(writer)) {
        return false;
    }
    writer->temp_path_bytes = strlen(writer->path) + 17;
    writer->temp_path = (char *)sbit__alloc(&writer->allocator, writer->temp_path_bytes);
    return writer->temp_path != NULL;
}

SBIT__FN sbit_status sbit__writer_open(const sbit_allocator *a, const char *path, sbit__writer *out,
                                       sbit_error *error)
{
    sbit__writer writer;
    memset(&writer, 0, sizeof(writer));
    writer.allocator = *a;
    if (!sbit__writer_paths(&writer, path)) {
        sbit__writer_release(&writer);
        return sbit__fail_oom(error, SBIT__FILE_BUFFER_BYTES);
    }
    const char *obstacle = sbit__writer_obstacle(writer.path);
    if (obstacle != NULL) {
        sbit__writer_release(&writer);
        return sbit__fail(error, SBIT_ERR_IO, path, "file '%.300s' cannot be written: %s", path,
                          obstacle);
    }
    if (!sbit__writer_create_unique(&writer)) {
        const int code = errno;
        sbit__writer_release(&writer);
        return sbit__file_fail(error, path, "created", code);
    }
    *out = writer;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__writer_put(sbit__writer *writer, const void *data, size_t size,
                                      sbit_error *error)
{
    const unsigned char *bytes = (const unsigned char *)data;
    if (size <= SBIT__FILE_BUFFER_BYTES - writer->buffered) {
        if (size != 0) {
            memcpy(writer->buffer + writer->buffered, bytes, size);
        }
        writer->buffered += size;
        writer->written += size;
        return SBIT_OK;
    }
    const size_t buffered = writer->buffered;
    writer->buffered = 0;
    if (!sbit__writer_raw(writer, writer->buffer, buffered)) {
        return sbit__file_fail(error, writer->path, "written", errno);
    }
    if (size < SBIT__FILE_BUFFER_BYTES) {
        memcpy(writer->buffer, bytes, size);
        writer->buffered = size;
    } else if (!sbit__writer_raw(writer, bytes, size)) {
        return sbit__file_fail(error, writer->path, "written", errno);
    }
    writer->written += size;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__writer_commit(sbit__writer *writer, sbit_error *error)
{
    sbit_status status = SBIT_OK;
    const bool flushed = sbit__writer_raw(writer, writer->buffer, writer->buffered);
    const int flush_code = flushed ? 0 : errno;
    if (!sbit__writer_finish(writer) || !flushed) {
        status = sbit__file_fail(error, writer->path, "written", flushed ? errno : flush_code);
    } else if (!sbit__writer_replace(writer->temp_path, writer->path)) {
        status = sbit__file_fail(error, writer->path, "replaced", errno);
    }
    if (status != SBIT_OK) {
        remove(writer->temp_path);
    }
    sbit__writer_release(writer);
    return status;
}

SBIT__FN void sbit__writer_abort(sbit__writer *writer)
{
    if (writer->path == NULL) {
        return;
    }
    sbit__writer_drop(writer);
    remove(writer->temp_path);
    sbit__writer_release(writer);
}
#undef SBIT__FILE_POSIX
#undef SBIT__FILE_CLOEXEC
#undef SBIT__FILE_BUFFER_BYTES
#undef SBIT__FILE_CHUNK_BYTES
#undef SBIT__FILE_TEMP_TRIES
#undef SBIT__FILE_LINK_TRIES

#else /* SPARSEBIT_NO_FILES */

static sbit_status sbit__file_refuse(const char *path, sbit_error *error)
{
    return sbit__fail(error, SBIT_ERR_UNSUPPORTED, path,
                      "file '%.300s': file access is switched off (SPARSEBIT_NO_FILES)", path);
}

SBIT__FN bool sbit__file_missing(const char *path)
{
    (void)path;
    return false; /* whoever opens it is told why it cannot be */
}

SBIT__FN sbit_status sbit__file_open(const sbit_allocator *a, const char *path, sbit__file *out,
                                     sbit_error *error)
{
    (void)a;
    memset(out, 0, sizeof *out);
    return sbit__file_refuse(path, error);
}

SBIT__FN sbit_status sbit__file_open_range(const sbit_allocator *a, const char *path,
                                           uint64_t offset, size_t size, sbit__file *out,
                                           sbit_error *error)
{
    (void)a;
    (void)offset;
    (void)size;
    memset(out, 0, sizeof *out);
    return sbit__file_refuse(path, error);
}

SBIT__FN void sbit__file_close(sbit__file *file)
{
    file->data = NULL;
    file->size = 0;
}

SBIT__FN sbit_status sbit__writer_open(const sbit_allocator *a, const char *path, sbit__writer *out,
                                       sbit_error *error)
{
    (void)a;
    memset(out, 0, sizeof *out);
    return sbit__file_refuse(path, error);
}

SBIT__FN sbit_status sbit__writer_put(sbit__writer *writer, const void *data, size_t size,
                                      sbit_error *error)
{
    (void)writer;
    (void)data;
    (void)size;
    return sbit__file_refuse("", error);
}

SBIT__FN sbit_status sbit__writer_commit(sbit__writer *writer, sbit_error *error)
{
    (void)writer;
    return sbit__file_refuse("", error);
}

SBIT__FN void sbit__writer_abort(sbit__writer *writer)
{
    (void)writer;
}

#endif /* SPARSEBIT_NO_FILES */

#ifdef SBIT__PAGES_FORGET
/* Whole pages inside of a block. */
static void sbit__pages_advise(void *data, size_t size, int advice)
{
    const size_t page = sbit__file_page_bytes(), lead = page - ((uintptr_t)data & (page - 1));
    const size_t skipped = lead % page;
    if (size >= skipped + page) {
        unsigned char *first = (unsigned char *)data;
        (void)madvise(first + skipped, (size - skipped) / page * page, advice);
    }
}
#endif

SBIT__FN void sbit__file_forget(const sbit__file *file, const void *data, size_t size)
{
#ifdef SBIT__PAGES_FORGET
    const uintptr_t first = (uintptr_t)file->data, at = (uintptr_t)data;
    if (file->mapped && at >= first && size <= file->size && at - first <= file->size - size) {
        sbit__pages_advise(sbit__file_unconst((const unsigned char *)data), size, SBIT__PAGES_FORGET);
    }
#else
    (void)file;
    (void)data;
    (void)size;
#endif
}

SBIT__FN void sbit__pages_large(void *data, size_t size)
{
#ifdef SBIT__PAGES_LARGE
    sbit__pages_advise(data, size, SBIT__PAGES_LARGE);
#else
    (void)data;
    (void)size;
#endif
}
