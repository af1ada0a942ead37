/*
 * shapes.c - draws a labelled image set, so that the quickstart needs no download.
 *
 *     cc -O2 -ffp-contract=off shapes.c -lm -o shapes
 *     ./shapes --count 1000 --seed 2 -o test.bin
 *
 * Each picture shows one of ten figures in a random pose and colour, over a shaded background with
 * clutter behind it and in front of it, then blurred and covered with noise. A small network names
 * about 19 of 20 figures correctly, so the set is easy to learn and still hard enough to show what
 * quantizing costs. examples/train_shapes.py trained examples/shapes.onnx on it.
 *
 * The file has the CIFAR-10 binary layout: for each picture 3073 bytes,
 *
 *     label (0..9) | 32x32 red | 32x32 green | 32x32 blue      row by row from the top left
 *
 * The same seed gives the same bytes everywhere. Therefore the random numbers are integers of our
 * own, and the drawing uses only + - * / and sqrt, which IEEE 754 rounds in one way; the flag
 * -ffp-contract=off keeps compilers from fusing a product and a sum into one rounding. Picture i
 * depends on the seed and on i alone: a longer set begins with the shorter one.
 *
 * It is not a renderer for anything else: no files but the output, no options for the look.
 */
#include <errno.h> /* why a file cannot be written */
#include <math.h>  /* sqrt, floor */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h> /* malloc */
#include <string.h> /* strcmp, memcpy, strerror */

#define SIDE 32      /* pixels along an edge */
#define PLANES 3     /* red, green, blue */
#define SUBSAMPLES 4 /* points along an edge of a pixel, to smooth the outlines */
#define SAMPLE_BYTES (1 + PLANES * SIDE * SIDE)

enum {
    EXIT_OK = 0,
    EXIT_BAD_INPUT = 1,
    EXIT_USAGE = 2
};

static const uint64_t MAX_COUNT = 10000000; /* 30 GB: more than that is a typing mistake */

/* ---------------------------------------------------------------------------------------------
 * Random numbers: splitmix64. A counter, stepped by an odd constant, goes through a mixer.
 * ------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t counter;
} rng;

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static uint64_t rng_next(rng *r)
{
    r->counter += UINT64_C(0x9E3779B97F4A7C15);
    return mix(r->counter);
}

/* A stream for each picture. Mixing twice keeps the streams of neighbouring seeds apart. */
static rng rng_for_picture(uint64_t seed, uint64_t index)
{
    rng r;
    r.counter = mix(mix(seed + 1) + index);
    return r;
}

/* Uniform in [low, high). The top 53 bits fill a double exactly. */
static double rng_uniform(rng *r, double low, double high)
{
    const double unit = (double)(rng_next(r) >> 11) / 9007199254740992.0;
    return low + (high - low) * unit;
}

/* Uniform in 0..n-1 for a small n; the bias of the product is below n / 2^32. */
static int rng_below(rng *r, int n)
{
    return (int)(((rng_next(r) >> 32) * (uint64_t)n) >> 32);
}

/* Nearly normal, mean 0, deviation 1: the sum of four 16-bit numbers out of one 64-bit draw. */
static double rng_normal(rng *r)
{
    const uint64_t bits = rng_next(r);
    const uint64_t sum =
        (bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) + ((bits >> 32) & 0xFFFF) + (bits >> 48);
    /* Each number has mean 65535/2 and variance 65536^2/12; the sum has 131070 and 65536^2/3. */
    return ((double)sum - 131070.0) / 65536.0 * 1.7320508075688772;
}

/* A random direction, as its cosine and sine. Drawing a point of the unit disc and scaling it to
 * length 1 needs no sin() or cos(), whose last bit differs between C libraries. */
static void rng_direction(rng *r, double *cosine, double *sine)
{
    double x, y, square;
    do {
        x = rng_uniform(r, -1.0, 1.0);
        y = rng_uniform(r, -1.0, 1.0);
        square = x * x + y * y;
    } while (square > 1.0 || square < 0.01);
    *cosine = x / sqrt(square);
    *sine = y / sqrt(square);
}

/* ---------------------------------------------------------------------------------------------
 * The figures. Each is a function that tells whether a point lies inside. They fill most of the
 * square -1..1; x points right and y down.
 * ------------------------------------------------------------------------------------------- */

