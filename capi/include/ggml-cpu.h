/* Programs include this beside llama.h; ggml.h has what is offered. */
#ifndef GGML_CPU_H
#define GGML_CPU_H

#include "ggml.h"

#endif
