/* threads.c: the library's own pool of threads. >>threads
 *
 * Called by: sbit_ctx_parallel. Calls: pthreads or Windows threads.
 * Does: one parallel loop at a time. The indices are cut into equal pieces, and each thread has a
 * share of them that follow each other, which it takes from a counter; then it takes from the others'
 * shares. So a thread mostly gets the same part of one operator's output and the next one's input,
 * which is in its cache. A loop that is started while the pool is busy (from inside a loop, or by
 * another thread) runs on the thread that started it, so nothing can wait for itself.
 * Does not: grow, or order the pieces.
 *
 * A job opens when `generation` is raised and closes when the caller has found all counters
 * exhausted. Workers join an open job at its `gate`, which counts them; the caller waits only for
 * those that joined, never for a worker that is still asleep. A worker without a job spins, because
 * the next operator of a network usually follows at once; then it lets others run, and after a
 * millisecond it sleeps: waking up takes as long as a small operator. So the mutex is for sleepers.
 */
#include "core_private.h"

#if !SPARSEBIT_NO_THREADS

#if defined(_WIN32)
#include <windows.h> /* threads, SRW locks, condition variables */
#else
#include <pthread.h> /* threads, mutexes, condition variables */
#include <sched.h>   /* sched_yield */
#if defined(__NEWLIB__) && !defined(_POSIX_THREADS)
#error "this C library has pthread.h but no threads: define SPARSEBIT_NO_THREADS as 1"
#endif
#endif

enum {
    SBIT__POOL_SPINS = 2000,
    SBIT__POOL_AWAKE_NS = 1000000, /* of waiting, before a thread sleeps */
    SBIT__POOL_PIECES_PER_THREAD = 8,
    SBIT__POOL_WAITED = 1 << 29, /* the gate: the caller sleeps until all have left, */
    SBIT__POOL_OPEN = 1 << 30    /* workers may join; the rest counts them */
};

/* >>system layer: the few calls that differ between POSIX and Windows. */
#if defined(_WIN32)
typedef SRWLOCK sbit__mutex;
typedef CONDITION_VARIABLE sbit__cond;
typedef HANDLE sbit__thread;
#define SBIT__POOL_THREAD_RESULT DWORD WINAPI
#define SBIT__POOL_THREAD_DONE 0

static bool sbit__mutex_init(sbit__mutex *mutex)
{
    InitializeSRWLock(mutex);
    return true;
}
static void sbit__mutex_deinit(sbit__mutex *mutex)
{
    (void)mutex;
}
static void sbit__mutex_lock(sbit__mutex *mutex)
{
    AcquireSRWLockExclusive(mutex);
}
static bool sbit__mutex_try(sbit__mutex *mutex)
{
    return TryAcquireSRWLockExclusive(mutex) != 0;
}
static void sbit__mutex_unlock(sbit__mutex *mutex)
{
    ReleaseSRWLockExclusive(mutex);
}
static bool sbit__cond_init(sbit__cond *cond)
{
    InitializeConditionVariable(cond);
    return true;
}
static void sbit__cond_deinit(sbit__cond *cond)
{
    (void)cond;
}
static void sbit__cond_wait(sbit__cond *cond, sbit__mutex *mutex)
{
    SleepConditionVariableSRW(cond, mutex, INFINITE, 0);
}
static void sbit__cond_wake_all(sbit__cond *cond)
{
    WakeAllConditionVariable(cond);
}
#else
typedef pthread_mutex_t sbit__mutex;
typedef pthread_cond_t sbit__cond;
typedef pthread_t sbit__thread;
#define SBIT__POOL_THREAD_RESULT void *
#define SBIT__POOL_THREAD_DONE NULL

static bool sbit__mutex_init(sbit__mutex *mutex)
{
    return pthread_mutex_init(mutex, NULL) == 0;
}
static void sbit__mutex_deinit(sbit__mutex *mutex)
{
    pthread_mutex_destroy(mutex);
}
static void sbit__mutex_lock(sbit__mutex *mutex)
{
    pthread_mutex_lock(mutex);
}
static bool sbit__mutex_try(sbit__mutex *mutex)
{
    return pthread_mutex_trylock(mutex) == 0;
}
static void sbit__mutex_unlock(sbit__mutex *mutex)
{
    pthread_mutex_unlock(mutex);
}
static bool sbit__cond_init(sbit__cond *cond)
{
    return pthread_cond_init(cond, NULL) == 0;
}
static void sbit__cond_deinit(sbit__cond *cond)
{
    pthread_cond_destroy(cond);
}
static void sbit__cond_wait(sbit__cond *cond, sbit__mutex *mutex)
{
    pthread_cond_wait(cond, mutex);
}
static void sbit__cond_wake_all(sbit__cond *cond)
{
    pthread_cond_broadcast(cond);
}
#endif