typedef bool (*inside_fn)(double x, double y);

typedef struct {
    double x, y;
} point;

/* Counts the edges that a ray to the right crosses; an odd number means inside. */
static bool inside_polygon(const point *corners, size_t count, double x, double y)
{
    bool inside = false;
    for (size_t i = 0, j = count - 1; i < count; j = i++) {
        const point a = corners[i], b = corners[j];
        if ((a.y > y) != (b.y > y) && x < a.x + (b.x - a.x) * (y - a.y) / (b.y - a.y)) {
            inside = !inside;
        }
    }
    return inside;
}

static bool in_box(double x, double y, double left, double top, double right, double bottom)
{
    return left <= x && x <= right && top <= y && y <= bottom;
}

static bool in_disc(double x, double y)
{
    return x * x + y * y <= 0.85 * 0.85;
}

static bool in_ring(double x, double y)
{
    const double square = x * x + y * y;
    return 0.5 * 0.5 <= square && square <= 0.9 * 0.9;
}

static bool in_square(double x, double y)
{
    return in_box(x, y, -0.72, -0.72, 0.72, 0.72);
}

static bool in_triangle(double x, double y)
{
    static const point corners[] = {{0.0, -0.95}, {0.85, 0.55}, {-0.85, 0.55}};
    return inside_polygon(corners, sizeof corners / sizeof corners[0], x, y);
}

static bool in_star(double x, double y)
{
    static const point corners[] = {
        {0.0, -1.0}, {0.247, -0.34},  {0.951, -0.309}, {0.399, 0.13},    {0.588, 0.809},
        {0.0, 0.42}, {-0.588, 0.809}, {-0.399, 0.13},  {-0.951, -0.309}, {-0.247, -0.34}};
    return inside_polygon(corners, sizeof corners / sizeof corners[0], x, y);
}

static bool in_cross(double x, double y)
{
    return in_box(x, y, -0.27, -0.9, 0.27, 0.9) || in_box(x, y, -0.9, -0.27, 0.9, 0.27);
}

static bool in_crescent(double x, double y)
{
    const double bite = x - 0.45;
    return x * x + y * y <= 0.9 * 0.9 && bite * bite + y * y > 0.7 * 0.7;
}

static bool in_arrow(double x, double y)
{
    static const point corners[] = {{0.0, -1.0},   {0.75, -0.15},  {0.28, -0.15}, {0.28, 0.95},
                                    {-0.28, 0.95}, {-0.28, -0.15}, {-0.75, -0.15}};
    return inside_polygon(corners, sizeof corners / sizeof corners[0], x, y);
}

static bool in_letter_e(double x, double y)
{
    return in_box(x, y, -0.7, -0.9, -0.3, 0.9) || in_box(x, y, -0.7, -0.9, 0.7, -0.55) ||
           in_box(x, y, -0.7, -0.18, 0.6, 0.18) || in_box(x, y, -0.7, 0.55, 0.7, 0.9);
}

static bool in_letter_h(double x, double y)
{
    return in_box(x, y, -0.8, -0.9, -0.38, 0.9) || in_box(x, y, 0.38, -0.9, 0.8, 0.9) ||
           in_box(x, y, -0.8, -0.2, 0.8, 0.2);
}

/* The row number is the label. */
static const struct {
    const char *name;
    inside_fn inside;
} FIGURES[] = {
    {"disc", in_disc},         {"ring", in_ring},   {"square", in_square},
    {"triangle", in_triangle}, {"star", in_star},   {"cross", in_cross},
    {"crescent", in_crescent}, {"arrow", in_arrow}, {"letter E", in_letter_e},
    {"letter H", in_letter_h},
};

enum {
    FIGURE_COUNT = sizeof FIGURES / sizeof FIGURES[0]
};

/* ---------------------------------------------------------------------------------------------
 * Drawing. Colours are 0..255 in each plane and stay unrounded until the picture is finished.
 * ------------------------------------------------------------------------------------------- */

typedef struct {
    double plane[PLANES][SIDE][SIDE];
} canvas;

typedef struct {
    double plane[PLANES];
} colour;

