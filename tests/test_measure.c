/* test_measure.c: differences between tensors and ranks (expected values worked out by hand), JSON,
 * the word that was probably meant.
 */
#include "../sparsebit.h"
#include "test.h"

#include "build_graph.h"

TEST(diff_by_hand)
{
    const float a[] = {3.0f, 4.0f, 0.0f, -1.0f}, b[] = {3.0f, 2.0f, 0.0f, 0.0f};
    const sbit_tensor x = build_tensor(SBIT_F32, "4", a), y = build_tensor(SBIT_F32, "4", b);
    sbit_diff diff;
    memset(&diff, 0, sizeof diff);
    sbit_diff_add(&diff, &x, &y, INT64_MAX);
    CHECK_EQ_I64(diff.count, 4);
    CHECK_NEAR(sbit_diff_sqnr(&diff), 10.0 * log10(26.0 / 5.0), 1e-12);
    CHECK_NEAR(sbit_diff_cosine(&diff), 17.0 / (sqrt(26.0) * sqrt(13.0)), 1e-12);
    CHECK_NEAR(sbit_diff_relative(&diff), 2.0 / 4.0, 1e-12);
    sbit_diff_add(&diff, &x, &y, 1); /* one equal pair more */
    CHECK_EQ_I64(diff.count, 5);
    CHECK_NEAR(sbit_diff_sqnr(&diff), 10.0 * log10(35.0 / 5.0), 1e-12);
}

TEST(diff_of_equal_and_broken)
{
    const float a[] = {1.0f, (float)INFINITY, (float)NAN}, b[] = {1.0f, 2.0f, (float)NAN};
    const sbit_tensor x = build_tensor(SBIT_F32, "3", a), y = build_tensor(SBIT_F32, "3", b);
    const sbit_tensor other = build_tensor(SBIT_F32, "3,1", b);
    sbit_diff diff;
    memset(&diff, 0, sizeof diff);
    sbit_diff_add(&diff, &x, &x, INT64_MAX);
    CHECK(!diff.broken && isinf(sbit_diff_sqnr(&diff)) && sbit_diff_sqnr(&diff) > 0.0);
    CHECK_NEAR(sbit_diff_cosine(&diff), 1.0, 0.0);
    CHECK_NEAR(sbit_diff_relative(&diff), 0.0, 0.0);
    sbit_diff_add(&diff, &x, &y, 1); /* the infinity is behind */
    CHECK(!diff.broken);
    sbit_diff_add(&diff, &x, &y, INT64_MAX);
    CHECK(diff.broken && isinf(sbit_diff_relative(&diff)) && isnan(sbit_diff_cosine(&diff)));
    CHECK(sbit_diff_sqnr(&diff) < 0.0);
    memset(&diff, 0, sizeof diff);
    sbit_diff_add(&diff, &y, &other, INT64_MAX);
    CHECK(diff.broken);
}

TEST(elements_of_any_type)
{
    const int8_t bytes[] = {-128, 127};
    const uint8_t packed[] = {0xf1};
    const uint64_t large[] = {UINT64_C(1) << 63};
    const uint16_t half[] = {0xc000};
    const sbit_tensor i8 = build_tensor(SBIT_I8, "2", bytes);
    const sbit_tensor i4 = build_tensor(SBIT_I4, "2", packed);
    const sbit_tensor u64 = build_tensor(SBIT_U64, "1", large);
    const sbit_tensor f16 = build_tensor(SBIT_F16, "1", half);
    CHECK_NEAR(sbit_tensor_f64_at(&i8, 0), -128.0, 0.0);
    CHECK_NEAR(sbit_tensor_f64_at(&i8, 1), 127.0, 0.0);
    CHECK_NEAR(sbit_tensor_f64_at(&i4, 0), 1.0, 0.0);
    CHECK_NEAR(sbit_tensor_f64_at(&i4, 1), -1.0, 0.0);
    CHECK_NEAR(sbit_tensor_f64_at(&u64, 0), 9223372036854775808.0, 0.0);
    CHECK_NEAR(sbit_tensor_f64_at(&f16, 0), -2.0, 0.0);
    CHECK(sbit_dtype_is_number(SBIT_BOOL) && sbit_dtype_is_number(SBIT_F8E4M3FN));
    CHECK(!sbit_dtype_is_number(SBIT_STRING) && !sbit_dtype_is_number(SBIT_C64) &&
          !sbit_dtype_is_number(SBIT_UNDEFINED));
}

TEST(ranks_break_ties_by_index)
{
    const float scores[] = {1.0f, 5.0f, 5.0f, (float)NAN, -2.0f};
    CHECK_EQ_I64(sbit_rank_of(scores, 5, 1), 0);
    CHECK_EQ_I64(sbit_rank_of(scores, 5, 2), 1);
    CHECK_EQ_I64(sbit_rank_of(scores, 5, 0), 2);
    CHECK_EQ_I64(sbit_rank_of(scores, 5, 4), 3);
    CHECK_EQ_I64(sbit_rank_of(scores, 5, 3), 5);
    CHECK_EQ_I64(sbit_best_of(scores, 5), 1);
    CHECK_EQ_I64(sbit_best_of(&scores[3], 2), 1);
}

static void put(const char *text, size_t size, void *user)
{
    char *all = (char *)user;
    const size_t at = strlen(all);
    memcpy(all + at, text, size);
    all[at + size] = '\0';
}

TEST(json_by_hand)
{
    char text[1000] = "";
    sbit_json json = {put, NULL, false};
    json.user = text;
    sbit_json_open(&json, NULL, '{');
    sbit_json_text(&json, "name", "a\"b\\c\n\x7f\xc3\xa4\xff\xed\xa0\x80");
    sbit_json_open(&json, "list", '[');
    sbit_json_int(&json, NULL, INT64_MIN);
    sbit_json_number(&json, NULL, 0.1);
    sbit_json_number(&json, NULL, HUGE_VAL);
    sbit_json_close(&json, ']');
    sbit_json_open(&json, "empty", '{');
    sbit_json_close(&json, '}');
    sbit_json_bool(&json, "yes", true);
    sbit_json_text(&json, "none", NULL);
    sbit_json_close(&json, '}');
    CHECK_STR(text, "{\"name\": \"a\\\"b\\\\c\\u000a\\u007f\xc3\xa4\\ufffd\\ufffd\\ufffd\\ufffd\", "
                    "\"list\": [-9223372036854775808, 0.1, null], \"empty\": {}, \"yes\": true, "
                    "\"none\": null}");
}

TEST(nearest_word)
{
    static const char *const words[] = {"simplify", "quantize", "info"};
    CHECK_STR(sbit_word_nearest("simplfiy", words, 3), "simplify");
    CHECK_STR(sbit_word_nearest("INFO", words, 3), "info");
    CHECK_STR(sbit_word_nearest("quant", words, 3), "quantize");
    CHECK(sbit_word_nearest("xyz", words, 3) == NULL && sbit_word_nearest("", words, 3) == NULL);
}
