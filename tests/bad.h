/* bad.h: what tests of broken models share. Models are broken in many numbered ways; child
 * processes try one after another with memory and time limited, so that a crash or a hang costs one
 * of them; leaks are counted. Include after sparsebit.h and test.h; _XOPEN_SOURCE and
 * _DEFAULT_SOURCE are needed.
 *
 *   SBIT_BAD_DAMAGE   only this damage, and in this process: for a debugger
 */
#ifndef SBIT_BAD_H
#define SBIT_BAD_H

#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    BAD_SECONDS = 10,       /* processor time for one damaged model; sanitizers are slow */
    BAD_LOOP_CALLS = 20000, /* what the progress callback allows a run */
    BAD_LOOP_ROUNDS = 1000, /* and a loop, whose sequences may grow by a copy each time */
    BAD_ELEMENTS = 1 << 14  /* inputs that are declared larger are not fed */
};
#define BAD_BYTES ((int64_t)64 << 20)

typedef enum bad_outcome {
    BAD_READ,
    BAD_INFER,
    BAD_SIMPLIFY,
    BAD_SESSION,
    BAD_FEED,
    BAD_RUN,
    BAD_NONE, /* it ran */
    BAD_OUTCOMES
} bad_outcome;
static const char *const bad_outcome_names[BAD_OUTCOMES] = {
    "read/import", "infer", "simplify", "session", "feed", "run", "ran"};

/* Shared by the parent and its child. */
typedef struct bad_shared {
    volatile int64_t at; /* the damage that is being tried */
    int64_t outcomes[BAD_OUTCOMES], leaks, silent, quantized, wrong;
} bad_shared;

typedef struct bad_work {
    test_heap heap;
    int64_t calls; /* of the progress callback */
    sbit_ctx *ctx;
    sbit_rng rng;
    bool quantize;
    bad_shared *shared;
    sbit_error error;
} bad_work;

TEST_FN void *bad_alloc(size_t bytes, void *user)
{
    bad_work *work = (bad_work *)user;
    const bool fits = (int64_t)bytes >= 0 && (int64_t)bytes < BAD_BYTES - work->heap.live_bytes;
    return fits ? test_heap_alloc(bytes, &work->heap) : NULL;
}

TEST_FN void bad_free(void *ptr, size_t bytes, void *user)
{
    test_heap_free(ptr, bytes, &((bad_work *)user)->heap);
}

TEST_FN void *bad_realloc(void *ptr, size_t old_bytes, size_t new_bytes, void *user)
{
    void *moved = bad_alloc(new_bytes, user);
    if (moved != NULL && ptr != NULL) {
        memcpy(moved, ptr, old_bytes < new_bytes ? old_bytes : new_bytes);
        bad_free(ptr, old_bytes, user);
    }
    return moved;
}

TEST_FN bool bad_progress(const char *what, int64_t done, int64_t total, void *user)
{
    (void)total;
    const bool endless = strcmp(what, "loop") == 0 && done > BAD_LOOP_ROUNDS;
    return ++((bad_work *)user)->calls < BAD_LOOP_CALLS && !endless;
}

TEST_FN bool bad_begin(bad_work *work, bad_shared *shared, bool quantize)
{
    sbit_ctx_desc desc;
    memset(work, 0, sizeof *work);
    memset(&desc, 0, sizeof desc);
    work->shared = shared;
    work->quantize = quantize;
    desc.allocator.alloc_fn = bad_alloc;
    desc.allocator.realloc_fn = bad_realloc;
    desc.allocator.free_fn = bad_free;
    desc.allocator.user = work;
    desc.progress.progress_fn = bad_progress;
    desc.progress.user = work;
    desc.threads = 1;
    return CHECK_OK(sbit_ctx_create(&desc, &work->ctx, &work->error), work->error);
}

/* Tries damage number `at` of what `user` points to. */
typedef bad_outcome (*bad_try)(bad_work *work, void *user, int64_t at);

typedef struct bad_totals {
    int64_t models, tried, crashes, hangs, leaks, silent, wrong, quantized, outcomes[BAD_OUTCOMES];
} bad_totals;