/* Where a figure stands: it is stretched, sheared, turned, then moved. */
typedef struct {
    double centre_x, centre_y; /* pixels */
    double half_x, half_y;     /* pixels that the figure's unit covers along its own axes */
    double shear;
    double cosine, sine;
} pose;

static bool pose_covers(const pose *p, inside_fn inside, double x, double y)
{
    const double dx = x - p->centre_x, dy = y - p->centre_y;
    const double turned_x = p->cosine * dx + p->sine * dy;
    const double turned_y = p->cosine * dy - p->sine * dx;
    return inside((turned_x - p->shear * turned_y) / p->half_x, turned_y / p->half_y);
}

/* The part of pixel (column, row) that the figure covers: 0, 1/16 ... 1. */
static double pose_coverage(const pose *p, inside_fn inside, int column, int row)
{
    int hits = 0;
    for (int j = 0; j < SUBSAMPLES; ++j) {
        for (int i = 0; i < SUBSAMPLES; ++i) {
            const double x = column + (i + 0.5) / SUBSAMPLES;
            const double y = row + (j + 0.5) / SUBSAMPLES;
            hits += pose_covers(p, inside, x, y) ? 1 : 0;
        }
    }
    return (double)hits / (SUBSAMPLES * SUBSAMPLES);
}

/* The first pixel of the span that reaches `reach` to both sides of the centre, and the one after
 * its last. Only there a figure is tested, which makes the small ones cheap. */
static void pixel_span(double centre, double reach, int *first, int *end)
{
    const double low = floor(centre - reach), high = floor(centre + reach) + 1.0;
    *first = low > 0.0 ? (low < SIDE ? (int)low : SIDE) : 0;
    *end = high > 0.0 ? (high < SIDE ? (int)high : SIDE) : 0;
}

static void draw_figure(canvas *c, inside_fn inside, const pose *p, const colour *paint)
{
    const double widest = p->half_x + fabs(p->shear) * p->half_y;
    const double reach_x = fabs(p->cosine) * widest + fabs(p->sine) * p->half_y;
    const double reach_y = fabs(p->sine) * widest + fabs(p->cosine) * p->half_y;
    int first_column, end_column, first_row, end_row;
    pixel_span(p->centre_x, reach_x, &first_column, &end_column);
    pixel_span(p->centre_y, reach_y, &first_row, &end_row);
    for (int row = first_row; row < end_row; ++row) {
        for (int column = first_column; column < end_column; ++column) {
            const double coverage = pose_coverage(p, inside, column, row);
            for (int k = 0; k < PLANES; ++k) {
                double *pixel = &c->plane[k][row][column];
                *pixel += (paint->plane[k] - *pixel) * coverage;
            }
        }
    }
}

static colour random_colour(rng *r)
{
    colour paint;
    for (int k = 0; k < PLANES; ++k) {
        paint.plane[k] = rng_uniform(r, 0.0, 255.0);
    }
    return paint;
}

static double colour_distance(const colour *a, const colour *b)
{
    double sum = 0.0;
    for (int k = 0; k < PLANES; ++k) {
        sum += fabs(a->plane[k] - b->plane[k]);
    }
    return sum;
}

/* A slope from one colour to a similar one, in a random direction. */
static colour draw_background(canvas *c, rng *r)
{
    const colour base = random_colour(r);
    double cosine, sine, slope[PLANES];
    rng_direction(r, &cosine, &sine);
    for (int k = 0; k < PLANES; ++k) {
        slope[k] = rng_uniform(r, -50.0, 50.0) / (SIDE / 2);
    }
    for (int k = 0; k < PLANES; ++k) {
        for (int row = 0; row < SIDE; ++row) {
            for (int column = 0; column < SIDE; ++column) {
                const double along = cosine * (column - SIDE / 2) + sine * (row - SIDE / 2);
                c->plane[k][row][column] = base.plane[k] + slope[k] * along;
            }
        }
    }
    return base;
}

/* Distractors: long thin strokes and small round blobs, anywhere in the picture. Both are figures
 * as well, stretched out of shape. `size` scales their thickness. */
