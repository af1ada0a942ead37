/* The tool's progress on stderr (tools/base/progress.c), by a clock of the test's.
 */
#include "../sparsebit.h"
#include "base/progress.c"
#include "test.h"

static double progress_now;
static bool progress_terminal;

double cli_seconds(void)
{
    return progress_now;
}

bool cli_is_terminal(void)
{
    return progress_terminal;
}

/* What work says that has come so far by then. */
static char *progress_at(double now, const char *what, int64_t done, int64_t total)
{
    static char text[1000];
    FILE *const file = freopen(SBIT_TEST_TMP "/progress.txt", "w+", stderr);
    text[0] = '\0';
    progress_now = now;
    cli_progress(what, done, total);
    if (file != NULL) {
        rewind(file);
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
    }
    return text;
}

TEST(progress_goes_on_behind_work_inside)
{
    progress_terminal = false;
    CHECK_STR(progress_at(0.0, "train", 0, 400), "");
    CHECK_STR(progress_at(9.0, "train", 90, 400), "");
    CHECK_STR(progress_at(10.0, "train", 95, 400), "sparsebit: train 95/400, 32 s left\n");
    CHECK_STR(progress_at(11.0, "evaluate", 0, 50), ""); /* an epoch has ended */
    CHECK_STR(progress_at(22.0, "evaluate", 40, 50), "sparsebit: evaluate 40/50, 3 s left\n");
    CHECK_STR(progress_at(25.0, "evaluate", 50, 50), "");
    /* 100 of 400 in 30 s, the evaluation among them: not "0 s left" from here */
    CHECK_STR(progress_at(30.0, "train", 100, 400), "sparsebit: train 100/400, 90 s left\n");
    CHECK_STR(progress_at(31.0, "train", 101, 400), "");
    CHECK_STR(progress_at(60.0, "evaluate", 0, 50), ""); /* a new one */
    CHECK_STR(progress_at(71.0, "evaluate", 25, 50), "sparsebit: evaluate 25/50, 11 s left\n");
    CHECK_STR(progress_at(82.0, "train", 200, 400), "sparsebit: train 200/400, 82 s left\n");
    CHECK_STR(progress_at(90.0, "train", 400, 400), "");
}

TEST(progress_of_work_that_is_resumed)
{
    progress_terminal = false;
    CHECK_STR(progress_at(100.0, "train", 300, 400), "");
    CHECK_STR(progress_at(120.0, "train", 320, 400), "sparsebit: train 320/400, 80 s left\n");
    CHECK_STR(progress_at(150.0, "train", 20, 400), ""); /* it begins again */
    CHECK_STR(progress_at(160.0, "train", 40, 400), "sparsebit: train 40/400, 180 s left\n");
    CHECK_STR(progress_at(170.0, "train", 400, 400), "");
}

/* Work that ended early is forgotten for what is called later. */
TEST(progress_of_many_works)
{
    char name[32];
    progress_terminal = false;
    CHECK_STR(progress_at(200.0, "train", 0, 400), "");
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "work %d", i);
        CHECK_STR(progress_at(201.0 + i, name, 0, 10), "");
        progress_at(201.5 + i, "train", 1 + i, 400);
    }
    CHECK_STR(progress_at(260.0, "train", 100, 400), "sparsebit: train 100/400, 180 s left\n");
    CHECK_STR(progress_at(261.0, "work 39", 9, 10), "sparsebit: work 39 9/10, 2 s left\n");
    progress_at(262.0, "train", 400, 400);
}

TEST(progress_of_a_terminal)
{
    progress_terminal = true;
    CHECK_STR(progress_at(300.0, "train", 0, 400), "");
    CHECK_STR(progress_at(300.5, "train", 1, 400), "");
    CHECK_STR(progress_at(302.0, "train", 100, 400),
              "\r\033[Ktrain [#######.......................]  25 %  100/400  6 s left");
    CHECK_STR(progress_at(302.05, "train", 101, 400), "");
    CHECK_STR(progress_at(303.0, "evaluate", 0, 10), "");
    CHECK_STR(progress_at(303.1, "evaluate", 10, 10), "\r\033[K");
    CHECK_STR(progress_at(304.0, "train", 200, 400),
              "\r\033[Ktrain [###############...............]  50 %  200/400  4 s left");
    CHECK_STR(progress_at(305.0, "train", 400, 400), "\r\033[K");
}
