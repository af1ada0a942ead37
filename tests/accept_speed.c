/* accept_speed.c: time and memory limits of the issues, on this machine, through the tool. */
#define _GNU_SOURCE /* wait4 */
#include "test.h"

#include <fcntl.h>        /* open, for quiet children */
#include <sys/resource.h> /* rusage */
#include <sys/time.h>     /* gettimeofday */
#include <sys/wait.h>     /* wait4 */
#include <unistd.h>       /* fork, execv */

typedef struct accept_run {
    int exit_code;
    double seconds, peak_mb;
} accept_run;

static double accept_now(void)
{
    struct timeval t;
    gettimeofday(&t, NULL);
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

/* Runs the tool with a NULL-terminated argument list; its output goes to `log`. */
static accept_run accept_tool(const char *const *args, const char *log)
{
    accept_run run = {-1, 0.0, 0.0};
    const char *argv[40] = {test_tool()};
    int status = 0;
    struct rusage usage;
    for (int i = 0; i < 38 && args[i] != NULL; i++) {
        argv[i + 1] = args[i];
    }
    const double start = accept_now();
    const pid_t child = fork();
    if (child == 0) {
        const int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        dup2(fd, 1);
        dup2(fd, 2);
        union {
            const char **in;
            char **out;
        } u = {argv};
        execv(argv[0], u.out);
        _exit(127);
    }
    if (child > 0 && wait4(child, &status, 0, &usage) == child) {
        run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        run.seconds = accept_now() - start;
        run.peak_mb = (double)usage.ru_maxrss / 1024.0;
    }
    return run;
}

#define CIFAR_FLAGS                                                                                \
    "--mean", "0.4914,0.4822,0.4465", "--std", "0.2470,0.2435,0.2616", "--threads", "2"

/* Whole 10,000 images through a network, from start to end of the process. */
static void accept_eval(const char *net, double limit)
{
    char model[512], data[512], spec[600], log[512], point[64];
    snprintf(spec, sizeof spec, "models/cifar10/%s.onnx", net);
    if (!test_shared(spec, model, sizeof model) ||
        !test_shared("data/cifar10/test-10k.bin", data, sizeof data)) {
        SBIT_TEST_SKIP("no shared models and data");
    }
    snprintf(spec, sizeof spec, "cifar10:%s", data);
    const char *const args[] = {"eval", model, "--data", spec, CIFAR_FLAGS, NULL};
    test_tmp_path("accept.log", log, sizeof log);
    const accept_run run = accept_tool(args, log);
    CHECK_EQ_I64(run.exit_code, 0);
    snprintf(point, sizeof point, "eval 10k %s", net);
    CHECK(test_accept(point, run.seconds, limit, run.seconds <= limit, "s"));
}

TEST(eval_resnet20)
{
    accept_eval("resnet20", 15.0);
}

TEST(eval_mobilenetv2)
{
    accept_eval("mobilenetv2", 60.0);
}

TEST(quantize_mobilenetv2)
{
    char model[512], data[512], spec[600], log[512], out[512];
    if (!test_shared("models/cifar10/mobilenetv2.onnx", model, sizeof model) ||
        !test_shared("data/cifar10/train-20k.bin", data, sizeof data)) {
        SBIT_TEST_SKIP("no shared models and data");
    }
    snprintf(spec, sizeof spec, "cifar10:%s", data);
    test_tmp_path("accept.log", log, sizeof log);
    test_tmp_path("accept-q.onnx", out, sizeof out);
    const char *const args[] = {"quantize", model, "--data", spec,        "--calib",
                                "256",      "-o",  out,      CIFAR_FLAGS, NULL};
    const accept_run run = accept_tool(args, log);
    CHECK_EQ_I64(run.exit_code, 0);
    CHECK(test_accept("quantize mobilenetv2 time", run.seconds, 4.0, run.seconds <= 4.0, "s"));
    CHECK(test_accept("quantize mobilenetv2 peak", run.peak_mb, 250.0, run.peak_mb <= 250.0, "MB"));
}
