/* vec_end.h: takes back what a vec_*.h defined. >>vec_end */
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#undef SBIT__V
#undef SBIT__V_TARGET
#undef SBIT__V_INLINE
#undef SBIT__V_LAST
#undef SBIT__VNNI
