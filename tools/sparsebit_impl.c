#define SPARSEBIT_IMPLEMENTATION
#include "../sparsebit.h"