static void draw_clutter(canvas *c, rng *r, int count, double size)
{
    for (int i = 0; i < count; ++i) {
        const bool stroke = rng_below(r, 2) == 0;
        const colour paint = random_colour(r);
        pose p;
        p.centre_x = rng_uniform(r, 0.0, SIDE);
        p.centre_y = rng_uniform(r, 0.0, SIDE);
        p.half_x = stroke ? rng_uniform(r, 5.0, 16.0) : rng_uniform(r, 2.0, 4.5) * size;
        p.half_y = stroke ? rng_uniform(r, 0.7, 2.0) * size : rng_uniform(r, 2.0, 4.5) * size;
        p.shear = 0.0;
        rng_direction(r, &p.cosine, &p.sine);
        draw_figure(c, stroke ? in_square : in_disc, &p, &paint);
    }
}

static void draw_subject(canvas *c, rng *r, int label, const colour *background)
{
    const double size = rng_uniform(r, 6.0, 12.0);
    colour paint;
    pose p;
    do {
        paint = random_colour(r);
    } while (colour_distance(&paint, background) < 90.0); /* else nobody could see the figure */
    p.half_x = size * rng_uniform(r, 0.8, 1.1);
    p.half_y = size * rng_uniform(r, 0.8, 1.1);
    p.centre_x = rng_uniform(r, 11.0, SIDE - 11.0);
    p.centre_y = rng_uniform(r, 11.0, SIDE - 11.0);
    p.shear = rng_uniform(r, -0.25, 0.25);
    rng_direction(r, &p.cosine, &p.sine);
    draw_figure(c, FIGURES[label].inside, &p, &paint);
}

/* ---------------------------------------------------------------------------------------------
 * The camera: blur, noise, rounding to bytes.
 * ------------------------------------------------------------------------------------------- */

/* Weights 1 2 1 along one line whose pixels lie `step` apart; the ends repeat. */
static void blur_line(double *line, size_t step)
{
    double before = line[0];
    for (size_t i = 0; i < SIDE; ++i) {
        const double here = line[i * step];
        const double after = line[(i + 1 < SIDE ? i + 1 : i) * step];
        line[i * step] = (before + 2.0 * here + after) / 4.0;
        before = here;
    }
}

static void blur(canvas *c)
{
    for (int k = 0; k < PLANES; ++k) {
        for (int i = 0; i < SIDE; ++i) {
            blur_line(&c->plane[k][i][0], 1);
        }
        for (int i = 0; i < SIDE; ++i) {
            blur_line(&c->plane[k][0][i], SIDE);
        }
    }
}

static unsigned char to_byte(double value)
{
    const double rounded = floor(value + 0.5);
    return (unsigned char)(rounded < 0.0 ? 0.0 : rounded > 255.0 ? 255.0 : rounded);
}

static void expose(const canvas *c, rng *r, double noise, unsigned char *bytes)
{
    for (int k = 0; k < PLANES; ++k) {
        for (int row = 0; row < SIDE; ++row) {
            for (int column = 0; column < SIDE; ++column) {
                *bytes++ = to_byte(c->plane[k][row][column] + noise * rng_normal(r));
            }
        }
    }
}

/* Labels go round, so that any first part of the file holds all classes equally often: the first
 * few hundred pictures are a fair calibration set. Shuffle before training. */
static void draw_sample(uint64_t seed, uint64_t index, unsigned char *bytes)
{
    rng r = rng_for_picture(seed, index);
    const int label = (int)(index % FIGURE_COUNT);
    canvas c;
    const colour background = draw_background(&c, &r);
    draw_clutter(&c, &r, rng_below(&r, 5), 1.0);
    draw_subject(&c, &r, label, &background);
    draw_clutter(&c, &r, rng_below(&r, 3), 0.7);
    for (int passes = rng_below(&r, 3); passes > 0; --passes) {
        blur(&c);
    }
    bytes[0] = (unsigned char)label;
    expose(&c, &r, rng_uniform(&r, 3.0, 28.0), bytes + 1);
}