/* A number shared by threads; all see all changes of such numbers in one order. */
typedef struct sbit__counter {
#if defined(_WIN32)
    volatile LONG value;
#else
    int32_t value;
#endif
} sbit__counter;

static int32_t sbit__counter_get(sbit__counter *counter)
{
#if defined(_WIN32)
    return (int32_t)InterlockedCompareExchange(&counter->value, 0, 0);
#else
    return __atomic_load_n(&counter->value, __ATOMIC_SEQ_CST);
#endif
}

static void sbit__counter_set(sbit__counter *counter, int32_t value)
{
#if defined(_WIN32)
    InterlockedExchange(&counter->value, (LONG)value);
#else
    __atomic_store_n(&counter->value, value, __ATOMIC_SEQ_CST);
#endif
}

/* Returns the value before; wraps around. */
static int32_t sbit__counter_add(sbit__counter *counter, int32_t delta)
{
#if defined(_WIN32)
    return (int32_t)InterlockedExchangeAdd(&counter->value, (LONG)delta);
#else
    return __atomic_fetch_add(&counter->value, delta, __ATOMIC_SEQ_CST);
#endif
}

/* From `before` to `after`; false: it was another number. */
static bool sbit__counter_swap(sbit__counter *counter, int32_t before, int32_t after)
{
#if defined(_WIN32)
    return InterlockedCompareExchange(&counter->value, (LONG)after, (LONG)before) == (LONG)before;
#else
    return __atomic_compare_exchange_n(&counter->value, &before, after, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
#endif
}

/* Tells the CPU that a loop is waiting for another thread. */
static void sbit__pool_pause(void)
{
#if defined(_WIN32)
    YieldProcessor();
#elif defined(__x86_64__) || defined(__i386__)
    __asm__ volatile("pause");
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void sbit__pool_yield(void)
{
#if defined(_WIN32)
    SwitchToThread();
#else
    sched_yield();
#endif
}

/* >>pool */
typedef struct sbit__pool_worker {
    struct sbit__pool *pool;
    sbit__thread thread;
    int32_t worker; /* 1.. ; the caller of a loop is worker 0 */
} sbit__pool_worker;

/* The pieces next..end-1 are a thread's own; alone in a line of the cache. */
typedef struct sbit__pool_share {
    sbit__counter next;
    int32_t end; /* written while nobody is inside of the gate */
    char apart[56];
} sbit__pool_share;

struct sbit__pool {
    sbit_allocator allocator;
    int32_t worker_count; /* running threads, the caller not counted */
    sbit__pool_worker workers[SBIT__MAX_THREADS - 1];
    sbit__mutex busy;  /* held by the caller of the running loop */
    sbit__mutex mutex; /* of those that sleep */
    sbit__cond wake, done;
    sbit__counter generation; /* raised for each job, and to quit */
    sbit__counter gate, sleepers, quit;
    sbit__pool_share shares[SBIT__MAX_THREADS]; /* by worker */
    /* these are written while nobody is inside of the gate */
    int64_t count, piece_size;
    sbit_task_fn fn;
    void *task;
};

static void sbit__pool_take(struct sbit__pool *pool, sbit__pool_share *share, int32_t worker)
{
    while (sbit__counter_get(&share->next) < share->end) { /* adding is dearer than looking */
        const int32_t piece = sbit__counter_add(&share->next, 1);
        if (piece >= share->end) {
            return;
        }
        const int64_t begin = (int64_t)piece * pool->piece_size;
        const int64_t left = pool->count - begin;
        const int64_t end = begin + (left < pool->piece_size ? left : pool->piece_size);
        for (int64_t i = begin; i < end; i++) {
            pool->fn(pool->task, i, worker);
        }
    }
}

static void sbit__pool_work(struct sbit__pool *pool, int32_t worker)
{
    const int32_t threads = pool->worker_count + 1;
    for (int32_t i = 0; i < threads; i++) {
        sbit__pool_take(pool, &pool->shares[(worker + i) % threads], worker);
    }
}

/* Waits a little, the longer the more often it did; false: long enough to sleep. */
static bool sbit__pool_patient(int spin, uint64_t *since)
{
    if (spin < SBIT__POOL_SPINS) {
        sbit__pool_pause();
        return true;
    }
    const uint64_t now = sbit__now_ns();
    *since = *since == 0 ? now : *since;
    sbit__pool_yield();
    return now != 0 && now - *since < SBIT__POOL_AWAKE_NS;
}

/* Waits until the generation is another one than `seen`, and returns it. */
static int32_t sbit__pool_await(struct sbit__pool *pool, int32_t seen)
{
    uint64_t since = 0;
    for (int spin = 0; sbit__counter_get(&pool->generation) == seen; spin++) {
        if (sbit__pool_patient(spin, &since)) {
            continue;
        }
        sbit__mutex_lock(&pool->mutex);
        sbit__counter_add(&pool->sleepers, 1); /* then a look: who raises it looks for sleepers then */
        while (sbit__counter_get(&pool->generation) == seen) {
            sbit__cond_wait(&pool->wake, &pool->mutex);
        }
        sbit__counter_add(&pool->sleepers, -1);
        sbit__mutex_unlock(&pool->mutex);
    }
    return sbit__counter_get(&pool->generation);
}

static bool sbit__pool_join(struct sbit__pool *pool)
{
    int32_t gate = sbit__counter_get(&pool->gate);
    while ((gate & SBIT__POOL_OPEN) != 0 &&
           !sbit__counter_swap(&pool->gate, gate, gate + 1)) {
        gate = sbit__counter_get(&pool->gate);
    }
    return (gate & SBIT__POOL_OPEN) != 0;
}

static void sbit__pool_leave(struct sbit__pool *pool)
{
    if (sbit__counter_add(&pool->gate, -1) == SBIT__POOL_WAITED + 1) {
        sbit__mutex_lock(&pool->mutex);
        sbit__cond_wake_all(&pool->done);
        sbit__mutex_unlock(&pool->mutex);
    }
}

static SBIT__POOL_THREAD_RESULT sbit__pool_main(void *argument)
{
    sbit__pool_worker *self = (sbit__pool_worker *)argument;
    struct sbit__pool *pool = self->pool;
    int32_t seen = 0;
    while (sbit__counter_get(&pool->quit) == 0) {
        if (sbit__pool_join(pool)) {
            sbit__pool_work(pool, self->worker);
            sbit__pool_leave(pool);
        }
        seen = sbit__pool_await(pool, seen);
    }
    return SBIT__POOL_THREAD_DONE;
}

static void sbit__pool_raise(struct sbit__pool *pool)
{
    sbit__counter_add(&pool->generation, 1);
    if (sbit__counter_get(&pool->sleepers) != 0) {
        sbit__mutex_lock(&pool->mutex);
        sbit__cond_wake_all(&pool->wake);
        sbit__mutex_unlock(&pool->mutex);
    }
}

static void sbit__pool_open_job(struct sbit__pool *pool, int64_t count, sbit_task_fn fn, void *task)
{
    const int32_t threads = pool->worker_count + 1;
    const int64_t most_pieces = (int64_t)threads * SBIT__POOL_PIECES_PER_THREAD;
    const int64_t piece_size = count / most_pieces + (count % most_pieces != 0 ? 1 : 0);
    pool->fn = fn;
    pool->task = task;
    pool->count = count;
    pool->piece_size = piece_size;
    const int32_t pieces = (int32_t)(count / piece_size + (count % piece_size != 0 ? 1 : 0));
    for (int32_t i = 0; i < threads; i++) {
        pool->shares[i].end = pieces * (i + 1) / threads;
        sbit__counter_set(&pool->shares[i].next, pieces * i / threads);
    }
    sbit__counter_set(&pool->gate, SBIT__POOL_OPEN);
    sbit__pool_raise(pool);
}

static void sbit__pool_close_job(struct sbit__pool *pool)
{
    uint64_t since = 0;
    sbit__counter_add(&pool->gate, -SBIT__POOL_OPEN);
    for (int spin = 0; sbit__counter_get(&pool->gate) != 0; spin++) {
        if (!sbit__pool_patient(spin, &since)) {
            break;
        }
    }
    if (sbit__counter_get(&pool->gate) == 0) {
        return;
    }
    sbit__mutex_lock(&pool->mutex);
    sbit__counter_add(&pool->gate, SBIT__POOL_WAITED);
    while (sbit__counter_get(&pool->gate) != SBIT__POOL_WAITED) {
        sbit__cond_wait(&pool->done, &pool->mutex);
    }
    sbit__mutex_unlock(&pool->mutex);
    sbit__counter_set(&pool->gate, 0);
}

SBIT__FN void sbit__pool_run(struct sbit__pool *pool, int64_t count, sbit_task_fn fn, void *task)
{
    if (!sbit__mutex_try(&pool->busy)) {
        for (int64_t i = 0; i < count; i++) {
            fn(task, i, 0);
        }
        return;
    }
    sbit__pool_open_job(pool, count, fn, task);
    sbit__pool_work(pool, 0);
    sbit__pool_close_job(pool);
    sbit__mutex_unlock(&pool->busy);
}

/* >>start and stop */
static bool sbit__pool_start_worker(struct sbit__pool *pool)
{
    sbit__pool_worker *worker = &pool->workers[pool->worker_count];
    worker->pool = pool;
    worker->worker = pool->worker_count + 1;
#if defined(_WIN32)
    worker->thread = CreateThread(NULL, 0, sbit__pool_main, worker, 0, NULL);
    if (worker->thread == NULL) {
        return false;
    }
#else
    if (pthread_create(&worker->thread, NULL, sbit__pool_main, worker) != 0) {
        return false;
    }
#endif
    pool->worker_count++;
    return true;
}

static bool sbit__pool_init_sync(struct sbit__pool *pool)
{
    if (!sbit__mutex_init(&pool->busy)) {
        return false;
    }
    if (!sbit__mutex_init(&pool->mutex)) {
        sbit__mutex_deinit(&pool->busy);
        return false;
    }
    if (!sbit__cond_init(&pool->wake)) {
        sbit__mutex_deinit(&pool->mutex);
        sbit__mutex_deinit(&pool->busy);
        return false;
    }
    if (!sbit__cond_init(&pool->done)) {
        sbit__cond_deinit(&pool->wake);
        sbit__mutex_deinit(&pool->mutex);
        sbit__mutex_deinit(&pool->busy);
        return false;
    }
    return true;
}

SBIT__FN sbit_status sbit__pool_create(const sbit_allocator *allocator, int32_t threads,
                                       struct sbit__pool **out, sbit_error *error)
{
    struct sbit__pool *pool = (struct sbit__pool *)sbit__calloc(allocator, 1, sizeof(*pool));
    if (pool == NULL) {
        return sbit__fail_oom(error, sizeof(*pool));
    }
    pool->allocator = *allocator;
    if (!sbit__pool_init_sync(pool)) {
        sbit__free(allocator, pool, sizeof(*pool));
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "the system has no more mutexes");
    }
    for (int32_t i = 1; i < threads; i++) {
        if (!sbit__pool_start_worker(pool)) {
            sbit__pool_destroy(pool);
            return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "thread %ld of %ld cannot be started",
                              (long)i + 1, (long)threads);
        }
    }
    *out = pool;
    return SBIT_OK;
}

SBIT__FN void sbit__pool_destroy(struct sbit__pool *pool)
{
    if (pool == NULL) {
        return;
    }
    sbit__counter_set(&pool->quit, 1);
    sbit__pool_raise(pool);
    for (int32_t i = 0; i < pool->worker_count; i++) {
#if defined(_WIN32)
        WaitForSingleObject(pool->workers[i].thread, INFINITE);
        CloseHandle(pool->workers[i].thread);
#else
        pthread_join(pool->workers[i].thread, NULL);
#endif
    }
    sbit__cond_deinit(&pool->done);
    sbit__cond_deinit(&pool->wake);
    sbit__mutex_deinit(&pool->mutex);
    sbit__mutex_deinit(&pool->busy);
    const sbit_allocator allocator = pool->allocator;
    sbit__free(&allocator, pool, sizeof(*pool));
}

#undef SBIT__POOL_THREAD_RESULT
#undef SBIT__POOL_THREAD_DONE

#endif /* !SPARSEBIT_NO_THREADS */
