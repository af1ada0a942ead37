/* base/progress.c: how far long work is, on stderr.
 *
 * A terminal gets one line that is drawn again: "calibrate [#####.....]  50 %  128/256  3 s left";
 * anything else gets a plain line every ten seconds. Work of less than a second shows nothing.
 */
#include "base/system.h"

typedef struct cli_bar {
    char what[32];
    double begin, shown; /* clock; shown 0: nothing yet */
    bool running, drawn; /* drawn: the cursor stands behind the bar */
} cli_bar;

static cli_bar cli_bar_state;

void cli_progress_clear(void)
{
    if (cli_bar_state.drawn) {
        fputs("\r\033[K", stderr);
        cli_bar_state.drawn = false;
    }
}

static void cli_progress_draw(const cli_bar *bar, int64_t done, int64_t total, double passed)
{
    char picture[31];
    const double part = total > 0 ? (double)done / (double)total : 1.0;
    const int filled = (int)(part * 30.0);
    for (int i = 0; i < 30; i++) {
        picture[i] = i < filled ? '#' : '.';
    }
    picture[30] = '\0';
    fprintf(stderr, "\r\033[K%s [%s] %3.0f %%  %lld/%lld", bar->what, picture, 100.0 * part,
            (long long)done, (long long)total);
    if (done > 0) {
        fprintf(stderr, "  %.0f s left", passed * (1.0 - part) / part);
    }
    fflush(stderr);
}

void cli_progress(const char *what, int64_t done, int64_t total)
{
    cli_bar *bar = &cli_bar_state;
    const double now = cli_seconds();
    const bool terminal = cli_is_terminal();
    if (!bar->running || strncmp(bar->what, what, sizeof bar->what - 1) != 0) {
        cli_progress_clear();
        snprintf(bar->what, sizeof bar->what, "%s", what);
        bar->begin = now;
        bar->shown = 0.0;
        bar->running = true;
    }
    if (done >= total) {
        cli_progress_clear();
        bar->running = false;
        return;
    }
    const double last = bar->shown > 0.0 ? bar->shown : bar->begin;
    if (now - last < (terminal ? (bar->shown > 0.0 ? 0.1 : 1.0) : 10.0)) {
        return;
    }
    bar->shown = now;
    if (terminal) {
        cli_progress_draw(bar, done, total, now - bar->begin);
        bar->drawn = true;
    } else {
        fprintf(stderr, "sparsebit: %s %lld/%lld, %.0f s left\n", bar->what, (long long)done,
                (long long)total,
                done > 0 ? (now - bar->begin) * (double)(total - done) / (double)done : 0.0);
    }
}