/* ---------------------------------------------------------------------------------------------
 * The program.
 * ------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t count;
    uint64_t seed;
    const char *path;
    bool help;
} options;

static void print_help(void)
{
    printf("usage: shapes [--count N] [--seed S] -o FILE\n"
           "Draws labelled 32x32 pictures and writes them in the CIFAR-10 binary layout.\n\n"
           "  --count N   number of pictures, 1 to %llu (default 1000)\n"
           "  --seed S    which set of pictures, 0 to 2^64-1 (default 1)\n"
           "  -o FILE     where to write; replaced only when all is written\n"
           "  --help      print this text\n\nLabels:",
           (unsigned long long)MAX_COUNT);
    for (int i = 0; i < FIGURE_COUNT; ++i) {
        printf("%s %d %s", i == 0 ? "" : ",", i, FIGURES[i].name);
    }
    printf("\nExit status: 0 done, 1 the file cannot be written, 2 wrong usage.\n");
}

/* Digits only: no sign, no space, no overflow, which strtoull would all let pass. */
static bool parse_number(const char *text, uint64_t low, uint64_t high, uint64_t *value)
{
    uint64_t n = 0;
    const char *s = text;
    for (; *s >= '0' && *s <= '9'; ++s) {
        const uint64_t digit = (uint64_t)(*s - '0');
        if (n > (high - digit) / 10) {
            return false;
        }
        n = n * 10 + digit;
    }
    if (s == text || *s != '\0' || n < low) {
        return false;
    }
    *value = n;
    return true;
}

static bool parse_options(int argc, char **argv, options *o)
{
    for (int i = 1; i < argc; ++i) {
        const char *name = argv[i];
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool good;
        if (strcmp(name, "--help") == 0) {
            o->help = true;
            return true;
        }
        if (strcmp(name, "--count") != 0 && strcmp(name, "--seed") != 0 &&
            strcmp(name, "-o") != 0) {
            fprintf(stderr, "shapes: unknown argument '%s'; try --help\n", name);
            return false;
        }
        if (value == NULL) {
            fprintf(stderr, "shapes: %s needs a value; try --help\n", name);
            return false;
        }
        ++i;
        if (strcmp(name, "-o") == 0) {
            o->path = value;
            good = value[0] != '\0';
        } else if (strcmp(name, "--seed") == 0) {
            good = parse_number(value, 0, UINT64_MAX, &o->seed);
        } else {
            good = parse_number(value, 1, MAX_COUNT, &o->count);
        }
        if (!good) {
            fprintf(stderr, "shapes: %s: '%s' is not a valid value; try --help\n", name, value);
            return false;
        }
    }
    if (o->path == NULL) {
        fprintf(stderr, "shapes: -o FILE is missing; try --help\n");
        return false;
    }
    return true;
}

static bool write_samples(FILE *file, uint64_t count, uint64_t seed)
{
    unsigned char bytes[SAMPLE_BYTES];
    for (uint64_t i = 0; i < count; ++i) {
        draw_sample(seed, i, bytes);
        if (fwrite(bytes, 1, sizeof bytes, file) != sizeof bytes) {
            return false;
        }
    }
    return true;
}

/* A reader never sees half a file: everything goes to a temporary name first. */
static bool write_file(const options *o, const char *temporary)
{
    FILE *file = fopen(temporary, "wb");
    if (file == NULL) {
        return false;
    }
    bool good = write_samples(file, o->count, o->seed);
    good = fclose(file) == 0 && good;
#ifdef _WIN32
    if (good) {
        remove(o->path); /* rename() there does not replace */
    }
#endif
    good = good && rename(temporary, o->path) == 0;
    if (!good) {
        const int reason = errno; /* kept for the message */
        remove(temporary);
        errno = reason;
    }
    return good;
}

int main(int argc, char **argv)
{
    options o = {1000, 1, NULL, false};
    if (!parse_options(argc, argv, &o)) {
        return EXIT_USAGE;
    }
    if (o.help) {
        print_help();
        return EXIT_OK;
    }
    const size_t length = strlen(o.path);
    char *temporary = (char *)malloc(length + sizeof ".tmp");
    if (temporary == NULL) {
        fprintf(stderr, "shapes: out of memory\n");
        return EXIT_BAD_INPUT;
    }
    memcpy(temporary, o.path, length);
    memcpy(temporary + length, ".tmp", sizeof ".tmp");
    const bool good = write_file(&o, temporary);
    if (!good) {
        fprintf(stderr, "shapes: '%s' cannot be written: %s\n", o.path, strerror(errno));
    }
    free(temporary);
    return good ? EXIT_OK : EXIT_BAD_INPUT;
}
