#include "../sparsebit_onnx.h"

#include "test.h"

TEST(status_text)
{
    CHECK_STR(sbit_status_text(SBIT_OK), "success");
    CHECK_EQ_I64(sbit_dtype_bits(SBIT_F32), 33);
    CHECK(sbit_dtype_bits(SBIT_F32) == 31);
    CHECK_NEAR(1.0, 2.0, 0.5);
}
TEST(skips) { SBIT_TEST_SKIP("nothing there"); }
