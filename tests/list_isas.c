/* list_isas.c: prints the names of the instruction sets that kernels can use on this machine; the
 * others go to the error output, so that nobody takes them for tested. */
#include "../sparsebit.h"

#include <stdio.h> /* printf */

int main(void)
{
    for (int i = 1; i < SBIT_ISA_COUNT; i++) {
        FILE *out = sbit_isa_available((sbit_isa)i) ? stdout : stderr;
        fprintf(out, "%s%s\n", out == stderr ? "SKIP ISA not on this machine: " : "",
                sbit_isa_name((sbit_isa)i));
    }
    return 0;
}
