/* base/progress.c: how far long work is, on stderr.
 *
 * A terminal gets one line that is drawn again: "calibrate [#####.....]  50 %  128/256  3 s left";
 * anything else gets a plain line every ten seconds. Work of less than a second shows nothing.
 * Work may begin inside of other work (an evaluation after each epoch), which then goes on: it is known
 * by its name and total, and by more being done than before.
 */
#include "base/system.h"

enum {
    CLI_BARS = 8 /* known at a time; then the one is forgotten that was called longest ago */
};

typedef struct cli_bar {
    char what[32];             /* "": none */
    int64_t from, done, total; /* from: what was done when it began, as in training that is resumed */
    double begin, shown, last; /* clock; shown 0: nothing yet; last: the last call */
} cli_bar;

static cli_bar cli_bars[CLI_BARS];
static bool cli_bar_drawn; /* the cursor stands behind one */

void cli_progress_clear(void)
{
    if (cli_bar_drawn) {
        fputs("\r\033[K", stderr);
        cli_bar_drawn = false;
    }
}

static void cli_progress_draw(const cli_bar *bar, double left)
{
    char picture[31];
    const double part = (double)bar->done / (double)bar->total;
    const int filled = (int)(part * 30.0);
    for (int i = 0; i < 30; i++) {
        picture[i] = i < filled ? '#' : '.';
    }
    picture[30] = '\0';
    fprintf(stderr, "\r\033[K%s [%s] %3.0f %%  %lld/%lld  %.0f s left", bar->what, picture, 100.0 * part,
            (long long)bar->done, (long long)bar->total, left);
    fflush(stderr);
}

/* The bar of that name, or the one to begin it in; *goes_on: the former, with less done. */
static cli_bar *cli_bar_of(const char *what, int64_t done, int64_t total, bool *goes_on)
{
    cli_bar *out = &cli_bars[0];
    for (int i = 0; i < CLI_BARS; i++) {
        cli_bar *bar = &cli_bars[i];
        if (bar->what[0] != '\0' && strncmp(bar->what, what, sizeof bar->what - 1) == 0) {
            *goes_on = bar->total == total && bar->done < done;
            return bar;
        }
        out = bar->last < out->last ? bar : out;
    }
    *goes_on = false;
    return out;
}

void cli_progress(const char *what, int64_t done, int64_t total)
{
    const double now = cli_seconds();
    const bool terminal = cli_is_terminal();
    bool goes_on;
    cli_bar *bar = cli_bar_of(what, done, total, &goes_on);
    if (done >= total) {
        cli_progress_clear();
        if (goes_on) {
            memset(bar, 0, sizeof *bar);
        }
        return;
    }
    if (!goes_on) {
        snprintf(bar->what, sizeof bar->what, "%s", what);
        bar->from = done;
        bar->total = total;
        bar->begin = now;
        bar->shown = 0.0;
    }
    bar->done = done;
    bar->last = now;
    const double since = bar->shown > 0.0 ? bar->shown : bar->begin;
    if (!goes_on || now - since < (terminal ? (bar->shown > 0.0 ? 0.1 : 1.0) : 10.0)) {
        return;
    }
    const double left = (now - bar->begin) * (double)(total - done) / (double)(done - bar->from);
    bar->shown = now;
    if (terminal) {
        cli_progress_draw(bar, left);
        cli_bar_drawn = true;
    } else {
        fprintf(stderr, "sparsebit: %s %lld/%lld, %.0f s left\n", bar->what, (long long)done, (long long)total, left);
    }
}