TEST_FN void bad_child(bad_shared *shared, bad_try try_one, void *user, int64_t count,
                       int64_t stride, bool quantize)
{
    bad_work work;
    struct itimerval timer;
    memset(&timer, 0, sizeof timer);
    test_state.checks_failed = 0; /* the parent's */
    if (!bad_begin(&work, shared, quantize)) {
        _exit(9);
    }
    const int64_t base = work.heap.live_bytes;
    for (; shared->at < count; shared->at += stride) {
        timer.it_value.tv_sec = BAD_SECONDS;
        setitimer(ITIMER_PROF, &timer, NULL);
        work.calls = 0;
        work.rng = sbit_rng_seed((uint64_t)shared->at);
        memset(&work.error, 0, sizeof work.error);
        const bad_outcome outcome = try_one(&work, user, shared->at);
        shared->outcomes[outcome]++;
        shared->silent += outcome != BAD_NONE && work.error.message[0] == '\0';
        if (work.heap.live_bytes != base) {
            shared->leaks++;
            printf("damage %lld: %lld bytes leaked\n", (long long)shared->at,
                   (long long)(work.heap.live_bytes - base));
            work.heap.live_bytes = base;
        }
    }
    sbit_ctx_destroy(work.ctx);
    _exit(test_state.checks_failed != 0 || work.heap.live_bytes != 0 ? 8 : 0);
}

/* Tries every `stride`-th of `count` damages in child processes. */
TEST_FN void bad_sweep(bad_totals *totals, const char *name, bad_try try_one, void *user,
                       int64_t count, int64_t first, int64_t stride, bool quantize)
{
    bad_shared *shared = (bad_shared *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!CHECK(shared != (bad_shared *)MAP_FAILED)) {
        return;
    }
    shared->at = first;
    if (getenv("SBIT_BAD_DAMAGE") != NULL) {
        shared->at = atoi(getenv("SBIT_BAD_DAMAGE"));
        bad_child(shared, try_one, user, shared->at + 1, 1, quantize);
    }
    while (shared->at < count) {
        int status = 0;
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            bad_child(shared, try_one, user, count, stride, quantize);
        }
        if (!CHECK(child > 0 && waitpid(child, &status, 0) == child)) {
            break;
        }
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
            break;
        }
        const bool hang = WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF;
        totals->hangs += hang;
        totals->crashes += !hang;
        printf("CRASH %s, damage %lld of %lld: %s %d\n", name, (long long)shared->at,
               (long long)count, WIFSIGNALED(status) ? "signal" : "exit status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        test_state.checks_failed++;
        shared->at += stride;
    }
    totals->models++;
    totals->leaks += shared->leaks;
    totals->silent += shared->silent;
    totals->wrong += shared->wrong;
    totals->quantized += shared->quantized;
    for (int i = 0; i < BAD_OUTCOMES; i++) {
        totals->outcomes[i] += shared->outcomes[i];
        totals->tried += shared->outcomes[i];
    }
    CHECK_MSG(shared->leaks == 0, "%s: %lld leaks", name, (long long)shared->leaks);
    CHECK_MSG(shared->silent == 0, "%s: %lld errors without a message", name,
              (long long)shared->silent);
    CHECK_MSG(shared->wrong == 0, "%s: %lld wrong answers", name, (long long)shared->wrong);
    munmap(shared, sizeof *shared);
}

TEST_FN void bad_print(const char *what, const bad_totals *totals)
{
    printf("%s: %lld models, %lld damaged inputs: %lld crashes, %lld hangs, %lld leaks;", what,
           (long long)totals->models, (long long)totals->tried, (long long)totals->crashes,
           (long long)totals->hangs, (long long)totals->leaks);
    for (int i = 0; i < BAD_OUTCOMES; i++) {
        printf(" %s%s %lld", i < BAD_NONE ? "refused by " : "", bad_outcome_names[i],
               (long long)totals->outcomes[i]);
    }
    printf(", quantized and ran %lld\n", (long long)totals->quantized);
}

#endif /* SBIT_BAD_H */
